"""Executes a class in its workload at the held-out points, and judges analyses of it there."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lmp.analyze.bounds import Bound, bounds_of
from lmp.analyze.covering import Covering
from lmp.analyze.own import OwnCall
from lmp.analyze.session import Session
from lmp.analyze.workloads import TORCH, asked_config, asked_dtype, roots_for, workload_for
from lmp.errors import LmpError, NotFound, first_line
from lmp.formula import Condition, free_variables, num, parse_condition, substitute, to_text
from lmp.records import HANDED_IN, OWN_ENGINE, Decision, Given, ModuleAnalysis, Verification
from lmp.source.lines import line_text, statement_starts
from lmp.source.locate import ClassSource
from lmp.source.trees import Tree
from lmp.trace.engine import Setting, TraceEngine
from lmp.verify.arms import without_arms
from lmp.verify.counted import Triple
from lmp.verify.deciding import follows
from lmp.verify.judge import KEPT, Judgement, Point, judge, judging_of, named, observe
from lmp.verify.literals import compared, literals
from lmp.verify.points import (
    BY_SIZE,
    FACTORS,
    LONG,
    HeldOut,
    PointKind,
    changed,
    compared_points,
    drawn_points,
    held_out_points,
    literal_points,
    mixed_points,
    structural,
    with_layers,
)
from lmp.verify.solving import Domain
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import CHUNKED, RUNTIME, Refusal, Workload, refusal
from lmp.workload.configs import sections_of, stated
from lmp.workload.failures import blame
from lmp.workload.load import load_class, quiet_warnings
from lmp.workload.parent_models import find_parent_model, parent_models_of
from lmp.workload.questions import CHOSEN, UndecidedError
from lmp.workload.results import Results

MOST_OPERATORS = 20_000
"""After a point at which more operators run, no larger sizes of the source's numbers are executed."""


@dataclass(frozen=True)
class Skipped:
    """A point at which the module does not run, and the sentence for the checks."""

    why: str


class Execution:
    """Executes one class in its workload, and caches the counts.

    ``stored``: an analysis to judge again. ``fixed``: arguments to take out of the variables. ``results``: cache of
    operator result shapes.
    """

    def __init__(
        self,
        session: Session,
        source: ClassSource,
        stored: ModuleAnalysis | None = None,
        fixed: Collection[str] = (),
        results: Results | None = None,
    ) -> None:
        self.session, self.source = session, source
        self.call: OwnCall | None = session.own_call(source.class_path, stored)
        self.workload: Workload = workload_for(source, session, stored)
        for name in fixed:
            self.workload.fix(name)
        self.kept: set[str] = set()
        """Variables that keep the config's own values at every point."""
        self._results = results if results is not None else Results()
        self._observed: dict[tuple[Any, ...], Point | Skipped] = {}
        self._changed: dict[int, dict[str, int]] = {}
        """Rotation of the factors -> config values of the drawn points."""
        self._last: tuple[ModuleAnalysis, Judgement] | None = None
        """The analysis that was judged last, and the result."""
        self.extra: list[HeldOut] = []
        """Points that earlier analyses of this workload needed to take an arm of their formulas."""

    # -- settings --------------------------------------------------------------------------------------------------

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Folders whose files are quoted, the class's own first."""
        return roots_for(self.source, self.session, self.call)

    @cached_property
    def setting(self) -> Setting:
        """Metadata of analyses made here."""
        session, options = self.session, self.session.options
        config = session.origin_of(self.source.class_path)
        attention = "sdpa" if self.call is not None else options.attention or "sdpa"
        dtype = options.dtype if self.call is None else str(self.workload.dtype).removeprefix("torch.")
        return Setting(config, attention, dtype, self.roots, self.file_of)

    def engine(self) -> TraceEngine:
        """A new trace engine, without runs."""
        return TraceEngine(self.workload, self.setting)

    def file_of(self, path: str) -> str:
        """Path of an executed file as in analyses: relative to the root of its tree."""
        file = Path(path).resolve()
        for tree in self.session.trees:
            package_dir = tree.package_dir.resolve()
            if file.is_relative_to(package_dir):
                return tree.relative(tree.package_dir / file.relative_to(package_dir))
        installed = TORCH.resolve()  # a virtual environment may be a link
        if file.is_relative_to(installed):
            return "torch/" + file.relative_to(installed).as_posix()
        return file.name

    def statement_of(self, file: str, line: int) -> int:
        """First line of the statement with this line, in a file of a tree."""
        path = self.session.trees.path_of(file)
        if path is None:
            return line
        try:
            return statement_starts(path).get(line, line)
        except NotFound:
            return line

    def files(self, executed: Collection[str], source: ClassSource) -> Iterator[tuple[Tree, Path]]:
        """Files of the trees that the result depends on: the executed ones, and the config's."""
        paths = {Path(file) for file in executed} | {source.path, source.forward_path}
        if self.workload.config is not None:
            paths.add(Path(inspect.getfile(type(self.workload.config))))
        trees: Mapping[str, Tree] = {tree.name: tree for tree in self.session.trees}
        for path in sorted(paths):
            if path.is_relative_to(TORCH) and "pytorch" in trees:
                yield trees["pytorch"], trees["pytorch"].package_dir / path.relative_to(TORCH)
                continue
            for tree in trees.values():
                if path.resolve().is_relative_to(tree.package_dir.resolve()):
                    yield tree, tree.package_dir / path.resolve().relative_to(tree.package_dir.resolve())

    # -- points ----------------------------------------------------------------------------------------------------

    @property
    def held_out(self) -> list[HeldOut]:
        """The held-out points, with few layers. For a user's own class, only those at which it runs."""
        return self._held_out[0]

    @cached_property
    def literals(self) -> list[HeldOut]:
        """Points on both sides of the numbers that decide paths in the source."""
        return literal_points(self.workload, self._numbers, self.held_out)

    @cached_property
    def _mixed(self) -> list[HeldOut]:
        return mixed_points(self.workload, self._numbers, self.held_out)

    @cached_property
    def _numbers(self) -> Collection[int]:
        """Numbers that decide paths in the source."""
        return literals(self._modules, without=self.workload.full_layers)

    @cached_property
    def comparisons(self) -> list[Condition]:
        """Comparisons of config values or arguments in the constructors of the module and its parts."""
        workload = self.workload
        paths = {v.path.rpartition(".")[2]: n for n, v in workload.variables.items() if n in workload.hints}
        return list(compared(self._modules, {**paths, **workload.aliases}))

    @cached_property
    def _compared(self) -> list[HeldOut]:
        return compared_points(self.workload, self.comparisons, self.held_out)

    @cached_property
    def _modules(self) -> list[torch.nn.Module]:
        return list(self.workload.build(self.workload.hints).modules())

    @cached_property
    def _held_out(self) -> tuple[list[HeldOut], list[str]]:
        """The points, and a sentence for each point that the user's code refuses."""
        points = held_out_points(self.workload, self.kept)
        if self.call is None:
            return points, []
        ends_with = [(point, refusal(self.workload, point.values)) for point in points]
        refused = [
            f"skipped {named(point.label, point.values)}: "
            + (str(error) if isinstance(error, UndecidedError) else "the module does not run there")
            for point, error in ends_with
            if error is not None
        ]
        return [point for point, error in ends_with if error is None], refused

    def held_out_values(self, in_order: bool = False, full: bool = False) -> list[dict[str, int]]:
        """Values of all variables at the held-out points."""
        return [with_layers(self.workload, point, in_order, full).values for point in self.held_out]

    def hold_structure(self) -> bool:
        """Keep the values that decide which modules exist: formulas may hold for one structure only.

        Returns true if more values are kept than before.
        """
        names = structural(self.workload, self.held_out_values()).keys() - self.kept
        self.kept |= names
        if names:
            self.__dict__.pop("_held_out", None)
        return bool(names)

    def points(self, in_order: bool = False, full: bool = False) -> list[Point]:
        """Runs at the held-out points. ``in_order``: with the first layers in the model's order.

        ``full``: with all layers.
        """
        return _executed(self._observe_all(in_order, full))

    def points_for(self, analysis: ModuleAnalysis) -> list[Point]:
        """The points at which an analysis is judged. Raises the errors of the class's own code."""
        with quiet_warnings():
            return _executed(self._observed_for(analysis))

    def _observed_for(self, analysis: ModuleAnalysis) -> list[Point | Skipped]:
        stacks = self.workload.stacks
        full = any(name in analysis.pinned for name in self.workload.full_layers)
        observed = self._observe_all(full=full)
        calls = [c.path for p in _executed(observed) for c in p.calls if c.class_path == analysis.class_name]
        if not full and any(s.startswith(f"{path}." if path else "") for s in stacks for path in calls):
            return self._observe_all(in_order=True)
        return observed

    def _observe_all(self, in_order: bool = False, full: bool = False) -> list[Point | Skipped]:
        found: list[Point | Skipped] = []
        for few in (*self.held_out, *self._compared, *self.literals, *self._mixed, *self.extra):
            if few.kind in BY_SIZE and any(_is_heavy(one) for one in found):
                continue  # at larger sizes a loop over the tokens takes too long
            point = with_layers(self.workload, few, in_order, full)
            key = (point.label, *sorted(point.values.items()))
            if key not in self._observed:
                self._observed[key] = self._observe(point, more_layers=point != few)
            found.append(self._observed[key])
        return found

    def _observe(self, point: HeldOut, more_layers: bool) -> Point | Skipped:
        """The run at a point, or why it is skipped. A synthetic config need not run with all layers."""
        try:
            return self._run_at(point)
        except Exception as error:
            if blame(error) == "lmp":
                raise
            if point.synthetic and more_layers:
                return Skipped(f"skipped {point.label}: the model does not run there with all its layers")
            if point.kind in BY_SIZE:
                return Skipped("")  # counted in the check of how many ran
            if point.may_be_refused:
                return Skipped(f"skipped {named(point.label, point.values)}: the model does not run there")
            raise

    # -- judging ---------------------------------------------------------------------------------------------------

    def judged(self, analysis: ModuleAnalysis) -> Verification:
        """Result of comparing the analysis with execution, at points that it was not derived from."""
        found = self.judgement(analysis)
        if analysis.engine == OWN_ENGINE and found.untaken and found.verification.status == "verified":
            reason = f"no executed point takes an arm of its formulas: {found.untaken[0]}"
            return found.verification.model_copy(update={"status": "unverified", "reason": reason})
        return found.verification

    def judgement(self, analysis: ModuleAnalysis, asked: Collection[Condition] = ()) -> Judgement:
        """The same, with a flag for differences at synthetic configs only.

        ``asked``: conditions of the source, whose sides are combined with the arms of the formulas.
        """
        with quiet_warnings():
            observed = self._observed_for(analysis)
            points = _executed(observed)
            checks = [one.why for one in observed if isinstance(one, Skipped) and one.why] + self._held_out[1]
            ran = sum(point.kind is PointKind.LITERAL for point in points)
            if self.literals:
                checks.append(f"points at numbers in the source: {ran} of {len(self.literals)} ran")
            if analysis.engine in HANDED_IN:
                drawn = [self._observe_drawn(point) for point in self._draw(analysis, points)]
                points = [*points, *_executed(drawn)]
                checks.append(f"drawn points: {len(_executed(drawn))} of {len(drawn)} ran")
            by_statement = None if analysis.engine == OWN_ENGINE else self.statement_of
            strict = analysis.engine in HANDED_IN
            judging = judging_of(analysis, self.session.lookup, self.file_of, by_statement, strict, asked)
            judging.add(points)
            covering = Covering(analysis, judging, self.workload, self._observe_extra)
            if not judging.differences:
                covering.run()
                if analysis.engine == OWN_ENGINE:
                    self.extra += covering.executed
            found = judging.judgement()
        verification = found.verification
        update: dict[str, Any] = {"checks": [*verification.checks, *checks]}
        if not judging.differences:
            update["checks"] += covering.checks()
            update["arms"] = covering.taken()
            untaken = covering.findings()
            if untaken and strict and verification.status != "failed":
                update |= {"status": "failed", "findings": untaken[:KEPT]}
        found = replace(
            found,
            verification=verification.model_copy(update=update),
            untaken=covering.untaken(),
            uncombined=() if judging.differences else covering.uncombined(),
        )
        self._last = analysis, found
        return found

    def without_untaken(self, analysis: ModuleAnalysis) -> ModuleAnalysis:
        """The analysis without the arms that no executable point takes. Assumptions exclude them."""
        found = self._last[1] if self._last is not None and self._last[0] is analysis else self.judgement(analysis)
        nothing = not found.untaken and not found.uncombined
        if found.verification.status != "verified" or nothing or found.coverage is None:
            return analysis
        narrowed = without_arms(analysis, found.untaken, found.coverage.arms, found.uncombined)
        domain = Domain((), self.workload.flags, absent=narrowed.parameters.keys() - set(RUNTIME))
        kept = list(analysis.assumptions)
        for text in sorted(set(narrowed.assumptions) - set(kept), key=lambda text: (len(text), text)):
            if not follows(parse_condition(text), map(parse_condition, kept), domain):
                kept.append(text)
        return narrowed.model_copy(update={"assumptions": kept})

    def _observe_extra(self, point: HeldOut) -> Point | None:
        """The run at a point, if the module runs there."""
        key = (point.label, *sorted(point.values.items()))
        if key not in self._observed:
            try:
                self._observed[key] = self._run_at(point)
            except Exception as error:
                if blame(error) == "lmp":
                    raise
                self._observed[key] = Skipped("")
        found = self._observed[key]
        return found if isinstance(found, Point) else None

    def _run_at(self, point: HeldOut) -> Point:
        return observe(self.workload, point.values, point.label, results=self._results, kind=point.kind)

    def holds_at(self, analysis: ModuleAnalysis, values: Mapping[str, int]) -> bool | None:
        """Judge one more point: true if the analysis holds. None if the module does not run, or nothing is judged."""
        found = self.judged_at(analysis, values)
        return None if found is None or found.status == "unverified" else found.status == "verified"

    def judged_at(
        self, analysis: ModuleAnalysis, values: Mapping[str, int], sizes: Triple | None = None
    ) -> Verification | None:
        """The verdict at one more point, also at these element sizes. None if the module does not run there."""
        with quiet_warnings():
            point = self.executed_at(values)
            if point is None:
                return None
            by_statement = None if analysis.engine == OWN_ENGINE else self.statement_of
            more = () if sizes is None else (sizes,)
            found = judge(analysis, [point], self.session.lookup, self.file_of, by_statement, sizes=more)
        return found.verification

    def executed_at(self, values: Mapping[str, int]) -> Point | None:
        """The run at one more point; None if the module does not run there."""
        key = ("at", *sorted(values.items()))
        if key not in self._observed:
            self._observed[key] = self._observe_anywhere(values)
        found = self._observed[key]
        return None if isinstance(found, Skipped) else found

    def why_not_at(self, values: Mapping[str, int]) -> str:
        """The module's error at a point at which `judged_at` found that it does not run."""
        found = self._observed[("at", *sorted(values.items()))]
        return found.why if isinstance(found, Skipped) else ""

    def _observe_anywhere(self, values: Mapping[str, int]) -> Point | Skipped:
        try:
            return observe(self.workload, values, results=self._results, kind=PointKind.SYNTHETIC)
        except Exception as error:
            if blame(error) == "lmp":
                raise
            return Skipped(f"{type(error).__name__}: {first_line(error)}")

    def _draw(self, analysis: ModuleAnalysis, points: list[Point]) -> list[HeldOut]:
        """Points that the author of the analysis could not know."""
        # Only of the formulas: operands that are filled in afterwards are judged at the same points.
        stated = {"line", "flops", "memory_access", "repeat"}
        text = analysis.model_dump_json(include={"kernels": {"__all__": stated}, "assumptions": True})
        digest = hashlib.sha256(text.encode()).digest()
        # Many tokens would take long if a loop runs over them.
        long = any(len(p.counts) == len(points[0].counts) for p in points if p.values["seq_len"] >= LONG[1])
        layers = {name: points[0].values[name] for name in self.workload.full_layers}
        rotation = 1 + digest[-1] % (len(FACTORS) - 1)
        if rotation not in self._changed:
            self._changed[rotation] = changed(self.workload, self.kept, rotation)
        own = {**self.workload.hints, **layers}
        other = {**self._changed[rotation], **layers}
        return drawn_points(own, other, digest, self.workload.has_cache, long)

    def _observe_drawn(self, point: HeldOut) -> Point | Skipped:
        key = ("drawn", point.label, *sorted(point.values.items()))
        if key not in self._observed:
            try:
                found = observe(self.workload, point.values, point.label, cross_check=False, results=self._results)
                self._observed[key] = replace(found, kind=PointKind.DRAWN)
            except Exception as error:
                if blame(error) == "lmp":
                    raise
                self._observed[key] = Skipped("")  # counted in the check of how many drawn points ran
        return self._observed[key]

    # -- fields of an analysis beside its formulas -----------------------------------------------------------------

    def about(self, analysis: ModuleAnalysis) -> dict[str, Any]:
        """Fields of the requested class's analysis: how it was run, and its values in its model."""
        if self.call is None:
            return {"values": {**analysis.values, **self._values_in_model(analysis)}}
        live = self.call.module is not None
        given = Given(inputs=self.call.spec.inputs_text(), init=self.call.spec.init_text(), live=live)
        return {"given": given, "decisions": self._rehearsed()}

    def _rehearsed(self) -> list[Decision]:
        """Lines of the user's code that branch on tensor values, with the branches taken."""
        decisions = self.workload.decisions
        described = ((place, *decisions.described(place)) for place in decisions.answers)
        return [
            Decision(file=self.file_of(file), line=line, code=code, taken=taken)
            for (file, line), code, taken in described
        ]

    def answered(self, class_path: str) -> list[Decision]:
        """Data-dependent questions of the class's calls in a model, answered with yes because there are no data."""
        workload = self.workload
        asked = [
            Decision(file=self.file_of(file), line=line, code=line_text(Path(file), line), taken=[answer])
            for questions, answer in ((workload.asked, "true"), (workload.chosen or {}, CHOSEN))
            for (file, line), classes in sorted(questions.items())
            if class_path in classes
        ]
        here = self.source.class_path == class_path
        return [*asked, *(self._refusal(phase, said) for phase, said in workload.refused.items() if here)]

    def _refusal(self, phase: str, said: Refusal) -> Decision:
        """A phase that the model refuses, and that therefore is not judged."""
        file, code = self.file_of(said.file), line_text(Path(said.file), said.line)
        return Decision(file=file, line=said.line, code=code, taken=[f"no {phase}: {said.text}"])

    def without_refused(self, analysis: ModuleAnalysis) -> ModuleAnalysis:
        """The analysis with the condition under which its model runs."""
        if CHUNKED not in self.workload.refused or not {"seq_len", "cache_len"} <= analysis.parameters.keys():
            return analysis
        condition = "{cache_len} == 0 or {seq_len} == 1"
        return analysis.model_copy(update={"assumptions": [*analysis.assumptions, condition]})

    @cached_property
    def bounds(self) -> list[Bound]:
        """Bounds on the sizes of a call, beyond which the module raises."""
        with quiet_warnings():
            return bounds_of(self.workload)

    def bounded(self, analysis: ModuleAnalysis) -> ModuleAnalysis:
        """The analysis with the bounds that its class has: what its own ``forward()`` runs into, the model all of them.

        A bound may be stated in a config value that no formula has.
        """
        workload, class_path = self.workload, analysis.class_name
        model = workload.model_class
        whole = model is not None and class_path == f"{model.__module__}.{model.__qualname__}"
        parameters, values, assumptions = dict(analysis.parameters), dict(analysis.values), list(analysis.assumptions)
        for bound in self.bounds:
            # In a part of an encoder or a decoder, seq_len may be the tokens of either.
            if not whole and (class_path not in bound.classes or workload.has_encoder):
                continue
            condition = substitute(bound.condition, {n: num(v) for n, v in analysis.pinned.items()})
            others = free_variables(condition) - parameters.keys()
            if not free_variables(condition):
                continue  # on pinned sizes only, with which the module runs
            if others - workload.variables.keys() or others & workload.required:
                continue
            parameters |= {name: workload.variables[name].path for name in others}
            values |= {name: workload.variables[name].default for name in others}
            replaced = None if bound.instead_of is None else to_text(bound.instead_of)
            assumptions = [*(text for text in assumptions if text != replaced), to_text(condition)]
        update = {"parameters": parameters, "values": values, "assumptions": list(dict.fromkeys(assumptions))}
        return analysis.model_copy(update=update)

    def _values_in_model(self, analysis: ModuleAnalysis) -> dict[str, int]:
        """For a module constructed from numbers: the numbers that its parent model passes."""
        cls = load_class(self.source.class_path)
        if self.workload.model_class is not None or cls.__module__.startswith("torch."):
            return {}
        try:
            host = find_parent_model(cls, asked_config(cls, self.session), dtype=asked_dtype(self.session))
        except LmpError:
            return {}
        instance = next(m for m in host.build(host.defaults).modules() if type(m) is cls)
        given = constructor_arguments(instance)
        paths = {n: p.removeprefix("init.") for n, p in analysis.parameters.items() if p.startswith("init.")}
        return {n: int(given[p]) for n, p in paths.items() if isinstance(given.get(p), int)}

    def within(self, analysis: ModuleAnalysis) -> dict[str, Any]:
        """The model in which the class was run, and whether it differs there from its standalone form."""
        model = self.workload.model_class
        if model is None:
            return {}
        cls = load_class(analysis.class_name)
        own_input = getattr(cls, "main_input_name", None)
        other_inputs = own_input is not None and own_input not in analysis.interface
        otherwise = model is not cls and (other_inputs or self.is_configured_otherwise(cls))
        return {"within": f"{model.__module__}.{model.__qualname__}", "as_a_part": otherwise}

    def is_configured_otherwise(self, cls: type[Any]) -> bool:
        """True if a class standalone would have another config than in this model, such as a backbone."""
        hosts = list(parent_models_of(cls))
        if not hosts or self.workload.model_class in hosts:
            return False
        try:
            alone = asked_config(cls, self.session) or hosts[0].config_class()
        except Exception:
            return False  # it does not run standalone
        here = [part for _, part in sections_of(self.workload.config) if type(part) is type(alone)]
        return not here or any(stated(part) != stated(alone) for part in here)


def _is_heavy(point: Point | Skipped) -> bool:
    return isinstance(point, Point) and len(point.counts) > MOST_OPERATORS


def _executed(observed: list[Point | Skipped]) -> list[Point]:
    return [point for point in observed if isinstance(point, Point)]
