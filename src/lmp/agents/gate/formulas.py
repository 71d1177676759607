"""The formulas of a draft: read once, each with its place; what they name; and the same in the contract's spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lmp.errors import FormulaSyntaxError
from lmp.expand.point import ALIASES
from lmp.formula import Expr, Node, Var, free_variables, parse, parse_condition, references, rewrite, to_text
from lmp.records import CATEGORIES, MATMUL_CATEGORIES, UNIVERSAL, Draft, GateFinding, MemoryAccess

COSTS = ("flops", "read", "write")


@dataclass(frozen=True)
class Slot:
    """One formula and where it stands: ``quantity`` is flops, read, write, repeat, assumptions[I], parameters_count."""

    kernel: int | None
    line: int | None
    quantity: str
    node: Node

    def finding(self, rule: str, message: str) -> GateFinding:
        return GateFinding.model_validate(
            {"rule": rule, "message": message, "kernel": self.kernel, "line": self.line, "quantity": self.quantity}
        )


def in_lmps_names(draft: Draft) -> Draft:
    """Parameters under the contract's names: num_attention_heads is num_heads."""
    names = {
        n: standard for n, standard in ALIASES.items() if n in draft.parameters and standard not in draft.parameters
    }
    if not names:
        return draft
    return draft.model_copy(update={"parameters": {names.get(n, n): p for n, p in draft.parameters.items()}})


def read_formulas(draft: Draft) -> tuple[list[Slot], list[GateFinding]]:
    """Every formula of the draft that can be read, and a finding for each that cannot."""
    slots: list[Slot] = []
    findings: list[GateFinding] = []
    for kernel, line, quantity, text in _texts(draft):
        condition = quantity.startswith("assumptions")
        try:
            node: Node = parse_condition(text) if condition else parse(text)
        except FormulaSyntaxError as error:
            findings.append(
                GateFinding(
                    rule="grammar",
                    message=f"{quantity}: {_shown(error)}",
                    kernel=kernel,
                    line=line,
                    quantity=quantity,
                    claimed=text[:200],
                )
            )
            continue
        slot = Slot(kernel, line, quantity, _in_lmps_names(node, draft.parameters))
        slots.append(slot)
        if references(slot.node) and quantity not in COSTS:
            findings.append(slot.finding("grammar", f"{quantity} has a reference; it must be a formula of variables"))
    findings += _repeats(draft)
    findings += _kinds(draft, slots)
    findings += _categories(draft, slots)
    return slots, findings


def _texts(draft: Draft) -> Iterator[tuple[int | None, int | None, str, str]]:
    for index, kernel in enumerate(draft.kernels):
        access = kernel.memory_access
        for quantity, text in zip(COSTS, (kernel.flops, access.read, access.write), strict=True):
            yield index, kernel.line, quantity, text
        if isinstance(kernel.repeat, str):
            yield index, kernel.line, "repeat", kernel.repeat
    for index, text in enumerate(draft.assumptions):
        yield None, None, f"assumptions[{index}]", text
    if draft.parameters_count is not None:
        yield None, None, "parameters_count", draft.parameters_count


def _shown(error: FormulaSyntaxError) -> str:
    message = str(error).splitlines()[0]
    rest = error.text[error.position : error.position + 30]
    return f"{message}, at {rest!r}" if rest else f"{message}, at the end"


def _in_lmps_names(node: Node, declared: Mapping[str, str]) -> Node:
    def standard(found: Node) -> Node:
        if isinstance(found, Var) and found.name not in declared and found.name in ALIASES:
            return Var(ALIASES[found.name])
        return found

    return rewrite(node, standard)


def _repeats(draft: Draft) -> Iterator[GateFinding]:
    for index, kernel in enumerate(draft.kernels):
        if isinstance(kernel.repeat, int) and kernel.repeat < 0:
            message = f"repeat is {kernel.repeat}; nothing runs less than 0 times"
            yield GateFinding(rule="schema", message=message, kernel=index, line=kernel.line, quantity="repeat")


def _kinds(draft: Draft, slots: Iterable[Slot]) -> Iterator[GateFinding]:
    """A composite kernel refers to a class, a basic one does not."""
    referring = {slot.kernel for slot in slots if slot.quantity in COSTS and references(slot.node)}
    readable: dict[int | None, int] = {}
    for slot in slots:
        readable[slot.kernel] = readable.get(slot.kernel, 0) + (slot.quantity in COSTS)
    for index, kernel in enumerate(draft.kernels):
        if kernel.kernel_type == "basic" and index in referring:
            message = "a formula has a reference, and kernel_type is basic; a call of a module is composite"
        elif kernel.kernel_type == "composite" and index not in referring and readable.get(index) == len(COSTS):
            message = "kernel_type is composite, and no formula has a reference ${{Class}}(name=formula, ...)"
        else:
            continue
        yield GateFinding(rule="reference", message=message, kernel=index, line=kernel.line)


def _categories(draft: Draft, slots: Iterable[Slot]) -> Iterator[GateFinding]:
    """One of the closed list; what is a matrix multiplication has FLOPs."""
    idle = {slot.kernel for slot in slots if slot.quantity == "flops" and is_zero(slot.node)}
    for index, kernel in enumerate(draft.kernels):
        if kernel.category not in CATEGORIES:
            message = f"category is {kernel.category[:40]!r}; give one of {', '.join(CATEGORIES)}"
        elif kernel.category in MATMUL_CATEGORIES and index in idle:
            message = f"category is {kernel.category}, and flops is 0; say what else it is"
        elif not kernel.operation.strip():
            message = "operation is empty; say in a few words what it does"
        elif kernel.causal and kernel.category != "attention":
            message = f"causal is said of attention; category is {kernel.category}"
        else:
            continue
        yield GateFinding(rule="schema", message=message, kernel=index, line=kernel.line)


def undeclared(draft: Draft, slots: Iterable[Slot]) -> Iterator[GateFinding]:
    """Each variable that no parameter declares, once a kernel."""
    seen: set[tuple[int | None, str]] = set()
    for slot in slots:
        for name in sorted(free_variables(slot.node) - draft.parameters.keys() - set(UNIVERSAL)):
            if (slot.kernel, name) in seen:
                continue
            seen.add((slot.kernel, name))
            close = difflib.get_close_matches(name, [*draft.parameters, *UNIVERSAL], n=1)
            hint = f"did you mean {close[0]}? else " if close else ""
            message = (
                f"{slot.quantity} uses {{{name}}}, which is not declared; {hint}say in parameters where it is from"
            )
            yield slot.finding("variable", message)


# --- as they are stored ----------------------------------------------------------------------------------------------


def spelled(draft: Draft, slots: Iterable[Slot]) -> Draft:
    """The draft with its formulas as lmp writes them."""
    texts = {(slot.kernel, slot.quantity): to_text(slot.node) for slot in slots}
    kernels = []
    for index, kernel in enumerate(draft.kernels):
        repeat = texts.get((index, "repeat"), kernel.repeat)
        access = MemoryAccess(read=texts[index, "read"], write=texts[index, "write"])
        update = {"flops": texts[index, "flops"], "memory_access": access, "repeat": _whole(repeat)}
        kernels.append(kernel.model_copy(update=update))
    assumptions = [texts[None, f"assumptions[{index}]"] for index in range(len(draft.assumptions))]
    count = texts.get((None, "parameters_count"))
    return draft.model_copy(
        update={"kernels": kernels, "assumptions": assumptions, "parameters_count": count},
    )


def _whole(repeat: int | str) -> int | str:
    return int(repeat) if isinstance(repeat, str) and repeat.isdecimal() else repeat


def is_zero(node: Node) -> bool:
    return isinstance(node, Expr) and to_text(node) == "0"
