"""How `lmp inspect` and `lmp catalogue` look, and what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import Lmp
from jsonschema import Draft202012Validator
from rich.console import Console

from lmp.observe.inspection import Cache, CacheSegment, Inspection, Module, Tensor, Totals
from lmp.records import ConfigOrigin
from lmp.store.schemas import schema

ROOT = Path(__file__).parents[2]
NAME = "transformers.models.tiny.modeling_tiny"


def inspection(**changed: object) -> Inspection:
    """A model of an embedding of 10 x 4, tied to the head, and 3 layers of one 4 x 4 matrix."""
    weight = Tensor(name="weight", shape=[4, 4], dtype="bfloat16")
    layer = Module(
        name="layers.0-2", path="layers.0", class_name=f"{NAME}.TinyLayer", repeat=3, indices=[0, 1, 2],
        parameters_count=16, active_parameters_count=16, weights=[weight],
        buffers=[Tensor(name="angles", shape=[2], dtype="float32")],
    )  # fmt: skip
    embedding = Module(
        name="embed", path="embed", class_name="torch.nn.modules.sparse.Embedding",
        parameters_count=40, active_parameters_count=40,
        weights=[Tensor(name="weight", shape=[10, 4], dtype="bfloat16")],
    )  # fmt: skip
    head = Module(
        name="head", path="head", class_name="torch.nn.modules.linear.Linear",
        parameters_count=0, active_parameters_count=0,
        weights=[Tensor(name="weight", shape=[10, 4], dtype="bfloat16", tied_to="embed.weight")],
    )  # fmt: skip
    tree = Module(
        name="", path="", class_name=f"{NAME}.TinyModel",
        parameters_count=88, active_parameters_count=88, modules=[embedding, layer, head],
    )  # fmt: skip
    segments = [
        CacheSegment(from_tokens=1, to_tokens=7, bytes_per_token=48, constant_bytes=0),
        CacheSegment(from_tokens=8, bytes_per_token=16, constant_bytes=224),
    ]
    given = {
        "class_name": f"{NAME}.TinyModel", "config": ConfigOrigin(name="mine", origin="mine.json", sha256="0"),
        "distribution": "transformers", "version": "7.0.0", "dtype": "bfloat16", "dtype_from": "config",
        "totals": Totals(parameters_count=88, active_parameters_count=88, weight_bytes=176, buffer_bytes=24),
        "cache": Cache(segments=segments), "tree": tree,
    }  # fmt: skip
    return Inspection.model_validate({**given, **changed})


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[Inspection]:
    """What the inspection finds: the first of the list."""
    found = [inspection()]
    monkeypatch.setattr("lmp.observe.inspecting.inspect_model", lambda path, options, dtype: found[0])
    return found


def test_the_tree(lmp: Lmp, answer: list[Inspection]) -> None:
    result = lmp("inspect", "--config", "mine.json", "--quiet")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        f"{NAME}.TinyModel",
        "  transformers 7.0.0 · config: mine · bfloat16",
        "parameters        88",
        "KV cache          1 to 7 tokens: 48 bytes per token",
        "                  from 8 tokens on: 16 bytes per token and 224 bytes at any length",
        "active per token  88",
        "weight bytes      176 (176.0 bytes) in bfloat16",
        "buffer bytes      24",
        "",
        "parameters  module",
        "        88  TinyModel",
        "        40    embed  Embedding  weight [10, 4]",
        "        16    layers.0-2  3 x TinyLayer  weight [4, 4]  buffer angles [2] float32",
        "         0    head  Linear  weight [10, 4] = embed.weight",
        "N x: N such modules; parameters there and below are those of one",
        "",
        "config            mine (mine.json)",
        f"classes           {NAME}: TinyModel, TinyLayer",
        "                  torch.nn.modules.sparse: Embedding",
        "                  torch.nn.modules.linear: Linear",
    ]


def test_full_names_and_classes_that_share_a_name(lmp: Lmp, answer: list[Inspection]) -> None:
    full = lmp("inspect", "x.Y", "--quiet", "--full-names").stdout
    assert f"layers.0-2  3 x {NAME}.TinyLayer" in full
    assert "\nclasses" not in full
    tree = answer[0].tree
    other = tree.modules[2].model_copy(update={"class_name": f"{NAME}.Embedding"})
    answer[0] = inspection(tree=tree.model_copy(update={"modules": [*tree.modules[:2], other]}))
    text = lmp("inspect", "x.Y", "--quiet").stdout
    assert "embed  torch.nn.modules.sparse.Embedding" in text
    assert f"head  {NAME}.Embedding" in text


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_line_is_wider_than_the_terminal(
    lmp: Lmp, answer: list[Inspection], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmp.cli.tables.console", lambda: Console(width=width, highlight=False))
    text = lmp("inspect", "x.Y", "--quiet").stdout
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for whole in ("TinyModel", "embed", "88", "40", "176", "48", "224"):
        assert whole in words


def test_what_is_not_known_is_said(lmp: Lmp, answer: list[Inspection]) -> None:
    totals = Totals(parameters_count=88, active_reason="it does not run", weight_bytes=2048, buffer_bytes=0)
    answer[0] = inspection(
        totals=totals, cache=Cache(reason="its forward() returns no cache"), quantised="fp8", dtype_from="assumed"
    )
    out = lmp("inspect", "x.Y").stdout
    assert "active per token  unknown: it does not run" in out
    assert "KV cache          unknown: its forward() returns no cache" in out
    assert "the config is quantised (fp8); shapes and bytes are those in bfloat16" in out
    assert "bfloat16 (assumed: the config states none)" in out
    assert "2,048 (2.0 KiB)" in out


def test_json_and_depth(lmp: Lmp, answer: list[Inspection]) -> None:
    found = json.loads(lmp("inspect", "x.Y", "--json").stdout)
    Draft202012Validator(schema("inspection")).validate(found)
    assert [m["name"] for m in found["tree"]["modules"]] == ["embed", "layers.0-2", "head"]
    found = json.loads(lmp("inspect", "x.Y", "--json", "--depth", "0").stdout)
    assert found["tree"]["modules"] == []
    assert found["tree"]["parameters_count"] == 88


def test_nothing_to_inspect(lmp: Lmp) -> None:
    result = lmp("inspect", "--quiet")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no class is given\nname one, as in ")
    result = lmp("inspect", "a.B", "--model", "a.C")
    assert result.exit_code == 2
    assert result.stderr == "error: two classes are given: a.B and, with --model, a.C\ngive one\n"


def test_the_catalogue(lmp: Lmp) -> None:
    lines = lmp("catalogue").stdout.splitlines()
    assert lines[0].split() == ["model", "architecture", "source"]
    found = json.loads(lmp("catalogue", "--json").stdout)
    assert len(found) >= 24
    mixtral = next(entry for entry in found if entry["id"] == "mistralai/Mixtral-8x7B-v0.1")
    assert mixtral["config"]["num_local_experts"] == 8
    assert mixtral["source"]["licence"] == "Apache-2.0"


@pytest.mark.parametrize("command", ["catalogue", "doctor"])
@pytest.mark.parametrize("width", [24, 40, 80])
def test_a_narrow_terminal_has_every_word(lmp: Lmp, command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = lmp(command).stdout
    monkeypatch.setattr("lmp.cli.tables.console", lambda: Console(width=width, highlight=False))
    narrow = lmp(command).stdout
    assert "…" not in narrow
    for word in ("Mixtral-8x7B", "2026-08-21") if command == "catalogue" else ("torch", "transformers", "settings"):
        assert word in wide
        assert word in narrow


def config_file(folder: Path, change: dict[str, object]) -> str:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 100,
    }  # fmt: skip
    file = folder / "mine.json"
    file.write_text(json.dumps({**config, **change}))
    return str(file)


@pytest.mark.skipif(not (ROOT / "transformers" / "src").is_dir(), reason="nothing is vendored here")
def test_the_command_in_a_process_of_its_own(tmp_path: Path, process: None) -> None:
    arguments = ["inspect", "--config", config_file(tmp_path, {}), "--results", str(tmp_path), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "lmp", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    # 2 * 100 * 64 + 64 + 2 * (2 * 64^2 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64)
    assert json.loads(done.stdout)["totals"]["parameters_count"] == 74_560


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        ({"num_key_value_heads": 3}, 2, "num_attention_heads = 4 is not a multiple of num_key_value_heads = 3"),
        ({"architectures": ["NoSuchForCausalLM"]}, 3, "has no class NoSuchForCausalLM"),
        ({"architectures": None}, 2, "the config names no class: it has no `architectures`"),
        ({"hidden_size": 10**30}, 4, "LlamaForCausalLM cannot be built at this config"),
    ],
)
def test_configs_that_cannot_be_inspected(
    lmp: Lmp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transformers_tree: Path, change: dict[str, object],
    code: int, why: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(ROOT)
    done = lmp("inspect", "--config", config_file(tmp_path, change), "--results", str(tmp_path), "--json")
    assert done.exit_code == code, done.stderr
    lines = done.stderr.splitlines()[1:]  # the first is progress
    assert lines[0].startswith("error: ")
    assert why in done.stderr
    assert len(lines) <= 2
