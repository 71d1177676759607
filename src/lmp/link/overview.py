"""What one token costs a linked model, with the numbers of its config: the figures that `lmp expand` shows.

Nothing is executed: every figure is a value of the model's stored formulas at a call that the overview names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from lmp.errors import LmpError, first_line
from lmp.formula import (
    Call,
    Compare,
    Monomial,
    Node,
    Num,
    Number,
    Polynomial,
    Var,
    Where,
    as_polynomial,
    evaluate_exact,
    from_polynomial,
    parse,
    plain,
    rewrite,
    simplify,
    substitute,
    to_text,
)
from lmp.link.numbers import ModelNumbers
from lmp.link.parameter_counts import Counts, parameter_counts
from lmp.link.records import EvaluatedTotals, ViolatedAssumption
from lmp.link.values import GIVEN, values_for
from lmp.records import Lookup, ModelAnalysis

LENGTHS = (8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2)
"""Lengths to show a model at: the first at which all its assumptions hold."""


@dataclass(frozen=True)
class CallCosts:
    """One call of the model: its costs, and its FLOPs as a formula of what the call leaves open."""

    phase: str
    """decode or prefill; "one call" for a class without tokens or cache."""
    values: Mapping[str, Number]
    totals: EvaluatedTotals
    tokens: int | None
    """New tokens of the call; None for a class that is not called with tokens."""
    formula: FlopsFormula
    violated: tuple[ViolatedAssumption, ...]

    @property
    def flops(self) -> Number:
        """FLOPs a token, or of the call of a class without tokens."""
        return plain(Fraction(self.totals.flops, self.tokens or 1))


@dataclass(frozen=True)
class FlopsFormula:
    """FLOPs with the config's numbers put in, exact. ``text`` has names without braces."""

    text: str
    a_token: bool
    """True if it is of one token; False if it is of the whole call."""
    fixed: str
    """The sizes that are put in besides the config's, as ``batch_size 1, seq_len 1``."""


@dataclass(frozen=True)
class CacheBytes:
    """KV cache of one sequence: bytes that one token more adds at ``cache_len``, and bytes held there."""

    a_token: Number
    held: Number
    cache_len: int
    element: Number
    """Bytes of an element of the cache."""


@dataclass(frozen=True)
class Overview:
    """The figures of a model. A figure that is not there has its reason in ``unknown``."""

    parameters: int | None
    calls: tuple[CallCosts, ...]
    cache: CacheBytes | None
    counts: Counts
    """Parameters of each module; empty if they are not known."""
    shares_weights: bool
    """True if modules share weights: their parameters are in the count of each, and once in the whole."""
    unknown: Mapping[str, str]
    """parameters, cache, FLOPs or a phase -> why there is no figure."""


def overview(model: ModelAnalysis, lookup: Lookup) -> Overview:
    """The figures of a model at one call of each phase that it has, for one sequence.

    ``lookup`` returns the analyses that the model was linked from: they say the parameters of each module.
    """
    numbers, unknown = ModelNumbers(model), dict[str, str]()
    calls: list[CallCosts] = []
    cache, counts = None, Counts()
    missing = [name for name in model.parameters if name not in (*model.values, *GIVEN, "cache_len")]
    if missing:
        have = "has no value" if len(missing) == 1 else "have no values"
        unknown["FLOPs"] = f"{', '.join(missing)} {have} in the config"
    else:
        for phase in _phases(model):
            try:
                calls.append(_costs(numbers, phase))
            except (_NotKnown, LmpError) as error:
                unknown[phase] = first_line(error)
    try:
        cache = _cache(model, next((call for call in calls if call.phase == "decode"), None))
    except (_NotKnown, LmpError) as error:
        unknown["cache"] = first_line(error)
    parameters = calls[0].totals.parameters_count if calls else _parameters(model)
    if parameters is None:
        unknown["parameters"] = "the analysis does not say them at this config"
    try:
        counts = parameter_counts(model, lookup)
    except LmpError as error:
        unknown["parameters of modules"] = first_line(error)
    return Overview(parameters, tuple(calls), cache, counts, _shares_weights(model, counts), unknown)


class _NotKnown(Exception):
    """A figure that the analysis does not give, with the reason."""


def _phases(model: ModelAnalysis) -> list[str]:
    if "cache_len" in model.parameters:
        return ["decode", "prefill"]
    return ["one call"]


def _costs(numbers: ModelNumbers, phase: str) -> CallCosts:
    """One call of the phase, at the first length at which the model's assumptions hold; else at the shortest one."""
    model = numbers.model
    longest = model.values.get("max_position_embeddings", LENGTHS[0] + 1)
    for length in (length for length in LENGTHS if length < longest or length == LENGTHS[-1]):
        sizes = {"batch_size": 1, "seq_len": length, "cache_len": 0}
        if phase == "decode":
            sizes = {"batch_size": 1, "seq_len": 1, "cache_len": length}
        values = values_for(model, {name: n for name, n in sizes.items() if name in model.parameters})
        violated = tuple(numbers.violated(values))
        if not violated:
            break
    totals = numbers.totals(values)
    if totals.flops < 0:
        raise _NotKnown(f"the formulas are WRONG: they give {totals.flops:,} FLOPs at {_written(sizes)}")
    has_tokens = "seq_len" in model.parameters
    tokens = sizes["batch_size"] * sizes["seq_len"] if has_tokens else None
    shown = {name: n for name, n in sizes.items() if name in model.parameters}
    return CallCosts(phase, shown, totals, tokens, _formula(model, phase, has_tokens), violated)


def _written(sizes: Mapping[str, Number]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in sizes.items())


def _parameters(model: ModelAnalysis) -> int | None:
    """The parameters of a model that cannot be evaluated at a call."""
    if model.totals.parameters_count is None:
        return None
    try:
        value = evaluate_exact(model.totals.parameters_count, dict(model.values))
    except LmpError:
        return None
    return value if isinstance(value, int) else None


def _cache(model: ModelAnalysis, decode: CallCosts | None) -> CacheBytes | None:
    """The bytes that the compulsory traffic of a decode step reads of the cache; None for a class without one."""
    if "cache_len" not in model.parameters:
        return None
    if decode is None:
        raise _NotKnown("the model could not be evaluated at a decode step")
    if model.compulsory is None:
        raise _NotKnown("the analysis has no compulsory traffic")
    values, read = values_for(model, decode.values), parse(model.compulsory.read)
    cache_len = int(values["cache_len"])

    def bytes_at(**changed: Number) -> Number:
        return evaluate_exact(read, {**values, **changed})

    return CacheBytes(
        a_token=plain(bytes_at(cache_len=cache_len + 1) - bytes_at()),
        held=plain(bytes_at() - bytes_at(kv_bytes=0)),
        cache_len=cache_len,
        element=values["kv_bytes"],
    )


# --- the formula -----------------------------------------------------------------------------------------------------


def _formula(model: ModelAnalysis, phase: str, has_tokens: bool) -> FlopsFormula:
    """The model's FLOPs for one sequence in a phase, in what is left: the length, or the length of the cache."""
    sizes = {"decode": {"batch_size": 1, "seq_len": 1}, "prefill": {"batch_size": 1, "cache_len": 0}}
    fixed = {name: n for name, n in sizes.get(phase, {"batch_size": 1}).items() if name in model.parameters}
    put = substitute(parse(model.totals.flops), {**model.values, **fixed})
    open_name = "cache_len" if phase == "decode" else "seq_len"
    least = 1 if phase == "decode" else 2
    polynomial = as_polynomial(rewrite(simplify(put), _from(open_name, least)))
    names = _written({name: n for name, n in fixed.items() if name != "cache_len"})
    if phase == "decode":
        return FlopsFormula(_text(polynomial), True, names)
    a_token = _divided(polynomial, Var("seq_len")) if has_tokens else None
    return FlopsFormula(_text(polynomial if a_token is None else a_token), a_token is not None, names)


def _from(name: str, least: int) -> Callable[[Node], Node]:
    """Rule that takes the branch of each where() that is decided if the named size is at least ``least``."""

    def rule(node: Node) -> Node:
        match node:
            case Where(Compare(relation, Var(found), Num(value)), then, otherwise) if found == name:
                always = {">": value < least, ">=": value <= least, "!=": value < least}.get(relation, False)
                never = {"<": value <= least, "<=": value < least, "==": value < least}.get(relation, False)
                return then if always else otherwise if never else node
        return node

    return rule


def _divided(polynomial: Polynomial, by: Var) -> Polynomial | None:
    """The quotient; None if a term is not divisible."""
    if any(dict(monomial).get(by, 0) < 1 for monomial in polynomial):
        return None
    return {
        tuple((atom, e - (atom == by)) for atom, e in monomial if e - (atom == by)): coefficient
        for monomial, coefficient in polynomial.items()
    }


def _text(polynomial: Polynomial) -> str:
    """A sum with the constant first, digits in groups of three: ``15,141,874,683 + 589,824 * cache_len``."""
    whole = all(isinstance(c, int) and c > 0 for c in polynomial.values())
    atoms = [atom for monomial in polynomial for atom, _ in monomial]
    if not whole or not all(isinstance(atom, Var | Call | Where) for atom in atoms):
        return _bare(to_text(from_polynomial(polynomial)))
    terms = sorted(polynomial.items(), key=lambda term: (sum(e for _, e in term[0]), str(term[0])))
    return " + ".join(_term(monomial, coefficient) for monomial, coefficient in terms) or "0"


def _term(monomial: Monomial, coefficient: Number) -> str:
    factors = [_bare(to_text(atom)) + (f" ** {e}" if e != 1 else "") for atom, e in monomial]
    return " * ".join(factors if coefficient == 1 and factors else [f"{coefficient:,}", *factors])


def _bare(text: str) -> str:
    return text.replace("{", "").replace("}", "")


# --- modules ---------------------------------------------------------------------------------------------------------


def _shares_weights(model: ModelAnalysis, counts: Counts) -> bool:
    """Whether the modules that the root calls have more parameters than the whole: they share weights then."""
    called = {
        (kernel.path, kernel.class_name): kernel.repeat * (counts.get((kernel.path, kernel.class_name)) or 0)
        for kernel in model.kernels
        if kernel.path is not None and kernel.class_name is not None and isinstance(kernel.repeat, int)
    }
    whole = counts.get(("", model.class_name))
    return whole is not None and sum(called.values()) > whole
