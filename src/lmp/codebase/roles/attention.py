"""Attention: modules that compute it, the backends that they may use, and its kernels.

What computes attention is known by its calls. What belongs to it is known by its ties to that: the class around it,
what that builds on or is given, what works on queries, keys and values for it, what makes its masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import ITEM, Call, Class, Function
from lmp.codebase.graph.values import ClassValue, innermost
from lmp.codebase.roles import operators
from lmp.codebase.roles.cache import MAKES_FAR, PUTS_FAR, SHORT, far
from lmp.codebase.roles.reach import PRODUCTS, QKV, Reading, Row, place
from lmp.codebase.roles.states import GIVES, carried_states
from lmp.codebase.roles.words import says, split

BACKEND = re.compile(
    r"(?i)backend|get_\w*(module|impl|config|attn|attention)|determine|select|choose|best|dispatch|plan|gen_|impl$"
)
SIDE = re.compile(
    r"(?i)test|bench|config$|args$|error$|profil|flops|tflop|load|convert|estimate|log|mapping"
    r"|bwd|backward|preprocess"
)
OPERANDS = (
    frozenset(["q", "xq", "query", "queries", "q_pe", "q_nope"]),
    frozenset(["k", "xk", "key", "keys", "k_pe"]),
    frozenset(["v", "xv", "value", "values"]),
)
"""Names of the three operands of attention."""
CHOICE = frozenset(["implementation", "impl"])
"""Words of the setting by which transformers is told what computes attention."""
BY_NAME = "by its name"
RECURRENT = "works on a recurrent state"
SERVES = "works on its operands"
"""Why a row is one that computes no attention itself: rotary embeddings, norms of queries."""
CALLED = ("forward", "__call__", "apply", "run")
"""Methods that run a module."""
ROOM = 10
"""Functions from which on a reader has no use for the lines inside of them."""


def attention_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}

    def add(of: Function | Class, role: str, why: str, rank: int = 0) -> None:
        found.setdefault(of.key, Row("attention", role, of.qualname, place(of), why, rank))

    computes = dict(_computes(reading))
    classes = dict(_classes(reading, computes))
    masks = _masks(reading, {*computes, *(each for of in classes for each in of.methods.values())})
    for function, why in computes.items():
        add(function, "module" if function.owner is not None else "backend", why)
    for function in _recurrent(reading):
        add(function, "kernel" if function.key in reading.kernels else "module", RECURRENT)
    for function, why in (*_chooses(reading), *(() if reading.attending else _elsewhere(reading))):
        add(function, "backend", why)
    for of, why in classes.items():
        add(of, role_of(of.name, of), why, int(why == BY_NAME))
    for function in reading.functions:
        if (
            function.key not in reading.kernels
            and not SIDE.search(function.name)
            and not function.name.startswith("__")
        ):
            why = (
                _named(reading, function, computes)
                or ("makes a mask" if function in masks else "")
                or _serves(reading, function, computes, classes)
            )
            if why:
                add(function, role_of(function.qualname, function), why, int(why == BY_NAME))
    for function in computes if len(computes) < ROOM else ():
        sites = list(_sites(reading, function))
        # A function that is there for one call stands for it.
        for call, dotted in sites if function.owner is not None or len(sites) > 1 else ():
            # By what stands there: an object of the class, or another name of the function.
            name, at = f"{function.qualname}.{call.name}", Place(function.file, call.line)
            found.setdefault((at.file, at.line), Row("attention", "kernel", name, at, dotted, 1))
    for kernel in reading.facts.kernels:
        at = kernel.place
        near = says(kernel.name, "attention") or any(says(part, "attention") for part in at.file.split("/")[-2:])
        if reading.is_own(at.file) and near and (at.file, at.line) not in reading.inner_kernels:
            found[at.file, at.line] = Row("attention", "kernel", kernel.name, at, kernel.language)
    return list(found.values())


def _elsewhere(reading: Reading) -> Iterator[tuple[Function, str]]:
    """Where no code attends itself, another package does: what makes its engine, gives it tokens, or changes a module
    of attention that it gave."""
    for function, why in far(reading):
        if why in (MAKES_FAR, PUTS_FAR):
            yield function, "hands attention to another package"
    for function in reading.functions:
        for chain in function.sets:
            if isinstance(chain[-2], str) and says(chain[-2], "attention"):
                yield function, f"sets {chain[-1]} of {chain[-2]}"


def _recurrent(reading: Reading) -> Iterator[Function]:
    """What works on a state that stands in for keys and values, and hands it to nothing else."""
    carried, draws = carried_states(reading), reading.reaching(reading.samples)
    for function, (names, why) in carried.items():
        on = any(edge.callee in carried and edge.callee is not function for edge in reading.graph.edges[function])
        # That of a convolution holds the last inputs alone.
        other = all("conv" in split(name) for name in names) or says(function.qualname, "feed_forward")
        short = function.end - function.line <= SHORT
        if not (on or other or short or why == GIVES or function in draws):
            yield function


def _chooses(reading: Reading) -> Iterator[tuple[Function, str]]:
    """What tells another package which attention to take: as an argument, a key of its arguments, or a setting."""
    for function in reading.functions:
        calls = [call for call in function.calls if not reading.is_inside(function, call)] if function.calls else []
        told = {name for call in calls for name, _ in call.keywords} | {str(chain[-1]) for chain in function.sets}
        for name in sorted(function.keys | told):
            if says(name, "attention") and split(name) & CHOICE:
                yield function.outermost, f"chooses by {name}"


def _computes(reading: Reading) -> Iterator[tuple[Function, str]]:
    """What computes attention, each function by the outermost one that it stands in: that is what others call."""
    for function, why in reading.attends.items():
        outermost = function.outermost
        if not SIDE.search(outermost.qualname):
            yield outermost, why
    for function in reading.starts_attention:
        if function.key not in reading.kernels and not SIDE.search(function.name):
            yield function, "starts a kernel"
    for function in reading.native_products:
        yield function, PRODUCTS


def _sites(reading: Reading, function: Function) -> Iterator[tuple[Call, str]]:
    """Where a function calls attention of another package."""
    for call in function.calls:
        for value in reading.graph.evaluator.values(function, call.callee):
            dotted = getattr(value, "dotted", "")
            if operators.ATTENTION.search(dotted) and not dotted.startswith("torch.utils.cpp_extension"):
                yield call, dotted


def _classes(reading: Reading, computes: dict[Function, str]) -> Iterator[tuple[Class, str]]:
    own = {function.owner: why for function, why in computes.items() if function.owner is not None}
    named = [of for of in reading.classes if of not in own and _is_named(of) and not SIDE.search(of.name)]
    leads = {of for of in named if of.native or any(each in reading.attending for each in of.methods.values())}
    sure = leads | own.keys()
    given = [of for function in computes if function.owner is None for of in _taken(reading, function)]
    bases = {base for of in sure for base in reading.graph.evaluator.line(of)[1:]}
    attends = {*computes, *(method for of in sure for method in of.methods.values())}
    taken = {each for function in attends for each in _taken(reading, function)}
    for of in dict.fromkeys((*own, *named, *given)):
        if SIDE.search(of.name) or says(of.name, "kv_cache"):
            continue
        if of in own:
            yield of, own[of]
        elif of in bases:
            yield of, "what computes attention builds on it"
        elif of in taken:
            yield of, "what attention is given"
        elif is_enum(of):
            yield of, "names the kinds of it"
        elif of in sure or any(each in CALLED for each in of.methods):
            # A config that is named after it computes nothing.
            yield of, BY_NAME


def is_enum(of: Class) -> bool:
    return not of.native and any(str(chain[-1]).endswith("Enum") for chain in of.bases)


def _is_named(of: Class) -> bool:
    return says(of.name, "attention") or "qkv" in split(of.name)


def _taken(reading: Reading, function: Function) -> Iterator[Class]:
    """Classes of what a function says that it takes."""
    for chains in function.params.values():
        for value in map(innermost, reading.graph.evaluator.values(function, chains)):
            if isinstance(value, ClassValue):
                yield value.of


def _named(reading: Reading, function: Function, computes: dict[Function, str]) -> str:
    """It is named after attention, and leads to it, is a step of it, or stands beside it in a class."""
    if not says(function.name, "attention") or function.end - function.line < 2 or function.nested:
        return ""
    if function.native:
        return BY_NAME if function.calls else ""
    names = reading.facts.graphs[function.file].names
    filled = [chain for write in function.writes for chain in write.target]
    if any(chain[0] in names for chain in (*filled, *(each for each in function.returns if ITEM in each[1:2]))):
        return "fills or reads a table of its module"
    beside = function.owner is not None and any(each in computes for each in function.owner.methods.values())
    return BY_NAME if beside or function in reading.attending else ""


def _detail(function: Function) -> bool:
    """It stands in another function, or is a module's own: a part of what it serves."""
    return function.nested or (function.owner is None and function.name.startswith("_"))


def _masks(reading: Reading, attends: Set[Function]) -> set[Function]:
    """What makes a mask: it is named after one of attention, or attention asks for it; what it is made by in turn."""
    made = {each for each in reading.functions if "mask" in split(each.name) and not (each.native or each.nested)}
    graph = reading.graph
    waiting = [each for each in made if any(edge.caller in attends for edge in graph.callers.get(each, ()))]
    found = set(waiting)
    while waiting:
        below = {edge.callee for edge in graph.edges[waiting.pop()]} & made - found
        found |= below
        waiting += below
    for each in made:
        below = {edge.callee for edge in graph.edges[each] if not _detail(edge.callee)}
        told = len(each.params) == (each.owner is not None) or any(says(one.name, "attention_mask") for one in below)
        if says(each.name, "attention_mask") and not (told or _detail(each)):
            found.add(each)
    return found


def _operands(function: Function) -> int:
    return sum(bool(kind & set(function.params)) for kind in OPERANDS)


def _serves(reading: Reading, function: Function, computes: dict[Function, str], classes: dict[Class, str]) -> str:
    """It takes queries, keys or values from functions of attention, and from nothing else."""
    kept = "cache" in split(function.qualname) or says(function.name, "kv_write")
    if function.native or function.abstract or kept or _detail(function):
        return ""
    edges = reading.graph.callers.get(function, ())
    given = any(_keys_or_values(each.call) for each in edges if each.call is not None)
    if not given and (_operands(function) < 2 or function.writes):
        return ""
    serves = edges and all(each.caller in computes or each.caller.owner in classes for each in edges)
    return SERVES if serves else ""


def _keys_or_values(call: Call) -> bool:
    """Whether a call is given keys or values as they are."""
    names = {str(chain[0]) for chains in (*call.args, *dict(call.keywords).values()) for chain in chains}
    return any((found := QKV.match(name)) and (found[1] or found[2][0]) != "q" for name in names)


def role_of(name: str, thing: object) -> str:
    if not isinstance(thing, Class | Function):
        return "kernel"
    return "backend" if BACKEND.search(name) else "module"
