"""The gate of the reference expander: open references, and the bindings that close them.

An open reference is one that cannot be followed as it stands. A binding says which class it means, with a value for
each parameter. The bindings are accepted if no reference is open afterwards and the whole equals execution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from lmp.agents.gate.numbers import gate_findings
from lmp.errors import FormulaError, InvalidAnalysis, Missing, NotFound, TraceFailed, UsageError, VerificationFailed
from lmp.formula import Ref, free_variables, is_open, map_references, parse, references, to_text
from lmp.link.references import References, Trail
from lmp.records import (
    UNIVERSAL,
    Binding,
    Bindings,
    Finding,
    GateFinding,
    Kernel,
    Lookup,
    MemoryAccess,
    ModuleAnalysis,
    Rule,
    Verification,
)
from lmp.source.quoting import escaped
from lmp.verify.claims import separate_not_correctable

Judge = Callable[[ModuleAnalysis, Mapping[str, ModuleAnalysis]], Verification]
"""Compares an analysis with execution; the mapping takes precedence over stored analyses. Raises TraceFailed."""

ByClass = Mapping[str, Mapping[int, Binding]]
"""Class -> index of a kernel -> its binding."""


# --- open references -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenReference:
    """One open reference of one kernel."""

    class_name: str
    """The class whose analysis has it."""
    kernel: int
    line: int
    code: str
    written: str
    """The reference as it stands."""
    why: str
    """Why it cannot be followed."""
    file: str = ""
    repeat: int | str = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of the class: bindings are formulas in them."""

    def __str__(self) -> str:
        names = ", ".join(f"{name} ({path})" for name, path in self.variables.items()) or "none"
        return escaped(
            f"class_name {self.class_name}, kernel index {self.kernel}\n"
            f"  {self.file} line {self.line}: {self.code}\n"
            f"  written: {self.written}, repeat {self.repeat}\n"
            f"  open because {self.why}\n"
            f"  variables of the class: {names}"
        )


def open_references(analysis: ModuleAnalysis, lookup: Lookup) -> list[OpenReference]:
    """The open references of a module's analysis, in the order of its kernels.

    A reference to a class without an analysis is not open: the Missing that ``lookup`` raises is not caught.
    """
    return [
        OpenReference(
            analysis.class_name,
            index,
            kernel.line,
            kernel.code,
            str(ref),
            why,
            kernel.file or analysis.source.file,
            kernel.repeat,
            analysis.parameters,
        )
        for index, kernel in enumerate(analysis.kernels)
        for ref, why in _open_in(analysis, kernel, References(lookup))
    ]


def _open_in(analysis: ModuleAnalysis, kernel: Kernel, follow: References) -> Iterator[tuple[Ref, str]]:
    here = Trail(analysis.class_name.rpartition(".")[2]).at(kernel.line)
    for ref in references(parse(kernel.flops)):
        if is_open(ref.target):
            yield ref, f"the reference does not say which class {ref.target} is"
            continue
        try:
            follow.bindings(analysis, ref, follow.target(ref.target, here), here)
        except Missing:
            raise
        except (InvalidAnalysis, NotFound, UsageError) as error:  # the last: a class without forward()
            yield ref, str(error).splitlines()[0].removeprefix(f"{here}: ")


def open_references_text(found: Sequence[OpenReference]) -> str:
    return "\n\n".join(str(reference) for reference in found) or "There is no open place."


def reachable(root: ModuleAnalysis, lookup: Lookup) -> Iterator[ModuleAnalysis]:
    """The analysis and those that it refers to, at any depth; each once, callers first. Raises Missing."""
    waiting, seen = [root], {root.class_name}
    while waiting:
        analysis = waiting.pop(0)
        yield analysis
        for target in referenced(analysis, lookup):
            if target.class_name not in seen:
                seen.add(target.class_name)
                waiting.append(target)


def referenced(analysis: ModuleAnalysis, lookup: Lookup) -> Iterator[ModuleAnalysis]:
    """The analyses that it refers to itself, without those of open references. Raises Missing."""
    for ref in dict.fromkeys(ref for kernel in analysis.kernels for ref in references(parse(kernel.flops))):
        if is_open(ref.target):
            continue
        try:
            yield lookup(ref.target)
        except Missing:
            raise
        except (NotFound, UsageError):
            continue


def close_references(analysis: ModuleAnalysis, bindings: Mapping[int, Binding]) -> ModuleAnalysis:
    """The analysis with each binding in the place of its kernel's reference, and nothing else changed."""
    kernels = [_bound(kernel, bindings.get(index)) for index, kernel in enumerate(analysis.kernels)]
    return analysis.model_copy(update={"kernels": kernels})


def _bound(kernel: Kernel, binding: Binding | None) -> Kernel:
    if binding is None:
        return kernel
    meant = Ref(binding.target, (), tuple((name, parse(text)) for name, text in binding.bindings.items()))

    def bind(text: str) -> str:
        return to_text(map_references(parse(text), lambda ref: meant))

    access = MemoryAccess(read=bind(kernel.memory_access.read), write=bind(kernel.memory_access.write))
    repeat = kernel.repeat if binding.repeat is None else binding.repeat
    return kernel.model_copy(update={"flops": bind(kernel.flops), "memory_access": access, "repeat": repeat})


# --- the gate --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BindingVerdict:
    """The gate's answer: the analyses with their references closed, callees first, or findings."""

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
    """Checks the submissions of the reference expander for one model."""

    root: ModuleAnalysis
    lookup: Lookup
    judge: Judge
    locate: Callable[[str], str]
    """The defining path of a class. Raises NotFound, UsageError."""
    called: Callable[[ModuleAnalysis, Kernel], Collection[str]] = lambda analysis, kernel: ()
    """The classes that are called at a kernel's line; none where that is not known."""

    def open_references(self) -> list[OpenReference]:
        """Those of the whole model, callers first."""
        parts = reachable(self.root, self.lookup)
        return [reference for part in parts for reference in open_references(part, self.lookup)]

    def judge_again(self) -> BindingVerdict:
        """Judge what was unverified because of references that were open then. None is open now.

        Raises VerificationFailed if formulas and execution differ.
        """
        verdict = self._compare({})
        if verdict.findings:
            first = verdict.findings[0]
            raise VerificationFailed(
                f"{first.message}: {first.quantity} of line {first.line} is {first.claimed} by formula and "
                f"{first.counted} executed, at {first.point}\nhave it analysed again with --fresh"
            )
        return verdict

    def check(self, submitted: Any) -> BindingVerdict:
        """Raises Missing for a class that a binding names and that has no analysis yet."""
        try:
            given = Bindings.model_validate({"bindings": submitted})
        except ValidationError as error:
            return BindingVerdict(findings=tuple(_schema_findings(error)))
        by_class: dict[str, dict[int, Binding]] = defaultdict(dict)
        findings: list[GateFinding] = []
        for binding in given.bindings:
            if binding.kernel in by_class[binding.class_name]:
                findings.append(_finding("reference", binding, "it is bound twice; submit one binding for it"))
            by_class[binding.class_name][binding.kernel] = binding
            findings += self._check_one(binding)
        if not findings:
            lookup = self._with(by_class)
            parts = list(reachable(lookup(self.root.class_name), lookup))
            findings += self._surplus(by_class, parts)
            findings += self._still_open(parts, lookup)
        return BindingVerdict(findings=tuple(findings)) if findings else self._compare(by_class)

    def _check_one(self, binding: Binding) -> Iterator[GateFinding]:
        """Findings about a binding by itself."""
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
        # Checked before an analysis of the target is paid for.
        called = self.called(analysis, analysis.kernels[binding.kernel])
        if called and target not in called:
            message = f"{target} is not called at line {analysis.kernels[binding.kernel].line}"
            yield _finding("reference", binding, message)
            return
        for name, text in [*binding.bindings.items(), ("repeat", str(binding.repeat or 1))]:
            yield from _formula_findings(binding, analysis, name, text)

    def _surplus(self, by_class: ByClass, parts: Sequence[ModuleAnalysis]) -> Iterator[GateFinding]:
        """Findings for bindings of references that are not open: those must not change."""
        for analysis in parts:
            was_open = {each.kernel for each in open_references(self.lookup(analysis.class_name), self.lookup)}
            for index, binding in by_class.get(analysis.class_name, {}).items():
                if index not in was_open:
                    yield _finding("reference", binding, "it is not an open place; leave this binding out")
        inside = {analysis.class_name for analysis in parts}
        for name, bindings in by_class.items():
            if name not in inside:
                yield _finding("reference", next(iter(bindings.values())), "the class is not in this model")

    def _still_open(self, parts: Sequence[ModuleAnalysis], lookup: Lookup) -> Iterator[GateFinding]:
        """Findings for references that are open although the bindings are in place."""
        for analysis in parts:
            for each in open_references(analysis, lookup):
                message = f"{each.class_name}, kernel index {each.kernel} is open, as {each.why}"
                yield GateFinding(rule="reference", message=message, kernel=each.kernel, line=each.line, file=each.file)

    def _with(self, by_class: ByClass) -> Lookup:
        def lookup(class_path: str) -> ModuleAnalysis:
            found = self.lookup(class_path)
            return close_references(found, by_class.get(found.class_name, {}))

        return lookup

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _compare(self, by_class: ByClass) -> BindingVerdict:
        """Compare with execution whatever was bound, refers to that, or was judged while a reference was open."""
        lookup = self._with(by_class)
        done: dict[str, ModuleAnalysis] = {}
        changed: list[ModuleAnalysis] = []
        for analysis in _callees_first(lookup(self.root.class_name), lookup):
            name = analysis.class_name
            below = {target.class_name for target in referenced(analysis, lookup)}
            done[name] = analysis
            waits = bool(analysis.verification.open)
            if not waits and name not in by_class and not below & {part.class_name for part in changed}:
                continue
            own, verification = separate_not_correctable(self._judge(analysis, done))
            if own:
                return BindingVerdict(findings=tuple(_number_findings(analysis, own)))
            done[name] = analysis.model_copy(update={"verification": verification})
            changed.append(done[name])
        return BindingVerdict(analyses=tuple(changed))

    def _judge(self, analysis: ModuleAnalysis, done: Mapping[str, ModuleAnalysis]) -> Verification:
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
        for target in referenced(analysis, lookup):
            enter(target)
        order[analysis.class_name] = analysis

    enter(root)
    return list(order.values())


# --- findings --------------------------------------------------------------------------------------------------------


def _finding(rule: Rule, binding: Binding, message: str) -> GateFinding:
    return GateFinding(
        rule=rule, kernel=binding.kernel, message=f"{binding.class_name}, kernel index {binding.kernel}: {message}"
    )


def _schema_findings(error: ValidationError) -> Iterator[GateFinding]:
    for problem in error.errors()[:20]:
        where = ".".join(str(part) for part in problem["loc"]) or "the submission"
        yield GateFinding(rule="schema", message=f"{where}: {problem['msg']}")


def _formula_findings(binding: Binding, analysis: ModuleAnalysis, name: str, text: str) -> Iterator[GateFinding]:
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


def _number_findings(analysis: ModuleAnalysis, findings: Sequence[Finding]) -> Iterator[GateFinding]:
    for finding in gate_findings(findings, analysis, {}):
        yield finding.model_copy(update={"message": f"{analysis.class_name}: {finding.message}"})
