"""The wheel in an empty environment, with no project near: what the README begins with, and the base package."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKED = ("src", "pyproject.toml", "README.md", "LICENSE")
MODEL = "openai-community/gpt2"
CLASS = "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel"
OTHER_TRANSFORMERS = "5.22.2"
"""A release of transformers that lmp is not proven on."""
OTHER_TORCH = "2.12.0"
"""A release of torch that lmp is not proven on. Its build for CUDA runs on a CPU too; it takes 4 GB."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, a folder with nothing in it to work in, and the user's folders."""

    folder: Path
    home: Path

    @property
    def packages(self) -> Path:
        return next((self.folder / "lib").glob("python3*/site-packages"))

    def install(self, *requirements: str) -> None:
        done = self.python("-m", "pip", "install", "--quiet", *requirements)
        assert done.returncode == 0, done.stderr

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        empty = self.home / "empty"
        empty.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LMP_", "XDG_"))}
        # No cache of the hub, and no request to it: the catalogue has the configs.
        own = {"HOME": str(self.home), "HF_HOME": str(self.home / "hf"), "HF_HUB_OFFLINE": "1"}
        command = [str(self.folder / "bin" / "python"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=empty, env={**kept, **own}, check=False)

    def lmp(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command. It must end with ``code``, and leave the current folder empty."""
        done = self.python(str(self.folder / "bin" / "lmp"), *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        assert os.listdir(self.home / "empty") == []
        return done


def made(folder: Path, home: Path) -> Environment:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return Environment(folder, home)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``python -m build`` makes of the files that belong to the package: the sdist, and from it the wheel."""
    folder = tmp_path_factory.mktemp("build")
    for name in PACKED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    builder = made(folder / "builder", folder / "home")
    builder.install("build")
    done = builder.python("-m", "build", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The base package, in the home of the whole one: it sees the same results."""
    folder = tmp_path_factory.mktemp("base")
    found = made(folder / "environment", folder / "home")
    found.install("-c", str(ROOT / "constraints.txt"), str(wheel))
    return found


@pytest.fixture(scope="module")
def engine(base: Environment, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    found = made(tmp_path_factory.mktemp("engine") / "environment", base.home)
    found.install("-c", str(ROOT / "constraints.txt"), f"lmp[engine] @ {wheel.as_uri()}")
    return found


def questions_of_the_readme() -> list[list[str]]:
    """The questions of README.md that need no file of the user's own, without those that write one."""
    section = (ROOT / "README.md").read_text().partition("## Ten questions\n")[2].partition("\n## ")[0]
    found = [shlex.split(line) for line in re.findall(r"^lmp (.+)$", section, re.M)]
    return [command for command in found if not {"--plot", "--inputs"} & set(command)]


def test_what_is_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for file in ("catalogue/openai-community--gpt2.json", "prompts/analyze_module_forward.md", "py.typed",
                 "atlas/entries/index.json", "atlas/entries/Qwen--Qwen3-8B.zip"):  # fmt: skip
        assert f"lmp/{file}" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if not name.startswith("lmp")]


def test_the_readmes_questions(base: Environment) -> None:
    commands = questions_of_the_readme()
    assert [command[0] for command in commands] == ["evaluate", "evaluate", "memory", "diff", "evaluate", "evaluate"]
    for command in commands:
        base.lmp(*command)


def test_the_first_commands(engine: Environment) -> None:
    for command in ("expand Qwen/Qwen3-8B", "inspect openai/gpt-oss-20b", "analyze-module torch.nn.Linear"):
        engine.lmp(*command.split())
    results = engine.home / ".local" / "share" / "lmp" / "analysis_results"
    assert (results / "torch.nn.modules.linear.Linear" / "module_analysis.json").is_file()
    assert f"results: {results}\n" in engine.lmp("verify", "torch.nn.Linear").stderr


@pytest.mark.long
def test_the_base_package_reads_what_the_whole_one_made(base: Environment, engine: Environment) -> None:
    engine.lmp("expand", "--model-id", MODEL, "--quiet")
    point = ("--model-id", MODEL, "--batch-size", "2", "--seq-len", "16", "--json", "--quiet")
    without, full = base.lmp("evaluate", *point), engine.lmp("evaluate", *point)
    assert json.loads(without.stdout) == json.loads(full.stdout)
    assert "results are used as stored" in without.stderr
    assert full.stderr == ""
    named = f"{CLASS}@{MODEL.replace('/', '--')}"
    base.lmp("diff", named, named, "--batch-size", "1", "--seq-len", "8")
    base.lmp("doctor", code=3)
    base.lmp("schema", "module_analysis")
    for command in ("analyze-module", "verify"):
        assert "\ninstall it: pip install 'lmp[engine]'" in base.lmp(command, "torch.nn.ReLU", "--quiet", code=3).stderr
    shown = base.lmp("inspect", MODEL, "--quiet")
    assert re.search(r"^parameters +124,439,808$", shown.stdout, re.M)  # GPT-2's published 124M, tied embeddings once
    assert "without the shapes of weights" in shown.stderr
    told = base.lmp("inspect", "Qwen/Qwen3-0.6B", "--no-atlas", "--quiet", code=3).stderr
    assert "\ninstall it: pip install 'lmp[engine]'" in told


def test_the_base_package_answers_from_the_atlas(base: Environment) -> None:
    point = ("--phase", "decode", "-b", "16", "-c", "8k", "--json")
    found = base.lmp("evaluate", "Qwen/Qwen3-0.6B", *point)
    assert "from lmp's atlas: the formulas of Qwen/Qwen3-0.6B, verified with " in found.stderr
    assert json.loads(found.stdout)["verification"] == "verified"
    # 28 layers: 1,024 by 2 x 16 + 2 x 8 heads of 128, 1,024 by 3 x 3,072, and norms; 151,936 tied words, and a norm.
    layer = 1024 * 128 * 48 + 3 * 1024 * 3072 + 2 * 1024 + 2 * 128
    assert json.loads(found.stdout)["totals"]["parameters_count"] == 28 * layer + 151936 * 1024 + 1024
    base.lmp("predict", "Qwen/Qwen3-0.6B", "--device", "h100-sxm", *point)
    assert "rules" in base.lmp("atlas").stdout


AFTER_TRANSFORMERS = """
import os, transformers, lmp
from transformers.models.llama.modeling_llama import LlamaMLP
first, second = lmp.analyze(LlamaMLP), lmp.expand("transformers.models.llama.modeling_llama.LlamaMLP")
assert first.status == "verified", first.record.verification
assert set(first.sources.values()) == {os.path.dirname(os.path.dirname(transformers.__file__))}, first.sources
# Three products of 2*16 rows, 4,096 by 11,008; see the class's default config.
assert second.evaluate(2, 16).totals.matmul_flops == 3 * 2 * 32 * 4096 * 11008
config = transformers.LlamaConfig(
    num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=100
)
model = transformers.LlamaForCausalLM(config)
assert lmp.expand(model, inputs="input_ids: int[batch_size, seq_len]").status == "verified"
"""


def test_the_api_after_transformers_is_imported(engine: Environment) -> None:
    done = engine.python("-c", AFTER_TRANSFORMERS)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def other(engine: Environment, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The same with another release of transformers before the proven one, and the same results folder."""
    found = made(tmp_path_factory.mktemp("other") / "environment", engine.home)
    (found.packages / "engine.pth").write_text(f"{engine.packages}\n")
    found.install("--no-deps", f"transformers=={OTHER_TRANSFORMERS}")
    shutil.copy(engine.folder / "bin" / "lmp", found.folder / "bin" / "lmp")
    return found


def test_another_release_of_transformers(engine: Environment, other: Environment) -> None:
    """Analysed, judged, and never mixed with the results of the first one in the same folder."""
    warning = f"warning: transformers {OTHER_TRANSFORMERS} is installed and analysed; lmp is proven on"
    path = "transformers.models.llama.modeling_llama.LlamaMLP"
    (proven,) = json.loads(engine.lmp("analyze-module", path, "--json", "--quiet").stdout)
    done = other.lmp("analyze-module", path, "--json", "--quiet")
    (found,) = json.loads(done.stdout)
    assert done.stderr.count(warning) == 1
    assert (proven["source"]["version"], found["source"]["version"]) == ("5.23.0", OTHER_TRANSFORMERS)
    assert found["verification"]["status"] == "verified"
    assert "run_with.transformers" not in proven["fingerprint"]
    assert found["fingerprint"]["run_with.transformers"] == OTHER_TRANSFORMERS
    model = json.loads(other.lmp("expand", CLASS, "--json", "--quiet").stdout)
    assert model["verification"]["status"] == "verified"
    # The first release makes its own again.
    (again,) = json.loads(engine.lmp("analyze-module", path, "--json", "--quiet").stdout)
    assert again["source"]["version"] == "5.23.0"


def test_an_edited_file_of_the_installed_transformers(engine: Environment, other: Environment) -> None:
    file = other.packages / "transformers" / "models" / "llama" / "modeling_llama.py"
    text = file.read_text()
    assert text.count("self.act_fn(self.gate_proj(x)) * self.up_proj(x)") == 1
    file.write_text(text.replace("self.act_fn(self.gate_proj(x)) *", "2 * self.act_fn(self.gate_proj(x)) *"))
    try:
        path = "transformers.models.llama.modeling_llama.LlamaMLP"
        done = other.lmp("analyze-module", path, "--json", "--quiet")
    finally:
        file.write_text(text)
    (found,) = json.loads(done.stdout)
    assert done.stderr.count(f"{file} was edited after transformers {OTHER_TRANSFORMERS} was installed") == 1
    assert found["source"]["version"] == f"{OTHER_TRANSFORMERS}+edited"
    assert found["verification"]["status"] == "verified"
    # One product more for each element of the gate.
    products = [kernel for kernel in found["kernels"] if kernel["category"] == "elementwise"]
    assert [kernel["flops"] for kernel in products] == ["{batch_size} * {seq_len} * {intermediate_size}"] * 2


@pytest.fixture(scope="module")
def other_torch(engine: Environment, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The same with another release of torch before the proven one."""
    folder = tmp_path_factory.mktemp("torch")
    if shutil.disk_usage(folder).free < 12 * 2**30:
        pytest.skip("less than 12 GiB of disk are free")
    found = made(folder / "environment", engine.home)
    found.install(f"torch=={OTHER_TORCH}")
    (found.packages / "engine.pth").write_text(f"{engine.packages}\n")
    shutil.copy(engine.folder / "bin" / "lmp", found.folder / "bin" / "lmp")
    return found


def test_another_release_of_torch(engine: Environment, other_torch: Environment) -> None:
    """Analysed and judged; the figures of GPT-2 are those of the proven release."""
    point = (CLASS, "--batch-size", "2", "--seq-len", "16", "--cache-len", "100", "--json", "--quiet")
    done = other_torch.lmp("evaluate", *point)
    assert done.stderr.count(f"warning: torch {OTHER_TORCH} is installed and analysed; lmp is proven on torch") == 1
    assert json.loads(done.stdout)["totals"] == json.loads(engine.lmp("evaluate", *point).stdout)["totals"]
    (found,) = json.loads(other_torch.lmp("analyze-module", "torch.nn.GELU", "--json", "--quiet").stdout)
    assert found["verification"]["status"] == "verified"
    assert found["fingerprint"]["run_with.torch"] == OTHER_TORCH
