"""`scripts/agent_rate.py` with a scripted command, and with lmp's own agent against a scripted service."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from agents_bench import DUMMY_KEY
from agents_service import MODEL, MessagesServer, Reply, calls
from gate_classes import LINEAR, MLP, NORM

from lmp.analyze.session import Options
from project_scripts import program

SUBMIT = "mcp__lmp__submit_analysis"

_AGENT = """
import json, os, sys
prompt = sys.stdin.read()
drafts = json.load(open({drafts!r}))
name, round = os.environ["LMP_CLASS"], int(os.environ["LMP_ROUND"])
assert "Analyse `" + name + "`." in prompt
if name.endswith("MLP"):
    print("It costs a lot.")
elif name.endswith("RMSNorm") and round < 3:
    assert ("Refused: 1 finding" in prompt) == (round > 1)
    draft = drafts[name]
    draft["kernels"][1]["flops"] = str(round)
    print("Here it is:", json.dumps(draft), "I hope that helps {{}}.")
else:
    print(json.dumps(drafts[name]))
"""


@pytest.fixture(scope="session")
def script() -> ModuleType:
    return program("scripts/agent_rate.py")


@pytest.fixture
def command(tmp_path: Path, draft: Callable[[str], dict[str, Any]]) -> str:
    drafts = tmp_path / "drafts.json"
    drafts.write_text(json.dumps({name: draft(name) for name in (LINEAR, NORM, MLP)}))
    agent = tmp_path / "agent.py"
    agent.write_text(_AGENT.format(drafts=str(drafts)))
    return f"{sys.executable} {agent}"


def test_rates_rounds_and_kinds_of_a_scripted_agent(
    script: ModuleType, command: str, options: Options, tmp_path: Path
) -> None:
    classes = tmp_path / "classes.txt"
    classes.write_text(f"# what is measured\n{NORM}  # a norm\n\n{MLP}\n")
    said: list[str] = []
    before = sorted(path for path in options.results.rglob("*"))
    arguments = [LINEAR, "--classes", str(classes), "--command", command, "--rounds", "4"]
    written = tmp_path / "rates.json"
    code = script.main([*arguments, "--results", str(options.results), "--write", str(written)], said.append)
    assert code == 0
    [text] = said
    # Linear at once, the norm in its third draft, the MLP never: its four answers are prose.
    assert "first draft accepted   1 of 3, 33 %" in text
    assert "accepted in the end    2 of 3, 67 %" in text
    assert "rounds, where accepted 2.00 on average" in text  # (1 + 3) / 2
    assert "  no draft             4 · 1 · 1" in text
    assert "  numbers              2 · 1 · 1" in text
    found = {each["class_name"]: each for each in json.loads(written.read_text())}
    assert {name: each["status"] for name, each in found.items()} == {
        LINEAR: "verified",
        NORM: "verified",
        MLP: "refused",
    }
    assert found[NORM]["rounds"] == [["numbers"], ["numbers"], []]
    assert found[MLP]["why"] == "the answer holds no JSON object"
    assert found[NORM]["tokens_in"] > 3 * found[LINEAR]["tokens_in"] / 2
    # Nothing that was answered is stored.
    assert sorted(path for path in options.results.rglob("*")) == before


def test_a_command_that_fails_is_said(script: ModuleType, options: Options) -> None:
    found = script.Study(f"{sys.executable} -c 'raise SystemExit(\"no key\")'", options).of(LINEAR)
    assert (found.status, found.why) == ("failed", "the command ended with 1: no key")
    assert script.report([found]).count("0 of 1, 0 %") == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('first {"a": 1}, then {"a": 1, "b": 2}.', {"a": 1, "b": 2}),
        ("${{x}} {no} {", None),
    ],
)
def test_json_in_an_answer(script: ModuleType, text: str, value: Any) -> None:
    assert script.json_in(text) == value


def test_a_live_run_is_opted_into(
    script: ModuleType, options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"LMP_LIVE_TEST": "1", "LMP_LIVE_TEST_KEY": DUMMY_KEY}.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert script.main(["--live", LINEAR, "--results", str(options.results)]) == 2
        assert "set LMP_LIVE_TEST=1 and LMP_LIVE_TEST_KEY" in capsys.readouterr().err


def test_a_live_run_within_a_cap(
    script: ModuleType, service: MessagesServer, draft: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live service is a scripted one here. One agent gets half of what is left: the first one's answer takes $0.155
    of $0.16, and the second one's $0.315 are more than its share, and than all."""
    monkeypatch.setenv("LMP_LIVE_TEST", "1")
    monkeypatch.setenv("LMP_LIVE_TEST_KEY", DUMMY_KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "not-for-this")
    # $3 a million tokens in, $15 out: 0.15 + 0.005, and 0.3 + 0.015
    right = Reply([calls(SUBMIT, {"draft": draft(LINEAR)})], tokens=(50_000, 333))
    dear = Reply([calls(SUBMIT, {"draft": draft(NORM)})], tokens=(100_000, 1_000))
    played = service.plays(right, dear)
    said: list[str] = []
    arguments = ["--live", "--max-usd", "0.32", "--model", MODEL, LINEAR, NORM]
    assert script.main([*arguments, "--results", str(tmp_path / "results")], said.append) == 0
    assert played.used_up
    [text] = said
    assert "first draft accepted   1 of 2, 50 %" in text
    assert "dollars                $0.4700" in text
    assert "50,000 in     333 out" in text
    assert "spent: nothing is left" in text
    assert {headers.get("x-api-key", headers.get("X-Api-Key")) for headers in service.headers} == {DUMMY_KEY}
