"""The ten questions, one command each, held against arithmetic from the models' configs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from project_scripts import PROJECT, program

questions = program("scripts/ten_questions.py")
QUESTION = {question.name: question for question in questions.QUESTIONS}


@pytest.fixture(scope="module")
def folder(process: None, default_family: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a module of the user's own; results are a copy of those in git, to which others are added."""
    place = tmp_path_factory.mktemp("questions")
    questions.prepare(place)
    shutil.copytree(PROJECT / "analysis_results", place.parent / "questions-results")
    return place


@pytest.fixture(autouse=True)
def results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMP_RESULTS", str(folder.parent / "questions-results"))


def answer(name: str, folder: Path, *more: str) -> str:
    done: subprocess.CompletedProcess[str] = questions.ask(QUESTION[name], folder, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def data(name: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(name, folder, "--json"))
    return found


# Sizes of the configs.
LLAMA_8B = {"hidden": 4096, "layers": 32, "heads": 32, "kv": 8, "dim": 128, "inner": 14336, "vocab": 128256}
LLAMA_70B = {"hidden": 8192, "layers": 80, "heads": 64, "kv": 8, "dim": 128, "inner": 28672, "vocab": 128256}
QWEN_8B = {"hidden": 4096, "layers": 36, "heads": 32, "kv": 8, "dim": 128, "inner": 12288, "vocab": 151936}


def matrices(size: dict[str, int]) -> int:
    """Elements of the products' weights in one layer: queries and output, keys and values, three of the MLP."""
    attention = 2 * size["hidden"] * size["heads"] * size["dim"] + 2 * size["hidden"] * size["kv"] * size["dim"]
    return attention + 3 * size["hidden"] * size["inner"]


def matmul_flops(size: dict[str, int], tokens: int, seen: int) -> int:
    """2 for each weight and token, and 4 for each head's element, token and token that it sees."""
    layers = size["layers"] * (2 * matrices(size) + 4 * size["heads"] * size["dim"] * seen)
    return tokens * (layers + 2 * size["hidden"] * size["vocab"])


def parameters(size: dict[str, int]) -> int:
    """Of a Llama: matrices, two norms a layer, one at the end, embedding and head."""
    norms = (2 * size["layers"] + 1) * size["hidden"]
    return size["layers"] * matrices(size) + norms + 2 * size["hidden"] * size["vocab"]


def test_flops_and_bytes_a_token(folder: Path) -> None:
    found = data("cost", folder)
    # Qwen3-30B-A3B: 48 layers of hidden 2,048, 32 heads and 4 KV heads of 128, 128 experts of 768, 8 of them a token.
    attention = 2 * 2048 * 4096 + 2 * 2048 * 512
    a_token = 48 * (2 * (attention + 2048 * 128 + 8 * 3 * 2048 * 768) + 4 * 32 * 128 * 8193) + 2 * 2048 * 151936
    assert found["totals"]["matmul_flops"] == 16 * a_token
    # Weights of one byte, but for the embedding, of which 16 rows are read; 64 frequencies of rotary positions of 4
    # bytes; a cache of 2 * 4 * 128 elements of 2 bytes a token and layer, and the new tokens' in it; logits, indices.
    layer = attention + 2048 * 128 + 128 * 3 * 2048 * 768 + 2 * 128 + 2 * 2048
    weights = 48 * layer + 2048 + 2048 * 151936
    cache = 48 * 2 * 4 * 128 * 2
    bytes_ = weights + 16 * 2048 + 64 * 4 + 16 * 8192 * cache + 16 * cache + 16 * 151936 * 2 + 16 * 8
    assert found["totals"]["compulsory"] == bytes_
    out = answer("cost", folder, "--depth", "0")
    assert f"{bytes_ / 16 / 1e9:.3f} GB a token" in out.replace("\u00a0", " ")


def test_operators_that_dominate_bytes(folder: Path) -> None:
    rows = [line for line in answer("dearest", folder).splitlines() if re.search(r"\d+\.\d%", line)]
    # In each of 58 layers, 8 rows of 7,168 float32 for each of 32,768 tokens are read and written, with an index each.
    gathered = 58 * (2 * 32768 * 8 * 7168 * 4 + 32768 * 8 * 8)
    assert rows[0].startswith("row gather")
    assert f"{gathered / 1e9:.1f} GB" in rows[0]
    assert f"{100 * gathered / 7.452e12:.1f}%" in rows[0]
    # All experts' first matrices of 2 * 2,048 columns, of one byte and 4 bytes of scale for 128 * 128 elements, once.
    assert "grouped matr" in rows[1]


def test_whether_it_fits(folder: Path) -> None:
    memory = data("fit", folder)
    weights = 2 * parameters(LLAMA_70B)
    a_token = 80 * 2 * 8 * 128 * 2
    cache = 8 * 131072 * a_token
    assert memory["weights_gib"] * 2**30 == pytest.approx(weights, rel=1e-4)
    assert (memory["kv_gib"] * 2**30, memory["kv_bytes_per_token"]) == (cache, a_token)
    # 141 GB and 344 GB: on four GPUs 121 GB each, on eight 61 GB each.
    assert (weights + cache) / 4 > 80e9 > (weights + cache) / 8
    assert (memory["fits"], memory["smallest_tp"]) == (False, 8)
    shown = " ".join(answer("fit", folder).split())
    assert "does NOT fit" in shown
    assert "smallest tp: 8" in shown


def test_own_module_by_line(folder: Path) -> None:
    out = answer("own", folder, "--exact")
    tokens = 2 * 1024
    flops = {
        "self.up(x)": 2 * tokens * 256 * 512,
        "torch.relu": tokens * 512,
        "self.down(hidden)": 2 * tokens * 512 * 256,
    }
    for code, cost in flops.items():
        line = next(line for line in out.splitlines() if code in line)
        assert f"{cost:,}" in line


def test_two_models(folder: Path) -> None:
    totals = data("diff", folder)["totals"]["matmul_flops"]
    assert totals["a"]["value"] == matmul_flops(QWEN_8B, 2048, 2048)
    assert totals["b"]["value"] == matmul_flops(LLAMA_8B, 2048, 2048)


def test_a_plot(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    out = answer("plot", folder)
    assert (folder / "plot.svg").read_text().startswith("<?xml")
    # At batch 256: 4.94 TFLOP.
    assert f"{matmul_flops(LLAMA_8B, 256, 8193) / 1e12:.3f} TFLOP" in out


def test_ci_fails_above_one_per_cent(folder: Path) -> None:
    answer("ci", folder)
    text = (folder / "my_model.py").read_text()
    try:
        # 520 columns of 512 are 1.6 % more weights, which a step of 16 tokens mostly reads.
        (folder / "my_model.py").write_text(text.replace("inner: int = 512", "inner: int = 520"))
        done = questions.ask(QUESTION["ci"], folder)
        assert done.returncode == 4
        assert "error: bytes rose by 1.6%" in done.stderr or "error: bytes rose by 1.5%" in done.stderr
        # 514 of 512 are 0.4 %.
        (folder / "my_model.py").write_text(text.replace("inner: int = 512", "inner: int = 514"))
        assert questions.ask(QUESTION["ci"], folder).returncode == 0
    finally:
        (folder / "my_model.py").write_text(text)


def test_latency_on_an_h100(folder: Path) -> None:
    found = data("latency", folder)
    eager, serving = found["card"]["runs"]
    # No engine is faster than weights and cache at 3.352 TB/s: 2 * (8.03 - 0.53) G and 16 * 8192 * 131,072 bytes.
    weights = 2 * (parameters(LLAMA_8B) - 128256 * 4096)
    least = (weights + 16 * 8192 * 32 * 2 * 8 * 128 * 2) / 3.352e12 * 1e6
    for run in (eager, serving):
        assert least < run["step_us"]["low"] < run["step_us"]["value"] < run["step_us"]["high"]
        assert run["tokens_per_s"]["value"] == pytest.approx(16e6 / run["step_us"]["value"], rel=1e-4)
    # A serving engine is within half of that again; eager mode copies the cache to append to it.
    assert serving["step_us"]["value"] < 1.6 * least < eager["step_us"]["value"]
    assert serving["bound"] == "memory"


def test_tensor_parallelism(folder: Path) -> None:
    found = data("tp", folder)
    # Each of 8 GPUs has an eighth of all heads and columns; its FLOPs are an eighth.
    assert found["totals"]["matmul_flops"] == matmul_flops(LLAMA_8B, 16, 8193) // 8
    norms = 2 * (2 * 32 + 1) * 4096
    memory = found["card"]["runs"][0]["memory"]
    assert memory["weights"] == (2 * parameters(LLAMA_8B) - norms) // 8 + norms
    assert memory["kv_a_token"] == 32 * 2 * 1 * 128 * 2
    assert found["card"]["gpus"] == 8
    one = data("latency", folder)["card"]["runs"][1]["step_us"]["value"]
    assert found["card"]["runs"][1]["step_us"]["value"] < one / 2


def section() -> list[str]:
    """The lines of README.md below "Ten questions" that are commands."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    lines = text.partition("## Ten questions\n")[2].partition("\n## ")[0].splitlines()
    text = "\n".join(lines)
    return re.findall(r"^(?:lmp .+|python -c '[^']+')$", text, re.M)


def test_the_readme_has_these_commands() -> None:
    commands = [shlex.split(line) for line in section()]
    assert [tuple(command[1:]) for command in commands[:-1]] == [one.command for one in questions.QUESTIONS]


def test_install_and_the_questions_fit_on_one_screen() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    screen = text.partition("## Install\n")[2].partition("\n## An answer")[0]
    assert len(screen.splitlines()) <= 45
    assert len(section()) == 10


def test_from_python(folder: Path) -> None:
    command = shlex.split(section()[-1])
    done = subprocess.run([sys.executable, *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["batch", "time_ms", "low_ms", "high_ms", "tokens_per_s", "fits"]
    # 64 sequences of 8,193 tokens are 36 * 2 * 8 * 128 * 2 bytes each, 77 GB beside 16 GB of weights.
    assert [(row[1], row[-1]) for row in rows[1:]] == [("1", "True"), ("8", "True"), ("64", "False")]
    assert all(float(row[3]) < float(row[2]) < float(row[4]) for row in rows[1:3])


def test_a_question_that_is_none() -> None:
    assert questions.main(["nonsense"]) == 2


def test_seconds_of_questions(capsys: pytest.CaptureFixture[str]) -> None:
    asked = questions.Question("devices", "which devices are known", ("devices",))
    wrong = questions.Question("wrong", "what no command answers", ("devices", "show", "nothing"))
    assert questions.time_all([asked, wrong], sys.executable) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    wall, processor = (float(text) for text in rows[0].split()[:2])
    # A Python that imports lmp takes at least a hundredth of a second, and runs are not timed out.
    assert processor >= 0.01
    assert 0.01 <= wall < 600
    assert rows[1].split()[:2] == ["-", "-"]
    assert "what no command answers: error: there is no device 'nothing'" in rows[1]
