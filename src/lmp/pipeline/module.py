"""One class in, one proven analysis out: source -> engine -> judge -> store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.errors import AgentUnavailable, UsageError
from lmp.records import DEFAULT_CONFIG, ConfigOrigin, ModuleAnalysis
from lmp.source.locate import ClassSource, locate
from lmp.source.trees import Trees, find_trees
from lmp.store.fingerprint import is_current
from lmp.store.results import Store, config_name
from lmp.workload.imports import collected_later

if TYPE_CHECKING:
    from lmp.pipeline.making import Making

Progress = Callable[[str, str], None]
"""Called with a class and what is being done with it: reading, tracing, verifying, stored."""


@dataclass(frozen=True)
class Options:
    """How an analysis is made, and where it goes."""

    results: Path
    transformers: Path | None = None
    pytorch: Path | None = None
    config_file: Path | None = None
    attention: str | None = None
    dtype: str = "bfloat16"
    fresh: bool = False
    engine: str = "auto"


@dataclass(frozen=True)
class Outcome:
    """A stored analysis. ``requested`` is False for a class that was analysed because another one calls it."""

    analysis: ModuleAnalysis
    file: Path
    reused: bool
    requested: bool


def analyze_modules(class_paths: Sequence[str], options: Options, progress: Progress) -> list[Outcome]:
    """Analyse and verify classes, or take what the store has of them while it is still true.

    Raises NotFound when a class or its source is not there, TraceFailed when it cannot be executed, StorageError when
    the result cannot be written.
    """
    session = Session(options, progress)
    found: dict[str, Outcome] = {}
    for class_path in class_paths:
        for outcome in session.outcomes(class_path):
            name = outcome.analysis.class_name
            if name not in found or outcome.requested:
                found[name] = outcome
    return list(found.values())


def verify_module(class_path: str, options: Options) -> Outcome:
    """Hold the stored analysis against execution again, and store what came out."""
    session = Session(options, lambda name, stage: None)
    source = session.locate(class_path)
    stored = session.stored(source.class_path)
    if stored is None or options.fresh:
        return next(o for o in session.outcomes(class_path) if o.requested)
    return session.verified_again(source, stored)


def load_for_evaluation(
    class_path: str, options: Options, progress: Progress
) -> tuple[ModuleAnalysis, Callable[[str], ModuleAnalysis]]:
    """The analysis of a class, and a way to get those it refers to; missing ones are made first."""
    session = Session(options, progress)
    analysis = next(o.analysis for o in session.outcomes(class_path) if o.requested)
    return analysis, session.lookup


class Session:
    """What one command shares between its classes: trees, store, and engines that have run already."""

    def __init__(self, options: Options, progress: Progress) -> None:
        if options.engine == "agent":
            raise AgentUnavailable(
                "the agent engine is not part of this version; leave out --engine, or use --engine trace"
            )
        self.options, self.progress = options, progress
        self.trees: Trees = find_trees(None, options.transformers, options.pytorch)
        self.store = Store(options.results)
        self.origin, self.config = _config_of(options.config_file)
        self._fresh: dict[str, ModuleAnalysis] = {}

    # -- the store -------------------------------------------------------------------------------------------------

    def locate(self, class_path: str) -> ClassSource:
        return locate(class_path, self.trees)

    def _names(self, class_path: str) -> str:
        """PyTorch's own modules have no config: their results are the same under any."""
        return "default" if class_path.startswith("torch.") else self.origin.name

    def stored(self, class_path: str) -> ModuleAnalysis | None:
        """The stored analysis if it is valid and still true of the sources, the config, the options and lmp's rules."""
        found = self.store.load(class_path, self._names(class_path))
        return found if found is not None and self.is_true(found) else None

    def is_true(self, found: ModuleAnalysis) -> bool:
        """Whether an analysis is still true of the sources, the config, the options and lmp's rules."""
        class_path, wanted = found.class_name, self.options
        same_config = class_path.startswith("torch.") or found.config == self.origin
        same_attention = found.attn_requested == (wanted.attention or "sdpa")
        return same_config and same_attention and found.dtype == wanted.dtype and is_current(found, self.trees)

    def lookup(self, class_path: str) -> ModuleAnalysis:
        """The analysis of a referenced class, made now if it is missing."""
        if class_path in self._fresh:
            return self._fresh[class_path]
        found = self.stored(class_path)
        if found is None:
            found = next(o.analysis for o in self.outcomes(class_path) if o.requested)
        self._fresh[class_path] = found
        return found

    def outcomes(self, class_path: str) -> list[Outcome]:
        """Analyse one class and those it calls; reuse what is stored."""
        self.progress(class_path, "reading")
        source = self.locate(class_path)
        name = source.class_path
        stored = self.reusable(name)
        if stored is not None:
            return [Outcome(stored, self.store.file(name, self._names(name)), reused=True, requested=True)]
        return self._analyse(source)

    def reusable(self, name: str) -> ModuleAnalysis | None:
        """The stored analysis, if those that it refers to are stored and true as well.

        Raises InvalidAnalysis when a stored file cannot be read: it is not overwritten without being told to.
        """
        if self.options.fresh and name not in self._fresh:
            return None
        stored = self.stored(name)
        if stored is not None and all(self.reusable(r) is not None for r in references_of(stored)):
            return stored
        return None

    # -- making ----------------------------------------------------------------------------------------------------

    def _analyse(self, source: ClassSource) -> list[Outcome]:
        return self._making(source).outcomes()

    def _making(self, source: ClassSource) -> Making:
        """What runs engine and judge; importing it imports torch."""
        with collected_later():
            from lmp.pipeline.making import Making
        return Making(self, source)

    def verified_again(self, source: ClassSource, stored: ModuleAnalysis) -> Outcome:
        verification = self._making(source).judged(stored)
        updated = stored.model_copy(update={"verification": verification})
        return Outcome(updated, self.store.save(updated), reused=False, requested=True)


def references_of(analysis: ModuleAnalysis) -> list[str]:
    """Classes that an analysis refers to."""
    from lmp.formula import parse, references

    return sorted(
        {r.target for k in analysis.kernels if k.kernel_type == "composite" for r in references(parse(k.flops))}
    )


def _config_of(file: Path | None) -> tuple[ConfigOrigin, dict[str, Any] | None]:
    """The config file's origin and contents. Raises UsageError when it is not a JSON object."""
    if file is None:
        return DEFAULT_CONFIG, None
    try:
        text = file.read_bytes()
        content = json.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}\nGive a Hugging Face config.json.") from error
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}\nGive a Hugging Face config.json.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} holds no JSON object.\nGive a Hugging Face config.json.")
    return ConfigOrigin(name=config_name(file), origin=file.name, sha256=hashlib.sha256(text).hexdigest()), content
