"""One class in, one proven analysis out: source -> engine -> judge -> store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.errors import UsageError
from lmp.pipeline.own import OwnCall, asked_for, identity, is_of, stored_call
from lmp.records import DEFAULT_CONFIG, ConfigOrigin, ModuleAnalysis
from lmp.source.configs import FoundConfig, class_of, resolve_config
from lmp.source.locate import ClassSource, locate
from lmp.source.trees import LAYOUTS, Trees, completed, find_trees
from lmp.store.fingerprint import is_current
from lmp.store.results import Store, config_name
from lmp.workload.imports import collected_later, collected_seldom

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
    engine: str = "trace"
    """What derives the formulas: trace, or agent."""
    why_engine: str = ""
    """Why it is that one, where it was not asked for by name."""
    model_id: str | None = None
    inputs: str | None = None
    """Of a class of the user's own: the tensors that forward() is called with."""
    init: str | None = None
    """Of a class of the user's own: the constructor's arguments."""
    paths: tuple[Path, ...] = ()
    """Folders that hold the user's own packages."""

    @cached_property
    def found_config(self) -> FoundConfig | None:
        """The config that was asked for, looked for once; None where that is the class's own defaults."""
        return resolve_config(self.config_file, self.model_id)


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
    by_trace(options)
    session = Session(options, progress)
    session.ask(class_paths)
    found: dict[str, Outcome] = {}
    for class_path in class_paths:
        for outcome in session.outcomes(class_path):
            name = outcome.analysis.class_name
            if name not in found or outcome.requested:
                found[name] = outcome
    return list(found.values())


def by_trace(options: Options) -> None:
    """Raises UsageError where agents are asked for: what they do is `lmp.pipeline.agent_runs`."""
    if options.engine == "agent":
        raise UsageError("agents work for analyze-module and expand on the command line\nuse the trace engine here")


def verify_module(class_path: str, options: Options) -> Outcome:
    """Hold the stored analysis against execution again, and store what came out."""
    session = Session(options, lambda name, stage: None)
    session.ask([class_path])
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
    session.ask([class_path])
    analysis = next(o.analysis for o in session.outcomes(class_path) if o.requested)
    return analysis, session.lookup


class Session:
    """What one command shares between its classes: trees, store, and engines that have run already."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options, self.progress = options, progress
        self.trees: Trees = find_trees(None, options.transformers, options.pytorch, list(options.paths))
        self.own: dict[str, OwnCall] = {}
        """Classes of the user's own -> how they are constructed and called."""
        self.classes: dict[str, type[Any]] = {}
        """Classes that were handed over as such: they are not looked for."""
        self.store = Store(options.results)
        found = options.found_config
        self.origin, self.config = origin_of(found), None if found is None else found.content
        self._fresh: dict[str, ModuleAnalysis] = {}
        self.unfit: dict[Any, Exception] = {}
        """Models that do not run with the config, by their classes: none of them need be tried again."""

    # -- the store -------------------------------------------------------------------------------------------------

    def locate(self, class_path: str) -> ClassSource:
        if class_path in self.classes:
            from lmp.source.runtime import locate_class

            return locate_class(self.classes[class_path], self.trees)
        top = class_path.partition(".")[0]
        known = any(top == layout.import_name for layout in LAYOUTS.values())
        if not known:
            self._use_what_is_there(class_path)
        return locate(class_path, self.trees)

    def _use_what_is_there(self, class_path: str) -> None:
        """For a class of one's own: the current folder, as Python does, and installed sources if none are vendored."""
        if not self.options.paths and self.trees.of_package(class_path.partition(".")[0]) is None:
            self.trees = replace(self.trees, extra=find_trees(Path.cwd(), extra=[Path.cwd()]).extra)
        trees = completed(self.trees)
        if trees != self.trees:
            self.trees = trees
            self.progress(
                class_path, "reading, with the installed torch and transformers: no sources are vendored here"
            )

    def ask(self, class_paths: Sequence[str]) -> None:
        """Take ``--inputs`` and ``--init`` for what they say of the one class that is asked for."""
        call = asked_for(self.options.inputs, self.options.init)
        if call is None:
            return
        if len(class_paths) != 1:
            raise UsageError("--inputs and --init are of one class\nanalyse the classes one by one")
        source = self.locate(class_paths[0])
        if not self.is_own(source.class_path):
            raise UsageError(
                f"--inputs and --init are for classes of your own, and {source.class_path} is none\nleave them out"
            )
        self.own[source.class_path] = call

    def is_own(self, class_path: str) -> bool:
        """Whether a class is neither PyTorch's nor transformers'."""
        tree = self.trees.of_package(class_path.partition(".")[0])
        return class_path in self.own or (tree is not None and tree in self.trees.extra)

    def names(self, class_path: str) -> str:
        """PyTorch's own modules have no config: their results are the same under any."""
        return "default" if class_path.startswith("torch.") else self.origin.name

    def stored(self, class_path: str) -> ModuleAnalysis | None:
        """The stored analysis if it is valid and still true of the sources, the config, the options and lmp's rules."""
        found = self.store.load(class_path, self.names(class_path))
        return found if found is not None and self.is_true(found) else None

    def is_true(self, found: ModuleAnalysis) -> bool:
        """Whether an analysis is still true of the sources, the config, the options and lmp's rules."""
        class_path, wanted = found.class_name, self.options
        own = self.own.get(class_path)
        if own is not None and not is_of(found, own):
            return False
        # By content: a config from the hub is from the cache the next time.
        same_config = class_path.startswith("torch.") or found.config.sha256 == self.origin.sha256
        same_attention = found.attn_requested == (wanted.attention or "sdpa")
        # An instance has the dtype that it has.
        same_dtype = found.dtype == wanted.dtype or (found.given is not None and found.given.live)
        return same_config and same_attention and same_dtype and is_current(found, self.trees)

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
        """Analyse one class and those it calls; reuse what is stored, unless that is of the class as a model's part."""
        self.progress(class_path, "reading")
        source = self.locate(class_path)
        name = source.class_path
        stored = self.reusable(name)
        if stored is not None and stored.as_a_part:
            stored = None
        if stored is None and self.is_own(name) and name not in self.own:
            stored = self._of_an_instance(name)
        if stored is not None:
            return [Outcome(stored, self.store.file(name, self.names(name)), reused=True, requested=True)]
        return self._analyse(source)

    def reusable(self, name: str) -> ModuleAnalysis | None:
        """The stored analysis, if those that it refers to are stored and true as well.

        Raises InvalidAnalysis when a stored file cannot be read: it is not overwritten without being told to.
        """
        if self.options.fresh and name not in self._fresh:
            return None
        stored = self._fresh.get(name) or self.stored(name)
        if stored is None or (name not in self._fresh and stored.given is not None and stored.given.live):
            return None
        return stored if self._refers_truly(stored) else None

    def _refers_truly(self, stored: ModuleAnalysis) -> bool:
        """Whether what an analysis refers to is there, and still what it was made with: a model that is part of another
        one may be analysed again by itself, called with other inputs. What others hand in stands for what they replace.
        """
        for name in references_of(stored):
            found = self.reusable(name)
            if found is None:
                return False
            made_with = stored.refers_to.get(name) if found.engine == stored.engine else None
            if made_with is not None and made_with != identity(found):
                return False
        return True

    def _of_an_instance(self, name: str) -> ModuleAnalysis | None:
        """A stored analysis of an instance: it can be read and evaluated, not made again."""
        stored = self.stored(name)
        return stored if stored is not None and stored.given is not None and stored.given.live else None

    # -- making ----------------------------------------------------------------------------------------------------

    def _analyse(self, source: ClassSource) -> list[Outcome]:
        with collected_seldom():
            return self.making(source).outcomes()

    def making(self, source: ClassSource, stored: ModuleAnalysis | None = None) -> Making:
        """What runs engine and judge; importing it imports torch. ``stored`` is what is to be judged again."""
        with collected_later():
            from lmp.pipeline.making import Making
        name = source.class_path
        call = self.own.get(name)
        if call is None and self.is_own(name):
            before = stored or self.store.load(name, self.names(name))
            if before is not None and before.given is not None:
                if before.given.live:
                    raise UsageError(
                        f"{name} was analysed as an instance, which is not here\n"
                        "analyse it again with lmp.analyze(), or give --inputs and --init"
                    )
                call = stored_call(before)
        if call is None:
            return Making(self, source, stored.within if stored is not None else None)
        from lmp.pipeline.own_making import OwnMaking

        return OwnMaking(self, source, call, stored)

    def verified_again(self, source: ClassSource, stored: ModuleAnalysis) -> Outcome:
        verification = self.making(source, stored).judged(stored)
        updated = stored.model_copy(update={"verification": verification})
        return Outcome(updated, self.store.save(updated), reused=False, requested=True)


def references_of(analysis: ModuleAnalysis) -> list[str]:
    """Classes that an analysis refers to; not the attributes whose class is still to be said."""
    from lmp.formula import is_open, parse, references

    composite = (kernel for kernel in analysis.kernels if kernel.kernel_type == "composite")
    targets = {ref.target for kernel in composite for ref in references(parse(kernel.flops))}
    return sorted(target for target in targets if not is_open(target))


def origin_of(found: FoundConfig | None) -> ConfigOrigin:
    """Which config results are of: its name in the results folder, and where it comes from."""
    if found is None:
        return DEFAULT_CONFIG
    return ConfigOrigin(name=config_name(found.file, found.model_id), origin=found.origin, sha256=found.sha256)


def class_of_config(options: Options) -> str:
    """The class that the config is of, for a command that was given no class.

    Raises UsageError when no config is given either, or it names no class; NotFound when the sources have none such.
    """
    found = options.found_config
    if found is None:
        raise UsageError(
            "no class is given\n"
            "name one, as in transformers.models.llama.modeling_llama.LlamaMLP, or give --model-id or --config"
        )
    return class_of(found.content, find_trees(None, options.transformers, options.pytorch))
