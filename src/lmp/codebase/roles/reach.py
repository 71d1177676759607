"""A code base as its parts see it: facts, call graph, which code is its own, and what each function reaches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lmp.codebase.facts import Place, RepoFacts
from lmp.codebase.graph.graph import CALLED, CallGraph, Dispatch, Edge
from lmp.codebase.graph.records import ITEM, SUPER, Applied, Call, Chain, Class, Function
from lmp.codebase.graph.values import ClassValue, External, FunctionValue
from lmp.codebase.reading import no_cycles_looked_for
from lmp.codebase.roles import operators
from lmp.codebase.roles.words import rank, says, split, vocabulary

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
MODEL = "model"
MODELS = frozenset(["model", "transformer", "lm", "gpt", "llama", "decoder"])
PARTS = frozenset(
    ["layer", "block", "attention", "attn", "mlp", "head", "vision", "audio", "encoder", "time", "series", "speech"]
)
"""Words of the outermost module of a language model, and of its parts."""
CACHED = frozenset(["cache", "kv", "past"])
"""Words of what holds keys and values from step to step."""
CONVENTION = frozenset(["for", "causal", "conditional", "generation", "head"])
"""Words that the outermost module has by convention: ``ForCausalLM``."""
ASIDE = re.compile(
    r"(?i)(?:^|(?<=[/_. ]))(?:tests?|mocks?|visual\w*|vision\w*|audio\w*|images?|multimodal|bench\w*|eval\w*"
    r"|profil\w*|warm\w*|debug\w*|experiment(?:s|al)?|export\w*|aot|compile|proxy|health\w*|calibrat\w*"
    r"|tun(?:e|ing)\w*|spec|spec_decode|speculat\w*|draft\w*|distill\w*|dummy\w*|capture\w*|micro\w*)"
    r"(?=[/_. ]|$)"
)
"""What no run of a user passes."""

QKV = re.compile(r"x?([qkv])s?(?:_states|_[A-Z]+)?$|(quer|key|value)(?:y|s|ies)?(?:_states|_layer|_[A-Z]+)?$")
QKV_OF = re.compile(r"x?([qkv])s?(?:_\w+)?$|(quer|key|value)(?:y|s|ies)?(?:_\w+)?$")
"""What queries, keys and values are called, and what is made of them."""
PRODUCTS = "products around a softmax"
"""Why a function attends that writes attention out."""
KEEPS_OPERANDS = "keeps queries, keys and values for its gradient"
"""Why an operator that torch differentiates attends, where its own code does the rest."""
EXPERTS = frozenset(["router", "expert", "experts", "moe"])
"""What is read where a softmax weighs experts, and no keys."""
MOST_KNOWN = 8
"""Functions that one call may lead to; where there are more, its target is as good as lost."""
MOST_WRAPPED = 5
"""How much more often a model is made than a module around it that is only one use of it."""
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
    lines: tuple[tuple[int, str], ...] = ()
    """Where in it that is done, each with the name that stands there."""
    chance: float | None = None
    """How likely it plays the part by its witnesses; None where a reader says so, or nothing was weighed."""

    @property
    def key(self) -> tuple[str, int]:
        return self.place.file, self.place.line


class Reading:
    @no_cycles_looked_for()
    def __init__(self, facts: RepoFacts) -> None:
        self.facts = facts
        self.roles = {file.file: file.role for file in facts.files}
        self.graph = CallGraph(facts.graphs)
        self.link_models()
        self.link_replaced()
        self.link_routes()

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
    def _named_calls(self) -> frozenset[str]:
        graphs = self.facts.graphs.values()
        called = {call.name for graph in graphs for each in graph.functions for call in each.calls}
        return frozenset(called | {target for graph in graphs for target, _ in graph.bindings.values()})

    def is_dead(self, function: Function) -> bool:
        """A function of C++ that no call and no binding names: what it checks nobody meets."""
        return function.native and function.owner is None and function.name not in self._named_calls

    @cached_property
    def replaced(self) -> frozenset[str]:
        """Files of Python that no other file imports and nobody runs, with the classes of a file that is imported.

        They are what stood there before, or was written for another framework. Most names of classes have to be there.
        """
        graphs = {file: graph for file, graph in self.facts.graphs.items() if file.endswith(".py")}
        modules = self.graph.evaluator.modules
        taken = {each.place.file for each in self.facts.entries} | {
            file for file, graph in graphs.items() if graph.main
        }
        for file, graph in graphs.items():
            names = {*graph.imports.values(), *graph.stars}
            names.update(name for function in graph.functions for name in function.imports.values())
            found = (modules.of_import(each, file) for each in names)
            taken.update(where[0] for where in found if where is not None and where[0] != file)
        kept = {name for file in taken if file in graphs for name in graphs[file].classes}
        return frozenset(
            file
            for file, graph in graphs.items()
            if file not in taken and graph.classes and 2 * len(kept & graph.classes.keys()) > len(graph.classes)
        )

    @cached_property
    def shelves(self) -> set[str]:
        """Folders of models that stand in for one another: many files with a module of attention each."""
        files: dict[str, set[str]] = {}
        for of in self.classes:
            if not of.native and says(of.name, "attention"):
                files.setdefault(of.file.rpartition("/")[0], set()).add(of.file)
        return {folder for folder, inside in files.items() if len(inside) >= SHELF}

    @cached_property
    def subject(self) -> frozenset[str]:
        """Words that most functions have in the path of their file: what a code base is about is not beside its run."""
        files = Counter(each.file for each in self.functions)
        found: Counter[str] = Counter()
        for file, functions in files.items():
            found.update(dict.fromkeys(split(file), functions))
        return frozenset(word for word, functions in found.items() if 2 * functions > files.total())

    def is_aside(self, of: Function | Class) -> bool:
        """Whether its file, its class or its name says that no run of a user passes it."""
        return self.says_aside(f"{of.file} {of.qualname}")

    def says_aside(self, name: str) -> bool:
        return any(self.subject.isdisjoint(split(each.group())) for each in ASIDE.finditer(name))

    def is_beside(self, file: str) -> bool:
        """Whether a file lies beside the run of a model: tools, trials, one of many models."""
        folder, _, name = file.rpartition("/")
        shelved = folder in self.shelves and not says(name, "reference_model")
        said = split(file) - self.subject
        return shelved or any(words <= said for words in vocabulary()["beside"])

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
            for call in function.calls:
                if self.is_inside(function, call):
                    continue
                dotted = self.dotted(function, call)
                if operators.ATTENTION.search(dotted) or _takes_all(function, call):
                    keeps = call.name == "save_for_backward"
                    found.setdefault(function, KEEPS_OPERANDS if keeps else dotted or call.written)
            if split(function.name) & ATTENDS and works(function) and _is_qkv(function):
                found.setdefault(function, "is given queries, keys and values")
            products = sum(call.name in operators.MATMULS for call in function.calls) + function.numeric
            names = {call.name for call in function.calls}
            # One block after the other the softmax is written out, with the largest value so far.
            weighs = "softmax" in names or ("exp" in names and names & {"max", "amax", "maximum"})
            if products >= 2 and weighs and not any(split(each) & EXPERTS for each in function.reads):
                found.setdefault(function, PRODUCTS)
        return found

    def is_inside(self, function: Function, call: Call) -> bool:
        """Whether a call leads to the code base's own code, or makes an object of it. Where it may be anything, reading
        does not tell."""
        of = self.graph.evaluator.values(function, call.callee) if call.name[:1].isupper() else ()
        made = any(isinstance(each, ClassValue) for each in of)
        return made or any(edge.call is call and edge.of < MOST_KNOWN for edge in self.graph.edges[function])

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
            routes = about & EXPERTS
            read = bool(about & {"logit", "logits"})
            if (drawn and (read or about & {"prob", "probs"})) or (chosen and read and not routes):
                found[function] = ", ".join(sorted(drawn or chosen))
        return found

    @cached_property
    def draws_in_loop(self) -> set[Function]:
        """Functions whose own loop calls a model, or the object itself, and draws a token."""

        def runs(call: Call) -> bool:
            return call.loop > 0 and (_calls_model(call) or ("self",) in call.callee)

        return {each for each in self._drawing_in_loop if any(map(runs, each.calls))}

    @cached_property
    def repeats_foreign(self) -> set[Function]:
        """Functions whose own loop calls an object of another package's class that is named as a model, and draws."""

        def runs(function: Function, call: Call) -> bool:
            values = self.graph.evaluator.values(function, call.callee) if call.loop else ()
            objects = (each for each in values if isinstance(each, External) and each.dotted.endswith("()"))
            return any(bool(split(each.dotted) & MODELS) for each in objects)

        return {each for each in self._drawing_in_loop if any(runs(each, call) for call in each.calls)}

    @cached_property
    def _drawing_in_loop(self) -> list[Function]:
        own = [each for each in self.samples if each in self.runs_model]
        return [each for each in own if any(call.loop and call.name in operators.SAMPLES for call in each.calls)]

    @cached_property
    def trains(self) -> list[Function]:
        """Functions that take a gradient themselves, or apply it. A function of the name ``backward`` is no tensor's
        method."""

        def takes(call: Call) -> bool:
            return call.name in operators.TRAINS and (call.name != "backward" or "." in call.written)

        return [each for each in self.functions if any(map(takes, each.calls))]

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
        named = {each for each in self.functions if each.native and split(each.name) & ATTENDS and works(each)}
        return named | self.native_products

    @cached_property
    def native_products(self) -> set[Function]:
        """Functions of C++ that build products around a softmax into a graph, among all else of a layer."""
        found: set[Function] = set()
        for function in self.functions:
            called = [split(call.name) for call in function.calls] if function.native else []
            products = sum(("mul" in each and "mat" in each) or "matmul" in each for each in called)
            if products >= 2 and any({"soft", "max"} <= each or "softmax" in each for each in called):
                found.add(function)
        return found

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
        others = self.kernels - started
        return {
            each.key
            for each, edges in self.graph.callers.items()
            if not each.native
            and each.key in others
            and edges
            and all(edge.caller.key in self.kernels for edge in edges)
        }

    @cached_property
    def runs_model(self) -> set[Function]:
        """Functions that get logits from a call, or as a field of what it returns: that a language model gives back."""
        return {
            each
            for each in self.functions
            if not each.native
            and each.key not in self.kernels
            and any(
                ("logits" in split(name) and _gives(chain)) or _has_logits(chain, each)
                for name, chains in (*each.locals.items(), ("", each.returns))
                for chain in chains
            )
        }

    @property
    def model(self) -> Function | None:
        """How the model is called."""
        return self.ran[0] if self.ran[1] else None

    @cached_property
    def ran(self) -> tuple[Function | None, bool]:
        """Of the outermost modules that attend, how the one of reference is called, else the one that most others build
        on, and whether it is named as a model. Where none is, its outermost part is what is run."""
        evaluator = self.graph.evaluator
        attending = self.reaching(self.attends)
        found: dict[Function, tuple[object, ...]] = {}
        for of in self.classes:
            named = split(of.name)
            part = not named & MODELS or (named & PARTS and not named >= {"lm", "head"})
            if of.native or self.is_aside(of):
                continue
            run = next(filter(None, (evaluator.method(of, each) for each in CALLED)), None)
            if run is None or run.abstract or run not in attending or not self.is_own(run.file):
                continue
            named_for = rank(f"{stem(run.file)}_{run.owner.name if run.owner else ''}", "reference_model")
            reference = named_for is not None
            below = 0 if reference else len(evaluator.subclasses.get(of, ()))
            more = named - MODELS - CONVENTION
            order = (
                bool(part),
                not reference,
                named_for,
                -below,
                len(split(stem(of.file)) | more),
                of.file.count("/"),
                len(of.file),
                of.key,
            )
            found[run] = min(order, found.get(run, order))
        for at in (0, 1):
            found = {each: order for each, order in found.items() if not order[at]} or found
        around = {
            each
            for each in found
            if any(
                edge.caller in found
                and edge.of < 3
                and edge.how != "name"
                and not _above(edge)
                and self._made(each) < self._made(edge.caller) + MOST_WRAPPED
                for edge in self.graph.callers.get(each, ())
            )
        }
        outer = {each: order for each, order in found.items() if each not in around} or found
        ran = min(outer, key=outer.__getitem__, default=None)
        return ran, ran is not None and not outer[ran][0]

    def _made(self, method: Function) -> int:
        """How many functions make an object of a method's class."""
        maker = self.graph.evaluator.method(method.owner, "__init__") if method.owner is not None else None
        return len({edge.caller for edge in self.graph.callers.get(maker, ())}) if maker is not None else 0

    def link_models(self) -> None:
        """Lets calls of what is named ``model``, or of its methods, that are not known lead to the one that stands for
        all."""
        model, named = self.ran
        if model is None:
            return
        attending = self.reaching(self.attends)
        for function in self.functions:
            led: dict[int, list[Function]] = {}
            for edge in self.graph.edges[function]:
                # What a name says of a module, the whole model says better.
                guessed = edge.how == "name" and named and edge.call is not None and _calls_model(edge.call)
                if not guessed:
                    led.setdefault(id(edge.call), []).append(edge.callee)
            for call in () if function.native or function is model else function.calls:
                known = led.get(id(call), ())
                target: Function | None = None
                if (_calls_model(call) if named else _runs_part(call)) and attending.isdisjoint(known):
                    target = model
                elif not known and model.owner is not None and _on_model(call):
                    target = self.graph.evaluator.method(model.owner, call.name)
                if target is not None:
                    self._link(function, target, call, "name")

    def link_replaced(self) -> None:
        """Lets calls of another package's model lead to what attends in the place of its modules' ``forward``."""
        replacing = [each for each in self.functions if each.replaces]
        attending = self.reaching(self.attends) if replacing else set()
        put: dict[Function, None] = {}
        for function in replacing:
            for value in self.graph.evaluator.values(function, function.replaces):
                if isinstance(value, FunctionValue) and value.of in attending and self.is_own(value.of.file):
                    put[value.of] = None
        for function in self.functions if put else ():
            led = {id(edge.call) for edge in self.graph.edges[function]}
            for call in () if function.native else function.calls:
                if _calls_model(call) and id(call) not in led:
                    for each in put:
                        self._link(function, each, call, "name", len(put))

    def link_routes(self) -> None:
        """Lets a request for a path, whose address is put together, lead to what handles it in another process."""
        served = [each for each in self.facts.entries if each.kind == "server"]
        at = {each.what.partition(" ")[2]: each.place for each in reversed(served)}
        handlers = {each.key: each for each in self.functions}
        for function in self.functions:
            for call in () if function.native else function.calls:
                place = at.get(call.text) if call.text.startswith("/") else None
                if place is not None and (place.file, place.line) in handlers:
                    self._link(function, handlers[place.file, place.line], call, "process")

    def _link(self, function: Function, target: Function, call: Call, how: Dispatch, of: int = 1) -> None:
        if target is not function:
            edge = Edge(function, target, call.line, how, of, call)
            self.graph.edges[function].append(edge)
            self.graph.callers.setdefault(target, []).append(edge)

    def reaching(self, leaves: Iterable[Function], follow: Callable[[Edge], bool] = lambda edge: True) -> set[Function]:
        """Every function from which a call leads to one of these, these included."""
        found = set(leaves)
        waiting = list(found)
        while waiting:
            for edge in self.graph.callers.get(waiting.pop(), ()):
                if edge.caller not in found and follow(edge):
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


def _takes_all(function: Function, call: Call) -> bool:
    """Whether a call of what reading does not know is given queries with keys and values, or with their cache."""
    if function.name == "__init__" or call.name in operators.JOINS | operators.KEEPS:
        return False
    given = list(call.given)
    owner = function.owner.name if function.owner is not None else ""
    # In a module of attention they may be called after what was done to them: ``keys_rotated``.
    names = QKV_OF if says(f"{owner}_{function.name}", "attention") else QKV
    parts = {found[1] or found[2][0] for chain in given if (found := names.match(str(chain[0])))}
    cached = any(split(part) & {"kv"} for chain in given for part in chain if isinstance(part, str))
    return "q" in parts and (parts == {"q", "k", "v"} or (cached and names is QKV))


def _is_qkv(function: Function) -> bool:
    """Whether a function is given queries with keys and values, or with their cache."""
    parts = {match[1] or match[2][0] for name in function.params if (match := QKV.match(name))}
    return "q" in parts and (parts == {"q", "k", "v"} or any(split(name) & {"kv"} for name in function.params))


def _gives(chain: Chain) -> bool:
    """Whether it is what a call returns, alone or among others, that is not made on logits: ``logits.float()``."""
    if isinstance(chain[-1], str) and chain[-1].startswith(ITEM[0]) and len(chain) > 1:
        chain = chain[:-1]
    called = chain[-1]
    named = [*chain[:-2], *(part for given in called.first for part in given)] if isinstance(called, Applied) else []
    return isinstance(called, Applied) and not any(isinstance(each, str) and "logits" in split(each) for each in named)


def _has_logits(chain: Chain, function: Function) -> bool:
    """``model(…).logits``, and ``out.logits`` where ``out`` is what a call returned."""
    at = next((at for at, part in enumerate(chain) if at and isinstance(part, str) and "logits" in split(part)), 0)
    given = function.locals.get(str(chain[0]), ()) if at == 1 else ()
    return at > 0 and any(isinstance(each[-1], Applied) for each in ((chain[at - 1],), *given))


def _calls_model(call: Call) -> bool:
    """Whether what is called is named ``model``: ``self.model(…)``, ``model.forward(…)``, ``model.apply(params, x)``.

    With one argument ``apply`` hands a function to the parts of a model.
    """
    run = ("forward", *["apply"] * (len(call.args) + len(call.keywords) > 1))
    return any(_is_model((chain[:-1] or ("",) if chain[-1] in run else chain)[-1]) for chain in call.callee)


def hands_cache(call: Call) -> bool:
    """Whether a call is given what is named as a cache."""
    names = [*(str(chain[-1]) for chain in call.given), *(name for name, _ in call.keywords)]
    return any(split(name) & CACHED for name in names)


def _runs_part(call: Call) -> bool:
    """``self.module.forward(…)``: what is run is a part of a model."""
    return any(chain[-2:] == ("module", "forward") for chain in call.callee)


def _is_model(part: object) -> bool:
    return isinstance(part, str) and part.strip("_") == MODEL


def _on_model(call: Call) -> bool:
    """Whether it is a method of what is named ``model``: ``self.model.setup_caches(…)``."""
    return any(len(chain) > 1 and _is_model(chain[-2]) and isinstance(chain[-1], str) for chain in call.callee)


def _above(edge: Edge) -> bool:
    """Whether a method calls that of a class above its own."""
    return edge.call is not None and any(SUPER in chain for chain in edge.call.callee)


def stem(file: str) -> str:
    return file.rpartition("/")[2].partition(".")[0]


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
