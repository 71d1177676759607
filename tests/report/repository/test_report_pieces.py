"""Pieces that several sections are made of."""

from __future__ import annotations

from lmp.codebase.facts import Place
from lmp.report.document.parts import Pointer
from lmp.report.repository.pieces import pointer


def test_the_last_part_of_a_dotted_name_is_the_symbol() -> None:
    # `def forward` stands at the line, not `Block.forward`.
    assert pointer(Place("a/model.py", 3), "Block.forward") == Pointer("a/model.py", 3, symbol="forward")


def test_a_file_does_not_contain_its_own_name() -> None:
    # What runs when the file is started has no name but that of the file.
    assert pointer(Place("a/__main__.py", 3), "__main__.py") == Pointer("a/__main__.py", 3)
    assert pointer(Place("a/__main__.py", 3), "__main__") == Pointer("a/__main__.py", 3)
    assert pointer(Place("a/run.py", 3), "__main__").symbol == "__main__"  # the guard says it


def test_an_expression_is_no_symbol_of_a_pointer() -> None:
    assert pointer(Place("a.py", 3), 'f"gemm_{bits}"').symbol is None
    assert pointer(Place("a.py", 3), "A.gemm").symbol == "gemm"
