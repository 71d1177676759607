"""Reads one file of C++, CUDA or Metal into the records of the call graph: its definitions, and its blanked text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lmp.codebase.cpp_text import Code, without_comments
from lmp.codebase.cuda import launching, started
from lmp.codebase.facts import Definition
from lmp.codebase.graph.records import Applied, Call, Chain, Class, FileGraph, Function, Hazard, settle

CALL = re.compile(
    r"\b(?:(?P<receiver>[A-Za-z_]\w*+(?:\(\)|\[[^\[\]\n]{0,80}\])?) ?(?:->|\.) ?|(?P<scope>[A-Za-z_]\w*+) ?:: ?)?"
    r"(?P<name>[A-Za-z_]\w*+) ?(?:<[^;(){}<>\n]{0,200}(?:<[^;(){}<>\n]{0,100}>[^;(){}<>\n]{0,100}){0,3}>)?"
    r" ?(?:\n ?)?(?:\(|<<<)"
)
"""A word is looked at once, from its beginning: generated code has long ones."""
MADE = re.compile(
    r"\bmake_(?:unique|shared) ?< ?(?:[A-Za-z_]\w*::)*([A-Za-z_]\w*)|\bnew (?:[A-Za-z_]\w*::)*([A-Za-z_]\w*) ?[({<]"
)
"""A class of which an object is made."""
REFERENCE = re.compile(r"\b([A-Za-z_]\w{5,}+) ?<(?=[A-Za-z_0-9:(\s])")
DECLARED = re.compile(
    r"\b(?:std::(?:unique_ptr|shared_ptr|vector|optional) ?< ?(?:const )?)?([A-Za-z_]\w*)"
    r"(?: ?<[^;(){}<>\n]{0,120}>)? ?>?(?: const\b)?[ *&]{1,4}([A-Za-z_]\w*) ?(?=[=;,)\[({:])"
)
"""Of text in which blanks stand alone."""
BLANKS = re.compile(r"[ \t]{2,}")
KEYWORDS = frozenset(
    [
        "if",
        "for",
        "while",
        "switch",
        "catch",
        "return",
        "sizeof",
        "defined",
        "static_cast",
        "reinterpret_cast",
        "const_cast",
        "dynamic_cast",
        "decltype",
        "alignof",
        "constexpr",
        "else",
        "do",
        "new",
        "delete",
        "throw",
        "typename",
        "template",
        "operator",
        "noexcept",
        "assert",
        "static_assert",
        "__attribute__",
        "and",
        "or",
        "not",
        "using",
        "typedef",
        "const",
        "auto",
        "void",
        "int",
        "float",
        "double",
        "char",
        "bool",
        "unsigned",
        "long",
        "short",
        "size_t",
        "case",
        "goto",
        "struct",
        "class",
        "enum",
    ]
)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">\n]+)[\">]", re.MULTILINE)
BOUND = (
    re.compile(r"\b[A-Z][A-Z0-9_]*(?:EXPORT|REGISTER|BIND)[A-Z0-9_]*\s*\(\s*(\w+)\s*,\s*&?((?:\w+::)*\w+)\s*\)"),
    re.compile(
        r"\.\s*(?:def|impl)\s*\(\s*\"([\w:]+?)(?:\([^\"]*)?\"\s*,\s*(?:[\w:]+\s*\([^()]*,\s*)?&?((?:\w+::)*\w+)"
    ),
)
"""What gives a C++ function the name that Python calls it by: an export macro, a method of a module."""
ALIAS = re.compile(
    r"\busing\s+(\w+)\s*=\s*(?:std::\w+\s*<\s*)?(?:const\s+)?(?:struct\s+|class\s+)?([A-Za-z_]\w*)"
    r"|\btypedef\s+(?:const\s+)?(?:struct\s+|class\s+)?(?P<of>\w+)\s*\*?\s*(?P<name>\w+)\s*;"
)
ASSERT = re.compile(r"\b(?:[A-Z_]*ASSERT|assert|[A-Z_]*CHECK(?:_[A-Z]+)?)\s*\((?!\s*(?:false|0)\s*[,)])")
"""What must hold: a check of ``false`` is an error that is raised, and asks for nothing."""
LOOP = re.compile(r"\b(?:for|while)\s*\(")
MOST_CALLS = 4_000
LONGEST = 160


def file_graph(file: str, code: Code, found: Iterable[Definition]) -> FileGraph:
    text = code.text
    bare = BLANKS.sub(" ", code.bare)
    starts = [0, *(match.end() for match in re.finditer("\n", bare))]
    graph = FileGraph(file, includes=tuple(dict.fromkeys(INCLUDE.findall(text))))
    classes: dict[str, Class] = {}
    functions: list[Function] = []
    for each in sorted(found, key=lambda one: (one.place.line, -one.end)):
        if each.kind == "class":
            made = Class(each.name, each.qualname, file, each.place.line, each.end, native=True)
            made.bases = tuple((base.split("<")[0].rpartition("::")[2],) for base in each.bases)
            classes.setdefault(each.qualname, made)
            graph.every_class.append(made)
            graph.classes.setdefault(each.name, made)
        else:
            functions.append(_function(each, file, code, bare, starts))
    by_macro = [(at, macro) for macro in launching(code) for at in macro.uses]
    for one in functions:
        # What a macro starts is called where the macro stands.
        for at, macro in by_macro:
            if one.line <= (line := code.line(at)) <= one.end:
                one.calls += [Call(line, ((name,),), written=name) for name in started(macro)]
        around = one.qualname.rpartition(".")[0]
        if around in classes:
            one.owner = classes[around]
            one.owner.methods.setdefault(one.name, one)
        graph.functions.append(one)
        graph.top.setdefault(one.name, one)
    for match in ALIAS.finditer(bare):
        graph.names[match[1] or match["name"]] = [(match[2] or match["of"],)]
    for one in functions:
        settle(one)
    for owner in classes.values():
        _members(owner, bare, starts)
    for pattern in BOUND:
        for match in pattern.finditer(code.text):
            graph.bindings[match[1].rpartition("::")[2]] = (match[2].rpartition("::")[2], code.line(match.start()))
    return graph


def check(code: Code, line: int) -> str:
    """The first check of a line as it stands, with its message, on one line; empty where there is none."""
    if line > len(code.starts):
        return ""
    found = ASSERT.search(code.bare, code.starts[line - 1], [*code.starts[line : line + 1], len(code.text)][0])
    end = code.closing(found.end() - 1) if found else -1
    return without_comments(code.text[found.start() : end + 1]) if found else ""


def _span(start: int, end: int, starts: Sequence[int], length: int) -> tuple[int, int]:
    last = starts[end] if end < len(starts) else length
    return starts[min(start, len(starts)) - 1], last


def _function(each: Definition, file: str, code: Code, bare: str, starts: Sequence[int]) -> Function:
    made = Function(each.name, each.qualname, file, each.place.line, each.end, native=True)
    first, last = _span(each.place.line, each.end, starts, len(bare))
    opening = bare.find("{", first, last)
    head = bare[first : opening if opening > 0 else last]
    for match in DECLARED.finditer(head):
        if match[1] not in KEYWORDS:
            made.params[match[2]] = ((match[1],),)
    if opening < 0:
        return made
    loops = [match.start() for match in LOOP.finditer(bare, opening, last)]
    made.loops = len(loops)
    for match in ASSERT.finditer(bare, opening, last):
        at_line = each.place.line + bare.count("\n", first, match.start())
        made.hazards.append(Hazard("assert", at_line, check(code, at_line)[:LONGEST]))
    made.endless = bool(re.search(r"\bwhile\s*\(|for\s*\(\s*;\s*;", bare[opening:last]))
    line, at = each.place.line, first
    receivers: set[str] = set()
    for number, match in enumerate(CALL.finditer(bare, opening, last)):
        name = match["name"]
        if number > MOST_CALLS:
            break
        if name in KEYWORDS:
            continue
        line += bare.count("\n", at, match.start("name"))
        at = match.start("name")
        receiver = match["receiver"] or ""
        plain = re.sub(r"[(\[].*", "", receiver)
        chain: Chain = (plain, name) if plain else (f"{match['scope']}::", name) if match["scope"] else (name,)
        if plain:
            receivers.add(plain)
        inside = int(bool(loops) and loops[0] < at)
        written = f"{receiver}->{name}" if receiver else name
        made.calls.append(Call(line, (chain,), loop=inside, written=written))
    line, at = each.place.line, first
    for match in MADE.finditer(bare, opening, last):
        line += bare.count("\n", at, match.start())
        at = match.start()
        made.calls.append(Call(line, ((match[1] or match[2],),), written=f"new {match[1] or match[2]}", text="new"))
    if receivers:
        for match in DECLARED.finditer(bare, opening, last):
            if match[2] in receivers and match[1] not in KEYWORDS:
                made.locals.setdefault(match[2], []).append((match[1], Applied()))
    # A kernel is chosen by its name with template arguments, and started later.
    line, at = each.place.line, first
    seen = {call.callee[0][-1] for call in made.calls}
    for match in REFERENCE.finditer(bare, opening, last):
        if match[1] not in seen and match[1] not in KEYWORDS:
            line += bare.count("\n", at, match.start())
            at = match.start()
            seen.add(match[1])
            made.calls.append(Call(line, ((match[1],),), written=match[1], text="<>"))
    return made


def _members(owner: Class, bare: str, starts: Sequence[int]) -> None:
    first, last = _span(owner.line, owner.end, starts, len(bare))
    for match in DECLARED.finditer(bare, bare.find("{", first, last), last):
        if match[1] not in KEYWORDS and match[2] not in owner.attributes:
            owner.attributes[match[2]] = [(None, (match[1], Applied()))]
            owner.members[match[2]] = owner.line + bare.count("\n", first, match.start(2))
