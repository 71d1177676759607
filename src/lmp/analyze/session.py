"""State of one command: options, source trees, stored results. Its look-ups analyse nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lmp.analyze.own import OwnCall, asked_for, identity, is_of, stored_call
from lmp.errors import Missing, Search, UsageError
from lmp.formula import is_open, parse, references
from lmp.link.quantisation import config_of
from lmp.records import DEFAULT_CONFIG, KNOWN_ENGINES, ConfigOrigin, ModelAnalysis, ModuleAnalysis, Quantization, short
from lmp.source.configs import FoundConfig, class_of, resolve_config
from lmp.source.installed import INSTALL, say_once
from lmp.source.locate import ClassSource, locate
from lmp.source.trees import LAYOUTS, Trees, completed, find_trees, say_releases
from lmp.store.fingerprint import Standing, standing, unsourced
from lmp.store.results import Store, config_name

Progress = Callable[[str, str], None]
"""Called with a class and the current step: reading, tracing, verifying, stored; or WAITING."""

WAITING = "waiting"
"""Step of a class that is to be analysed later in this command: it says how many classes there are."""


@dataclass(frozen=True)
class Options:
    """Settings of an analysis, and where it is stored."""

    results: Path
    transformers: Path | None = None
    pytorch: Path | None = None
    config_file: Path | None = None
    attention: str | None = None
    dtype: str = "bfloat16"
    fresh: bool = False
    engine: str = "trace"
    """Engine that derives the formulas: trace or agent."""
    why_engine: str = ""
    """Reason for the engine, if it was not chosen by name."""
    model_id: str | None = None
    inputs: str | None = None
    """For a user's own class or PyTorch's: the tensors that forward() is called with."""
    init: str | None = None
    """For a user's own class or PyTorch's: the constructor arguments."""
    paths: tuple[Path, ...] = ()
    """Folders with the user's own packages."""

    @cached_property
    def found_config(self) -> FoundConfig | None:
        """The requested config, resolved once; None for the class's defaults."""
        return resolve_config(self.config_file, self.model_id)


@dataclass(frozen=True)
class Outcome:
    """A stored analysis. ``requested``: false for a class that was analysed as a callee."""

    analysis: ModuleAnalysis
    file: Path
    reused: bool
    requested: bool


class Session:
    """Source trees, results and analyses of one command. `lmp.analyze.modules` makes missing analyses.

    With ``takes_foreign``, analyses made by other tools are used unchanged.
    """

    def __init__(self, options: Options, progress: Progress, *, takes_foreign: bool = False) -> None:
        self.options, self.progress, self.takes_foreign = options, progress, takes_foreign
        self.trees: Trees = find_trees(None, options.transformers, options.pytorch, list(options.paths))
        say_releases(self.trees)
        self.own: dict[str, OwnCall] = {}
        """Classes of the user's own, or PyTorch's as requested -> how they are constructed and called."""
        self.classes: dict[str, type[Any]] = {}
        """Classes passed as objects: they are not searched for."""
        self.store = Store(options.results)
        found = options.found_config
        self.origin, self.config = origin_of(found), None if found is None else found.content
        self.known: dict[str, ModuleAnalysis] = {}
        """Analyses that this command made or chose. They take precedence over stored ones."""
        self.made: list[str] = []
        """Classes that were analysed now."""
        self.unfit: dict[Any, Exception] = {}
        """Model -> error, for models that do not run with the config: they are not tried again."""
        self.refuted: set[str] = set()
        """Classes whose stored analyses were judged again and failed."""
        self.executions: dict[str, Any] = {}
        """Model -> the `Execution` that judges analyses made in it again."""
        self._loaded: dict[Path, tuple[tuple[int, int], ModuleAnalysis | None]] = {}

    # -- classes ---------------------------------------------------------------------------------------------------

    def locate(self, class_path: str) -> ClassSource:
        """Source of a class. Raises NotFound with the paths searched."""
        if class_path in self.classes:
            from lmp.source.runtime import locate_class

            return locate_class(self.classes[class_path], self.trees)
        top = class_path.partition(".")[0]
        known = any(top == layout.import_name for layout in LAYOUTS.values())
        if not known:
            self._use_what_is_there(class_path)
        return locate(class_path, self.trees)

    def _use_what_is_there(self, class_path: str) -> None:
        """For a user's own class: search the current folder, and installed sources if a project has none vendored."""
        if not self.options.paths and self.trees.of_package(class_path.partition(".")[0]) is None:
            self.trees = replace(self.trees, extra=find_trees(Path.cwd(), extra=[Path.cwd()]).extra)
        trees = completed(self.trees)
        if trees != self.trees:
            self.trees = trees
            self.progress(
                class_path, "reading, with the installed torch and transformers: no sources are vendored here"
            )

    def ask(self, class_paths: Sequence[str]) -> None:
        """Assign ``--inputs`` and ``--init`` to the one requested class."""
        call = asked_for(self.options.inputs, self.options.init)
        if call is None:
            return
        if len(class_paths) != 1:
            raise UsageError("--inputs and --init are for one class\nanalyse the classes one by one")
        source = self.locate(class_paths[0])
        if not self.takes_a_call(source.class_path):
            raise UsageError(
                f"--inputs and --init are for classes of your own and of torch.nn, but {source.class_path} is neither\n"
                "leave them out"
            )
        self.own[source.class_path] = call

    def takes_a_call(self, class_path: str) -> bool:
        """True if a user may say how a class is constructed and called: it is in no model of transformers."""
        return class_path.startswith("torch.") or self.is_own(class_path)

    def is_own(self, class_path: str) -> bool:
        """True if a class is neither PyTorch's nor transformers'."""
        tree = self.trees.of_package(class_path.partition(".")[0])
        return class_path in self.own or (tree is not None and tree in self.trees.extra)

    def own_call(self, class_path: str, stored: ModuleAnalysis | None = None) -> OwnCall | None:
        """How to run a user's own class: as requested, else as in a stored analysis. None for other classes."""
        call = self.own.get(class_path)
        if call is not None or not self.is_own(class_path):
            return call
        before = stored or self.store.load(class_path, self.names(class_path))
        if before is None or before.given is None:
            return None
        if before.given.live:
            raise UsageError(
                f"{class_path} was analysed as an instance, which is not available here\n"
                "analyse it again with lmp.analyze(), or give --inputs and --init"
            )
        return stored_call(before)

    def quantization(self, class_path: str) -> Quantization | None:
        """What the config says of the weights in its checkpoint; PyTorch's modules have no config."""
        found = None if class_path.startswith("torch.") else config_of(self.config)
        if found is None or self.config is None:
            return None
        named = self.config.get("architectures")
        return Quantization(config=found, whole=isinstance(named, list) and short(class_path) in named)

    def names(self, class_path: str) -> str:
        """Name that results are stored under: the config's."""
        return self.origin_of(class_path).name

    def origin_of(self, class_path: str) -> ConfigOrigin:
        """Origin of the config of a class. PyTorch's modules have none: theirs is the default, or the given call."""
        if not class_path.startswith("torch."):
            return self.origin
        call = self.own.get(class_path)
        return DEFAULT_CONFIG if call is None else ConfigOrigin(name=call.name, origin="the given inputs and arguments")

    # -- analyses --------------------------------------------------------------------------------------------------

    def stored(self, class_path: str) -> ModuleAnalysis | None:
        """The known or stored analysis, if it is valid for the sources, the options and lmp's rules.

        Raises InvalidAnalysis if a stored file is unreadable: it is only overwritten on request.
        """
        known = self.known.get(class_path)
        if known is not None:
            return known
        found = self.load(class_path)
        if found is None or not (self.is_true(found) or (self.takes_foreign and is_foreign(found))):
            return None
        return found

    def load(self, class_path: str) -> ModuleAnalysis | None:
        """The content of a class's file, valid or not. The file is read again if it changed."""
        config = self.names(class_path)
        file = self.store.file(class_path, config)
        try:
            stat = file.stat()
        except OSError:
            return self.store.load(class_path, config)
        state = (stat.st_mtime_ns, stat.st_size)
        if file not in self._loaded or self._loaded[file][0] != state:
            self._loaded[file] = state, self.store.load(class_path, config)
        return self._loaded[file][1]

    def foreign(self) -> list[str]:
        """Classes whose analyses were read here and made by other tools."""
        return [found.class_name for _, found in self._loaded.values() if found is not None and is_foreign(found)]

    def is_true(self, found: ModuleAnalysis) -> bool:
        """True if an analysis is valid for the sources, the config, the options and lmp's rules."""
        return self.standing(found) == "current"

    def standing(self, found: ModuleAnalysis) -> Standing:
        """The steps needed before a stored analysis can be used here."""
        own = self.own.get(found.class_name)
        if own is not None and not is_of(found, own):
            return "derive again"
        if not self._is_as_asked(found):
            return "derive again"
        return "current" if self.is_unsourced(found) else standing(found, self.trees)

    def _is_as_asked(self, found: ModuleAnalysis | ModelAnalysis) -> bool:
        """True if a result is of the requested config, attention and dtype."""
        wanted = self.options
        # By content: a config from the hub comes from the cache the next time.
        same_config = found.class_name.startswith("torch.") or found.config.sha256 == self.origin.sha256
        same_attention = found.attn_requested == (wanted.attention or "sdpa")
        # The dtype of an instance is its own.
        same_dtype = found.dtype == wanted.dtype or (found.given is not None and found.given.live)
        return same_config and same_attention and same_dtype

    def is_unsourced(self, found: ModuleAnalysis | ModelAnalysis) -> bool:
        """True for a result as asked, outside a project, if its sources are not installed.

        It is used as stored, and lmp says so. In a project its sources are to be vendored first.
        """
        outside = self.trees.project is None
        gone = unsourced(found.fingerprint, self.trees) if outside and self._is_as_asked(found) else []
        if gone:
            names = " and ".join(gone)
            say_once(f"not installed: {names}; results are used as stored, not compared with sources ({INSTALL})")
        return bool(gone)

    def reusable(self, class_path: str) -> ModuleAnalysis | None:
        """The analysis that need not be made again: it is valid, and so are those that it refers to.

        Raises InvalidAnalysis if a stored file is unreadable: it is only overwritten on request.
        """
        known = class_path in self.known
        if self.options.fresh and not known and not self.takes_foreign:
            return None
        stored = self.stored(class_path)
        if stored is None or (self.takes_foreign and is_foreign(stored)):
            return stored
        if not known and (self.options.fresh or (stored.given is not None and stored.given.live)):
            return None
        return stored if self.refers_truly(stored) else None

    def refers_truly(self, stored: ModuleAnalysis) -> bool:
        """True if an analysis's references exist and are the same as when it was made.

        A submodel may be analysed again standalone, with other inputs. A submitted analysis counts as equal to the one
        that it replaces.
        """
        for class_path in references_of(stored):
            found = self.reusable(class_path)
            if found is None:
                return False
            made_with = stored.refers_to.get(class_path) if found.engine == stored.engine else None
            if made_with is not None and made_with != identity(found):
                return False
        return True

    def of_an_instance(self, class_path: str) -> ModuleAnalysis | None:
        """The stored analysis of an instance: it can be read and evaluated, but not made again."""
        stored = self.stored(class_path)
        return stored if stored is not None and stored.given is not None and stored.given.live else None

    def lookup(self, class_path: str) -> ModuleAnalysis:
        """The analysis of a class, known or stored. Its references at any depth are looked up too.

        Raises NotFound if the class is missing, Missing if an analysis is.
        """
        return self.known.get(class_path) or self._looked_up(class_path, ())

    def _looked_up(self, class_path: str, above: tuple[str, ...]) -> ModuleAnalysis:
        found = self.stored(class_path)
        if found is None:
            found = self.stored(self.locate(class_path).class_path)
        if found is None:
            name = self.locate(class_path).class_path
            file = str(self.store.file(name, self.names(name)))
            raise Missing(
                f"there is no analysis of {name} yet\nrun `lmp analyze-module {name}`",
                [Search(f"an analysis of {name}", file, "none that is true of the sources here")],
                (name,),
            )
        for reference in references_of(found):
            if reference not in above:
                self._looked_up(reference, (*above, found.class_name))
        return found

    def save(self, analysis: ModuleAnalysis) -> Path:
        """Store an analysis that was made now; it becomes the known one of its class."""
        class_path = analysis.class_name
        self.known[class_path] = analysis
        file = self.store.save(analysis)
        while self.store.kept:
            self.progress(class_path, f"what others had made of it is kept as {self.store.kept.pop().name}")
        self.progress(class_path, "stored")
        self.made.append(class_path)
        return file

    def keep(self, analysis: ModuleAnalysis) -> None:
        """Make this the known analysis of its class."""
        self.known[analysis.class_name] = analysis

    @contextmanager
    def instead(self, others: Mapping[str, ModuleAnalysis]) -> Iterator[None]:
        """While active, these replace the analyses of their classes."""
        before = dict(self.known)
        self.known.update(others)
        try:
            yield
        finally:
            self.known = before


def is_foreign(analysis: ModuleAnalysis) -> bool:
    """True if the analysis was made by hand or with another tool."""
    return analysis.engine not in KNOWN_ENGINES


def references_of(analysis: ModuleAnalysis) -> list[str]:
    """Classes that an analysis refers to, without open references to attributes."""
    composite = (kernel for kernel in analysis.kernels if kernel.kernel_type == "composite")
    targets = {ref.target for kernel in composite for ref in references(parse(kernel.flops))}
    return sorted(target for target in targets if not is_open(target))


def origin_of(found: FoundConfig | None) -> ConfigOrigin:
    """Origin of the config: its name in the results folder, and its source."""
    if found is None:
        return DEFAULT_CONFIG
    return ConfigOrigin(name=config_name(found.file, found.model_id), origin=found.origin, sha256=found.sha256)


def class_of_config(options: Options) -> str:
    """The class that the config is for, for a command without a class.

    Raises UsageError if no config is given or it names no class, NotFound if the sources lack the class.
    """
    found = options.found_config
    if found is None:
        raise UsageError(
            "no class is given\n"
            "name one, as in lmp evaluate Qwen/Qwen3-8B, or a class: transformers.models.llama.modeling_llama.LlamaMLP"
        )
    trees = find_trees(None, options.transformers, options.pytorch)
    if trees.transformers is None and trees.project is None:
        name = config_name(options.config_file, found.model_id)
        stored = [c for c in Store(options.results).classes(name) if c.rpartition(".")[2] in found.architectures[:1]]
        if len(stored) == 1:
            return stored[0]
    return class_of(found.content, trees)


def only_trace(options: Options) -> None:
    """Raises UsageError if the agent engine is requested: it is run by `lmp.agents.commands`."""
    if options.engine == "agent":
        raise UsageError("agents run analyze-module and expand on the command line only\nuse the trace engine here")
