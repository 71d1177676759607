"""A code base as its parts see it: facts, call graph, which code is its own, and what each function reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lmp.codebase.facts import Place, RepoFacts
from lmp.codebase.graph.graph import CallGraph, Edge
from lmp.codebase.graph.records import Applied, Call, Class, Function
from lmp.codebase.graph.values import External
from lmp.codebase.roles import operators
from lmp.codebase.roles.words import says, split

TEST = re.compile(r"test(?:_|\d|$)|torch_ref|ref_|reference_")
"""Functions that try others, in the same file."""
ATTENDS = frozenset(["attention", "attn", "fattn", "fmha", "sdpa", "mha"])
SETS = frozenset(
    (
        *("init", "new", "make", "create", "free", "clone", "reset", "get", "set", "print", "type", "name", "params"),
        *("input", "inp", "mask", "index", "support", "supported", "release", "load", "select", "can", "size", "extra"),
    )
)
"""Words of functions that make, set or tell something, and compute nothing."""
MODEL, CALLED = "model", ("forward", "__call__")
MODELS = frozenset(["model", "transformer", "lm", "gpt", "llama"])
PARTS = frozenset(["layer", "block", "attention", "attn", "mlp", "head", "vision", "audio", "encoder"])
"""Words of the outermost module of a language model, and of its parts."""

SHELF = 6
"""Files with a module of attention each that make a folder one of models which stand in for one another."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that plays a part."""

    section: str
    role: str
    symbol: str
    place: Place
    why: str = ""
    rank: int = 0
    """What is named first: the lower, the more certain."""


class Reading:
    def __init__(self, facts: RepoFacts) -> None:
        self.facts = facts
        self.roles = {file.file: file.role for file in facts.files}
        self.graph = CallGraph(facts.graphs)
        self.link_models()

    # -- whose code ----------------------------------------------------------------------------------------------------

    @cached_property
    def own_trees(self) -> set[str]:
        """Vendored folders that the code base's own code calls into: they are what it runs."""
        found: set[str] = set()
        for function, edges in self.graph.edges.items():
            if self.roles.get(function.file) == "source":
                for edge in edges:
                    if self.roles.get(edge.callee.file) == "vendored" and edge.how in ("getattr", "registry"):
                        found.add(_tree(edge.callee.file))
        return found

    def is_own(self, file: str) -> bool:
        role = self.roles.get(file)
        return role == "source" or (role == "vendored" and _tree(file) in self.own_trees and not _aside(file))

    @cached_property
    def shelves(self) -> set[str]:
        """Folders of models that stand in for one another: many files with a module of attention each."""
        files: dict[str, set[str]] = {}
        for of in self.classes:
            if not of.native and says(of.name, "attention"):
                files.setdefault(of.file.rpartition("/")[0], set()).add(of.file)
        return {folder for folder, inside in files.items() if len(inside) >= SHELF}

    def is_beside(self, file: str) -> bool:
        """Whether a file lies beside the run of a model: tools, trials, one of many models."""
        folder, _, name = file.rpartition("/")
        shelved = folder in self.shelves and not says(name, "reference_model")
        return shelved or says(file, "beside")

    @cached_property
    def functions(self) -> list[Function]:
        return [
            each
            for each in self.graph.functions
            if each.qualname and self.is_own(each.file) and not TEST.match(each.name)
        ]

    @cached_property
    def classes(self) -> list[Class]:
        return [each for each in self.graph.classes if self.is_own(each.file)]

    # -- what a function does ------------------------------------------------------------------------------------------

    def dotted(self, function: Function, call: Call) -> str:
        """The name of what is called in another package; of an object's method its name alone."""
        for value in self.graph.evaluator.values(function, call.callee):
            if isinstance(value, External):
                return value.dotted
        return call.name

    @cached_property
    def attends(self) -> dict[Function, str]:
        """Functions that compute attention themselves: through another package, or as products around a softmax."""
        found: dict[Function, str] = {}
        for function in self.functions:
            if function.native:
                continue
            names: set[str] = set()
            for call in function.calls:
                names.add(call.name)
                if not self._inside(function, call) and operators.ATTENTION.search(self.dotted(function, call)):
                    found.setdefault(function, self.dotted(function, call))
            products = sum(call.name in operators.MATMULS for call in function.calls) + function.numeric
            if names & operators.SOFTMAX and products >= 2:
                found.setdefault(function, "products around a softmax")
        return found

    def _inside(self, function: Function, call: Call) -> bool:
        return any(edge.call is call for edge in self.graph.edges[function])

    @cached_property
    def samples(self) -> dict[Function, str]:
        """Functions that draw a token from logits themselves."""
        found: dict[Function, str] = {}
        for function in self.functions:
            if function.native or says(function.qualname, "not_sampling"):
                continue
            names = {call.name for call in function.calls}
            about = {word for each in function.reads | set(function.params) for word in split(each)}
            drawn = names & operators.DRAWS
            chosen = names & operators.SAMPLES
            routes = about & {"router", "expert", "experts", "moe"}
            read = bool(about & {"logit", "logits"})
            if (drawn and (read or about & {"prob", "probs"})) or (chosen and read and not routes):
                found[function] = ", ".join(sorted(drawn or chosen))
        return found

    @cached_property
    def running(self) -> set[Function]:
        """Functions from which a call leads to attention, sampling, or a kernel of one of them."""
        return self.reaching([*self.attends, *self.samples, *self.starts_attention])

    @cached_property
    def attending(self) -> set[Function]:
        """Functions from which a call leads to attention."""
        return self.reaching([*self.attends, *self.starts_attention])

    @cached_property
    def starts_attention(self) -> set[Function]:
        """Functions that start a kernel of attention, and such kernels of C++."""
        kernels = {
            (each.place.file, each.place.line)
            for each in self.facts.kernels
            if says(each.name, "attention") or says(each.place.file.rpartition("/")[2], "attention")
        }
        starts = {
            (each.place.file, each.inside)
            for each in self.facts.launches
            if each.of is not None and (each.of.file, each.of.line) in kernels
        }
        return {
            each
            for each in self.functions
            if (each.file, each.qualname) in starts or (each.native and (each.file, each.line) in kernels)
        }

    @cached_property
    def native_attends(self) -> set[Function]:
        """Functions of C++ that compute attention, or build its part of a graph, by their names and calls."""
        return {each for each in self.functions if each.native and split(each.name) & ATTENDS and works(each)}

    @cached_property
    def native_samples(self) -> set[Function]:
        """Functions of C++ that draw a token, by their names and calls."""
        return {
            each
            for each in self.functions
            if each.native
            and split(each.name) & {"sample", "sampling"}
            and works(each)
            and not says(each.qualname, "not_sampling")
        }

    @cached_property
    def kernels(self) -> set[tuple[str, int]]:
        """Places of kernels, which are no functions of a run themselves."""
        return {(each.place.file, each.place.line) for each in self.facts.kernels}

    @cached_property
    def inner_kernels(self) -> set[tuple[str, int]]:
        """Kernels that only other kernels call: parts of them, which nothing starts."""
        started = {(each.of.file, each.of.line) for each in self.facts.launches if each.of is not None}
        return {
            each.key
            for each, edges in self.graph.callers.items()
            if not each.native
            and each.key in self.kernels - started
            and edges
            and all(edge.caller.key in self.kernels for edge in edges)
        }

    @cached_property
    def launching(self) -> set[tuple[str, str]]:
        """File and name of the functions that start a kernel."""
        return {(each.place.file, each.inside) for each in self.facts.launches}

    @cached_property
    def runs_model(self) -> set[Function]:
        """Functions that get logits from a call: that is what a language model returns."""
        return {
            each
            for each in self.functions
            if not each.native
            and each.key not in self.kernels
            and any(
                "logits" in split(name) and any(isinstance(chain[-1], Applied) for chain in chains)
                for name, chains in each.locals.items()
            )
        }

    def link_models(self) -> None:
        """Lets calls of what is named ``model``, and is not known, lead to the outermost modules that attend."""
        named = [
            (function, call)
            for function in self.functions
            if not function.native
            for call in function.calls
            if call.name == MODEL
        ]
        attending = self.reaching(self.attends) if named else set()
        unknown = [
            (function, call)
            for function, call in named
            if not any(edge.call is call and edge.callee in attending for edge in self.graph.edges[function])
        ]
        models = self._outermost(attending) if unknown else []
        for function, call in unknown:
            for model in models:
                if model is not function:
                    edge = Edge(function, model, call.line, "name", len(models), call)
                    self.graph.edges[function].append(edge)
                    self.graph.callers.setdefault(model, []).append(edge)

    def _outermost(self, attending: set[Function]) -> list[Function]:
        """How the model is called: of modules that attend and are named as models the one that most others call."""
        runs = [each for each in attending if each.name in CALLED and each.owner is not None and self.is_own(each.file)]

        def called(each: Function) -> int:
            return len({edge.caller for edge in self.graph.callers.get(each, ())})

        found = [each for each in runs if each.owner is not None and _is_model(each.owner.name)]
        return sorted(found, key=lambda each: (-called(each), len(each.qualname), each.file, each.line))[:1]

    def reaching(self, leaves: Iterable[Function]) -> set[Function]:
        """Every function from which a call leads to one of these, these included."""
        found = set(leaves)
        waiting = list(found)
        while waiting:
            for edge in self.graph.callers.get(waiting.pop(), ()):
                if edge.caller not in found:
                    found.add(edge.caller)
                    waiting.append(edge.caller)
        return found

    def reached(self, start: Function, follow: Callable[[Edge], bool], deepest: int = 30) -> Iterator[Edge]:
        """Edges below a function, nearest first."""
        seen = {start}
        waiting = [(start, 0)]
        while waiting:
            function, depth = waiting.pop(0)
            for edge in self.graph.edges.get(function, ()):
                if not follow(edge):
                    continue
                yield edge
                if edge.callee not in seen and depth < deepest:
                    seen.add(edge.callee)
                    waiting.append((edge.callee, depth + 1))


def _is_model(name: str) -> bool:
    return bool(split(name) & MODELS) and not split(name) & PARTS


def works(function: Function) -> bool:
    """Whether a function computes: it is no getter, and it makes or sets nothing."""
    return (len(function.calls) > 2 or not function.native) and not split(function.name) & SETS


def _tree(file: str) -> str:
    """``vendor/llama`` of a file below it."""
    return "/".join(file.split("/")[:2])


def _aside(file: str) -> bool:
    return not {"tests", "test", "docs", "scripts", "ci"}.isdisjoint(file.split("/"))


def place(of: Function | Class) -> Place:
    return Place(of.file, of.line)
