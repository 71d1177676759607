"""The command line in a process of its own, against a scripted service, in an environment built from nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents_bench import as_in_a_terminal
from agents_service import MessagesServer

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-dummy-9876543210-not-a-key-zyxwvutsrq"


@pytest.fixture
def lmp(tmp_path: Path, service: MessagesServer) -> Iterator[Lmp]:
    command = Lmp(tmp_path, service)
    yield command
    for process in command.started:
        process.kill()
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and KEY[-12:] in path.read_text(errors="replace")]
    assert not holding, f"the key, or its end, is in {holding}"


class Lmp:
    """``lmp`` in a process of its own, whose environment is built from nothing."""

    def __init__(self, folder: Path, service: MessagesServer) -> None:
        self.results = folder / "results"
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
            "LMP_SETTINGS": os.devnull,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": service.url,
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "lmp", *arguments, "--results", str(self.results)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environment,
            start_new_session=True,
            preexec_fn=as_in_a_terminal,
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=600)
        assert KEY[-12:] not in out + err
        return process.returncode, out, err

    def transcript(self) -> list[dict[str, Any]]:
        files = list(self.results.glob(".runs/*/transcript.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
