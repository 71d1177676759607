"""Sampling: what leads from logits to a token, its parameters, and its seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import Edge
from lmp.codebase.graph.records import SUPER, Applied, Call, Chain, Class, Function, at
from lmp.codebase.graph.values import External, FunctionValue, argument
from lmp.codebase.roles import operators
from lmp.codebase.roles.attention import is_enum
from lmp.codebase.roles.reach import CALLED, TEST, Reading, Row, place
from lmp.codebase.roles.spine import decode_loops
from lmp.codebase.roles.words import says, split

PARAMETERS = frozenset(
    (
        *("temperature", "top_k", "top_p", "min_p", "typical_p", "do_sample", "seed", "logit_bias", "repeat_penalty"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty"),
        *("max_new_tokens", "max_tokens", "max_completion_tokens"),
    )
)
"""Names that every API of sampling gives its parameters."""
CARRIES = re.compile(r"Request|Response|Completion|Chat|Req(?=[A-Z]|$)")
"""Classes that carry a request over the network, by their names."""
PRODUCTS = operators.MATMULS | {"mm", "linear", "addmm"}
CHECKS = re.compile(r"verif|valid|check|normal|post_init")
DRAWN_BY = frozenset(["temperature", "top_k", "top_p", "min_p", "do_sample"])
"""Parameters of the draw alone."""
LOGITS = re.compile(r"logit|penalt|softmax|renorm|mask|bias|temp|top_?[pkn]|min_?p|typical|xtc|dry|grammar")
SCORES = frozenset(
    [
        *("logit", "logits", "prelogit", "prelogits", "score", "scores", "prob", "probs"),
        *("probability", "probabilities"),
    ]
)
"""Words of a variable that holds logits, or the probabilities made from them."""
HEAD = frozenset(["lm", "head"])
"""The projection to the vocabulary, as the papers on language models call it."""
WIDTHS = frozenset(["out", "output", "features"])
"""Words of the argument that is the size of a projection's output."""
COMPUTES, NAMED = "computes logits", "takes logits, by its name"
BUILDS = "builds or checks the parameters"
LONG = 20
"""Lines of a function that does more than one thing."""
ENDS, TEXTS = frozenset(["stop", "eos"]), frozenset(["string", "str", "text", "event"])
"""Words of a token that ends a text, and of what else a stop is."""
TOKENS = frozenset(["token", "id", "ids", "sequence", "result"])
"""Words of tokens that were drawn."""
DRAWER = frozenset(["sample", "sampler", "sampling"])
"""Words of what draws a token."""
BOUNDS = re.compile(
    r"(?:^|_)(?:stop|eos|end|bad|(?:forbid|ban|allow|disallow|suppress)[a-z]*)_(?:token|word|id|string|sequence|condition)"
    r"|max_(?:new|out|gen)\w*_(?:tok|len)"
)
"""Names of what ends a text, of tokens that are barred, and of how many are drawn at most."""
STEPS = frozenset(["LogitsProcessor", "LogitsWarper", "StoppingCriteria"])
"""Classes of transformers that one builds on to change logits or to end a text."""
STEP = frozenset(["processor", "warper"])
"""Words of what is run on logits, as transformers calls it: a class needs not build on its own."""
FUNCTIONS = frozenset(["fn", "func", "function", "callback"])
"""Words of a function that is an argument."""
NUMBERS = frozenset(["int", "float", "bool", "str"])
PACKS = frozenset(["param", "params", "kwargs", "setting", "settings"])
"""Words of what a function packs the parameters into."""
GENERATES = DRAWER | {"generate", "generation", "gen"}
FEW = 3
"""Callers of a function that are named beside it."""
FURTHEST = 4
"""Calls through which logits are followed."""


def sampling_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}

    def add(role: str, symbol: str, where: Place, why: str, rank: int = 1) -> None:
        found.setdefault((where.file, where.line), Row("sampling", role, symbol, where, why, rank))

    draws = _draws(reading)
    natives = [each for each in reading.functions if each.native and _named(each)]
    kernels = [each for each in reading.facts.kernels if reading.is_own(each.place.file) and _speaks(each.name)]
    # Without a draw its tokens may come back from elsewhere.
    spine = _spine(reading, draws)
    if draws or natives or kernels:
        records = list(_parameter_classes(reading))
        steps = _steps(reading, {*spine, *(each for of in records for each in of.methods.values())})
        heads = _heads(reading)
        for function in sorted(spine, key=lambda each: each.key):
            called = reading.graph.edges[function]
            for edge in called if function.owner is not None else ():
                gives = edge.callee in reading.runs_model - spine and edge.callee not in reading.attending
                if gives and edge.callee.owner is function.owner and _keeps_logits(function, edge):
                    # The step of a class that has the model beside it.
                    heads.setdefault(edge.callee, COMPUTES)
            why = draws.get(function, "hands logits to the draw")
            both = function in reading.runs_model and any(edge.callee in draws for edge in called)
            certain = both or draws.get(function, NAMED) != NAMED
            add("sample", function.qualname, place(function), why, int(not certain))
            if function.nested:
                add("sample", function.outermost.qualname, place(function.outermost), "the draw stands in it")
        for thing, why in (*steps.items(), *heads.items()):
            add("logits", thing.qualname, place(thing), why, int(why != COMPUTES))
        for role, symbol, where, why in _parameters(reading, spine, records):
            add(role, symbol, where, why, int(why != BUILDS))
        for of in reading.classes:
            methods = set(of.methods.values())
            if of.native or _inside(of):
                continue
            # A way to draw may be named by its way alone: ``Greedy(SamplingMethod)``.
            kinds = (of, *reading.graph.evaluator.line(of)[1:])
            speaks = any(_speaks(each.name) for each in kinds) and any(each.key in found for each in methods)
            drawn = any(each in spine and each.name in CALLED for each in methods)
            if speaks or (drawn and not methods & reading.attending):
                add(role_of(of.name, of), of.qualname, place(of), "works on logits")
        # Where most draws are in another language, what calls them from here is told by its name.
        foreign = len(natives) + sum(each.language in ("cuda", "metal") for each in kernels) > len(draws)
        known = {*spine, *steps}
        above = {each for each in reading.reaching(draws) if split(each.name) & DRAWER}
        for function in reading.functions:
            told = not function.native and not function.abstract and _named(function) and not _inside(function)
            if told and (foreign or function in above or _beside(reading, function, known)):
                add(role_of(function.name, function), function.qualname, place(function), "stands beside the draw")
    for function, why in _hands_over(reading):
        add("parameters", function.qualname, place(function), why, 0)
    for function in _stops(reading, spine):
        # A class that is called for nothing else stands for its method.
        stops = function.owner if function.name in CALLED and function.owner is not None else function
        add("sample", stops.qualname, place(stops), "ends a text at a stop token", 0)
    for of in reading.classes:
        if not of.native and (any(chain[-1] in STEPS for chain in of.bases) or _is_step(of)):
            add("logits", of.qualname, place(of), "is run by another package between the model and the draw", 0)
        elif not of.methods and _speaks(of.name) and is_enum(of):
            add("parameters", of.qualname, place(of), "names the ways to draw")
    for role, symbol, where, why in _seeds(reading):
        add(role, symbol, where, why, 0)
    for function in natives:
        add(role_of(function.name, function), function.qualname, place(function), "by its name")
    for kernel in kernels:
        add(role_of(kernel.name, kernel), kernel.name, kernel.place, "kernel")
    return list(found.values())


def _is_step(of: Class) -> bool:
    """Whether its name and what it is called with say that it changes logits."""
    words = split(of.name)
    runs = (each for each in of.methods.values() if each.name in CALLED and words & STEP and words & SCORES)
    return any(split(name) & SCORES for each in runs for name in each.params)


def _draws(reading: Reading) -> dict[Function, str]:
    """Functions that draw a token, by an operator or by a kernel; a module that attends is the model."""
    launched = {
        (each.place.file, each.inside): each.kernel
        for each in reading.facts.launches
        if _speaks(each.kernel) and reading.is_own(each.place.file)
    }
    found = {
        each: launched[each.file, each.qualname] for each in reading.functions if (each.file, each.qualname) in launched
    }
    found |= reading.samples | hands_on(reading)
    for each in reading.functions:
        # Where the kernel is not followed, the name and what it is given tell.
        given = {word for name in each.params for word in split(name)}
        if not each.native and split(each.name) & DRAWER and given & SCORES:
            found.setdefault(each, NAMED)
        elif not each.native and _draws_by_what_it_is_given(reading, each):
            found.setdefault(each, "gives logits to what a caller hands in to draw")
    return {
        each: why
        for each, why in found.items()
        if not each.native and not _aside(each) and not (each.name in CALLED and each in reading.attending)
    }


def _draws_by_what_it_is_given(reading: Reading, function: Function) -> bool:
    """Whether logits go to what is named to draw and is no function of the code base: a caller hands it in."""
    calls = [call for call in function.calls if split(call.name) & DRAWER and _handed(call)]
    own = {id(edge.call) for edge in reading.graph.edges[function]} if calls else set()
    return any(id(call) not in own for call in calls)


@lru_cache(maxsize=1)
def hands_on(reading: Reading) -> dict[Function, str]:
    """Functions that have another package generate: a class or object of it holds the loop and the draw."""
    found: dict[Function, str] = {}
    for function in reading.functions:
        if function.native or "generate" not in split(function.name) or _apart(reading, function):
            continue
        takes = len({_plain(each) for each in {*function.reads, *function.locals}} & PARAMETERS) > 1
        for call in function.calls:
            if any(edge.call is call for edge in reading.graph.edges[function]):
                continue
            if takes and len(PARAMETERS & {name for name, _ in call.keywords}) > 2:
                found[function] = f"hands the parameters on to {call.written}"
                continue
            given = [chain for chains in (*call.args, *(each for _, each in call.keywords)) for chain in chains]
            for chain in (*call.callee, *given) if takes else call.callee:
                # A thread is given what it is to call: ``Thread(target=model.generate)``.
                values = reading.graph.evaluator.values(function, (chain,))
                own = any(isinstance(each, FunctionValue) for each in values)
                known = chain[-1] == "generate" and (SUPER in chain or any(isinstance(v, External) for v in values))
                if known or (takes and not own and "generate" in split(str(chain[-1])) and chain[0] != "self"):
                    found[function] = f"hands on to {'.'.join(map(str, chain))}"
    return found


def _hands_over(reading: Reading) -> Iterator[tuple[Function, str]]:
    """What gives another package or a server the parameters, in a call or as a dictionary."""
    for function in reading.functions:
        if function.native or _apart(reading, function):
            continue
        given = [call for call in function.calls if _many({_plain(name) for name, _ in call.keywords})]
        outside = [call.written for call in given if not reading.is_inside(function, call)]
        if outside or _many(function.keys):
            yield function.outermost, f"hands the parameters to {outside[0]}" if outside else "packs the parameters"
            continue
        made = [call.written for call in function.calls if makes_step(call) and not reading.is_inside(function, call)]
        if made:
            yield function.outermost, f"asks {made[0]} for what draws"


def makes_step(call: Call) -> bool:
    """Whether a call makes what another package draws by, or runs on logits: ``make_sampler(…)``."""
    words = split(call.name)
    return ("logit" in words and bool(words & STEP)) or words >= {"make", "sampler"}


def _many(names: Set[str]) -> bool:
    """Whether these are several parameters, of the draw too."""
    return len(names & PARAMETERS) > 2 and not names.isdisjoint(DRAWN_BY)


def _handed(call: Call | None) -> bool:
    """Whether a call is given what is named as logits or as probabilities."""
    parts = (part for chain in call.given for part in chain[-2:]) if call is not None else ()
    return any(isinstance(part, str) and split(part) & SCORES for part in parts)


def _passes(call: Call | None) -> bool:
    """Whether a call is given the temperature, or another parameter of the draw, that its function was given."""
    if call is None:
        return False
    named = {name for name, chains in call.keywords if chains}
    return bool(DRAWN_BY & (named | {str(chain[-1]) for chains in call.args for chain in chains}))


def _spine(reading: Reading, draws: Mapping[Function, str]) -> set[Function]:
    """What draws a token, and what hands logits or its parameters on to that."""
    found = set(draws)
    asks = hands_on(reading).keys()
    waiting = [(each, 0) for each in found]
    while waiting:
        function, depth = waiting.pop()
        for edge in reading.graph.callers.get(function, ()):
            caller = edge.caller
            if caller in found or depth == FURTHEST or not reading.is_own(caller.file) or not caller.qualname:
                continue
            if edge.how in ("process", "queue") or caller in reading.trains:
                continue
            if says(caller.qualname, "not_sampling") and not (function in draws and _handed(edge.call)):
                continue
            gets = caller in reading.runs_model and function in draws
            # What only asks another package to generate hands it no logits: nor does what asks that.
            runs = caller in reading.runs_model or caller in reading.attending or function in draws.keys() - asks
            passes = runs and caller.name != "main" and _passes(edge.call)
            if gets or passes or _handed(edge.call):
                found.add(caller)
                waiting.append((caller, depth + 1))
    return found


def _steps(reading: Reading, roots: set[Function]) -> dict[Function, str]:
    """What logits are handed to besides the draw: penalties, masks, cuts of the distribution."""
    found: dict[Function, str] = {}
    waiting = sorted(roots, key=lambda each: each.key)
    while waiting:
        for edge in reading.graph.edges.get(waiting.pop(0), ()):
            to = edge.callee
            # A score that is said to be a number is none of tokens.
            words = {
                word
                for name, said in to.params.items()
                if not any(chain[-1] in NUMBERS for chain in said)
                for word in split(name)
            }
            if to in roots or to in found or to in reading.attending or not words & SCORES or _inside(to):
                continue
            tries = TEST.match(to.name.lstrip("_"))
            if reading.is_own(to.file) and to.name != "__init__" and not _aside(to) and not tries:
                found[to] = "takes logits"
                waiting.append(to)
    return found


def _stops(reading: Reading, spine: set[Function]) -> Iterator[Function]:
    """What compares drawn tokens with those that end a text, called where tokens are drawn or a loop decodes."""
    near = spine | set(decode_loops(reading))
    for function in reading.functions:
        if function.native or function in spine or _apart(reading, function) or "tokenizer" in split(function.qualname):
            continue
        given = {word for name in function.params for word in split(name)}
        # ``timer.stop()`` ends something else.
        names = {*function.params, *function.reads} - {call.name for call in function.calls if call.name in ENDS}
        ends = function.name != "__init__" and any(split(name) & ENDS and not split(name) & TEXTS for name in names)
        callers = {edge.caller for edge in reading.graph.callers.get(function, ())}
        if ends and given & TOKENS and (not spine or near & {function, *callers} or split(function.name) & ENDS):
            yield function


def _aside(function: Function) -> bool:
    """Whether other scores than those of tokens are meant: of experts, of attention, of training."""
    return any(says(each, "not_sampling") for each in (function.qualname, function.file)) or says(
        function.file, "attention"
    )


def _beside(reading: Reading, function: Function, known: set[Function]) -> bool:
    """Whether what is named for sampling lies where it is done: by its file, its class, or a call to or from there."""
    graph = reading.graph
    file = function.file.rpartition("/")[2]
    if not any(each.file == function.file for each in known):
        return False
    linked = {edge.callee for edge in graph.edges[function]} | {edge.caller for edge in graph.callers.get(function, ())}
    return _speaks(file) or bool(linked & known)


def _heads(reading: Reading) -> dict[Function | Class, str]:
    """What computes logits.

    It calls the projection to the vocabulary, or multiplies by its weight. The projection itself counts where it is a
    class of the code base, and so does what cuts out the positions that it is given.
    """
    found: dict[Function | Class, str] = {}
    evaluator = reading.graph.evaluator
    own = [of for of in reading.classes if not of.native and not reading.is_beside(of.file)]
    heads = {of: {name for name in of.attributes if _is_head(reading, of, name)} for of in own}
    tables = {of: {name for name in of.attributes if _is_table(of, name)} for of in own}
    for of in own:
        line = evaluator.line(of)
        names = {name for each in line for name in heads.get(each, ())}
        weights = {name for each in line for name in tables.get(each, ())}
        if any(chain[-1] == "Embedding" for chain in of.bases):
            weights.add("weight")
        for method in of.methods.values():
            if method.numeric and "T" in method.reads and weights & method.gets.keys():
                found.setdefault(method, COMPUTES)
            named = {
                chain[:-1] for name, chains in method.locals.items() if "logits" in split(name) for chain in chains
            }
            for call in method.calls:
                chain = call.callee[0] if call.callee else ()
                given = [each for chains in call.args for each in chains]
                weight = any(split(str(part)) >= HEAD for each in given for part in each[-2:])
                head = sized = False
                if chain[:1] == ("self",) and len(chain) == 2:
                    of_another = all(isinstance(each, External) for each in evaluator.values(method, [chain]))
                    head = chain[1] in names or split(str(chain[1])) >= HEAD
                    computes = head or (chain in named and of_another)
                    if head and method.name != "__init__":
                        for to in (edge.callee for edge in reading.graph.edges[method] if edge.call is call):
                            if to.name in CALLED and to.owner is not None and "head" in split(to.owner.name):
                                found[to] = "projects to the vocabulary"
                else:
                    # A weight may have a name of its own: a part of it, or one of another type.
                    kept = [*given, *(each for one in given for each in method.locals.get(str(one[0]), ()))]
                    sized = any(each[0] == "self" and len(each) > 1 and each[1] in weights for each in kept)
                    computes = (weight or sized) and call.name in PRODUCTS
                if computes and method.name != "__init__":
                    found.setdefault(method, COMPUTES if head or sized else "calls what gives logits")
                    if split(of.name) & {"head", "model"} == {"head"}:
                        found.setdefault(of, "projects to the vocabulary")
                elif weight:
                    for edge in reading.graph.edges[method]:
                        if edge.call is call and edge.callee.owner is not None and reading.is_own(edge.callee.file):
                            found.setdefault(edge.callee, "is handed the projection to the vocabulary")
    projects = {each for each, why in found.items() if why == COMPUTES and each not in reading.attending}
    for function in (method for of in own for method in of.methods.values()):
        for edge in reading.graph.edges[function]:
            other = edge.callee in projects and edge.callee.owner is not function.owner
            if other and _keeps_logits(function, edge):
                found.setdefault(function, COMPUTES)
    return found


def _keeps_logits(function: Function, edge: Edge) -> bool:
    """Whether a function keeps what a call gives as logits."""
    kept = {chain[:-1] for name, chains in function.locals.items() if "logits" in split(name) for chain in chains}
    return edge.call is not None and not kept.isdisjoint(edge.call.callee)


def _is_head(reading: Reading, of: Class, name: str) -> bool:
    """Whether an attribute is made with the vocabulary's size as that of its output, here or where it is handed in."""
    for function, chain in of.attributes[name]:
        if function is None:
            continue
        line = of.lines.get(name, 0)
        if any(
            chain[:-1] in call.callee and 0 <= call.line - line <= 30 and _projects(call) for call in function.calls
        ):
            return True
        handed = reading.graph.callers.get(function, ()) if chain[0] in function.params and len(chain) == 1 else ()
        for edge in handed:
            for given in argument(function, chain[0], edge.call) if edge.call is not None else ():
                made = {each[:-1] for each in edge.caller.locals.get(str(given[0]), ()) if len(given) == 1}
                if any(made.intersection(call.callee) and _projects(call) for call in edge.caller.calls):
                    return True
    return False


def _projects(call: Call) -> bool:
    return any(_vocabulary(chains) for chains in call.args[1:]) or any(
        _vocabulary(chains) for key, chains in call.keywords if split(key) & WIDTHS
    )


def _is_table(of: Class, name: str) -> bool:
    """Whether an attribute is a tensor, or holds one, that has a row for each token of the vocabulary."""
    line = of.lines.get(name, 0)
    functions = {function for function, _ in of.attributes[name] if function is not None}
    return any(
        call.line - line in (0, 1) and any(_vocabulary(chains) for chains in call.args)
        for function in functions
        for call in function.calls
    )


def _vocabulary(chains: Iterable[Chain]) -> bool:
    # In a shape it stands first: ``(vocab_size, width)``.
    sizes = (chain[-2] if chain[-1] == at(0) else chain[-1] for chain in chains if len(chain) > 1 or chain[-1] != at(0))
    return any("vocab" in split(str(each)) for each in sizes)


def _parameters(reading: Reading, spine: set[Function], records: list[Class]) -> Iterator[tuple[str, str, Place, str]]:
    """Records of the parameters with what builds and checks them; without one, arguments that reach the draw."""
    for of in records:
        known = any(_plain(each.name) in PARAMETERS for each in of.fields)
        if not (known and "config" in split(of.name)) or _speaks(of.name) or "Generat" in of.name:
            # Settings of more than that are told by those fields alone.
            yield "parameters", of.qualname, place(of), "fields of sampling"
        for method in of.methods.values():
            builds = any(chain[-1] == "classmethod" for chain in method.decorators)
            if builds or CHECKS.search(method.name):
                yield "parameters", method.qualname, place(method), BUILDS
            elif LOGITS.search(method.name) or BOUNDS.search(method.name):
                yield "logits", method.qualname, place(method), "a step of the parameters' record"
        if not says(of.name, "sampling") and not CARRIES.search(of.name) and "Generat" not in of.name:
            # A class that is there for more stands for its fields.
            for each in of.fields:
                if _plain(each.name) in PARAMETERS:
                    where = Place(of.file, each.line)
                    yield "parameters", f"{of.qualname}.{each.name}", where, f"default {each.default}"
    evaluator = reading.graph.evaluator
    line, ways = evaluator.line, reading.reaching(spine)
    above = {base for each in records for base in line(each)[1:] if base.fields or base.attributes}
    for of in reading.classes:
        for method in of.methods.values() if not of.native else ():
            kept = {name for name, sets in of.attributes.items() if any(by is method for by, _ in sets)}
            kept |= {str(c[1]) for call in method.calls if call.name == "append" for c in call.callee if c[0] == "self"}
            if len({_plain(name) for name in kept} & DRAWN_BY) > 1:
                yield "parameters", method.qualname, place(method), BUILDS
        if of.native or of in records:
            continue
        if above & set(line(of)):
            yield "parameters", of.qualname, place(of), "of the same kind as the parameters' record"
        elif _speaks(of.qualname) and ways & set(of.methods.values()):
            # What an object that draws is made with: how, what ends a text, which tokens are barred, how many at most.
            for each in of.fields:
                if _speaks(each.name) or BOUNDS.search(each.name):
                    where = Place(of.file, each.line)
                    yield "parameters", f"{of.qualname}.{each.name}", where, f"default {each.default}"
    loops = set(decode_loops(reading))
    for function in reading.functions:
        if function.native or says(function.qualname, "not_sampling") or _inside(function):
            continue
        # What it asks of a request or of its arguments, by names that are none of its own.
        said = {_plain(each) for each in function.reads.union(call.text for call in function.calls)}
        name = split(function.name)
        said &= PARAMETERS
        packs = said and name & PACKS and name & GENERATES
        speaks = _speaks(str(function.owner and function.owner.name))
        if packs or (len(said - function.params.keys()) > 2 and name != {"main"} and not speaks):
            yield "parameters", function.qualname, place(function), BUILDS
            continue
        for key in function.params if not function.nested else ():
            if split(key) & DRAWER and split(key) & FUNCTIONS:
                where = Place(function.file, function.lines.get(key, function.line))
                yield "parameters", f"{function.qualname}.{key}", where, "hands in the draw"
        reach = function.params.keys() & PARAMETERS if function in reading.samples and function in loops else set()
        reaching = [each for each in reading.graph.edges[function] if function in spine and each.callee in spine]
        for call in (each.call for each in reaching if each.call is not None and _handed(each.call)):
            reach |= {key for key, _ in call.keywords if key in PARAMETERS & function.params.keys()}
            for key in (
                key for key, chains in call.keywords if key in DRAWN_BY and not (chains or _apart(reading, function))
            ):
                yield "parameters", f"{function.qualname}.{key}", Place(function.file, call.line), "fixed at the call"
        for key in sorted(reach) if not records else ():
            where = Place(function.file, function.lines.get(key, function.line))
            yield "parameters", f"{function.qualname}.{key}", where, "reaches the draw"


def _plain(name: str) -> str:
    """``temperatures`` and ``top_ps`` are the parameters of a batch."""
    return name.removesuffix("s") if name.removesuffix("s") in PARAMETERS else name


def _apart(reading: Reading, function: Function) -> bool:
    name = function.qualname
    other = says(name, "not_sampling") and "generate" not in split(name)
    return other or says(name, "beside") or reading.is_beside(function.file)


def _seeds(reading: Reading) -> Iterator[tuple[str, str, Place, str]]:
    """Where random numbers are seeded in a run: the function that is there for it, else the call, or what is kept."""
    running, drawing = reading.running, reading.reaching([*reading.samples, *reading.native_samples])
    for function in reading.functions:
        around = {function, *(edge.caller for edge in reading.graph.callers.get(function, ()))}
        # A key that nothing draws tokens with makes weights.
        keys = around & drawing
        calls = [
            call
            for call in function.calls
            if call.name in operators.SEEDS or (keys and _draws_with(reading, function, call, drawing))
        ]
        restores = split(function.name) & {"state", "restore", "resume"}
        if not calls or restores or function.native or _apart(reading, function):
            continue
        of = function.owner
        # What an object seeds for itself counts where it draws.
        makes = any(_is_attending(reading, edge) for edge in reading.reached(function, lambda edge: True, 1))
        connected = running & around or (drawing or running) & set(of.methods.values() if of is not None else ())
        named = "generate" in split(function.name) or says(function.name, "seed")
        if running and not (connected or makes or named):
            # What shuffles data, or tries something, seeds for itself.
            continue
        why = ", ".join(sorted({call.name for call in calls}))
        inside = [call for call in calls if not any(edge.call is call for edge in reading.graph.edges[function])]
        own = {edge.callee for call in calls for edge in reading.graph.edges[function] if edge.call is call}
        if not inside and any(len(reading.graph.callers.get(each, ())) > FEW for each in own):
            # The function of the code base that it calls is there for that, and stands for all who call it.
            continue
        long = function.end - function.line > LONG
        if inside and "self" not in function.params and long and not says(function.name, "seed"):
            yield "seed", inside[0].written, Place(function.file, inside[0].line), f"in {function.qualname}"
        else:
            yield "seed", function.qualname, place(function), why


def _draws_with(reading: Reading, function: Function, call: Call, drawing: set[Function]) -> bool:
    """Whether a key is made from a seed that is given, and draws: a number as written is none of a user.

    It, or a part of what it is split into, goes to what draws, or back. One without a name does.
    """
    seeded = any(split(str(chain[-1])) & {"seed"} for chains in call.args[:1] for chain in chains)
    if not seeded or operators.KEYS.search(reading.dotted(function, call)) is None:
        return False
    keys: set[str] = set()
    for _ in range(2):
        for name, chains in function.locals.items():
            first = [each for chain in chains for part in chain if isinstance(part, Applied) for each in part.first]
            made = any(chain[: len(of)] == of for of in call.callee for chain in (*chains, *first))
            if made or any(chain[0] in keys for chain in first):
                keys.add(name)
    given = (edge for edge in reading.graph.edges[function] if edge.call is not None and edge.callee in drawing)
    on = [*function.returns, *(chain for edge in given if edge.call is not None for chain in edge.call.given)]
    return not keys or any(chain[0] in keys for chain in on)


def _is_attending(reading: Reading, edge: Edge) -> bool:
    """Whether a call makes an object of a class that attends."""
    of = edge.callee.owner if edge.how == "constructor" else None
    return of is not None and any(each in reading.attending for each in of.methods.values())


def role_of(name: str, thing: object) -> str:
    lower = name.lower()
    if isinstance(thing, Class):
        return "parameters" if re.search(r"param|config|args", lower) else "sample"
    if "seed" in split(name):
        return "seed"
    return "logits" if LOGITS.search(lower) and "sampl" not in lower else "sample"


def _inside(of: Function | Class) -> bool:
    """Whether it is defined in a function."""
    return bool(of.within if isinstance(of, Class) else of.outer is not None and of.outer.qualname)


def _speaks(name: str) -> bool:
    return says(name, "sampling") and not says(name, "not_sampling")


def _named(function: Function) -> bool:
    long = function.end - function.line >= 2
    return long and not function.name.startswith("__") and _speaks(function.name) and _speaks(function.qualname)


def _parameter_classes(reading: Reading) -> Iterator[Class]:
    for of in reading.classes:
        if says(of.qualname, "not_sampling") or of.within:
            continue
        names = {_plain(each.name) for each in of.fields} | {_plain(name) for name in of.attributes}
        limits = any(BOUNDS.search(each) for each in names) if names & DRAWN_BY else False
        if len(names & PARAMETERS) + limits >= 2 and not any(
            method in reading.attends for method in of.methods.values()
        ):
            yield of
