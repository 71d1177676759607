"""docs/notebook.ipynb: its cells are executed in a process of their own, and show what is stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from project_scripts import program

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
CHECK = [sys.executable, str(ROOT / "scripts" / "notebook.py"), "--check"]


def test_the_stored_outputs_are_what_the_cells_show(transformers_tree: Path, process: None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(CHECK, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, f"run `.venv/bin/python scripts/notebook.py`\n{done.stdout}{done.stderr}"


def test_the_notebook_is_one(tmp_path: Path) -> None:
    """The fields of the format, version 4.5; every code cell has its output, and no cell an error."""
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    cells = book["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code)
    assert {output["output_type"] for cell in code for output in cell["outputs"]} == {"execute_result", "stream"}
    assert str(ROOT) not in NOTEBOOK.read_text(encoding="utf-8")


def test_a_cell_shows_what_it_prints_and_its_last_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # put back after the test
    shell = program("scripts/notebook.py").Shell()
    assert shell.run(1, "a = 3") == []
    printed, value = shell.run(2, "print('one')\na + 4")
    assert printed["text"] == ["one\n"]
    assert value["data"] == {"text/plain": ["7"]}
    with pytest.raises(RuntimeError, match="a cell failed"):
        shell.run(3, "a / 0")
