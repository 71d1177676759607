"""The scheduler: queues of requests, the batch that the runner takes from them, and what limits it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles.reach import Reading, Row, place
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
    r"preempt|pause|retract|swap|evict|resume|chunk|priorit|can_|admit|limit|capacity|is_full|busy|batch"
)

SIDE = re.compile(
    r"clean|ready|log|sleep|warm|weight|wait_task|st(?:art|op)(?:_async)?$|close|shutdown|stat|print|dump|metric"
    r"|setup|repr|health|collate|fail"
)
"""Methods beside the work on requests."""
PUTS = frozenset(
    ["append", "put", "appendleft", "put_nowait", "add", "insert", "extend", "push_back", "emplace_back", "push"]
)
TAKES = frozenset(["pop", "popleft", "get", "remove", "get_nowait", "clear", "pop_front", "erase"])


def scheduler_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}
    running = reading.running
    serving = [of for of in reading.classes if _fits(of.qualname, of.file) and not reading.is_beside(of.file)]
    if not any(_is_queue(of, name) for of in serving for name in of.attributes):
        # Where no requests wait, what is called a scheduler orders something else: tiles, steps of a pipeline.
        return []
    for of, why in _classes(reading, running):
        row = Row("scheduler", _role(of.name, "queue"), of.qualname, place(of), why)
        found.setdefault((of.file, of.line), row)
        queues = {name for name in of.attributes if _is_queue(of, name)}
        for method in of.methods.values():
            if _matters(method) and _works_on(reading, of, method, queues):
                role, rank = _role(method.name, "batch"), int(not method.reads & queues)
                row = Row("scheduler", role, method.qualname, place(method), f"of {of.name}", rank)
                found.setdefault((method.file, method.line), row)
    for function in reading.functions:
        if (
            function.owner is None
            and not function.native
            and says(function.name, "scheduler")
            and _fits(function.qualname, function.file)
            and (function in running or re.search(r"req|batch|queue", function.name))
        ):
            role = _role(function.name, "batch")
            row = Row("scheduler", role, function.qualname, place(function), "by what it handles", 1)
            found.setdefault((function.file, function.line), row)
    return list(found.values())


def role_of(name: str, thing: object) -> str:
    return _role(name, "queue" if isinstance(thing, Class) else "batch")


def _role(name: str, otherwise: str) -> str:
    lower = name.lower()
    return next((role for role, pattern in ROLES if re.search(pattern, lower)), otherwise)


def _fits(name: str, file: str) -> bool:
    return not says(name, "not_scheduler") and not says(file.rpartition("/")[2], "not_scheduler")


def _works_on(reading: Reading, of: Class, method: Function, queues: set[str]) -> bool:
    """Whether a method puts requests in or takes them out, runs them, or decides which.

    Of a class without a queue that is named for it, the method's name decides.
    """
    if method.reads & queues or says(method.name, "scheduler") or (method.native and re.search(HANDLES, method.name)):
        return True
    runs = method in reading.running and (bool(method.loops) or method.endless)
    decides = re.search(ROLES_THAT_DECIDE, method.name.lower()) is not None
    return runs or decides


def _matters(method: Function) -> bool:
    return not method.name.startswith("__") and not SIDE.search(method.name)


def _classes(reading: Reading, running: set[Function]) -> Iterator[tuple[Class, str]]:
    """Classes that keep a queue, and that build batches, run them, or are asked by what does."""
    for of in reading.classes:
        if not _fits(of.qualname, of.file):
            continue
        queues = [name for name in of.attributes if _is_queue(of, name)]
        about = {word for method in of.methods for word in split(method)} | split(of.name)
        about |= {word for method in of.methods.values() for name in method.params for word in split(name)}
        serves = bool(
            about
            & {"req", "request", "reqs", "batch", "batching", "slot", "task", "decode", "schedule", "seq", "preempt"}
        )
        if queues and serves:
            yield of, f"keeps {', '.join(sorted(queues)[:3])}"
        elif says(of.name, "scheduler") and (serves or any(method in running for method in of.methods.values())):
            yield of, "builds batches or keeps requests"


def _is_queue(of: Class, name: str) -> bool:
    """A list or queue of requests: by what makes it, and by that something is put in and taken out."""
    if not split(name) & {
        "queue",
        "req",
        "reqs",
        "request",
        "waiting",
        "running",
        "pending",
        "slot",
        "backlog",
    }:
        return False
    if says(name, "not_scheduler") or any(
        each.target == name for method in of.methods.values() for each in method.made
    ):
        return False
    if any("Queue" in str(part) or part == "deque" for _, chain in of.attributes.get(name, ()) for part in chain):
        return True
    used = {
        call.name
        for method in of.methods.values()
        for call in method.calls
        if any(chain[-2:-1] == (name,) for chain in call.callee)
    }
    again = {
        function for function, _ in of.attributes.get(name, ()) if function is not None and function.name != "__init__"
    }
    return bool(used & PUTS) and bool(used & TAKES or again)
