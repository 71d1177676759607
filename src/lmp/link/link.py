"""The linker: merges analyses into one model by replacing every reference, in the variables of the root.

Substitution is lexical: a class sees the formulas that its reference binds, and the element sizes. A class with equal
bindings is linked once, so the time grows with a model's distinct modules, not with its layers. The linker does not
know which engine made an analysis.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any

from lmp.errors import EvaluationError, FormulaSyntaxError
from lmp.formula import (
    Call,
    Condition,
    Div,
    Expr,
    FloorDiv,
    Mod,
    Node,
    Num,
    Or,
    Pow,
    Ref,
    Var,
    Where,
    add,
    as_polynomial,
    eq,
    floor,
    free_variables,
    from_polynomial,
    ge,
    is_integer,
    map_references,
    mul,
    ne,
    neg,
    num,
    parse,
    references,
    simplify_condition,
    substitute,
    to_size,
    to_text,
    var,
    walk,
    where,
)
from lmp.formula.evaluate import unknown
from lmp.formula.parse import MAX_DEPTH
from lmp.formula.simplify import FALSE, TRUE
from lmp.link.references import (
    COSTS,
    Costs,
    References,
    Trail,
    decompose,
    guarded,
    invalid,
    join,
    simplified,
)
from lmp.records import (
    MATMUL_CATEGORIES,
    UNIVERSAL,
    Analysis,
    Decision,
    Kernel,
    Lookup,
    MemoryAccess,
    ModelAnalysis,
    ModelKernel,
    ModuleAnalysis,
    Operands,
    Part,
    Step,
    Totals,
    Verification,
    short,
    worst,
)
from lmp.store.results import to_text as file_text

MAX_KERNELS = 100_000
"""Limit of the kernels in one model. Large models have a few thousand."""

_SUMMED = ("flops", "matmul_flops", "read", "write")
MAX_NODES = 20_000
"""Limit of the operators and names in one formula. Those of real models have a few hundred."""
MAX_TOTAL_NODES = 200_000
"""The same limit for a total. Those of real models have a few thousand."""
_TOO_LARGE = (
    f"with references replaced, a formula has more than {MAX_DEPTH} levels or {MAX_NODES:,} operators and names"
)
_SHORT = 100
"""A formula of at most so many characters is never too deep to be read."""


def link(analysis: ModuleAnalysis, lookup: Lookup) -> ModelAnalysis:
    """Link a class with everything that it calls. ``lookup`` returns the analysis of a class, or raises NotFound.

    Raises InvalidAnalysis, with the path through the modules, if analyses do not fit together.
    """
    linker = _Linker(lookup)
    place = Trail(analysis.class_name)
    whole = linker.enter(analysis, {name: var(name) for name in (*UNIVERSAL, *analysis.parameters)}, place)
    if whole.size > MAX_KERNELS:
        raise invalid(analysis, place, f"the model has {whole.size:,} kernels, more than {MAX_KERNELS:,}")
    write = _Writer(analysis)
    met = linker.met
    summed = {name: write.text(total, place) for name, total in zip(_SUMMED, whole.totals, strict=True)}
    count = None if whole.parameters_count is None else write.text(whole.parameters_count, place)
    conditions = _without_implied([*whole.conditions, *_pins(analysis, met)])
    merged: dict[str, Any] = {
        "kernels": write.kernels(_Frame(whole), "", place),
        "totals": Totals(**summed, parameters_count=count),
        "parameters_count": count,
        "compulsory": linker.compulsory(analysis, place),
        "assumptions": [to_text(condition) for condition in conditions],
        "pinned": _pinned(analysis, met),
        "uncounted": list(dict.fromkeys(operator for part in met.values() for operator in part.uncounted)),
        "verification": _verification(analysis, met),
        "decisions": _decisions(met),
        "fingerprint": {file: digest for part in met.values() for file, digest in part.fingerprint.items()},
        "parts": {name: _part(part) for name, part in met.items()},
    }
    carried = {name: getattr(analysis, name) for name in Analysis.model_fields if name not in merged}
    return ModelAnalysis(**carried, **merged)


def _decisions(met: Mapping[str, ModuleAnalysis]) -> list[Decision]:
    """The decisions of all classes, each line once."""
    found = {(d.file, d.line): d for part in met.values() for d in part.decisions}
    return [found[place] for place in sorted(found)]


@dataclass(frozen=True)
class _Run:
    """A kernel in the root's variables: either work of its own (``costs``) or a called module."""

    kernel: Kernel
    repeat: Expr
    costs: Costs = (Num(0), Num(0), Num(0))
    category: str = ""
    called: _Linked | None = None
    step: str = ""
    """The called module's path from the class that calls it."""
    operands: Operands | None = None

    @property
    def totals(self) -> tuple[Expr, ...]:
        """Totals of one run, in the order of _SUMMED."""
        if self.called is not None:
            return self.called.totals
        flops, read, write = self.costs
        return flops, flops if self.category in MATMUL_CATEGORIES else Num(0), read, write


@dataclass(frozen=True)
class _Linked:
    """A class linked with one set of bindings."""

    class_name: str
    runs: tuple[_Run, ...]
    totals: tuple[Expr, ...]
    conditions: tuple[Condition, ...]
    parameters_count: Expr | None
    size: int
    """Kernels in it, those of called modules included."""
    outputs_from: list[list[str]] = field(default_factory=list)
    """Sources of each output, as in the analysis of the class."""

    @functools.cached_property
    def ids(self) -> list[str]:
        """Id of each run. A kernel that is several runs has a further number after a slash."""
        numbers = [run.kernel.id or f"#{index}" for index, run in enumerate(self.runs, 1)]
        return [n if numbers.index(n) == i else f"{n}/{numbers[:i].count(n) + 1}" for i, n in enumerate(numbers)]

    @functools.cached_property
    def by_id(self) -> dict[str, _Run]:
        return dict(zip(self.ids, self.runs, strict=True))


@dataclass
class _Frame:
    """One call of a linked class, with the calls around it: in it, the sources of inputs are resolved."""

    linked: _Linked
    prefix: str = ""
    """Ids of the calls around its kernels, with a final dot."""
    parent: _Frame | None = None
    call: _Run | None = None
    """The kernel of the parent that makes this call."""
    inside: dict[str, _Frame] = field(default_factory=dict)

    def called(self, number: str) -> _Frame:
        """The frame of a called module, by the id of its kernel."""
        if number not in self.inside:
            run = self.linked.by_id[number]
            assert run.called is not None
            self.inside[number] = _Frame(run.called, f"{self.prefix}{number}.", self, run)
        return self.inside[number]

    def sources(self, tokens: Iterable[str]) -> list[str]:
        """Ids of basic kernels in the whole model, and names of the root's inputs."""
        found: dict[str, None] = {}
        self._resolve(tokens, found, set())
        return list(found)

    def _resolve(self, tokens: Iterable[str], found: dict[str, None], met: set[tuple[int, str]]) -> None:
        for token in tokens:
            if (id(self), token) in met:
                continue  # a loop: a layer's input is the output of the layer before
            met.add((id(self), token))
            number, _, output = token.partition(".")
            run = self.linked.by_id.get(number)
            if number == "inputs" and self.parent is not None and self.call is not None:
                self.parent._resolve(self.call.kernel.arguments_from.get(output, ()), found, met)
            elif number in ("inputs", "cache"):
                found[token] = None
            elif run is not None and run.called is None:
                found[self.prefix + number] = None
            elif run is not None and run.called is not None:
                outputs = run.called.outputs_from
                chosen = outputs[int(output) : int(output) + 1] if output else outputs
                self.called(number)._resolve([source for one in chosen for source in one], found, met)


Scope = dict[str, Expr]
"""Variable of a class -> formula in the root's variables."""


class _Linker:
    def __init__(self, lookup: Lookup) -> None:
        self._references = References(lookup)
        self._linked: dict[tuple[str, tuple[tuple[str, Expr], ...]], _Linked] = {}
        self._sizes: dict[Any, int | str] = {}
        """Size of an operand and the formulas of the class's variables -> the size in the root's variables."""

    @property
    def met(self) -> dict[str, ModuleAnalysis]:
        return self._references.met

    def enter(self, analysis: ModuleAnalysis, scope: Scope, place: Trail) -> _Linked:
        with self._references.entered(analysis, place):
            key = (analysis.class_name, tuple(sorted(scope.items())))
            if key not in self._linked:
                self._linked[key] = self._link(analysis, scope, place)
            return self._linked[key]

    def _link(self, analysis: ModuleAnalysis, scope: Scope, place: Trail) -> _Linked:
        conditions = [self._condition(analysis, text, scope, place) for text in analysis.assumptions]
        runs: list[_Run] = []
        for kernel in analysis.kernels:
            here = place.at(kernel.line)
            repeat, needed = self._repeat(analysis, kernel, scope, here)
            conditions += needed
            if repeat == Num(0):
                continue
            found, needed = self._runs(analysis, kernel, scope, here)
            conditions += [_unless_zero(repeat, condition) for condition in needed]
            runs += [replace(run, repeat=simplified(mul(repeat, run.repeat))) for run in found]
        for run in runs:
            if run.called is not None:
                conditions += [_unless_zero(run.repeat, condition) for condition in run.called.conditions]
        return _Linked(
            class_name=analysis.class_name,
            runs=tuple(runs),
            totals=tuple(self._total(analysis, runs, index, place) for index in range(len(_SUMMED))),
            conditions=tuple(dict.fromkeys(c for c in conditions if c != TRUE)),
            parameters_count=self._parameters_count(analysis, scope, place),
            size=len(runs) + sum(run.called.size for run in runs if run.called is not None),
            outputs_from=analysis.outputs_from,
        )

    def _runs(
        self, analysis: ModuleAnalysis, kernel: Kernel, scope: Scope, here: Trail
    ) -> tuple[list[_Run], list[Condition]]:
        """The parts of one run of the kernel, and the conditions under which they hold."""
        formulas = self._references.formulas(analysis, kernel, here)
        if not any(map(references, formulas)):
            own = self._own(analysis, kernel, formulas, scope, here)
            return [replace(own, operands=self._operands(analysis, kernel, scope, here))], []
        parts = decompose(formulas)
        if parts is None:
            return self._whole(analysis, kernel, formulas, scope, here)
        runs: list[_Run] = []
        conditions: list[Condition] = []
        for ref, count in parts.times.items():
            times = self._put(analysis, count, scope, here)
            if times != Num(0):
                step = kernel.path or short(ref.target)
                called, needed = self._called(analysis, ref, scope, here, here.below(step))
                conditions += [_unless_zero(times, condition) for condition in needed]
                runs.append(_Run(kernel, times, called=called, step=step))
        own = self._own(analysis, kernel, parts.own, scope, here)
        return (runs if own.costs == (Num(0),) * len(COSTS) else [*runs, own]), conditions

    def _own(self, analysis: ModuleAnalysis, kernel: Kernel, costs: Costs, scope: Scope, here: Trail) -> _Run:
        flops, read, write = (self._put(analysis, cost, scope, here) for cost in costs)
        return _Run(kernel, Num(1), (flops, read, write), kernel.category)

    def _operands(self, analysis: ModuleAnalysis, kernel: Kernel, scope: Scope, here: Trail) -> Operands | None:
        """The operands of a basic kernel in the root's variables, without those that are never present."""
        if kernel.operands is None:
            return None

        bound = analysis.class_name, tuple(scope.values())

        def put(size: int | str) -> int | str:
            if isinstance(size, int):
                return size
            key = size, bound
            if key not in self._sizes:
                formula = self._put(analysis, self._references.plain(analysis, size, here), scope, here)
                self._sizes[key] = to_size(formula)
            return self._sizes[key]

        return kernel.operands.with_sizes(put)

    def _whole(
        self, analysis: ModuleAnalysis, kernel: Kernel, formulas: Costs, scope: Scope, here: Trail
    ) -> tuple[list[_Run], list[Condition]]:
        """Formulas that are no sum of references: one kernel with the totals substituted.

        Its matmul FLOPs are those that the references' matmuls add. If they are a part only, they get their own kernel.
        """
        inner: dict[Ref, _Linked] = {}
        conditions: list[Condition] = []
        for ref in dict.fromkeys(ref for formula in formulas for ref in references(formula)):
            inside = here.below(kernel.path or short(ref.target))
            inner[ref], needed = self._called(analysis, ref, scope, here, inside)
            conditions += [*needed, *inner[ref].conditions]

        def value(formula: Expr, quantity: str | None) -> Expr:
            index = None if quantity is None else _SUMMED.index(quantity)
            numbers = {ref: Num(0) if index is None else linked.totals[index] for ref, linked in inner.items()}
            return self._put(analysis, formula, scope, here, numbers)

        flops, read, write = (value(formula, cost) for formula, cost in zip(formulas, COSTS, strict=True))
        own = value(formulas[0], None)
        matmul = add(value(formulas[0], "matmul_flops"), neg(own))
        is_matmul = kernel.category in MATMUL_CATEGORIES
        matmul = simplified(add(matmul, own) if is_matmul else matmul)
        rest = simplified(add(flops, neg(matmul)))
        names = (kernel.category, "module") if is_matmul else ("matmul", kernel.category)
        runs = []
        if matmul != Num(0):
            runs.append(_Run(kernel, Num(1), (matmul, read, write), names[0]))
            read = write = Num(0)
        if rest != Num(0) or not runs:
            runs.append(_Run(kernel, Num(1), (rest, read, write), names[1]))
        return runs, conditions

    def _called(
        self, analysis: ModuleAnalysis, ref: Ref, scope: Scope, here: Trail, inside: Trail
    ) -> tuple[_Linked, list[Condition]]:
        """The linked class that a reference names, and the conditions that all bound sizes are integers."""
        target = self._references.target(ref.target, inside)
        bound = {name: scope[name] for name in UNIVERSAL}
        conditions = []
        for name, formula in self._references.bindings(analysis, ref, target, here).items():
            bound[name] = self._put(analysis, formula, scope, here)
            if name not in UNIVERSAL:  # bytes of an element may be fractions
                conditions.append(_integral(bound[name]))
        return self.enter(target, bound, inside), conditions

    def _repeat(
        self, analysis: ModuleAnalysis, kernel: Kernel, scope: Scope, here: Trail
    ) -> tuple[Expr, list[Condition]]:
        """How often the kernel runs, and the conditions that make this a count."""
        if isinstance(kernel.repeat, int):
            repeat: Expr = num(kernel.repeat)
        else:
            repeat = self._put(analysis, self._references.plain(analysis, kernel.repeat, here), scope, here)
        if isinstance(repeat, Num) and (repeat.value < 0 or not isinstance(repeat.value, int)):
            raise invalid(analysis, here, f"a kernel is repeated {repeat} times")
        return repeat, [_integral(repeat), _not_negative(repeat)]

    def _parameters_count(self, analysis: ModuleAnalysis, scope: Scope, place: Trail) -> Expr | None:
        if analysis.parameters_count is None:
            return None
        formula = self._references.formula(analysis, analysis.parameters_count, place)
        counts: dict[Ref, Expr] = {}
        for ref in references(formula):
            called, _ = self._called(analysis, ref, scope, place, place.below(short(ref.target)))
            if called.parameters_count is None:
                return None
            counts[ref] = called.parameters_count
        return self._put(analysis, formula, scope, place, counts)

    def compulsory(self, analysis: ModuleAnalysis, place: Trail) -> MemoryAccess | None:
        """The compulsory traffic of the root. It is no sum over the modules."""
        if analysis.compulsory is None:
            return None
        scope: Scope = {name: var(name) for name in (*UNIVERSAL, *analysis.parameters)}
        both = []
        for text in (analysis.compulsory.read, analysis.compulsory.write):
            formula = self._references.plain(analysis, text, place)
            both.append(to_text(self._put(analysis, formula, scope, place)))
        return MemoryAccess(read=both[0], write=both[1])

    def _condition(self, analysis: ModuleAnalysis, text: str, scope: Scope, place: Trail) -> Condition:
        """The condition in the root's variables: TRUE if it always holds. One that never holds stays as written."""
        parsed = self._references.condition(analysis, text, place)
        self._check_names(analysis, parsed, scope, place)
        put = substitute(parsed, scope)
        try:
            known = simplify_condition(put)
        except EvaluationError:
            return put
        return put if known == FALSE else known

    def _put(
        self,
        analysis: ModuleAnalysis,
        formula: Expr,
        scope: Scope,
        here: Trail,
        numbers: Mapping[Ref, Expr] | None = None,
    ) -> Expr:
        """The formula in the root's variables, with ``numbers`` in place of its references."""
        self._check_names(analysis, formula, scope, here)
        try:
            found = substitute(formula, scope)
            if numbers:
                # References have the bound formulas in them by now.
                put = {substitute(ref, scope): number for ref, number in numbers.items()}
                found = map_references(found, lambda ref: put[ref])
            return _tidy(analysis, found, here)
        except RecursionError as error:
            raise invalid(analysis, here, _TOO_LARGE) from error

    def _check_names(self, analysis: ModuleAnalysis, node: Node, scope: Scope, here: Trail) -> None:
        for name in sorted(free_variables(node) - scope.keys()):
            guarded(analysis, here, lambda name=name: unknown(name, scope))  # type: ignore[misc]

    def _total(self, analysis: ModuleAnalysis, runs: Iterable[_Run], index: int, place: Trail) -> Expr:
        try:
            total = add(*(_times(run.repeat, run.totals[index]) for run in runs))
            return _tidy(analysis, total, place, MAX_TOTAL_NODES)
        except RecursionError as error:
            raise invalid(analysis, place, _TOO_LARGE) from error


class _Writer:
    """Kernels as they are stored, each formula written once."""

    def __init__(self, root: ModuleAnalysis) -> None:
        self._root = root
        self._texts: dict[Expr, str] = {}

    def kernels(self, frame: _Frame, path: str, place: Trail) -> list[ModelKernel]:
        runs = frame.linked.by_id.items()
        return [self._kernel(frame, number, run, path, place.at(run.kernel.line)) for number, run in runs]

    def _kernel(self, frame: _Frame, number: str, run: _Run, path: str, here: Trail) -> ModelKernel:
        step = {name: getattr(run.kernel, name) for name in Step.model_fields}
        step |= {"id": frame.prefix + number, "inputs_from": []}
        whole = isinstance(run.repeat, Num) and isinstance(run.repeat.value, int)
        step["repeat"] = run.repeat.value if whole else self.text(run.repeat, here)  # type: ignore[attr-defined]
        if run.called is not None:
            step |= {"kernel_type": "composite", "path": join(path, run.step) if path else run.step}
            inside = self.kernels(frame.called(number), step["path"], here.below(run.step))
            return ModelKernel(**step, class_name=run.called.class_name, kernels=inside)
        flops, read, write = (self.text(cost, here) for cost in run.costs)
        step |= {"kernel_type": "basic", "path": None, "category": run.category}
        step["inputs_from"] = frame.sources(run.kernel.inputs_from)
        access = MemoryAccess(read=read, write=write)
        return ModelKernel(**step, flops=flops, memory_access=access, operands=run.operands)

    def text(self, formula: Expr, here: Trail) -> str:
        """The formula as text that reads back."""
        if formula not in self._texts:
            text = to_text(formula)
            if len(text) > _SHORT:
                try:
                    parse(text)
                except FormulaSyntaxError as error:
                    what = f"with references replaced, a formula is too large: {str(error).splitlines()[0]}"
                    raise invalid(self._root, here, what) from error
            self._texts[formula] = text
        return self._texts[formula]


def _tidy(analysis: ModuleAnalysis, formula: Expr, here: Trail, nodes: int = MAX_NODES) -> Expr:
    """The formula simplified, if it stays one that can be written and read again."""
    if _fits(formula, 2 * MAX_DEPTH, nodes):
        formula = simplified(formula)
    if _fits(formula, MAX_DEPTH, nodes):
        return formula
    raise invalid(analysis, here, _TOO_LARGE)


def _fits(formula: Node, levels: int, nodes: int) -> bool:
    """Whether the formula has at most so many levels, and so many operators and names."""
    pending: list[tuple[Node, int]] = [(formula, 1)]
    seen = 0
    while pending:
        node, level = pending.pop()
        seen += 1
        if level > levels or seen > nodes:
            return False
        pending += [(child, level + 1) for child in node.children]
    return True


# --- repeats ---------------------------------------------------------------------------------------------------------


def _times(repeat: Expr, cost: Expr) -> Expr:
    """``repeat * cost``. What is repeated 0 times costs nothing, even where its cost has no value."""
    if repeat == Num(1):
        return cost
    if isinstance(repeat, Num) or _always_has_value(cost):
        return mul(repeat, cost)
    return where(ne(repeat, 0), mul(repeat, cost), 0)


def _always_has_value(formula: Expr) -> bool:
    for node in walk(formula):
        match node:
            case Div(_, divisor) | FloorDiv(_, divisor) | Mod(_, divisor):
                if not isinstance(divisor, Num) or divisor.value == 0:
                    return False
            case Pow(_, exponent):
                if not isinstance(exponent, Num) or exponent.value < 0:
                    return False
    return True


def _unless_zero(repeat: Expr, condition: Condition) -> Condition:
    """The condition, required only if ``repeat`` is not 0."""
    if isinstance(repeat, Num) or condition == TRUE:
        return condition
    never = eq(repeat, 0)
    parts = condition.parts if isinstance(condition, Or) else (condition,)
    return condition if never in parts else Or((never, *parts))


# --- conditions ------------------------------------------------------------------------------------------------------


def _integral(formula: Expr) -> Condition:
    """The condition that the value is an integer; TRUE if it always is."""
    try:
        if is_integer(formula):
            return TRUE
        polynomial = as_polynomial(formula)
    except EvaluationError:
        return TRUE if isinstance(formula, Var) else eq(formula, floor(formula))
    if isinstance(formula, Div):
        return simplify_condition(eq(Mod(formula.left, formula.right), 0))
    denominator = lcm(*(coefficient.denominator for coefficient in polynomial.values()))
    whole = simplified(mul(denominator, formula))
    if is_integer(whole):
        return simplify_condition(eq(Mod(whole, num(denominator)), 0))
    return simplify_condition(eq(formula, floor(formula)))


def _not_negative(formula: Expr) -> Condition:
    """The condition that the value is at least 0, without negative terms on either side; TRUE if it always is."""
    if _never_negative(formula):
        return TRUE
    try:
        polynomial = as_polynomial(formula)
    except EvaluationError:
        return ge(formula, 0)
    above = {monomial: c for monomial, c in polynomial.items() if c > 0}
    below = {monomial: -c for monomial, c in polynomial.items() if c < 0}
    return simplify_condition(ge(from_polynomial(above), from_polynomial(below)))


def _never_negative(node: Node) -> bool:
    """True if the value is never negative. Variables are counts, so none of them is."""
    match node:
        case Num(value):
            return value >= 0
        case Var():
            return True
        case Where(_, then, otherwise):
            return _never_negative(then) and _never_negative(otherwise)
        case Mod(_, divisor):
            return _never_negative(divisor)
        case Call("max", arguments):
            return any(map(_never_negative, arguments))
    return all(map(_never_negative, node.children))


def _without_implied(conditions: Iterable[Condition]) -> list[Condition]:
    """Each condition once, without any ``a or b`` that a condition ``b`` implies."""
    parts = {c: frozenset(c.parts if isinstance(c, Or) else (c,)) for c in conditions if c != TRUE}
    return [c for c, own in parts.items() if not any(other < own for other in parts.values())]


# --- what is said about the whole ------------------------------------------------------------------------------------


def _pinned(root: ModuleAnalysis, met: Mapping[str, ModuleAnalysis]) -> dict[str, int]:
    """Values that are numbers in the formulas of any class, by their name in the config or with the class's name."""
    found = dict(root.pinned)
    for part in met.values():
        for name, value in part.pinned.items() if part is not root else ():
            if not _of_config(part):
                name = f"{short(part.class_name)}.{name}"
            if name not in root.parameters:
                found.setdefault(name, value)
    return found


def _pins(root: ModuleAnalysis, met: Mapping[str, ModuleAnalysis]) -> list[Condition]:
    """Conditions that a variable of the root has the value that it is pinned to in the formulas of a part."""
    return [
        eq(var(name), value)
        for part in met.values()
        if part is root or _of_config(part)
        for name, value in part.pinned.items()
        if name in root.parameters
    ]


def _of_config(part: ModuleAnalysis) -> bool:
    """True if the pinned values of a class are values of the config, not arguments of its constructor."""
    return not any(path.startswith("init.") for path in part.parameters.values())


def _verification(root: ModuleAnalysis, met: Mapping[str, ModuleAnalysis]) -> Verification:
    """The worst status of all parts. Points and checks are those of the root."""
    own = root.verification
    statuses = {name: part.verification.status for name, part in met.items()}
    bad = [f"{name} ({status})" for name, status in statuses.items() if status != "verified"]
    reason = f"not every part is verified: {', '.join(bad)}" if bad else None
    return own.model_copy(update={"status": worst(statuses.values()), "reason": reason})


def _part(analysis: ModuleAnalysis) -> Part:
    digest = hashlib.sha256(file_text(analysis).encode()).hexdigest()
    status, file = analysis.verification.status, analysis.source.file
    return Part(status=status, sha256=digest, file=file, uncounted=analysis.uncounted)
