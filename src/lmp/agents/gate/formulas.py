"""The formulas of a draft: their grammar, variables, variables' paths and references; and their spelling in storage."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lmp.errors import FormulaSyntaxError, LmpError, Missing
from lmp.formula import (
    Expr,
    Node,
    Ref,
    Var,
    free_variables,
    is_open,
    map_references,
    parse,
    parse_condition,
    references,
    rewrite,
    to_text,
)
from lmp.link.values import ALIASES
from lmp.records import (
    CATEGORIES,
    MATMUL_CATEGORIES,
    UNIVERSAL,
    Draft,
    GateFinding,
    MemoryAccess,
    ModuleAnalysis,
    Rule,
    short,
)
from lmp.source.members import Known, Members

if TYPE_CHECKING:
    from lmp.agents.subject import ClassSubject

COSTS = ("flops", "read", "write")
RUNTIME = ("batch_size", "seq_len", "cache_len")
EXPECTED_PATH = "config.X, self.X, init.X or inputs.NAME.shape[I]"

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PATH = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*|\[-?\d+\])*)", re.ASCII)


# --- grammar and variables -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """One formula and where it stands: ``quantity`` is flops, read, write, repeat, assumptions[I], parameters_count."""

    kernel: int | None
    line: int | None
    quantity: str
    node: Node

    def finding(self, rule: Rule, message: str) -> GateFinding:
        return GateFinding(rule=rule, message=message, kernel=self.kernel, line=self.line, quantity=self.quantity)


def with_standard_names(draft: Draft) -> Draft:
    """The draft with the contract's names of parameters: num_heads for num_attention_heads."""
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
    for written in _written(draft):
        kernel, line, quantity, text = written.kernel, written.line, written.quantity, written.text
        try:
            node: Node = parse_condition(text) if written.is_condition else parse(text)
        except FormulaSyntaxError as error:
            findings.append(
                GateFinding(
                    rule="grammar",
                    message=f"{quantity}: {_describe(error)}",
                    kernel=kernel,
                    line=line,
                    quantity=quantity,
                    claimed=text[:200],
                )
            )
            continue
        slot = Slot(kernel, line, quantity, _standard_names(node, draft.parameters))
        slots.append(slot)
        if references(slot.node) and quantity not in COSTS:
            findings.append(slot.finding("grammar", f"{quantity} has a reference; it must be a formula of variables"))
    findings += _repeats(draft)
    findings += _kernel_types(draft, slots)
    findings += _categories(draft, slots)
    return slots, findings


@dataclass(frozen=True)
class _Written:
    """A formula as it was written: one `Slot` once it is parsed."""

    kernel: int | None
    line: int | None
    quantity: str
    text: str
    is_condition: bool = False


def _written(draft: Draft) -> Iterator[_Written]:
    for index, kernel in enumerate(draft.kernels):
        access = kernel.memory_access
        for quantity, text in zip(COSTS, (kernel.flops, access.read, access.write), strict=True):
            yield _Written(index, kernel.line, quantity, text)
        if isinstance(kernel.repeat, str):
            yield _Written(index, kernel.line, "repeat", kernel.repeat)
    for index, text in enumerate(draft.assumptions):
        yield _Written(None, None, _assumption(index), text, is_condition=True)
    if draft.parameters_count is not None:
        yield _Written(None, None, "parameters_count", draft.parameters_count)


def _assumption(index: int) -> str:
    """``Slot.quantity`` of an assumption."""
    return f"assumptions[{index}]"


def _describe(error: FormulaSyntaxError) -> str:
    message = str(error).splitlines()[0]
    rest = error.text[error.position : error.position + 30]
    return f"{message}, at {rest!r}" if rest else f"{message}, at the end"


def _standard_names(node: Node, declared: Mapping[str, str]) -> Node:
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


def _kernel_types(draft: Draft, slots: Iterable[Slot]) -> Iterator[GateFinding]:
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
    """A category is one of the closed list; a matrix multiplication has FLOPs."""
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
    """A finding for each variable that no parameter declares, once per kernel."""
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


# --- where the values of variables come from ------------------------------------------------------------------------


def without_universal(draft: Draft) -> Draft:
    """The byte sizes are known everywhere: a draft that declares them as well says nothing new."""
    declared = {name: path for name, path in draft.parameters.items() if name not in UNIVERSAL}
    return draft.model_copy(update={"parameters": declared})


def unresolved_paths(draft: Draft, members: Members, config_names: Collection[str]) -> Iterator[GateFinding]:
    """A finding for each parameter whose path leads nowhere, and for each pinned name that is none."""
    names = _known_names(members, config_names)
    for name, problem in _path_problems(draft, names):
        path = draft.parameters[name]
        yield GateFinding(rule="variable", message=f"parameter {name}: {problem}", claimed=path[:200])
    for name in draft.pinned:
        if name not in draft.parameters and name not in names["config"] and name not in names["init"]:
            message = f"pinned: {name} is neither a parameter, nor of the config, nor a constructor's argument"
            yield GateFinding(rule="variable", message=message)


def wrong_parameters(draft: Draft, members: Members, config_names: Collection[str]) -> set[str]:
    """Names of the parameters whose path leads nowhere."""
    return {name for name, _ in _path_problems(draft, _known_names(members, config_names))}


def _path_problems(draft: Draft, names: Mapping[str, Known]) -> Iterator[tuple[str, str]]:
    for name, path in draft.parameters.items():
        problem = _name_problem(name) or _path_problem(name, path, names) or _meaning_problem(name, path)
        if problem is not None:
            yield name, problem


def _meaning_problem(name: str, path: str) -> str | None:
    """Sizes of a call are dimensions of an input, whatever the class."""
    if name in RUNTIME and path != name and not path.startswith("inputs."):
        return f"{name} is a dimension of an input, but {path} is not one"
    return None


def _known_names(members: Members, config_names: Collection[str]) -> Mapping[str, Known]:
    return {
        "config": members.config | Known(frozenset(config_names)),
        "self": members.attributes,
        # A module that was built outside of a recorded constructor has only the attribute of that name.
        "init": members.init | members.attributes,
        "inputs": members.inputs,
    }


def _name_problem(name: str) -> str | None:
    return None if _NAME.fullmatch(name) else "a name has letters, digits and underscores only"


_LEADS_NOWHERE = {
    "config": "the class's config has no {0}",
    "self": "the class assigns no self.{0}",
    "init": "the constructor has no argument {0}",
    "inputs": "forward() has no argument {0}",
}


def _path_problem(name: str, path: str, names: Mapping[str, Known]) -> str | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return f"{path!r} is not a path; give {EXPECTED_PATH}"
    origin, rest = match.groups()
    if not rest:
        return None if path in RUNTIME else f"{path} names nothing; give {EXPECTED_PATH}"
    if origin not in names:
        return f"{path} starts with {origin}; give {EXPECTED_PATH}"
    first = re.match(r"\.([A-Za-z_]\w*)", rest)
    if first is None:
        return f"{path} cannot be read; give {EXPECTED_PATH}"
    # has_X is 1 or 0: whether the instance has the attribute.
    if first[1] in names[origin] or (origin == "self" and name.startswith("has_")):
        return None
    there = sorted(names[origin].known)
    if origin == "config" and not there:
        return f"{path}: the constructor takes no config; give {EXPECTED_PATH.removeprefix('config.X, ')}"
    listed = f"; there are {', '.join(there)}" if 0 < len(there) <= 12 else ""
    return f"{_LEADS_NOWHERE[origin].format(first[1])}{listed}"


# --- references ------------------------------------------------------------------------------------------------------


@dataclass
class DraftReferences:
    """The references of one draft, resolved: each class exists, has an analysis, and gets a value per parameter."""

    subject: ClassSubject
    members: Members
    findings: list[GateFinding] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)
    """Classes without an analysis."""
    open: dict[str, Slot] = field(default_factory=dict)
    """References that name an attribute, with the first place of each."""

    def __post_init__(self) -> None:
        self._known: dict[str, ModuleAnalysis | str | None] = {}
        self._found: set[tuple[int | None, str]] = set()

    def resolve(self, slots: Sequence[Slot]) -> list[Slot]:
        """The formulas with their references in lmp's spelling. Fills ``findings``, ``missing`` and ``open``."""
        return [self._resolve(slot) for slot in slots]

    def _resolve(self, slot: Slot) -> Slot:
        if not references(slot.node):
            return slot

        def resolved(ref: Ref) -> Expr:
            nested = [r for value in (*ref.arguments, *(v for _, v in ref.bindings)) for r in references(value)]
            if nested:
                self._find(slot, f"the reference to {short(ref.target)} binds a reference, which is not a number")
            if is_open(ref.target):
                return self._note_open(slot, ref)
            target = self._target(slot, ref.target)
            return ref if target is None else self._bind(slot, ref, target)

        node: Node = map_references(slot.node, resolved)
        return replace(slot, node=node)

    def _note_open(self, slot: Slot, ref: Ref) -> Ref:
        attribute = ref.target.removeprefix("self.").split(".")[0]
        if attribute not in self.members.attributes:
            due = "" if "." in ref.target else "; a class is named by its full path"
            self._find(slot, f"the reference names {ref.target}, and the class assigns no self.{attribute}{due}")
        elif ref.arguments:
            self._find(slot, f"the reference to {ref.target} gives values by position; give them by name")
        else:
            self.open.setdefault(ref.target, slot)
        return ref

    def _target(self, slot: Slot, name: str) -> ModuleAnalysis | None:
        """The analysis of a class that is referred to; None if there is none, which ``missing`` or ``findings`` say."""
        if name not in self._known:
            try:
                self._known[name] = self.subject.lookup(name)
            except Missing as error:
                self.missing.update(dict.fromkeys(error.classes or (name,)))
                self._known[name] = None
            except LmpError as error:  # no such class, a plain class, or a stored analysis that cannot be read
                self._known[name] = "; ".join(str(error).splitlines())
        found = self._known[name]
        if isinstance(found, str):
            self._find(slot, f"the reference names {name}: {found}")
            return None
        if found is not None and found.class_name == self.subject.source.class_path:
            self._find(slot, f"{short(name)} refers to itself")
            return None
        return found

    def _bind(self, slot: Slot, ref: Ref, target: ModuleAnalysis) -> Ref:
        """The reference under the class's defining path, every value by name."""
        to, names = short(target.class_name), list(target.parameters)
        listed = ", ".join(f"{name} ({path})" for name, path in target.parameters.items())
        takes = f"it takes {listed}" if names else "it takes none"
        if len(ref.arguments) > len(names):
            self._find(slot, f"the reference to {to} gives {len(ref.arguments)} values by position; {takes}")
            return ref
        bound = dict(zip(names, ref.arguments, strict=False))
        for name, value in ref.bindings:
            known = ALIASES.get(name, name) if name not in names else name
            if known not in names and known not in UNIVERSAL:
                self._find(slot, f"the reference to {to} binds {name}, which it does not have; {takes}")
            elif known in bound:
                self._find(slot, f"the reference to {to} binds {name} twice; {takes}")
            bound[known] = value
        absent = [name for name in names if name not in bound and name not in UNIVERSAL]
        if absent:
            self._find(slot, f"the reference to {to} does not bind {', '.join(absent)}; {takes}")
        return Ref(target.class_name, (), tuple(bound.items()))

    def _find(self, slot: Slot, message: str) -> None:
        """Once per kernel: flops, read and write mostly have the same reference."""
        if (slot.kernel, message) not in self._found:
            self._found.add((slot.kernel, message))
            self.findings.append(slot.finding("reference", f"{slot.quantity}: {message}"))


# --- spelling in storage ---------------------------------------------------------------------------------------------


def spell(draft: Draft, slots: Iterable[Slot]) -> Draft:
    """The draft with its formulas as lmp writes them."""
    texts = {(slot.kernel, slot.quantity): to_text(slot.node) for slot in slots}
    kernels = []
    for index, kernel in enumerate(draft.kernels):
        repeat = texts.get((index, "repeat"), kernel.repeat)
        access = MemoryAccess(read=texts[index, "read"], write=texts[index, "write"])
        update = {"flops": texts[index, "flops"], "memory_access": access, "repeat": _whole(repeat)}
        kernels.append(kernel.model_copy(update=update))
    assumptions = [texts[None, _assumption(index)] for index in range(len(draft.assumptions))]
    count = texts.get((None, "parameters_count"))
    return draft.model_copy(
        update={"kernels": kernels, "assumptions": assumptions, "parameters_count": count},
    )


def _whole(repeat: int | str) -> int | str:
    return int(repeat) if isinstance(repeat, str) and repeat.isdecimal() else repeat


def is_zero(node: Node) -> bool:
    return isinstance(node, Expr) and to_text(node) == "0"
