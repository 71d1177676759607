"""Rows that a narrative strikes and corrects, and the second pass: on the report of one file."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_report as small
from scripted import MODEL, ScriptedAgent, Use
from test_narration import KEY, Desk, submit

from lmp.errors import ReportRefused
from lmp.records import Judged, Narration, Narrative, Provenance, Refutation
from lmp.report.document.amending import TITLE, matches
from lmp.report.document.parts import Bullets, Document, Pointer, Section, Table
from lmp.report.document.told import Told, without
from lmp.report.making import Making
from lmp.report.narration import claimed, refuted, submitted, submitted_refutation
from lmp.report.narrative_review import findings

STEP = small.STEP
WHY = f"The loop is over pages: {STEP}."


def with_rows(told: Told | None) -> Document:
    """The small report with a table of two rows and a list of two sentences."""
    made = small.document(told)
    rows = [["loop", Pointer("engine.py", 15, symbol="step"), "frees pages"], ["cache", "none", "keeps pages"]]
    table = Table(("Part", "Where", "Responsibility"), rows, "engine.py")
    more = Section("Parts", [table, Bullets(["Pages are freed.", "Pages are kept."])])
    return replace(made, sections=[*made.sections, more])


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return replace(small.making(small.code_base(tmp_path / "code")), document=with_rows)


def told(**changes: Any) -> Narrative:
    return Narrative.model_validate({**copy.deepcopy(small.GOOD), **changes})


def strike(**changes: str) -> dict[str, str]:
    return {"section": "Parts", "row": "Pages are freed", "why": WHY, **changes}


def correction(**changes: str) -> dict[str, str]:
    fix = f"walks over pages: {STEP}"
    return {"section": "Parts", "row": "loop", "column": "Responsibility", "text": fix, "why": WHY, **changes}


def section(text: str, title: str) -> list[str]:
    lines = text.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
    return [line for line in lines if line]


def test_a_row_is_corrected_and_a_sentence_struck(making: Making) -> None:
    narrative = told(strikes=[strike()], corrections=[correction()])
    assert findings(making, narrative) == []
    text = making.with_(narrative).text
    assert section(text, "Parts") == [
        "| Part | Where | Responsibility |",
        "| --- | --- | --- |",
        f"| loop | {STEP} | walks over pages: {STEP} |",
        "| cache | none | keeps pages |",
        "- Pages are kept.",
    ]
    assert section(text, TITLE) == [
        "| Section | Row | What was done | What shows it |",
        "| --- | --- | --- | --- |",
        f"| Parts | Pages are freed | struck | {WHY} |",
        f"| Parts | loop | corrected | {WHY} |",
    ]


def test_a_whole_row_is_struck(making: Making) -> None:
    narrative = told(strikes=[strike(row="cache")])
    assert findings(making, narrative) == []
    assert not any(line.startswith("| cache") for line in section(making.with_(narrative).text, "Parts"))


def test_what_is_struck_is_text_and_no_markup(making: Making) -> None:
    narrative = told(corrections=[correction(text=f"<b>x</b> [a](b) | c: {STEP}")])
    row = section(making.with_(narrative).text, "Parts")[2]
    assert row == f"| loop | {STEP} | \\<b\\>x\\</b\\> \\[a\\](b) \\| c: {STEP} |"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strikes": [strike(row="Pages")]}, "strikes[0]: 2 rows or sentences of Parts begin so"),
        ({"strikes": [strike(row="Pipes")]}, "strikes[0]: nothing begins so"),
        ({"strikes": [strike(section="Facts of it")]}, "strikes[0]: nothing begins so"),
        ({"corrections": [correction(column="Owner")]}, "corrections[0]: nothing begins so"),
        ({"strikes": [strike(why="It is wrong.")]}, "strikes[0].why: it names no place in the code"),
        ({"strikes": [strike(why="It moves 2.154 GB a step.")]}, "strikes[0].why: it names no place in the code"),
        ({"strikes": [strike(why="See `engine.py:4` (`step`).")]}, "strikes[0].why: engine.py:4: step does not stand"),
        ({"strikes": [strike()] * 13}, "strikes: 13 are too many"),
        (
            {"tldr": [f"It calls `evict_page`: {STEP}."]},
            "tldr[0]: evict_page stands neither in the report nor in a file",
        ),
    ],
)
def test_what_is_refused(making: Making, changes: dict[str, Any], message: str) -> None:
    assert any(one.message.startswith(message) for one in findings(making, told(**changes)))


def test_rows_are_told_by_how_they_begin(making: Making) -> None:
    narrative = told(strikes=[strike(row="`loop`")])
    assert matches(making.without, narrative.strikes[0]) == ["loop"]


# --- the second pass -------------------------------------------------------------------------------------------------


def judged(narrative: Narrative, making: Making, *refuted: str) -> list[dict[str, Any]]:
    names = [one.name for one in claimed(making, narrative)]
    return [{"text": name, "holds": name not in refuted, "why": WHY} for name in names]


def test_what_is_refuted_is_left_out() -> None:
    narrative = told(strikes=[strike()])
    left = without(narrative, ["tldr[1]", "pitfalls[0].fix", "strikes[0].why", "deep_dive['Loops'][0]"])
    assert left is not None
    assert left.tldr == narrative.tldr[:1]
    assert (left.pitfalls, left.strikes, left.deep_dive) == ([], [], {})
    assert left.insights == narrative.insights
    assert without(narrative, ["tldr[0]", "tldr[1]"]) is None


def test_the_lines_at_its_places_stand_under_a_text(making: Making) -> None:
    first = claimed(making, told())[0]
    assert (first.name, first.text) == ("tldr[0]", small.GOOD["tldr"][0])
    assert "engine.py:15  def step(cache):" in first.source
    assert claimed(making, told())[1].source == ""  # a number, and no place


def test_a_submitted_narrative_and_its_second_pass(making: Making) -> None:
    narration, wrong = submitted(making, small.GOOD, "Ada <b>")
    assert narration is not None, wrong
    head = making.narrated(narration).text.splitlines()[3]
    assert head.startswith("**Narrative:** written by Ada \\<b\\> from this report and the code (prompt `sha256 ")
    assert "and submitted with lmp submit" in head
    assert "no second pass has held its texts against the code" in head
    content = {"judged": judged(narration.narrative, making, "tldr[1]")}
    left, wrong = submitted_refutation(making, narration, content, "Ben")
    assert left is not None, wrong
    assert left.narrative.tldr == small.GOOD["tldr"][:1]
    # tldr 2, insights 1, pitfalls 3 texts, deep dive 1, open questions 1: 8
    assert (
        "a second pass held its 8 texts against the code: 1 of them refuted and left out" in making.narrated(left).text
    )
    assert "2.154 GB a step" not in making.narrated(left).text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda all_: all_[1:], "tldr[0]: it is not judged"),
        (lambda all_: [*all_, all_[0]], "tldr[0]: it is judged twice"),
        (lambda all_: [*all_, {**all_[0], "text": "tldr[9]"}], "tldr[9]: the narrative has no such text"),
        (lambda all_: [{**all_[0], "holds": False, "why": "No."}, *all_[1:]], "tldr[0].why: it names no place"),
        (lambda all_: [{**all_[0], "why": ""}, *all_[1:]], "tldr[0]: why has 0 characters"),
        (lambda all_: [{"text": "tldr[0]"}], "judged.0.holds: Field required"),
    ],
)
def test_a_refutation_that_is_refused(making: Making, change: Any, message: str) -> None:
    narration = Narration(narrative=told(), provenance=Provenance(stage="submitted", author="Ada"))
    content = {"judged": change(judged(narration.narrative, making))}
    left, wrong = submitted_refutation(making, narration, content, "Ben")
    assert left is None
    assert any(one.message.startswith(message) for one in wrong), wrong


def test_nothing_is_written_where_the_whole_summary_is_refuted(making: Making) -> None:
    narration = Narration(narrative=told(), provenance=Provenance(stage="submitted", author="Ada"))
    told_wrong = [Judged(text=f"tldr[{n}]", holds=False, why=WHY) for n in (0, 1)]
    with pytest.raises(ReportRefused, match="the whole summary was refuted"):
        refuted(making, narration, Refutation(judged=told_wrong), narration.provenance)


SECOND = "refuter 1"  # what the scripts call small-0.1


def narrated(desk: Desk, *steps: Use) -> tuple[ScriptedAgent, Narration]:
    from lmp.report.narration import narrated as narrate

    agent = ScriptedAgent({KEY: [submit()], SECOND: list(steps)})
    narrate(desk.start(), desk.making, lambda run: agent, desk.written)
    return agent, Narration.model_validate(json.loads(desk.kept.read_text()))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    small.code_base(tmp_path / "code")
    return Desk(tmp_path)


def test_an_agent_refutes_what_another_conversation_wrote(desk: Desk) -> None:
    def passed(refuted: Sequence[str]) -> Use:
        return Use("submit_refutation", {"refutation": {"judged": judged(told(), desk.making, *refuted)}})

    agent, narration = narrated(desk, passed(["tldr[1]", "nothing"]))
    second = agent.tasks[1]
    assert [tool.name for tool in second.tools] == ["submit_refutation"]
    assert "## pitfalls[0].what" in second.prompt
    assert "engine.py:15  def step(cache):" in second.prompt
    assert narration.narrative.tldr == small.GOOD["tldr"][:1]
    assert narration.refuted_by is not None
    assert (narration.refuted_by.stage, narration.refuted_by.models) == ("refuter", [MODEL])
    assert "1 of them refuted and left out" in desk.text
    assert "2.154 GB a step" not in desk.text


def test_without_a_second_pass_the_report_says_so(desk: Desk) -> None:
    _, narration = narrated(desk)  # the second conversation ends without a word
    assert narration.refutation is None
    assert (
        "no second pass has held its texts against the code: small-0.1: the agent ended without a submission"
        in desk.text
    )


def test_a_second_pass_that_was_interrupted_is_gone_on_with(desk: Desk) -> None:
    from lmp.errors import Interrupted
    from lmp.report.narration import narrated as narrate

    class Interrupting(ScriptedAgent):
        async def carry_out(self, task: Any, on_event: Any) -> Any:
            if task.stage == "refuter":
                raise KeyboardInterrupt
            return await super().carry_out(task, on_event)

    with pytest.raises(Interrupted):
        narrate(desk.start(), desk.making, lambda run: Interrupting({KEY: [submit()]}), desk.written)
    assert not desk.reports.exists()
    all_hold = Use("submit_refutation", {"refutation": {"judged": judged(told(), desk.making)}})
    agent = ScriptedAgent({SECOND: [all_hold]})  # the narrator is not asked again
    narrate(desk.go_on(), desk.making, lambda run: agent, desk.written)
    assert "held its 8 texts against the code: none refuted" in desk.text
