"""What a class of the model must move at least, in the model's variables: its own analysis says it in the class's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lmp.errors import LmpError
from lmp.formula import Expr, add, mul, num, parse, references, substitute, to_text
from lmp.records import Kernel, ModelKernel
from lmp.report.facts import ModelFacts

Scope = Mapping[str, Expr]
"""Variable of a class -> formula in the model's variables, at one place where it is called."""


def compulsory_of(facts: ModelFacts) -> Mapping[str, str]:
    """Class -> bytes that all its runs in one call move at least, as a formula; classes of which it is not known are
    left out."""
    root = facts.analyses.get(facts.model.class_name)
    if root is None:
        return {}
    own = {name: _variable(name) for name in facts.model.parameters}
    found: dict[str, list[Expr]] = {facts.model.class_name: [_bytes(facts, facts.model.class_name, own)]}
    unknown: set[str] = set()
    for class_name, scope, runs in _calls(facts, facts.model.class_name, facts.model.kernels, "", own, num(1)):
        if scope is None:
            unknown.add(class_name)
            continue
        found.setdefault(class_name, []).append(mul(runs, _bytes(facts, class_name, scope)))
    texts = {}
    for name, parts in found.items():
        if name not in unknown and facts.analyses[name].compulsory is not None:
            texts[name] = to_text(add(*parts))
    return texts


def _variable(name: str) -> Expr:
    return parse(f"{{{name}}}")


def _bytes(facts: ModelFacts, class_name: str, scope: Scope) -> Expr:
    compulsory = facts.analyses[class_name].compulsory
    if compulsory is None:
        return num(0)
    return substitute(add(parse(compulsory.read), parse(compulsory.write)), dict(scope))


def _calls(
    facts: ModelFacts, owner: str, kernels: list[ModelKernel], path: str, scope: Scope, runs: Expr
) -> Iterator[tuple[str, Scope | None, Expr]]:
    """Class, its variables and how often it runs, of every call below; None where a call's bindings are not found."""
    by_path = {k.path: k for k in facts.analyses[owner].kernels if k.kernel_type == "composite" and k.path}
    for kernel in kernels:
        if kernel.class_name is None:
            continue
        below = kernel.path or ""
        local = below.removeprefix(f"{path}.") if path else below
        repeat = num(kernel.repeat) if isinstance(kernel.repeat, int) else parse(kernel.repeat)
        inner = _bound(by_path.get(local), kernel.class_name, scope)
        yield kernel.class_name, inner, mul(runs, repeat)
        if inner is not None:
            yield from _calls(facts, kernel.class_name, kernel.kernels, below, inner, mul(runs, repeat))
        else:
            yield from ((name, None, runs) for name in _classes(kernel.kernels))


def _classes(kernels: list[ModelKernel]) -> Iterator[str]:
    for kernel in kernels:
        if kernel.class_name is not None:
            yield kernel.class_name
            yield from _classes(kernel.kernels)


def _bound(kernel: Kernel | None, class_name: str, scope: Scope) -> Scope | None:
    if kernel is None:
        return None
    try:
        found = [ref for ref in references(parse(kernel.flops)) if ref.target == class_name]
    except LmpError:
        return None
    if len(found) != 1:
        return None
    return {name: substitute(value, dict(scope)) for name, value in found[0].bindings}
