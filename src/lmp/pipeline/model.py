"""One class in, one model out: what is missing is analysed, then all of it is linked and stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import InvalidAnalysis, NotFound, Search, VerificationFailed
from lmp.pipeline.module import Options, Progress, Session, by_trace
from lmp.pipeline.own import is_of
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.trees import UNKNOWN
from lmp.store.fingerprint import LINKED, is_model_current, linked_fingerprint

OWN_ENGINES = ("trace", "agent", "submitted")
"""What lmp makes, or took in through the gate, says what it was made from: it is used as long as that is true. What
others put there is used as it is."""


@dataclass(frozen=True)
class ModelOutcome:
    """A stored model."""

    model: ModelAnalysis
    file: Path
    reused: bool
    made: tuple[str, ...]
    """Classes that were analysed for it now."""
    warnings: tuple[str, ...] = ()
    """What its reader has to know, one sentence each."""


def expand_model(class_path: str, options: Options, progress: Progress, keep: bool = True) -> ModelOutcome:
    """The class with everything it calls in place, from the store while that is still true.

    What is linked now is stored, unless ``keep`` is False.

    Raises NotFound, with the path through the tree, for a class that is neither in the results folder nor in the
    source trees; InvalidAnalysis where analyses cannot be read or do not fit together.
    """
    by_trace(options)
    session = ModelSession(options, progress)
    session.ask([class_path])
    if not options.fresh:
        stored = session.stored_model(class_path)
        if stored is not None:
            return session.outcome(stored, reused=True)
    root = session.analysis(class_path, as_a_part=False)
    if not options.fresh and root.class_name != class_path:
        stored = session.stored_model(root.class_name)
        if stored is not None:
            return session.outcome(stored, reused=True)
    return session.outcome(session.linked(root, keep), reused=False)


class ModelSession(Session):
    """A session that takes the analyses of others as they are, and keeps them."""

    def __init__(self, options: Options, progress: Progress) -> None:
        super().__init__(options, progress)
        self.made: list[str] = []
        self._loaded: dict[str, ModuleAnalysis] = {}
        self._set_aside: list[str] = []

    # -- analyses --------------------------------------------------------------------------------------------------

    def stored(self, class_path: str) -> ModuleAnalysis | None:
        known = self._fresh.get(class_path) or self._loaded.get(class_path)
        if known is not None:
            return known
        found = self.store.load(class_path, self.names(class_path))
        if found is None or not (is_foreign(found) or self.is_true(found)):
            return None
        self._loaded[class_path] = found
        return found

    def reusable(self, name: str) -> ModuleAnalysis | None:
        stored = self.stored(name)
        return stored if stored is not None and is_foreign(stored) else super().reusable(name)

    def analysis(self, class_path: str, as_a_part: bool = True) -> ModuleAnalysis:
        """The analysis of a class, made now if there is none, or none that is still true.

        Without ``as_a_part``, none of a model as another one calls it, with other inputs.
        """
        found = self._fresh.get(class_path) or self.reusable(class_path)
        if found is not None and found.as_a_part and not as_a_part:
            found = None
        if found is None:
            try:
                outcomes = self.outcomes(class_path)
            except NotFound as error:
                file = self.store.file(class_path, self.names(class_path))
                error.searched.insert(0, Search(f"an analysis of {class_path}", str(file), "no such file"))
                raise
            except VerificationFailed as error:
                others = [name for name, analysis in self._loaded.items() if is_foreign(analysis)]
                if not others:
                    raise
                first = str(error).splitlines()[0]
                told = VerificationFailed(f"{first}\ncheck what it may refer to, made by others: {', '.join(others)}")
                told.place = error.place
                raise told from error
            self.made += [o.analysis.class_name for o in outcomes if not o.reused]
            found = next(o.analysis for o in outcomes if o.requested)
        self._fresh[class_path] = self._fresh[found.class_name] = found
        return found

    def keep(self, analysis: ModuleAnalysis) -> None:
        """From now on this is the analysis of its class."""
        self._fresh[analysis.class_name] = analysis

    @contextmanager
    def instead(self, others: Mapping[str, ModuleAnalysis]) -> Iterator[None]:
        """While the block runs, these stand for the analyses of their classes."""
        before = dict(self._fresh)
        self._fresh.update(others)
        try:
            yield
        finally:
            self._fresh = before

    # -- models ----------------------------------------------------------------------------------------------------

    def stored_model(self, class_path: str) -> ModelAnalysis | None:
        """The stored model, if it is what linking the stored analyses would give."""
        config = self.names(class_path)
        if self.store.file_hash(class_path, config) is None:
            return None
        try:
            model = self.store.load_model(class_path, config)
        except InvalidAnalysis as error:
            # It says nothing that the analyses do not say: it is made again, and the file kept.
            self._set_aside.append(f"{str(error).splitlines()[0]}; made again, and the file kept beside it")
            return None
        if model is None or not is_model_current(model, self.trees, self._asked):
            return None
        own = self.own.get(model.class_name)
        if own is not None and not is_of(model, own):
            return None
        same = all(self._hash(name) == part.sha256 for name, part in model.parts.items())
        return model if same else None

    def linked(self, root: ModuleAnalysis, keep: bool = True) -> ModelAnalysis:
        from lmp.expand.link import link

        self.progress(root.class_name, "linking")
        met: dict[str, ModuleAnalysis] = {root.class_name: root}

        def lookup(class_path: str) -> ModuleAnalysis:
            found = self.analysis(class_path)
            met[found.class_name] = found
            return found

        model = link(root, lookup)
        parts = {
            name: part.model_copy(update={"sha256": self._hash(name) or part.sha256})
            for name, part in model.parts.items()
        }
        fingerprint = {LINKED: self._asked}
        for part in met.values():
            fingerprint |= {} if is_foreign(part) else part.fingerprint
        others = [sentence for name in parts if (sentence := self._of_other_sources(met[name]))]
        verification = model.verification
        if others:
            status = "unverified" if verification.status == "verified" else verification.status
            reason = "; ".join([*([verification.reason] if verification.reason else []), *others])
            verification = verification.model_copy(update={"status": status, "reason": reason})
        model = model.model_copy(update={"parts": parts, "fingerprint": fingerprint, "verification": verification})
        if keep:
            self.store.save_model(model)
            self.progress(root.class_name, "stored")
        return model

    def outcome(self, model: ModelAnalysis, reused: bool) -> ModelOutcome:
        reason = model.verification.reason
        warnings = (*self._set_aside, *(reason.split("; ") if reason else ()))
        file = self.store.model_file(model.class_name, model.config.name)
        return ModelOutcome(model, file, reused, tuple(dict.fromkeys(self.made)), warnings)

    def _hash(self, class_path: str) -> str | None:
        return self.store.file_hash(class_path, self.names(class_path))

    @property
    def _asked(self) -> str:
        versions = [f"{tree.distribution} {tree.version}" for tree in self.trees]
        options = (self.options.attention or "sdpa", self.options.dtype, self.origin.model_dump_json())
        return linked_fingerprint(*versions, *options)

    def _of_other_sources(self, analysis: ModuleAnalysis) -> str | None:
        """Formulas of another version say nothing about the sources that are here."""
        source = analysis.source
        versions = {tree.distribution: tree.version for tree in self.trees}
        here = versions.get(source.distribution, UNKNOWN)
        if UNKNOWN in (here, source.version) or here == source.version:
            return None
        return f"{analysis.class_name} is of {source.distribution} {source.version}, the sources here are {here}"


def is_foreign(analysis: ModuleAnalysis) -> bool:
    """Whether someone else made the analysis: by hand, or with another tool."""
    return analysis.engine not in OWN_ENGINES
