"""What a class of the model must move at least, in the model's variables: its own analysis says it in the class's."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lmp.errors import LmpError
from lmp.formula import Expr, add, mul, num, parse, references, settled, simplify, substitute, to_text
from lmp.records import Kernel, ModelKernel
from lmp.report.facts import ModelFacts

Scope = Mapping[str, Expr]
"""Variable of a class -> formula in the model's variables, at one place where it is called."""


@dataclass(frozen=True)
class Placed:
    """A call of a class in the model: its class's variables in the model's; None where they are not found."""

    path: str
    class_name: str
    scope: Scope | None
    runs: Expr


@functools.lru_cache(maxsize=2)
def placed(facts: ModelFacts) -> tuple[Placed, ...]:
    """Every call of the model, the root's first."""
    own = {name: _variable(name) for name in facts.model.parameters}
    first = Placed("", facts.model.class_name, own, num(1))
    if facts.model.class_name not in facts.analyses:
        return ()
    return (first, *_calls(facts, facts.model.class_name, facts.model.kernels, "", own, num(1)))


def compulsory_of(facts: ModelFacts) -> Mapping[str, str]:
    """Class -> bytes that all its runs in one call move at least, as a formula; classes of which it is not known are
    left out."""
    found: dict[str, list[Expr]] = {}
    unknown: set[str] = set()
    for call in placed(facts):
        if call.scope is None:
            unknown.add(call.class_name)
            continue
        found.setdefault(call.class_name, []).append(mul(call.runs, _bytes(facts, call.class_name, call.scope)))
    texts = {}
    for name, parts in found.items():
        if name not in unknown and facts.analyses[name].compulsory is not None:
            texts[name] = to_text(add(*parts))
    return texts


def scope_at(facts: ModelFacts, class_name: str, path: str) -> Scope | None:
    """The variables of a class at one place where the model calls it."""
    return next((c.scope for c in placed(facts) if (c.class_name, c.path) == (class_name, path)), None)


def one_call(facts: ModelFacts, class_name: str, path: str) -> tuple[Expr, Expr] | None:
    """Bytes that one call of the module at a path reads and writes at least, in the model's variables."""
    compulsory, scope = facts.analyses[class_name].compulsory, scope_at(facts, class_name, path)
    if compulsory is None or scope is None:
        return None
    read, write = (substitute(parse(text), dict(scope)) for text in (compulsory.read, compulsory.write))
    return read, write


def at_config(facts: ModelFacts, formula: Expr) -> Expr:
    """The formula with everything put in but the sizes of a run: batch, new tokens, cached tokens."""
    point = facts.points[0]
    fixed = {name: value for name, value in point.values.items() if name not in RUNTIME}
    return simplify(settled([formula], fixed)[0])


RUNTIME = frozenset({"batch_size", "seq_len", "cache_len"})


def _variable(name: str) -> Expr:
    return parse(f"{{{name}}}")


def _bytes(facts: ModelFacts, class_name: str, scope: Scope) -> Expr:
    compulsory = facts.analyses[class_name].compulsory
    if compulsory is None:
        return num(0)
    return substitute(add(parse(compulsory.read), parse(compulsory.write)), dict(scope))


def _calls(
    facts: ModelFacts, owner: str, kernels: list[ModelKernel], path: str, scope: Scope, runs: Expr
) -> Iterator[Placed]:
    by_path: dict[str, list[Kernel]] = {}
    for own in facts.analyses[owner].kernels:
        if own.kernel_type == "composite" and own.path:
            by_path.setdefault(own.path, []).append(own)
    for kernel in kernels:
        if kernel.class_name is None:
            continue
        below = kernel.path or ""
        local = below.removeprefix(f"{path}.") if path else below
        repeat = num(kernel.repeat) if isinstance(kernel.repeat, int) else parse(kernel.repeat)
        inner = _bound(by_path.get(local, []), kernel.class_name, scope)
        yield Placed(below, kernel.class_name, inner, mul(runs, repeat))
        if inner is not None:
            yield from _calls(facts, kernel.class_name, kernel.kernels, below, inner, mul(runs, repeat))
        else:
            yield from _unknown(kernel.kernels)


def _unknown(kernels: list[ModelKernel]) -> Iterator[Placed]:
    for kernel in kernels:
        if kernel.class_name is not None:
            yield Placed(kernel.path or "", kernel.class_name, None, num(1))
            yield from _unknown(kernel.kernels)


def _bound(kernels: list[Kernel], class_name: str, scope: Scope) -> Scope | None:
    """Of the calls at one path, which may be of a class each, that of this class."""
    found: dict[tuple[tuple[str, Expr], ...], None] = {}
    for kernel in kernels:
        try:
            references_ = references(parse(kernel.flops))
        except LmpError:
            return None
        found |= {ref.bindings: None for ref in references_ if ref.target == class_name}
    if len(found) != 1:
        return None
    return {name: substitute(value, dict(scope)) for name, value in next(iter(found))}
