"""Expanded models for commands that read them: own results first, then the atlas, then an analysis."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

from lmp.analyze import comparing, models
from lmp.analyze import session as sessions
from lmp.analyze.comparing import Found
from lmp.analyze.models import ModelOutcome, model_outcome, stored_model
from lmp.analyze.session import Options, Progress, Session
from lmp.atlas.archive import Atlas, Damaged
from lmp.atlas.asking import asked_atlas, say
from lmp.atlas.matching import Answer, find_answer
from lmp.errors import EngineMissing, InvalidAnalysis, NotFound, first_line
from lmp.records import OWN_ENGINE, ModuleAnalysis
from lmp.source.configs import FoundConfig
from lmp.source.hub import CONFIG_NAME
from lmp.source.subject import config_in, is_model_id
from lmp.source.trees import find_trees
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME


def expand_model(class_path: str, options: Options, progress: Progress, keep: bool = True) -> ModelOutcome:
    """The class linked with everything it calls: a valid own result, else the atlas's, else one that is made now.

    An answer from the atlas is not stored. Raises as `lmp.analyze.models.expand_model`.
    """
    folder = asked_atlas(options)
    if folder is None:
        return models.expand_model(class_path, options, progress, keep)
    session = Session(options, progress, takes_foreign=True)
    set_aside: list[str] = []
    stored = stored_model(class_path, session, set_aside)
    if stored is not None:
        return model_outcome(stored, session, reused=True, set_aside=set_aside)
    reason: str | None = None
    if not _has_own(class_path, session):
        try:
            atlas = Atlas(folder)
            found, reason = find_answer(atlas, _listed_name(class_path, atlas, session), options, session)
        except Damaged as error:
            found = None
            say(f"warning: {first_line(error)}; it is not used")
        if found is not None:
            say(found.sentence)
            return _outcome(found, set_aside)
    try:
        return models.expand_model(class_path, options, progress, keep)
    except EngineMissing as error:
        error.message += f"\nthe atlas does not answer: {reason}" if reason is not None else ""
        raise


def take_over(class_path: str, options: Options, progress: Progress) -> None:
    """Store the atlas's analyses of exactly this model as own results, for a command that works with those.

    Nothing is stored where an own result is there, or where the installed rules would make another one.
    """
    folder = asked_atlas(options)
    session = Session(options, progress, takes_foreign=True)
    if folder is None or stored_model(class_path, session, []) is not None or _has_own(class_path, session):
        return
    try:
        atlas = Atlas(folder)
        found, _ = find_answer(atlas, _listed_name(class_path, atlas, session), options, session)
        if found is None or found.is_family or found.is_older or found.unsourced:
            return
        model, modules = found.model, found.entry.modules
    except Damaged as error:
        say(f"warning: {first_line(error)}; it is not used")
        return
    if model.config != session.origin:
        return  # the same config from another place: an own result names its own
    for analysis in modules.values():
        if not session.store.file(analysis.class_name, analysis.config.name).exists():
            session.store.save(analysis)
    session.store.save_model(model)
    say(found.sentence)


def class_of_config(options: Options) -> str:
    """The class that the options' config is for. Raises as `lmp.analyze.session.class_of_config`."""
    folder = asked_atlas(options)
    found = None if folder is None or options.transformers is not None else options.found_config
    if folder is not None and found is not None:
        known = _listed_class(folder, found, options.pytorch)
        if known is not None:
            return known
    return sessions.class_of_config(options)


def find_result(text: str, options: Options, progress: Progress, stored_only: bool = False) -> Found:
    """The model that an operand of `lmp diff` names: of an id or a config.json, that which `expand_model` gives.

    Everything else as `lmp.analyze.comparing.find_result`.
    """
    config = config_of(Path(text))
    if config is not None:
        own = replace(options, config_file=config, model_id=None)
    elif asked_atlas(options) is not None and is_model_id(text):
        own = replace(options, model_id=text)
    else:
        return comparing.find_result(text, options, progress, stored_only)
    return Found(expand_model(class_of_config(own), own, progress, keep=False).model)


def config_of(path: Path) -> Path | None:
    """The config.json that a path names, itself or as the folder that holds it; None for a result or anything else."""
    with contextlib.suppress(OSError):  # a name that no file can have
        if not any((path / name).is_file() for name in (FILE_NAME, MODEL_FILE_NAME)):
            path = Path(config_in(str(path)))
        if path.is_file() and (path.name == CONFIG_NAME or _states_a_model(path)):
            return path
    return None


def _states_a_model(path: Path) -> bool:
    """Whether a file under another name is a config: results have a version of their schema."""
    with contextlib.suppress(ValueError, OSError):
        content = json.loads(path.read_bytes())
        return isinstance(content, dict) and "model_type" in content and "schema_version" not in content
    return False


def _listed_class(folder: Path, found: FoundConfig, pytorch: Path | None) -> str | None:
    """The class of an entry of the config; of its family only where no sources say it."""
    try:
        index = Atlas(folder).index
    except Damaged as error:
        say(f"warning: {first_line(error)}; it is not used")
        return None
    named = [entry for entry in index.entries if entry.class_name.rpartition(".")[2] in found.architectures[:1]]
    exact = [entry for entry in named if entry.origin.sha256 == found.sha256]
    if not exact and find_trees(None, None, pytorch).transformers is not None:
        return None
    like = exact or [entry for entry in named if entry.family == found.content.get("model_type")]
    classes = {entry.class_name for entry in like}
    return classes.pop() if len(classes) == 1 else None


def _has_own(class_path: str, session: Session) -> bool:
    """Whether the results folder has an analysis of the class that comes before the atlas's.

    A valid one does, one that another engine made, and one that cannot be read: the error says so.
    """
    try:
        own = session.load(class_path)
    except InvalidAnalysis:
        return True
    return own is not None and (own.engine != OWN_ENGINE or session.standing(own) == "current")


def _listed_name(class_path: str, atlas: Atlas, session: Session) -> str:
    """The class path as the atlas has it: under its defining module, where the sources are here to say it."""
    if any(entry.class_name == class_path for entry in atlas.index.entries):
        return class_path
    try:
        return session.locate(class_path).class_path
    except NotFound:
        return class_path


def _outcome(found: Answer, set_aside: list[str]) -> ModelOutcome:
    def lookup(class_path: str) -> ModuleAnalysis:
        return found.entry.modules[class_path]

    reason = found.model.verification.reason
    warnings = (*set_aside, *(reason.split("; ") if reason else ()))
    return ModelOutcome(found.model, found.entry.file, True, (), lookup, warnings)
