"""What a chain of names may stand for: modules, classes, objects, functions. Nothing is imported or run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from lmp.codebase.graph.records import (
    CLASS,
    ENTERED,
    IMPORTED,
    ITEM,
    MANY,
    SUPER,
    Applied,
    Call,
    Chain,
    Chains,
    Class,
    FileGraph,
    Function,
)
from lmp.codebase.modules import Modules, of_other_packages

DEEPEST = 9
"""Names that are followed from one expression."""
TOO_DEEP = -1
"""In the place of a name that cuts short what leads back to it: the limit of depth."""
MOST = 24
"""Values of one expression that are kept."""
MOST_MADE = 24
"""Constructor calls that tell what a parameter is."""
ANYTHING = frozenset(["typing", "collections", "typing_extensions", "types"])
"""Packages whose classes say of a parameter what it can do, and not what it is."""
PLAIN = frozenset(["ABC", "Generic", "Protocol", "object"])
MOST_PUT = 12
"""Places where an attribute is set on other objects that are looked at."""
MOST_UNASKED, MOST_NAMED = 12, 120
"""Calls by a function's name that are taken for calls of it; those of a registry that are asked
whether they are."""
MOST_SITES, MOST_BELOW = 60, 12
"""Calls of a constructor that are looked at; classes below one that is still told by its name."""
FLUENT = frozenset(
    (
        *("to", "cuda", "cpu", "eval", "half", "float", "bfloat16", "train", "requires_grad_", "compile"),
        *("type", "apply", "share_memory", "remote", "options"),
    )
)
"""Methods of torch's modules that return the module, and what makes an actor of Ray."""
REMOTE = frozenset(["remote", "options", "delay", "apply_async"])
"""By what a function, or the constructor of a class, is called elsewhere."""
TAKES_OUT = frozenset(["get", "pop", "popleft", "setdefault"])
"""Methods of collections that return an element."""
REGISTERS = "register"
"""How a method of a registry begins that is given what it keeps."""
MAPS = frozenset(["map", "imap", "imap_unordered", "starmap", "filter", "submit", "apply_async", "sort"])
"""What runs a function that it is given for each of many, and does not give it back."""
RUNS = frozenset(["checkpoint", "eval_shape", "filter_eval_shape"])
"""What runs a function that it is given, and gives back what that returns; ``jax.checkpoint`` wraps it."""
FOLDS = frozenset(["fold", "scan"])
"""Methods of haliax's stacks of modules that call one after another."""


@dataclass(frozen=True, slots=True)
class ModuleValue:
    file: str


@dataclass(frozen=True, slots=True)
class ClassValue:
    of: Class
    exact: bool = True
    """No class below is meant."""


@dataclass(frozen=True, slots=True)
class Instance:
    of: Class
    exact: bool = False
    """It is made in the code that is read, and no class below is meant."""


@dataclass(frozen=True, slots=True)
class ClassOf:
    """An annotation that says: the class itself, or one below."""

    of: Class


@dataclass(frozen=True, slots=True)
class FunctionValue:
    of: Function
    on: Class | None = None
    """Of a bound method, the class of its object."""
    exact: bool = True


@dataclass(frozen=True, slots=True)
class External:
    """A name of another package: ``torch.nn.functional.softmax``."""

    dotted: str


@dataclass(frozen=True, slots=True)
class Many:
    """A collection; with a place, a tuple or dictionary that has the value there."""

    of: Value
    place: str = ""


@dataclass(frozen=True, slots=True)
class Bag:
    """A record made on the spot: its fields, and the function that made it."""

    context: Function | None
    named: tuple[tuple[str, tuple[Chain, ...]], ...]


Value = Bag | ModuleValue | ClassValue | ClassOf | Instance | FunctionValue | External | Many
Values = tuple[Value, ...]


class Evaluator:
    def __init__(self, graphs: Mapping[str, FileGraph]) -> None:
        self.graphs = graphs
        imported = [(file, name.partition(".")[0]) for file, each in graphs.items() for name in each.imports.values()]
        self.modules = Modules(graphs, of_other_packages(imported))
        self.subclasses: dict[Class, list[Class]] = {}
        self._memo: dict[tuple[object, Chain], Values] = {}
        self._busy: dict[tuple[object, Chain], int] = {}
        self._kept: dict[tuple[object, Chain], tuple[int, frozenset[int], Values]] = {}
        self._until: dict[int, list[tuple[object, Chain]]] = {}
        self._lines: dict[Class, list[Class]] = {}
        self._sites: dict[str, list[tuple[Function, Call]]] = {}
        self._keywords: dict[tuple[str, str], list[tuple[Function, Call, Chains]]] = {}
        self._decorated: dict[str, list[tuple[Function | None, Chain, Value]]] = {}
        self._kept_as: dict[str, dict[str, None]] = {}
        self._registries: set[str] = set()
        self._registered: dict[tuple[str, str], list[tuple[Function | None, str, Chain]]] = {}
        self._cuts: set[int] = set()
        self._put: dict[str, list[tuple[Function, Chains, Chains]]] = {}
        for graph in graphs.values():
            for attribute, put in graph.put.items():
                self._put.setdefault(attribute, []).extend(put)
        for graph in graphs.values():
            for one in graph.functions if graph.body is None else ():
                # A method that is written outside of its class.
                parts = one.qualname.split(".")
                if one.owner is None and len(parts) > 1 and parts[-2] in self.native_classes:
                    around, classes = ".".join(parts[:-1]), self.native_classes[parts[-2]]
                    one.owner = next((each for each in classes if each.qualname == around), classes[0])
                    one.owner.methods.setdefault(one.name, one)
        self._fillers = {one for graph in graphs.values() for each in graph.filled.values() for one, _ in each}
        for graph in graphs.values():
            for each in graph.every_class:
                for base in self.bases(each):
                    self.subclasses.setdefault(base, []).append(each)
        kinds = {each.name for graph in graphs.values() for each in graph.every_class}
        for graph in graphs.values():
            for function in graph.functions:
                for call in function.calls:
                    if call.name == "partial" and call.args:
                        # It gives arguments to its first one.
                        call = replace(call, callee=call.args[0], args=call.args[1:])
                    if call.args or call.keywords:
                        # In a method of a class, ``cls(…)`` makes it.
                        made = function.owner if call.callee[:1] == (("cls",),) else None
                        name = made.name if made is not None else call.name
                        self._sites.setdefault(name, []).append((function, call))
                        for keyword, chains in call.keywords if name in kinds else ():
                            if chains:
                                self._keywords.setdefault((name, keyword), []).append((function, call, chains))
            decorated: list[tuple[Function | Class, Function | None, Value]] = [
                *((each, each.outer, FunctionValue(each)) for each in graph.functions),
                *((each, each.within, ClassValue(each)) for each in graph.every_class),
            ]
            for thing, scope, of in decorated:
                for chain in thing.decorators:
                    named = [part for part in chain if isinstance(part, str)]
                    self._decorated.setdefault(named[-1], []).append((scope or graph.body, chain, of))
                    if len(chain) > 1 and scope is None and isinstance(chain[1], str):
                        self._keep(graph.file, chain, [(graph.body, (thing.name,))])
            for function in graph.functions:
                for call in function.calls:
                    for chain in call.callee[:1] if call.name.startswith(REGISTERS) else ():
                        self._keep(graph.file, chain, [(function, each) for each in call.given])
        self._memo.clear()
        self._kept.clear()
        for graph in graphs.values():
            for held in graph.held:
                for value in self._name(held.function, graph.file, held.name, 0):
                    if isinstance(value, ClassValue):
                        kept = value.of.attributes.setdefault(held.attribute, [])
                        kept.extend((held.function, chain) for chain in held.chains)
                        if value.of.file == graph.file:
                            value.of.lines.setdefault(held.attribute, held.line)
        self._memo.clear()
        self._kept.clear()
        for graph in graphs.values():
            for each in graph.every_class:
                for name, given in each.attributes.items():
                    for _, chain in given:
                        if isinstance(chain[-1], str) and chain[-1] != name:
                            self._kept_as.setdefault(chain[-1], {})[name] = None

    def _keep(self, file: str, chain: Chain, given: Iterable[tuple[Function | None, Chain]]) -> None:
        """What a registry is given to keep: ``@MODELS.register("a")``, ``MODELS.register("b", function)``."""
        name = chain[0]
        if not str(chain[1:2] and chain[1]).startswith(REGISTERS):
            return
        self._registries.add(name)
        kept = [(function, file, each) for function, each in given]
        graph = self.graphs.get(file)
        while graph is not None and name not in graph.names:
            # It is imported from where it is made.
            where = self.modules.of_import(graph.imports[name], graph.file) if name in graph.imports else None
            graph = self.graphs[where[0]] if where is not None and where[0] != graph.file else None
            name = where[1] if where is not None else name
        if graph is not None:
            self._registered.setdefault((graph.file, name), []).extend(kept)

    def decorates(self, function: Function) -> bool:
        """Whether something has a decorator of this name."""
        return function.name in self._decorated

    # -- classes -------------------------------------------------------------------------------------------------------

    def bases(self, of: Class) -> list[Class]:
        found: list[Class] = []
        context = of.within or self.graphs[of.file].body
        for chain in of.bases:
            if of.native:
                found += [each for each in self.native_classes.get(chain[-1], ()) if each is not of][:1]
                continue
            found += [
                value.of
                for value in self._base(of, context, chain)
                if isinstance(value, ClassValue) and value.of is not of
            ]
        return found

    def _base(self, of: Class, context: Function | None, chain: Chain) -> Values:
        """A class that stands in another may build on a neighbour of it."""
        outer = of.outer
        while outer is not None:
            if chain[0] in outer.classes and outer.classes[chain[0]] is not of:
                found: Values = (ClassValue(outer.classes[chain[0]]),)
                for part in chain[1:]:
                    found = tuple(one for value in found for one in self.attribute(value, part, 0))
                return found
            outer = outer.outer
        return self.chain(context, of.file, chain, 0)

    @cached_property
    def native_classes(self) -> dict[str, list[Class]]:
        """By their names and by the names that are made for them (``using``, ``typedef``)."""
        found: dict[str, list[Class]] = {}
        for graph in self.graphs.values():
            for each in graph.every_class:
                if each.native:
                    found.setdefault(each.name, []).append(each)
        for graph in self.graphs.values():
            for name, chains in graph.names.items():
                if graph.body is None and name not in found:
                    found.setdefault(name, []).extend(found.get(chains[0][0], [])[:1])
        return {name: classes for name, classes in found.items() if classes}

    def line(self, of: Class) -> list[Class]:
        """The class and those above it, nearest first."""
        found = self._lines.get(of)
        if found is None:
            found, waiting = [], [of]
            while waiting and len(found) < 40:
                each = waiting.pop(0)
                if each not in found:
                    found.append(each)
                    waiting += self.bases(each)
            self._lines[of] = found
        return found

    def below(self, of: Class) -> Iterator[Class]:
        """Every class under a class."""
        seen: set[Class] = set()
        waiting = list(self.subclasses.get(of, ()))
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                yield each
                waiting += self.subclasses.get(each, ())

    def method(self, of: Class, name: str) -> Function | None:
        return next((each.methods[name] for each in self.line(of) if name in each.methods), None)

    def overrides(self, of: Class, name: str) -> list[Function]:
        """What classes below define under the name."""
        return [each.methods[name] for each in self.below(of) if name in each.methods]

    def beside(self, of: Class, name: str) -> list[Function]:
        """What classes below get under the name from another class that they build on: a part that is mixed in."""
        found = [self.method(each, name) for each in self.below(of) if len(each.bases) > 1]
        return list(dict.fromkeys(each for each in found if each is not None))

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def values(self, context: Function, chains: Iterable[Chain]) -> Values:
        found: dict[Value, None] = {}
        for chain in chains:
            found.update(dict.fromkeys(self.chain(context, context.file, chain, 0)))
        return tuple(found)

    def chain(self, context: Function | None, file: str, chain: Chain, depth: int) -> Values:
        """What a chain of names and calls may stand for.

        Names may lead in a circle. What was worked out inside of one lacks what the circle still gives: it is kept
        only until the names that cut it short are known themselves, and only for places as deep as its own.
        """
        key = (context or file, chain)
        known = self._memo.get(key)
        if known is not None:
            return known
        if key in self._busy or depth > DEEPEST:
            self._cuts.add(self._busy.get(key, TOO_DEEP))
            return ()
        kept = self._kept.get(key)
        if kept is not None and kept[0] <= depth:
            self._cuts |= kept[1]
            return kept[2]
        place = self._busy[key] = len(self._busy)
        around, self._cuts = self._cuts, set()
        try:
            found = self._chain(context, file, chain, depth)
        finally:
            del self._busy[key]
            cuts = self._cuts - {place}
            self._cuts = around
            self._cuts |= cuts
            for each in self._until.pop(place, ()):
                self._kept.pop(each, None)
        if not cuts or not place:
            self._memo[key] = found
        else:
            self._kept[key] = depth, frozenset(cuts), found
            self._until.setdefault(max(cuts), []).append(key)
        return found

    def scoped(self, owner: Class | None, context: Function | None, file: str, chain: Chain, depth: int) -> Values:
        """A chain that stands in the body of a class, where the names of that body count first."""
        outer: Class | None = owner
        while outer is not None:
            for each in self.line(outer):
                if chain[0] in each.classes:
                    found: Values = (ClassValue(each.classes[chain[0]]),)
                    for part in chain[1:]:
                        found = tuple(one for value in found for one in self._step(context, file, value, part, depth))
                    return found[:MOST]
            outer = outer.outer
        return self.chain(context, file, chain, depth)

    def _chain(self, context: Function | None, file: str, chain: Chain, depth: int) -> Values:
        if len(chain) == 1:
            return self._name(context, file, chain[0], depth)
        of, last = chain[:-1], chain[-1]
        deeper = isinstance(last, Applied) or last[:1] not in (MANY, ITEM[0])
        found: dict[Value, None] = {}
        for value in self.chain(context, file, of, depth + deeper):
            if isinstance(last, Applied) and chain[-2] in FLUENT and isinstance(value, Instance):
                found[value] = None
                continue
            found.update(dict.fromkeys(self._step(context, file, value, last, depth)))
            if len(found) > MOST:
                break
        registers = self._registered and isinstance(last, Applied)
        if registers and context is not None and all(isinstance(each, External) for each in found):
            # What is given a registry, and returns what reading does not tell, makes one of what that keeps.
            calls = [call for call in context.calls if of in call.callee]
            given = [each for call in calls for each in call.given if len(each) == 1 and each[0] in self._registries]
            kept = (value.of for value in self._all(context, given, depth) if isinstance(value, Many))
            found = {Instance(each.of, each.exact): None for each in kept if isinstance(each, ClassValue)} or found
        return tuple(found)[:MOST]

    def _step(self, context: Function | None, file: str, value: Value, last: object, depth: int) -> Values:
        if last == CLASS:
            return (ClassOf(value.of),) if isinstance(value, ClassValue) else ()
        if last == ENTERED:
            # A function that is made a context manager yields what it gives.
            on = value.of if isinstance(value, Instance) else None
            entries = [self.method(on, name) for name in ("__enter__", "__aenter__")] if on is not None else []
            entry = next(filter(None, entries), None)
            return self.returned(entry, depth, on) if entry is not None else (innermost(value),)
        if isinstance(last, str) and last[0] == MANY:
            return (Many(value, last[1:]),)
        if isinstance(last, str) and last[0] == "[":
            return self._item(value, last[1:-1], depth)
        if isinstance(last, Applied):
            return self._applied(context, file, value, last, depth)
        assert isinstance(last, str)
        return self.attribute(value, last, depth)

    def _item(self, value: Value, place: str, depth: int) -> Values:
        if isinstance(value, Many):
            return (value.of,) if not place or value.place in ("", place) else ()
        if isinstance(value, Instance):
            getter = self.method(value.of, "__getitem__") or self.method(value.of, "__iter__")
            if getter is not None:
                return self.returned(getter, depth)
            return ()
        # Of a tuple that a function returns; of a class with parameters in brackets.
        return (value,) if isinstance(value, ClassValue | FunctionValue) else ()

    def _applied(self, context: Function | None, file: str, value: Value, call: Applied, depth: int) -> Values:
        if isinstance(value, ClassValue):
            return (Instance(value.of, value.exact and call.made),)
        if isinstance(value, ClassOf):
            return (ClassValue(value.of, False),)
        if isinstance(value, FunctionValue):
            if call.first and _gives_back(value.of):
                # Each call gets back its own argument, and not what other calls give.
                given = self._all(context, call.first, depth)
                if any(isinstance(each, ClassValue) for each in given) and _makes_of_first(value.of):
                    given = tuple(Instance(one.of, one.exact) if isinstance(one, ClassValue) else one for one in given)
                return tuple(each for each in given if not isinstance(innermost(each), External)) or given
            return self._outer(value, self.returned(value.of, depth, value.on))
        if isinstance(value, Instance):
            called = self.method(value.of, "forward") or self.method(value.of, "__call__")
            return self.returned(called, depth) if called is not None else ()
        if isinstance(value, Many):
            # It was asked for an element: ``registry.get(name)``.
            return (value.of,)
        if isinstance(value, External):
            if call.named:
                return (Bag(context, call.named),)
            # A wrapper of another package (jit, compile, partial) gives back the function or object that it is given.
            found: dict[Value, None] = {}
            package, _, name = value.dotted.rpartition(".")
            for chain in call.first if name not in MAPS else ():
                for each in self.chain(context, file, chain, depth + 1):
                    if name in RUNS and package != "jax":
                        found.update(dict.fromkeys(self._applied(context, file, each, Applied(), depth + 1)))
                    elif isinstance(innermost(each), FunctionValue | Instance | ClassValue):
                        found[each] = None
            return tuple(found) or (External(value.dotted + "()"),)
        return ()

    def _outer(self, value: FunctionValue, found: Values) -> Values:
        """A class inside of another whose method calls what the object keeps, which reading does not tell: a config
        that makes the class around it. Found by a method of a class above, it makes the class around that."""
        on = value.on
        if on is None or on.outer is None:
            return found
        if not found:
            calls = any(
                len(each) == 3 and each[0] == "self" and isinstance(each[2], Applied) for each in value.of.returns
            )
            return (Instance(on.outer),) if calls else ()
        around = {each.outer for each in self.line(on) if each.outer is not None}
        above = set(self.line(on.outer))
        changed = (
            Instance(on.outer) if isinstance(each, Instance) and each.of in around and each.of in above else each
            for each in found
        )
        return tuple(dict.fromkeys(changed))

    def returned(self, of: Function, depth: int, on: Class | None = None) -> Values:
        """What a function returns: by its annotation, else by its returns."""
        if of.native:
            return ()
        found: dict[Value, None] = {}
        for chain in of.annotated:
            for value in self.scoped(of.owner, of.outer or self.graphs[of.file].body, of.file, chain, depth + 1):
                found.update(dict.fromkeys(_instances(value)))
        if self._wide(found):
            for chain in of.returns[-6:]:
                found.update(dict.fromkeys(self.chain(of, of.file, chain, depth + 1)))
            exact = {each: None for each in found if isinstance(innermost(each), Instance)}
            exact = {each: None for each in exact if not self._wide([each])}
            return tuple(exact or found)[:MOST]
        if not any(isinstance(innermost(each), Instance) for each in found):
            for chain in of.returns[-6:]:
                found.update(dict.fromkeys(self.chain(of, of.file, chain, depth + 1)))
        return tuple(found)[:MOST]

    def attribute(self, value: Value, name: str, depth: int) -> Values:
        if isinstance(value, ModuleValue):
            return self._of_module(value, name, depth)
        if isinstance(value, External):
            return (External(f"{value.dotted}.{name}"),)
        if isinstance(value, ClassValue | Instance):
            return self._member(value, name, depth)
        if isinstance(value, Bag) and value.context is not None:
            chains = next((chains for each, chains in value.named if each == name), ())
            return self._all(value.context, chains, depth)
        if isinstance(value, Many) and name in TAKES_OUT:
            return (value,)
        if isinstance(value, Many) and name in FOLDS:
            return (value.of,)
        if isinstance(value, FunctionValue) and name in REMOTE:
            return (value,)
        return ()

    def _of_module(self, value: ModuleValue, name: str, depth: int) -> Values:
        if not name.endswith("*"):
            return self.top(value.file, name, depth + 1)
        graph = self.graphs[value.file]
        begun = name[:-1]
        found: list[Value] = [FunctionValue(each) for one, each in graph.top.items() if one.startswith(begun)]
        found += [ClassValue(each) for one, each in graph.classes.items() if one.startswith(begun)]
        return tuple(found[:MOST])

    def _member(self, value: ClassValue | Instance, name: str, depth: int) -> Values:
        of = value.of
        exact = isinstance(value, Instance | ClassValue) and value.exact
        if name.endswith("*"):
            named = {method.name: method for each in self.line(of) for method in each.methods.values()}
            return tuple(FunctionValue(m, of, exact) for n, m in named.items() if n.startswith(name[:-1]))[:MOST]
        for each in self.line(of):
            if name in each.methods:
                method = each.methods[name]
                if _is_property(method):
                    return self.returned(method, depth, of)
                put = self._put_in_place(value, name, depth) if not exact or name in each.attributes else ()
                return (FunctionValue(method, of, exact), *put)
            if name in each.classes:
                return (ClassValue(each.classes[name]),)
        found: dict[Value, None] = {}
        related = [*self.line(of), *([] if exact else self.below(of))]
        for each in related[:60]:
            for function, chain in each.attributes.get(name, ()):
                if function is not None:
                    found.update(dict.fromkeys(self.chain(function, each.file, chain, depth + 1)))
                else:
                    context = each.within or self.graphs[each.file].body
                    found.update(dict.fromkeys(self.scoped(each, context, each.file, chain, depth + 1)))
            if found and each is not of and len(found) > MOST:
                break
        if not found and not exact:
            # What only classes below define, which a base calls or reads all the same.
            for method in self.overrides(of, name) or self.beside(of, name):
                given = (
                    self.returned(method, depth, of) if _is_property(method) else (FunctionValue(method, of, False),)
                )
                found.update(dict.fromkeys(given))
        if not found or any(isinstance(innermost(each), External) for each in found):
            found.update(dict.fromkeys(self._given(of, name, depth)))
        elif self._wide(found):
            given = self._given(of, name, depth)
            if any(isinstance(innermost(each), Instance) for each in given):
                # What is made here comes first; users may give any other.
                found = {**dict.fromkeys(given), **found}
        if not found:
            found.update(dict.fromkeys(self.put(name, depth, of)))
        if not found and name == "apply" and (run := self._applies(value)) is not None:
            return (FunctionValue(run, of),)
        if not found and isinstance(value, ClassValue) and name in REMOTE:
            return (value,)
        if not found and isinstance(value, Instance):
            if name in FLUENT:
                return (value,)
            if name == "__call__":
                return self._member(value, "forward", depth) if self.method(of, "forward") else ()
        return tuple(found)[:MOST]

    def put(self, name: str, depth: int, on: Class | None = None) -> Values:
        """What functions set an attribute to on objects of other classes: of this one, or of one that is not known."""
        found: dict[Value, None] = {}
        line = set(self.line(on)) if on is not None else set()
        for function, target, chains in self._put.get(name, ())[:MOST_PUT]:
            given = self._all(function, target, depth + 1)
            kinds = [each.of for each in map(innermost, given) if isinstance(each, Instance | ClassValue)]
            if (not kinds and name != "forward") or any(line & {*self.line(kind), *self.below(kind)} for kind in kinds):
                found.update(
                    (each, None) for each in self._all(function, chains, depth + 1) if not isinstance(each, External)
                )
        return tuple(found)[:MOST]

    def _applies(self, value: ClassValue | Instance) -> Function | None:
        """A function of autograd runs its ``forward``; a module of flax, which has none, what calling it runs."""
        forward = self.method(value.of, "forward")
        if isinstance(value, ClassValue):
            return forward
        return self.method(value.of, "__call__") if forward is None else None

    def _given(self, of: Class, name: str, depth: int) -> Values:
        """What the calls of a class's constructor give for a field of its body."""
        if not any(each.name == name for one in self.line(of) for each in one.fields):
            return ()
        found: dict[Value, None] = {}
        kinds = {of, *self.below(of)}
        names = sorted({each.name for each in kinds})
        sites = (site for each in names for site in self._keywords.get((each, name), ()))
        for site, call, given in islice(sites, MOST_SITES):
            made = self._all(site, call.callee, depth + 1)
            if any(isinstance(each, ClassValue) and each.of in kinds for each in made):
                found.update(dict.fromkeys(self._all(site, given, depth + 1)))
        return tuple(found)[:MOST]

    def _wide(self, found: Iterable[Value]) -> bool:
        """Whether all are objects of a protocol, or of a class with so many below that its name says little."""
        kinds = [innermost(each) for each in found]
        return bool(kinds) and all(
            isinstance(each, Instance)
            and not each.exact
            and (any("Protocol" in base for base in each.of.bases) or sum(1 for _ in self.below(each.of)) > MOST_BELOW)
            for each in kinds
        )

    def _put_in_place(self, value: ClassValue | Instance, name: str, depth: int) -> Values:
        """Functions that objects are given under the name of a method of theirs."""
        found: dict[Value, None] = {}
        for each in [*self.line(value.of), *self.below(value.of)][:60]:
            for function, chain in each.attributes.get(name, ()):
                if function is not None:
                    given = self.chain(function, each.file, chain, depth + 1)
                    found.update((one, None) for one in given if isinstance(one, FunctionValue))
        return tuple(found)[:MOST]

    # -- names ---------------------------------------------------------------------------------------------------------

    def _name(self, context: Function | None, file: str, name: object, depth: int) -> Values:
        if not isinstance(name, str):
            return ()
        if name.startswith(IMPORTED):
            module = name.removeprefix(IMPORTED)
            # Of another package, the part of the name that is known.
            files = self.modules.named(module, file)[:MOST]
            return tuple(map(ModuleValue, files)) or (External(module.partition("*")[0].strip(".")),)
        owner = holder(context)
        if name == SUPER and owner is not None:
            return tuple(Instance(each, True) for each in self.bases(owner))
        each: Function | None = context
        while each is not None and each.qualname:
            if name in ("self", "cls") and each.owner is not None and name in each.params and name not in each.names:
                return (Instance(each.owner),) if name == "self" else (ClassValue(each.owner, False),)
            if name in each.inner:
                return (FunctionValue(each.inner[name]),)
            if name in each.classes:
                return (ClassValue(each.classes[name]),)
            if name in each.imports:
                return self.imported(each.imports[name], file, depth)
            if name in each.locals:
                found = dict.fromkeys(self._all(each, each.locals[name], depth))
                if name in each.params and not any(isinstance(innermost(one), Instance) for one in found):
                    # What is assigned over a parameter, and is not known, was made from it: ``model = model.eval()``.
                    found.update(dict.fromkeys(self.parameter(each, name, depth)))
                return tuple(found)
            if name in each.params:
                return self.parameter(each, name, depth)
            each = each.outer
        if name == "self" and owner is not None:
            return (Instance(owner),)
        if owner is not None and name in owner.classes:
            return (ClassValue(owner.classes[name]),)
        return self.top(file, name, depth)

    def _all(self, context: Function | None, chains: Iterable[Chain], depth: int) -> Values:
        found: dict[Value, None] = {}
        for chain in dict.fromkeys(chains):
            if context is not None:
                found.update(dict.fromkeys(self.chain(context, context.file, chain, depth + 1)))
            if len(found) > MOST:
                break
        return tuple(found)[:MOST]

    def top(self, file: str, name: str, depth: int) -> Values:
        """A name of a module: what it defines, assigns or imports."""
        graph = self.graphs.get(file)
        if graph is None:
            return ()
        if depth > DEEPEST + 4:
            self._cuts.add(TOO_DEEP)
            return ()
        if name in graph.classes:
            return (ClassValue(graph.classes[name]),)
        if name in graph.top:
            return (FunctionValue(graph.top[name]),)
        if name in graph.names or name in graph.filled:
            found = self._all(graph.body, graph.names.get(name, ()), depth)
            for function, chain in graph.filled.get(name, ()):
                found = (*found, *self.chain(function, file, chain, depth + 1))
            for context, registered, chain in self._registered.get((file, name), ()):
                kept = self.chain(context, registered, chain, depth + 1)
                found = (*found, *(Many(each) for each in kept if isinstance(each, ClassValue | FunctionValue)))
            given = self.imported(graph.imports[name], file, depth) if name in graph.imports else ()
            if any(isinstance(each, ClassValue) for each in given) and name not in graph.names:
                # ``Jobs.add(job)`` on a class is a function of it, and fills no collection of this module.
                return given
            if found:
                return tuple(dict.fromkeys(found))[:MOST]
        if name in graph.imports:
            return self.imported(graph.imports[name], file, depth)
        for star in graph.stars:
            there = self.modules.file(star, file)
            if there is not None and there != file:
                found = self.top(there, name, depth + 1)
                if found:
                    return found
        submodule = f"{file.removesuffix('/__init__.py')}/{name}"
        if file.endswith("/__init__.py"):
            for each in (f"{submodule}.py", f"{submodule}/__init__.py"):
                if each in self.graphs:
                    return (ModuleValue(each),)
        return ()

    def imported(self, dotted: str, importing: str, depth: int) -> Values:
        where = self.modules.of_import(dotted, importing)
        if where is None or (where[0] == importing and not where[1]):
            return (External(dotted),)
        file, rest = where
        if not rest:
            # What a package itself gives under a name counts before its module of that name.
            package, _, name = dotted.rpartition(".")
            around = self.modules.file(package, importing) if package else None
            if around is not None and around not in (file, importing) and name in self.graphs[around].imports:
                given = self.top(around, name, depth + 1)
                if any(isinstance(each, ClassValue | FunctionValue) for each in given):
                    return given
        found: Values = (ModuleValue(file),)
        for part in rest.split(".") if rest else ():
            found = tuple(value for each in found for value in self.attribute(each, part, depth + 1))
        return found or ((External(dotted),) if not rest else ())

    # -- parameters ----------------------------------------------------------------------------------------------------

    def parameter(self, of: Function, name: str, depth: int) -> Values:
        """By its annotation, else by what the calls of the function give it."""
        found: dict[Value, None] = {}
        context = of.outer or self.graphs[of.file].body
        for chain in of.params[name]:
            for value in self.scoped(of.owner, context, of.file, chain, depth + 1):
                found.update(dict.fromkeys(_instances(value)))
        wide = self._wide(found)
        if (any(isinstance(innermost(each), Instance) for each in found) and not wide) or of.native:
            return tuple(found)
        typed = tuple(found)
        if wide:
            found = {}
        found.update(dict.fromkeys(self._decorates(of, name)))
        if depth < 6:
            for site, call in self._calls_of(of, name):
                for chain in argument(of, name, call):
                    given = self.chain(site, site.file, chain, depth + 2)
                    found.update((each, None) for each in given if not isinstance(each, External))
                if len(found) > MOST:
                    break
        else:
            # What is not known here may be known where fewer names lead there.
            self._cuts.add(TOO_DEEP)
        foreign = [
            each for each in typed if isinstance(each, External) and each.dotted.partition(".")[0] not in ANYTHING
        ]
        if foreign and len(foreign) == len(typed):
            found = {each: None for each in found if not isinstance(each, Instance) or self._builds_on_others(each.of)}
        for chain in of.defaults.get(name, ()):
            given = self.chain(context, of.file, chain, depth + 2)
            found.update((each, None) for each in given if isinstance(each, ClassValue | FunctionValue | Instance))
        if wide and not any(isinstance(innermost(each), Instance | FunctionValue) for each in found):
            return typed
        return tuple(found)

    def beyond(self, of: Class) -> bool:
        """Whether a class builds on one of another package."""
        return len(self.bases(of)) < len(of.bases)

    def _builds_on_others(self, of: Class) -> bool:
        """Whether a class builds on one of another package: else no object of it is one of that package's."""
        bases = [chain[-1] for each in filter(self.beyond, self.line(of)) for chain in each.bases]
        return any(name not in PLAIN for name in bases)

    def _decorates(self, of: Function, name: str) -> Iterator[Value]:
        """What a decorator, or the function that it returns, is given by what it stands above.

        One that calls what it is given wraps it, and is no way to reach it.
        """
        maker = of.outer if of.nested else of
        positions = [each for each in of.params if each not in ("self", "cls")]
        if maker is None or positions[:1] != [name] or maker.name not in self._decorated:
            return
        if any(call.callee[:1] == ((name,),) for each in (of, *of.inner.values()) for call in each.calls):
            return
        for context, chain, thing in self._decorated[maker.name]:
            called = isinstance(chain[-1], Applied)
            if called == of.nested and context is not None:
                makes = self.chain(context, context.file, chain[:-1] if called else chain, 0)
                if any(isinstance(each, FunctionValue) and each.of is maker for each in makes):
                    yield thing

    def _calls_of(self, of: Function, name: str) -> Iterator[tuple[Function, Call]]:
        """Calls by the function's name; of a constructor by its class and by those below that inherit it."""
        names = [of.name]
        if of.name == "__init__" and of.owner is not None:
            every = list(self.below(of.owner))
            names = [of.owner.name, *[each.name for each in every if "__init__" not in each.methods][:8]]
            for each in every[:MOST_BELOW] if name not in of.defaults else ():
                # What a class below hands on to the constructor above it, where that has nothing of its own.
                site = each.methods.get("__init__")
                if site is not None and any(self.method(base, "__init__") is of for base in self.bases(each)):
                    yield from ((site, call) for call in site.calls if call.callee[:1] == ((SUPER, "__init__"),))
        elif of.name in ("forward", "__call__"):
            return
        for called in names:
            sites = self._sites.get(called, [])
            if of.name != "__init__" and len(sites) > MOST_UNASKED:
                # A class's name says which class is made; a function's, where many call it so, does not.
                asked = sites[:MOST_NAMED] if of in self._fillers else ()
                sites = [each for each in asked if self._leads_to(*each, of)]
            yield from sites[:MOST_MADE]
        # A function that an object keeps is called by the name of the field.
        for called in self._kept_as.get(of.name, ()) if of.owner is None else ():
            kept = self._sites.get(called, ())[:MOST_UNASKED]
            yield from (each for each in kept if self._leads_to(*each, of))

    def _leads_to(self, site: Function, call: Call, of: Function) -> bool:
        found = self._all(site, call.callee, 0)
        return any(isinstance(each, FunctionValue) and each.of is of for each in found)


def argument(of: Function, name: str, call: Call) -> tuple[Chain, ...]:
    """What a call gives for a parameter."""
    for keyword, chains in call.keywords:
        if keyword == name:
            return chains
    positions = of.names
    at = positions.index(name) if name in positions else len(call.args)
    return call.args[at] if at < len(call.args) else ()


def _is_property(of: Function) -> bool:
    return any(chain[-1] in ("property", "cached_property") for chain in of.decorators)


def _gives_back(of: Function) -> bool:
    """Whether a function returns its first argument, as what moves, wraps or sets up an object does."""
    return (_first(of),) in of.returns


def _makes_of_first(of: Function) -> bool:
    """Whether it also returns what a call of its first argument gives, as a factory that is given a class does."""
    names = [_first(of), *(name for name, chains in of.locals.items() if (_first(of),) in chains)]
    return any(len(each) == 2 and each[0] in names and isinstance(each[1], Applied) for each in of.returns)


def _first(of: Function) -> str:
    return next((each for each in of.params if each not in ("self", "cls")), "")


def holder(context: Function | None) -> Class | None:
    """The class of the method that this is or stands in."""
    while context is not None:
        if context.owner is not None:
            return context.owner
        context = context.outer
    return None


def _instances(value: Value) -> Iterator[Value]:
    """What an annotation's value says of what is annotated."""
    match value:
        case ClassValue(of):
            yield Instance(of)
        case ClassOf(of):
            yield ClassValue(of, False)
        case Many(of, place):
            yield from (Many(each, place) for each in _instances(of))
        case External():
            yield External(value.dotted + "()")


def innermost(value: Value) -> Value:
    while isinstance(value, Many):
        value = value.of
    return value
