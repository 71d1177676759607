"""Demonstrates a terminal session of the module analyzer, with the real SDK and CLI and a scripted loopback service.

docs/agents.md shows the output. Clock and folder are left out, because they differ in each run.

    .venv/bin/python scripts/agent_demo.py
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "agents")]

from agents_service import MODEL, Failure, MessagesServer, Reply, calls  # noqa: E402

from lmp.analyze.modules import analyze_modules  # noqa: E402
from lmp.analyze.session import Options  # noqa: E402
from lmp.records import Draft  # noqa: E402

LINEAR = "torch.nn.modules.linear.Linear"
KEY = "sk-ant-dummy-of-a-demonstration"


def right_draft(folder: Path) -> dict[str, Any]:
    """What the trace engine says of Linear, cut down to the fields of a draft."""
    outcomes = analyze_modules([LINEAR], Options(results=folder), lambda name, stage: None)
    whole = outcomes[0].analysis.model_dump(mode="json")
    return {field: whole[field] for field in Draft.model_fields}


def submission(draft: dict[str, Any]) -> Reply:
    return Reply([calls("mcp__lmp__submit_analysis", {"draft": draft})])


def main() -> int:
    with tempfile.TemporaryDirectory() as name, MessagesServer() as service:
        folder = Path(name)
        right = right_draft(folder / "traced")
        wrong = copy.deepcopy(right)
        wrong["kernels"][0]["flops"] = "{batch_size} * {seq_len} * {in_features} * {out_features}"
        service.plays(
            Reply([calls("Read", {"file_path": "/etc/passwd"})]),
            Reply([calls("mcp__lmp__computational_lines", {"class_path": LINEAR})]),
            Failure(529, "overloaded_error"),
            submission(wrong),
            submission(right),
        )
        command = [sys.executable, "-m", "lmp", "analyze-module", LINEAR, "--engine", "agent", "--agent-model", MODEL]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
            "LMP_SETTINGS": os.devnull,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": service.url,
        }
        done = subprocess.run(
            [*command, "--results", str(folder / "results")], env=environment, cwd=ROOT, capture_output=True, text=True
        )
    for line in done.stderr.splitlines():
        line = re.sub(r"^ *\d+:\d\d  ", "m:ss  ", line)
        line = re.sub(r", \d+ s(,|;)", r", n s\1", re.sub(r"waiting [\d.]+ s", "waiting n s", line))
        line = re.sub(r"\.runs/[\w-]+/", ".runs/<run>/", line)
        print(line.replace(str(folder / "results"), "analysis_results").replace(str(ROOT), "/path/to/lmp"))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
