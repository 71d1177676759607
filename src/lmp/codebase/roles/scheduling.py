"""The scheduler: queues of requests, the batch that the runner takes from them, and what limits it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import RUNS as RUN
from lmp.codebase.graph.records import ITEM, Call, Chain, Class, Function
from lmp.codebase.graph.values import ClassValue, External, FunctionValue, Instance, innermost
from lmp.codebase.roles import operators
from lmp.codebase.roles.reach import CALLED, Reading, Row, place
from lmp.codebase.roles.spine import decode_loops, stepping
from lmp.codebase.roles.words import says, split

ROLES = (
    ("preemption", r"preempt|pause|retract|swap|evict|resume|recover"),
    ("chunking", r"chunk|splitfuse|split"),
    ("priority", r"priorit|sort|order|rank"),
    (
        "admission",
        r"can_|admit|limit|reserve|wait_for|allow|check|capacity|budget|is_full|done|finish|available|decide",
    ),
    ("batch", r"batch|schedul|slot|update|step|merge|filter|decode|prefill|loop|run|next"),
    ("queue", r"queue|add|put|append|push|insert|enqueue|req|pop|take|claim|route|recv|send|post"),
)
HANDLES = r"post|defer|pop|push|add|take|process|launch|split|update|decode|slot|loop|task"
"""What a method of C++ does with requests, by its name: what it reads is not kept."""
ROLES_THAT_DECIDE = (
    r"preempt|pause|retract|swap|evict|resume|chunk|priorit|can_|admit|limit|capacity|is_full|busy|batch|budget|order"
)

SIDE = re.compile(
    r"clean|ready|log|sleep|warm|weight|wait_task|st(?:art|op)(?:_async)?$|close|shutdown|stat|print|dump|metric"
    r"|setup|repr|health|collate|fail|alloc|copy|flush|encoder|free|process$|respon|_hash"
)
"""Methods beside the work on requests."""
TELLS = re.compile(r"_*(?:has|is|num|get_num)_(?!busy|full)")
"""Methods that only tell something; whether there is room decides."""
LIMIT = re.compile(r"<=?[^=]*max_?\w*(?:batch(?!es)|seqs|requests)")
"""An assertion that bounds the batch."""
WAITS = frozenset(["waiting", "backlog", "queued"])
"""Words of an attribute that holds what waits for a turn."""
QUEUES = WAITS | {"queue", "req", "reqs", "request", "running", "job"}
ITEMS = frozenset(["req", "request", "seq", "sequence", "batch", "batches", "task", "job"])
"""What is scheduled."""
HANDED = ITEMS - {"batch", "batches"}
SERVES = ITEMS | {"batching", "slot", "decode", "schedule", "preempt"}
STEPS = ("run", "step", "schedule", "process")
"""The method by which a class does its one thing."""
SHORT = 4
LOADER = re.compile(r"(?:Data[lL]oader|Batcher|Sampler)$")
"""Classes of libraries of data that make batches of samples, or put them in order."""
JOINS, FILLS = frozenset(["stack", "cat", "vstack", "concatenate"]), frozenset(["full", "pad", "full_like"])
"""Functions of array libraries that join sequences, and that make them as long as one another."""
PADS, ENDED = frozenset(["pad", "padded", "padding"]), re.compile("done|finish|complete|eos|end(?:s|ed)?$")
HOLDS, LENGTHS = frozenset(["acquire", "release"]), frozenset(["length", "len", "size", "depth"])
"""How a place of a semaphore is taken and freed, and words of how long a queue is."""
RUNS = RUN | {"model"}
"""How a model is called, its own code or that of another package."""
BOUNDS = frozenset(["begin", "start", "end", "size", "len", "length", "offset"])
"""Words of where a chunk begins, and how far it goes."""
MAKES_LOADER = re.compile(r"_*(?:get|make|build|create|set_?up)_(?:\w+_)?data_?loaders?$")
MICRO = re.compile("micro_?batch|split_batch")
"""How a function is named that makes what gives batches of samples, and one that cuts a batch into smaller ones."""
SEVERAL = re.compile("prompts|micro_?batch|batch(?!_size)")
"""Names of several sequences, or of batches. How large one batch is, any code reads that makes a tensor for it."""
CUTS = frozenset(["split", "islice", "chunk", "array_split", "tensor_split", "batched"])
"""Functions of libraries that cut a sequence into pieces."""
PUTS = frozenset(
    ["append", "put", "appendleft", "put_nowait", "add", "insert", "extend", "push_back", "emplace_back", "push"]
)
TAKES = frozenset(["pop", "popleft", "get", "remove", "get_nowait", "clear", "pop_front", "erase"])


def scheduler_rows(reading: Reading) -> list[Row]:
    classes = _classes(reading)
    chunks = {row.key: row for row in _limits(reading)}
    if not classes:
        # Where no requests wait, what is called a scheduler orders something else: tiles, steps of a pipeline.
        return list(({row.key: row for row in _static(reading)} | chunks).values())
    found: dict[tuple[str, int], Row] = dict(chunks)

    def add(role: str, symbol: str, where: Place, why: str, rank: int = 0) -> None:
        found.setdefault((where.file, where.line), Row("scheduler", role, symbol, where, why, rank))

    for of, why in classes.items():
        add(_role(of.name, "queue"), of.qualname, place(of), why)
        queues = _queues(of)
        for name in of.lines:
            places = "slot" in split(name) and is_made_queue(of, name)
            asked = "queue" in split(name) and split(name) & (ITEMS | WAITS) and is_made_queue(of, name)
            if places or (name in queues and (asked or split(name) & WAITS)):
                add("queue", f"{of.qualname}.{name}", Place(of.file, of.lines[name]), "requests wait here")
        kinds = [each for each in reading.graph.evaluator.below(of) if each not in classes and queues]
        for method in (each for kind in (of, *kinds) for each in kind.methods.values()):
            if (_matters(method) or _turns(method, queues)) and _works_on(reading, of, method, queues):
                add(
                    _role(method.name, "batch"),
                    method.qualname,
                    place(method),
                    f"of {of.name}",
                    int(not method.reads & queues),
                )
    for row in _data(reading) if reading.trains else ():
        found.setdefault(row.key, row)
    for function, of in _works_on_given(reading, classes):
        add(_role(function.name, "batch"), function.qualname, place(function), f"is given {of.name}", 1)
    return list(found.values())


def _works_on_given(reading: Reading, classes: Iterable[Class]) -> Iterator[tuple[Function, Class]]:
    """Functions of no class that are given what keeps a queue, or what holds that: methods of other code bases."""
    queues = {of for of in classes if not of.native and _queues(of)}
    holders = {of for of in reading.classes for each in of.fields if _named(reading, of.file, each.chains) & queues}
    for function in reading.functions:
        plain = function.owner is None and function.qualname and not function.native and _matters(function)
        # A coroutine without a loop of its own waits for the answer to one request.
        plain = plain and (not function.is_async or function.endless)
        if plain and function.end - function.line > SHORT and _fits(reading, function.qualname, function.file):
            annotated = (_named(reading, function.file, chains) for chains in function.params.values())
            given = {of for every in annotated for of in every & (queues | holders)}
            yield from ((function, of) for of in sorted(given, key=lambda each: each.key)[:1])


def _named(reading: Reading, file: str, chains: Iterable[Chain]) -> set[Class]:
    """Classes of the code base that an annotation names."""
    body = reading.facts.graphs[file].body
    values = (innermost(each) for each in reading.graph.evaluator.values(body, chains)) if body is not None else ()
    return {each.of for each in values if isinstance(each, ClassValue)}


def _pads_several(call: Call) -> bool:
    """Whether sequences are padded to one length: each of them, or all by the call's name. One is padded for a window,
    or shifted."""
    words = split(call.name)
    return bool(words & PADS) and (call.loop > 0 or bool(words - PADS - {call.name.lower()}))


def _static(reading: Reading) -> Iterator[Row]:
    """What fixes the order of work where no requests wait: loops that decode or train, and what calls them."""
    trains = reading.reaching(reading.trains)
    steps = [each for each in reading.trains if any(call.loop and call.name in operators.TRAINS for call in each.calls)]
    loops = [
        each
        for each in dict.fromkeys((*(one for one in decode_loops(reading) if one in stepping(reading)), *steps))
        if not reading.is_beside(each.file)
        and "valid" not in each.name
        # One that trains on a batch as it comes orders nothing.
        and (each not in trains or any(re.search("micro|accum", name) for name in each.reads))
    ]
    yield from _data(reading)
    if not loops:
        return
    above = reading.reaching(loops)
    near = above.union(edge.callee for each in above for edge in reading.graph.edges.get(each, ()))
    callers = (edge.caller for each in loops if each.owner is not None for edge in reading.graph.callers.get(each, ()))
    around = {each for each in callers if reading.is_own(each.file)}
    yield from _orders(reading, trains & {*loops, *around})
    for each in dict.fromkeys((*loops, *around)):
        # A function that handles several sequences at once, by the names that it reads; it ends when all of them do.
        asked = [call for one in (each, *each.inner.values()) for call in one.calls if call.name == "all"]
        ends = any(ENDED.search(str(chain[-1])) for call in asked for chains in call.args for chain in chains)
        batched = ends or any(SEVERAL.search(name) for name in {*each.reads, *each.params})
        if batched and each.qualname and not each.name.endswith("__"):
            yield _row("batch", each, "its loop steps a batch")
    for function in reading.functions:
        if not function.native and not reading.is_beside(function.file):
            for hazard in function.hazards if function in reading.running else ():
                if hazard.kind == "assert" and LIMIT.search(hazard.text):
                    where = Place(function.file, hazard.line)
                    yield Row("scheduler", "admission", "assert", where, f"{function.qualname} refuses a larger batch")
            # Of padded inputs, the length may be that of a bucket.
            pads = split(function.name) & (PADS | {"bucket"}) and split("_".join(function.params)) & LENGTHS
            served = any(edge.caller in near for edge in reading.graph.callers.get(function, ()))
            if (pads and served) or (function in above and any(map(_pads_several, function.calls))):
                yield _row("batch", function, "pads what it is given to one batch")
            elif function.owner is not None and re.search("accumulation|batch_size", function.name):
                yield _row("batch", function, "says how large a batch is")
            elif function.owner is None and function.loops and re.match(r"(?!_).*batch(?!ed|_to)", function.name):
                yield _row("batch", function, "makes batches")


def _orders(reading: Reading, loops: set[Function]) -> Iterator[Row]:
    """Classes that are there for one order of the work: all they do is such a loop."""
    for of in dict.fromkeys(each.owner for each in sorted(loops, key=lambda each: each.key) if each.owner is not None):
        does = {each for name, each in of.methods.items() if not name.startswith("__")}
        if does <= loops and not of.native:
            yield _row("batch", of, "is one order of the work")


def _limits(reading: Reading) -> Iterator[Row]:
    """What cuts the work into batches or chunks, and what limits or counts the requests in flight."""
    draws = reading.reaching(reading.samples)
    models = {*reading.runs_model, *([reading.model] if reading.model is not None else [])}
    for function in reading.functions:
        if function.native or not function.qualname or reading.is_beside(function.file):
            continue
        called = {call.name for call in function.calls}
        held = {str(c[-2]) for call in function.calls if call.name in HOLDS for c in call.callee if len(c) > 1}
        counted = {function.name, *(function.reads if called & {"min", "argmin"} else ())}
        steps = {
            word: call.line
            for call in function.calls
            for chains in (call.args[2:] if call.name == "range" else ())
            for chain in chains
            for word in split(str(chain[-1]))
        }
        repeated = {call.name for call in function.calls if call.loop}
        runs = function in reading.attending or bool(repeated & {*CALLED})
        bounds = {word for name in function.reads if "chunk" in split(name) for word in split(name) & BOUNDS}
        sizes = {word for name in function.reads & function.params.keys() for word in split(name)}
        if "chunk" in steps and runs:
            # Of a loop that decodes, only the cutting is meant.
            at = Place(function.file, steps["chunk"] if function in draws else function.line)
            yield Row("scheduler", "chunking", function.qualname, at, "steps by a chunk")
        elif len(bounds) > 1 and runs and (function.name in CALLED or _repeated(reading, function) & models):
            yield _row("chunking", function, "its loop takes chunk after chunk")
        elif "batch" in steps:
            yield _row("batch", function, "steps by a batch")
        elif steps and repeated & RUNS:
            yield _row("chunking", function, "runs the model on one piece of a size after the other")
        elif (
            called & CUTS
            and function.loops
            and function.owner is None
            and {"size"} < sizes & {"size", "chunk", "batch"}
        ):
            yield _row("chunking", function, "cuts into pieces of a size that it is given")
        elif any(split(name) & {"semaphore"} for name in held) or (not reading.samples and _enters(function)):
            # Where the code base draws tokens itself, one that is entered limits connections, or files in flight.
            yield _row("admission", function, "a semaphore limits what is in flight")
        elif any(split(name) & {"queue"} and split(name) & LENGTHS for name in counted):
            yield _row("queue", function, "tells or compares how many requests wait")


def _enters(function: Function) -> bool:
    """Whether a function that others wait beside makes a semaphore, or reads one that it is given or that is kept."""
    kept = function.owner.attributes if function.owner is not None else {}
    made = {name for name, each in kept.items() if any("Semaphore" in chain for _, chain in each)}
    # What is only called by that name takes a place for its caller.
    called = {call.name for call in function.calls} - {"Semaphore"}
    named = {name for name in function.reads - called if split(name) & {"semaphore"}}
    return function.is_async and bool(named or made & function.reads)


def _repeated(reading: Reading, function: Function) -> set[Function]:
    """What its loops call."""
    return {edge.callee for edge in reading.graph.edges[function] if edge.call is not None and edge.call.loop}


def _row(role: str, of: Function | Class, why: str) -> Row:
    return Row("scheduler", role, of.qualname, place(of), why)


def _data(reading: Reading) -> Iterator[Row]:
    """How samples are put in order and into batches.

    Rows are what makes a loader of another package, or its sampler, what joins samples to a batch, and what cuts or
    shrinks one.
    """
    handed: set[Function | Class] = {
        value.of
        for function in reading.functions
        for call in function.calls
        for name, chains in call.keywords
        if name == "collate_fn"
        for value in reading.graph.evaluator.values(function, chains)
        if isinstance(value, FunctionValue | Instance)
    }
    for function in reading.functions:
        if function.native or function.nested or function.name in CALLED or reading.is_beside(function.file):
            continue
        called = {call.name for call in function.calls}
        loads = any(LOADER.search(call.name) and not _own_call(reading, function, call) for call in function.calls)
        passes = split(function.name) & {"dataloader", "data"} and any("dataloader" in split(name) for name in called)
        makes = passes or MAKES_LOADER.match(function.name)
        fills = (called & JOINS and called & FILLS) or ("len" in called and any(split(name) & PADS for name in called))
        pads = "pad_sequence" in called or ("max" in called and bool(fills))
        if function in handed or "collate" in split(function.name) or pads:
            yield _row("batch", function, "joins samples to a batch")
        elif loads or makes:
            yield _row("batch", function, "makes the loader of batches")
        elif MICRO.search(function.name) and (function.loops or function.inner or called & CUTS):
            yield _row("chunking", function, "cuts a batch into smaller ones")
        elif len(shrinks := _shrinks(function)) > 1:
            yield _row("batch", function, f"keeps of {', '.join(sorted(shrinks)[:2])} what goes on")
    for of in reading.classes:
        if of.native or reading.is_beside(of.file):
            continue
        queues = [name for name in of.attributes if is_made_queue(of, name)]
        if len(queues) > 1 and any("batch" in name for name in (*queues, of.name.lower())):
            yield _row("queue", of, f"keeps {', '.join(queues[:2])}")
            for method in of.methods.values():
                if method.reads & set(queues) and {call.name for call in method.calls} & (PUTS | TAKES):
                    yield _row("queue", method, f"of {of.name}")
        body = reading.facts.graphs[of.file].body
        above = (each for chain in of.bases for each in reading.graph.evaluator.chain(body, of.file, chain, 0))
        built_on = any(isinstance(each, External) and LOADER.search(each.dotted) for each in above)
        loads = LOADER.search(of.name) is not None and "__iter__" in of.methods
        if built_on or loads or of in handed or split(of.name) & {"collator", "collate"}:
            yield _row("batch", of, "orders samples, or joins them to a batch")


def _shrinks(function: Function) -> set[str]:
    """Attributes that a method replaces by the part of themselves that it is told: those of a batch from which what has
    ended goes. What is given nothing drops the same of each."""
    told = function.owner is not None and function.params.keys() - {"self"}
    sets = function.owner.attributes.items() if function.owner is not None and told else ()
    return {name for name, each in sets if (function, ("self", name, ITEM)) in each}


def _own_call(reading: Reading, function: Function, call: Call) -> bool:
    """Whether a call leads to the code base, not only what it is handed."""
    return any(edge.call is call and edge.how != "callback" for edge in reading.graph.edges[function]) or any(
        isinstance(each, ClassValue) for each in reading.graph.evaluator.values(function, call.callee)
    )


def _queues(of: Class) -> set[str]:
    return {name for name in of.attributes if _is_queue(of, name)}


def role_of(name: str, thing: object) -> str:
    return _role(name, "queue" if isinstance(thing, Class) else "batch")


def _role(name: str, otherwise: str) -> str:
    lower = name.lower()
    return next((role for role, pattern in ROLES if re.search(pattern, lower)), otherwise)


def _fits(reading: Reading, name: str, file: str) -> bool:
    beside = reading.is_beside(file) or says(name, "beside")
    return not beside and not says(name, "not_scheduler") and not says(file.rpartition("/")[2], "not_scheduler")


def _works_on(reading: Reading, of: Class, method: Function, queues: set[str]) -> bool:
    """Whether a method puts requests in or takes them out, is given some, runs them, or decides which."""
    if method.native:
        return bool(method.reads & queues or says(method.name, "scheduler") or re.search(HANDLES, method.name))
    given = {word for name in method.params for word in split(name)} & (ITEMS | WAITS) and _role(method.name, "")
    called = {call.name for call in method.calls}
    moves = bool(method.reads & queues and called & (PUTS | TAKES)) or any(name.startswith("recv") for name in called)
    runs = method.endless or (method in reading.running and bool(method.loops)) or method.name in STEPS
    decides = re.search(ROLES_THAT_DECIDE, method.name.lower()) is not None or says(method.name, "scheduler")
    return (
        moves or runs or (method.end - method.line > SHORT and (bool(given) or decides or bool(method.reads & queues)))
    )


def _turns(method: Function, queues: set[str]) -> bool:
    """Whether a method puts requests back that it takes out, or is the loop that an object runs when it is called."""
    calls = method.calls
    taken = any(call.name in TAKES and len(c) > 1 and c[-2] in queues for call in calls for c in call.callee)
    back = taken and any(call.name in PUTS for call in calls) and not method.name.startswith("__")
    return back or (method.endless and method.name in CALLED)


def _matters(method: Function) -> bool:
    return not method.name.startswith("__") and not SIDE.search(method.name) and not TELLS.match(method.name)


def _classes(reading: Reading) -> dict[Class, str]:
    """Classes that keep a queue of requests, and those that they ask: what orders, admits or batches requests."""
    running, graph = reading.running, reading.graph
    keep: dict[Class, str] = {}
    for of in reading.classes:
        if not _fits(reading, of.qualname, of.file) or _hands_out(of):
            continue
        about = split(of.name) | {word for method in of.methods for word in split(method)}
        about |= {word for method in of.methods.values() for name in method.params for word in split(name)}
        about |= {word for each in of.fields for word in split(each.name)}
        queues = _queues(of)
        if queues and about & SERVES:
            keep[of] = f"keeps {', '.join(sorted(queues)[:3])}"
        elif not of.methods and "schedul" not in of.name.lower():
            # A record of a slot or of a queue's item.
            continue
        elif says(of.name, "scheduler") and (about & SERVES or any(each in running for each in of.methods.values())):
            keep[of] = "builds batches or keeps requests"

    def near(of: Class) -> set[Class]:
        edges = [edge for each in of.methods.values() for edge in graph.edges.get(each, ())]
        back = [edge for each in of.methods.values() for edge in graph.callers.get(each, ())]
        found = {edge.callee.owner for edge in edges} | {edge.caller.owner for edge in back}
        return {each for each in found if each is not None and each is not of}

    def asked(of: Class) -> bool:
        """Whether what runs the model asks a class for its turn: a queue of jobs of another kind is not meant."""
        if not says(of.name, "scheduler") and not any(split(name) & (QUEUES - {"queue"}) for name in _queues(of)):
            return False
        return any(edge.caller in running for each in of.methods.values() for edge in graph.callers.get(each, ()))

    # A queue serves requests where it is part of a run of the model, or of what calls one.
    found = [
        of
        for of in keep
        if not running or of.native or any(each in running for each in of.methods.values()) or asked(of)
    ]
    # Where the model is run by another package: queues from which an endless loop takes.
    found = found or [of for of in keep if any(_takes_again(each, _queues(of)) for each in of.methods.values())]
    seen = set(found)
    for of in found:
        for other in sorted(near(of) & keep.keys() - seen, key=lambda each: each.key):
            seen.add(other)
            found.append(other)
    serving = {of: why for of, why in keep.items() if of in seen}
    return serving if any(_queues(of) for of in serving) else {}


def _takes_again(method: Function, queues: set[str]) -> bool:
    """Whether an endless loop takes from one of the queues."""
    taken = [call for call in method.calls if call.name in TAKES and call.loop]
    return method.endless and any(len(chain) > 1 and chain[-2] in queues for call in taken for chain in call.callee)


def _hands_out(of: Class) -> bool:
    """Whether a class hands places out and takes them back: an allocator, which belongs to the cache.

    What others may not ask for, it does not hand out.
    """
    names = [each.lower() for each in of.methods if not each.startswith("_")]
    return any("alloc" in each for each in names) and any("free" in each for each in names)


def is_made_queue(of: Class, name: str) -> bool:
    return any("Queue" in str(part) or part == "deque" for _, chain in of.attributes.get(name, ()) for part in chain)


def _is_queue(of: Class, name: str) -> bool:
    """A list or queue of requests: by what makes it, and by that something is put in and taken out."""
    if (
        says(name, "not_scheduler")
        or says(name, "not_request")
        or any(each.target == name for method in of.methods.values() for each in method.made)
    ):
        return False
    if is_made_queue(of, name) and split(name) & (QUEUES | ITEMS):
        return True
    used: set[str] = set()
    holds = bool(split(name) & (QUEUES | ({"slot", "pending"} if of.native else set())))
    for method in of.methods.values():
        for write in method.writes:
            # A dictionary keeps the order in which requests come in.
            if holds and any(chain == ("self", name) for chain in write.target):
                used |= {"put"} if {str(chain[0]) for chain in write.value} & method.params.keys() else set()
        for call in method.calls:
            if any(chain[-2:-1] == (name,) for chain in call.callee):
                used.add(call.name)
                # Whatever it is called, it holds requests where a method puts those in that it is given.
                holds |= call.name in PUTS and any(
                    chain[0] in method.params and split(str(chain[0])) & HANDED
                    for chains in call.args[:1]
                    for chain in chains
                )
    if not holds:
        return False
    again = {
        function for function, _ in of.attributes.get(name, ()) if function is not None and function.name != "__init__"
    }
    return bool(used & PUTS) and bool(used & TAKES or again)
