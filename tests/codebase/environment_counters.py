"""Counts reads of the environment apart from lmp.codebase, on blanked text: direct, by functions, by classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recon_counters import PythonFile, outside_brackets, split

ENVIRON = r"\b_?os\.environ\b"


def direct_reads(file: PythonFile) -> int:
    if not file.has("environ", "getenv"):
        return 0
    code = file.code
    total = len(re.findall(rf"{ENVIRON}\.(?:get|setdefault)\(", code))
    total += len(re.findall(r"\b(?:_?os\.)getenv\(", code))
    # A pop that stands alone takes away; one whose value goes somewhere reads.
    total += sum(bool(_before(code, m.start())) for m in re.finditer(rf"{ENVIRON}\.pop\(", code))
    total += sum(_is_read(file, match) for match in re.finditer(rf"{ENVIRON}\[", code))
    for match in re.finditer(rf"\bin\s+{ENVIRON}(?!\s*[.\[(])", code):
        line = code[code.rfind("\n", 0, match.start()) + 1 : match.start()]
        total += re.search(r"\bfor\s+[\w\s,]+$", line) is None
    return total


def _before(code: str, at: int) -> str:
    return code[code.rfind("\n", 0, at) + 1 : at].strip()


def _is_read(file: PythonFile, match: re.Match[str]) -> bool:
    """``os.environ[X]`` that is neither assigned to nor deleted."""
    after = file.code[file.bracket(match.end() - 1) :].lstrip(" \t")
    return not re.match(r"=(?!=)|\+=|:\s*\w+\s*=", after) and _before(file.code, match.start()) != "del"


def cpp_reads(root: Path) -> int:
    total = 0
    for path in sorted(root.rglob("*")):
        if path.suffix in (".cu", ".cuh", ".h", ".hpp", ".hip", ".cpp", ".cc"):
            text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
            total += len(re.findall(r"\bgetenv\(", text))
    return total


READING = r"(?:\bgetenv\(|\benviron\.(?:get|setdefault|pop)\(|\benviron\[)\s*"


@dataclass(frozen=True)
class Helper:
    """A function, or a class by its constructor, that is handed the name of a variable and reads it."""

    file: str
    name: str
    parameter: str
    position: int
    """Among what a call hands in; -1 where it is by keyword alone."""
    is_method: bool
    template: str
    """The different ones of a function are different variables."""


def helpers(files: list[PythonFile]) -> set[Helper]:
    """Those that read themselves, then those that hand their own parameter to one of these, until there are no more."""
    found: set[Helper] = set()
    reading = files
    for _ in range(5):
        more = {helper for file in reading for helper in _helpers_of(file, found)} - found
        # Another look finds more in none but those that call what was found.
        reading = [file for file in files if any(file.has(f"{helper.name}(") for helper in more)]
        if not more:
            return found
        found |= more
    raise AssertionError("helpers of helpers of helpers")


def _helpers_of(file: PythonFile, known: set[Helper]) -> Iterator[Helper]:
    meant = [helper for helper in sorted(known, key=str) if _is_called(file, helper)]
    if not meant and not file.has("environ", "getenv"):
        return
    for name, bracket, start, end in file.functions:
        body, text = file.code[start:end], file.text[start:end]
        if "environ" not in body and "getenv" not in body and not any(helper.name in body for helper in meant):
            continue
        signature = outside_brackets(file.code[bracket + 1 : start - 1])
        parts = [part.strip() for part in split(signature)]
        by_keyword = parts[parts.index("*") + 1 :] if "*" in parts else []
        parameters = [re.match(r"\w*", part)[0] for part in parts]  # type: ignore[index]
        is_method = bool(parameters) and parameters[0] in ("self", "cls")
        static = bool(re.search(r"@staticmethod\s*$", file.code[: file.code.rfind("def", 0, bracket)]))
        for at, parameter in enumerate(parameters[is_method:]):
            if not parameter or re.search(rf"^[ \t]*{parameter}\s*=[^=]", body, re.MULTILINE):
                continue
            position = -1 if any(part.startswith(parameter) for part in by_keyword) else at
            made = _variables(body, text, parameter)
            for helper in meant:
                for given in _handed(body, helper):
                    if re.fullmatch(parameter, given):
                        made.add(helper.template)
            for template in made:
                yield Helper(file.name, name, parameter, position, is_method or static, template)


def _variables(body: str, text: str, parameter: str) -> set[str]:
    """The different names that a function makes of its parameter and reads."""
    read = set()
    if re.search(READING + rf"{parameter}\s*[,)\]]", body) or re.search(
        rf"\b{parameter}\s+(?:not\s+)?in\s+{ENVIRON}", body
    ):
        read.add("")
    if re.search(rf"^\s*(\w+)\s*=\s*{parameter}\s*\+\s*[\"']", text, re.MULTILINE):
        for local, after in re.findall(rf"^\s*(\w+)\s*=\s*{parameter}\s*\+\s*[\"'](\w+)[\"']\s*$", text, re.MULTILINE):
            if re.search(READING + rf"{local}\b", text) or re.search(rf"\b{local}\s+(?:not\s+)?in\s+{ENVIRON}", text):
                read.add(f"+{after}")
    # Behind a prefix, in place or by way of one local name, which may be the upper-case form.
    forms = [parameter, *re.findall(rf"^\s*(\w+)\s*=\s*{parameter}\.(?:upper|lower)\(\)", text, re.MULTILINE)]
    for form in forms:
        prefixed = rf"f[\"'](\w*)\{{{form}(?:\.\w+\(\))?\}}(\w*)[\"']"
        read |= {f"{before}+{after}" for before, after in re.findall(READING + prefixed, text)}
        for local, before, after in re.findall(rf"^\s*(\w+)\s*=\s*{prefixed}", text, re.MULTILINE):
            if re.search(READING + rf"{local}\b", text) or _is_tested(text, local):
                read.add(f"{before}+{after}")
    return read


def _is_tested(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\s+(?:not\s+)?in\s+{ENVIRON}", text) is not None


def _is_called(file: PythonFile, helper: Helper) -> bool:
    called = f"{helper.name}("
    return file.has(called) and called in file.code and _is_meant(file, helper)


def _is_meant(file: PythonFile, helper: Helper) -> bool:
    if helper.file == file.name:
        return True
    module = helper.file.removesuffix(".py").rpartition("/")[2]
    return not helper.is_method and (file.imports(helper.name) or file.imports(module))


def _handed(code: str, helper: Helper) -> Iterator[str]:
    """What each call of a helper hands in as the name; nothing for its definition."""
    before = (
        r"\b(?:self|cls)\."
        if helper.is_method
        else rf"(?<![\w.])(?:{helper.file.removesuffix('.py').rpartition('/')[2]}\.)?"
    )
    for match in re.finditer(rf"{before}{helper.name}\(", code):
        if re.search(r"\b(?:def|class)\s+$", code[: match.start()][-10:]):
            continue
        depth = 1
        end = match.end()
        while depth and end < len(code):
            depth += (code[end] in "([{") - (code[end] in ")]}")
            end += 1
        arguments = [part.strip() for part in split(code[match.end() : end - 1])]
        plain = [part for part in arguments if part and not re.match(r"\w+\s*=(?!=)", part)]
        named = [part.split("=", 1)[1].strip() for part in arguments if re.match(rf"{helper.parameter}\s*=(?!=)", part)]
        if named:
            yield named[0]
        elif 0 <= helper.position < len(plain):
            yield plain[helper.position]


def helper_reads(file: PythonFile, known: set[Helper]) -> int:
    """Calls of helpers that name a variable; where one hands on its own parameter, its callers are what reads."""
    meant = [helper for helper in known if _is_called(file, helper)]
    if not meant:
        return 0
    best = [
        each
        for each in meant
        if each.file == file.name or not any(m.file == file.name and m.name == each.name for m in meant)
    ]
    # Two files with a helper of one name, both reached by one import: it is one of them.
    chosen = {(each.name, each.template, each.is_method): each for each in sorted(best, key=str)}
    inner = sum(
        1
        for name, bracket, start, end in file.functions
        for helper in chosen.values()
        for given in _handed(file.code[start:end], helper)
        if any(own.file == file.name and own.name == name and own.parameter == given for own in known)
    )
    return sum(1 for helper in chosen.values() for _ in _handed(file.code, helper)) - inner


# Classes that read a variable for their objects

CLASS = re.compile(r"^([ \t]*)class\s+(\w+)\s*(?:\(([^)]*)\))?\s*:", re.MULTILINE)


@dataclass
class Class:
    file: PythonFile
    name: str
    bases: list[str]
    start: int
    end: int

    @property
    def body(self) -> str:
        return self.file.code[self.start : self.end]


def classes(files: list[PythonFile]) -> list[Class]:
    found = []
    for file in files:
        for match in CLASS.finditer(file.code):
            end = re.compile(rf"^[ \t]{{0,{len(match[1])}}}\S", re.MULTILINE).search(file.code, match.end())
            bases = [each.strip().rpartition(".")[2] for each in (match[3] or "").split(",")]
            found.append(Class(file, match[2], bases, match.end(), end.start() if end else len(file.code)))
    return found


def mentioning(files: list[PythonFile], names: set[str]) -> list[Class]:
    """The classes of files with one of the names."""
    return classes([file for file in files if file.has(*names)])


def descendants(files: list[PythonFile], names: set[str]) -> set[str]:
    found, new = set(names), set(names)
    while new:
        new = {each.name for each in mentioning(files, new) if found & set(each.bases)} - found
        found |= new
    return found


def attributes_read(each: Class) -> set[str]:
    """``os.getenv(self.name)``, bare or in an f-string."""
    bare = re.findall(READING + r"self\.(\w+)", each.body)
    tested = re.findall(rf"\bself\.(\w+)\s+(?:not\s+)?in\s+{ENVIRON}", each.body)
    text = each.file.text[each.start : each.end]
    return {*bare, *tested, *re.findall(READING + r"f[\"']\w*\{self\.(\w+)", text)}


def class_reads(files: list[PythonFile]) -> int:
    """What classes read by the names of their attributes: given by the owner's body, the constructor, or a subclass."""
    reading = [file for file in files if file.has("environ", "getenv")]
    total = 0
    for each in classes(reading):
        for attribute in sorted(attributes_read(each)):
            names = descendants(files, {each.name})
            every = mentioning(files, names)
            named = re.search(
                rf"def __set_name__\(self, \w+, (\w+)\):(?:(?!\bdef\b).)*?self\.{attribute} = \1", each.body, re.S
            )
            if named:
                pattern = rf"^[ \t]+\w+\s*(?::[^=\n]+)?=\s*(?:{'|'.join(sorted(names))})\("
                total += sum(len(re.findall(pattern, other.body, re.MULTILINE)) for other in every)
                continue
            made = re.search(
                rf"def __init__\(([^)]*)\)(?:(?!\bdef\b).)*?\bself\.{attribute} = (\w+)\b", each.body, re.S
            )
            if made:
                total += _constructed(files, names, made[1], made[2])
            pattern = rf"^[ \t]+{attribute}\s*(?::[^=\n]+)?=\s*'"
            total += sum(len(re.findall(pattern, other.body, re.MULTILINE)) for other in every if other.name in names)
    return total


def _constructed(files: list[PythonFile], names: set[str], signature: str, parameter: str) -> int:
    parts = [part.strip() for part in split(signature)][1:]
    by_keyword = "*" in parts and parts.index("*") < [re.match(r"\w*", p)[0] for p in parts].index(parameter)  # type: ignore[index]
    position = -1 if by_keyword else [re.match(r"\w*", part)[0] for part in parts].index(parameter)  # type: ignore[index]
    total = 0
    for file in files:
        for name in names:
            if file.has(f"{name}(") and (file.imports(name) or re.search(rf"^class {name}\b", file.code, re.MULTILINE)):
                total += sum(1 for _ in _handed(file.code, Helper(file.name, name, parameter, position, False, "")))
    return total
