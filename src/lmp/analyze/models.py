"""Makes a model from a class: analyses missing classes, links all of them, and stores the result."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmp.analyze.modules import analysis_of
from lmp.analyze.own import is_of
from lmp.analyze.session import Options, Progress, Session, is_foreign, only_trace
from lmp.errors import InvalidAnalysis
from lmp.records import Lookup, ModelAnalysis, ModuleAnalysis
from lmp.source.trees import UNKNOWN, public_version
from lmp.store.fingerprint import LINKED_BY, is_model_current, linked_by


@dataclass(frozen=True)
class ModelOutcome:
    """A model with its file."""

    model: ModelAnalysis
    file: Path
    reused: bool
    made: tuple[str, ...]
    """Classes that were analysed for it now."""
    lookup: Lookup
    """The analyses that it was linked from."""
    warnings: tuple[str, ...] = ()
    """Warnings for the reader, one sentence each."""


def expand_model(class_path: str, options: Options, progress: Progress, keep: bool = True) -> ModelOutcome:
    """The class linked with everything it calls; the stored model if it is still valid.

    A newly linked model is stored unless ``keep`` is False.

    Raises NotFound, with the paths searched, for a class in neither the results folder nor the source trees. Raises
    InvalidAnalysis if analyses cannot be read or do not fit together.
    """
    only_trace(options)
    session = Session(options, progress, takes_foreign=True)
    session.ask([class_path])
    set_aside: list[str] = []
    if not options.fresh:
        stored = stored_model(class_path, session, set_aside)
        if stored is not None:
            return model_outcome(stored, session, reused=True, set_aside=set_aside)
    root = analysis_of(class_path, session, as_a_part=False)
    if not options.fresh and root.class_name != class_path:
        stored = stored_model(root.class_name, session, set_aside)
        if stored is not None:
            return model_outcome(stored, session, reused=True, set_aside=set_aside)
    # The linker asks in model order, and its errors name the place of a missing class in the model.
    model = linked(root, session, functools.partial(analysis_of, session=session), keep)
    return model_outcome(model, session, reused=False, set_aside=set_aside)


def stored_model(class_path: str, session: Session, set_aside: list[str]) -> ModelAnalysis | None:
    """The stored model, if linking the stored analyses would give the same.

    A sentence on an unreadable file is appended to ``set_aside``.
    """
    config = session.names(class_path)
    if session.store.file_hash(class_path, config) is None:
        return None
    try:
        model = session.store.load_model(class_path, config)
    except InvalidAnalysis as error:
        # The analyses have all its data: it is made again, and the file is kept.
        set_aside.append(f"{str(error).splitlines()[0]}; made again, and the file kept beside it")
        return None
    if model is None:
        return None
    if not session.is_unsourced(model) and not is_model_current(model, session.trees, _asked(session)):
        return None
    own = session.own.get(model.class_name)
    if own is not None and not is_of(model, own):
        return None
    same = all(_file_hash(name, session) == part.sha256 for name, part in model.parts.items())
    return model if same else None


def linked(root: ModuleAnalysis, session: Session, lookup: Lookup, keep: bool = True) -> ModelAnalysis:
    """The model of a class, from the analyses of ``lookup``. It is stored unless ``keep`` is False."""
    from lmp.link.link import link

    session.progress(root.class_name, "linking")
    met: dict[str, ModuleAnalysis] = {root.class_name: root}

    def remembered(class_path: str) -> ModuleAnalysis:
        found = lookup(class_path)
        met[found.class_name] = found
        return found

    model = link(root, remembered)
    parts = {
        name: part.model_copy(update={"sha256": _file_hash(name, session) or part.sha256})
        for name, part in model.parts.items()
    }
    fingerprint = {LINKED_BY: _asked(session)}
    for part in met.values():
        fingerprint |= {} if is_foreign(part) else part.fingerprint
    others = [sentence for name in parts if (sentence := _of_other_sources(met[name], session))]
    verification = model.verification
    if others:
        status = "unverified" if verification.status == "verified" else verification.status
        reason = "; ".join([*([verification.reason] if verification.reason else []), *others])
        verification = verification.model_copy(update={"status": status, "reason": reason})
    about = {"verification": verification, "quantization": session.quantization(root.class_name)}
    model = model.model_copy(update={"parts": parts, "fingerprint": fingerprint, **about})
    if keep:
        session.store.save_model(model)
        session.progress(root.class_name, "stored")
    return model


def model_outcome(model: ModelAnalysis, session: Session, reused: bool, set_aside: Sequence[str] = ()) -> ModelOutcome:
    """Output of a command: the model, its file, the classes made for it, and warnings."""
    reason = model.verification.reason
    warnings = (*set_aside, *(reason.split("; ") if reason else ()))
    file = session.store.model_file(model.class_name, model.config.name)
    made, lookup = tuple(dict.fromkeys(session.made)), functools.partial(_part, session=session)
    return ModelOutcome(model, file, reused, made, lookup, warnings)


def _part(class_path: str, session: Session) -> ModuleAnalysis:
    """The analysis of a class that a model was linked from, as it is known or stored."""
    found = session.known.get(class_path) or session.load(class_path)
    if found is None:  # a public alias
        found = session.load(session.locate(class_path).class_path)
    if found is None:
        raise InvalidAnalysis(f"the analysis of {class_path} is gone\nrun `lmp analyze-module {class_path}`")
    return found


def _file_hash(class_path: str, session: Session) -> str | None:
    return session.store.file_hash(class_path, session.names(class_path))


def _asked(session: Session) -> str:
    """sha256 over the inputs of linking: versions of the sources, and the options."""
    versions = [f"{tree.distribution} {tree.version}" for tree in session.trees]
    options = (session.options.attention or "sdpa", session.options.dtype, session.origin.model_dump_json())
    return linked_by(*versions, *options)


def _of_other_sources(analysis: ModuleAnalysis, session: Session) -> str | None:
    """Sentence on an analysis of another version of the sources: it is not valid for those here. Else None."""
    source = analysis.source
    versions = {tree.distribution: tree.version for tree in session.trees}
    here = versions.get(source.distribution, UNKNOWN)
    if UNKNOWN in (here, source.version) or here == public_version(source.version):
        return None
    return f"{analysis.class_name} is of {source.distribution} {source.version}, the sources here are {here}"
