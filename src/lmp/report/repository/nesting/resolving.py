"""Where a called name is defined: by jedi, which reads the repository's files and runs nothing of them.

jedi imports compiled modules that it finds on the paths it takes for the interpreter's own; these are none here, so
that no extension module of a repository is ever loaded. Its cache is a folder of this process, gone afterwards.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.codebase.facts import Place
from lmp.errors import UsageError

KEPT = 40
"""Scripts at a time."""


@dataclass(frozen=True)
class Found:
    kind: str
    """``function``, ``class``, ``instance``, ``statement``, ``param``."""
    name: str
    place: Place | None
    """None: not of the repository."""


class Resolver:
    """Asks jedi at most ``most`` times: a budget of questions and not of seconds, so that two runs agree."""

    def __init__(self, root: Path, most: int = 1500) -> None:
        self._root, self._left = root.resolve(), most
        self._scripts: OrderedDict[str, Any] = OrderedDict()
        self._project: Any = None

    @property
    def spent(self) -> bool:
        return self._left <= 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """jedi's settings are of the process: they are as before afterwards."""
        try:
            import jedi
            from parso.cache import parser_cache
        except ImportError:
            raise UsageError("a report on a code base needs more packages: pip install lmp[report]") from None
        before = jedi.settings.cache_directory, jedi.settings.auto_import_modules, jedi.settings.dynamic_params
        with tempfile.TemporaryDirectory(prefix="lmp-jedi-") as folder:
            jedi.settings.cache_directory, jedi.settings.auto_import_modules = folder, []
            # Who calls a function, to tell what its parameters are, is looked for in all files: half of the time.
            jedi.settings.dynamic_params = False
            self._project = jedi.Project(
                self._root,
                sys_path=[],
                added_sys_path=[str(self._root), *self._source_folders()],
                smart_sys_path=False,
                load_unsafe_extensions=False,
            )
            try:
                yield
            finally:
                jedi.settings.cache_directory, jedi.settings.auto_import_modules, jedi.settings.dynamic_params = before
                self._scripts.clear()
                # The trees of the files that it has read, which nothing asks for again.
                parser_cache.clear()

    def _source_folders(self) -> list[str]:
        """``src`` and ``python``, where packages lie in them."""
        return [str(self._root / name) for name in ("src", "python") if (self._root / name).is_dir()]

    def goto(self, file: str, text: str, line: int, column: int) -> list[Found]:
        """Where the name at a place is defined. Columns count characters from 0."""
        return self._asked("goto", file, text, line, column)

    def infer(self, file: str, text: str, line: int, column: int) -> list[Found]:
        """What the name at a place is."""
        return self._asked("infer", file, text, line, column)

    def _asked(self, how: str, file: str, text: str, line: int, column: int) -> list[Found]:
        if self.spent:
            return []
        self._left -= 1
        script = self._script(file, text)
        try:
            with warnings.catch_warnings():
                # Of compiled modules, which it is not let load.
                warnings.simplefilter("ignore")
                return self._names(script, how, line, column)
        except Exception:
            # Whatever a strange file makes jedi stumble over: it could not tell, and the report says so.
            return []

    def _names(self, script: Any, how: str, line: int, column: int) -> list[Found]:
        names = script.goto(line, column, follow_imports=True) if how == "goto" else script.infer(line, column)
        return [self._found(name) for name in names]

    def _found(self, name: Any) -> Found:
        place = None
        if name.module_path is not None and name.line is not None:
            path = Path(name.module_path)
            if path.is_relative_to(self._root):
                place = Place(path.relative_to(self._root).as_posix(), name.line)
        return Found(name.type, name.name, place)

    def _script(self, file: str, text: str) -> Any:
        import jedi

        if file not in self._scripts:
            self._scripts[file] = jedi.Script(
                text, path=self._root / file, project=self._project, environment=jedi.InterpreterEnvironment()
            )
            if len(self._scripts) > KEPT:
                self._scripts.popitem(last=False)
        self._scripts.move_to_end(file)
        return self._scripts[file]
