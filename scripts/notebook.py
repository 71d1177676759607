"""Executes the cells of docs/notebook.ipynb as Jupyter does, and writes what they show into it; --check compares.

    python scripts/notebook.py           # writes the outputs anew
    python scripts/notebook.py --check   # exits with 1 where a stored output is not what its cell shows

The cells run in this process, one after the other. Results are read from a copy of analysis_results/.
"""

from __future__ import annotations

import ast
import code
import contextlib
import io
import json
import linecache
import os
import shutil
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"

Output = dict[str, Any]


def executed(cells: list[dict[str, Any]]) -> list[list[Output]]:
    """What each code cell shows. Raises RuntimeError for a cell that fails."""
    shell = Shell()
    return [shell.run(number, "".join(cell["source"])) for number, cell in enumerate(cells, 1)]


class Shell(code.InteractiveInterpreter):
    """Runs cells in a ``__main__`` of their own: the value of the last expression is shown.

    As in Jupyter, that module has no file, and classes have their source where tracebacks look for it.
    """

    def __init__(self) -> None:
        self._program = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        super().__init__(vars(sys.modules["__main__"]))

    def run(self, number: int, text: str) -> list[Output]:
        name = f"{tempfile.gettempdir()}/ipykernel_{os.getpid()}/{number}.py"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        tree = ast.parse(text, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        shown: list[Any] = []
        printed = io.StringIO()
        hook, sys.displayhook = sys.displayhook, shown.append
        try:
            with contextlib.redirect_stdout(printed):
                self.runcode(compile(tree, name, "exec"))
                if last is not None:
                    self.runcode(compile(ast.Interactive([last]), name, "single"))
        finally:
            sys.displayhook = hook
        stream = {"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())}
        values = [value for value in shown if value is not None]
        return [*([stream] if printed.getvalue() else []), *(result(value, number) for value in values)]

    def showtraceback(self) -> None:
        """A cell must not fail."""
        raise RuntimeError("a cell failed") from sys.exc_info()[1]


def result(value: Any, number: int) -> Output:
    """A value as Jupyter stores it: as HTML, where it has that, and as text."""
    html = getattr(value, "_repr_html_", None)
    data = {"text/html": lines(html())} if callable(html) else {}
    data["text/plain"] = lines(repr(value))
    return {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> int:
    check = "--check" in sys.argv[1:]
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="lmp-") as folder:
        os.environ["LMP_RESULTS"] = str(Path(shutil.copytree(ROOT / "analysis_results", Path(folder) / "results")))
        outputs = executed(cells)
    different = [number for number, (cell, found) in enumerate(zip(cells, outputs, strict=True), 1)
                 if cell["outputs"] != found or cell["execution_count"] != number]  # fmt: skip
    if check:
        for number in different:
            print(f"cell {number} shows something else now:\n{json.dumps(outputs[number - 1], indent=1)}")
        return 1 if different else 0
    for number, (cell, found) in enumerate(zip(cells, outputs, strict=True), 1):
        cell |= {"outputs": found, "execution_count": number}
    NOTEBOOK.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
