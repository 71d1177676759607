"""References between analyses: find the class that one names, bind its parameters, and decompose a kernel's costs.

Every error names the path through the modules. The linker uses this file, and so does its independent test oracle.
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
from lmp.link.values import canonical
from lmp.records import OWN_ENGINE, UNIVERSAL, Kernel, Lookup, ModuleAnalysis, short

T = TypeVar("T")

COSTS = ("flops", "read", "write")

_AS_NUMBER = "a repeat, a condition or the compulsory traffic, where none can be"

MAX_LEVELS = 40
"""Limit of modules inside one another. Models have about ten; readers of the result use recursion too."""


@dataclass(frozen=True)
class Trail:
    """The path through the modules to a line, for messages."""

    modules: str
    """Class of the root, then the modules below it: ``models.llama.LlamaMLP > gate_proj``."""
    line: int | None = None

    def at(self, line: int) -> Trail:
        return replace(self, line=line)

    def below(self, step: str) -> Trail:
        return Trail(f"{self.modules} > {step}")

    def __str__(self) -> str:
        return self.modules if self.line is None else f"{self.modules} line {self.line}"


class References:
    """Reads formulas and follows references. ``met`` are the classes that were entered, in that order."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._found: dict[str, ModuleAnalysis] = {}
        self._open: list[str] = []
        self._parsed: dict[str, Expr] = {}
        self._conditions: dict[str, Condition] = {}
        self.met: dict[str, ModuleAnalysis] = {}

    @contextmanager
    def entered(self, analysis: ModuleAnalysis, place: Trail) -> Iterator[None]:
        """Context while the references of a class are followed. A class inside itself is refused."""
        name = analysis.class_name
        if name in self._open:
            circle = " > ".join(short(n) for n in [*self._open[self._open.index(name) :], name])
            raise InvalidAnalysis(f"{place}: the references run in a circle: {circle}\n{_redo(analysis)}")
        if len(self._open) == MAX_LEVELS:
            raise invalid(analysis, place, f"modules are nested more than {MAX_LEVELS} levels deep")
        self.met[name] = analysis
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()

    def target(self, class_path: str, inside: Trail) -> ModuleAnalysis:
        """The analysis of the class that a reference names. ``inside`` is the trail of the called module."""
        if is_open(class_path):
            raise InvalidAnalysis(
                f"{inside}: {class_path} is not a class path: its class is not known yet\n"
                "`lmp expand MODEL --engine agent` lets an agent find the class; or write the class there"
            )
        if class_path not in self._found:
            try:
                self._found[class_path] = self.met.get(class_path) or self._lookup(class_path)
            except NotFound as error:
                raise replace(error, message=f"{inside}: {error.message}") from error
            except InvalidAnalysis as error:
                raise type(error)(f"{inside}: {error}") from error
            except UsageError as error:
                # For a class that a user names this is the user's mistake; here it is a mistake of the analysis.
                raise (InvalidAnalysis if type(error) is UsageError else type(error))(f"{inside}: {error}") from error
            except KeyError as error:
                raise InvalidAnalysis(
                    f"{inside}: there is no analysis of {class_path}\nrun `lmp analyze-module {class_path}`"
                ) from error
        return self._found[class_path]

    def bindings(self, analysis: ModuleAnalysis, ref: Ref, target: ModuleAnalysis, here: Trail) -> dict[str, Expr]:
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
            raise invalid(analysis, here, f"the reference to {to} binds {nested} to a reference, which is not a number")
        return bound

    def formula(self, analysis: ModuleAnalysis, text: str, here: Trail) -> Expr:
        if text not in self._parsed:
            self._parsed[text] = guarded(analysis, here, partial(parse, text))
        return self._parsed[text]

    def plain(self, analysis: ModuleAnalysis, text: str, here: Trail) -> Expr:
        """A formula that may hold no reference."""
        formula = self.formula(analysis, text, here)
        if references(formula):
            raise invalid(
                analysis, here, f"a reference to {short(references(formula)[0].target)} stands in {_AS_NUMBER}"
            )
        return formula

    def formulas(self, analysis: ModuleAnalysis, kernel: Kernel, here: Trail) -> tuple[Expr, Expr, Expr]:
        """The cost formulas of a kernel, in the order of COSTS."""
        access = kernel.memory_access
        flops, read, write = (self.formula(analysis, text, here) for text in (kernel.flops, access.read, access.write))
        return flops, read, write

    def condition(self, analysis: ModuleAnalysis, text: str, here: Trail) -> Condition:
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
class Decomposition:
    """The costs of a kernel with references: a count for each reference, and the kernel's own costs."""

    times: dict[Ref, Expr]
    own: Costs


def decompose(formulas: Costs) -> Decomposition | None:
    """The three costs as sums over the same references with equal counts; None if they are no such sums.

    They are none for ``max(reference, ...)``, for half a reference, or if a module counts in the FLOPs alone. The
    decision is made on the formulas, so it does not depend on values.
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
        if not (_equal(count, of_read[ref]) and _equal(count, of_write[ref]) and _is_a_count(count)):
            return None
    return Decomposition(times, (flops, read, write))


def _linear(formula: Expr) -> tuple[Expr, dict[Ref, Expr]] | None:
    """The formula as a sum: the part without references, and the count of each reference."""
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
    """The reference with simplified, sorted bindings, so that equal references compare as equal."""
    bindings = sorted((canonical(name), simplified(formula)) for name, formula in ref.bindings)
    return Ref(ref.target, tuple(map(simplified, ref.arguments)), tuple(bindings))


def _is_a_count(count: Expr) -> bool:
    """True if the formula may be a number of runs: an integer, and no negative number."""
    try:
        return is_integer(count) and not (isinstance(count, Num) and count.value < 0)
    except EvaluationError:
        return False


@lru_cache(maxsize=8192)
def simplified(formula: Expr) -> Expr:
    """The simplified formula; the same formula if it is too large for that."""
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


def guarded(analysis: ModuleAnalysis, here: Trail, compute: Callable[[], T]) -> T:
    """Compute with the trail in every error.

    Raises InvalidAnalysis for a formula that cannot be read or has an unknown name, else EvaluationError.
    """
    try:
        return compute()
    except FormulaSyntaxError as error:
        first, window, *_ = [*str(error).splitlines(), ""]
        raise InvalidAnalysis(f"{here}: a formula cannot be read: {first}\n{window}") from error
    except UnknownVariable as error:
        raise invalid(analysis, here, str(error).splitlines()[0]) from error
    except EvaluationError as error:
        raise EvaluationError(f"{here}: {error}") from error


def invalid(analysis: ModuleAnalysis, here: Trail, what: str) -> LmpError:
    return InvalidAnalysis(f"{here}: {what}\n{_redo(analysis)}")


def join(step: str, path: str) -> str:
    return f"{step}.{path}" if path else step


def _redo(analysis: ModuleAnalysis) -> str:
    name = analysis.class_name
    if analysis.engine == OWN_ENGINE:
        return f"run `lmp analyze-module {name} --fresh` to make the analysis again"
    return f"correct the analysis of {name}, or run `lmp analyze-module {name} --fresh` to replace it"
