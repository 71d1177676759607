"""Running the engine and the judge for one class and those it calls. Imports torch: only when something is made."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lmp.errors import LmpError, NotFound, TraceFailed, UsageError, VerificationFailed
from lmp.pipeline.own import identity
from lmp.pipeline.points import (
    FACTORS,
    LONG,
    MAY_BE_REFUSED,
    changed,
    drawn_points,
    held_out_points,
    is_made_up,
    structural,
    what_to_hold,
    with_layers,
)
from lmp.records import DEFAULT_CONFIG as DEFAULT
from lmp.records import Decision, ModuleAnalysis, Verification
from lmp.source.lines import line_text, statement_starts
from lmp.source.locate import ClassSource
from lmp.store.fingerprint import fingerprint
from lmp.trace.engine import Setting, TraceEngine
from lmp.verify.judge import Point, judge, named, observe
from lmp.workload.answers import CHOSEN
from lmp.workload.arguments import constructor_arguments, holds_given_modules
from lmp.workload.base import CHUNKED, Refusal, Workload, refused_by
from lmp.workload.calls import Call
from lmp.workload.configs import parts_of, stated
from lmp.workload.hosts import config_from, find_host, host_models, shared_with_encoder, takes_config
from lmp.workload.load import check_torch_file, load_class, load_own, quiet_warnings, use_transformers_tree
from lmp.workload.model import ModelWorkload
from lmp.workload.results import Results
from lmp.workload.standalone import StandaloneWorkload

if TYPE_CHECKING:
    from lmp.pipeline.module import Outcome, Session
    from lmp.source.trees import Tree


HANDED_IN = ("agent", "submitted")
"""Engines whose analyses passed the gate: every phase that runs has to be judged."""
LINE_BY_LINE = "trace"
"""The engine that sees at which line of a statement each operator runs; what others say is judged by statements."""


class Making:
    """Analyses one class in the workload it belongs to."""

    def __init__(self, session: Session, source: ClassSource, within: str | None = None) -> None:
        """``within``: the model to run the class in, as an analysis of it says."""
        self.session, self.source, self.within = session, source, within
        self.options = session.options
        self.torch_dir = Path(torch.__file__).parent
        self.held: set[str] = set()
        self._points: dict[tuple[Any, ...], Point | str] = {}
        """What was executed at a point, or what is said of one at which the module does not run."""
        self._shapes = Results()
        """Of what operators made at the points; the engine remembers its own."""
        self._turned: dict[int, dict[str, int]] = {}
        """Config values that points are drawn at, by how the factors are turned."""
        self._use_trees()

    def _use_trees(self) -> None:
        """Run the very sources that are quoted. Raises TraceFailed when the given tree cannot be executed here."""
        transformers = self.session.trees.transformers
        if transformers is not None:
            use_transformers_tree(transformers.package_dir.parent)
        self._check(self.source.tree, self.source.path)
        self._check(self.source.forward_tree, self.source.forward_path)

    def _check(self, tree: Tree, path: Path) -> None:
        if tree.name == "pytorch":
            check_torch_file(path, path.relative_to(tree.package_dir).as_posix())

    # -- analysing -------------------------------------------------------------------------------------------------

    def outcomes(self) -> list[Outcome]:
        """Analyse the class and those it calls, verify them, and store them."""
        self.session.progress(self.source.class_path, "tracing")
        with quiet_warnings():
            if not isinstance(self.workload, StandaloneWorkload):
                return self._made()
            return self._made_with_flags(self.workload)

    def _made_with_flags(self, workload: StandaloneWorkload) -> list[Outcome]:
        """A module alone, with its flags as variables; those that no formula covers stay at their defaults."""
        flags = sorted(workload.flags)
        attempts = [(), *((f,) for f in flags), tuple(flags)]
        for fixed in attempts:
            for flag in fixed:
                workload.fix(flag)
            try:
                return self._made()
            except (TraceFailed, VerificationFailed):
                if fixed == attempts[-1]:
                    raise
                for made in ("workload", "_labelled"):
                    self.__dict__.pop(made, None)
                self._points.clear()
                workload = StandaloneWorkload(workload.cls, self._dtype)
                self.__dict__["workload"] = workload
        raise AssertionError("the last attempt returns or raises")

    def _made(self) -> list[Outcome]:
        name = self.source.class_path
        engine = self.engine()
        engine.prepare(name)
        if any(isinstance(m, torch.nn.ModuleList) for c in self._own_calls(engine) for m in c.module.modules()):
            engine.deriver.runs.explore_layers()
        found: list[Outcome] = []
        called = self._called_first(engine)
        # A class that is made while the model is built, as of a weight with a norm of its own, has no source.
        engine.deriver.nameless |= {class_path for class_path in called if not _is_there(class_path)}
        called = [class_path for class_path in called if class_path not in engine.deriver.nameless]
        # Where the encoder and the decoder of another model share classes, one run of that model serves them all.
        for class_path in reversed(called[:-1]):
            if takes_config(load_class(class_path)) and self._is_elsewhere(class_path):
                with suppress(TraceFailed, VerificationFailed):  # of which the next loop hears again
                    self.session.lookup(class_path)
        for class_path in called:
            if class_path != name and holds_given_modules(load_class(class_path)):
                engine.deriver.nameless.add(class_path)
                continue
            try:
                if class_path == name or not self._is_elsewhere(class_path):
                    found.append(self._here(engine, class_path))
                else:
                    found += self._known(engine, class_path)
            except (TraceFailed, VerificationFailed):
                if self._by_others(called):
                    raise  # what they say may be what is wrong, and is not passed over in silence
                if class_path == name:
                    found.append(self._in_operators(engine, called))
                    continue
                # What cannot be said of a module for any sizes, or for each of its calls, can be said of the operators
                # that run in this model: they are written out where it is called.
                engine.deriver.nameless.add(class_path)
                engine.deriver.interfaces.pop(class_path, None)
        return found

    def _by_others(self, called: Sequence[str]) -> bool:
        """Whether the analysis of any of these classes was not derived by lmp."""
        known = (self.session._fresh.get(class_path) for class_path in called)
        return any(analysis is not None and analysis.engine != LINE_BY_LINE for analysis in known)

    def _in_operators(self, engine: TraceEngine, called: Sequence[str]) -> Outcome:
        """The class itself without a reference to any other: every operator below it at the line that leads there.

        Raises what the class's own analysis did where there is nothing to write out.
        """
        others = set(called[:-1])
        engine.deriver.nameless |= others
        for class_path in others:
            engine.deriver.interfaces.pop(class_path, None)
        return self._here(engine, called[-1])

    def _known(self, engine: TraceEngine, class_path: str) -> list[Outcome]:
        """A called class that is analysed by itself, and those that it calls; references to it can then be bound."""
        from lmp.pipeline.module import Outcome

        found = self.session.outcomes(class_path)
        self.session._fresh.update({o.analysis.class_name: o.analysis for o in found})
        engine.know(self.session.lookup(class_path))
        return [Outcome(o.analysis, o.file, o.reused, requested=False) for o in found]

    def _here(self, engine: TraceEngine, class_path: str) -> Outcome:
        """Analyse a class in this workload, verify it and store it."""
        from lmp.pipeline.module import Outcome, references_of

        session, name = self.session, self.source.class_path
        source = self.source if class_path == name else session.locate(class_path)
        analysis = self._verified(engine, source)
        files = fingerprint(self.files({file for file, _ in engine.coverage.lines}, source))
        made_with = {part: identity(session.lookup(part)) for part in references_of(analysis)}
        analysis = analysis.model_copy(update={"fingerprint": files, "refers_to": made_with, **self._around(analysis)})
        session._fresh[class_path] = analysis
        file = session.store.save(analysis)
        while session.store.kept:
            session.progress(class_path, f"what others had made of it is kept as {session.store.kept.pop().name}")
        session.progress(class_path, "stored")
        return Outcome(analysis, file, reused=False, requested=class_path == name)

    def _around(self, analysis: ModuleAnalysis) -> dict[str, Any]:
        """The model that the class was run in, and whether it is another thing there than by itself."""
        if not isinstance(self.workload, ModelWorkload):
            return {}
        model, cls = self.workload.model_class, load_class(analysis.class_name)
        own_input = getattr(cls, "main_input_name", None)
        otherwise = own_input is not None and own_input not in analysis.interface
        otherwise = model is not cls and (otherwise or self._is_configured_otherwise(cls))
        return {"within": f"{model.__module__}.{model.__qualname__}", "as_a_part": otherwise}

    def _is_configured_otherwise(self, cls: type[Any]) -> bool:
        """Whether a class would be run with another config by itself than in this model, as a backbone is."""
        assert isinstance(self.workload, ModelWorkload)
        hosts = list(host_models(cls))
        if not hosts or self.workload.model_class in hosts:
            return False
        try:
            alone = self._config(cls) or hosts[0].config_class()
        except Exception:
            return False  # by itself it is not run at all
        here = [part for part in parts_of(self.workload.config) if type(part) is type(alone)]
        return not here or any(stated(part) != stated(alone) for part in here)

    def _about(self, analysis: ModuleAnalysis) -> dict[str, Any]:
        """What is said of the requested class beyond what its formulas are."""
        return {"values": {**analysis.values, **self._values_in_model(analysis)}}

    def _verified(self, engine: TraceEngine, source: ClassSource) -> ModuleAnalysis:
        """The engine's analysis with what execution says of it. Raises VerificationFailed when that differs.

        Where it holds only for the numbers that some sizes were turned into, or for the modules that some sizes make,
        those are ``pinned``, and said to be.
        """
        analysis, verification = self._derived(engine, source, numbers_alone=False)
        # Assumptions may leave nothing to judge, where sizes divide in the runs alone that formulas were found in.
        if verification.status != "verified" and not analysis.uncounted:
            with suppress(TraceFailed):
                # Formulas in the sizes of the call alone are found from other points: they may say what those do not.
                again = self._derived(engine, source, numbers_alone=True)
                if again[1].status == "verified":
                    analysis, verification = again
        if verification.status == "failed":
            name = source.class_path
            self.session._fresh.pop(name)
            first = verification.findings[0]
            differs = VerificationFailed(
                f"{name}: {first.quantity} of line {first.line} is {first.claimed} by formula and "
                f"{first.counted} executed, at {first.point}.\nNothing was stored; please report this class."
            )
            raise differs if first.line is None else differs.at(first.file or source.forward_file, first.line)
        return analysis.model_copy(update={"verification": verification})

    def _derived(
        self, engine: TraceEngine, source: ClassSource, numbers_alone: bool
    ) -> tuple[ModuleAnalysis, Verification]:
        """The engine's analysis, held at what it has to be held at for the judge to find it true; and the judgement."""
        name = source.class_path
        in_order = engine.deriver.runs.holds_layers(name)
        analysis = engine.analyse(name, source.record(), lambda full: self.held_out(in_order, full), numbers_alone)
        if isinstance(self.workload, ModelWorkload):
            analysis = analysis.model_copy(update={"decisions": self._answered(self.workload, name)})
            analysis = self._without_refused(analysis)
        if name == self.source.class_path:
            analysis = analysis.model_copy(update=self._about(analysis))
        self.session.progress(name, "verifying")
        self.session._fresh[name] = analysis
        if analysis.uncounted:
            reason = f"operators without a rule: {', '.join(analysis.uncounted)}; their FLOPs are not in the formulas"
            return analysis, Verification(status="unverified", reason=reason)
        if any(name in analysis.pinned for name in self.workload.full_layers):
            self._hold_structure()  # layers that are counted are those of the config itself
        # A size that the code turned into a number may be one in the formulas, unless a judged point changes it.
        unseen = {n: v for n, v in engine.pinned(name).items() if all(p[n] == v for p in self.held_out())}
        held = {**unseen, **{n: self.workload.hints[n] for n in self.held}, **self._pins_of_parts(analysis)}
        analysis = analysis.model_copy(update={"pinned": {**analysis.pinned, **held}})
        verification = self.judged(analysis)
        for pinned in (engine.pinned(name), engine.pinned()):
            if _elsewhere(verification) and pinned.keys() - analysis.pinned.keys():
                analysis = analysis.model_copy(update={"pinned": {**analysis.pinned, **pinned}})
                verification = self.judged(analysis)
        if _elsewhere(verification) and self._hold_structure():
            return self._derived(engine, source, numbers_alone)
        return self._narrowed(analysis, verification) if _elsewhere(verification) else (analysis, verification)

    def _narrowed(self, analysis: ModuleAnalysis, failed: Verification) -> tuple[ModuleAnalysis, Verification]:
        """What differs only at a config that lmp itself made up is claimed for the config's own values alone.

        Of as few variables as will do, of the class first and then of all. A module alone is for any sizes.
        """
        of_model = isinstance(self.workload, ModelWorkload)
        if not of_model and not self.workload.has_cache:
            return analysis, failed
        points = [p.values for p in self.points_for(analysis) if p.made_up]
        own = {n: v for n, v in self.workload.hints.items() if n not in self.workload.full_layers}
        holds = functools.partial(self._holds_at, analysis)
        for everything in (False, True) if of_model else (False,):
            names = [n for n in own if everything or n in analysis.parameters]
            held = what_to_hold(own, points, names, holds)
            if held:
                narrower = analysis.model_copy(update={"pinned": {**analysis.pinned, **held}})
                verification = self.judged(narrower)
                if verification.status == "verified":
                    return narrower, verification
        return analysis, failed

    def _holds_at(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> bool | None:
        """Whether an analysis is what is executed at one more point; None where it does not run, or is not judged."""
        with quiet_warnings():
            try:
                point = observe(self.workload, values, results=self._shapes, made_up=True)
            except Exception:
                return None
            found = judge(analysis, [point], self.session.lookup, self.file_of)
        return None if found.status == "unverified" else found.status == "verified"

    def _pins_of_parts(self, analysis: ModuleAnalysis) -> dict[str, int]:
        """What the classes that it refers to hold for alone, it holds for alone."""
        from lmp.pipeline.module import references_of

        full = {**self.workload.hints, **self.workload.full_layers}
        parts = [self.session._fresh[name] for name in references_of(analysis) if name in self.session._fresh]
        return {n: v for part in parts for n, v in part.pinned.items() if full.get(n) == v}

    def _answered(self, workload: ModelWorkload, class_path: str) -> list[Decision]:
        """Questions about data that the class's calls were answered, without data, with yes."""
        asked = [
            Decision(file=self.file_of(file), line=line, code=line_text(Path(file), line), taken=[answer])
            for questions, answer in ((workload.asked, "true"), (workload.chosen or {}, CHOSEN))
            for (file, line), classes in sorted(questions.items())
            if class_path in classes
        ]
        here = self.source.class_path == class_path
        return [*asked, *(self._refusal(phase, said) for phase, said in workload.refused.items() if here)]

    def _refusal(self, phase: str, said: Refusal) -> Decision:
        """A phase that the model refuses, which is therefore none of those that were judged."""
        file, code = self.file_of(said.file), line_text(Path(said.file), said.line)
        return Decision(file=file, line=said.line, code=code, taken=[f"no {phase}: {said.text}"])

    def _without_refused(self, analysis: ModuleAnalysis) -> ModuleAnalysis:
        """The analysis with the condition under which its model runs at all."""
        if CHUNKED not in refused_by(self.workload) or not {"seq_len", "cache_len"} <= analysis.parameters.keys():
            return analysis
        condition = "{cache_len} == 0 or {seq_len} == 1"
        return analysis.model_copy(update={"assumptions": [*analysis.assumptions, condition]})

    def _hold_structure(self) -> bool:
        """Keep the values that decide which modules there are: formulas may hold for one structure only."""
        names = structural(self.workload, self.held_out()).keys() - self.held
        self.held |= names
        if names:
            self.__dict__.pop("_labelled", None)
        return bool(names)

    def _values_in_model(self, analysis: ModuleAnalysis) -> dict[str, int]:
        """For a module that is constructed from numbers: those that the model of its file constructs it with."""
        cls = load_class(self.source.class_path)
        if not isinstance(self.workload, StandaloneWorkload) or cls.__module__.startswith("torch."):
            return {}
        try:
            host = find_host(cls, self._config(cls), dtype=self._dtype)
        except LmpError:
            return {}
        instance = next(m for m in host.build(host.defaults).modules() if type(m) is cls)
        given = constructor_arguments(instance)
        paths = {n: p.removeprefix("init.") for n, p in analysis.parameters.items() if p.startswith("init.")}
        return {n: int(given[p]) for n, p in paths.items() if isinstance(given.get(p), int)}

    def roots(self) -> tuple[str, ...]:
        """Folders whose files are quoted."""
        transformers = self.session.trees.transformers
        own = () if transformers is None else (f"{transformers.package_dir.resolve()}/",)
        return (*own, f"{self.torch_dir}/nn/")

    def setting(self) -> Setting:
        is_torch = self.source.class_path.startswith("torch.")
        config = DEFAULT if is_torch else self.session.origin
        return Setting(config, self.options.attention or "sdpa", self.options.dtype, self.roots(), self.file_of)

    def engine(self) -> TraceEngine:
        return TraceEngine(self.workload, self.setting())

    @cached_property
    def workload(self) -> Workload:
        """The smallest model of the class's file that contains it, or the class alone if it takes no config."""
        own = self.source.tree in self.session.trees.extra
        cls = load_own(self.source.class_path, self.source.tree) if own else load_class(self.source.class_path)
        if not takes_config(cls):
            try:
                return StandaloneWorkload(cls, self._dtype)
            except TraceFailed:
                if cls.__module__.startswith("torch."):
                    raise
        attention = self.options.attention or "sdpa"
        model = None if self.within is None else load_class(self.session.locate(self.within).class_path)
        config = self._config(cls if model is None else model)
        return find_host(cls, config, self.session.unfit, model, dtype=self._dtype, attention=attention)

    @property
    def _dtype(self) -> torch.dtype:
        found = getattr(torch, self.options.dtype, None)
        if not isinstance(found, torch.dtype) or not found.is_floating_point:
            raise UsageError(
                f"--dtype {self.options.dtype} is no floating dtype of torch; use bfloat16, float16 or float32."
            )
        return found

    def _config(self, cls: type[Any]) -> Any:
        content = self.session.config
        return None if content is None else config_from(cls, content)

    def _own_calls(self, engine: TraceEngine) -> list[Call]:
        calls = [c for c in engine.calls() if c.class_path == self.source.class_path]
        if not calls:
            raise TraceFailed(
                f"{self.source.class_path} is in the model, but its forward() is not executed on the inference path."
            )
        return calls

    def _called_first(self, engine: TraceEngine) -> list[str]:
        """Classes that the requested one calls, directly or not, called ones before callers; it is the last."""
        own = {id(c) for c in self._own_calls(engine)}
        below: dict[str, int] = {}
        for call in engine.calls():
            depth = 0
            ancestor: Call | None = call
            while ancestor is not None and id(ancestor) not in own:
                ancestor, depth = ancestor.parent, depth + 1
            if ancestor is not None:
                below[call.class_path] = max(below.get(call.class_path, 0), depth)
        return sorted(below, key=lambda name: -below[name])

    def _is_elsewhere(self, class_path: str) -> bool:
        """Whether a called class is not analysed in this run: it is analysed by itself, or somebody handed it in.

        What another run left in the store may be of other masks, inputs and paths: a text model that is called with
        embeddings, say. What a model costs does not depend on what was analysed before it.
        """
        if class_path in self.session._fresh or self._is_by_itself(class_path):
            return True
        stored = self.session.reusable(class_path)
        return stored is not None and stored.engine != LINE_BY_LINE

    def _is_by_itself(self, class_path: str) -> bool:
        """Whether a called class is analysed by itself: it takes plain numbers, or serves encoder and decoder."""
        cls = load_class(class_path)
        if takes_config(cls):
            return not self.workload.has_encoder and shared_with_encoder(cls)
        try:
            StandaloneWorkload(cls, self._dtype)
        except LmpError:
            return False
        return True

    # -- judging ---------------------------------------------------------------------------------------------------

    def judged(self, analysis: ModuleAnalysis) -> Verification:
        """What execution says of the analysis, at points that it was not derived from."""
        with quiet_warnings():
            looked_at = self._looked_at_for(analysis)
            points = _executed(looked_at)
            if analysis.engine in HANDED_IN:
                points = [*points, *self._drawn(analysis, points)]
            by_statement = None if analysis.engine == LINE_BY_LINE else self.statement_of
            strict = analysis.engine in HANDED_IN
            found = judge(analysis, points, self.session.lookup, self.file_of, by_statement, strict)
        left_out = [said for said in looked_at if isinstance(said, str)]
        return found.model_copy(update={"checks": [*found.checks, *left_out, *self._refused]})

    _refused: Sequence[str] = ()
    """What is said of sizes to verify at that the module refuses, whatever its config."""

    def _drawn(self, analysis: ModuleAnalysis, points: Sequence[Point]) -> Iterator[Point]:
        """Points that whoever wrote the analysis could not know, as far as the class runs at such sizes."""
        text = analysis.model_dump_json(include={"kernels", "parameters", "assumptions"})
        digest = hashlib.sha256(text.encode()).digest()
        # A loop over the tokens would take long.
        long = any(len(p.counts) == len(points[0].counts) for p in points if p.values["seq_len"] >= LONG[1])
        layers = {name: points[0].values[name] for name in self.workload.full_layers}
        turn = 1 + digest[-1] % (len(FACTORS) - 1)
        if turn not in self._turned:
            self._turned[turn] = changed(self.workload, self.held, turn)
        own = dict(self.workload.hints)
        for label, values in drawn_points(own, self._turned[turn], digest, self.workload.has_cache, long):
            try:
                yield observe(self.workload, {**values, **layers}, label, cross_check=False, results=self._shapes)
            except Exception:
                continue

    def points_for(self, analysis: ModuleAnalysis) -> list[Point]:
        """The points that an analysis is judged at."""
        return _executed(self._looked_at_for(analysis))

    def _looked_at_for(self, analysis: ModuleAnalysis) -> list[Point | str]:
        stacks = self.workload.stacks
        full = any(name in analysis.pinned for name in self.workload.full_layers)
        looked_at = self._looked_at(full=full)
        calls = [c.path for p in _executed(looked_at) for c in p.calls if c.class_path == analysis.class_name]
        if not full and any(s.startswith(f"{path}." if path else "") for s in stacks for path in calls):
            return self._looked_at(in_order=True)
        return looked_at

    def statement_of(self, file: str, line: int) -> int:
        """The first line of the statement that a line of a tree's file belongs to."""
        path = self.session.trees.path_of(file)
        if path is None:
            return line
        try:
            return statement_starts(path).get(line, line)
        except NotFound:
            return line

    @cached_property
    def _labelled(self) -> list[tuple[str, dict[str, int]]]:
        return held_out_points(self.workload, self.held)

    def held_out(self, in_order: bool = False, full: bool = False) -> list[dict[str, int]]:
        """Values of all variables at the points to verify at."""
        return [with_layers(self.workload, values, in_order, full) for _, values in self._labelled]

    def points(self, in_order: bool = False, full: bool = False) -> list[Point]:
        """What is executed at the held-out points; where the layers' order counts, with the model's first layers."""
        return _executed(self._looked_at(in_order, full))

    def _looked_at(self, in_order: bool = False, full: bool = False) -> list[Point | str]:
        """The same, with what is said of those at which the model does not run."""
        found = []
        for label, values in self._labelled:
            numbers = with_layers(self.workload, values, in_order, full)
            key = (label, *sorted(numbers.items()))
            if key not in self._points:
                self._points[key] = self._observed_at(label, numbers, more_layers=numbers != values)
            found.append(self._points[key])
        return found

    def _observed_at(self, label: str, numbers: dict[str, int], more_layers: bool) -> Point | str:
        """What is executed at a point. What is said of it where a config of lmp's own runs with few layers and not with
        so many, or where the model need not run."""
        made_up = is_made_up(label)
        try:
            return observe(self.workload, numbers, label, results=self._shapes, made_up=made_up)
        except Exception:
            if made_up and more_layers:
                return f"skipped {label}: the model does not run there with all its layers"
            if label.endswith(MAY_BE_REFUSED):
                return f"skipped {named(label, numbers)}: the model does not run there"
            raise

    def file_of(self, path: str) -> str:
        """The path of an executed file as analyses write it: relative to the root of its tree."""
        file = Path(path).resolve()
        for tree in self.session.trees:
            if file.is_relative_to(tree.package_dir.resolve()):
                return file.relative_to(tree.root.resolve()).as_posix()
        if file.is_relative_to(self.torch_dir):
            return "torch/" + file.relative_to(self.torch_dir).as_posix()
        return file.name

    def files(self, executed: Collection[str], source: ClassSource) -> Iterator[tuple[Tree, Path]]:
        """Files of the trees that the result depends on: those that ran, and that of the config."""
        paths = {Path(file) for file in executed} | {source.path, source.forward_path}
        config = getattr(self.workload, "config", None)
        if config is not None:
            paths.add(Path(inspect.getfile(type(config))))
        trees: Mapping[str, Tree] = {tree.name: tree for tree in self.session.trees}
        for path in sorted(paths):
            if path.is_relative_to(self.torch_dir) and "pytorch" in trees:
                yield trees["pytorch"], trees["pytorch"].package_dir / path.relative_to(self.torch_dir)
                continue
            for tree in trees.values():
                if path.resolve().is_relative_to(tree.package_dir.resolve()):
                    yield tree, tree.package_dir / path.resolve().relative_to(tree.package_dir.resolve())


def _executed(looked_at: Iterable[Point | str]) -> list[Point]:
    return [point for point in looked_at if isinstance(point, Point)]


def _elsewhere(verification: Verification) -> bool:
    """Whether what differs does so only at configs that lmp made up: claiming less of those may help."""
    return verification.status == "failed" and all(is_made_up(finding.point) for finding in verification.findings)


def _is_there(class_path: str) -> bool:
    """Whether a class stands in a module under its name."""
    try:
        load_class(class_path)
    except NotFound:
        return False
    return True
