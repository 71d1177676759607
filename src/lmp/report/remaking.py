"""A report made again in memory, from what its own head names: what a review without its list of numbers is held
against."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.errors import UsageError
from lmp.records import DEFAULT_CONFIG
from lmp.report.document.ledger import Ledger
from lmp.report.evaluating import Worth
from lmp.report.folder import with_lines
from lmp.report.making import Making
from lmp.report.review.reading import CLOSE, OPEN, Text
from lmp.report.review.written import lines_of_facts
from lmp.store.results import MODEL_FILE_NAME, Store

if TYPE_CHECKING:
    from lmp.analyze.session import Options

SAME = 0.6
"""Share of lines with facts from which the file is the report that is made again."""
_HEAD_LINES = 30
_NAMED = re.compile(rf"(?P<name>[A-Z][\w -]*): (?:{OPEN}(?P<code>[^{CLOSE}]+){CLOSE})?(?P<rest>.*)")


@dataclass(frozen=True)
class Remade:
    """A list of numbers that no file has, and what they are worth."""

    ledger: Ledger
    worth: Worth
    note: str


def remade(text: Text, options: Options, folders: Sequence[Path], reports: Path) -> Remade | None:
    """None for a file that is no report of lmp's. Raises UsageError where it is one and cannot be made again.

    Nothing is written. Of a code base only folders below ``folders`` are read, and the parts that a reader named, from
    the folder of ``reports``.
    """
    head = _head(text)
    if "Class" in head and "Config" in head:
        return _checked(text, *_of_model(head, options))
    if "Local clone" in head:
        return _checked(text, *_of_code_base(head, folders, reports))
    return None


def _head(text: Text) -> dict[str, tuple[str, str]]:
    """The bold lines under the title: name -> what stands in code there, and what follows it."""
    pieces = (piece for piece in text.pieces if piece.line <= _HEAD_LINES)
    found = (_NAMED.match(piece.text) for piece in pieces)
    return {one["name"]: (one["code"] or "", one["rest"]) for one in found if one is not None}


def _checked(text: Text, making: Making, worth: Worth, what: str) -> Remade:
    ledger = with_lines(making.plain)
    now, then = Counter(facts for _, facts in lines_of_facts(text)), Counter(ledger.lines)
    if (now & then).total() < SAME * max(1, now.total()):
        raise UsageError(f"{what}: made again it is another report, so it was made from other sources or options")
    return Remade(ledger, worth, f"the report was made again, as no list of numbers lies beside it: {what}")


# --- of a model ------------------------------------------------------------------------------------------------------


def _of_model(head: dict[str, tuple[str, str]], options: Options) -> tuple[Making, Worth, str]:
    from lmp.link.values import parse_settings, whole_values
    from lmp.report.deployment import DEFAULT, deployment_of
    from lmp.report.devices import device_named
    from lmp.report.everything import options_of
    from lmp.report.facts import STATED, parse_point
    from lmp.report.gathering import gather
    from lmp.report.index import Stored
    from lmp.report.model import model_making

    class_path, config = head["Class"][0], head["Config"][0]
    store = Store(options.results)
    name = class_path if config == DEFAULT_CONFIG.name else f"{class_path}@{config}"
    model = store.load_model(class_path, config)
    if model is None:
        raise UsageError(f"there is no model of {name} in {store.root.name}/ (`lmp expand` makes it)")
    file = store.folder(class_path, config) / MODEL_FILE_NAME
    device = device_named(head.get("Device", ("", "H100"))[1].partition(";")[0])
    with tempfile.TemporaryDirectory() as place:  # what is analysed again for this is not stored
        for part in (class_path, *model.parts):
            for of in dict.fromkeys((config, DEFAULT_CONFIG.name)):
                folder = store.folder(part, of)
                if folder.is_dir():
                    shutil.copytree(folder, Path(place) / folder.name, dirs_exist_ok=True)
        asked = replace(options_of(Stored(model, file), options), results=Path(place))
        deployment = deployment_of(head["Deployment"][1]) if "Deployment" in head else DEFAULT
        at = tuple(parse_point(text) for text in head.get("Points", ("", ""))[1].split(", ") if text)
        given = whole_values(parse_settings(head.get("Sizes", ("", ""))[1].split(", ")) if "Sizes" in head else {})
        facts = gather(class_path, asked, lambda name, stage: None, device, given, deployment, at or STATED)
        making = model_making(facts)
        making.plain  # noqa: B018 - before the folder is gone
    return making, facts.worth, f"{name} from {store.root.name}/"


# --- of a code base --------------------------------------------------------------------------------------------------


def _of_code_base(
    head: dict[str, tuple[str, str]], folders: Sequence[Path], reports: Path
) -> tuple[Making, Worth, str]:
    from lmp.codebase.facts import Selection
    from lmp.report.code_base import read_code_base, repository_making, studied
    from lmp.report.naming import kept

    clone = Path(head["Local clone"][0])
    given = [folder for folder in folders if folder.resolve().name == clone.name]
    inside = [clone] if any(_is_below(clone, folder) for folder in folders) else []
    found = next((folder for folder in (*inside, *given) if folder.is_dir()), None)
    if found is None:
        raise UsageError("its code base was not read: name its folder with --root")
    facts = read_code_base(found, Selection(), lambda done, of, name: None)
    named, _ = kept(reports, studied(facts, found)) if "Parts" in head else (None, ())
    return repository_making(facts, found, named=named), Worth(None, {}, facts.counts), f"from {clone.name}/"


def _is_below(folder: Path, of: Path) -> bool:
    try:
        return folder.resolve().is_relative_to(of.resolve())
    except (OSError, RuntimeError):
        return False


def reason(error: Exception) -> str:
    """Why a report was not made again, as a note."""
    return f"the numbers were not held against results: {str(error).splitlines()[0]}"
