"""``lmp submit``: what is taken, what is refused, and what both leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import Lmp
from typer.testing import CliRunner

from lmp.agents.subject import ClassSubject
from lmp.agents.submission import MAX_BYTES
from lmp.cli.main import app
from lmp.cli.submit import harmless
from lmp.errors import TraceFailed
from lmp.records import ModuleAnalysis, Verification
from lmp.source.trees import find_trees

ROOT = Path(__file__).parents[2]
NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"
N = "{batch_size} * {seq_len} * {hidden_size}"
ROWS = "{batch_size} * {seq_len}"


def step(line: int, flops: str, read: str, write: str, category: str = "elementwise") -> dict[str, Any]:
    return {
        "kernel_type": "basic", "operation": "…", "line": line, "analysis": "…", "category": category,
        "flops": flops, "memory_access": {"read": read, "write": write},
    }  # fmt: skip


@pytest.fixture
def draft(transformers_tree: Path) -> dict[str, Any]:
    """Of LlamaRMSNorm, counted by hand: see the sums in tests/verify/test_judge.py."""
    text = (transformers_tree / "models/llama/modeling_llama.py").read_text().splitlines()
    first = next(i for i, line in enumerate(text, start=1) if "to(torch.float32)" in line)
    return {
        "class_name": NORM,
        "parameters": {
            "batch_size": "inputs.hidden_states.shape[0]",
            "seq_len": "inputs.hidden_states.shape[1]",
            "hidden_size": "self.weight.shape[0]",
        },
        "assumptions": ["{a_bytes} != 4"],
        "kernels": [
            step(first, "0", f"{N} * {{a_bytes}}", f"4 * {N}", "copy"),
            step(first + 1, f"2 * {N} + {ROWS}", f"8 * {N}", f"4 * {N} + 4 * {ROWS}"),
            step(first + 2, f"{N} + 2 * {ROWS}", f"4 * {N} + 12 * {ROWS}", f"4 * {N} + 8 * {ROWS}"),
            step(
                first + 3, N, f"4 * {N} + {N} * {{a_bytes}} + {{hidden_size}} * {{w_bytes}}", f"2 * {N} * {{a_bytes}}"
            ),
        ],
        "parameters_count": "{hidden_size}",
    }


@pytest.fixture
def submit(lmp: Lmp, tmp_path: Path) -> Any:
    trees = find_trees(ROOT)
    assert trees.transformers is not None
    assert trees.pytorch is not None
    where = ("--transformers", str(trees.transformers.root), "--pytorch", str(trees.pytorch.root))

    def call(submission: Any, *more: str, class_path: str = NORM) -> Any:
        file = tmp_path / "draft_to_submit.json"
        file.write_text(submission if isinstance(submission, str) else json.dumps(submission))
        return lmp("submit", class_path, str(file), "--results", str(tmp_path / "results"), "--quiet", *where, *more)

    return call


def test_a_right_one_is_stored(submit: Any, draft: dict[str, Any], tmp_path: Path) -> None:
    result = submit(draft, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    file = tmp_path / "results" / NORM / "module_analysis.json"
    assert found == {
        "class_name": NORM, "accepted": True, "status": "verified", "findings": [], "file": str(file),
    }  # fmt: skip
    stored = json.loads(file.read_text())
    assert stored["engine"] == "submitted"
    assert stored["provenance"] == [{"stage": "submitted", "models": []}]
    assert stored["kernels"][0]["code"] == "hidden_states = hidden_states.to(torch.float32)"


def test_a_wrong_one_is_kept_with_its_findings_until_a_right_one_comes(
    submit: Any, draft: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "results" / NORM
    wrong = json.loads(json.dumps(draft))
    wrong["kernels"][1]["flops"] = N
    result = submit(wrong)
    assert result.exit_code == 4
    line = wrong["kernels"][1]["line"]
    told, finding = result.stdout.splitlines()
    assert told == f"{NORM}: refused"
    # 3 * 11 tokens of 6: a square and an addition each, a division a token: 396 + 33
    assert finding.startswith(
        f"  1. kernel 2, line {line}: numbers: line {line}: 429 FLOPs were counted, its kernel gives"
    )
    assert result.stderr.splitlines()[0] == "error: refused, with 1 finding"
    assert json.loads((folder / "draft.json").read_text()) == wrong
    kept = json.loads((folder / "findings.json").read_text())
    assert (kept["accepted"], kept["findings"][0]["counted"]) == (False, "429")
    assert not (folder / "module_analysis.json").exists()
    assert submit(draft).exit_code == 0
    assert sorted(p.name for p in folder.iterdir()) == ["module_analysis.json"]


def test_a_verified_one_does_not_give_way_to_one_that_is_not(
    submit: Any, draft: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_be_executed(self: ClassSubject, analysis: ModuleAnalysis) -> Verification:
        raise TraceFailed("its kernels are not built here")

    assert submit(draft).exit_code == 0
    before = (tmp_path / "results" / NORM / "module_analysis.json").read_bytes()
    monkeypatch.setattr(ClassSubject, "judge", cannot_be_executed)
    narrow = {**draft, "assumptions": ["{a_bytes} != 4", "{seq_len} < 9"]}
    result = submit(narrow)
    assert result.exit_code == 2
    assert "is verified (engine submitted), and what is submitted is not: it cannot be executed" in result.stderr
    assert (tmp_path / "results" / NORM / "module_analysis.json").read_bytes() == before
    result = submit(narrow, "--replace")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"{NORM}: unverified"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not valid JSON"),
        ('{"a": 1, "a": 2}', "'a' stands twice in one object"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "is not valid JSON"),
        (" " * (MAX_BYTES + 5), "at most"),
    ],
)
def test_what_is_no_json_is_refused_before_anything_runs(submit: Any, text: str, why: str) -> None:
    result = submit(text)
    assert result.exit_code == 2
    assert why in result.stderr


def test_what_is_not_there(submit: Any, lmp: Lmp, tmp_path: Path) -> None:
    result = submit({}, class_path="transformers.models.llama.modeling_llama.LlamaNorm")
    assert result.exit_code == 3
    assert (tmp_path / "results" / "SCRATCHPAD.md").is_file()
    result = lmp("submit", NORM, "nowhere.json")
    assert result.exit_code == 2
    assert "nowhere.json cannot be read" in result.stderr


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["submit", NORM, "-"], input="no json")
    assert result.exit_code == 2
    assert "the input is not valid JSON" in result.stderr


def test_a_submission_is_harmless_on_a_terminal(submit: Any, draft: dict[str, Any]) -> None:
    draft["kernels"][0]["\x1b[2J[red]evil[/red]"] = "x"
    draft["kernels"][1]["category"] = "\x9b31m\u202efdp.exe"
    result = submit(draft)
    assert result.exit_code == 4
    shown = result.stdout + result.stderr
    assert not any(c in shown for c in "\x1b\x9b\u202e")
    assert "\\x1b[2J[red]evil[/red] is not a field here" in shown


def test_harmless() -> None:
    assert harmless("a\x1b[0m\r\nb\u202ec\ud800é") == "a\\x1b[0m\\r\\nb\\u202ec\\ud800é"
