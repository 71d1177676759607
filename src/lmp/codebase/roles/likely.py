"""How likely a thing plays a part in a run, and a call stands in its nesting: witnesses, and what each of them weighs.

A witness is read from the code: how far it is from where a run begins and ends, what is called, read and written, whose
rule found it, what it is named. No witness is enough. ``weights.toml`` has what each weighs, fitted over the code bases
of ``tests/data/truth`` by ``scripts/fit_roles.py``: the truths were written by readers.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from lmp.codebase.facts import Place
from lmp.codebase.graph.graph import CALLED, Edge
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.roles import turns
from lmp.codebase.roles.begins import Begins
from lmp.codebase.roles.paths import SETS_UP, Paths, is_step, plain_run, shapes
from lmp.codebase.roles.reach import Reading, Row, works
from lmp.codebase.roles.strength import Thing, Weighing, name_of
from lmp.codebase.roles.words import field_words, parts_of, split

FILE = Path(__file__).with_name("weights.toml")
LEAST = {
    "entry_points": 0.65,
    "kv_cache": 0.45,
    "scheduler": 0.25,
    "sampling": 0.45,
    "attention": 0.55,
    "nesting": 0.15,
    "pitfalls": 0.04,
}
"""How likely it must be. What the nesting and the pitfalls show stands in the code in any case: only whether it matters
is not sure."""
SURE = {"entry_points": 0.6, "scheduler": 0.8, "sampling": 0.6}
"""How likely it must be to be told as one, and not as a candidate. Of less likely rows fewer than half were right on
code bases that were left out of the fit (docs/reports.md)."""
MANY_RULES = ("scheduler",)
"""Sections whose rules differ in how often they are right."""
IN_ANY_CASE = ("nesting", "pitfalls")
"""Sections of which a name alone is no mistake."""
KEPT = 0.15
"""How likely what rules show must be at least."""
ALONE = 0.1
"""How likely what no rule shows must be by what its code does, whatever it, its file and its folder are named."""
NAMES = ("named ", "file ", "folder ")
ROLE_WORDS = frozenset(
    (
        *("add", "admit", "advance", "alloc", "allocate", "append", "apply", "available", "backend"),
        *("batch", "block", "bytes", "cache", "can", "capacity", "check", "choose", "chunk", "clear"),
        *("config", "copy", "count", "create", "decode", "dispatch", "drop", "empty", "evict", "export"),
        *("extend", "fetch", "filter", "finish", "fork", "forward", "free", "fwd", "generate", "get"),
        *("grow", "handle", "has", "import", "init", "insert", "join", "kernel", "kv", "len", "length"),
        *("limit", "load", "logit", "logits", "loop", "make", "mask", "match", "max", "memory", "merge"),
        *("metadata", "min", "new", "next", "num", "order", "page", "param", "params", "penalty", "plan"),
        *("pop", "preempt", "prefill", "prepare", "priority", "process", "processor", "push", "put"),
        *("queue", "read", "recv", "ref", "release", "remove", "reorder", "reserve", "reset", "resize"),
        *("restore", "resume", "run", "sample", "save", "schedule", "scheduler", "seed", "seeds", "select"),
        *("send", "set", "shift", "size", "sort", "split", "step", "store", "submit", "swap", "table"),
        *("take", "token", "top", "trim", "truncate", "update", "used", "wait", "write"),
    )
)
"""Words of a name that tell one role of a section from another, and never whether it has one."""
OUTSIDE = (
    *("abstract", "aside", "beside", "callees", "callers", "class", "constructor"),
    *("lines", "method", "named ", "private", "subclasses", "things "),
)
"""Of what users begin with, where it stands and what it is named tell more than what it does."""
WORDS = "named word "
SMALL = 64
"""Things of a code base that count at least: of fewer, how many play a part says nothing."""
MOST_EDGES, MOST_ROWS = 40, 80
"""What is shown at most. Nobody reads a longer list."""
NEAR = (0, 1, 2, 4, 7)
"""Calls to an end of a run, or from its beginning, up to which something is near."""
Witnesses = dict[str, float]
Key = tuple[str, int]


@cache
def weights() -> dict[str, dict[str, float]]:
    """Section -> witness -> what it weighs; ``""`` is what all share."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


class Likely:
    """Witnesses of one code base. ``ruled`` are the rows that rules found, ``shown`` those with support enough."""

    def __init__(
        self,
        weighing: Weighing,
        ruled: Mapping[str, list[Row]],
        shown: Iterable[Row],
        begun: Iterable[Row],
        paths: Paths,
    ) -> None:
        self.reading: Reading = weighing.reading
        self.weighing = weighing
        self.begins = Begins(self.reading, {row.key: row for row in begun})
        self.paths = paths
        self._functions: dict[Function, Witnesses] = {}
        self.ruled = {section: {row.key: row for row in rows} for section, rows in ruled.items()}
        self.shown: dict[str, dict[Key, Row]] = {section: {} for section in ruled}
        for row in shown:
            if row.section in self.shown:
                self.shown[row.section][row.key] = row

    # -- what is shown -------------------------------------------------------------------------------------------------

    def rows(self, roles: Mapping[str, Callable[[str, Thing], str]]) -> list[Row]:
        """What likely plays a part, by section, the likeliest first. ``roles`` tells what role a thing has that no rule
        found."""
        found: dict[str, list[tuple[float, Row]]] = {section: [] for section in roles}
        weight = weights()
        for section, key, witnesses in self.things():
            chance = shown_at(section, weight[section], witnesses)
            if chance is None:
                continue
            row = self.row(section, key, roles[section])
            if row is not None:
                found[section].append((chance, replace(row, role=likeliest_role(row, witnesses))))
        for rows in found.values():
            rows.sort(key=lambda each: -each[0])
        return [
            replace(row, rank=-round(100 * chance), chance=chance)
            for rows in found.values()
            for chance, row in rows[:MOST_ROWS]
        ]

    def row(self, section: str, key: Key, role: Callable[[str, Thing], str]) -> Row | None:
        """What a section says of a thing: as its rules have it, else by the thing alone."""
        row = self.shown[section].get(key) or self.ruled[section].get(key)
        thing = self.weighing.things.get(key)
        if row is None and thing is not None:
            row = Row(section, role(thing.name, thing), name_of(thing), Place(*key), "by its witnesses")
        return row

    def beginnings(self) -> list[Row]:
        """Ways to run: those that rules found as they order them, then others, the likeliest first."""
        weight = weights()["entry_points"]
        chances = ((shown_at("entry_points", weight, witnesses), key) for key, witnesses in self.starts())
        found = {key: chance for chance, key in chances if chance is not None}
        ruled = [row for key, row in self.begins.ruled.items() if key in found]
        others = sorted(found.keys() - self.begins.ruled.keys(), key=lambda key: (-found[key], key))
        added = others[: max(0, MOST_ROWS - len(ruled))]
        rows = [*ruled, *(self.begins.row(key, self.weighing.things.get(key)) for key in added)]
        return [replace(row, chance=found[row.key]) for row in rows]

    def nesting(self) -> list[Edge]:
        if not self.paths.ends:
            # Nothing attends, draws, trains, makes a batch or starts a kernel: no model is run, and no operator.
            return []
        weight = weights()["nesting"]
        chances = ((shown_at("nesting", weight, witnesses), edge) for edge, witnesses in self.calls())
        found = [(chance, edge) for chance, edge in chances if chance is not None]
        found.sort(key=lambda each: (-each[0], each[1].caller.key, each[1].line))
        return [edge for _, edge in found[:MOST_EDGES]]

    # -- witnesses -----------------------------------------------------------------------------------------------------

    def things(self) -> Iterator[tuple[str, Key, Witnesses]]:
        """Everything that may play a part in a section, with its witnesses."""
        inside = {section: Counter(file for file, _ in ruled) for section, ruled in self.ruled.items()}
        found = {*self.weighing.things, *(key for rows in (*self.ruled.values(), *self.shown.values()) for key in rows)}
        for key in sorted(found):
            common = self._of_thing(key)
            near = self.weighing.near(key)
            for section in self.ruled:
                yield section, key, common | self._of_section(section, key, inside[section], near)

    def starts(self) -> Iterator[tuple[Key, Witnesses]]:
        """Everything that users may begin with: nothing whose name is private."""
        public = (key for key, thing in self.weighing.things.items() if thing.name[:1] != "_")
        # Nobody imports what stands in a function, but a server may be asked for it.
        public = (key for key in public if key in self.begins.routes or not self._is_nested(key))
        for key in sorted({*public, *self.begins.ruled, *self.begins.blocks}):
            thing = self.weighing.things.get(key)
            every = self._of_thing(key).items()
            found = {name: value for name, value in every if name.startswith(OUTSIDE) and not name.startswith(WORDS)}
            found.update(_kept(dict(self.begins.witnesses(key, thing))))
            if key in self.begins.ruled:
                found["shown"] = 1.0
            yield key, found

    def _is_nested(self, key: Key) -> bool:
        thing = self.weighing.things.get(key)
        return isinstance(thing, Function) and thing.nested

    def calls(self) -> Iterator[tuple[Edge, Witnesses]]:
        """Every call between own functions, with its witnesses; of calls of one function by another the first."""
        pairs: dict[tuple[Function, Function], list[tuple[Edge, int, bool]]] = {}
        for caller, sites in self.paths.sites.items():
            if self.reading.is_own(caller.file):
                for site in sites:
                    chosen = set(map(id, self.paths.alternatives(site)))
                    for edge in site:
                        pairs.setdefault((caller, edge.callee), []).append((edge, len(site), id(edge) in chosen))
        into: dict[Function, float] = {}
        out_of: dict[Function, float] = {}
        for (caller, callee), share in self.paths.shares.items():
            into[callee] = max(share, into.get(callee, 0.0))
            out_of[caller] = max(share, out_of.get(caller, 0.0))
        for (caller, callee), every in pairs.items():
            found = {f"caller {name}": value for name, value in self._of_function(caller).items()}
            found.update((f"callee {name}", value) for name, value in self._of_function(callee).items())
            found["carries a run"] = (caller, callee) in self.paths.shares
            found["share of a run"] = self.paths.shares.get((caller, callee), 0.0)
            found["stands for the others"] = any(chosen for _, _, chosen in every)
            found["calls of it"] = len(every)
            found["in a loop"] = max(min(edge.call.loop, 2) if edge.call is not None else 0 for edge, _, _ in every)
            found["targets"] = math.log2(min(size for _, size, _ in every))
            found.update((f"found by {how}", 1.0) for how in {edge.how for edge, _, _ in every})
            found["same file"] = caller.file == callee.file
            found["same object"] = caller.owner is not None and caller.owner is callee.owner
            found["same folder"] = caller.file.rpartition("/")[0] == callee.file.rpartition("/")[0]
            for kind, far in self.far.items():
                found[f"nearer to {kind}"] = far.get(callee, math.inf) < far.get(caller, -1.0)
            found["share into the caller"] = into.get(caller, 0.0)
            found["share out of the callee"] = out_of.get(callee, 0.0)
            found.update((f"caller {part}", 1.0) for part in self._played(caller.key))
            found.update((f"callee {part}", 1.0) for part in self._played(callee.key))
            found["calls of the code base"] = math.log2(1 + max(SMALL, len(pairs)))
            yield every[0][0], found

    def _played(self, key: Key) -> Iterator[str]:
        """What rules say of it, in one section and in any."""
        for what, sections in (("ruled", self.ruled), ("shown", self.shown)):
            for section, rows in (*sections.items(), ("entry_points", self.begins.ruled)):
                if key in rows:
                    yield from (what, f"{what} in {section}")

    @cached_property
    def far(self) -> dict[str, Mapping[Function, float]]:
        """Of each end of a run, and of the model, how far it is from there."""
        ends = {kind: ways.far for kind, ways in self.paths.ends.items()}
        return {**ends, "the model": self.paths.model.far}

    @cached_property
    def below(self) -> dict[str, Mapping[Function, int]]:
        """How many calls it is from what users run, from what they import, and from the model."""
        entries = self.paths.entries
        model = self.reading.model
        begun = {
            "what users run": [each for row, each in entries if row.role != "library"],
            "what users import": [each for row, each in entries if row.role == "library"],
            "the model": [model] if model is not None else [],
        }
        return {kind: self._down(starts) for kind, starts in begun.items()}

    def _down(self, starts: Iterable[Function]) -> dict[Function, int]:
        found = dict.fromkeys(starts, 0)
        waiting = list(found)
        for function in waiting:
            for site in self.paths.sites.get(function, ()):
                for edge in self.paths.alternatives(site):
                    if edge.callee not in found:
                        found[edge.callee] = found[function] + 1
                        waiting.append(edge.callee)
        return found

    @cached_property
    def degrees(self) -> tuple[Counter[Function], Counter[Function]]:
        """How many own functions call each, and how many it calls."""
        pairs = {(edge.caller, edge.callee) for sites in self.paths.sites.values() for site in sites for edge in site}
        return Counter(callee for _, callee in pairs), Counter(caller for caller, _ in pairs)

    def _of_function(self, function: Function) -> Witnesses:
        """Witnesses of a function alone, worked out once."""
        if function in self._functions:
            return self._functions[function]
        callers, callees = self.degrees
        name = function.name
        found: Witnesses = {
            "aside": self.reading.is_aside(function),
            "beside": self.reading.is_beside(function.file),
            "sets up": bool(SETS_UP.match(name)),
            "private": name.startswith("_") and not name.startswith("__"),
            "constructor": name == "__init__",
            "module's call": name in CALLED,
            "method": function.owner is not None,
            "abstract": function.abstract,
            "native": function.native,
            "kernel": function.key in self.reading.kernels,
            "lines": math.log2(1 + function.end - function.line),
            "calls": math.log2(1 + len(function.calls)),
            "callers": math.log2(1 + callers[function]),
            "callees": math.log2(1 + callees[function]),
            "loops": function.loops > 0,
            "shapes": shapes(function),
            "step of training": is_step(function),
            "plain run": plain_run(function) is not None,
            "attends": function in self.paths.attention,
            "samples": function in self.reading.samples,
            "trains": function in self.paths.training,
        }
        for kind, far in self.far.items():
            found.update(_near(f"to {kind}", far.get(function)))
        for kind, depth in self.below.items():
            found.update(_near(f"below {kind}", depth.get(function)))
        found.update((f"named {part}", 1.0) for part in parts_of(name))
        self._functions[function] = _kept(found)
        return self._functions[function]

    def _inside(self, function: Function) -> Witnesses:
        """What a function does, with the words that it says."""
        found = dict(self._of_function(function))
        reading = self.reading
        given, read, called = list(function.params), list(function.reads), [call.name for call in function.calls]
        for verb, names in (("named", [function.name]), ("given", given), ("reads", read)):
            said = {word for name in names for word in split(name)}
            found.update((f"{verb} word {word}", 1.0) for word in field_words() & said)
        for verb, names in (("given", given), ("reads", read), ("calls", called)):
            counted = Counter(part for name in names for part in parts_of(name))
            found.update((f"{verb} {part}", min(5, count)) for part, count in counted.items())
        found.update(
            {
                "writes items": bool(function.writes),
                "makes tensors": bool(function.made),
                "keeps tensors": any(made.on_self for made in function.made),
                "multiplies": function.numeric > 0,
                "async": function.is_async,
                "endless": function.endless,
                "parameters": min(12, len(function.params)),
                "nested": function.nested,
                "works": works(function),
                "gets logits": function in reading.runs_model,
                "leads to attention or sampling": function in reading.running,
                "leads to attention": function in reading.attending,
                "starts a kernel of attention": function in reading.starts_attention,
                "computes attention": function in reading.attends,
                "in the loop": function in self.weighing.reached,
            }
        )
        found.update(turns.of_function(reading, function))
        return found

    def _of_thing(self, key: Key) -> Witnesses:
        thing = self.weighing.things.get(key)
        file = key[0]
        folder, _, base = file.rpartition("/")
        found: Witnesses = {}
        if isinstance(thing, Function):
            found = dict(self._inside(thing))
        elif isinstance(thing, Class):
            for method in thing.methods.values():
                if method in self.reading.graph.edges:
                    for name, value in self._inside(method).items():
                        found[name] = max(found.get(name, 0.0), value)
            fields = [*(each.name for each in thing.fields), *thing.attributes]
            kept = Counter(part for each in fields for part in parts_of(each))
            found.update((f"keeps {part}", min(5, count)) for part, count in kept.items())
            found.update(
                {
                    "class": 1.0,
                    "methods": min(20, len(thing.methods)),
                    "fields": min(20, len(thing.fields)),
                    "attributes": min(20, len(thing.attributes)),
                    "subclasses": math.log2(1 + len(self.reading.graph.evaluator.subclasses.get(thing, ()))),
                    "inner": thing.outer is not None,
                    "lines": math.log2(1 + thing.end - thing.line),
                    "native": thing.native,
                    "beside": self.reading.is_beside(file),
                    "aside": self.reading.is_aside(thing),
                    "private": thing.name.startswith("_"),
                }
            )
            found.update(turns.of_class(thing))
        elif thing is not None:
            found.update({"kernel of Triton or CUDA": 1.0, "beside": self.reading.is_beside(file)})
        else:
            found["line within a function"] = 1.0
        if thing is not None and not isinstance(thing, Function):
            found.update((f"named word {word}", 1.0) for word in field_words() & split(thing.name))
            found.update((f"named {part}", 1.0) for part in parts_of(thing.name))
        found.update((f"file {part}", 1.0) for part in parts_of(base))
        found.update((f"folder {part}", 1.0) for part in parts_of(folder))
        found["things of the file"] = math.log2(1 + self._in_file[file])
        found["things of the code base"] = math.log2(1 + max(SMALL, len(self.weighing.things)))
        found["no Python"] = not file.endswith(".py")
        return {**_kept(found), "shared": self.weighing.shared(thing)}

    @cached_property
    def _in_file(self) -> Counter[str]:
        return Counter(file for file, _ in self.weighing.things)

    def _of_section(self, section: str, key: Key, inside: Counter[str], near: set[Key]) -> Witnesses:
        """What the rules of one section say of it; ``near`` is what it calls and what calls it."""
        ruled = self.ruled[section]
        row = ruled.get(key)
        thing = self.weighing.things.get(key)
        asked = row or Row(section, "", name_of(thing) if thing is not None else "", Place(*key))
        # Of a section with many rules, the first word of the reason tells which it was; what follows may be names.
        rule = row.why.split(" ", 1)[0] if row is not None and section in MANY_RULES else ""
        return {
            "ruled": row is not None,
            **({f"ruled as it {rule}": 1.0} if rule else {}),
            "ruled first": row is not None and row.rank == 0,
            "ruled later": row is not None and row.rank >= 1,
            "points": self.weighing.weight(section, asked, ruled.keys()),
            "shown": key in self.shown[section],
            "ruled in its file": math.log2(1 + inside[key[0]]),
            "share of its file": inside[key[0]] / max(1, self._in_file[key[0]]),
            "ruled in all": math.log2(1 + len(ruled)),
            "calls what is ruled": not ruled.keys().isdisjoint(near),
            "of a ruled class": isinstance(thing, Function) and thing.owner is not None and thing.owner.key in ruled,
            "has a ruled method": isinstance(thing, Class) and any(m.key in ruled for m in thing.methods.values()),
        }


def _kept(found: Witnesses) -> Witnesses:
    """Without what does not hold: most of it."""
    return {name: float(value) for name, value in found.items() if value}


def _near(what: str, far: float | None) -> Iterator[tuple[str, float]]:
    if far is not None:
        yield f"{what} leads", 1.0
        yield from ((f"{what} within {most}", 1.0) for most in NEAR if far <= most)


def shown_at(section: str, weight: Mapping[str, float], witnesses: Mapping[str, float]) -> float | None:
    """How likely it is, where that is enough to be shown."""
    chance = chance_of(weight, witnesses)
    if witnesses.get("shown"):
        return chance if chance >= KEPT else None
    enough = chance >= LEAST[section] and (section in IN_ANY_CASE or alone(weight, witnesses))
    return chance if enough else None


def of_role(row: Row) -> Witnesses:
    """What tells which role a thing has in its section: its rule's word, the verbs of its name, and what it is."""
    name = row.symbol.rpartition(".")[2]
    return {f"ruled as {row.role}": 1.0, **{f"says {word}": 1.0 for word in sorted(ROLE_WORDS & split(name))}}


def likeliest_role(row: Row, witnesses: Witnesses) -> str:
    """The role that its witnesses speak for most; that of its rule where none was fitted."""
    every = {**witnesses, **of_role(row)}
    begun = f"{row.section}: "
    chances = {
        name.removeprefix(begun): chance_of(weight, every)
        for name, weight in weights().items()
        if name.startswith(begun)
    }
    return max(chances, key=lambda each: (chances[each], each == row.role), default=row.role)


def is_candidate(row: Row) -> bool:
    """Whether a row is too unlikely to be told as a part."""
    return row.chance is not None and row.chance < SURE.get(row.section, 0.0)


def alone(weight: Mapping[str, float], witnesses: Mapping[str, float]) -> bool:
    """Whether what a thing does speaks for it, without names."""
    unnamed = {name: value for name, value in witnesses.items() if not name.startswith(NAMES)}
    return chance_of(weight, unnamed) >= ALONE


def chance_of(weight: Mapping[str, float], witnesses: Mapping[str, float]) -> float:
    points = weight.get("", 0.0) + sum(weight[name] * value for name, value in witnesses.items() if name in weight)
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, points))))
