"""What a repository's own files say of it: summary, what it is for, commands. Quoted, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.codebase.facts import Place
from lmp.codebase.install import whole
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.header import metadata

MOST = 6
_INVITES = re.compile(r"get started|join us|communit|meetup|documentation|view (?:the|our)|star us|news", re.IGNORECASE)
_SECTION = re.compile(r"feature|about|overview|why|highlight|what is|introduction|motivation|key ", re.IGNORECASE)
_STOP = re.compile(
    r"news|install|citation|acknowledg|licen[cs]e|contribut|sponsor|community|get(ting)? started|usage|star|table of"
    r"|model",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"^\s*(?:[$>]\s*)?((?:[A-Z_]+=\S+ )*(?:python3? -m )?"
    r"(?:pip3?|uv pip|uv|conda|poetry|cargo|cmake|make|ninja|docker|npm|git clone|bazel|pixi|brew)\b"
    r"(?: (?:install|sync|build|run|add|pull|clone|create|-B|-S|-j|\.\.|--build|-C|-e|https?:).*|$| \w[\w.-]*$)"
    r"|python3? setup\.py .*)"
)
NOTES = (
    (r"(?:install|add) (?:.* )?(?:-e |--editable)|develop", "installs this folder in editable mode"),
    (r"pip3? install (?:.* )?-r ", "installs what the file lists"),
    # A slash, or a dot alone, is no name of a released package: pip takes it for a folder.
    (
        r"pip3? install (?:-\S+ )*['\"]?(?:\.|(?!git\+)[\w.-]+/[^\s:@]*)['\"]?(?:\[[\w,-]+\]['\"]?)?(?: |$)",
        "builds and installs a folder of it",
    ),
    (r"pip3? install .*--no-binary", "builds a released package from its source and installs it"),
    (r"pip3? install|uv (pip install|add)|conda install|brew install|poetry add", "installs a released package"),
    (r"git clone", "fetches the sources"),
    (r"cmake", "configures or builds with CMake"),
    (r"^make(?: -C \S+)? [\w.-]*install", "installs"),
    (r"^make|ninja|cargo build|bazel", "builds"),
    (r"docker (?:build|compose build)", "builds an image of a container"),
    (r"docker pull", "fetches an image of a container"),
    (r"docker", "runs a container"),
    (r"uv sync|poetry install|pixi install|npm", "installs the dependencies"),
)


@dataclass(frozen=True)
class Quote:
    text: str
    place: Place


def summary(base: CodeBase) -> Quote | None:
    """The package's own one line, else the first sentence of its README."""
    for file, text in metadata(base):
        found = re.search(r"^Summary: *(.+)$", text, re.MULTILINE)
        # setuptools writes UNKNOWN for what its setup does not state.
        if found and found[1].strip() != "UNKNOWN":
            return Quote(found[1].strip(), Place(file, text[: found.start()].count("\n") + 1))
    for file in ("pyproject.toml", "setup.cfg", "setup.py", "Cargo.toml"):
        text = (base.text(file) if file in base.files else None) or ""
        found = re.search(r"^\s*description\s*=\s*[\"']?([^\"'\n]{8,})", text, re.MULTILINE)
        if found:
            return Quote(found[1].strip(), Place(file, text[: found.start(1)].count("\n") + 1))
    paragraphs = list(_prose(base))
    return paragraphs[0] if paragraphs else None


def quotes(base: CodeBase) -> list[Quote]:
    """What the README says that it is for: its first sentences, and its lists of features."""
    found: dict[str, Quote] = {}
    said = summary(base)
    for each in [*([said] if said else []), *_features(base), *list(_prose(base))[:2]]:
        found.setdefault(each.text.lower(), each)
    names = {_bare(base.facts.root_name), *map(_bare, base.tops)}
    # A name alone is no purpose, and a line that announces what follows is none without it.
    kept = [each for each in found.values() if _bare(each.text) not in names and not each.text.rstrip().endswith(":")]
    return kept[:MOST]


def _bare(text: str) -> str:
    """Letters alone, in small: names are written with hyphens, versions and capitals."""
    return re.sub(r"[^a-z]", "", text.lower())


def commands(base: CodeBase) -> list[Quote]:
    """Lines of the README that install or build it."""
    found: dict[str, Quote] = {}
    for file, lines, first in _readmes(base):
        fenced = False
        for number, line in enumerate(lines, first):
            line = whole(lines, number - first) if line.rstrip().endswith("\\") else line
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif fenced or line.startswith("    "):
                match = _COMMAND.match(re.sub(r"\s+#\s.*", "", line))
                if match:
                    found.setdefault(match[1].strip(), Quote(match[1].strip(), Place(file, number)))
    return list(found.values())


def note(command: str) -> str:
    """What a command does, where that is known."""
    return next((words for pattern, words in NOTES if re.search(pattern, command)), "runs what its name says")


def _readmes(base: CodeBase) -> Iterator[tuple[str, list[str], int]]:
    """The README, and the description in the metadata of a package: file, lines, number of the first line."""
    for file, text in list(metadata(base))[:1]:
        head, _, body = text.partition("\n\n")
        if body.strip():
            yield file, body.split("\n"), head.count("\n") + 3
    named = [f for f in base.files if re.fullmatch(r"(?:[\w.-]+/)?readme(\.md|\.rst|\.txt)?", f, re.IGNORECASE)]
    for file in sorted(named, key=lambda name: (name.count("/"), name)):
        yield file, base.lines(file), 1


def _features(base: CodeBase) -> Iterator[Quote]:
    """Items of lists under a heading or a line that announces them."""
    for file, lines, first in _readmes(base):
        wanted = fenced = False
        for at, line in enumerate(lines):
            fenced ^= line.lstrip().startswith("```")
            if fenced:
                continue
            heading = re.match(r"#+\s+(.*)", line)
            if heading:
                wanted = bool(_SECTION.search(heading[1])) and not _STOP.search(heading[1])
            elif re.search(r"features?( include)?:?\s*$", line.strip(), re.IGNORECASE) and line.rstrip().endswith(":"):
                wanted = True
            item = re.match(r"[-*+] +(.+)", line)
            if item and wanted:
                rest = [item[1]]
                for more in lines[at + 1 : at + 5]:
                    if not more.startswith("  ") or re.match(r"\s*[-*+] ", more):
                        break
                    rest.append(more.strip())
                text = plain(" ".join(rest))
                if len(text) > 12:
                    yield Quote(text, Place(file, first + at))


def _prose(base: CodeBase) -> Iterator[Quote]:
    """Paragraphs of the README that are sentences."""
    for file, lines, first in _readmes(base):
        fenced, start, stopped = False, 0, False
        run: list[str] = []
        for at, line in enumerate([*lines[:150], ""]):
            if line.lstrip().startswith("```"):
                fenced, run = not fenced, []
            # A comment of code is no heading.
            if fenced or line.lstrip().startswith("```"):
                continue
            heading = re.match(r"#+\s+(.*)", line)
            if heading:
                stopped = bool(_STOP.search(heading[1]))
            if stopped:
                run = []
                continue
            # What is markup, a list, a table or a quotation is no paragraph.
            if not line.strip() or re.match(r"\s*([#|>*+-]|\d+\.|!\[|\[!|</?(?!p>|b>|i>|a |strong)\w)", line):
                text = plain(" ".join(run))
                if _INVITES.search(text):
                    text = ""
                if (
                    len(text.split()) >= 8
                    and not text.endswith(":")
                    and "http" not in text[:40]
                    and text.count("|") < 2
                ):
                    yield Quote(text, Place(file, first + start))
                run = []
                continue
            if not run:
                start = at
            run.append(line.strip())


def plain(text: str) -> str:
    """Markdown or HTML as words."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<[^<>]{1,300}>", " ", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    # The names of emojis.
    text = re.sub(r"(?<![\w`:]):[a-z][a-z0-9_+-]*:(?![\w`:])", "", text)
    return " ".join(text.split())
