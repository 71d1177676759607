"""Makes docs/images/page.png, the picture of README.md: the HTML page of a model in headless Chromium.

.venv/bin/python scripts/page_picture.py [CHROMIUM]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL = "meta-llama/Meta-Llama-3.1-8B"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1280,820",
    "--virtual-time-budget=8000",
)  # fmt: skip


def main() -> None:
    chromium = sys.argv[1] if len(sys.argv) > 1 else "chromium"
    with tempfile.TemporaryDirectory(prefix="lmp-") as folder:
        folders = ["--reports", folder, "--results", str(ROOT / "analysis_results")]
        command = [sys.executable, "-m", "lmp", "report", MODEL, "--format", "html", "--quiet", *folders]
        subprocess.run(command, cwd=ROOT, check=True)
        (page,) = Path(folder).glob("implementations/*.html")
        own = [f"--user-data-dir={folder}/chromium", f"--screenshot={ROOT / 'docs' / 'images' / 'page.png'}"]
        subprocess.run([chromium, *FLAGS, *own, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
