"""Fetches the code bases for tests of reports, and unpacks their text files into build/repositories/.

    .venv/bin/python scripts/fetch_repositories.py          does nothing if they exist

scripts/repositories.txt lists them with the hashes of their wheels. They are never installed or imported. pip fetches
them, with its own settings. `PIP_FIND_LINKS=FOLDER PIP_NO_INDEX=1` uses existing wheels.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
LOCK = PROJECT / "scripts" / "repositories.txt"
TARGET = PROJECT / "build" / "repositories"
LARGEST = 2_000_000
"""Bytes of one file: a larger one is a compiled extension or data, which no report reads."""
LARGEST_OF_ALL = 1_000_000_000


def main() -> int:
    wanted = dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE))
    missing = {name: version for name, version in wanted.items() if not (TARGET / f"{name}-{version}").is_dir()}
    if not missing:
        return 0
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TARGET, prefix=".fetching-") as folder:
        if not _download(missing, Path(folder)):
            return 1
        for name, version in missing.items():
            wheel = next(Path(folder).glob(f"{name.replace('-', '_')}-{version}-*.whl"))
            fresh = Path(folder) / f"{name}-{version}"
            count = _unpack(wheel, fresh)
            shutil.move(fresh, TARGET / fresh.name)
            print(f"{name} {version}: {count:,} files", file=sys.stderr)
    return 0


def _download(missing: dict[str, str], folder: Path) -> bool:
    requirements = folder / "requirements.txt"
    lines = [line for line in LOCK.read_text("utf-8").splitlines() if line.split("==")[0] in missing]
    requirements.write_text("\n".join(lines) + "\n", "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--dest", str(folder), "-r", str(requirements)]
    if subprocess.run(command, check=False).returncode:
        print("the code bases that reports are tested on were not fetched: see above", file=sys.stderr)
        return False
    return True


def _unpack(wheel: Path, folder: Path) -> int:
    """How many files were written. Nothing is written outside of the folder, and no links are made."""
    count = total = 0
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            if member.is_dir() or is_link or path.is_absolute() or ".." in path.parts or member.file_size > LARGEST:
                continue
            raw = archive.read(member)
            total += len(raw)
            if total > LARGEST_OF_ALL:
                raise SystemExit(f"{wheel.name} holds more than {LARGEST_OF_ALL:,} bytes: not unpacked")
            if b"\0" in raw[:8192]:
                continue
            target = folder.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(raw)
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
