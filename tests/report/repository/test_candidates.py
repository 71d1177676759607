"""Parts of a run: those that are too unlikely are told as candidates, and all stand in the appendices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_files import FILES
from small_repository import line_of, reported, written

from lmp.codebase.facts import Place
from lmp.codebase.roles import likely
from lmp.codebase.roles.reach import Row


def test_a_row_is_a_candidate_by_its_chance() -> None:
    row = Row("scheduler", "queue", "Waiting", Place("a.py", 1))
    # What a reader named has no chance. Of sections without a limit nothing is a candidate.
    least = likely.SURE["scheduler"]
    assert not likely.is_candidate(row)
    assert likely.is_candidate(replace(row, chance=least - 0.01))
    assert not likely.is_candidate(replace(row, chance=least))
    assert not likely.is_candidate(replace(row, section="attention", chance=0.01))


def test_a_section_of_candidates_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No chance is above 1, so that all of this section is too unlikely, and nothing of the others.
    monkeypatch.setattr(likely, "SURE", {"scheduler": 1.1})
    report = reported(written(tmp_path / "nanoserve", FILES))
    assert [finding.message for finding in report.review.findings] == []
    section = report.section("Scheduler / batching")
    assert "- **Queueing + priorities**: not determined, candidates: `nanoserve/scheduler.py:" in section
    assert "(queue): " not in section
    assert "candidate" not in report.section("KV cache")
    components = report.section("Key components (with code locations)")
    assert "| scheduler |" not in components
    listed = report.section("Appendix H: parts of a run")
    assert "| scheduling and batches | batch, candidate | `nanoserve/scheduler.py:" in listed


def test_every_call_of_a_run_is_listed(tmp_path: Path) -> None:
    root = written(tmp_path / "nanoserve", FILES)
    listed = reported(root).section("Appendix I: calls of a run")
    caller = line_of(root, "nanoserve/engine.py", "def step(self")
    callee = line_of(root, "nanoserve/scheduler.py", "def schedule(self")
    row = next(line for line in listed.split("\n") if f"`nanoserve/scheduler.py:{callee}` (`schedule`)" in line)
    assert row.startswith(f"| `nanoserve/engine.py:{caller}` (`step`) |")
    # `self.scheduler` is made by the constructor, so that its class is known.
    assert row.endswith("| direct |")


def test_a_network_under_another_name_is_related_to_language_models(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch import nn\n\n\n"
        "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.LayerNorm(8)\n\n\n        self.mix = nn.MultiheadAttention(8, 2)\n\n"
        "    def forward(self, x):\n        x = self.norm(x)\n        y = x * 2\n        y = y + 1\n"
        "        return self.mix(y, y, y)[0]\n\n\n"
        "def write(net, ids):\n    for _ in range(8):\n        logits = net(ids)\n"
        "        ids = torch.multinomial(logits.softmax(-1), 1)\n    return ids\n\n\n"
        'if __name__ == "__main__":\n    write(Block(), torch.zeros(1, 8))\n'
    )
    report = reported(written(tmp_path / "net", {"m.py": text}))
    # The class of torch stands only where the object is made, more than three lines above the call.
    assert [finding.message for finding in report.review.findings] == []
    assert "yes (signals: attention: 1 function, as `m.py:13` (`forward`); token draws: 1 function" in report.text


FLAT = {
    "tool/__init__.py": "from tool.model import Model, load\n",
    "tool/model.py": """from tool.util import wrap


class KVCache:
    pass


class Attention:
    pass


class Model:
    pass


def load():
    return wrap(Model)


if is_flash_attn_2_available():
    from flash_attn import flash_attn_func
""",
    "tool/util.py": "def wrap(of):\n    return of()\n",
}


def test_a_flat_package(tmp_path: Path) -> None:
    text = "\n".join(f"x{number} = {number}" for number in range(80)) + "\n"
    more = {f"tool/part{number}.py": f"from tool.util import wrap\n{text}" for number in range(8)}
    report = reported(written(tmp_path / "flat", {**FLAT, **more}))
    assert [finding.message for finding in report.review.findings] == []
    # Nine files import `util`, more than stand each for itself in a folder of several.
    assert "none found" not in report.section("Architecture map (one diagram)").split("Framework")[0]
    entries = report.section("Entrypoints (how to run)")
    assert "- Library: the package exports `Model`, `load` at `tool/__init__.py:1`" in entries
    assert "**Optional libs**: `flash_attn` tried at 1 place, first `tool/model.py:21` (`flash_attn`)" in report.text
