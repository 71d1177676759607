"""Commands in an empty folder without torch: what the atlas of the package answers, and what it does not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmp.atlas.archive import INDEX, PACKAGED, Atlas
from lmp.atlas.matching import has_older_rules
from lmp.source.catalogue import catalogued

MODEL = "Qwen/Qwen3-8B"
POINT = ("--phase", "decode", "-b", "16", "-c", "8k")

WITHOUT = """
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None  # an import of it fails, and it is not found
sys.argv[0] = "lmp"
from lmp.cli.main import run
run()
"""

# Qwen3-8B: 36 layers, 32 heads of 128, 8 KV heads; hidden 4,096, inner 12,288; 151,936 words; one token of each of 16
# sequences, attending 8,192 cached tokens and itself.
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, DIM, WORDS = 36, 4096, 12288, 32, 8, 128, 151936
ATTENTION_WEIGHTS = HIDDEN * DIM * (2 * HEADS + 2 * KV_HEADS)
MLP_WEIGHTS = 3 * HIDDEN * INNER
PRODUCTS = LAYERS * 2 * (ATTENTION_WEIGHTS + MLP_WEIGHTS) + 2 * HIDDEN * WORDS
"""FLOPs of a token's products with weights."""
SCORES = LAYERS * 4 * HEADS * DIM * (8192 + 1)
"""FLOPs of a token's attention: queries with keys, and weights with values."""
NORMS = LAYERS * (2 * HIDDEN + 2 * DIM) + HIDDEN
WEIGHTS = LAYERS * (ATTENTION_WEIGHTS + MLP_WEIGHTS) + 2 * HIDDEN * WORDS + NORMS
"""Parameters: embedding and head are two."""


class Fresh:
    """A folder with nothing in it, and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.empty = folder / "home", folder / "empty"
        self.home.mkdir()
        self.empty.mkdir()
        self.variables = {"HOME": str(self.home), "HF_HOME": str(self.home / "hf"), "HF_HUB_OFFLINE": "1",
                          "LMP_SETTINGS": os.devnull}  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "LMP_", "XDG_"))}
        environment = {**kept, **self.variables}
        command = [sys.executable, "-c", WITHOUT, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.empty, env=environment, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done


@pytest.fixture
def fresh(tmp_path: Path, process: None) -> Fresh:
    return Fresh(tmp_path)


def test_evaluate(fresh: Fresh) -> None:
    done = fresh.run("evaluate", MODEL, *POINT, "--json")
    found = json.loads(done.stdout)
    assert found["totals"]["matmul_flops"] == 16 * (PRODUCTS + SCORES)
    assert found["totals"]["parameters_count"] == WEIGHTS
    # Keys and values of 8,192 tokens are read, of one written; weights are read, of the embedding 16 rows; the logits
    # of 16 rows are written. Beside these two-byte elements: 16 ids of 8 bytes, and 64 rotary frequencies of 4.
    cache = LAYERS * 16 * (8192 + 1) * 2 * KV_HEADS * DIM
    least = cache + WEIGHTS - HIDDEN * WORDS + 16 * HIDDEN + 16 * WORDS
    assert found["totals"]["compulsory"] == 2 * least + 16 * 8 + DIM // 2 * 4
    said = [line for line in done.stderr.splitlines() if "atlas" in line]
    assert len(said) == 1
    assert said[0].startswith(f"from lmp's atlas: the formulas of {MODEL}, verified with transformers ")
    assert list(fresh.empty.iterdir()) == []


def test_the_table_says_verified(fresh: Fresh) -> None:
    assert "\nverified at " in fresh.run("evaluate", MODEL, *POINT).stdout


def test_lines_with_their_code(fresh: Fresh) -> None:
    assert "hidden_states = self.norm(hidden_states)" in fresh.run("evaluate", MODEL, *POINT, "--each", "line").stdout


def test_predict(fresh: Fresh) -> None:
    found = json.loads(fresh.run("predict", MODEL, "--device", "h100-sxm", *POINT, "--json").stdout)
    gib = 2**30
    assert found["memory"]["weights_gib"] == pytest.approx(2 * WEIGHTS / gib, rel=1e-6)
    # 8,193 tokens in each of 16 sequences: keys and values of 8 heads of 128, two bytes each, in 36 layers.
    assert found["memory"]["kv_gib"] == pytest.approx(16 * 8193 * LAYERS * 2 * KV_HEADS * DIM * 2 / gib, rel=1e-6)
    # No step is faster than reading its weights and its cache at the 3,352 GB/s of the device.
    least_us = (2 * (WEIGHTS - HIDDEN * WORDS) + 16 * 8193 * LAYERS * 2 * KV_HEADS * DIM * 2) / 3.352e12 * 1e6
    us, low, high = found["step_us"]
    assert least_us < low < us < high < 10 * least_us
    assert found["tokens_per_s"][0] == pytest.approx(16e6 / us, rel=1e-3)


def test_memory(fresh: Fresh) -> None:
    found = json.loads(fresh.run("memory", MODEL, "--device", "h100-sxm", "-b", "16", "-c", "8k", "--json").stdout)
    assert found["weights_gib"] == pytest.approx(2 * WEIGHTS / 2**30, rel=1e-6)
    assert found["kv_bytes_per_token"] == LAYERS * 2 * KV_HEADS * DIM * 2
    assert found["fits"] is True


def test_plan(fresh: Fresh) -> None:
    sizes = ("--gpus", "2", "--isl", "1k", "--osl", "128", "--json")
    found = json.loads(fresh.run("plan", MODEL, "--device", "h100-sxm", *sizes).stdout)
    assert found["class_name"].endswith("Qwen3ForCausalLM")


def test_diff(fresh: Fresh) -> None:
    found = json.loads(fresh.run("diff", MODEL, "Qwen/Qwen3-0.6B", "-b", "1", "-s", "8", "--json").stdout)
    assert found["totals"]["parameters_count"]["a"]["value"] == WEIGHTS


def test_inspect(fresh: Fresh) -> None:
    assert f"{WEIGHTS:,}" in fresh.run("inspect", MODEL).stdout


def test_the_list(fresh: Fresh) -> None:
    found, named = json.loads(fresh.run("atlas", "--json").stdout), Atlas(PACKAGED).named(MODEL)
    (one,) = [entry for entry in found["entries"] if entry["model_id"] == MODEL]
    assert (one["status"], one["rules"]) == ("verified", "older" if has_older_rules(named) else "current")
    assert "entries, " in fresh.run("atlas").stdout


@pytest.mark.parametrize("arguments", [("evaluate", MODEL, *POINT, "--no-atlas"), ("expand", MODEL)])
def test_what_the_atlas_does_not_answer(fresh: Fresh, arguments: tuple[str, ...]) -> None:
    said = fresh.run(*arguments, code=3).stderr
    assert "pip install 'lmp[engine]'" in said
    assert "from lmp's atlas" not in said


@pytest.mark.parametrize("more", [("--attn", "eager"), ("--set", "hidden_size=64", "--attn", "eager")])
def test_another_attention_is_not_answered(fresh: Fresh, more: tuple[str, ...]) -> None:
    assert "from lmp's atlas" not in fresh.run("evaluate", MODEL, *POINT, *more, code=3).stderr


def test_settings_switch_it_off(fresh: Fresh) -> None:
    settings = fresh.home / "settings.toml"
    settings.write_text("atlas = false\n")
    fresh.variables["LMP_SETTINGS"] = str(settings)
    assert "from lmp's atlas" not in fresh.run("evaluate", MODEL, *POINT, code=3).stderr


# --- damage and age --------------------------------------------------------------------------------------------------


@pytest.fixture
def own_atlas(fresh: Fresh, tmp_path: Path) -> Path:
    """A copy of the package's atlas with one entry, for the command to use."""
    folder = tmp_path / "atlas"
    folder.mkdir()
    index = json.loads((PACKAGED / INDEX).read_text())
    index["entries"] = [entry for entry in index["entries"] if entry["model_id"] == MODEL]
    (folder / INDEX).write_text(json.dumps(index))
    shutil.copy(PACKAGED / f"{MODEL.replace('/', '--')}.zip", folder)
    fresh.variables["LMP_ATLAS"] = str(folder)
    return folder


def test_an_entry_of_older_rules_says_so(fresh: Fresh, own_atlas: Path) -> None:
    index = json.loads((own_atlas / INDEX).read_text())
    index["entries"][0]["judged_by"] = "0" * 64
    (own_atlas / INDEX).write_text(json.dumps(index))
    assert "; OLDER than the installed rules of lmp" in fresh.run("evaluate", MODEL, *POINT).stderr
    assert json.loads(fresh.run("atlas", "--json").stdout)["entries"][0]["rules"] == "older"


def test_a_changed_entry_is_told_of_and_not_used(fresh: Fresh, own_atlas: Path) -> None:
    file = own_atlas / f"{MODEL.replace('/', '--')}.zip"
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    said = fresh.run("evaluate", MODEL, *POINT, code=3).stderr
    assert said.count("the atlas is damaged") == 1
    assert "warning: the atlas is damaged: " in said


def flipped(file: Path, index: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut_short(file: Path, index: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def swapped(file: Path, index: Path) -> None:
    shutil.copy(PACKAGED / "Qwen--Qwen3-0.6B.zip", file)


def edited(file: Path, index: Path) -> None:
    """The file of another model, and the index says that it is this one."""
    other = next(entry for entry in json.loads((PACKAGED / INDEX).read_text())["entries"] if "0.6B" in entry["name"])
    shutil.copy(PACKAGED / f"{other['name']}.zip", file)
    found = json.loads(index.read_text())
    found["entries"][0]["sha256"] = other["sha256"]
    index.write_text(json.dumps(found))


def removed(file: Path, index: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("change", [flipped, cut_short, swapped, edited, removed])
@pytest.mark.parametrize("command", [("evaluate",), ("predict", "--device", "h100-sxm")])
def test_an_atlas_that_was_changed_never_answers(
    fresh: Fresh, own_atlas: Path, change: Callable[[Path, Path], None], command: tuple[str, ...]
) -> None:
    """Without torch nothing else can: a visible line says what is damaged, and two more how to go on."""
    change(own_atlas / f"{MODEL.replace('/', '--')}.zip", own_atlas / INDEX)
    done = fresh.run(command[0], MODEL, *POINT, *command[1:], code=3)
    assert done.stdout == ""
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"warning: the atlas is damaged: {own_atlas}")
    assert warnings[0].endswith("; it is not used")
    assert "pip install 'lmp[engine]'" in done.stderr


def test_a_broken_index_is_told_of_and_not_used(fresh: Fresh, own_atlas: Path) -> None:
    (own_atlas / INDEX).write_text("{")
    said = fresh.run("evaluate", MODEL, *POINT, code=3).stderr
    assert said.count("the atlas is damaged") == 1
    assert "is not a valid index" in fresh.run("atlas", code=4).stderr


# --- families --------------------------------------------------------------------------------------------------------


def config(fresh: Fresh, **changed: object) -> str:
    """A config of Qwen3-8B's family in the empty folder."""
    known = catalogued(MODEL)
    assert known is not None
    (fresh.empty / "mine.json").write_text(json.dumps({**known.config, **changed}))
    return "mine.json"


def test_a_config_of_a_known_family(fresh: Fresh) -> None:
    name = config(fresh, num_hidden_layers=6, max_window_layers=6, vocab_size=1000, eos_token_id=7)
    done = fresh.run("evaluate", name, *POINT, "--json")
    found = json.loads(done.stdout)
    per_layer = 2 * (ATTENTION_WEIGHTS + MLP_WEIGHTS) + SCORES // LAYERS
    assert found["totals"]["matmul_flops"] == 16 * (6 * per_layer + 2 * HIDDEN * 1000)
    assert found["verification"] == "unverified"
    assert (
        "from lmp's atlas: family formulas of Qwen3ForCausalLM for mine.json; this config itself was not" in done.stderr
    )
    shown = fresh.run("evaluate", name, *POINT).stdout
    assert "UNVERIFIED: family formulas; this config itself was not executed: lmp expand mine.json" in shown
    assert "\nverified at " not in shown


def test_a_config_for_which_no_formulas_hold(fresh: Fresh) -> None:
    said = fresh.run("evaluate", config(fresh, hidden_act="gelu"), *POINT, code=3).stderr
    assert "pip install 'lmp[engine]'" in said
    assert "the atlas does not answer: by the entry Qwen--Qwen3-" in said
    assert ", hidden_act is 'gelu', and 'silu' in the atlas" in said
