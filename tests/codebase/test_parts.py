"""Parts that a reader names: which rows and calls they make, and what is wrong with a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.codebase.facts import Selection
from lmp.codebase.parts import NamedParts, Part, PartCall, Parts, calls_with, findings, placed, rows_with
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.reach import Reading
from lmp.codebase.rows import every_row, nesting
from lmp.records import Provenance

ENGINE = """\
import torch
from handlers import HANDLERS

class Pool:
    def __init__(self, size):
        self.free = list(range(size))

    def take(self):
        return self.free.pop()


class Engine:
    def __init__(self):
        self.pool = Pool(8)

    def step(self, name):
        page = self.pool.take()
        return HANDLERS[name](page)

    def sample(self, logits):
        return torch.multinomial(torch.softmax(logits, -1), 1)
"""
HANDLER = """\
HANDLERS = {}

def greedy(page):
    return page
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "handlers.py").write_text(HANDLER)
    return tmp_path


@pytest.fixture
def reading(root: Path) -> Reading:
    return Reading(read_repository(root, Selection(), lambda at, of, file: None))


def part(section: str, symbol: str, line: int, role: str = "allocate", file: str = "engine.py") -> Part:
    return Part.model_validate({"section": section, "role": role, "symbol": symbol, "file": file, "line": line})


def call(caller: tuple[str, int], callee: tuple[str, int, str], line: int) -> PartCall:
    return PartCall(
        caller=caller[0],
        caller_file="engine.py",
        caller_line=caller[1],
        callee=callee[0],
        callee_line=callee[1],
        callee_file=callee[2],
        line=line,
        dispatch="registry",
    )


def wrong(root: Path, reading: Reading, parts: Parts) -> list[str]:
    return [each.message for each in findings(parts, reading, lambda file: (root / file).read_text().split("\n"))]


def test_a_section_that_is_named_replaces_that_of_rules(reading: Reading) -> None:
    ruled = every_row(reading)
    assert ("sampling", "Engine.sample") in {(row.section, row.symbol) for row in ruled}  # it draws: multinomial
    # One line below its def: what is meant is the definition.
    rows = rows_with(Parts(parts=[part("kv_cache", "Pool.take", 9)]), reading, ruled)
    assert [(row.symbol, row.place.line, row.role) for row in rows if row.section == "kv_cache"] == [
        ("Pool.take", 8, "allocate")
    ]
    others = [row for row in ruled if row.section != "kv_cache"]
    assert [row for row in rows if row.section != "kv_cache"] == others


def test_a_section_that_is_absent_has_no_rows(reading: Reading) -> None:
    rows = rows_with(Parts(absent=["sampling"]), reading, every_row(reading))
    assert "sampling" not in {row.section for row in rows}


def test_calls_are_those_of_the_graph_where_it_has_them(reading: Reading) -> None:
    named = Parts(
        nesting=[
            call(("Engine.step", 16), ("Pool.take", 8, "engine.py"), 17),  # found by reading
            call(("Engine.step", 16), ("greedy", 3, "handlers.py"), 18),  # by the reader alone: the table is empty
            call(("Engine.__init__", 13), ("Pool", 4, "engine.py"), 14),  # a class stands for its constructor
        ]
    )
    found = calls_with(named, reading, every_row(reading), nesting(reading))
    assert [(edge.caller.qualname, edge.callee.qualname, edge.line, edge.how) for edge in found] == [
        # What users call comes first, then what nobody named calls.
        ("Engine.step", "Pool.take", 17, "direct"),
        ("Engine.step", "greedy", 18, "registry"),
        ("Engine.__init__", "Pool.__init__", 14, "constructor"),
    ]
    ruled = nesting(reading)
    assert calls_with(Parts(absent=["sampling"]), reading, every_row(reading), ruled) == ruled


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (part("kv_cache", "Pool.take", 8, file="pool.py"), "the parts: none of their files is one of the code base"),
        (part("kv_cache", "Pool.take", 99), "parts[0]: engine.py has 21 lines, not 99"),
        (part("kv_cache", "Pool.tak", 8), "parts[0]: tak does not stand within 3 lines of engine.py:8"),
        (part("kv_cache", "Wrong.take", 8), "parts[0]: what is defined there is Pool.take"),
        (call(("Engine.step", 16), ("Wrong.take", 8, "engine.py"), 17), "nesting[0]: the callee is no function that"),
        (part("kv_cache", "Pool.", 8), "parts[0]: Pool. does not stand within 3 lines of engine.py:8"),
        (part("kv_cache", "Pool.take", 22), "parts[0]: take does not stand within 3 lines of engine.py:22"),
        (part("kv_cache", "Pool.take", 8, "draw"), "parts[0]: kv_cache has no role draw, but layout, update, allocate"),
        (part("scheduler", "Pool.take", 8, "queue"), "parts[0]: scheduler is said to be absent"),
        (call(("Engine.step", 16), ("Pool.take", 8, "engine.py"), 20), "nesting[0]: line 20 is not within Engine.step"),
        (call(("HANDLERS", 2), ("Pool.take", 8, "engine.py"), 2), "nesting[0]: the caller is no function that was"),
    ],
)
def test_a_place_is_opened(root: Path, reading: Reading, named: Part | PartCall, message: str) -> None:
    given = {"nesting": [named]} if isinstance(named, PartCall) else {"parts": [named]}
    [found] = wrong(root, reading, Parts.model_validate({**given, "absent": ["scheduler"]}))
    assert found.startswith(message)


def test_some_files_may_be_known(root: Path, reading: Reading) -> None:
    named = Parts(parts=[part("kv_cache", "Pool.take", 8), part("kv_cache", "Pool.take", 8, file="./engine.py")])
    assert wrong(root, reading, named) == [
        "parts[1]: ./engine.py is no file of the code base that was read: paths are relative to its folder"
    ]


def test_a_call_stands_where_its_caller_calls(root: Path) -> None:
    body = "    a = 1\n" + 4 * "    a += 1\n"
    (root / "slow.py").write_text(f"def step():\n{body}    return done()\n\n\ndef done():\n    return 1\n")
    reading = Reading(read_repository(root, Selection(), lambda at, of, file: None))
    of = {"caller": "step", "caller_file": "slow.py", "caller_line": 1, "callee": "done", "callee_file": "slow.py"}
    twice = [PartCall.model_validate({**of, "callee_line": 10, "line": line}) for line in (2, 7, 7)]
    assert wrong(root, reading, Parts(nesting=twice)) == [
        "nesting[0]: step calls nothing within 3 lines of line 2",
        "nesting[2]: it is named twice",
    ]


def test_places_are_those_of_the_definitions(reading: Reading) -> None:
    named = placed(Parts(parts=[part("kv_cache", "Pool.take", 10)], absent=["sampling", "sampling"]), reading)
    assert (named.parts[0].line, named.absent) == (8, ["sampling"])


def test_a_flag_may_be_the_argument_that_a_package_makes_it_of(root: Path, reading: Reading) -> None:
    flag = Part(section="configuration", role="cli flag", symbol="--name", file="engine.py", line=16)
    assert wrong(root, reading, Parts(parts=[flag])) == []


def test_nothing_and_the_same_twice(root: Path, reading: Reading) -> None:
    assert wrong(root, reading, Parts()) == ["the parts: nothing is named, and nothing is said to be absent"]
    # Another role of the same function is another row.
    rows = [
        part("kv_cache", "Pool.take", 8),
        part("kv_cache", "Pool.take", 8, "free"),
        part("kv_cache", "Pool.take", 8),
    ]
    assert wrong(root, reading, Parts(parts=rows)) == ["parts[2]: Pool.take is named as allocate of kv_cache twice"]


def test_files_themselves_are_named_by_their_names(root: Path) -> None:
    """A script without a function has no other name; it calls, too, as its block does."""
    (root / "train.py").write_text("from engine import Engine\n\nEngine().step('greedy')\n")
    (root / "run.py").write_text(
        "from engine import Engine\n\nif __name__ == '__main__':\n    Engine().step('greedy')\n"
    )
    reading = Reading(read_repository(root, Selection(), lambda at, of, file: None))
    step = {"callee": "Engine.step", "callee_file": "engine.py", "callee_line": 16, "dispatch": "attribute"}
    named = Parts(
        parts=[part("entry_points", "train.py", 1, "cli", "train.py")],
        nesting=[
            PartCall.model_validate(
                {"caller": "train.py", "caller_file": "train.py", "caller_line": 1, "line": 3, **step}
            ),
            PartCall.model_validate(
                {"caller": "__main__", "caller_file": "run.py", "caller_line": 3, "line": 4, **step}
            ),
        ],
    )
    assert wrong(root, reading, named) == []
    found = calls_with(named, reading, every_row(reading), [])
    assert sorted((edge.caller.file, edge.line, edge.callee.name) for edge in found) == [
        ("run.py", 4, "step"),
        ("train.py", 3, "step"),
    ]


def test_what_is_kept_is_read_again() -> None:
    named = NamedParts(parts=Parts(absent=["sampling"]), provenance=Provenance(stage="submitted", author="Ada"))
    assert NamedParts.model_validate_json(named.model_dump_json()) == named


def test_the_place_of_a_pitfall_is_opened(root: Path, reading: Reading) -> None:
    # ``free`` stands in lines 6 and 9 of engine.py; no line within three of 20 has it, and other.py is not there.
    told = {"symbol": "Pool.free", "trigger": "It is asked twice.", "effect": "It fails.", "fix": "Ask once."}
    given = [
        {**told, "file": file, "line": line} for file, line in (("engine.py", 9), ("engine.py", 20), ("other.py", 1))
    ]
    found = wrong(root, reading, Parts.model_validate({"pitfalls": given}))
    assert found == [
        "pitfalls[1]: free does not stand within 3 lines of engine.py:20",
        "pitfalls[2]: other.py is no file of the code base that was read: paths are relative to its folder",
    ]
