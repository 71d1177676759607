"""Operands of analyses that others wrote: filled from execution; and left out where execution differs.

The trace engine derives the same class. A kernel that stands at the same statement with the same costs at every judged
point is the same operator: it gets that operator's operands, and the kernels that made its inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmp.errors import LmpError, first_line
from lmp.formula import free_variables, parse, substitute, to_size, var
from lmp.records import UNIVERSAL, Finding, FindingKind, Kernel, ModuleAnalysis
from lmp.verify.claims import Amounts, Claims
from lmp.verify.resolve import resolve_all

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution
    from lmp.verify.judge import Point

ELEMENT_SIZES = dict(zip(UNIVERSAL, (1009, 1013, 1019), strict=True))
"""Element sizes at which costs are compared: primes, so that equal bytes are bytes of equal width classes."""

Values = Mapping[str, int]


# --- operands that differ ---------------------------------------------------------------------------------------------


def without_differing(analysis: ModuleAnalysis, findings: Sequence[Finding]) -> tuple[ModuleAnalysis, list[str]] | None:
    """The analysis without the operands that differ, and a sentence on each; None if anything else differs.

    The judge keeps a limited number of findings, so that it may find more afterwards.
    """
    if not findings or any(finding.kind is not FindingKind.operands for finding in findings):
        return None
    lines = {(finding.file, finding.line) for finding in findings}
    stated = [kernel for kernel in analysis.kernels if kernel.operands is not None]
    # A finding names the first line of a statement, and a kernel may stand at another one: then all are dropped.
    dropped = [kernel for kernel in stated if (kernel.file, kernel.line) in lines] or stated
    if not dropped:
        return None
    kernels = [k.model_copy(update={"operands": None}) if k in dropped else k for k in analysis.kernels]
    said = [f"operands of {k.operation} in line {k.line} differ, and are left out" for k in dropped]
    return analysis.model_copy(update={"kernels": kernels}), said


# --- operands from execution ------------------------------------------------------------------------------------------


@dataclass
class Filling:
    """One handed-in analysis, and the engine's derivation of its class."""

    analysis: ModuleAnalysis
    derived: ModuleAnalysis
    samples: Sequence[tuple[Values, Values]]
    """At executed calls: values of the parameters of the one and of the other."""
    claims: Claims
    statement_of: Callable[[str, int], int]
    owners: dict[str, int] = field(default_factory=dict)
    """Id of a derived kernel -> index of the kernel that has its cost."""
    same: dict[int, Kernel] = field(default_factory=dict)
    """Index of a kernel -> the derived kernel that is the same operator or call."""

    def filled(self) -> ModuleAnalysis:
        """The analysis with ids, edges and operands. Operands that its author gave stay."""
        self._match()
        parameters = dict(self.analysis.parameters)
        kernels: list[Kernel] = []
        for index, kernel in enumerate(self.analysis.kernels):
            update = {"id": str(index + 1), **self._edges(index)}
            same = self.same.get(index)
            if kernel.operands is None and same is not None and same.operands is not None:
                renaming = self._renaming(same, parameters)
                if renaming is not None:
                    update["operands"] = same.operands.with_sizes(_renamed(renaming))
            kernels.append(kernel.model_copy(update=update))
        added = {name: value for name, value in self.derived.values.items() if name in parameters}
        return self.analysis.model_copy(
            update={
                "kernels": kernels,
                "parameters": parameters,
                "values": {**added, **self.analysis.values},
                "outputs_from": [list(self._sources(found)) for found in self.derived.outputs_from],
            }
        )

    # -- which kernel is which ---------------------------------------------------------------------------------------

    def _match(self) -> None:
        for own, theirs in self._statements():
            for same in (_equal, _equal_product):
                for t in list(theirs):
                    found = next((o for o in own if same(own[o], theirs[t])), None)
                    if found is None:
                        continue
                    kernel = self.derived.kernels[t]
                    self.same[found] = kernel
                    self.owners[kernel.id or ""] = found
                    del own[found], theirs[t]
            if len(own) == 1:  # the kernel sums up the operators that are left
                self.owners |= dict.fromkeys((self.derived.kernels[t].id or "" for t in theirs), next(iter(own)))

    def _statements(self) -> Iterator[tuple[dict[int, list[Amounts]], dict[int, list[Amounts]]]]:
        """For each statement: the kernels of the analysis and of the derivation, with their costs at the samples."""
        found: dict[tuple[str, int], tuple[dict[int, list[Amounts]], dict[int, list[Amounts]]]] = defaultdict(
            lambda: ({}, {})
        )
        for which, analysis in enumerate((self.analysis, self.derived)):
            for index, kernel in enumerate(analysis.kernels):
                costs = [self.claims.kernel(kernel, {**pair[which], **ELEMENT_SIZES}) for pair in self.samples]
                if any(costs):
                    file = kernel.file or analysis.source.file
                    found[file, self.statement_of(file, kernel.line)][which][index] = costs
        yield from found.values()

    # -- edges -------------------------------------------------------------------------------------------------------

    def _edges(self, index: int) -> dict[str, object]:
        owned = [kernel for kernel in self.derived.kernels if self.owners.get(kernel.id or "") == index]
        inputs = dict.fromkeys(s for kernel in owned for s in self._sources(kernel.inputs_from, index))
        given: dict[str, list[str]] = {}
        if index in self.same:
            given = {name: list(self._sources(found)) for name, found in self.same[index].arguments_from.items()}
        return {"inputs_from": list(inputs), "arguments_from": {n: found for n, found in given.items() if found}}

    def _sources(self, found: Iterable[str], index: int | None = None) -> Iterator[str]:
        """Sources by the ids of the analysis, without the kernel itself. Those that no kernel owns are left out."""
        for source in found:
            number, dot, output = source.partition(".")
            if not number.isdigit():
                yield source  # an input of the class, or the cache
            elif (owner := self.owners.get(number)) is not None and owner != index:
                is_call = self.analysis.kernels[owner].kernel_type == "composite"
                if is_call == bool(dot):
                    yield f"{owner + 1}{dot}{output}"

    # -- variables ---------------------------------------------------------------------------------------------------

    def _renaming(self, kernel: Kernel, parameters: dict[str, str]) -> dict[str, str] | None:
        """Variable of the derived operands -> variable of the analysis. New ones are added to ``parameters``.

        None if a variable has a name that means something else in the analysis.
        """
        assert kernel.operands is not None
        names = {name for size in kernel.operands.sizes() for name in _variables(size)} - {*UNIVERSAL}
        renaming = {name: self._own_name(name, parameters) for name in names}
        if None in renaming.values():
            return None
        parameters |= {n: self.derived.parameters[n] for n, own in renaming.items() if own not in parameters}
        return {name: own for name, own in renaming.items() if own is not None}

    def _own_name(self, name: str, parameters: Mapping[str, str]) -> str | None:
        path = self.derived.parameters[name]
        alike = [own for own, found in self.analysis.parameters.items() if found == path]
        for own in (name, *alike):
            if own in self.analysis.parameters and all(mine[own] == its[name] for mine, its in self.samples):
                return own
        return None if name in self.analysis.parameters or parameters.get(name, path) != path else name


def _equal(own: list[Amounts], theirs: list[Amounts]) -> bool:
    return own == theirs


def _equal_product(own: list[Amounts], theirs: list[Amounts]) -> bool:
    """The same product. Its bytes may be stated at another kernel of the statement."""
    return any(a.matmul_flops for a in theirs) and [a.matmul_flops for a in own] == [a.matmul_flops for a in theirs]


def _variables(size: int | str) -> Iterable[str]:
    return () if isinstance(size, int) else free_variables(parse(size))


def _renamed(renaming: Mapping[str, str]) -> Callable[[int | str], int | str]:
    bindings = {name: var(own) for name, own in renaming.items()}
    return lambda size: size if isinstance(size, int) else to_size(substitute(parse(size), bindings))


def samples_of(
    analysis: ModuleAnalysis, derived: ModuleAnalysis, points: Iterable[Point]
) -> Iterator[tuple[Values, Values]]:
    """Values of the parameters of both at the executed calls that both are for, each combination once."""
    seen: set[tuple[tuple[str, int], ...]] = set()
    for point in points:
        if any(point.values.get(name, value) != value for name, value in derived.pinned.items()):
            continue
        for call in point.calls:
            if call.class_path != analysis.class_name:
                continue
            own, failed = resolve_all(analysis.parameters, call, point.values, point.config)
            theirs, also_failed = resolve_all(derived.parameters, call, point.values, point.config)
            key = (*sorted(own.items()), *sorted(theirs.items()))
            if not failed and not also_failed and key not in seen:
                seen.add(key)
                yield own, theirs


def from_execution(
    execution: Execution, analysis: ModuleAnalysis, derived: ModuleAnalysis
) -> tuple[ModuleAnalysis, list[str]]:
    """A verified analysis with operands and edges from execution, judged; and notes on them.

    ``derived``: what the trace engine derives for the class.
    """
    samples = list(samples_of(analysis, derived, execution.points_for(analysis)))
    if not samples:
        return analysis, ["operands are not filled: the trace engine derives nothing for these points"]
    filling = Filling(analysis, derived, samples, Claims(execution.session.lookup), execution.statement_of)
    try:
        found = filling.filled()
    except LmpError as error:
        return analysis, [f"operands are not filled: {first_line(error)}"]
    verification, dropped = execution.judged(found), list[str]()
    while (without := without_differing(found, verification.findings)) is not None:
        found, said = without
        dropped += said
        verification = execution.judged(found)
    if verification.status != "verified":
        return analysis, ["operands are not filled: with them the analysis differs from execution"]
    basic = [k for k in found.kernels if k.kernel_type == "basic" and k.category != "call"]
    filled = sum(kernel.operands is not None for kernel in basic)
    return found, [f"operands of {filled} of {len(basic)} operators, from execution", *dropped]
