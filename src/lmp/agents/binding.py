"""The gate of the reference expander: bindings that close every open place, and a whole that equals execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lmp.agents.gate.counting import told, without_unknown
from lmp.agents.open_places import OpenPlace, closed, open_places, reached, referred
from lmp.errors import FormulaError, InvalidAnalysis, Missing, NotFound, TraceFailed, UsageError, VerificationFailed
from lmp.expand.references import Lookup
from lmp.formula import free_variables, parse, references
from lmp.records import UNIVERSAL, Binding, Bindings, Finding, GateFinding, Kernel, ModuleAnalysis, Rule, Verification
from lmp.verify.claims import OPEN

Judge = Callable[[ModuleAnalysis, Mapping[str, ModuleAnalysis]], Verification]
"""What execution says of an analysis, with others in the place of the stored ones. Raises TraceFailed."""

ByClass = Mapping[str, Mapping[int, Binding]]


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
    lookup: Lookup
    judge: Judge
    locate: Callable[[str], str]
    """The defining path of a class. Raises NotFound, UsageError."""
    called: Callable[[ModuleAnalysis, Kernel], Collection[str]] = lambda analysis, kernel: ()
    """The classes that are called at a kernel's line; none where that is not known."""

    def places(self) -> list[OpenPlace]:
        """All open places of the model, callers first."""
        return [place for part in reached(self.root, self.lookup) for place in open_places(part, self.lookup)]

    def judged_again(self) -> Bound:
        """What was unverified, as something below it was open, against execution: nothing is open now.

        Raises VerificationFailed where it differs.
        """
        bound = self._numbers({})
        if bound.findings:
            first = bound.findings[0]
            raise VerificationFailed(
                f"{first.message}: {first.quantity} of line {first.line} is {first.claimed} by formula and "
                f"{first.counted} executed, at {first.point}\nhave it analysed again with --fresh"
            )
        return bound

    def check(self, handed_in: Any) -> Bound:
        """Raises Missing for a class that a binding names and that is not analysed yet."""
        try:
            given = Bindings.model_validate({"bindings": handed_in})
        except ValidationError as error:
            return Bound(findings=tuple(_of_schema(error)))
        by_class: dict[str, dict[int, Binding]] = defaultdict(dict)
        findings: list[GateFinding] = []
        for binding in given.bindings:
            if binding.kernel in by_class[binding.class_name]:
                findings.append(_finding("reference", binding, "it is bound twice; hand in one binding for it"))
            by_class[binding.class_name][binding.kernel] = binding
            findings += self._one(binding)
        if not findings:
            lookup = self._with(by_class)
            parts = list(reached(lookup(self.root.class_name), lookup))
            findings += self._surplus(by_class, parts)
            findings += self._left(parts, lookup)
        return Bound(findings=tuple(findings)) if findings else self._numbers(by_class)

    # -- bindings --------------------------------------------------------------------------------------------------

    def _one(self, binding: Binding) -> Iterator[GateFinding]:
        """What is wrong with a binding by itself."""
        try:
            analysis = self.lookup(binding.class_name)
            target = self.locate(binding.target)
        except Missing:
            raise
        except (NotFound, UsageError, InvalidAnalysis) as error:
            yield _finding("class", binding, str(error).splitlines()[0])
            return
        if binding.kernel not in range(len(analysis.kernels)):
            yield _finding("reference", binding, f"there is no such kernel: it has {len(analysis.kernels)}, from 0")
            return
        # Before anybody is paid for an analysis of the target.
        called = self.called(analysis, analysis.kernels[binding.kernel])
        if called and target not in called:
            message = f"{target} is not called at line {analysis.kernels[binding.kernel].line}"
            yield _finding("reference", binding, message)
            return
        for name, text in [*binding.bindings.items(), ("repeat", str(binding.repeat or 1))]:
            yield from _formula(binding, analysis, name, text)

    def _surplus(self, by_class: ByClass, parts: Sequence[ModuleAnalysis]) -> Iterator[GateFinding]:
        """Bindings of places that are not open: nothing is changed that was clear."""
        for analysis in parts:
            was_open = {place.kernel for place in open_places(self.lookup(analysis.class_name), self.lookup)}
            for index, binding in by_class.get(analysis.class_name, {}).items():
                if index not in was_open:
                    yield _finding("reference", binding, "it is not an open place; leave this binding out")
        inside = {analysis.class_name for analysis in parts}
        for name, bindings in by_class.items():
            if name not in inside:
                yield _finding("reference", next(iter(bindings.values())), "the class is not in this model")

    def _left(self, parts: Sequence[ModuleAnalysis], lookup: Lookup) -> Iterator[GateFinding]:
        """Places that are open with the bindings put in."""
        for analysis in parts:
            for place in open_places(analysis, lookup):
                message = f"{place.class_name}, kernel {place.kernel} is open, as {place.why}"
                yield GateFinding(
                    rule="reference", message=message, kernel=place.kernel, line=place.line, file=place.file
                )

    def _with(self, by_class: ByClass) -> Lookup:
        def lookup(class_path: str) -> ModuleAnalysis:
            found = self.lookup(class_path)
            return closed(found, by_class.get(found.class_name, {}))

        return lookup

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _numbers(self, by_class: ByClass) -> Bound:
        """Everything that is changed, above something changed, or still to be judged, against execution."""
        lookup = self._with(by_class)
        done: dict[str, ModuleAnalysis] = {}
        changed: list[ModuleAnalysis] = []
        for analysis in _callees_first(lookup(self.root.class_name), lookup):
            name = analysis.class_name
            below = {target.class_name for target in referred(analysis, lookup)}
            done[name] = analysis
            waits = OPEN in (analysis.verification.reason or "")
            if not waits and name not in by_class and not below & {part.class_name for part in changed}:
                continue
            own, verification = without_unknown(self._judged(analysis, done))
            if own:
                return Bound(findings=tuple(_of_numbers(analysis, own)))
            done[name] = analysis.model_copy(update={"verification": verification})
            changed.append(done[name])
        return Bound(analyses=tuple(changed))

    def _judged(self, analysis: ModuleAnalysis, done: Mapping[str, ModuleAnalysis]) -> Verification:
        try:
            return self.judge(analysis, done)
        except TraceFailed as error:
            reason = f"it cannot be executed here: {str(error).splitlines()[0]}"
            return Verification(status="unverified", reason=reason)


def _callees_first(root: ModuleAnalysis, lookup: Lookup) -> list[ModuleAnalysis]:
    """Everything below the root, then the root."""
    order: dict[str, ModuleAnalysis] = {}
    entered: set[str] = set()

    def enter(analysis: ModuleAnalysis) -> None:
        if analysis.class_name in entered:
            return
        entered.add(analysis.class_name)
        for target in referred(analysis, lookup):
            enter(target)
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


def _of_numbers(analysis: ModuleAnalysis, findings: Sequence[Finding]) -> Iterator[GateFinding]:
    for finding in told(findings, analysis, {}):
        yield finding.model_copy(update={"message": f"{analysis.class_name}: {finding.message}"})
