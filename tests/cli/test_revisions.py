"""`lmp diff` of git revisions, limits of each quantity, the comment for a pull request, the recipe of docs/ci.md."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from analyses import MLP, linear, mlp
from fakes import Lmp
from test_diff_command import POINT, dearer, found, save

from lmp.codebase.revisions import OwnAt, _unpack, own_at
from lmp.errors import UsageError
from lmp.report.limits import limits_of

DOCS = Path(__file__).parents[2] / "docs" / "ci.md"
BLOCK = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden_size: int = 256, inner: int = {inner}):
        super().__init__()
        self.up = nn.Linear(hidden_size, inner, bias=False)
        self.down = nn.Linear(inner, hidden_size, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""
INPUTS = "x: float[batch_size, seq_len, 256]"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of a block: 512 inner columns, then 768."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for inner in (512, 768):
        (folder / "my_model.py").write_text(BLOCK.format(inner=inner))
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"inner {inner}")
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_DATA_HOME": str(folder.parent / "data"), "LMP_SETTINGS": os.devnull}
    command = [sys.executable, "-m", "lmp", "diff", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


# --- revisions -------------------------------------------------------------------------------------------------------


def test_two_revisions_of_a_class(process: None, repository: Path) -> None:
    call = ("-b", "1", "-s", "1", "--inputs", INPUTS, "--json", "--fail-above", "bytes=1%,flops=60%", "--quiet")
    done = run(repository, "my_model.py:Block@HEAD~1", "my_model.py:Block@HEAD", *call)
    assert done.returncode == 4, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    # Two products of 256 and 512, then of 256 and 768, and a relu of one FLOP an element.
    assert data["totals"]["flops"]["a"]["value"] == 2 * 2 * 256 * 512 + 512
    assert data["totals"]["flops"]["b"]["value"] == 2 * 2 * 256 * 768 + 768
    # FLOPs rose by 50 %, which is allowed; bytes by almost as much, which is not.
    assert [one["quantity"] for one in data["exceeded"]] == ["bytes"]
    assert "error: bytes rose by 49." in done.stderr
    assert "FLOPs rose" not in done.stderr
    assert git(repository, "status", "--short") == ""
    assert sorted(path.name for path in repository.iterdir()) == [".git", "my_model.py"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_model.py:Block@nope", "git knows no revision 'nope'\ngive a commit, a branch or a tag"),
        ("my_model.py:Block@--output=x", "git knows no revision '--output=x'"),
        ("other.py:Block@HEAD", "other.py is not there at HEAD\ngive a revision that has the file"),
        ("../my_model.py:Block@HEAD", "no git repository"),
    ],
)
def test_what_git_does_not_have(
    repository: Path, lmp: Lmp, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository.parent.parent))
    done = lmp("diff", name, "-b", "1", "-s", "1", "--inputs", INPUTS)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_git_that_is_not_installed(repository: Path, lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", str(repository))
    done = lmp("diff", "my_model.py:Block@HEAD", "-b", "1", "-s", "1", "--inputs", INPUTS)
    assert done.exit_code == 2
    assert "git is not installed" in done.stderr


def test_how_a_class_at_a_revision_is_named() -> None:
    assert own_at("a/b.py:Block@v1.2~3") == OwnAt(Path("a/b.py"), "Block", "v1.2~3")
    assert own_at("b.py:Block") == OwnAt(Path("b.py"), "Block", None)
    for other in (
        "torch.nn.Linear",
        "Qwen/Qwen3-8B",
        "old/my.Block",
        "pkg.Block@Qwen--Qwen3-8B",
        "b.py",
        "b.py:Block@",
    ):
        assert own_at(other) is None


def test_an_archive_writes_nothing_outside(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("good/a.py", "../evil.py", "/tmp/evil.py"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    packed.seek(0)
    tree = tmp_path / "tree"
    _unpack(packed, tree)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
        "tree/good/a.py"
    ]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_limit_of_each_quantity() -> None:
    assert limits_of("bytes=1%, flops=0").of == {"bytes": Fraction(1, 100), "flops": 0}
    assert limits_of("0.5%").of == dict.fromkeys(("flops", "bytes", "parameters"), Fraction(1, 200))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("byte=1%", "--fail-above 'byte=1%' names no quantity\nknown are flops, bytes, parameters"),
        ("bytes=1%,2%", "--fail-above '2%' names no quantity"),
        ("bytes=1%,bytes=2%", "two limits of bytes"),
        ("bytes=", "is not a share"),
        ("bytes=-1%", "is not a share"),
        ("bytes=5", "either a share or a percentage"),
        ("", "is not a share"),
        ("bytes=1%,", "names no quantity"),
    ],
)
def test_limits_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        limits_of(text)


def test_only_what_is_named_is_limited(lmp: Lmp) -> None:
    save("old", mlp(), linear())
    save("new", dearer(), linear())
    both = ("diff", f"old/{MLP}", f"new/{MLP}", *POINT)
    # The activation costs 8 FLOPs an element in place of 4; no byte more.
    assert lmp(*both, "--fail-above", "bytes=0").exit_code == 0
    assert lmp(*both, "--fail-above", "flops=50%").exit_code == 0
    done = lmp(*both, "--fail-above", "bytes=0,flops=0")
    assert done.exit_code == 4
    assert "error: FLOPs rose by" in done.stderr
    assert found(lmp(*both, "--fail-above", "flops=0", "--json"), code=4)["fail_above"] == "flops=0"


def test_a_named_quantity_that_is_not_known_is_no_success(lmp: Lmp) -> None:
    unknown = mlp().model_copy(update={"parameters_count": None})
    save("old", unknown, linear())
    save("new", unknown, linear())
    both = ("diff", f"old/{MLP}", f"new/{MLP}", *POINT)
    assert lmp(*both, "--fail-above", "flops=0").exit_code == 0
    done = lmp(*both, "--fail-above", "parameters=0")
    assert done.exit_code == 4
    assert "error: parameters cannot be checked against --fail-above" in done.stderr


# --- markdown --------------------------------------------------------------------------------------------------------


def test_a_comment_has_totals_first_and_no_foreign_markup(lmp: Lmp) -> None:
    hostile = dearer()
    code = {"code": "x | <img src=x> `a` @team"}
    hostile = hostile.model_copy(update={"kernels": [one.model_copy(update=code) for one in hostile.kernels]})
    save("old", mlp(), linear())
    save("new", hostile, linear())
    done = lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--format", "markdown", "--fail-above", "flops=0")
    assert done.exit_code == 4
    lines = done.stdout.splitlines()
    assert lines[0] == "### lmp: LlamaMLP, the costs changed"
    # 54,272 FLOPs before (see tests/link), and 4 * 2 * 16 * 32 = 4,096 more.
    assert "| FLOPs | 54.27 kFLOP | 58.37 kFLOP | +4.096 kFLOP | +7.5% |" in lines
    assert "**Above the limit flops=0: flops rose by 7.5%, at one call with 16 tokens at batch 2**" in lines
    # 54,272 and 58,368 FLOPs; the limit is 0.
    assert "| FLOPs | 54.27 kFLOP | 58.37 kFLOP | +7.5% | 0% | ABOVE |" in lines
    # As code, in which no markup is read and nobody is called.
    assert "`x \\| <img src=x> 'a' @team`" in done.stdout
    assert done.stdout.count("\n| FLOPs") == 2  # in the totals and in the limits


def test_a_comment_of_no_change(lmp: Lmp) -> None:
    save("old", mlp(), linear())
    done = lmp("diff", f"old/{MLP}", f"old/{MLP}", *POINT, "--format", "markdown", "--fail-above", "1%")
    assert done.exit_code == 0
    assert done.stdout.startswith("### lmp: LlamaMLP, the costs are the same\n")
    assert "**Within the limit 1%, at one call with 16 tokens at batch 2**" in done.stdout


def test_two_formats_are_refused(lmp: Lmp) -> None:
    done = lmp("diff", "a", "b", "--json", "--format", "markdown")
    assert done.exit_code == 2
    assert "two formats are given" in done.stderr


# --- the recipe ------------------------------------------------------------------------------------------------------


def recipe() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    data: dict[str, Any] = yaml.safe_load(text)
    return data


def test_the_recipe_is_a_workflow_that_takes_no_text_into_a_command() -> None:
    data = recipe()
    # YAML 1.1 reads the key `on` as true.
    assert data[True] == "pull_request"
    assert data["permissions"] == {"contents": "read"}
    steps = data["jobs"]["costs"]["steps"]
    assert steps[0]["with"]["fetch-depth"] == 0
    assert not any("${{" in step.get("run", "") for step in steps)


def test_the_recipe_runs(process: None, repository: Path) -> None:
    job = recipe()["jobs"]["costs"]
    step = job["steps"][-1]
    summary = repository.parent / "summary.md"
    base = git(repository, "rev-parse", "HEAD~1").strip()
    (repository / "my_model.py").write_text(BLOCK.format(inner=512))
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "BASE": base,
        "CLASS": job["env"]["CLASS"], "INPUTS": job["env"]["INPUTS"], "GITHUB_STEP_SUMMARY": str(summary),
        "XDG_DATA_HOME": str(repository.parent / "data"), "LMP_SETTINGS": os.devnull,
    }  # fmt: skip
    command = ["bash", "-e", "-c", step["run"]]
    same = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert same.returncode == 0, same.stderr
    assert "the costs are the same" in summary.read_text()
    (repository / "my_model.py").write_text(BLOCK.format(inner=520))
    more = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert more.returncode == 4, more.stderr
    # 520 of 512 columns are 1.6 % more.
    assert "Above the limit bytes=1%,flops=0: flops rose by 1.6%" in summary.read_text().replace("\\", "")
