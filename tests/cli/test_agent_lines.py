"""One short line for each step of an agent, and none for what is only in the transcript."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lmp.agents.commands import Summary
from lmp.cli.agents import count, event_text, until

CLASS = "transformers.models.llama.modeling_llama.LlamaMLP"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "begins", "stage": "module-analyzer"}, "LlamaMLP: module analyzer"),
        ({"event": "begins", "stage": "module-analyzer", "resumes": "x"}, "LlamaMLP: module analyzer, resumed"),
        ({"event": "tool", "tool": "Read", "short": "a.py"}, "LlamaMLP: Read a.py"),
        ({"event": "tool", "tool": "submit_analysis"}, "LlamaMLP: submit_analysis"),
        ({"event": "denied", "tool": "Read", "short": "/x", "why": "no"}, "LlamaMLP: DENIED Read /x: no"),
        (
            {"event": "retry", "attempt": 3, "of": 10, "seconds": 5, "why": "529"},
            "LlamaMLP: waiting 5 s, then try 3 of 10 (529)",
        ),
        ({"event": "rate_limit", "status": "rejected"}, "LlamaMLP: rate limit rejected"),
        ({"event": "fallback", "model": "small"}, "LlamaMLP: small takes over"),
        ({"event": "waits", "for": ["torch.nn.SiLU"]}, "LlamaMLP: waits for SiLU"),
        ({"event": "result", "turns": 1, "cost_usd": None}, "LlamaMLP: 1 turn, $0.0000"),
        ({"event": "text", "text": "thinking aloud"}, None),
    ],
)
def test_a_step_is_a_line(event: dict[str, object], line: str | None) -> None:
    assert event_text({"class": CLASS, **event}) == line


def test_a_report_is_called_by_its_whole_name() -> None:
    event = {"class": "sglang-0.5.23", "stage": "narrator", "event": "begins"}
    assert event_text(event) == "sglang-0.5.23: narrator"


def test_the_end_of_a_narration() -> None:
    summary = Summary("r1", {}, {}, 3, 0.5, 1, ("small",), 2.0, Path("t.jsonl"), "narrated")
    expected = "narrated by small: 3 turns, $0.5000, 2 s, 1 tool call denied; transcript: t.jsonl"
    assert event_text({"event": "summary", "summary": summary}) == expected


def test_until_is_the_users_own_clock() -> None:
    # 1 January 2026, 12:30 wherever this runs
    noon = time.mktime((2026, 1, 1, 12, 30, 0, 0, 1, 0))
    assert until(noon) == ", until 12:30"
    assert until(None) == ""


def test_one_and_many() -> None:
    assert [count(number, "turn") for number in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]
