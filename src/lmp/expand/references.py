"""What every walk over references does, whether numbers or formulas are put in.

It finds the class that a reference names, binds its parameters, and knows the way back: each error names the path
through the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

from lmp.errors import (
    EvaluationError,
    FormulaSyntaxError,
    InvalidAnalysis,
    LmpError,
    NotFound,
    UnknownVariable,
    UsageError,
)
from lmp.expand.point import canonical
from lmp.formula import (
    Add,
    Condition,
    Div,
    Expr,
    Mul,
    Num,
    Ref,
    Where,
    add,
    equal,
    is_integer,
    is_open,
    map_references,
    mul,
    parse,
    parse_condition,
    references,
    simplify,
    where,
)
from lmp.records import UNIVERSAL, Kernel, ModuleAnalysis

Lookup = Callable[[str], ModuleAnalysis]
T = TypeVar("T")

COSTS = ("flops", "read", "write")

_AS_NUMBER = "a repeat, a condition or the compulsory traffic, where none can be"

MAX_LEVELS = 40
"""Modules inside one another. Models have about ten; what reads the result is a recursion too."""


@dataclass(frozen=True)
class Place:
    """Where in the tree: for messages."""

    trail: str
    """Class of the root, then the modules below it: ``models.llama.LlamaMLP > gate_proj``."""
    line: int | None = None

    def at(self, line: int) -> Place:
        return replace(self, line=line)

    def below(self, step: str) -> Place:
        return Place(f"{self.trail} > {step}")

    def __str__(self) -> str:
        return self.trail if self.line is None else f"{self.trail} line {self.line}"


class References:
    """Reads formulas, follows references. ``met`` are the classes that were entered, in that order."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._found: dict[str, ModuleAnalysis] = {}
        self._open: list[str] = []
        self._parsed: dict[str, Expr] = {}
        self._conditions: dict[str, Condition] = {}
        self.met: dict[str, ModuleAnalysis] = {}

    @contextmanager
    def entered(self, analysis: ModuleAnalysis, place: Place) -> Iterator[None]:
        """While what the class refers to is followed. A class inside of itself is refused."""
        name = analysis.class_name
        if name in self._open:
            circle = " > ".join(short(n) for n in [*self._open[self._open.index(name) :], name])
            raise InvalidAnalysis(f"{place}: the references run in a circle: {circle}\n{_redo(analysis)}")
        if len(self._open) == MAX_LEVELS:
            raise invalid(analysis, place, f"there are more than {MAX_LEVELS} modules inside one another")
        self.met[name] = analysis
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()

    def target(self, class_path: str, inside: Place) -> ModuleAnalysis:
        """The analysis of a class that a reference names. ``inside`` is the place that the reference leads to."""
        if is_open(class_path):
            raise InvalidAnalysis(
                f"{inside}: {class_path} is no class path: which class it is, is not said yet\n"
                "`lmp expand MODEL --engine agent` has an agent find out; or write the class there"
            )
        if class_path not in self._found:
            try:
                self._found[class_path] = self.met.get(class_path) or self._lookup(class_path)
            except NotFound as error:
                raise replace(error, message=f"{inside}: {error.message}") from error
            except InvalidAnalysis as error:
                raise type(error)(f"{inside}: {error}") from error
            except UsageError as error:
                # Of a class that is asked for it would be the user's mistake; here it is the analysis's.
                raise (InvalidAnalysis if type(error) is UsageError else type(error))(f"{inside}: {error}") from error
            except KeyError as error:
                raise InvalidAnalysis(
                    f"{inside}: there is no analysis of {class_path}\nrun `lmp analyze-module {class_path}`"
                ) from error
        return self._found[class_path]

    def bindings(self, analysis: ModuleAnalysis, ref: Ref, target: ModuleAnalysis, here: Place) -> dict[str, Expr]:
        """A formula, in the variables of ``analysis``, for each parameter of the target and each element size bound."""
        to, names = short(ref.target), list(target.parameters)
        if len(ref.arguments) > len(names):
            gives = f"gives {len(ref.arguments)} values, it takes {len(names)} ({', '.join(names)})"
            raise invalid(analysis, here, f"the reference to {to} {gives}")
        bound = dict(zip(names, ref.arguments, strict=False))
        for name, formula in ref.bindings:
            known = canonical(name) if name not in target.parameters else name
            if known not in target.parameters and known not in UNIVERSAL:
                has = f"it has {', '.join(names) or 'no parameters'}"
                raise invalid(analysis, here, f"the reference to {to} binds {name}, which it does not have ({has})")
            if known in bound:
                raise invalid(analysis, here, f"the reference to {to} binds {name} twice")
            bound[known] = formula
        missing = [name for name in names if name not in bound and name not in UNIVERSAL]
        if missing:
            raise invalid(analysis, here, f"the reference to {to} does not bind {', '.join(missing)}")
        nested = next((name for name, formula in bound.items() if references(formula)), None)
        if nested is not None:
            raise invalid(analysis, here, f"the reference to {to} binds {nested} to a reference, which is no number")
        return bound

    def formula(self, analysis: ModuleAnalysis, text: str, here: Place) -> Expr:
        if text not in self._parsed:
            self._parsed[text] = guarded(analysis, here, partial(parse, text))
        return self._parsed[text]

    def plain(self, analysis: ModuleAnalysis, text: str, here: Place) -> Expr:
        """A formula that refers to nothing."""
        formula = self.formula(analysis, text, here)
        if references(formula):
            raise invalid(
                analysis, here, f"a reference to {short(references(formula)[0].target)} stands in {_AS_NUMBER}"
            )
        return formula

    def formulas(self, analysis: ModuleAnalysis, kernel: Kernel, here: Place) -> tuple[Expr, Expr, Expr]:
        """The costs of a kernel, in the order of COSTS."""
        access = kernel.memory_access
        flops, read, write = (self.formula(analysis, text, here) for text in (kernel.flops, access.read, access.write))
        return flops, read, write

    def condition(self, analysis: ModuleAnalysis, text: str, here: Place) -> Condition:
        if text not in self._conditions:
            found = guarded(analysis, here, partial(parse_condition, text))
            if references(found):
                raise invalid(
                    analysis, here, f"a reference to {short(references(found)[0].target)} stands in {_AS_NUMBER}"
                )
            self._conditions[text] = found
        return self._conditions[text]


# --- a kernel around references --------------------------------------------------------------------------------------

Costs = tuple[Expr, Expr, Expr]


@dataclass(frozen=True)
class Parts:
    """What a kernel with references is made of: each reference so many times, and work of the kernel's own."""

    times: dict[Ref, Expr]
    own: Costs


def broken_down(formulas: Costs) -> Parts | None:
    """The parts that all three costs add up from, or None where they do not: ``max(reference, ...)``, half a
    reference, or a module whose FLOPs count but not its bytes. Decided on the formulas, so it is the same everywhere.
    """
    found = [_linear(map_references(formula, _same_spelling)) for formula in formulas]
    parts = [part for part in found if part is not None]
    if len(parts) != len(COSTS):
        return None
    (flops, of_flops), (read, of_read), (write, of_write) = parts
    if not of_flops.keys() == of_read.keys() == of_write.keys():
        return None
    times = {ref: simplified(count) for ref, count in of_flops.items()}
    for ref, count in times.items():
        if not (_equal(count, of_read[ref]) and _equal(count, of_write[ref]) and _counts(count)):
            return None
    return Parts(times, (flops, read, write))


def _linear(formula: Expr) -> tuple[Expr, dict[Ref, Expr]] | None:
    """The formula as a sum: what is free of references, and how often each of them is in it."""
    match formula:
        case Ref():
            return Num(0), {formula: Num(1)}
        case Add(terms):
            return _added([_linear(term) for term in terms])
        case Mul(factors):
            with_references = [factor for factor in factors if references(factor)]
            if len(with_references) == 1:
                others = [factor for factor in factors if factor is not with_references[0]]
                return _scaled(_linear(with_references[0]), lambda part: mul(*others, part))
        case Div(left, right) if not references(right):
            return _scaled(_linear(left), lambda part: Div(part, right))
        case Where(condition, then, otherwise) if not references(condition):
            return _added(
                [
                    _scaled(_linear(then), lambda part: where(condition, part, 0)),
                    _scaled(_linear(otherwise), lambda part: where(condition, 0, part)),
                ]
            )
    return None if references(formula) else (formula, {})


Linear = tuple[Expr, dict[Ref, Expr]]


def _added(terms: Sequence[Linear | None]) -> Linear | None:
    own: list[Expr] = []
    times: dict[Ref, list[Expr]] = {}
    for term in terms:
        if term is None:
            return None
        own.append(term[0])
        for ref, count in term[1].items():
            times.setdefault(ref, []).append(count)
    return add(*own), {ref: add(*counts) for ref, counts in times.items()}


def _scaled(term: Linear | None, scale: Callable[[Expr], Expr]) -> Linear | None:
    return term and (scale(term[0]), {ref: scale(count) for ref, count in term[1].items()})


def _same_spelling(ref: Ref) -> Ref:
    """So that references that say the same are the same."""
    bindings = sorted((canonical(name), simplified(formula)) for name, formula in ref.bindings)
    return Ref(ref.target, tuple(map(simplified, ref.arguments)), tuple(bindings))


def _counts(count: Expr) -> bool:
    """Whether something can be run so many times."""
    try:
        return is_integer(count) and not (isinstance(count, Num) and count.value < 0)
    except EvaluationError:
        return False


@lru_cache(maxsize=8192)
def simplified(formula: Expr) -> Expr:
    """Simplified where it is not too large for it: the value is the same."""
    try:
        return simplify(formula)
    except EvaluationError:
        return formula


def _equal(left: Expr, right: Expr) -> bool:
    try:
        return equal(left, right)
    except EvaluationError:
        return False


# --- messages --------------------------------------------------------------------------------------------------------


def guarded(analysis: ModuleAnalysis, here: Place, compute: Callable[[], T]) -> T:
    """A formula that cannot be read or has an unknown name is the analysis's fault; one without a value here is the
    point's."""
    try:
        return compute()
    except FormulaSyntaxError as error:
        first, window, *_ = [*str(error).splitlines(), ""]
        raise InvalidAnalysis(f"{here}: a formula cannot be read: {first}\n{window}") from error
    except UnknownVariable as error:
        raise invalid(analysis, here, str(error).splitlines()[0]) from error
    except EvaluationError as error:
        raise EvaluationError(f"{here}: {error}") from error


def invalid(analysis: ModuleAnalysis, here: Place, what: str) -> LmpError:
    return InvalidAnalysis(f"{here}: {what}\n{_redo(analysis)}")


def join(step: str, path: str) -> str:
    return f"{step}.{path}" if path else step


def short(class_path: str) -> str:
    return class_path.rpartition(".")[2]


def _redo(analysis: ModuleAnalysis) -> str:
    name = analysis.class_name
    if analysis.engine == "trace":
        return f"run `lmp analyze-module {name} --fresh` to make the analysis again"
    return f"correct the analysis of {name}, or run `lmp analyze-module {name} --fresh` to replace it"
