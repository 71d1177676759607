"""The call graph: which function calls which, how that was found, and what was lost on the way."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from lmp.codebase.graph.records import ITEM, MANY, SUPER, Applied, Call, Chain, Class, FileGraph, Function
from lmp.codebase.graph.values import (
    FLUENT,
    REMOTE,
    ClassValue,
    Evaluator,
    External,
    FunctionValue,
    Instance,
    Many,
    Value,
    holder,
    innermost,
)

Dispatch = Literal[
    "direct", "attribute", "getattr", "registry", "callback", "process", "queue", "inheritance", "constructor", "name"
]
MOST_TARGETS = 12
"""Functions that one call may lead to; where there are more, the call is lost."""
MOST_OVERRIDES = 200
"""Definitions of one virtual method that are kept."""
MOST_OWNERS, MOST_OF_NAME = 40, 60
"""Classes that have a method of a name, and functions of a name, among which one is looked for."""
MOST_ALIKE = 6
"""Methods of one name that unrelated classes have, and that an object of unknown class may mean."""
CALLED = ("forward", "__call__")
SYNONYMS = {"attn": "attention", "layers": "layer", "blocks": "block", "experts": "expert", "models": "model"}
"""Words for the parts of a model that variables and classes write differently."""
COMMON = frozenset(
    name for kind in (str, bytes, list, dict, set, int, float, tuple) for name in dir(kind) if not name.startswith("__")
) | frozenset(
    (
        *("forward", "read", "write", "close", "open", "put", "send", "recv", "flush", "start", "stop", "run"),
        *("join", "wait", "shape", "size", "view", "reshape", "to", "cpu", "cuda", "item", "tolist", "numpy"),
        *("detach", "clone", "float", "half", "long", "int", "bool", "mean", "sum", "max", "min"),
        *("add_argument", "parse_args", "info", "debug", "warning", "error", "exception", "log", "zero_grad"),
        *("backward", "step", "load", "save", "name", "group", "match", "search", "sub", "strip", "exists"),
        *("mkdir", "is_file", "is_dir", "result", "submit", "cancel", "done", "set_result", "get_event_loop"),
        *("create_task", "post", "delete", "head", "options", "begin", "end", "empty", "length", "data"),
        *("init", "set", "reset", "is_set", "contains", "narrow", "parameters", "state_dict", "load_state_dict"),
        *("to_dict", "from_dict", "from_pretrained", "save_pretrained", "push_to_hub"),
        *("gradient_checkpointing_enable", "gradient_checkpointing_disable"),
    )
)
"""Methods that objects of the language and of its libraries have: alone they name no class of the code base."""
VERBS = frozenset(
    (
        *("compile", "lower", "process", "flush", "update", "eval", "train", "apply", "call", "build", "create"),
        *("setup", "sort", "filter", "merge", "register", "next", "validate", "verify", "handle", "execute", "check"),
    )
)
"""Methods that any library's object may have: they are followed only where the object's name is the class's."""
SENDS = frozenset(
    ["send", "send_pyobj", "send_json", "send_string", "send_multipart", "put", "put_nowait", "append", "appendleft"]
)
TAKES = frozenset(
    ["recv", "recv_pyobj", "recv_json", "recv_string", "recv_multipart", "get", "get_nowait", "popleft", "pop"]
)
BINDS = frozenset(["bind", "connect", "bind_to_random_port"])
QUEUE = re.compile(r"Queue$")
MOST_HANDED = 3
"""Calls that hand a queue on, each under a name of its own."""
STARTS = frozenset(["Process", "Thread", "Timer", "submit", "run_in_executor", "spawn", "start_new_thread", "Pool"])
COMPILES = frozenset(["compile", "jit", "pjit", "script", "trace"])
"""What gives back what it is given, made faster, and runs nothing of it."""
LOOKS = frozenset(
    ["signature", "getsource", "getfullargspec", "getdoc", "getmodule", "isfunction", "ismethod", "isclass", "unwrap",
     "iscoroutinefunction", "get_type_hints", "callable", "hasattr", "isinstance", "issubclass", "wraps", "getattr",
     "type", "id", "len", "str", "repr", "print", "enumerate", "zip"]
)  # fmt: skip
"""What looks at a function that it is given, and runs nothing of it."""
MOST_LOOKED = 4
"""Functions that hand one on to each other, to be followed."""
KEEPS = "set_defaults"
"""Of argparse: what a command is to run is kept under a name of the arguments, and called by that."""
RUNS = frozenset([*CALLED, "generate"])
"""Methods that run a model."""
LEAVES = frozenset(["asdict", "cast", "copy", "deepcopy", "dump", "dumps", "fields", "replace", "super", "TypeVar"])
"""What is given a class or an object and calls no method of it."""
IMPLEMENTS = frozenset(["impl", "custom_op", "triton_op", "register_kernel"])
"""What gives an operator of torch a function to run."""
ABOVE = 12
"""Lines that a function may stand below the decorator that says so."""
SENT = re.compile(r"(?i)rpc|remote|call|invoke|dispatch|method")
"""What is called to run a method elsewhere by its name."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(slots=True, frozen=True)
class Edge:
    caller: Function
    callee: Function
    line: int
    how: Dispatch
    of: int = 1
    """How many functions the call may lead to."""
    call: Call | None = field(default=None, compare=False)


@dataclass(slots=True, frozen=True)
class Lost:
    """A call on an object of the code base's own whose target reading does not tell."""

    line: int
    written: str
    why: str


@cache
def words(name: str) -> frozenset[str]:
    """``TokenAttention`` and ``token_attention`` are ``{token, attention}``."""
    return frozenset(each.lower() for each in WORD.findall(name) if len(each) > 1)


@cache
def _same(name: str) -> frozenset[str]:
    return frozenset(SYNONYMS.get(each, each) for each in words(name))


INDIRECT = frozenset(["getattr", "registry"])
"""Ways by which what a call gives reaches the function through another one."""


OBJECT = re.compile(
    r"\.(?!\w*(?:Parallel|Wrap|Compil|Script|Optim|Module|Sequential|Engine|Proxy|Any|Handle|Stub|Actor|Remote))[A-Z]\w*[a-z]\w*\(\)$"
)
"""An object of another package's class that wraps no object of this one."""


def _of_actor(call: Call) -> Call:
    """What ``actor.run.remote(x)`` calls: ``run`` of an object in another process."""
    last = call.callee[0] if call.callee else ()
    return replace(call, callee=(last[:-1],)) if call.name in REMOTE and len(last) > 2 else call


def takes(function: Function, call: Call) -> bool:
    """Whether a function can be what a call means: a plain one of Python has a parameter for each of its arguments.

    A decorator may change what is taken, and so may what is called by its name in a string. A method that is called on
    its class is given its object too.
    """
    names = list(function.params)
    if (
        function.native
        or function.decorators
        or call.text == function.name
        or any(name.startswith("*") for name in names)
    ):
        return True
    on_class = call.written.rpartition(".")[0].rpartition(".")[2][:1].isupper()
    bound = function.owner is not None and names[:1] in (["self"], ["cls"]) and not on_class
    named = [name for name, _ in call.keywords if not name.startswith("*")]
    return len(call.args) <= len(names) - bound and set(named) <= set(names)


Handed = dict[str, list[tuple[Call, int, str]]]
"""Name -> the calls that are given it, each with its number among the arguments and its keyword."""


def _uses(of: Function) -> tuple[set[str], Handed]:
    """Which of its parameters a function calls, keeps or gives back; those that it hands on, but to what only looks."""
    inside = [of, *of.inner.values()]
    kept = [chain for each in inside for chain in (*each.returns, *(c for one in each.locals.values() for c in one))]
    if of.owner is not None:
        kept += [chain for given in of.owner.attributes.values() for by, chain in given if by in inside]
    calls = [each for one in inside for each in one.calls]
    # What it is called tells nothing but its name: ``function.__name__``.
    kept = [chain for chain in kept if not str(chain[1] if len(chain) > 1 else "").startswith("__")]
    handed: Handed = {}
    for call in calls:
        for at, (key, chains) in enumerate((*(("", each) for each in call.args), *call.keywords)):
            for name in of.params.keys() & {chain[0] for chain in chains} if call.name not in LOOKS else ():
                handed.setdefault(name, []).append((call, at, key))
    return of.params.keys() & {chain[0] for chain in (*kept, *(c for each in calls for c in each.callee))}, handed


class CallGraph:
    def __init__(self, graphs: Mapping[str, FileGraph]) -> None:
        self.graphs = graphs
        self.evaluator = Evaluator(graphs)
        self.functions = [function for graph in graphs.values() for function in graph.functions]
        self.classes = [each for graph in graphs.values() for each in graph.every_class]
        self.methods: dict[str, list[Function]] = {}
        self.natives: dict[str, list[Function]] = {}
        for function in self.functions:
            if function.native:
                self.natives.setdefault(function.name, []).append(function)
            elif function.owner is not None:
                self.methods.setdefault(function.name, []).append(function)
        self.native_plain: dict[str, list[Function]] = {}
        self.native_owners: dict[str, dict[str, list[Function]]] = {}
        for name, found in self.natives.items():
            for function in found:
                owner = function.qualname.split(".")[-2] if "." in function.qualname else ""
                if owner:
                    self.native_owners.setdefault(name, {}).setdefault(owner, []).append(function)
                else:
                    self.native_plain.setdefault(name, []).append(function)
        self.bound: dict[str, list[Function]] = {}
        for graph in graphs.values():
            for name, (target, _) in graph.bindings.items():
                self.bound.setdefault(name, []).extend(self.natives.get(target, ())[:4])
        self._used: dict[Function, tuple[set[str], Handed]] = {}
        self.kept: dict[str, dict[Function, None]] = {}
        for function in self.functions:
            for call in () if function.native else function.calls:
                for name, chains in call.keywords if call.name == KEEPS else ():
                    values = self.evaluator.values(function, chains)
                    given = (each.of for each in values if isinstance(each, FunctionValue))
                    self.kept.setdefault(name, {}).update(dict.fromkeys(given))
        self.operators: dict[str, dict[Function, None]] = {}
        for name, of in self._registered():
            self.operators.setdefault(name, {})[of] = None
        self.edges: dict[Function, list[Edge]] = {}
        self.lost: dict[Function, list[Lost]] = {}
        self.callers: dict[Function, list[Edge]] = {}
        for function in self.functions:
            self.edges[function] = edges = list(dict.fromkeys(self._edges(function)))
            for edge in edges:
                self.callers.setdefault(edge.callee, []).append(edge)
        for edge in [*self._channels(), *self._called_back()]:
            self.edges[edge.caller].append(edge)
            self.callers.setdefault(edge.callee, []).append(edge)

    def _registered(self) -> Iterator[tuple[str, Function]]:
        """Operators of torch that functions of Python stand for, by their full names: ``space.name``.

        A decorator stands above its function; else the function is given: ``lib.impl("space::name", run, "CUDA")``,
        ``register_custom_op(op_name="name", op_func=run)``.
        """
        for graph in self.graphs.values():
            body = graph.body
            for call in body.calls if body is not None else ():
                space, _, name = call.text.partition("::")
                if call.name in IMPLEMENTS and name:
                    given = self._functions_of(body, call.given)
                    if not given:
                        below = (each for each in graph.functions if each.line > call.line and each.decorators)
                        given = [each for each in below if each.line - call.line <= ABOVE][:1]
                    yield from ((f"{space}.{name}", each) for each in given)
                for keyword, chains in call.keywords:
                    if keyword == "op_func":
                        yield from ((f"*.{each.name}", each) for each in self._functions_of(body, chains))

    def _functions_of(self, context: Function | None, chains: Iterable[Chain]) -> list[Function]:
        values = self.evaluator.values(context, chains) if context is not None else ()
        return [each.of for each in values if isinstance(each, FunctionValue)]

    # -- edges of one function -----------------------------------------------------------------------------------------

    def _edges(self, function: Function) -> Iterator[Edge]:
        if function.native:
            yield from self._native(function)
            return
        if function.abstract and function.owner is None and function.name in self.natives:
            # It is declared here, and written in another language.
            targets = self._nearest(self.natives[function.name], function.file)
            yield from (Edge(function, each, function.line, "getattr", len(targets)) for each in targets)
        for call in function.calls:
            yield from self._called(function, call)
            yield from self._handed(function, call)

    def _called(self, function: Function, call: Call) -> Iterator[Edge]:
        values = self.evaluator.values(function, call.callee)
        if not values and call.callee and call.callee[0][0] in function.tested:
            # What is not known is what it is tested for: ``if isinstance(layer, Linear): layer.unpack()``.
            asked = function.tested[call.callee[0][0]]
            values = self.evaluator.values(function, [(*chain, *call.callee[0][1:]) for chain in asked])
        targets: dict[Function, Dispatch] = {}
        for value in values:
            for target, how in self._targets(function, call, value).items():
                # In the order of the last mention: what an ``else`` leaves stands behind the branches.
                targets.pop(target, None)
                targets[target] = how
        if not targets and call.callee:
            targets = dict.fromkeys(self._of_operator(values), "registry")
            # An extension that is built from C++ is a package that only its own code names: its functions are bound.
            targets = targets or dict.fromkeys(self._bound(function, call.callee[0], call.name), "registry")
            targets = targets or dict.fromkeys(self._of_library(call), "registry")
            if not targets and not self._is_external(function, call, values):
                of = _of_actor(call)
                # ``args.func(args)`` runs what a command set: ``parser.set_defaults(func=run)``.
                kept = self.kept.get(of.name, ()) if len(of.callee[0]) == 2 else ()
                targets = dict.fromkeys(kept, "registry")
                targets = targets or self._by_name(function, of) or self._put(of) or self._module(function, of, values)
        if call.text:
            targets.update(self._named(function, _of_actor(call)))
        targets = {each: how for each, how in targets.items() if how in INDIRECT or takes(each, call)}
        # Of several that a call may lead to, one that says nothing and is no interface of others does nothing.
        below = self.evaluator.subclasses
        targets = {each: how for each, how in targets.items() if not each.abstract or each.owner in below} or targets
        if len(targets) > MOST_TARGETS:
            targets = dict(list(targets.items())[:MOST_TARGETS])
        for target, how in targets.items():
            if target is not function or len(targets) == 1:
                yield Edge(function, target, call.line, how, len(targets), call)

    def _is_external(self, function: Function, call: Call, values: Iterable[Value]) -> bool:
        """Whether a call is of a name, or an object, of another package. What is kept in a variable may be wrapped."""
        first = call.callee[0][0]
        if not any(isinstance(each, External) for each in values):
            return False
        if all(isinstance(each, External) and OBJECT.search(each.dotted) for each in values):
            # An object of another package's class calls what that defines, and nothing of a like name here.
            return True
        return first in self.graphs[function.file].imports and first not in function.locals

    def _targets(self, function: Function, call: Call, value: Value) -> dict[Function, Dispatch]:
        evaluator = self.evaluator
        if isinstance(value, Many):
            return {}
        if isinstance(value, FunctionValue):
            found: dict[Function, Dispatch] = {}
            plain: Dispatch = (
                "direct" if value.on is None or call.callee[0][:1] in (("self",), ("cls",)) else "attribute"
            )
            # Of another object's interface, readers name what it declares, beside what stands for that.
            declared = value.of.owner in evaluator.subclasses and call.callee[0][:-1] != ("self",)
            if not value.of.abstract or value.on is None or value.exact or declared:
                found[value.of] = plain
            above = call.callee[:1] and call.callee[0][0] == SUPER
            if value.on is not None and (not value.exact or (value.of.abstract and not above)):
                below = self._ranked(evaluator.overrides(value.on, value.of.name))
                found.update((each, "inheritance") for each in below if each not in found)
            return found or {value.of: plain}
        if isinstance(value, ClassValue):
            made = (evaluator.method(value.of, name) for name in ("__init__", "__post_init__", "__new__"))
            first = next(filter(None, made), None)
            return {first: "constructor"} if first is not None else {}
        if isinstance(value, Instance):
            found = {}
            if call.name in FLUENT:
                # ``model.eval()`` gives the model back, and does not run it.
                return found
            for name in ("forward", "__call__"):
                called = evaluator.method(value.of, name)
                if called is not None:
                    if not called.abstract:
                        found[called] = "attribute"
                    if not value.exact:
                        below = self._ranked(evaluator.overrides(value.of, name))
                        found.update((each, "inheritance") for each in below if each not in found)
                    return found or {called: "attribute"}
                below = self._ranked(evaluator.overrides(value.of, name)) if not value.exact else []
                if below:
                    return dict.fromkeys(below, "inheritance")
        return {}

    def _ranked(self, found: Iterable[Function]) -> list[Function]:
        """Of equals, first what most classes build on, then the longest."""
        below = self.evaluator.subclasses
        return sorted(
            {each: None for each in found if not each.abstract},
            key=lambda each: (
                -len(below.get(each.owner, ())) if each.owner is not None else 0,
                -(each.end - each.line),
                each.file,
                each.line,
            ),
        )

    def _handed(self, function: Function, call: Call) -> Iterator[Edge]:
        """Functions that a call is given to run."""
        if call.name in COMPILES or call.name in LOOKS or call.name == KEEPS:
            return
        starts = call.name in STARTS
        own = self._own(function, call)
        for number, (name, chains) in enumerate((*(("", each) for each in call.args), *call.keywords)):
            if own and all(self._looks_at(each, call, number, name) for each in own):
                continue
            for chain in chains:
                runs = starts or name == "target"
                if not chain or (chain == ("self",) and not runs) or not isinstance(chain[-1], str):
                    continue
                if len(chain) == 1 and chain[0] in function.params and self.evaluator.decorates(function):
                    # What it decorates by another decorator runs where it is called.
                    continue
                for value in map(innermost, self.evaluator.chain(function, function.file, chain, 0)):
                    if isinstance(value, FunctionValue) and value.of is not function:
                        how: Dispatch = "process" if runs else "callback"
                        yield Edge(function, value.of, call.line, how, 1, call)
                    elif (isinstance(value, Instance) and runs) or (
                        isinstance(value, Instance) and name == "" and self._runs_its_first(call, chains)
                    ):
                        yield from (
                            Edge(function, each, call.line, "callback", 1, call)
                            for each in self._targets(function, call, value)
                        )

    def _looks_at(self, of: Function, call: Call, number: int, keyword: str, depth: int = 0) -> bool:
        """Whether a function only looks at what a call gives it: it neither calls, keeps nor gives that back, and hands
        it only to what looks at it."""
        names = of.names
        name = keyword or (names[number] if number < len(names) else "")
        if depth > MOST_LOOKED or name not in names or name in of.locals:
            return False
        if of not in self._used:
            self._used[of] = _uses(of)
        kept, handed = self._used[of]
        if name in kept:
            return False
        for call, at, key in handed.get(name, ()):
            own = self._own(of, call)
            if not own or not all(self._looks_at(each, call, at, key, depth + 1) for each in own):
                return False
        return True

    def _own(self, function: Function, call: Call) -> list[Function]:
        """The Python functions of the code base that a call means; none where it may mean something else."""
        values = self.evaluator.values(function, call.callee)
        found = [value.of for value in values if isinstance(value, FunctionValue) and not value.of.native]
        return found if len(found) == len(values) else []

    def _runs_its_first(self, call: Call, chains: tuple[Chain, ...]) -> bool:
        """``run_in_threadpool(model, …)``: an object that is called elsewhere."""
        return (
            bool(call.args)
            and chains is call.args[0]
            and bool(re.search(r"(?i)run|thread|execut|call|spawn", call.name))
        )

    def _called_back(self) -> Iterator[Edge]:
        """What another package calls, of an object or class that it is given: public methods that nobody calls here,
        of a class that builds on one of its own. An object that runs what a class above it does is given so too."""
        for function in self.functions:
            led = {id(edge.call) for edge in self.edges[function]}
            for call in function.calls if not function.native else ():
                asks = hasattr(builtins, call.name) or call.name.startswith(("is_", "has_"))
                if id(call) in led or asks or call.name in COMMON or call.name in LEAVES:
                    continue
                values = map(innermost, self.evaluator.values(function, call.given))
                given = dict.fromkeys(each.of for each in values if isinstance(each, ClassValue | Instance))
                kinds = self.evaluator.values(function, call.callee) if given else ()
                made = [each.of for each in kinds if isinstance(each, ClassValue)]
                if made and not any(map(self.evaluator.beyond, made)):
                    # A record of the code base's own keeps what it is given, and calls nothing.
                    continue
                # The call itself leads to another package.
                call = replace(call)
                for of in given:
                    yield from (Edge(function, each, call.line, "callback", 1, call) for each in self._uncalled(of))
                owner = function.owner if call.callee[:1] and call.callee[0][0] == SUPER else None
                if owner is None or call.name not in RUNS:
                    continue
                forward = self.evaluator.method(owner, CALLED[0]) if call.name == CALLED[1] else None
                if forward is not None:
                    # A module of torch that is called runs its own forward.
                    yield Edge(function, forward, call.line, "inheritance", 1, call)
                else:
                    # The class above runs the modules that the object keeps.
                    for of in (owner, *self.evaluator.below(owner)):
                        for name in of.attributes:
                            for value in self.evaluator.attribute(Instance(of), name, 0):
                                run = self._run(value.of) if isinstance(value, Instance) else None
                                if run is not None and run is not function:
                                    yield Edge(function, run, call.line, "inheritance", 1, call)

    def _uncalled(self, of: Class) -> Iterator[Function]:
        if self.evaluator.beyond(of):
            for name, each in of.methods.items():
                if not name.startswith("_") and not each.decorators and each not in self.callers:
                    yield each

    # -- by name -------------------------------------------------------------------------------------------------------

    def _by_name(self, function: Function, call: Call) -> dict[Function, Dispatch]:
        """Where the object is not known: the methods of that name, if one class or one family of classes has them."""
        name = call.name
        chain = call.callee[0]
        if len(chain) < 2 or not isinstance(chain[-1], str) or not name:
            return {}
        values = self.evaluator.values(function, (chain[:-1],)) if len(chain) == 2 else ()
        kinds = [each.of for each in values if isinstance(each, ClassValue | Instance)]
        if any(self.evaluator.beyond(above) for of in kinds for above in self.evaluator.line(of)):
            # A variable's object of a known class gets what that lacks from the other package that it builds on.
            return {}
        receiver = next((part for part in reversed(chain[:-1]) if isinstance(part, str) and part.isidentifier()), "")
        if receiver in ("self", "cls", ""):
            return {}
        # What hands a call on to a part by the same name does not mean itself.
        found = [each for each in self.methods.get(name, ()) if not each.outer and each is not function]
        # Of remote objects that publish their methods with a prefix.
        found += self.methods.get(f"exposed_{name}", ())
        near = self._alike(receiver, found)
        is_common = name in COMMON or name.startswith("__")
        if is_common and len(words(receiver)) == 1:
            # A common name says something where one class of the same file has it.
            here = self._here(near, function.file)
            near = here if len(here) == 1 else []
        if near:
            return dict.fromkeys(self._ranked(near)[:4] or near[:1], "name")
        if is_common or not found:
            if name == "forward":
                why = "forward of an object that is not known here"
                self.lost.setdefault(function, []).append(Lost(call.line, call.written, why))
            return {}
        roots = {self._root(each.owner) for each in found if each.owner is not None}
        # A name of several words that few classes have is one interface.
        distinct = len(roots) == 1 or (len(words(name)) > 1 and len(found) <= MOST_ALIKE)
        if distinct and len(found) <= MOST_TARGETS and name not in VERBS:
            return dict.fromkeys(self._ranked(found)[:4] or found[:1], "name")
        if len(found) <= 40:
            classes = ", ".join(sorted({each.owner.name for each in found if each.owner is not None})[:4])
            self.lost.setdefault(function, []).append(Lost(call.line, call.written, f"{name} of {classes}"))
        return {}

    def _put(self, call: Call) -> dict[Function, Dispatch]:
        """Functions that some object is given as a method of its own under the name that an unknown object is asked."""
        chain = call.callee[0]
        if len(chain) < 2 or not isinstance(chain[-1], str) or call.name in COMMON:
            return {}
        given = [each.of for each in self.evaluator.put(call.name, 0) if isinstance(each, FunctionValue)]
        return dict.fromkeys(given, "attribute")

    @staticmethod
    def _alike(receiver: str, found: Iterable[Function]) -> list[Function]:
        """Those of the classes that share most words with the object's name, all of which the class has."""
        wanted = words(receiver)
        scored = [(len(wanted & words(each.owner.name)), each) for each in found if each.owner is not None]
        best = max((score for score, _ in scored), default=0)
        return [each for score, each in scored if score == best] if best and best >= len(wanted) else []

    def _module(self, function: Function, call: Call, values: Iterable[Value]) -> dict[Function, Dispatch]:
        """Of an unknown object that is called as a module: the module that has its name.

        It is of the same file or imported there; else it is the one that also shares most words with where the call
        stands.
        """
        known = [each for each in map(innermost, values) if isinstance(each, ClassValue | External)]
        # What makes an object of a class without a constructor calls nothing.
        if any(isinstance(each, ClassValue) or not each.dotted.startswith("typing.") for each in known):
            return {}
        chain = call.callee[0][:-1] if call.callee[0][-1] == CALLED[0] else call.callee[0]
        receiver = next((part for part in reversed(chain) if isinstance(part, str) and part.isidentifier()), "")
        wanted = _same(receiver) - {"self"}
        owner, evaluator = holder(function), self.evaluator
        modular = chain is not call.callee[0] or (owner is not None and self._run(owner) is not None)
        if not wanted or not modular or any(isinstance(part, Applied) for part in chain):
            return {}
        around = _same(owner.name if owner is not None else function.name)
        graph = self.graphs[function.file]
        near: dict[Function, int] = {}
        for name in (*graph.classes, *graph.imports):
            has = _same(name)
            if wanted <= has and (owner is None or name != owner.name):
                for value in evaluator.top(function.file, name, 0):
                    run = self._run(value.of) if isinstance(value, ClassValue) else None
                    if run is not None and run is not function:
                        near[run] = len(has & around)
        if not near and chain is not call.callee[0]:
            for run in self.methods.get(CALLED[0], ()):
                has = _same(run.owner.name) if run.owner is not None else frozenset()
                if wanted <= has and has & around - wanted and not run.abstract:
                    near[run] = len(has & around)
        best = max(near.values(), default=0)
        return dict.fromkeys(self._ranked(each for each, score in near.items() if score == best)[:MOST_ALIKE], "name")

    def _run(self, of: Class) -> Function | None:
        return next(filter(None, (self.evaluator.method(of, each) for each in CALLED)), None)

    def _named(self, function: Function, call: Call) -> dict[Function, Dispatch]:
        """Methods of a name that is sent to where an object has them: ``collective_rpc("execute_model")``."""
        if not call.text.isidentifier() or not SENT.search(call.name) or len(words(call.text)) < 2:
            return {}
        owner = holder(function)
        line = self.evaluator.line(owner) if owner is not None else []
        roots = set(line)
        found = [
            each
            for each in self.methods.get(call.text, ())
            if each.owner is not None and not roots & set(self.evaluator.line(each.owner)) and not each.abstract
        ]
        return dict.fromkeys(self._ranked(found)[:MOST_TARGETS], "getattr")

    def _root(self, of: Class) -> Class:
        return self.evaluator.line(of)[-1]

    def _bound(self, function: Function, chain: Chain, method: str) -> list[Function]:
        """C++ functions that are called by the names that they are bound to.

        A parameter is none of them, nor is a method that Python's classes have, but of a package that is imported.
        """
        name = chain[-1]
        given = len(chain) == 1 and name in function.params
        if given or (method in self.methods and chain[0] not in self.graphs[function.file].imports):
            return []
        if len(chain) == 1 and isinstance(name, str):
            for each in function.locals.get(name, ()) or (
                function.outer.locals.get(name, ()) if function.outer else ()
            ):
                if isinstance(each[-1], str):
                    name = each[-1]
        found = self.bound.get(name, []) if isinstance(name, str) else []
        if not found:
            return []
        around = words(function.qualname) | words(function.file.rpartition("/")[2])
        scored = [(len(words(each.name) & around) - 0.1 * len(words(each.name) - around), each) for each in found]
        best = max(score for score, _ in scored)
        return list(dict.fromkeys(each for score, each in scored if score == best))[:4]

    def _of_operator(self, values: Iterable[Value]) -> list[Function]:
        """Every implementation of an operator that is called by its full name: ``torch.ops.space.name(…)``."""
        found: dict[Function, None] = {}
        for value in values:
            _, ops, name = value.dotted.partition("torch.ops.") if isinstance(value, External) else ("", "", "")
            parts = name.split(".")[:2] if ops else []
            for key in (".".join(parts), f"*.{parts[-1]}") if parts else ():
                found.update(self.operators.get(key, {}))
        return list(found)

    def _of_library(self, call: Call) -> list[Function]:
        """The only C function of a name of several words that Python has not: of a library that ctypes loads."""
        found = self.native_plain.get(call.name, ())
        told = len(call.callee[0]) > 1 and len(words(call.name)) > 2 and call.name not in self.methods
        return list(found) if told and len(found) == 1 else []

    # -- C++ -----------------------------------------------------------------------------------------------------------

    def _native(self, function: Function) -> Iterator[Edge]:
        for call in function.calls:
            made = self._native_made(function, call)
            if made is not None:
                yield Edge(function, made, call.line, "constructor", 1, call)
                continue
            found = self._native_targets(function, call)
            # A virtual method has as many targets as classes that define it; of overloads the first few count.
            owners = {each.owner for each in found}
            most = MOST_OVERRIDES if len(owners) > 4 and None not in owners else 4
            for each in found[:most]:
                if each is not function:
                    how: Dispatch = "attribute" if len(call.callee[0]) > 1 else "direct"
                    yield Edge(function, each, call.line, how, min(len(found), most), call)

    def _native_made(self, function: Function, call: Call) -> Function | None:
        """The constructor of what ``new`` or ``make_unique`` makes; a class of the same class comes first."""
        if call.text != "new":
            return None
        name = call.callee[0][-1]
        owner = function.owner
        classes = self.evaluator.native_classes.get(name, [])
        if owner is not None and len(classes) > 1:
            classes = [each for each in classes if each.qualname == f"{owner.qualname}.{name}"] or classes
        return classes[0].methods.get(name) if classes and len(classes) <= 4 else None

    def _native_targets(self, function: Function, call: Call) -> list[Function]:
        *before, name = call.callee[0]
        named = self.natives.get(name)
        if named is None:
            return []
        evaluator = self.evaluator
        owner = function.owner
        if before and not before[0].endswith("::"):
            receiver = before[0]
            if receiver == "this" and owner is not None:
                return self._native_methods([owner], name)
            types = [chain[0] for chain in function.locals.get(receiver, ())]
            types += [chain[0] for chain in function.params.get(receiver, ())]
            for each in evaluator.line(owner) if owner is not None else ():
                types += [chain[0] for _, chain in each.attributes.get(receiver, ())]
            for kind in types:
                if kind in evaluator.native_classes:
                    found = self._native_methods(evaluator.native_classes[kind][:2], name)
                    if found:
                        return found
            owners = self.native_owners.get(name, {})
            methods = [each for found in owners.values() for each in found] if len(owners) <= MOST_OWNERS else []
            distinct = owners.keys()
            if len(distinct) == 1 and name not in COMMON:
                return methods
            near = [
                each for each in methods if words(receiver) and words(receiver) <= words(each.qualname.split(".")[-2])
            ]
            return near[:2]
        if before:
            scope = before[0][:-2]
            found = self.native_owners.get(name, {}).get(scope, [])
            if found:
                return found
        elif owner is not None:
            found = self._native_methods([owner], name)
            if found:
                return found
        plain = named if before or call.text == "<>" else self.native_plain.get(name, [])
        return self._nearest(plain, function.file) if len(plain) <= MOST_OF_NAME else self._here(plain, function.file)

    def _native_methods(self, classes: Iterable[Class], name: str) -> list[Function]:
        """Of a class and of those above it; where it is only declared there, of those below."""
        evaluator = self.evaluator
        owners = self.native_owners.get(name, {})
        for of in classes if owners else ():
            for each in evaluator.line(of):
                found = owners.get(each.name, [])
                if found:
                    return [one for one in found if one.owner is each] or found
            below = {each.name for each in evaluator.below(of)}
            found = [one for each in sorted(below & owners.keys()) for one in owners[each]]
            if found:
                return sorted(found, key=lambda one: (len(one.qualname), one.file, one.line))
        return []

    @staticmethod
    def _here(found: list[Function], file: str) -> list[Function]:
        """Of very many functions of one name only those of the same file are meant."""
        return [each for each in found if each.file == file]

    @staticmethod
    def _nearest(found: list[Function], file: str) -> list[Function]:
        """Of functions of one name: those of the same file, else of the nearest folder."""
        here = [each for each in found if each.file == file]
        if here or len(found) < 2:
            return here or found

        def shared(other: str) -> int:
            pairs = zip(other.split("/")[:-1], file.split("/")[:-1], strict=False)
            return next((at for at, (a, b) in enumerate(pairs) if a != b), 99)

        best = max(shared(each.file) for each in found)
        return [each for each in found if shared(each.file) == best]

    # -- channels ------------------------------------------------------------------------------------------------------

    def _channels(self) -> Iterator[Edge]:
        """What is written into a queue or socket here, and read from it there."""
        writers: dict[object, list[tuple[Function, Call]]] = {}
        readers: dict[object, list[Function]] = {}
        handed = self._handed_queues()
        for function in self.functions:
            if function.native:
                continue
            for call in function.calls:
                chain = call.callee[0] if call.callee else ()
                if len(chain) < 2 or (call.name not in SENDS and call.name not in TAKES):
                    continue
                named = handed.get(str(chain[-2]))
                for key in dict.fromkeys((*self._channel(function, chain), *([named] if named else ()))):
                    if call.name in SENDS:
                        writers.setdefault(key, []).append((function, call))
                    else:
                        readers.setdefault(key, []).append(function)
        for key, sent in writers.items():
            for function, call in sent:
                # What a function within another takes is work of that one too.
                every = [each for one in readers.get(key, ()) for each in (one, one.outermost)]
                for reader in dict.fromkeys(every):
                    if reader is not function and reader.name != function.name:
                        yield Edge(function, reader, call.line, "queue", len(readers[key]), call)

    def _handed_queues(self) -> dict[str, str]:
        """Names of queues that are handed to another process: name -> the first of all that one queue has there.

        ``kwargs={"input": to_model}`` gives the queue ``to_model`` a second name. Where one name stands for many
        queues, it says nothing.
        """
        made: dict[str, int] = {}
        pairs: list[tuple[str, str]] = []
        for function in self.functions:
            for name, chains in function.locals.items():
                for chain in chains:
                    if isinstance(chain[-1], Applied) and len(chain) > 1 and QUEUE.search(str(chain[-2])):
                        made[name] = made.get(name, 0) + 1
            for call in function.calls if not function.native else ():
                for keyword, given in (*(("", each) for each in call.args), *call.keywords):
                    for chain in given:
                        key = chain[-1][1:] if isinstance(chain[-1], str) and chain[-1][:1] == MANY else keyword
                        last = next(
                            (part for part in reversed(chain) if isinstance(part, str) and part.isidentifier()), ""
                        )
                        if key and last:
                            pairs.append((key, last))
        first = {name: name for name in made}
        for _ in range(MOST_HANDED):
            for key, last in pairs:
                if last in first and key.isidentifier():
                    first.setdefault(key, first[last])
        several: dict[str, set[str]] = {}
        for key, last in pairs:
            if last in first:
                several.setdefault(key, set()).add(first[last])
        return {name: of for name, of in first.items() if made[of] == 1 and len(several.get(name, ())) < 2}

    def _channel(self, function: Function, chain: Chain) -> Iterator[object]:
        """By the address that a socket is bound to, or by the queue that an object keeps."""
        owner = holder(function)
        # One of several queues counts as all of them; a variable stands for what it was given.
        *receiver, _ = [each for each in chain if not (isinstance(each, str) and each.startswith(ITEM[0]))]
        if len(receiver) == 1 and receiver[0] in function.locals:
            for each in function.locals[receiver[0]]:
                if each[0] == "self":
                    yield from self._channel(function, (*each, chain[-1]))
        name = receiver[1] if receiver[0] == "self" and len(receiver) == 2 else receiver[0]
        if len(receiver) > 2:
            for value in self.evaluator.values(function, (tuple(receiver[:-1]),)):
                kinds = self.evaluator.line(value.of) if isinstance(value, Instance) else []
                yield from ((of, receiver[-1]) for of in kinds if self._is_queue(of, receiver[-1]))
        if owner is None or not isinstance(name, str) or (len(receiver) > 1 and receiver[0] != "self"):
            return
        getter = self.evaluator.method(owner, name) if len(receiver) == 2 else None
        if getter is not None and ("property",) in getter.decorators:
            for returned in getter.returns:
                if returned[0] == "self" and len(returned) > 1:
                    yield from self._channel(getter, (*returned, chain[-1]))
        for of in self.evaluator.line(owner):
            if self._is_queue(of, name):
                yield of, name
            for method in of.methods.values():
                for call in method.calls:
                    target = call.callee[0] if call.callee else ()
                    if call.name in BINDS and len(target) > 1 and target[-2] == name and call.args:
                        for address in call.args[0]:
                            if isinstance(address[-1], str) and address[-1] not in ("self",):
                                yield address[-1]

    @staticmethod
    def _is_queue(owner: Class, name: str) -> bool:
        for _, chain in owner.attributes.get(name, ()):
            made = [part for part in chain if isinstance(part, str) and part[0] not in (MANY, ITEM[0])]
            if made and re.search(r"(?i)queue|deque", made[-1]):
                return True
        return False
