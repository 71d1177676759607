"""What all sections of a repository report are made from: found once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lmp.codebase.cpp_text import Code
from lmp.codebase.cuda import parameter_name
from lmp.codebase.facts import Definition, EntryPoint, Kernel, Launch, Place
from lmp.codebase.graph.graph import Edge, words
from lmp.codebase.graph.records import Class, Function
from lmp.codebase.parts import NESTING, NamedParts, calls_with, rows_with
from lmp.codebase.roles.attention import RECURRENT, SERVES
from lmp.codebase.roles.likely import is_candidate
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.spine import decode_loops, leaves, stepping
from lmp.codebase.rows import PLAYED, every_row, nesting
from lmp.report.document.parts import Inline
from lmp.report.document.told import Told
from lmp.report.repository.code_base import C_LIKE, CodeBase
from lmp.report.repository.llm import Llm
from lmp.report.repository.mentions import Mentions
from lmp.report.repository.nest import Drawer, Nest, is_getter
from lmp.report.repository.pieces import ASIDE, code, pointer, said, section_title
from lmp.report.repository.signs import Note
from lmp.report.repository.statements import function_at, parameters
from lmp.report.review.places import stands_near

LOOP_LINES, FORWARD_LINES, OPERATOR_LINES = 90, 40, 40
"""Lines of the pseudocode of a loop, of a model's forward, and of an operator of a kernel library."""
COMPONENT_LINES = 24
"""Of one component in the implementation template."""
SHOWN_OPERATORS = 4
NEARLY = 10
"""Hundredths of likelihood by which two rows are as good as alike."""
_NOT_PUBLIC = re.compile(r"^_|kernel|_bwd|backward|naive|_ref\b|reference|test|bench|torch_")
_MATTERS = re.compile(
    r"attn|attention|decode|prefill|paged|matmul|gemm|moe|quant|norm|rope|softmax|sampl|delta|chunk_fwd|recurrent"
    r"|cross_entropy|swiglu|fwd",
    re.IGNORECASE,
)
"""Names of kernels that most of a run's time may go to."""
PARTS = (
    ("scheduler", "scheduler", ("queue", "batch", "admission")),
    ("KV cache", "kv_cache", ("layout",)),
    ("allocator of the cache", "kv_cache", ("allocate",)),
    ("sampling", "sampling", ("sample", "logits")),
    ("sampling parameters", "sampling", ("parameters",)),
    ("attention backend", "attention", ("backend",)),
    ("attention", "attention", ("module", "kernel")),
    ("command", "entry_points", ("cli",)),
    ("server", "entry_points", ("server",)),
    ("library entry", "entry_points", ("library",)),
)
"""Rows of the table: its title, and which rows of what was found may stand in it."""


MOST_TARGETS = 8
"""Functions that one call may lead to, to be followed."""
WHOLE = ("scheduler", "batching", "KV cache", "attention", "recurrent state")
"""Parts that a class plays before one of its methods does."""


@dataclass(frozen=True)
class Component:
    title: str
    definition: Definition
    importers: int
    also: tuple[Definition, ...] = ()
    """What else plays the part, best first."""
    by_name: bool = False
    """Only its name, or that of its class, says so."""


@dataclass(eq=False)
class Study:
    base: CodeBase
    clone: Path
    """As the user gave it."""
    told: Told | None = None
    named: NamedParts | None = None
    """Parts that a reader named, in place of those of rules."""
    plain: Study | None = None
    """The same without them."""
    llm: Llm = field(init=False)

    def __post_init__(self) -> None:
        parts = self.named.parts.parts if self.named is not None else []
        named = {part.section for part in parts} & {"kv_cache", "sampling", "attention"}
        self.llm = Llm(self.base, self.reading, tuple(section_title(each) for each in PLAYED if each in named))

    # -- what it does --------------------------------------------------------------------------------------------------

    @cached_property
    def reading(self) -> Reading:
        return self.plain.reading if self.plain is not None else Reading(self.base.facts)

    @cached_property
    def rows(self) -> list[Row]:
        """Everything that plays a part."""
        return rows_with(self.named.parts, self.reading, self.ruled_rows) if self.named else self.ruled_rows

    @cached_property
    def ruled_rows(self) -> list[Row]:
        """What rules found."""
        return self.plain.ruled_rows if self.plain is not None else every_row(self.reading)

    @cached_property
    def _sections(self) -> dict[str, list[Row]]:
        """By section, the most certain first, then what most others call."""
        callers = {function.key: len(edges) for function, edges in self.reading.graph.callers.items()}
        imported = {(d.place.file, d.place.line): self.base.imported_by(d) for d in self.base.definitions}
        shown = {(edge.callee.file, edge.callee.line) for edge in self.edges}
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.section, []).append(row)

        def weight(row: Row) -> tuple[object, ...]:
            key = row.key
            used = callers.get(key, 0) + imported.get(key, 0) + 4 * (key in shown)
            by_name = row.why.startswith("by its name")
            aside = ASIDE.search(row.place.file) is not None or row.place.file in self.reading.replaced
            return aside, row.rank, by_name, -used, row.place.file, row.place.line

        return {section: sorted(rows, key=weight) for section, rows in found.items()}

    def searched(self, section: str) -> str:
        """Where it was looked for what a section has not."""
        if self.named is None or section not in self.named.parts.sections:
            return "the call graph, tensors that are kept, queues"
        absent = section in self.named.parts.absent
        return f"by the reader who named the parts{', and said to be absent' if absent else ''}"

    def ranked(self, section: str) -> list[Row]:
        return self._sections.get(section, [])

    def sure(self, section: str) -> list[Row]:
        """Rows of a section that are told as parts, and not as candidates."""
        return [row for row in self.ranked(section) if not is_candidate(row)]

    @cached_property
    def ways(self) -> list[Row]:
        """Ways to run it: own ones first, commands before routes, what the README names most often, then by the
        flags and routes of their files."""
        told = {name: at for at, (_, name, _) in reversed(list(enumerate(self.base.facts.told)))}
        flags = Counter(flag.place.file for flag in self.base.facts.flags)
        routes = Counter(each.place.file for each in self.entries if each.kind == "server")

        def weight(row: Row) -> tuple[object, ...]:
            file = row.place.file
            answers = row.why.startswith(("GET ", "POST ", "PUT ", "DELETE ", "WEBSOCKET "))
            aside = bool(ASIDE.search(file)) or not self.base.is_own(file)
            first = told.get(row.symbol.partition(".")[0], len(told)) if row.role == "library" else 0
            return is_candidate(row), aside, answers, first, -flags[file] - routes[file]

        return sorted(self.ranked("entry_points"), key=weight)

    @cached_property
    def loaded(self) -> list[tuple[str, Note, list[str]]]:
        """Calls that load a module by a name that is put together, with the files that it may be."""
        found = []
        for file, note in self.base.notes("loads by name"):
            start = note.text
            if start.startswith("."):
                folders = file.split("/")[:-1]
                up = len(start) - len(start.lstrip(".")) - 1
                start = ".".join([*folders[: len(folders) - up], start.lstrip(".")])
            path = start.replace(".", "/")
            fits = re.compile(rf"(?:.*/)?{re.escape(path)}[^/]*(?:\.py|/__init__\.py)")
            into = [each for each in self.base.signs if fits.fullmatch(each)]
            if into:
                found.append((file, note, into))
        return found

    def started(self, row: Row) -> str:
        """How a way to run it is started, with the flags without which it does not start. Of a file with several
        parsers it is not known which of them asks for a flag."""
        how, file = row.why or row.symbol, row.place.file
        text = self.base.text(file) or ""
        if not how.startswith("python ") or text.count("ArgumentParser(") != 1 or "add_subparsers" in text:
            return how
        needed = [flag.names[-1] for flag in self.base.facts.flags if flag.place.file == file and flag.required]
        return " ".join([how, *(f"{name} {_value_of(name)}".strip() for name in needed)])

    @cached_property
    def settings_in_code(self) -> list[Row]:
        """Settings that are neither flags nor variables of the environment nor keys of a file."""
        kinds = ("config class field", "argument", "key", "constant")
        return [row for row in self.ranked("configuration") if row.role in kinds]

    @cached_property
    def config_classes(self) -> list[list[Row]]:
        """Fields of classes of settings, of each class together: those with most first."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.ranked("configuration"):
            if row.role == "config class field":
                found.setdefault((row.place.file, row.symbol.rpartition(".")[0]), []).append(row)
        return sorted(found.values(), key=lambda rows: -len(rows))

    @cached_property
    def arguments(self) -> list[tuple[Definition, list[str]]]:
        """What the entries of a library take that has a default, each as written, without its type. Of a class come
        first the methods that run a model, then what makes an object."""
        found: dict[Place, tuple[Definition, list[str]]] = {}
        runs: dict[Place, tuple[Definition, list[str]]] = {}
        callers = {edge.caller for edge in self.ruled_edges}
        for row in self.ways:
            of = self.base.definition(row.place.file, row.symbol) if row.role == "library" else None
            if of is None or not self.base.is_own(of.place.file):
                continue
            made = self._made_by(of) if of.kind == "class" else of
            taken = self._filled(of) if any(each.endswith("dataclass") for each in of.decorators) else []
            node = function_at(self.base, made.place) if made is not None else None
            if not taken and made is not None and node is not None:
                of, taken = made, [_without_type(each) for each in parameters(node)]
            if names := _with_default(taken):
                found.setdefault(of.place, (of, names))
            known = self._classes.get((row.place.file, row.place.line))
            methods = known.methods.values() if known is not None else ()
            for method in (each for each in methods if each in callers and each.name[:1] != "_"):
                of = self.base.definition(method.file, method.qualname)
                node = function_at(self.base, Place(method.file, method.line))
                names = _with_default(map(_without_type, parameters(node))) if node is not None else []
                if of is not None and names:
                    runs.setdefault(of.place, (of, names))
        return list({**runs, **found}.values())

    def _filled(self, of: Definition) -> list[list[str]]:
        """The fields of a dataclass that have a default and can be given: name and default."""
        known = self._classes.get((of.place.file, of.place.line))
        fields = known.fields if known is not None else ()
        return [[each.name, each.default] for each in fields if each.default and "init=False" not in each.default]

    def _made_by(self, of: Definition, hops: int = 4) -> Definition | None:
        """The ``__init__`` of a class or of the first of its bases that has one here."""
        made = self.base.methods.get((of.place.file, f"{of.qualname}.__init__"))
        bases = [each for name in of.bases for each in self.base.by_name.get(name.rpartition(".")[2], ())]
        if made is not None or not hops:
            return made
        above = (self._made_by(each, hops - 1) for each in bases if each.kind == "class" and each is not of)
        return next((each for each in above if each is not None), None)

    # -- nesting -------------------------------------------------------------------------------------------------------

    @cached_property
    def edges(self) -> list[Edge]:
        """What runs a model, from the entry points down."""
        if self.named is None:
            return self.ruled_edges
        return calls_with(self.named.parts, self.reading, self.rows, self.ruled_edges)

    @cached_property
    def ruled_edges(self) -> list[Edge]:
        """The nesting that rules found."""
        return self.plain.ruled_edges if self.plain is not None else nesting(self.reading)

    @cached_property
    def loops(self) -> list[Function]:
        """Functions with a loop that runs a model again and again, best first.

        Of a nesting that a reader named its own loops come first, else the first function in it that repeats a call.
        """
        loops = [each for each in decode_loops(self.reading) if each.native or each in stepping(self.reading)]
        if self.reading.reaching(self.reading.samples).isdisjoint(loops):
            # Where nothing is drawn, a loop trains: the one that leads to most of the others is the whole of it.
            below = {each: {edge.callee for edge in self.reading.reached(each, lambda edge: True)} for each in loops}
            loops = sorted(loops, key=lambda each: -len(below[each].intersection(loops)))
        if self.named is not None and NESTING in self.named.parts.absent:
            return []
        if self.named is None or not self.named.parts.nesting:
            return loops
        inside = list(dict.fromkeys(edge.caller for edge in self.edges))
        repeated = {edge.caller for edge in self.edges if edge.call is not None and edge.call.loop}
        own = [each for each in loops if each in inside] or [each for each in inside if each in repeated][:1]
        return list(dict.fromkeys((*own, *loops)))

    @cached_property
    def nests(self) -> list[tuple[str, Nest]]:
        """What is called, in its real nesting, each with what it is."""
        if not self.llm.related:
            return []
        roots = [("The loop", LOOP_LINES, each) for each in self.loops[:1]]
        roots = roots or [("From an operator to what computes it", OPERATOR_LINES, each) for each in self.operators]
        found = [(title, self._drawer.nest(root, most)) for title, most, root in roots]
        models = [each for each in self.reading.attending if each.name in ("forward", "__call__") and each.loops]
        models = [each for each in models if self.loops and not any(each.qualname in nest.names for _, nest in found)]
        if models:
            best = max(models, key=lambda each: (len(self.reading.graph.callers.get(each, ())), -each.line))
            found.append(("One forward of a model", self._drawer.nest(best, FORWARD_LINES)))
        return found

    def nest_of(self, function: Function) -> Nest:
        """A function with what it calls, on few lines."""
        return self._drawer.nest(function, COMPONENT_LINES)

    @cached_property
    def _drawer(self) -> Drawer:
        graph = self.reading.graph
        wanted = {each for edge in self.edges for each in (edge.caller, edge.callee)}
        wanted |= self.reading.reaching(leaves(self.reading))
        played = {row.key for row in self.rows if row.section in PLAYED}
        wanted = {each for each in wanted if not is_getter(each)}
        wanted |= {each for each in self.reading.functions if each.key in played}
        launches: dict[tuple[str, str], list[Launch]] = {}
        for each in self.base.facts.launches:
            launches.setdefault((each.place.file, each.inside), []).append(each)
        starting = {each for each in self.reading.functions if (each.file, each.qualname) in launches}
        above = self.reading.reaching(starting)
        wanted |= above
        leading = self.reading.running | above
        lost = {of: [(each.line, each.written, each.why) for each in found] for of, found in graph.lost.items()}
        edges = dict(graph.edges)
        # Where a reader says what a call leads to, it is neither lost nor one of many.
        for (caller, line), meant in self._meant.items():
            told = {id(each.call) for each in meant if each.call is not None}
            edges[caller] = [*(each for each in edges.get(caller, ()) if id(each.call) not in told), *meant]
            lost[caller] = [each for each in lost.get(caller, ()) if each[0] != line]
        return Drawer(self.base, edges, lost, wanted, launches, leading)

    @property
    def _meant(self) -> dict[tuple[Function, int], list[Edge]]:
        """The calls of a nesting that a reader named, by caller and line."""
        found: dict[tuple[Function, int], list[Edge]] = {}
        for edge in self.edges if self.named is not None and self.named.parts.nesting else ():
            found.setdefault((edge.caller, edge.line), []).append(edge)
        return found

    @cached_property
    def operators(self) -> list[Function]:
        """Of a library of kernels without a loop that runs a model: public functions that lead to a launch, or to
        attention of another package."""
        if self.loops:
            return []
        starts = {
            (each.place.file, each.inside) for each in self.base.facts.launches if self.base.is_own(each.place.file)
        }
        launching = [each for each in self.reading.functions if (each.file, each.qualname) in starts]
        ends = [*launching, *self.reading.attends]
        # What is handed a function, as what puts it in another one's place, computes nothing itself.
        above = self.reading.reaching(ends, lambda edge: edge.how != "callback")
        public = [
            each
            for each in above
            if each.qualname and each.owner is None and each.outer is None and not each.native
            if not _NOT_PUBLIC.search(each.name) and self.base.files[each.file].role != "test"
        ]
        taken = {(d.place.file, d.place.line): self.base.imported_by(d) for d in self.base.definitions}
        public.sort(
            key=lambda each: (-taken.get(each.key, 0), ASIDE.search(each.file) is not None, each.file, each.line)
        )
        return public[:SHOWN_OPERATORS]

    def definition_of(self, function: Function) -> Definition | None:
        return self.base.definition(function.file, function.qualname)

    def language(self, definition: Definition) -> str:
        return self.base.files[definition.place.file].language

    # -- components ----------------------------------------------------------------------------------------------------

    @cached_property
    def queues_requests(self) -> bool:
        """Whether requests wait and are chosen from. Else batches are all that there is to order."""
        roles = ("queue", "priority", "preemption", "admission")
        return any(row.section == "scheduler" and row.role in roles for row in self.rows)

    @cached_property
    def components(self) -> list[Component]:
        """The runtime loop first, then what plays each part best."""
        found: list[Component] = []
        if self.llm.related:
            found += self._component("runtime loop", [self.definition_of(each) for each in self.loops[:5]])
        for title, section, roles in PARTS:
            every = self.ways if section == "entry_points" else self.ranked(section)
            rows = [row for row in every if row.role in roles]
            # A class is as sure as the surest of its methods.
            surest = next((row.symbol for row in rows if not is_candidate(row)), "")
            rows = [row for row in rows if not is_candidate(row) or surest.startswith(f"{row.symbol}.")]
            held = [row for row in rows if not row.why.startswith("by ") and row.why != SERVES]
            named_for = "batching" if title == "scheduler" and not self.queues_requests else title
            if title == "attention":
                # Kernels stand for it where no module of the code base does.
                held = [row for row in held if row.role == roles[0]] or held
                named_for = "recurrent state" if held and held[0].why == RECURRENT else title
            played = [self._played(row) for row in _plainest_first((held or rows)[:8])]
            found += self._component(named_for, played, not held)
        named = {each.definition.qualname for each in found}
        for each in self.operators[:4]:
            if each.qualname not in named:
                found += self._component("operator", [self.definition_of(each)])
        return found

    def _played(self, row: Row) -> Definition | None:
        """The definition of a row; of a line that a reader named the function around it."""
        found = self.base.definition(row.place.file, row.symbol)
        return found if found is not None or self.named is None else self.base.around(*row.key)

    def is_run(self, component: Component) -> bool:
        """Whether calls lead to it from the loop."""
        place = component.definition.place
        return (place.file, place.line) in self._below_the_loop

    def is_below_the_loop(self, file: str, note: Note) -> bool:
        """Whether calls lead from the loop to the function or class around a note, or that it is of."""
        around = self.base.definition(file, note.symbol)
        return around is not None and (file, around.place.line) in self._below_the_loop

    @cached_property
    def _below_the_loop(self) -> set[tuple[str, int]]:
        """Places of the loop and of what it leads to, functions and their classes."""
        found = set(self.loops[:1])
        for loop in self.loops[:1]:
            found |= {edge.callee for edge in self.reading.reached(loop, lambda edge: edge.of <= MOST_TARGETS)}
        return {each.key for each in found} | {each.owner.key for each in found if each.owner is not None}

    def _component(self, title: str, found: Sequence[Definition | None], by_name: bool = False) -> list[Component]:
        kept = [each for each in found if each is not None]
        if title in WHOLE:
            kept.sort(key=lambda each: each.kind != "class")
        if not kept:
            return []
        return [Component(title, kept[0], self.base.imported_by(kept[0]), tuple(kept[1:5]), by_name)]

    @cached_property
    def most_imported(self) -> list[Component]:
        """Functions and classes by how many files take them."""
        # Of a name that is defined in two branches one is shown.
        tops = {(d.place.file, d.name): d for d in reversed(self.base.definitions) if "." not in d.qualname}.values()
        counted = [(self.base.imported_by(each), each) for each in tops]
        ranked = sorted(
            ((n, each) for n, each in counted if n > 1 and each.end - each.place.line > 4),
            key=lambda x: (-x[0], x[1].place.file, x[1].place.line),
        )
        return [Component("shared by most", each, n) for n, each in ranked[:40]]

    def component(self, title: str) -> Component | None:
        return next((each for each in self.components if each.title == title), None)

    @cached_property
    def entries(self) -> list[EntryPoint]:
        """Where it is started, ``main`` of C and C++ included."""
        mains = [
            EntryPoint("script", "main", each.place, "main function")
            for each in self.base.by_name.get("main", ())
            if each.kind == "function" and self.base.files[each.place.file].language in C_LIKE
        ]
        return [*self.base.facts.entries, *mains]

    # -- kernels -------------------------------------------------------------------------------------------------------

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Those of the repository's own code, first; those of tests and examples after them."""
        return sorted(self.base.facts.kernels, key=lambda kernel: not self.base.is_own(kernel.place.file))

    @cached_property
    def ranked_kernels(self) -> list[Kernel]:
        """Own ones first, of these the ones of attention, GEMM and norms, and those with most configurations."""
        return sorted(self.kernels, key=lambda kernel: (-self._weight(kernel), kernel.place.file, kernel.place.line))

    def _weight(self, kernel: Kernel) -> float:
        own = self.base.is_own(kernel.place.file) and not ASIDE.search(kernel.place.file)
        score = 3.0 if own else 0.0
        score += 2 if _MATTERS.search(kernel.name) else 0
        score += 1.5 if kernel.autotuned else 0
        score += min(len(self.launches(kernel)), 4) * 0.5
        score -= 1.5 if re.search(r"bwd|backward|diffus", kernel.name + kernel.place.file) else 0
        return score + min(len(kernel.configs), 40) / 20

    @cached_property
    def _launches(self) -> dict[Place, list[Launch]]:
        found: dict[Place, list[Launch]] = {}
        for launch in self.base.facts.launches:
            if launch.of is not None:
                found.setdefault(launch.of, []).append(launch)
        return found

    def launches(self, kernel: Kernel) -> list[Launch]:
        """The places that start this kernel, and no other of its name."""
        return self._launches.get(kernel.place, [])

    @cached_property
    def mentions(self) -> Mentions:
        """Where kernels stand by name that no launch and no autotuner is found for."""
        return Mentions(self.base, [each for each in self.kernels if not each.autotuned and not self.launches(each)])

    # -- words ---------------------------------------------------------------------------------------------------------

    def what(self, definition: Definition, width: int = 110) -> list[Inline]:
        """What a definition says of itself: its docstring, in quotes. Without one what it is made of, from the code."""
        told = self.docstring(definition, width)
        if told:
            return told
        silent = "its docstring has no summary" if definition.doc else "no docstring"
        if definition.kind != "class":
            taken = self.signature(definition)
            return [f"{silent}; takes ", code(taken, width)] if taken != "()" else [f"{silent}; no parameters"]
        methods = [name for name in definition.methods if not name.startswith("_")]
        if methods:
            # What is set up and asked for says least of what it does.
            shown = sorted(methods, key=lambda name: _PREPARES.match(name) is not None)[:6]
            while len(shown) > 1 and len(", ".join(shown)) > width:
                shown.pop()
            more = [f" and {len(methods) - len(shown)} more"] if len(methods) > len(shown) else []
            return [f"{silent}; methods ", code(", ".join(shown), width), *more]
        fields = self.fields(definition)
        if fields:
            more = [f" and {len(fields) - 6} more"] if len(fields) > 6 else []
            return [f"{silent}; fields ", code(", ".join(fields[:6]), width), *more]
        made = self.base.methods.get((definition.place.file, f"{definition.qualname}.__init__"))
        taken = self.signature(made) if made is not None else "()"
        made_with: list[Inline] = ["; made with ", code(taken, width)] if taken != "()" else []
        bases: list[Inline] = ["; a ", code(", ".join(definition.bases), width)] if definition.bases else []
        return [silent, *bases, *made_with]

    def as_written(self, place: Place, symbol: str) -> str:
        """A symbol as it stands near its place: a flag that a package makes of an argument stands there without its
        dashes, and a destructor without its class."""
        near = "\n".join(self.base.lines(place.file)[max(0, place.line - 2) :][:3])
        if symbol in near or symbol[:1] != "-":
            return symbol.replace("::~", ".~")
        return symbol.lstrip("-").replace("-", "_")

    def pointer(self, place: Place, symbol: str) -> list[Inline]:
        """A place with the symbol where that stands there, and else with what it is a line of."""
        made = pointer(place, self.as_written(place, symbol))
        lines = self.base.lines(place.file)
        if made.symbol is None or stands_near(made.symbol, lines, place.line, place.line):
            return [made]
        return [pointer(place), " of ", code(symbol, 60)]

    def docstring(self, definition: Definition, width: int = 110) -> list[Inline]:
        """Its first line in quotes, where it says more than the name."""
        return ["“", said(definition.doc, width), "”"] if _says_something(definition) else []

    def fields(self, definition: Definition) -> list[str]:
        """The fields in the body of a class."""
        of = self._classes.get((definition.place.file, definition.place.line))
        return [each.name for each in of.fields] if of is not None else []

    def methods(self, row: Row) -> list[Function]:
        """The function that a row is of; of a class all its methods."""
        of = self._classes.get(row.key)
        if of is not None:
            return list(of.methods.values())
        return [each for each in self.reading.functions if each.key == row.key]

    @cached_property
    def _classes(self) -> dict[tuple[str, int], Class]:
        return {each.key: each for each in self.reading.graph.classes}

    def signature(self, definition: Definition) -> str:
        """The parameters of a function, as written, without their types."""
        node = function_at(self.base, definition.place)
        if node is not None:
            return f"({', '.join(re.split('[:=]', each)[0].strip() for each in parameters(node))})"
        code = Code("\n".join(self.base.lines(definition.place.file)[definition.place.line - 1 : definition.end]))
        opening = code.bare.find("(")
        closing = code.closing(opening) if opening >= 0 else -1
        given = code.arguments(opening + 1, closing) if closing > 0 else []
        return f"({', '.join(parameter_name(each) for each in given if each)})"


def _without_type(parameter: str) -> list[str]:
    """``size: int = 3`` as its name and its default, where it has one."""
    return re.split(r"(?::[^=]*)? = ", parameter, maxsplit=1)


def _with_default(taken: Iterable[list[str]]) -> list[str]:
    return [f"{each[0]}={each[1]}" for each in taken if len(each) == 2]


def _value_of(flag: str) -> str:
    """What stands for the value of a flag; a positional argument is its own."""
    return flag.lstrip("-").upper().replace("-", "_") if flag.startswith("-") else ""


_PREPARES = re.compile(
    r"(?:init|is|has|get|set|supports?|check|validate|register|can|should|need|num|log)_|finalize_|max_|size_"
)


def _plainest_first(rows: list[Row]) -> list[Row]:
    """Rows in their order, but for those that are about as likely as the first and named as another of these and by
    what they add to it. The class of the first stands for it."""
    near = [row for row in rows if row.rank <= rows[0].rank + NEARLY or rows[0].symbol.startswith(f"{row.symbol}.")]
    variants = [row for row in near if any(words(other.symbol) < words(row.symbol) for other in near)]
    return [*(row for row in rows if row not in variants), *variants]


def _says_something(definition: Definition) -> bool:
    """Not `Args:`, and not the name once more."""
    words = re.findall(r"[a-z]+", definition.doc.lower())
    name = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", definition.name).lower())
    return (
        len(words) >= 3
        and not definition.doc.rstrip().endswith(":")
        and set(words) - set(name) - {"the", "a", "of"} != set()
    )
