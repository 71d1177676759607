"""What a command is for: its argument may be a class path, a model's id, a config.json, or a class in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.cli.options import Common

if TYPE_CHECKING:
    from lmp.source.subject import Subject


def chosen(common: Common, text: str | None, command: str) -> tuple[Common, str | None]:
    """The options with what the argument says, and the class path; None for the class of the config.

    Raises UsageError if an option says otherwise. Raises NotFound for a file that is not there.
    """
    from lmp.cli.progress import scratchpad
    from lmp.source.subject import config_in, subject_of

    if text is None:
        return common, None
    with scratchpad(common.results_folder, lambda: text):
        subject = subject_of(config_in(text))
        if subject.file is not None:
            from lmp.cli.own import own_class

            return own_class(common, text, subject, command)
    return _with_config(common, subject), subject.class_path


def chosen_classes(common: Common, texts: Sequence[str], command: str) -> tuple[Common, list[str]]:
    """As `chosen`, for a command that takes several class paths. Anything else stands alone."""
    from lmp.errors import UsageError
    from lmp.source.subject import subject_of

    if len(texts) <= 1:
        common, path = chosen(common, texts[0] if texts else None, command)
        return common, [] if path is None else [path]
    for text in texts:
        if subject_of(text).class_path is None:
            raise UsageError(f"{text} is given with other names, but only class paths may be several\ngive it alone")
    return common, list(texts)


def _with_config(common: Common, subject: Subject) -> Common:
    """The options with the config that the argument names. Raises UsageError if they name another one."""
    from lmp.errors import UsageError

    config: str | Path | None = subject.model_id or subject.config
    if config is None:
        return common
    given = {"--model-id": common.model_id, "--config": common.config}
    for option, other in given.items():
        if other is not None and other != config:
            raise UsageError(f"two configs are given: {config} and, with {option}, {other}\ngive one")
    return replace(common, model_id=subject.model_id, config=subject.config)
