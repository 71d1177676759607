"""What all sections of a repository report are made from: found once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lmp.codebase.facts import Definition, EntryPoint, Kernel, Launch, Place
from lmp.report.document.parts import Inline
from lmp.report.document.told import Told
from lmp.report.repository.code_base import C_LIKE, CodeBase
from lmp.report.repository.llm import Llm
from lmp.report.repository.mentions import Mentions
from lmp.report.repository.nesting.exploring import Nest, explore
from lmp.report.repository.nesting.native import NativeWalk
from lmp.report.repository.nesting.operators import operators
from lmp.report.repository.nesting.resolving import Resolver
from lmp.report.repository.nesting.roots import native_roots, roots
from lmp.report.repository.nesting.steps import summed_up
from lmp.report.repository.nesting.walking import PythonWalk, function_at
from lmp.report.repository.pieces import code, said
from lmp.report.repository.roles import Component, Roles

LOOP_LINES, FORWARD_LINES, OPERATOR_LINES = 130, 60, 40
"""Lines of the pseudocode of a loop, of a model's forward, and of an operator of a kernel library."""
SHOWN_OPERATORS = 4
TRIED_OPERATORS = 12
"""Operators that are followed until so many of them have led to a kernel."""
STEPS = ("schedule", "step", "_next", "_step", "next", "run_batch", "run")
"""Methods of a scheduler that run again and again."""


@dataclass(eq=False)
class Study:
    base: CodeBase
    clone: Path
    """As the user gave it."""
    told: Told | None = None
    roles: Roles = field(init=False)
    llm: Llm = field(init=False)

    def __post_init__(self) -> None:
        self.roles, self.llm = Roles(self.base), Llm(self.base)

    # -- nesting -------------------------------------------------------------------------------------------------------

    @cached_property
    def loops(self) -> list[Definition]:
        """Functions with a loop that runs a model, best first."""
        found = roots(self.base)
        return found or native_roots(self.base)

    @cached_property
    def nests(self) -> list[tuple[str, Nest]]:
        """What is called, in its real nesting, each with what it is."""
        if not self.llm.related:
            return []
        resolver = Resolver(self.base.root)
        with resolver.reading():
            return self._nests(resolver)

    def _nests(self, resolver: Resolver) -> list[tuple[str, Nest]]:
        python, native = PythonWalk(self.base, resolver), NativeWalk(self.base)
        found: list[tuple[str, Nest]] = []
        if self.loops:
            first = self.loops[0]
            walk = python if self.language(first) == "python" else native
            found.append(("The loop", explore(first, walk, LOOP_LINES)))
            models = python.callees.models
            # A loop that reaches the model has its forward inside already.
            if models and not {each.qualname for each in models} & found[0][1].names:
                found.append(("One forward of a model", explore(models[0], python, FORWARD_LINES)))
            step = self._step(found[0][1])
            if step is not None:
                found.append(("One step of the scheduler", explore(step, python, FORWARD_LINES)))
            return found
        for operator in self.operators[:TRIED_OPERATORS]:
            nest = explore(operator, python, OPERATOR_LINES)
            if len(found) < SHOWN_OPERATORS and any(step.kind == "launch" for step in nest.every()):
                found.append(("From an operator to its kernels", nest))
        return found

    @cached_property
    def operators(self) -> list[Definition]:
        """Of a library of kernels without a loop that runs a model."""
        return [] if self.loops else operators(self.base)

    def _step(self, nest: Nest) -> Definition | None:
        """What the scheduler does again and again, where the loop on show does not come through it."""
        scheduler = self.roles.components.get("scheduler")
        if scheduler is None or any(name.startswith(f"{scheduler.definition.qualname}.") for name in nest.names):
            return None
        place = scheduler.definition.place.file
        wanted = (f"{scheduler.definition.qualname}.{name}" for name in STEPS)
        return next((found for name in wanted if (found := self.base.methods.get((place, name)))), None)

    def language(self, definition: Definition) -> str:
        return self.base.files[definition.place.file].language

    # -- components ----------------------------------------------------------------------------------------------------

    @cached_property
    def components(self) -> list[Component]:
        """The runtime loop first, then each part that something plays."""
        found = list(self.roles.components.values())
        if self.loops and self.llm.related:
            loop = self.loops[0]
            others = tuple(self.loops[1:5])
            found = [each for each in found if each.definition is not loop]
            found.insert(0, Component("runtime loop", loop, 0, self.base.imported_by(loop), others))
        named = {each.definition.qualname for each in found}
        for each in self.operators[:4]:
            if each.qualname not in named:
                found.append(Component("operator", each, 0, self.base.imported_by(each)))
        return found

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

    def entries_of(self, file: str) -> int:
        """How many servers and routes a file has."""
        return self._servers[file]

    @cached_property
    def _servers(self) -> Counter[str]:
        return Counter(each.place.file for each in self.entries if each.kind == "server")

    # -- kernels -------------------------------------------------------------------------------------------------------

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Those of the repository's own code, first; those of tests and examples after them."""
        return sorted(self.base.facts.kernels, key=lambda kernel: not self.base.is_own(kernel.place.file))

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

    def what(self, definition: Definition, width: int = 110) -> Inline | list[Inline]:
        """What a definition is: the first line of its docstring, else its methods, else its parameters."""
        if _says_something(definition):
            return said(definition.doc, width)
        methods = [name for name in definition.methods if not name.startswith("_")]
        if definition.kind == "class" and methods:
            # What is set up and asked for says least of what it does.
            ranked = sorted(methods, key=lambda name: _PREPARES.match(name) is not None)
            shown = list(ranked[:6])
            while len(shown) > 1 and len(", ".join(shown)) > width:
                shown.pop()
            more = [f" and {len(methods) - len(shown)} more"] if len(methods) > len(shown) else []
            return ["methods ", code(", ".join(shown), width), *more]
        if definition.kind == "class":
            bases = ", ".join(definition.bases)
            made = self.base.methods.get((definition.place.file, f"{definition.qualname}.__init__"))
            taken = self.signature(made) if made is not None else "()"
            with_: list[Inline] = [" made with ", code(taken, width)] if taken != "()" else []
            return [*(["a ", code(bases, width)] if bases else ["a class without methods of its own"]), *with_]
        return self._done(definition, width)

    def _done(self, definition: Definition, width: int) -> Inline | list[Inline]:
        """What a function without a docstring takes and returns, or sets, or calls."""
        taken = self.signature(definition)
        node = function_at(self.base, definition)
        does = summed_up(node) if node is not None else None
        if does is None:
            return code(taken, width) if taken != "()" else "takes nothing and has no docstring"
        how, what = does
        if taken == "()":
            return [f"{how} ", code(what, width)]
        return [code(taken, width // 2), f" {how} ", code(what, width // 2)]

    def signature(self, definition: Definition) -> str:
        """The parameters of a function, as written, without their types."""
        text = " ".join(self.base.lines(definition.place.file)[definition.place.line - 1 : definition.place.line + 30])
        found = re.search(r"\((.*)", text)
        inner, depth = "", 1
        for sign in found[1] if found else "":
            depth += sign in "([{"
            depth -= sign in ")]}"
            if not depth:
                break
            inner += sign
        names = [re.split(r"[:=]", part)[0].strip() for part in _top_commas(inner)]
        names = [name.split()[-1].lstrip("*&") if " " in name else name for name in names if name]
        return f"({', '.join(name for name in names if name not in ('self', 'cls', '/', '*'))})"


_PREPARES = re.compile(
    r"(?:init|is|has|get|set|supports?|check|validate|register|can|should|need|num|log)_|finalize_|max_|size_"
)


def _top_commas(text: str) -> list[str]:
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _says_something(definition: Definition) -> bool:
    """Not `Args:`, and not the name once more."""
    words = re.findall(r"[a-z]+", definition.doc.lower())
    name = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", definition.name).lower())
    return (
        len(words) >= 3
        and not definition.doc.rstrip().endswith(":")
        and set(words) - set(name) - {"the", "a", "of"} != set()
    )
