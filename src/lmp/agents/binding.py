"""The gate of the reference expander: bindings that close every open place, and a whole that equals execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lmp.agents.places import OpenPlace, closed, is_open, open_places, places_of, reached, references_in, unbound
from lmp.errors import FormulaError, Missing, NotFound, TraceFailed
from lmp.formula import free_variables, parse, references
from lmp.records import UNIVERSAL, Binding, Bindings, GateFinding, ModuleAnalysis, Rule, Verification

Judge = Callable[[ModuleAnalysis, dict[str, ModuleAnalysis]], Verification]
"""What execution says of an analysis, with others in the place of the stored ones. Raises TraceFailed."""


@dataclass(frozen=True)
class Bound:
    """What the expander's gate says: the analyses with their places closed, callees first, or findings."""

    analyses: tuple[ModuleAnalysis, ...] = ()
    findings: tuple[GateFinding, ...] = ()

    @property
    def accepted(self) -> bool:
        return not self.findings

    @property
    def summary(self) -> str:
        statuses = ", ".join(f"{a.class_name.rpartition('.')[2]} {a.verification.status}" for a in self.analyses)
        return f"every open place is closed ({statuses})"


@dataclass(frozen=True)
class BindingGate:
    """Checks what the reference expander hands in for one model."""

    root: ModuleAnalysis
    lookup: Callable[[str], ModuleAnalysis]
    judge: Judge

    def places(self) -> list[OpenPlace]:
        return open_places(self.root, self.lookup)

    def check(self, handed_in: Any) -> Bound:
        """Raises Missing for a class that a binding names and that is not analysed yet."""
        try:
            given = Bindings.model_validate(handed_in)
        except ValidationError as error:
            return Bound(findings=tuple(_of_schema(error)))
        by_class: dict[str, dict[int, Binding]] = defaultdict(dict)
        findings: list[GateFinding] = []
        for binding in given.bindings:
            if binding.kernel in by_class[binding.class_name]:
                findings.append(_finding("reference", binding, "it is bound twice; hand in one binding for it"))
            by_class[binding.class_name][binding.kernel] = binding
            findings += self._one(binding)
        findings += self._places_left_and_surplus(by_class) if not findings else []
        return Bound(findings=tuple(findings)) if findings else self._numbers(by_class)

    # -- one binding -----------------------------------------------------------------------------------------------

    def _one(self, binding: Binding) -> Iterator[GateFinding]:
        try:
            analysis = self.lookup(binding.class_name)
            target = None if is_open(binding.target) else self.lookup(binding.target)
        except Missing:
            raise
        except NotFound as error:
            yield _finding("class", binding, str(error).splitlines()[0])
            return
        if target is None:
            yield _finding("reference", binding, f"{binding.target} is an attribute; name the class that it is")
            return
        if binding.kernel not in range(len(analysis.kernels)):
            yield _finding("reference", binding, f"there is no such kernel: it has {len(analysis.kernels)}, from 0")
            return
        wrong = unbound(target, binding.bindings)
        if wrong:
            yield _finding("reference", binding, f"the reference to {target.class_name} {wrong}")
        for name, text in [*binding.bindings.items(), ("repeat", str(binding.repeat or 1))]:
            yield from _formula(binding, analysis, name, text)

    def _places_left_and_surplus(self, by_class: dict[str, dict[int, Binding]]) -> Iterator[GateFinding]:
        with_bindings = self._overlay(by_class)
        root = with_bindings(self.root.class_name)
        met = list(reached(root, with_bindings))
        for analysis in met:
            for place in places_of(analysis, with_bindings):
                message = f"kernel {place.kernel} of {place.class_name} is still open: {place.why}; bind it as well"
                yield GateFinding(
                    rule="reference", message=message, kernel=place.kernel, line=place.line, file=place.file
                )
        names = {analysis.class_name for analysis in met}
        was_open = {
            place.key for name in by_class if name in names for place in places_of(self.lookup(name), self.lookup)
        }
        for name, bindings in by_class.items():
            for index, binding in bindings.items():
                if name not in names:
                    yield _finding("reference", binding, f"{name} is not in this model; leave this binding out")
                elif (name, index) not in was_open:
                    yield _finding("reference", binding, "it is not an open place; leave this binding out")

    def _overlay(self, by_class: dict[str, dict[int, Binding]]) -> Callable[[str], ModuleAnalysis]:
        def lookup(class_path: str) -> ModuleAnalysis:
            found = self.lookup(class_path)
            return closed(found, by_class.get(found.class_name, {}))

        return lookup

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _numbers(self, by_class: dict[str, dict[int, Binding]]) -> Bound:
        """Everything that is changed, or that is above something changed, against execution; callees first."""
        lookup = self._overlay(by_class)
        order = _callees_first(lookup(self.root.class_name), lookup)
        done: dict[str, ModuleAnalysis] = {}
        changed: list[ModuleAnalysis] = []
        for analysis in order:
            name = analysis.class_name
            above = any(ref in {a.class_name for a in changed} for ref in _targets(analysis, lookup))
            if name not in by_class and not above:
                done[name] = analysis
                continue
            done[name] = analysis
            verification = self._judged(analysis, done)
            if verification.status == "failed":
                return Bound(findings=tuple(_of_numbers(analysis, verification)))
            done[name] = analysis.model_copy(update={"verification": verification})
            changed.append(done[name])
        return Bound(analyses=tuple(changed))

    def _judged(self, analysis: ModuleAnalysis, done: dict[str, ModuleAnalysis]) -> Verification:
        try:
            return self.judge(analysis, done)
        except TraceFailed as error:
            reason = f"it cannot be executed here: {str(error).splitlines()[0]}"
            return Verification(status="unverified", reason=reason)


def _targets(analysis: ModuleAnalysis, lookup: Callable[[str], ModuleAnalysis]) -> set[str]:
    return {lookup(ref.target).class_name for kernel in analysis.kernels for ref in references_in(kernel)}


def _callees_first(root: ModuleAnalysis, lookup: Callable[[str], ModuleAnalysis]) -> list[ModuleAnalysis]:
    """Everything below the root, then the root."""
    order: dict[str, ModuleAnalysis] = {}
    entered: set[str] = set()

    def enter(analysis: ModuleAnalysis) -> None:
        if analysis.class_name in entered:
            return
        entered.add(analysis.class_name)
        for target in sorted(_targets(analysis, lookup)):
            enter(lookup(target))
        order[analysis.class_name] = analysis

    enter(root)
    return list(order.values())


# --- findings --------------------------------------------------------------------------------------------------------


def _finding(rule: Rule, binding: Binding, message: str) -> GateFinding:
    return GateFinding(
        rule=rule, kernel=binding.kernel, message=f"{binding.class_name}, kernel {binding.kernel}: {message}"
    )


def _of_schema(error: ValidationError) -> Iterator[GateFinding]:
    for problem in error.errors()[:20]:
        where = ".".join(str(part) for part in problem["loc"]) or "the hand-in"
        yield GateFinding(rule="schema", message=f"{where}: {problem['msg']}")


def _formula(binding: Binding, analysis: ModuleAnalysis, name: str, text: str) -> Iterator[GateFinding]:
    try:
        formula = parse(text)
    except FormulaError as error:
        yield _finding("grammar", binding, f"{name}: {str(error).splitlines()[0]}")
        return
    if references(formula):
        yield _finding("grammar", binding, f"{name} is bound to a reference; bind a number, in variables of the class")
    unknown = sorted(free_variables(formula) - analysis.parameters.keys() - set(UNIVERSAL))
    if unknown:
        has = ", ".join(analysis.parameters) or "none"
        yield _finding("variable", binding, f"{name} uses {', '.join(unknown)}, which the class does not have ({has})")


def _of_numbers(analysis: ModuleAnalysis, verification: Verification) -> Sequence[GateFinding]:
    return [
        GateFinding(
            rule="numbers",
            line=found.line,
            file=found.file,
            quantity=found.quantity,
            point=found.point,
            claimed=found.claimed,
            counted=found.counted,
            message=f"{analysis.class_name}: {found.quantity} is {found.claimed} with these bindings and "
            f"{found.counted} executed, at {found.point}",
        )
        for found in verification.findings
    ]
