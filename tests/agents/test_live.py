"""One conversation with the live service. It costs money: only with LMP_LIVE_TEST=1 and a key given for it."""

from __future__ import annotations

import os

import pytest

from lmp.agents.base import Caps

# Read here because `nothing_real` clears the environment; no other credential is ever looked at.
_KEY = os.environ.get("LMP_LIVE_TEST_KEY") if os.environ.get("LMP_LIVE_TEST") == "1" else None


@pytest.mark.skipif(_KEY is None, reason="asks the live service: set LMP_LIVE_TEST=1 and LMP_LIVE_TEST_KEY")
def test_the_live_service_submits(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", str(_KEY))
    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    bench.options = {"model": os.environ.get("LMP_LIVE_TEST_MODEL")}
    prompt = "Hand in 6 times 7 as `flops` with submit_analysis. Then stop."

    ended = bench.run(bench.task(prompt=prompt, caps=Caps(max_turns=4, budget_usd=0.2, timeout=120.0)))

    assert ended.how == "over"
    assert bench.desk.got[-1].flops == 42
