"""A repository as the sections of its report see it: the facts, the signs of its files, and who imports whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from lmp.codebase.facts import Definition, FileFacts, Place, RepoFacts, Skipped
from lmp.codebase.modules import Modules, of_other_packages
from lmp.codebase.reading import no_cycles_looked_for
from lmp.codebase.texts import Unreadable, decode, read_bytes
from lmp.report.repository.comments import c_signs
from lmp.report.repository.scanning import signs
from lmp.report.repository.signs import Note, NoteKind, Signs

LARGEST = 2_000_000
"""Bytes of a file that is read."""
HOPS = 5
"""How often a name that a package only passes on is followed."""
C_LIKE = frozenset({"cuda", "hip", "c++", "c", "metal"})
CODE = C_LIKE | {"python"}


_PYTHON_GUARD = re.compile(
    r"(?:torch\.cuda\.)?get_device_(?:capability|name|properties)\([^()]*\)(?:\[\d\]|\.\w+)?(?: *[<>=!]=? *[\w(), .]+)?"
    r"|\b(?:compute_)?capability\w* *(?:[<>]=?|==|in) *[\w(\[{), ]+|\bis_sm\d+\w*\([^()]*\)|\bis_hip\(\)"
    r"|@supported_compute_capability\([^()]*\)|\bsm_version\w* *(?:[<>]=?|==) *\d+|triton\.__version__ *[<>=]+ *\S+"
)
_SETTINGS_READ = re.compile(
    r"\b(?:yaml\.(?:safe_|full_|unsafe_)?load(?:_all)?|toml(?:lib|i)?\.load|OmegaConf\.load)(?=\()"
)
"""Formats that only settings are written in; JSON may be anything."""
_C_GUARD = re.compile(r"__CUDA_ARCH__ *[<>=]+ *\w+|\b(?:cc|sm_version|compute_capability|prop\.major)\w* *[<>]=? *\w+")


@dataclass(eq=False)
class CodeBase:
    facts: RepoFacts
    root: Path
    known: Mapping[str, Signs] = field(default_factory=dict)
    """Signs of files that were read before, by the sha256 of their bytes."""
    unread: list[Skipped] = field(default_factory=list)
    """Files that the reconnaissance read, and this could not."""

    def __post_init__(self) -> None:
        self.signs: dict[str, Signs] = {}
        with no_cycles_looked_for():
            for file in self.code:
                read = self.facts.also.get(file.file)
                found = read if isinstance(read, Signs) else self.known.get(file.sha256)
                if found is None:
                    python = file.language == "python"
                    found = self._signs(file.file) if python else c_signs(self.text(file.file) or "")
                self.signs[file.file] = found

    def _signs(self, file: str) -> Signs:
        try:
            return signs(file, self.text(file) or "")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if all(skipped.file != file for skipped in self.facts.skipped):
                self.unread.append(Skipped(file, f"does not parse: {type(error).__name__}"))
            return Signs()

    # -- files ---------------------------------------------------------------------------------------------------------

    def text(self, file: str) -> str | None:
        """Of a file of the repository; None where it cannot be read as text."""
        return _text(self.root, file)

    def lines(self, file: str) -> list[str]:
        return (self.text(file) or "").split("\n")

    @cached_property
    def files(self) -> dict[str, FileFacts]:
        return {file.file: file for file in self.facts.files}

    @cached_property
    def code(self) -> list[FileFacts]:
        """The repository's own code: no tests, examples, vendored or legacy files."""
        return [file for file in self.facts.files if file.role == "source" and file.language in CODE]

    def is_own(self, file: str) -> bool:
        return file in self.signs

    @cached_property
    def languages(self) -> dict[str, int]:
        """Lines of code in each language, most first."""
        found: dict[str, int] = {}
        for file in self.facts.files:
            if file.language in CODE:
                found[file.language] = found.get(file.language, 0) + file.lines
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    # -- reads of configs and guards, by line --------------------------------------------------------------------------

    @cached_property
    def _python_lines(self) -> list[tuple[str, int, str]]:
        """Lines of the repository's own Python that read a config."""
        wanted = re.compile(r"(?i)(?:config|cfg|hparams|args|params)\w*(?:\.|\[[\"']|,\s*[\"'])\w")
        return [
            (file.file, at, line)
            for file in self.code
            if file.language == "python"
            for at, line in enumerate(self.lines(file.file), 1)
            if wanted.search(line) and not line.lstrip().startswith("#")
        ]

    def config_read(self, names: str) -> tuple[str, Place] | None:
        """The first read of an attribute or key of a config with one of these names: as written, and where."""
        wanted = re.compile(
            rf"\w*(?:config|cfg|hparams|args|params)_?"
            rf"(?:\.(?:{names})\b(?!\()|\[[\"'](?:{names})[\"']\]|,\s*[\"'](?:{names})[\"'])(?!\s*=[^=])",
            re.IGNORECASE,
        )
        for file, at, line in self._python_lines:
            found = wanted.search(line)
            if found is not None:
                return found[0], Place(file, at)
        return None

    def worked_out(self, names: str) -> tuple[str, Place] | None:
        """The first expression that an attribute or variable with one of these names is set to, and where."""
        wanted = re.compile(
            rf"\s*(?:self\.)?(?:{names})_?\s*(?::[^=]+)?=\s*(?P<value>[^=#\s][^#]*[/*+-][^#]*)", re.IGNORECASE
        )
        for file in self.code:
            for at, line in enumerate(self.lines(file.file), 1) if file.language == "python" else ():
                found = wanted.match(line) if len(line) < 400 else None
                if found is not None:
                    return found["value"].strip(), Place(file.file, at)
        return None

    @cached_property
    def settings_read(self) -> list[tuple[str, Place]]:
        """Calls of its own code that read a file of settings, the first of each file."""
        found: dict[str, tuple[str, Place]] = {}
        for file in self.code:
            text = (self.text(file.file) or "") if file.language == "python" else ""
            for match in _SETTINGS_READ.finditer(text):
                place = Place(file.file, text.count("\n", 0, match.start()) + 1)
                if not self.lines(file.file)[place.line - 1].lstrip().startswith("#"):
                    found.setdefault(file.file, (match[0], place))
        return list(found.values())

    @cached_property
    def arch_guards(self) -> list[tuple[str, Place]]:
        """Tests of the device's kind or architecture: the first place of each, those of most files first."""
        found: dict[str, tuple[Place, int]] = {}
        for file in self.code:
            pattern, comment = (_PYTHON_GUARD, "#") if file.language == "python" else (_C_GUARD, "//")
            for at, line in enumerate(self.lines(file.file), 1):
                # What a comment repeats of a condition, as behind #else, asks for nothing.
                guard = pattern.search(line.partition(comment)[0]) if len(line) < 400 else None
                if guard is not None:
                    text = " ".join(guard[0].split())
                    place, number = found.get(text, (Place(file.file, at), 0))
                    found[text] = place, number + 1
        return [(text, place) for text, (place, _) in sorted(found.items(), key=lambda item: (-item[1][1], item[0]))]

    # -- definitions ---------------------------------------------------------------------------------------------------

    @cached_property
    def definitions(self) -> list[Definition]:
        """Those of the repository's own code."""
        return [each for each in self.facts.definitions if self.is_own(each.place.file)]

    @cached_property
    def by_name(self) -> dict[str, list[Definition]]:
        found: dict[str, list[Definition]] = {}
        for each in self.definitions:
            found.setdefault(each.name, []).append(each)
        return found

    @cached_property
    def by_file(self) -> dict[str, list[Definition]]:
        found: dict[str, list[Definition]] = {}
        for each in self.facts.definitions:
            found.setdefault(each.place.file, []).append(each)
        return found

    def definition(self, file: str, qualname: str) -> Definition | None:
        return next((each for each in self.by_file.get(file, ()) if each.qualname == qualname), None)

    def around(self, file: str, line: int) -> Definition | None:
        """The innermost definition that a line stands in."""
        inside = [each for each in self.by_file.get(file, ()) if each.place.line <= line <= each.end]
        return max(inside, key=lambda each: each.place.line, default=None)

    @cached_property
    def methods(self) -> dict[tuple[str, str], Definition]:
        """File and qualname -> the first definition that has them."""
        found: dict[tuple[str, str], Definition] = {}
        for each in self.facts.definitions:
            found.setdefault((each.place.file, each.qualname), each)
        return found

    @cached_property
    def subclasses(self) -> dict[str, list[Definition]]:
        """Name of a base as written, its last part -> the classes of the repository's own code that have it."""
        found: dict[str, list[Definition]] = {}
        for each in self.definitions:
            for base in each.bases:
                found.setdefault(re.split(r"[\[(]", base)[0].rpartition(".")[2], []).append(each)
        return found

    # -- signs ---------------------------------------------------------------------------------------------------------

    def notes(self, kind: NoteKind) -> Iterator[tuple[str, Note]]:
        for file, found in self.signs.items():
            yield from ((file, note) for note in found.notes if note.kind == kind)

    @cached_property
    def environment_set(self) -> dict[str, Place]:
        """Environment variables that the repository's own code sets, each with the first place."""
        found: dict[str, Place] = {}
        for file, note in self.notes("sets environment"):
            found.setdefault(note.text, Place(file, note.line))
        return found

    # -- imports -------------------------------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> Modules:
        every = ((file, each.module) for file, found in self.signs.items() for each in found.imports)
        return Modules(self.files, of_other_packages((file, name.partition(".")[0]) for file, name in every))

    @cached_property
    def imports(self) -> dict[str, dict[str, int]]:
        """File -> the files of the repository that it imports, each with how many names it takes."""
        found: dict[str, dict[str, int]] = {}
        for file in self.signs:
            for target, name in self._imported_names(file):
                if target != file:
                    taken = found.setdefault(file, {})
                    taken[target] = taken.get(target, 0) + 1
                    self._name_importers.setdefault((target, name), set()).add(file)
        return found

    @cached_property
    def _name_importers(self) -> dict[tuple[str, str], set[str]]:
        return {}

    def _imported_names(self, file: str) -> Iterator[tuple[str, str]]:
        if self.files[file].language != "python":
            yield from ((target, "") for target in self._included(file))
            return
        for each in self.signs[file].imports:
            if not each.names:
                where = self._module(each.module, file)
                if where:
                    yield where, ""
                continue
            for name in each.names:
                found = self.resolve(each.module, name, file)
                if found:
                    yield found

    def resolve(self, module: str, name: str, importing: str) -> tuple[str, str] | None:
        """The file that defines ``name`` of ``module``, through packages that only pass it on; name "" is a module."""
        for _ in range(HOPS):
            submodule = self._module(f"{module}.{name}" if module else name, importing)
            if submodule:
                return submodule, ""
            file = self._module(module, importing) if module else None
            if file is None:
                return None
            if (file, name) in self.methods or file not in self.signs:
                return file, name
            passed = next((each for each in self.signs[file].imports if name in each.names), None)
            if passed is None or passed.module == module:
                return file, name
            module, importing = passed.module, file
        return None

    @cached_property
    def _modules_found(self) -> dict[tuple[str, str], str | None]:
        return {}

    def _module(self, dotted: str, importing: str) -> str | None:
        key = (dotted, importing.rpartition("/")[0])
        if key not in self._modules_found:
            self._modules_found[key] = self.modules.file(dotted, importing)
        return self._modules_found[key]

    @cached_property
    def _headers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for file in self.files:
            found.setdefault(file.rpartition("/")[2], []).append(file)
        return found

    def _included(self, file: str) -> Iterator[str]:
        for name in (each.module for each in self.signs[file].imports):
            known = self._headers.get(name.rpartition("/")[2], [])
            ending = [each for each in known if f"/{each}".endswith(f"/{name.lstrip('./')}") and each != file]
            if ending:
                yield min(ending, key=lambda each: (-_shared(each, file), len(each), each))

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """File -> the files of the repository's own code that import it."""
        found: dict[str, set[str]] = {}
        for file, targets in self.imports.items():
            for target in targets:
                found.setdefault(target, set()).add(file)
        return found

    def imported_by(self, definition: Definition) -> int:
        """How many files take this class or function by its name."""
        return len(self.importing(definition))

    def importing(self, definition: Definition) -> frozenset[str] | set[str]:
        """The files that take this class or function by its name."""
        _ = self.imports
        top = definition.qualname.split(".")[0]
        return self._name_importers.get((definition.place.file, top), frozenset())

    @cached_property
    def packages_used(self) -> dict[str, int]:
        """Packages that are not of the repository -> how many files import them, most first."""
        found: dict[str, set[str]] = {}
        for file, signs_of in self.signs.items():
            for each in signs_of.imports if file.endswith(".py") else ():
                top = each.module.split(".")[0]
                if top and self._module(top, file) is None and top not in self._own_tops:
                    found.setdefault(top, set()).add(file)
        return dict(sorted(((k, len(v)) for k, v in found.items()), key=lambda item: (-item[1], item[0])))

    @cached_property
    def tops(self) -> set[str]:
        """The top folders of the repository's own code, in small letters."""
        return {file.partition("/")[0].lower() for file in self.signs}

    @cached_property
    def _own_tops(self) -> set[str]:
        """Folders that modules of the repository are named by: a folder of a package is none, as its name begins with
        the package's."""
        packages = {file.rpartition("/")[0] for file in self.files if file.endswith("/__init__.py")}
        found: set[str] = set()
        for file in self.files:
            parts = file.split("/")
            for depth in range(min(len(parts), 3) if file.endswith(".py") else 0):
                if not any("/".join(parts[:above]) in packages for above in range(1, depth + 1)):
                    found.add(parts[depth])
        return found


@lru_cache(maxsize=64)
def _text(root: Path, file: str) -> str | None:
    try:
        return decode(read_bytes(root / file, LARGEST), python=file.endswith(".py")).text
    except Unreadable:
        return None


def _shared(one: str, other: str) -> int:
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), 0)
