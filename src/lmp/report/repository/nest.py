"""What a function calls down to attention, caches, sampling and kernels, nested as in the code, with each place."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from lmp.codebase.facts import Launch, Place
from lmp.codebase.graph.graph import Edge
from lmp.codebase.graph.records import Function
from lmp.codebase.roles import operators
from lmp.report.document.parts import Fence, Inline, Pointer
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.pieces import cut

WIDTH = 100
INDENT = 2
DEEPEST = 10
"""Calls inside of calls."""
HELPER = 4
"""Lines of a function that is too small to be a step."""
MANY = 3
"""Functions that call a helper, from which on it is no step of theirs."""
LOST = 2
"""Calls of one function that are drawn as lost."""
OPERATORS = (
    operators.SAMPLES | operators.SOFTMAX | operators.MATMULS | operators.TRAINS
    | {"scaled_dot_product_attention", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "cross_entropy"}
)  # fmt: skip
"""Operators of other packages that a run comes down to: they are shown where they are called."""
OTHER = 60
"""Letters of a branch that is told because it is not drawn."""
LANGUAGES = {"python": "python", "cuda": "cpp", "c++": "cpp", "c": "c", "hip": "cpp", "metal": "cpp"}
OPENS = re.compile(r"(?:for|while|if|elif|else|async for|match|case|try|except|finally)\b")
_LOOKS_LIKE_PLACE = re.compile(r"(\.\w+|\w):(?=\d)")


@dataclass(eq=False)
class Step:
    """One line: a statement around calls, a call, or a call that was lost."""

    text: str
    place: Place
    target: Function | None = None
    remark: str = ""
    called: str = ""
    """What is called, as written."""
    launch: Launch | None = None
    around: tuple[Step, ...] = ()
    """The loops and branches that it stands in, outermost first."""
    other: tuple[int, str] = (0, "")
    """Of an ``else`` or ``elif`` the line and text of the branch before it, which may not be drawn."""
    is_alternative: bool = False
    """One of the functions that the call above it may mean."""
    inside: list[Step] = field(default_factory=list)


@dataclass
class Nest:
    root: Function
    steps: list[Step]
    left_out: int = 0
    """Calls that found no room."""
    open_calls: list[tuple[str, Place, str]] = field(default_factory=list)
    """Calls that could not be told from the code alone, with what is known of them."""

    def every(self) -> Iterator[Step]:
        waiting = list(self.steps)
        while waiting:
            step = waiting.pop(0)
            yield step
            waiting = [*step.inside, *waiting]

    @property
    def names(self) -> set[str]:
        return {self.root.qualname, *(step.target.qualname for step in self.every() if step.target is not None)}


@dataclass
class Drawer:
    """Draws functions of one code base.

    ``wanted`` says which of a function's calls matter. ``leading`` is what leads to attention, a draw or a kernel:
    it gets room first.
    """

    base: CodeBase
    edges: dict[Function, list[Edge]]
    lost: dict[Function, list[tuple[int, str, str]]]
    wanted: set[Function]
    launches: dict[tuple[str, str], list[Launch]]
    leading: AbstractSet[Function] = frozenset()

    def nest(self, root: Function, most: int) -> Nest:
        """At most ``most`` lines: calls that lead on first, the nearest of them. Where what matters takes little room,
        every call is shown."""
        found = self._nest(root, most)
        if sum(1 for _ in found.every()) * 3 < most:
            # A test for None that many call is no step of any of them.
            callers = Counter(callee for edges in self.edges.values() for callee in {each.callee for each in edges})
            every = {each for each in self.edges if callers[each] < MANY or not is_helper(each)}
            every = {each for each in every if each in self.wanted or not is_getter(each)}
            found = replace(self, wanted=every)._nest(root, most // 2)
        return found

    def _nest(self, root: Function, most: int) -> Nest:
        every = self.body(root)
        # Of a very long function what leads on is shown before the operators that it calls itself.
        kept = sorted(every, key=lambda step: not (step.target or step.launch or step.inside))[:most]
        found = Nest(root, [step for step in every if step in kept], left_out=len(every) - len(kept))
        lines = sum(1 + len(step.around) + len(step.inside) for step in found.steps)
        expanded = {root}
        waiting = [(each, 1) for step in found.steps for each in (step, *step.inside)]
        while waiting:
            first = min(waiting, key=lambda each: (each[0].target not in self.leading, each[1]))
            waiting.remove(first)
            step, depth = first
            if step.target is None or step.target in expanded or depth >= DEEPEST:
                continue
            inside = self.body(step.target)
            needed = len({each for one in inside for each in one.around}) + sum(1 + len(one.inside) for one in inside)
            if lines + needed > most:
                found.left_out += len(inside)
                continue
            expanded.add(step.target)
            step.inside = inside
            lines += needed
            waiting += [(each, depth + 1) for one in inside for each in (one, *one.inside)]
        for step in found.every():
            if step.remark.startswith(("not resolved", "one of", "by its name")):
                names = " or ".join(each.target.qualname for each in step.inside if each.target and each.is_alternative)
                found.open_calls.append((step.called, step.place, f"{step.remark}{': ' * bool(names)}{names}"))
        return found

    def body(self, function: Function) -> list[Step]:
        """The calls of one function that matter, in the order of its lines."""
        lines = self.base.lines(function.file)
        known: dict[int, Step] = {}
        found: dict[tuple[int, str], Step] = {}
        of: dict[tuple[int, str], list[Edge]] = {}
        for edge in self.edges.get(function, ()):
            if edge.callee in self.wanted and edge.callee is not function and self.is_written(lines, edge):
                # What one call may mean is one line; what is handed over is not what is called.
                called = edge.call.written if edge.call is not None and edge.how != "callback" else ""
                of.setdefault((edge.line, called or edge.callee.name), []).append(edge)
        for (line, name), several in of.items():
            edge = several[0]
            place = Place(function.file, line)
            written = edge.call.written if edge.call else name
            again = any(at == line for at, _ in found)
            text = f"{written}(…)" if again else self.text(lines, line, f"{written}(…)")
            meant = list(dict.fromkeys(each.callee for each in several))
            told = f"one of {len(meant)}" if len(meant) > 1 else _remark(edge)
            remark = ", ".join(filter(None, (told, _chosen(lines, line))))
            around = self.around(lines, line, function, known)
            step = Step(text, place, edge.callee, remark, around=around, called=written)
            if len(meant) > 1:
                step.target = None
                # Nothing of the name is called where it stands: the mark says that it is no quoted line.
                words = ["either", *["or"] * len(meant)]
                step.inside = [
                    Step(f"{word} {each.qualname}(…)", place, each, is_alternative=True)
                    for word, each in zip(words, meant, strict=False)
                ]
            found[line, name] = step
        for launch in self.launches.get((function.file, function.qualname), ()):
            text = self.text(lines, launch.place.line, launch.kernel)
            around = self.around(lines, launch.place.line, function, known)
            # The call graph knows a kernel as a function too.
            same = (key for key, step in found.items() if key[0] == launch.place.line and _starts(step, launch))
            key = next(same, (launch.place.line, launch.kernel))
            found[key] = Step(text, launch.place, launch=launch, around=around)
        for call in function.calls:
            is_leaf = call.name in OPERATORS or operators.ATTENTION.search(f".{call.written}") is not None
            if is_leaf and not any(at == call.line for at, _ in found):
                text = self.text(lines, call.line, f"{call.written}(…)")
                around = self.around(lines, call.line, function, known)
                found[call.line, call.name] = Step(text, Place(function.file, call.line), around=around)
        for line, written, why in self.lost.get(function, ())[:LOST]:
            place = Place(function.file, line)
            around = self.around(lines, line, function, known)
            remark = f"not resolved: {why}"
            found[line, written] = Step(f"{written}(…)", place, remark=remark, around=around, called=written)
        return [found[key] for key in sorted(found)]

    @staticmethod
    def is_written(lines: list[str], edge: Edge) -> bool:
        """Of a function that is handed over: whether its name stands in the call. A variable may hold another one."""
        if edge.how != "callback":
            return True
        named = re.compile(rf"\b{re.escape(edge.callee.name)}\b")
        return any(named.search(line) for line in lines[edge.line - 1 : edge.line + 8])

    @staticmethod
    def text(lines: list[str], line: int, otherwise: str) -> str:
        """The line as it stands; a call that runs over several lines is cut. Of a statement's end, and of an argument
        on a line of its own, the call alone."""
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        ends = text.endswith(",") or sum(map(text.count, ")]}")) > sum(map(text.count, "([{"))
        return text if text and not ends and not text.startswith(("#", ")", ".")) else otherwise

    @staticmethod
    def around(lines: list[str], line: int, function: Function, known: dict[int, Step]) -> tuple[Step, ...]:
        """Loops and branches by how far the lines are indented."""
        if not 0 < line <= len(lines):
            return ()
        found: list[Step] = []
        indent = _indent(lines[line - 1])
        for at in range(line - 1, function.line, -1):
            text = lines[at - 1]
            # In C++ a branch may begin behind the end of another: } else {
            begins = re.sub(r"\}\s*(?=else\b)", "", text.strip())
            if not begins or begins.startswith(("#", ")", "]", "}", "{")):
                continue
            if _indent(text) < indent:
                indent = _indent(text)
                if OPENS.match(begins) and not text.strip().startswith(("try", "finally")):
                    step = known.get(at) or Step(text.strip(), Place(function.file, at), other=_other(lines, at))
                    known[at] = step
                    found.append(step)
        return tuple(reversed(found))


def _chosen(lines: list[str], line: int) -> str:
    """The condition of what stands before an ``if`` on the next line."""
    following = lines[line].strip() if line < len(lines) else ""
    return following if following.startswith("if ") and not following.endswith((":", "{", ";")) else ""


def _other(lines: list[str], at: int) -> tuple[int, str]:
    """The branch before an ``else`` or ``elif``, by its indentation."""
    if re.match(r"\s*(?:\}\s*)?(?:else|elif)\b", lines[at - 1]):
        for above in range(at - 1, 0, -1):
            text = lines[above - 1]
            if OPENS.match(text.strip()) and _indent(text) == _indent(lines[at - 1]):
                return above, text.strip()
    return 0, ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def is_getter(function: Function) -> bool:
    """A method that only gives what its object keeps, or its length."""
    asked = function.owner is not None and not function.native and len(function.params) <= 1
    does = function.writes or function.sets or function.numeric or function.loops or function.abstract
    short = function.end - function.line < HELPER
    return asked and short and not does and all(call.name in GIVES for call in function.calls)


GIVES = frozenset(["len", "list", "tuple", "sum", "min", "max", "any", "all", "int", "bool", "get", "range"])


def is_helper(function: Function) -> bool:
    """Of a few lines, no method, and all that it calls is builtin or handed in: a test for None, a conversion."""
    return (
        function.owner is None
        and not function.native
        and not function.abstract
        and function.end - function.line < HELPER
        and not function.numeric
        and not function.writes
        and all(len(chain) == 1 and _is_plain(chain[0], function) for call in function.calls for chain in call.callee)
    )


def _is_plain(name: object, function: Function) -> bool:
    return isinstance(name, str) and (hasattr(builtins, name) or name in function.params)


def _starts(step: Step, launch: Launch) -> bool:
    of = launch.of
    return of is not None and step.target is not None and step.target.key == (of.file, of.line)


def _remark(edge: Edge) -> str:
    if edge.how == "name":
        return "by its name"
    return {"queue": "read from the queue there", "process": "in a process or thread of its own"}.get(edge.how, "")


def fence(nest: Nest, language: str) -> Fence:
    """The pseudocode of a nest, begun by the function that it is of."""
    comment = "#" if language == "python" else "//"
    place = Pointer(nest.root.file, nest.root.line, symbol=nest.root.name)
    pieces: list[Inline] = _line(0, f"{nest.root.qualname}:", place, comment)
    _draw(nest.steps, 1, comment, pieces)
    return Fence(pieces, LANGUAGES.get(language, "text"))


def _draw(steps: list[Step], depth: int, comment: str, pieces: list[Inline]) -> None:
    drawn: set[Step] = set()
    # A call that stands in a test or in the head of a loop shows that line already.
    heads = {step.place.line for step in steps if OPENS.match(step.text)}
    for step in steps:
        for at, each in enumerate(step.around):
            if each not in drawn and each.place.line not in heads:
                line, text = each.other
                away = bool(line) and all(line != one.place.line for one in drawn)
                told: list[Inline] = [f"(not: {cut(text, OTHER)})"] if away else []
                drawn.add(each)
                pieces += _line(depth + at, each.text, Pointer(each.place.file, each.place.line), comment, told)
        inner = depth + len(step.around)
        beside: list[Inline] = []
        if step.target is not None and not step.inside:
            beside += ["-> ", Pointer(step.target.file, step.target.line, symbol=step.target.name)]
        if step.launch is not None and step.launch.of is not None:
            beside += ["starts ", Pointer(step.launch.of.file, step.launch.of.line)]
        if step.remark:
            beside += [" " if beside else "", f"({step.remark})"]
        place = Pointer(step.place.file, step.place.line)
        if step.is_alternative and step.target is not None:
            place, beside = Pointer(step.target.file, step.target.line, symbol=step.target.name), []
        pieces += _line(inner, step.text, place, comment, beside)
        # What is called in a head stands further in than what the head leads to.
        _draw(step.inside, inner + (2 if step.place.line in heads else 1), comment, pieces)


def _line(depth: int, text: str, place: Pointer, comment: str, beside: list[Inline] | None = None) -> list[Inline]:
    """One line where everything fits, else the place on a line of its own, and what is beside it on one more."""
    indent = " " * min(INDENT * depth, 40)
    text = _LOOKS_LIKE_PLACE.sub(r"\1: ", text)
    head = f"{indent}{cut(text, WIDTH - len(indent))}"
    width = len(place.place) + (len(place.symbol) + 3 if place.symbol else 0)
    pieces: list[Inline] = [head]
    if len(head) + width + 4 <= WIDTH:
        pieces.append(" " * max(2, WIDTH - len(head) - width - len(comment) - 1))
    else:
        pieces.append("\n" + " " * max(len(indent), WIDTH - width - len(comment) - 1))
    pieces += [f"{comment} ", place]
    if beside:
        pieces += _fitting(beside, indent, comment)
    return [*pieces, "\n"]


def _fitting(beside: list[Inline], indent: str, comment: str) -> list[Inline]:
    """What is beside a call, on lines of its own; a place that is too long goes without its symbol."""
    pieces: list[Inline] = []
    start = f"\n{indent[: WIDTH // 3]}  {comment} "
    for piece in beside:
        if isinstance(piece, str) and not piece.strip():
            continue
        if isinstance(piece, Pointer) and len(start) + 10 + len(piece.place) + len(piece.symbol or "") > WIDTH:
            piece = Pointer(piece.file, piece.line)
        if isinstance(piece, str):
            piece = cut(piece, WIDTH - len(start) - 1) if piece.lstrip().startswith("(") else piece
        new_line = isinstance(piece, str) and piece.lstrip().startswith("(")
        pieces += [start if new_line or not pieces else "", piece]
    return pieces
