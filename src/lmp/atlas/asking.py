"""How a command asks for the atlas: options that name its folder, and what switches it off."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, fields
from pathlib import Path

from lmp.analyze.session import Options
from lmp.atlas.archive import PACKAGED
from lmp.settings import read_settings

VARIABLE = "LMP_ATLAS"
"""Environment variable: the folder of an atlas, or `OFF`."""
OFF = "off"


@dataclass(frozen=True)
class AtlasOptions(Options):
    """Options of a command that the atlas may answer."""

    atlas: Path | None = None
    """Folder of the atlas; None: it is not asked."""


def with_atlas(options: Options, folder: Path | None) -> AtlasOptions:
    """The same options, with an atlas."""
    return AtlasOptions(**{field.name: getattr(options, field.name) for field in fields(Options)}, atlas=folder)


def atlas_folder(switched_off: bool = False) -> Path | None:
    """The folder of the atlas to ask: that of LMP_ATLAS, else the package's own. None if it is switched off."""
    named = os.environ.get(VARIABLE)
    if switched_off or named == OFF:
        return None
    if named:
        return Path(named)
    return PACKAGED if read_settings().atlas else None


def asked_atlas(options: Options) -> Path | None:
    """The folder of the atlas that may answer these options.

    None for options without one, and where an analysis is asked for: `--fresh`, or inputs of the user's own.
    """
    folder = options.atlas if isinstance(options, AtlasOptions) else None
    own = options.fresh or options.inputs is not None or options.init is not None
    return None if own else folder


_said: set[str] = set()


def say(sentence: str) -> None:
    """Tell the user, once a process. The logger ``lmp`` writes to stderr, unless the program configures it."""
    if sentence not in _said:
        _said.add(sentence)
        logging.getLogger("lmp").warning("%s", sentence)
