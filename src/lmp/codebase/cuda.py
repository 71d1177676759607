"""CUDA (and HIP) kernels and their launches, sizes that are defined, and reads of the environment, in C++ sources.

By the text rather than by a tree: macros for attributes and signatures are common in these files, and a C++ grammar
gives up on them. A kernel is a ``__global__`` function with a body; declarations and instantiations are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lmp.codebase.cpp_text import Code, without_comments
from lmp.codebase.facts import EnvRead, Flag, Kernel, Place
from lmp.codebase.launches import LONGEST, Candidate

DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?[ \t]*((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE)
SIZE = re.compile(r"[\w\s()+\-*/<>%]*\d[\w\s()+\-*/<>%]*")
CONSTANT = re.compile(
    r"\b(constexpr|const)\s+(?:static\s+|inline\s+)*(?:const\s+)?(?:unsigned\s+|std::)*"
    r"(?:int|long|auto|unsigned|short|u?int(?:8|16|32|64)_t|size_t)\s+(\w+)\s*(?:=\s*([^;{}]+)|\{([^;{}]+)\})\s*;"
)
LAUNCH_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(")
NAME_BEFORE = re.compile(r"([A-Za-z_]\w*)\s*(?:<[^;{}()]*>)?\s*$")
CALLEE = re.compile(r"((?:[A-Za-z_]\w*\s*::\s*)*[A-Za-z_]\w*)\s*$")
RUNTIME = re.compile(r"\b(cudaLaunchKernelExC?|cudaLaunchKernel|cudaLaunchCooperativeKernel|hipLaunchKernelGGL)\s*\(")
RETURNED = re.compile(r"\breturn\s+&?\s*(?:\w+\s*::\s*)*([A-Za-z_]\w*)\s*(?:<[^;{}()]*>)?\s*;")
VALUE = re.compile(r"\s*&?\s*(?:\w+::)*([A-Za-z_]\w*)")
LONGEST_SIZE = 200
GETENV = re.compile(r"\b((?:std::)?(?:secure_)?getenv)\s*\(")


FLAGS = re.compile(r"\{\s*((?:\"-{1,2}[\w-]+\"\s*,\s*)*\"--[\w-]+\"(?:\s*,\s*\"-{1,2}[\w-]+\")*)\s*,?\s*\}")
COMPARED = re.compile(r"(?:==\s*|strcmp\s*\(\s*\w+(?:\[\w+\])?\s*,\s*)\"(--[\w-]+)\"")


def flags(file: str, text: str) -> list[Flag]:
    """Names of a command line's flags in tables of a parser, or compared with an argument."""
    if '"--' not in text:
        return []
    code = Code(text)
    found = {code.line(match.start()): tuple(re.findall(r"-{1,2}[\w-]+", match[1])) for match in FLAGS.finditer(text)}
    for match in COMPARED.finditer(text):
        found.setdefault(code.line(match.start()), (match[1],))
    return [Flag(names, Place(file, line), "c++") for line, names in sorted(found.items())]


def kernels(file: str, code: Code) -> list[Kernel]:
    """In the order of their lines."""
    if "__global__" not in code.code:
        return []
    marks = _marks(code)
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(marks))) + r")\b")
    found: dict[int, Kernel] = {}
    for match in pattern.finditer(code.bare):
        kernel = _kernel(file, code, match, marks[match[0]])
        if kernel is not None:
            # Two macros or attributes before one name are one kernel.
            found.setdefault(kernel[0], kernel[1])
    # What stands for a kernel where the device is too old does nothing.
    empty = {at for at in found if _is_empty(code, at)}
    works = {each.name for at, each in found.items() if at not in empty}
    return [found[at] for at in sorted(found) if at not in empty or found[at].name not in works]


def _is_empty(code: Code, at: int) -> bool:
    """Whether nothing stands in the body of the kernel whose name is at a place."""
    opening = code.bare.find("{", at)
    return not code.bare[opening + 1 : code.closing(opening)].strip()


def _marks(code: Code) -> dict[str, str]:
    """``__global__`` and the macros that stand for it, each with the launch bounds that it brings."""
    marks = {"__global__": ""}
    for match in DEFINE.finditer(code.code):
        if not match[2] and "__global__" in match[3] and "{" not in match[3]:
            marks[match[1]] = _bounds(without_comments(code.text[match.start(3) : match.end(3)].replace("\\\n", " ")))
    return marks


def _bounds(text: str) -> str:
    """What stands in the brackets of ``__launch_bounds__``."""
    # One in a comment binds nothing.
    code = Code(text)
    match = LAUNCH_BOUNDS.search(code.bare)
    if match is None:
        return ""
    end = code.closing(match.end() - 1)
    return without_comments(text[match.end() : end]) if end > 0 else ""


def _kernel(file: str, code: Code, match: re.Match[str], bounds: str) -> tuple[int, Kernel] | None:
    """With the place of its name; None for what has no body."""
    text = code.bare
    at = match.end()
    for _ in range(8):
        opening = text.find("(", at)
        if opening < 0 or any(letter in text[at:opening] for letter in ";{}"):
            return None
        closing = code.closing(opening)
        if closing < 0:
            return None
        after = text[closing + 1 : closing + 400].lstrip()
        if after[:1] == "{":
            break
        if after[:1] in (";", ""):
            return None
        at = closing + 1
    else:
        return None
    name = NAME_BEFORE.search(text, match.end(), opening)
    if name is None:
        return None
    end = code.closing(text.index("{", closing))
    return name.start(1), Kernel(
        "cuda",
        name[1],
        Place(file, code.line(name.start(1))),
        code.line(end if end > 0 else closing),
        parameters=tuple(parameter_name(each) for each in code.arguments(opening + 1, closing) if each),
        constexprs=_template(code, match.start()),
        launch_bounds=_bounds(code.text[match.start() : opening]) or bounds,
    )


def parameter_name(written: str) -> str:
    """The name of ``const T* __restrict__ x``."""
    name = re.search(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?\s*(?:=.*)?$", written)
    return name[1] if name else written


def _template(code: Code, at: int) -> tuple[str, ...]:
    """The template's parameters that are values, not types: what a size is handed in as."""
    before = code.bare[max(0, at - 2000) : at].rstrip()
    before = re.sub(r"(?:\b(?:static|inline|extern)\s*)+$", "", before).rstrip()
    if not before.endswith(">"):
        return ()
    start = _template_start(before)
    if start is None:
        return ()
    inner = Code(before[start:-1]).arguments(0, len(before) - 1 - start)
    values = (each for each in inner if not re.match(r"(?:typename|class)\b", each))
    return tuple(parameter_name(each) for each in values if each)


def _template_start(before: str) -> int | None:
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(before[at], 0)
        if depth == 0:
            return at + 1 if re.search(r"\btemplate\s*$", before[:at]) else None
    return None


def launches(file: str, code: Code) -> list[Candidate]:
    """``kernel<<<grid, block, shared, stream>>>(…)`` and the runtime's own calls, in the order of their lines.

    Of a local ``dim3`` the sizes that it was made of are given, of a size that is defined its number.
    """
    if "<<<" not in code.code and "LaunchKernel" not in code.code and "LaunchCooperative" not in code.code:
        return []
    known: dict[str, set[str]] = {}
    for size, value, _ in sizes(file, code):
        known.setdefault(size, set()).add(value)
    found = [*_brackets(file, code, known), *_runtime(file, code, known)]
    for macro in launching(code):
        for each in _brackets(file, macro.body, known):
            place = Place(file, macro.line + each.place.line - 1)
            found.append(replace(each, place=place, inside=code.around(macro.uses[0]) if macro.uses else ""))
    return sorted(found, key=lambda each: each.place.line)


@dataclass(frozen=True)
class Macro:
    """One whose text starts a kernel: its text, the line where that begins, and where it is used."""

    name: str
    body: Code
    line: int
    uses: tuple[int, ...]


def launching(code: Code) -> list[Macro]:
    """Macros that start a kernel, with their uses in functions; one that only another macro uses has those of that."""
    if "<<<" not in code.code:
        return []
    every = {match[1]: match for match in DEFINE.finditer(code.code)}

    def uses(name: str) -> list[int]:
        found: set[int] = set()
        waiting = [name]
        for each in waiting:
            word = re.compile(rf"\b{re.escape(each)}\b")
            here = {match.start() for match in word.finditer(code.bare)}
            found |= here
            if not here:
                waiting += [other for other, at in every.items() if other not in waiting and word.search(at[3])]
        return sorted(found)

    return [
        Macro(name, Code(match[3].replace("\\\n", " \n")), code.line(match.start(3)), tuple(uses(name)))
        for name, match in every.items()
        if "<<<" in match[3]
    ]


def started(macro: Macro) -> list[str]:
    """The names of the kernels that a macro starts."""
    return list(dict.fromkeys(name for each in _brackets("", macro.body, {}) for name in each.names))


def _brackets(file: str, code: Code, known: Mapping[str, set[str]]) -> Iterator[Candidate]:
    for match in re.finditer("<<<", code.bare):
        end = code.bare.find(">>>", match.end())
        name = _callee(code, match.start())
        if end < 0 or name is None or ";" in code.bare[match.end() : end]:
            continue
        settings = code.arguments(match.end(), end)
        values = dict(zip(("block", "shared"), settings[1:3], strict=False))
        yield _candidate(file, code, known, name, settings[0], values)


def _callee(code: Code, at: int) -> tuple[str, int] | None:
    """The name before the brackets, and where it stands; its template arguments are passed over."""
    before = code.bare[max(0, at - 1500) : at]
    base = at - len(before)
    end = len(before.rstrip())
    if before[:end].endswith(">"):
        depth = 0
        while end > 0:
            end -= 1
            depth += {">": 1, "<": -1}.get(before[end], 0)
            if not depth:
                break
    match = CALLEE.search(before, 0, end)
    return (match[1], base + match.start(1)) if match else None


def _runtime(file: str, code: Code, known: Mapping[str, set[str]]) -> Iterator[Candidate]:
    for match in RUNTIME.finditer(code.bare):
        closing = code.closing(match.end() - 1)
        given = code.arguments(match.end(), closing) if closing > 0 else []
        at = 1 if match[1].startswith("cudaLaunchKernelEx") else 0
        if len(given) <= at:
            continue
        name = re.search(r"([A-Za-z_]\w*)\s*(?:<.*>)?\s*\)*$", given[at])
        if name is None:
            continue
        grid = given[1] if at == 0 and len(given) > 2 else ""
        values = {"block": given[2]} if at == 0 and len(given) > 2 else {}
        yield _candidate(file, code, known, (name[1], match.start()), grid, values)


def _candidate(
    file: str,
    code: Code,
    known: Mapping[str, set[str]],
    name: tuple[str, int],
    grid: str,
    values: dict[str, str],
) -> Candidate:
    last = re.split(r"\s*::\s*", name[0])[-1]
    # A lambda or a macro with a block may stand around it: its sizes are set in the outermost function.
    start = next((body.start for body in code.bodies if body.start < name[1] < body.end), name[1])
    kept = {key: _sized(code, start, name[1], value, known)[:LONGEST] for key, value in values.items()}
    # A variable is no kernel of its name, which other files may have.
    names = tuple(_variable(code, last, name[1]) or [last])
    place, inside = Place(file, code.line(name[1])), code.around(name[1])
    grid = _sized(code, start, name[1], grid, known)[:LONGEST]
    return Candidate(names, ("",) * len(names), last, place, inside, grid, kept, True)


def _sized(code: Code, start: int, at: int, value: str, known: Mapping[str, set[str]]) -> str:
    """What a local name, set once between two places, was made of; numbers in the place of names that are defined."""
    before = code.bare[start:at]
    if re.fullmatch(r"[A-Za-z_]\w*", value) and len(re.findall(rf"\b{value}(?:\.[xyz])?\s*[-+*/]?=(?!=)", before)) <= 1:
        made = [*re.finditer(rf"\bdim3\s+{value}\s*(?:=\s*(?:dim3\s*)?)?(?P<at>[({{])", before)]
        made += re.finditer(
            rf"\b(?:int|auto|unsigned|long|size_t|u?int(?:32|64)_t)\s+{value}\s*=(?P<at>[^;]+);", before
        )
        if len(made) == 1:
            first, last = (start + each for each in made[0].span("at"))
            if code.bare[first] in "({":
                first, last = first + 1, code.closing(first)
            given = [each for each in code.arguments(first, last) if each]
            value = f"({', '.join(given)})" if len(given) > 1 else "".join(given) or value
    return re.sub(r"(?<![\w.:])[A-Za-z_]\w*", lambda name: _number(name[0], known), value)


def _number(name: str, known: Mapping[str, set[str]]) -> str:
    """A name that has several values in a file stays."""
    values = known.get(name, set())
    return next(iter(values)) if len(values) == 1 and re.fullmatch(r"\d+", next(iter(values))) else name


def _variable(code: Code, name: str, at: int) -> list[str]:
    """``auto kernel = &one<float>;``, or one of two by a condition, in the 4,000 characters before. Of a function that
    chooses the kernel all that it returns."""
    before = code.bare[max(0, at - 4000) : at]
    found = re.findall(rf"\b{re.escape(name)}\s*=(?!=)([^;]*)", before)
    values = [value for each in found[-1:] for one in _either(each) if (value := VALUE.match(one))]
    kernels: dict[str, None] = {}
    for value in values:
        chosen = [code.bare[body.start : body.end] for body in code.bodies if body.name == value[1]]
        returned = [name for body in chosen for name in RETURNED.findall(body)]
        kernels.update(dict.fromkeys(returned or [value[1]]))
    return list(kernels)


def _either(written: str) -> list[str]:
    """The two values of ``test ? one : other``; else the value itself."""
    _, asked, values = written.partition("?")
    return re.split(r"(?<!:):(?!:)", values) if asked else [written]


def sizes(file: str, code: Code) -> list[tuple[str, str, Place]]:
    """Whole numbers and what is made of them, with a name: ``#define BLOCK 128``, ``constexpr int kWarps = 8;``, and
    ``const int THREADS = 32;`` outside of functions."""
    found = []
    for match in DEFINE.finditer(code.code):
        value = without_comments(code.text[match.start(3) : match.end(3)].replace("\\\n", " "))
        if (
            not match[2]
            and 0 < len(value) <= LONGEST_SIZE
            and SIZE.fullmatch(value)
            and not re.fullmatch(r"[A-Za-z_]\w*", value)
        ):
            found.append((match[1], value, Place(file, code.line(match.start(1)))))
    for match in CONSTANT.finditer(code.bare):
        if match[1] == "const" and code.around(match.start()):
            # Inside of a function it is a value of one call.
            continue
        value = without_comments(code.text[match.start(3) : match.end(3)] if match[3] else match[4])
        if len(value) <= LONGEST_SIZE and SIZE.fullmatch(value):
            found.append((match[2], value, Place(file, code.line(match.start(2)))))
    return sorted(found, key=lambda each: each[2].line)


def environment(file: str, code: Code) -> list[EnvRead]:
    """``getenv("NAME")``; a name that is no plain string is given as it is written."""
    found = []
    for match in GETENV.finditer(code.code):
        end = code.closing(match.end() - 1) if code.bare[match.end() - 1] == "(" else code.code.find(")", match.end())
        written = without_comments(code.text[match.end() : end]) if end > 0 else ""
        if not written or re.match(r"(?:const\s+)?char\b", written):
            continue
        name = re.fullmatch(r'"([^"\\]*)"', written)
        found.append(
            EnvRead(
                name[1] if name else written,
                Place(file, code.line(match.end())),
                resolved=name is not None,
                via=match[1],
            )
        )
    return found


def in_string(file: str, text: str, value: str, line: int) -> list[Kernel]:
    """Kernels in a string of Python that begins at a line. A kernel's own line where its name stands in the string.

    A line that ends in a backslash, and a written ``\\n``, put the string's lines elsewhere than its value's.
    """
    lines = text.split("\n")
    string = range(line, min(line + value.count("\n") + 2, len(lines)) + 1)
    found = []
    for kernel in kernels(file, Code(value)):
        expected = line + kernel.place.line - 1
        named = [at for at in string if re.search(rf"\b{kernel.name}\b", lines[at - 1])]
        at = min(named, key=lambda each: abs(each - expected), default=line)
        found.append(
            Kernel(
                "cuda",
                kernel.name,
                Place(file, at),
                at + kernel.end - kernel.place.line if named else line,
                kernel.parameters,
                kernel.constexprs,
                launch_bounds=kernel.launch_bounds,
            )
        )
    return found
