"""What is shown of a run, by what witnesses weigh. Weights are given here: each chance is worked out by hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from lmp.codebase.facts import Place, Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles import likely, turns
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.rows import every_row, nesting
from lmp.codebase.rows import likely as likely_of

SCRIPTS = Path(__file__).parents[2] / "scripts"
TEXT = """import torch


def grow(x):
    return pour(x) + pour(x)


def pour(x):
    for row in x:
        row = row + 1
    return row


def stone(x):
    return x
"""


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    (tmp_path / "run.py").write_text(TEXT)
    return Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))


def weigh(monkeypatch: pytest.MonkeyPatch, **given: dict[str, float]) -> None:
    """Sections without weights show nothing: their chance is 1 / (1 + e^9)."""
    never = {"": -9.0}
    sections = ("entry_points", "kv_cache", "scheduler", "sampling", "attention", "nesting")
    monkeypatch.setattr(likely, "weights", lambda: {each: given.get(each, never) for each in sections})


def test_a_chance_is_that_of_the_sum() -> None:
    # 2 * 0.5 - 1 = 0 points are a half; ln 3 points are three of four; what has no weight says nothing.
    assert likely.chance_of({"": -1.0, "a": 0.5}, {"a": 2.0, "b": 7.0}) == 0.5
    assert likely.chance_of({"": 0.0, "a": math.log(3)}, {"a": 1.0}) == pytest.approx(0.75)
    # No sum is too large to be told.
    assert likely.chance_of({"": 1e9}, {}) == pytest.approx(1.0)


def test_what_a_thing_does_counts(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only pour has a loop. -2 + 4 = 2 points are 88 of 100.
    weigh(monkeypatch, sampling={"": -2.0, "loops": 4.0})
    rows = [row for row in every_row(reading) if row.section == "sampling"]
    assert [(row.symbol, row.why) for row in rows] == [("pour", "by its witnesses")]


def test_a_name_needs_something_that_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.py").write_text(TEXT.replace("stone", "sampler").replace("pour", "sample"))
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    # Both names say sampling: -3 + 5 points. Without the name sampler has -3 points (5 of 100), sample -3 + 1 (12).
    weigh(monkeypatch, sampling={"": -3.0, "named sampling": 5.0, "loops": 1.0})
    rows = [row for row in every_row(reading) if row.section == "sampling"]
    assert [row.symbol for row in rows] == ["sample"]


DRAWS = "\n\ndef draw(logits):\n    return torch.multinomial(logits, 1)\n"


def test_calls_that_matter_are_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.py").write_text(TEXT + DRAWS)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    # grow calls pour twice: one call of the nesting. Nothing calls stone.
    weigh(monkeypatch, nesting={"": -2.5, "callee loops": 1.0})
    assert [(edge.caller.qualname, edge.callee.qualname, edge.line) for edge in nesting(reading)] == [
        ("grow", "pour", 5)
    ]
    # -2.5 points are 7.6 of 100, and 10 are needed.
    weigh(monkeypatch, nesting={"": -2.5})
    assert nesting(reading) == []


def test_where_no_model_is_run_no_call_matters(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without draw nothing attends, draws, trains, writes a cache or makes a batch.
    weigh(monkeypatch, nesting={"": 2.0})
    assert nesting(reading) == []


def test_a_call_has_the_parts_of_its_ends_as_witnesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = "\n\ndef step(logits):\n    return draw(pour(logits))\n"
    (tmp_path / "run.py").write_text(TEXT + DRAWS + step)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    # Of the three calls only that of draw leads to what rules find: -3 + 3 points are a half.
    weigh(monkeypatch, nesting={"": -3.0, "callee ruled in sampling": 3.0})
    assert [(edge.caller.qualname, edge.callee.qualname) for edge in nesting(reading)] == [("step", "draw")]


def test_what_users_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The package hands out Box and hide; the README imports Box and calls its method. Inner is handed out by a package
    # below, and _own has a private name. The block of try.py is no function.
    (tmp_path / "pack" / "below").mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("from pack.box import Box, hide\n")
    (tmp_path / "pack" / "below" / "__init__.py").write_text("from pack.box import Inner\n")
    (tmp_path / "pack" / "box.py").write_text(
        "class Box:\n    def fill(self):\n        return 1\n\n\nclass Inner:\n    def empty(self):\n        return 2\n"
        "\n\n"
        "def hide():\n    return 3\n\n\ndef _own():\n    return 4\n"
    )
    (tmp_path / "pack" / "try.py").write_text("if __name__ == '__main__':\n    print(1)\n")
    (tmp_path / "README.md").write_text("from pack import Box\nBox().fill()\nbox = Box()\nbox.fill()\n")
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))

    def shown(**weight: float) -> list[tuple[str, str]]:
        weigh(monkeypatch, entry_points={"": -2.0, **{name.replace("_", " "): of for name, of in weight.items()}})
        return [(row.role, row.symbol) for row in every_row(reading) if row.section == "entry_points"]

    # -2 + 3 = 1 point is 73 of 100, where 65 are needed. The block, which rules find, needs 15 and has 12 without.
    assert shown(handed_out=3.0) == [("library", "Box"), ("library", "Inner"), ("library", "hide")]
    assert shown(handed_out_by_the_outermost=3.0) == [("library", "Box"), ("library", "hide")]
    assert shown(README_imports_it=3.0) == [("library", "Box")]
    assert shown(README_calls_the_method=3.0) == [("library", "Box.fill")]
    assert shown(main_block=3.0) == [("cli", "__main__")]


def test_each_section_has_weights() -> None:
    weights = likely.weights()
    assert {name for name in weights if ": " not in name} == set(likely.LEAST)
    assert {name.partition(":")[0] for name in weights if ": " in name} == {"sampling", "attention"}
    assert all("" in each and len(each) > 20 for each in weights.values())
    assert all(math.isfinite(weight) for each in weights.values() for weight in each.values())


def test_the_fit_keeps_what_tells_and_drops_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    fit_roles = __import__("fit_roles")
    # In each of two code bases, half of 120 things are told by one witness; the other holds for every second one of
    # both halves, and so says nothing.
    samples = [((("run.py", 10 * at),), {"tells": float(at % 4 < 2), "noise": float(at % 2)}) for at in range(120)]
    rows = [{"weight": "core", "file": "run.py", "line": 10 * at} for at in range(120) if at % 4 < 2]
    bases = {"one": samples, "two": samples}
    named = {name: fit_roles.labels("sampling", {"sampling": rows}, of) for name, of in bases.items()}
    fit = fit_roles.Fit("sampling", bases, named)
    weights, added = fit.of(["one", "two"])
    by_name = dict(zip(fit.names, weights, strict=True))
    assert by_name["tells"] > 1
    assert abs(by_name["noise"]) < 0.05
    assert added < 0
    found = [place for _, place in fit.found(samples, (np.array(weights), added))]
    assert {place[0][1] for place in found} == {row["line"] for row in rows}
    sys.modules.pop("fit_roles", None)


TURNS = """import random
import threading
from collections import deque


class Desk:
    def __init__(self):
        self.line = deque()
        self.jobs = deque()
        self.guard = threading.Lock()

    def __iter__(self):
        return iter(self.jobs)

    def join(self, job):
        with self.guard:
            self.jobs.append(job)

    def serve(self):
        return self.jobs.popleft()


def deal(cards, hand):
    random.shuffle(cards)
    for start in range(0, len(cards), hand):
        yield cards[start : start + hand]


def count(cards):
    for start in range(0, 52, 4):
        print(start)
"""


def test_what_is_done_with_pieces_and_with_what_waits(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(TURNS)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    functions = {each.qualname: dict(turns.of_function(reading, each)) for each in reading.functions}
    held = {name: {witness for witness, value in found.items() if value} for name, found in functions.items()}
    assert held["Desk.__iter__"] == {"gone through", "reads a queue of its object"}
    assert held["Desk.join"] == {
        "puts into what it keeps",
        "reads a queue of its object",
        "reads a lock of its object",
    }
    assert held["Desk.serve"] == {"reads a queue of its object"}
    # The size is given; a step that is a number says nothing. One length is asked for.
    assert held["deal"] == {"shuffles", "steps by a size", "asks for lengths"}
    assert functions["deal"]["asks for lengths"] == 1
    assert held["count"] == set()
    (desk,) = reading.classes
    assert dict(turns.of_class(desk)) == {"can be gone through": True, "keeps a queue": True, "keeps a lock": True}


def test_a_rule_of_many_is_known_by_the_first_word_of_its_reason(reading: Reading) -> None:
    found = likely_of(reading)
    # As if rules had found pour: as the scheduler's and as one that samples, whose rules are alike.
    pour = next(key for key, thing in found.weighing.things.items() if thing.name == "pour")
    for section in ("scheduler", "sampling"):
        found.ruled[section][pour] = Row(section, "batch", "pour", Place(*pour), "joins samples to a batch")
    ruled = {
        section: {name for name in held if name.startswith("ruled as")}
        for section, key, held in found.things()
        if key == pour
    }
    assert ruled["scheduler"] == {"ruled as it joins"}
    assert ruled["sampling"] == set()


def test_the_role_is_the_one_that_witnesses_speak_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of `release_slots` two words count for `free` (2 - 1 = 1), and the rule's word for `layout` (0.5); a section of
    # which no role was fitted keeps the role of its rule.
    fitted = {
        "kv_cache": {"": 0.0},
        "kv_cache: free": {"": -1.0, "says release": 2.0},
        "kv_cache: layout": {"": 0.0, "ruled as layout": 0.5},
    }
    monkeypatch.setattr(likely, "weights", lambda: fitted)
    place = Place("a.py", 1)
    assert likely.likeliest_role(Row("kv_cache", "layout", "Cache.release_slots", place), {}) == "free"
    assert likely.likeliest_role(Row("kv_cache", "layout", "Cache.keep", place), {}) == "layout"
    assert likely.likeliest_role(Row("attention", "module", "Cache.release_slots", place), {}) == "module"


def test_a_route_is_a_way_in_and_no_function_of_a_library(tmp_path: Path) -> None:
    # What handles a request stands in the function that makes the server: nobody imports it.
    text = """from fastapi import FastAPI

def create_app():
    app = FastAPI()

    @app.post("/v1/score")
    def score(body):
        return body

    return app
"""
    (tmp_path / "app.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    begins = likely_of(reading).begins
    (score,) = (each for each in reading.functions if each.name == "score")
    row = begins.row(score.key, score)
    assert (row.role, row.why) == ("server", "POST /v1/score")
    (made,) = (each for each in reading.functions if each.name == "create_app")
    assert begins.row(made.key, made).role == "library"


def test_a_softmax_over_experts_is_no_attention(tmp_path: Path) -> None:
    text = """import torch

def mix(x, experts, gate):
    weights = torch.softmax(torch.matmul(x, gate), dim=-1)
    return torch.einsum("bh,eho->bo", x, experts) * weights

def attend(x, y, z):
    weights = torch.softmax(torch.matmul(x, y), dim=-1)
    return torch.matmul(weights, z)
"""
    (tmp_path / "mix.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    assert [each.name for each in reading.attends] == ["attend"]


def test_what_stands_in_a_function_is_no_way_in(tmp_path: Path) -> None:
    text = "def patch(engine):\n    def run(x):\n        return x\n    engine.run = run\n"
    (tmp_path / "patch.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    assert [key[1] for key, _ in likely_of(reading).starts()] == [1]
