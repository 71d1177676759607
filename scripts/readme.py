"""Updates README.md and docs/ with real output: runs the commands that they show and writes the output.

    .venv/bin/python scripts/readme.py            write
    .venv/bin/python scripts/readme.py --check    end with 1 if a page differs from the current output

A block of a page begins with a comment that contains the command, and ends with another comment:

    <!-- output: lmp doctor -->
    <!-- end -->

``local:`` instead of ``output:`` marks output that differs between machines: only the second column of its lines, the
names, is compared. Analyses are made in a temporary folder and shown as analysis_results. Output on stderr (progress,
warnings) is not shown.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from lmp.agents.environment import CREDENTIALS

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

BLOCK = re.compile(r"(?<=<!-- )(?P<kind>output|local): (?P<command>[^\n]+?) -->\n(?P<shown>.*?)(?=<!-- end -->)", re.S)
RESULTS = "analysis_results"
KEEP_RESULTS = (
    "analyze-module",
    "verify",
    "expand",
    "evaluate",
    "predict",
    "plan",
    "doctor",
    "prompt",
    "submit",
    "report",
    "review",
)
"""Commands that take --results."""

UNSET = (*CREDENTIALS, "LMP_ATLAS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


@dataclass
class Commands:
    """Runs commands in the project's folder with results in a folder of their own; each command once."""

    results: Path

    def __post_init__(self) -> None:
        self._known: dict[str, str] = {}

    def output(self, command: str) -> str:
        """What the command prints on a terminal of 100 columns. Raises RuntimeError when it fails."""
        if command not in self._known:
            self._known[command] = self._shown(self._run(command))
        return self._known[command]

    def _run(self, command: str) -> str:
        arguments = [a.replace(RESULTS, str(self.results), 1) for a in shlex.split(command)]
        if arguments[0] == "lmp":
            if arguments[1:2] and arguments[1] in KEEP_RESULTS and "--help" not in arguments:
                arguments += ["--results", str(self.results)]
            arguments = [sys.executable, "-m", "lmp", *arguments[1:]]
        elif arguments[0] == "python":
            arguments[0] = sys.executable
        environment = {n: v for n, v in os.environ.items() if n not in UNSET}
        # Rich believes COLUMNS of a terminal without styles only together with LINES.
        environment |= {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb", "LMP_SETTINGS": os.devnull}
        environment["PYTHONPATH"] = str(ROOT / "src")
        reader, writer = pty.openpty()
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=writer, stderr=errors)
            os.close(writer)
            text = _read_all(reader, process)
            if process.wait():
                errors.seek(0)
                raise RuntimeError(f"{command} ended with {process.returncode}: {errors.read().decode().strip()}")
        return text

    def _shown(self, text: str) -> str:
        text = text.replace(str(self.results), f"/path/to/lmp/{RESULTS}").replace(str(ROOT), "/path/to/lmp")
        return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def _read_all(descriptor: int, process: subprocess.Popen[bytes]) -> str:
    """All that the process prints. Linux can report the other end as closed before the last output arrives, so the
    end counts only when it is read after the process ended."""
    parts = []
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while True:
            ended = process.poll() is not None
            try:
                part = stream.read(65536)
            except OSError:  # how Linux says that the other end is closed
                part = b""
            if part:
                parts.append(part)
            elif ended:
                return b"".join(parts).decode()
            else:
                process.wait()


def written(page: str, commands: Commands) -> str:
    """The page with what its commands print now."""

    def block(found: re.Match[str]) -> str:
        command = found["command"]
        return f"{found['kind']}: {command} -->\n```console\n$ {command}\n{commands.output(command)}\n```\n"

    return BLOCK.sub(block, page)


def differences(commands: Commands) -> list[str]:
    """What is not true on the pages, one line each."""
    found = []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        for old, new in zip(BLOCK.finditer(page), BLOCK.finditer(written(page, commands)), strict=True):
            if _compared(old) != _compared(new):
                shown, printed = old["shown"].splitlines(), new["shown"].splitlines()
                line = next((b for a, b in zip_longest(shown, printed) if a != b), None)
                found.append(f"{name}: `{old['command']}` prints something else now, first: {line}")
    return found + missing_commands(commands)


def _compared(block: re.Match[str]) -> object:
    if block["kind"] == "output":
        # A prompt names the folders of the sources, so its length is another in each.
        return re.sub(r"prompt of about [\d,]+ tokens", "", block["shown"])
    rows = [re.split(r" {2,}", line) for line in block["shown"].splitlines() if not line.startswith(" ")]
    return [row[1] for row in rows if len(row) > 1]


def missing_commands(commands: Commands) -> list[str]:
    """Commands of lmp whose --help is not in docs/cli.md."""
    listed = commands.output("lmp --help").partition("Commands:")[2]
    names = re.findall(r"^  (\S+)", listed, re.M)
    page = PAGES[1].read_text(encoding="utf-8")
    return [
        f"docs/cli.md: `lmp {n} --help` is missing" for n in names if f"<!-- output: lmp {n} --help -->" not in page
    ]


def main() -> int:
    # Not in TMPDIR: the length of a path decides where a line is broken.
    with tempfile.TemporaryDirectory(prefix="lmp-", dir="/tmp") as folder:
        commands = Commands(Path(folder))
        if "--check" in sys.argv:
            found = differences(commands)
            print("\n".join(found) or "the pages are what the commands print")
            return 1 if found else 0
        for path in PAGES:
            old = path.read_text(encoding="utf-8")
            new = written(old, commands)
            path.write_text(new, encoding="utf-8")
            print(f"{'same' if new == old else 'wrote'} {path.relative_to(ROOT)}")
        found = missing_commands(commands)
        print("\n".join(found))
        return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
