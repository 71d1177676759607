"""Makes the analyses that git keeps in analysis_results/: those of the models of README.md and of the reports in git.

    .venv/bin/python scripts/stored_results.py            make them
    .venv/bin/python scripts/stored_results.py --check    end with 1 if one differs from what lmp makes now

Everything is compared, except the hashes of lmp's own code: they change with every edit, and the result need not.
The check makes the first model from nothing. Of the others it makes what lmp itself does not take as current: what
other code, or other sources, have made.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "analysis_results"
MODELS = (
    "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3",
)  # fmt: skip
OWN_CODE = ("derived_by", "judged_by", "linked_by")
"""Keys of a fingerprint that hold hashes of lmp's own code."""


def make(results: Path, models: Sequence[str] = MODELS) -> dict[str, Any]:
    """Expand the models in a folder. Returns the results by their path in it."""
    for model in models:
        command = [sys.executable, "-m", "lmp", "expand", model, "--results", str(results), "--json", "--quiet"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return {str(file.relative_to(results)): json.loads(file.read_text()) for file in sorted(results.glob("*/*.json"))}


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """A result without what depends on lmp's own code alone."""
    kept = {name: value for name, value in found["fingerprint"].items() if name not in OWN_CODE}
    # A reference and a part have the hash of a whole file: those files are compared themselves.
    parts = {name: {**part, "sha256": ""} for name, part in found.get("parts", {}).items()}
    return {**found, "fingerprint": kept, **({"parts": parts} if parts else {})}


def differences() -> list[str]:
    """Paths of the kept results that differ from those made now, or are missing."""
    with tempfile.TemporaryDirectory(prefix="lmp-") as folder:
        first = set(make(Path(folder), MODELS[:1]))
        for file in KEPT.glob("*/*.json"):
            if str(file.relative_to(KEPT)) not in first:
                (Path(folder) / file.parent.name).mkdir(exist_ok=True)
                shutil.copy(file, Path(folder) / file.parent.name)
        made = make(Path(folder), MODELS[1:])
    found = []
    for path, result in made.items():
        file = KEPT / path
        if not file.is_file() or compared(json.loads(file.read_text())) != compared(result):
            found.append(path)
    return found


def main() -> None:
    if "--check" in sys.argv[1:]:
        found = differences()
        print("\n".join(found) or "all are as lmp makes them")
        raise SystemExit(bool(found))
    with tempfile.TemporaryDirectory(prefix="lmp-") as folder:
        for path in make(Path(folder)):
            (KEPT / path).parent.mkdir(exist_ok=True)
            shutil.copy(Path(folder) / path, KEPT / path)


if __name__ == "__main__":
    main()
