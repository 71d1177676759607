"""Errors that reach Python name arguments of the API, and no option of a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmp.api.words import in_api_words, translated
from lmp.errors import FormulaSyntaxError, NotFound, Search, UsageError

SRC = Path(__file__).parents[2] / "src" / "lmp"
ROOMS = ("source", "store", "link", "workload", "trace", "verify", "analyze", "observe", "predict")
OF_COMMANDS = (
    "predict/plan/", "predict/serve/", "predict/fit/", "source/vendor.py", "store/schemas.py",
    "predict/screen/changes.py", "predict/screen/plots.py",
)  # fmt: skip
"""Files whose texts no function of the API prints: plans, serving, fits, vendoring, options to type next, plots."""
OPTION = re.compile(r"(?<![\w-])(--[a-z]|-[bsc]\b)")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("give --batch-size 2 --seq-len 16", "give batch_size=2, seq_len=16"),
        ("give --set hidden=16 --set width=4", "give hidden=16, width=4"),
        ("--tp 3 does not divide", "tp=3 does not divide"),
        ("it fits with --tp 4; --force predicts the time", "it fits with tp=4; memory=False predicts the time"),
        ("name these in --inputs", "name these in inputs"),
        ('as in --inputs "x: float[2]" --init "n=4"', 'as in inputs="x: float[2]", init="n=4"'),
        ("give the file with --config FILE, or run", "give the file with config=FILE, or run"),
        ("use `--engine trace`", 'use `engine="trace"`'),
        ("--kv-dtype fp8", 'kv="fp8"'),
        # What is to be typed in a shell stays.
        ("run `lmp analyze-module A --fresh`", "run `lmp analyze-module A --fresh`"),
        ("see `python -c 'import torch'`", "see `python -c 'import torch'`"),
        # Words with hyphens are no options.
        ("32-bit well-known a - b", "32-bit well-known a - b"),
    ],
)
def test_options_become_arguments(said: str, meant: str) -> None:
    assert translated(said) == meant


def test_variables_become_arguments() -> None:
    names = {"batch_size": "batch", "cache_len": "cache"}
    assert translated("batch_size is 0, cache_len 4", names) == "batch is 0, cache 4"
    # Of a formula the variables stay: it is quoted.
    assert translated("its formulas assume {cache_len} > 0", names) == "its formulas assume {cache_len} > 0"
    assert translated("my_batch_size", names) == "my_batch_size"


def test_an_error_keeps_its_class_and_what_it_has() -> None:
    search = [Search("a", "b", "c")]
    with pytest.raises(NotFound) as found, in_api_words():
        raise NotFound("no config\ngive one with --config FILE", search)
    assert str(found.value) == "no config\ngive one with config=FILE"
    assert found.value.searched == search
    with pytest.raises(FormulaSyntaxError) as wrong, in_api_words():
        raise FormulaSyntaxError("--set is wrong", "1 + + 2", 4)
    assert (wrong.value.position, wrong.value.text) == (4, "1 + + 2")
    with pytest.raises(KeyError), in_api_words():
        raise KeyError("--tp")


def texts(tree: ast.Module) -> Iterator[str]:
    """Every text of a file but docstrings; of an f-string the values are 7."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in whole for part in node.values}
    for node in whole:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | parts:
            yield node.value


def test_what_counts_as_a_text() -> None:
    tree = ast.parse('"""--doc"""\ndef f(x):\n    "--doc"\n    raise E(f"--tp {x} is" "--ep")\n')
    assert list(texts(tree)) == ["--tp 7 is--ep"]


def test_no_text_of_the_rooms_below_has_an_option_that_stays() -> None:
    left, seen = [], 0
    for file in sorted(SRC.rglob("*.py")):
        name = str(file.relative_to(SRC))
        if not name.startswith(ROOMS) or name.startswith(OF_COMMANDS):
            continue
        for text in texts(ast.parse(file.read_text(encoding="utf-8"))):
            # Code between backticks is typed in a shell; so are these templates, which the store puts between them.
            if OPTION.search(re.sub(r"`[^`]*`", "", text)) and not text.startswith("lmp "):
                seen += 1
                if OPTION.search(re.sub(r"`[^`]*`", "", translated(text))):
                    left.append(f"{name}: {text}")
    assert seen > 30  # so many there are: the search finds them
    assert left == []


def test_a_usage_error_stays_the_same_object() -> None:
    error = UsageError("leave out --tp")
    with pytest.raises(UsageError) as found, in_api_words():
        raise error
    assert found.value is error
    assert str(error) == "leave out tp"
