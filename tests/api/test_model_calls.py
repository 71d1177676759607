"""Tables of decode steps and prefills: figures by hand, sizes of every kind, errors, and what a notebook shows."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import lmp
from lmp.api.models import predictor
from lmp.errors import UsageError
from lmp.link.held import cache_bytes, weight_bytes
from lmp.link.values import values_for
from lmp.predict.screen.asking import Ask, Subject
from lmp.predict.screen.room import room
from lmp.records import ModelAnalysis

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "data" / "configs"

# Llama-3.1-8B: 32 layers, 32 heads of 128, 8 KV heads, hidden 4,096, inner 14,336, vocabulary 128,256.
LAYER = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
HEAD = 128256 * 4096
PARAMETERS = 32 * (LAYER + 2 * 4096) + 2 * HEAD + 4096
KV_TOKEN = 2 * 8 * 128 * 32
"""Elements of keys and values of one token."""


@pytest.fixture(scope="module")
def model(llama: ModelAnalysis) -> lmp.Model:
    return lmp.model(lmp.Analysis(llama))


def stored(width: int | Fraction) -> Fraction:
    """Matrices of the layers at so many bytes an element; norms, embedding and head at 2."""
    return 32 * LAYER * Fraction(width) + 2 * (PARAMETERS - 32 * LAYER)


def decode_flops(batch: int, cache: int) -> int:
    """Products of one token a sequence; scores and values over the cache and the token itself."""
    return batch * (2 * (32 * LAYER + HEAD) + 2 * 2 * 32 * 32 * 128 * (cache + 1))


# --- figures ---------------------------------------------------------------------------------------------------------


def test_a_decode_step_by_hand(model: lmp.Model) -> None:
    found = model.decode(batch=[1, 8, 64], cache=8192, weights="fp8")
    assert list(found.columns) == [
        "batch", "cache", "flops", "matmul_flops", "read", "write", "bytes", "flops_per_token", "bytes_per_token",
        "compulsory", "weights_bytes", "kv_bytes",
    ]  # fmt: skip
    assert found["batch"].tolist() == [1, 8, 64]
    assert found["matmul_flops"].tolist() == [decode_flops(batch, 8192) for batch in (1, 8, 64)]
    assert found["weights_bytes"].tolist() == [stored(1)] * 3
    for row in found.to_dict("records"):
        assert row["bytes"] == row["read"] + row["write"]
        assert row["flops_per_token"] == row["flops"] / row["batch"]  # one new token a sequence
        assert row["bytes_per_token"] == row["bytes"] / row["batch"]
    # 8,192 tokens are read, and one is written, of 2 bytes an element.
    assert found["kv_bytes"].tolist() == [batch * 8193 * KV_TOKEN * 2 for batch in (1, 8, 64)]


def test_a_prefill_by_hand(model: lmp.Model) -> None:
    found = model.prefill(batch=2, tokens=[1024, "4k"], kv="fp8")
    assert found["tokens"].tolist() == [1024, 4096]
    # Every token meets every other: causal attention is counted in full.
    assert found["matmul_flops"].tolist() == [
        2 * n * 2 * (32 * LAYER + HEAD) + 2 * 4 * 32 * 32 * 128 * n * n for n in (1024, 4096)
    ]
    assert found["kv_bytes"].tolist() == [2 * n * KV_TOKEN for n in (1024, 4096)]
    assert found["weights_bytes"].tolist() == [2 * PARAMETERS] * 2


def test_a_chunk_of_a_prompt_by_hand(model: lmp.Model) -> None:
    found = model.prefill(batch=2, tokens=512, cache=[0, "8k"])
    assert found["tokens"].tolist() == [512, 512]
    assert found["cache"].tolist() == [0, 8192]
    # Each of 512 new tokens meets those in the cache and the new ones.
    assert found["matmul_flops"].tolist() == [
        2 * 512 * 2 * (32 * LAYER + HEAD) + 2 * 4 * 32 * 32 * 128 * 512 * (cached + 512) for cached in (0, 8192)
    ]
    assert found["kv_bytes"].tolist() == [2 * (cached + 512) * KV_TOKEN * 2 for cached in (0, 8192)]
    assert found["flops_per_token"].tolist() == [flops / 1024 for flops in found["flops"]]
    assert "cache" not in model.prefill(tokens=512).columns
    with pytest.raises(TypeError, match=r"prefill\(\) got an unexpected keyword argument 'gpus'"):
        model.prefill(tokens=512, gpus=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="cache is -1\ngive whole numbers of at least 0"):
        model.prefill(tokens=512, cache=-1)


def test_a_sweep_equals_its_points(model: lmp.Model) -> None:
    """1,000 points are one vectorised sweep; each is what its own evaluation says."""
    found = model.decode(batch=range(1, 11), cache=np.arange(1000, 101_000, 1000))
    assert len(found) == 1000
    whole = [name for name in found.columns if not name.endswith("_per_token")]
    assert found[whole].dtypes.astype(str).eq("int64").all()
    for index in (0, 137, 999):
        row = found.iloc[index]
        totals = model.analysis.evaluate(int(row["batch"]), 1, int(row["cache"])).totals
        for name in ("flops", "matmul_flops", "read", "write", "compulsory"):
            assert row[name] == getattr(totals, name)
    # The last size varies fastest.
    assert found["cache"].tolist()[:100] == list(range(1000, 101_000, 1000))
    assert found["batch"].tolist()[::100] == list(range(1, 11))


def test_formats_of_elements(model: lmp.Model) -> None:
    of_16_bits = model.decode(cache=100)
    with pytest.warns(UserWarning, match="a_bytes} != 4 does not hold at 1 of 1 points"):
        wide = model.decode(cache=100, dtype="fp32")
    assert wide["weights_bytes"][0] == 2 * of_16_bits["weights_bytes"][0] == 4 * PARAMETERS
    assert wide["kv_bytes"][0] == 2 * of_16_bits["kv_bytes"][0]
    # 17/32 bytes a weight: 4 bits and a scale of 8 bits for 32 of them. It is whole, for 32 divides the parameters.
    packed = model.decode(cache=100, weights="mxfp4", kv=Fraction(1, 2))
    assert packed["weights_bytes"][0] == stored(Fraction(17, 32))
    assert packed["kv_bytes"][0] == 101 * KV_TOKEN // 2
    assert model.decode(cache=100, weights=1, kv="17/32")["kv_bytes"][0] == 101 * KV_TOKEN * 17 / 32
    # The narrower word wins over the word for all.
    assert model.decode(cache=100, dtype="fp8", kv="bf16")["kv_bytes"][0] == 101 * KV_TOKEN * 2


def test_one_gpu_of_several(model: lmp.Model) -> None:
    whole, part = model.decode(batch=8, cache=1000), model.decode(batch=8, cache=1000, tp=8)
    # All products are divided: heads, inner sizes and the vocabulary. So is the cache: one KV head of 8 on each GPU.
    assert part["matmul_flops"][0] * 8 == pytest.approx(whole["matmul_flops"][0], rel=1e-3)
    assert part["kv_bytes"][0] == 8 * 1001 * KV_TOKEN * 2 // 8
    norms = 65 * 4096  # alone stay whole on each GPU
    assert part["weights_bytes"][0] == 2 * ((PARAMETERS - norms) // 8 + norms)
    assert part["read"][0] < whole["read"][0] / 4
    with pytest.raises(UsageError, match=r"tp=3 does not divide .*\nallowed are 1, 2, 4"):
        model.decode(batch=8, cache=1000, tp=3)


@pytest.mark.parametrize("name", ["GptOssForCausalLM", "DeepseekV3ForCausalLM", "Qwen3MoeForCausalLM"])
def test_what_is_held_is_as_at_each_point(name: str) -> None:
    """Windows, latents and checkpoints of their own bytes: one sweep gives what the formulas give point by point."""
    (file,) = (ROOT / "analysis_results").glob(f"*.{name}@*/model_analysis.json")
    found = lmp.model(lmp.Analysis(ModelAnalysis.model_validate_json(file.read_text(encoding="utf-8"))))
    for call, size, fixed in (
        (found.decode, "cache", {"seq_len": 1}), (found.prefill, "tokens", {"cache_len": 0}),
    ):  # fmt: skip
        for row in call(batch=[1, 3], **{size: [1, 100, 127, 128, 129, 5000]}).to_dict("records"):
            variable = {"cache": "cache_len", "tokens": "seq_len"}[size]
            at = values_for(found.numbers.model, {"batch_size": row["batch"], variable: row[size], **fixed})
            assert row["kv_bytes"] == cache_bytes(found.numbers, at)
            assert row["weights_bytes"] == weight_bytes(found.numbers, at, found.subject.model)


# --- on a device -----------------------------------------------------------------------------------------------------


def test_times_are_those_of_predict(model: lmp.Model) -> None:
    found = model.decode(batch=[1, 16], cache=8192, device="h100-sxm", engine="vllm")
    for row, batch in zip(found.to_dict("records"), (1, 16), strict=True):
        one = lmp.predict(model.analysis, "h100-sxm", "decode", batch_size=batch, cache_len=8192, engine="vllm")
        assert (row["time_ms"], row["low_ms"], row["high_ms"]) == one.ms
        assert row["tokens_per_s"] == one.tokens_per_s[0]
        assert (row["bound"], row["fits"]) == (one.bound, True)
        # Beside weights and cache there are activations, CUDA's own memory, and what the engine reserves.
        least = 2 * PARAMETERS + batch * 8193 * KV_TOKEN * 2
        assert least < row["memory_bytes"] < least + 5e9
        # Weights and cache at 3.35 TB/s: nothing reads them faster.
        assert row["time_ms"] > (2 * (PARAMETERS - HEAD) + batch * 8192 * KV_TOKEN * 2) / 3.35e9
    assert found.attrs["warnings"] == []


def test_memory_of_a_table_is_that_of_each_point(transformers_tree: Path) -> None:
    """It is worked out once for each length and grows with the sequences: as `room` says of each."""
    found = lmp.model(CONFIGS / "small-llama.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more tokens than positions
        for engine in (None, "vllm"):
            batches, caches = [1, 7, 900, 5000], [500, 20_000]
            rows = found.decode(batch=batches, cache=caches, device="l4", engine=engine).to_dict("records")
            assert {row["fits"] for row in rows} == {True, False}
            for row in rows:
                given = {"batch_size": row["batch"], "cache_len": row["cache"], "seq_len": 1}
                profile = None
                if engine is not None:
                    from lmp.predict.rewrite.profiles import profile_named

                    profile = profile_named(engine)
                ask = Ask(predictor().device("l4"), given, "bfloat16", profile)
                held = found.held(ask)
                assert not isinstance(held, str)
                own = room(held, ask)
                assert (row["fits"], row["memory_bytes"]) == (own.fits, round(own.held))


# --- sizes -----------------------------------------------------------------------------------------------------------


class Listed:
    """An array of any library."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def tolist(self) -> Any:
        return self.values


@pytest.mark.parametrize(
    "sizes",
    [
        [1, 2, 4], (1, 2, 4), np.array([1, 2, 4]), np.array([1.0, 2.0, 4.0]), torch.tensor([1, 2, 4]),
        torch.tensor([1, 2, 4], dtype=torch.int8), pandas.Series([1, 2, 4]), [np.int32(1), torch.tensor(2), "4"],
        Listed([1, 2, 4]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_sizes_of_every_kind(model: lmp.Model, sizes: Any) -> None:
    assert model.decode(batch=sizes, cache=10)["batch"].tolist() == [1, 2, 4]


@pytest.mark.parametrize("size", [8192, "8k", "8K", "8_192", np.int64(8192), torch.tensor(8192), 8192.0, Listed(8192)])
def test_one_size_of_every_kind(model: lmp.Model, size: Any) -> None:
    assert model.decode(cache=size)["cache"].tolist() == [8192]


def test_a_range_is_not_listed(model: lmp.Model) -> None:
    with pytest.raises(UsageError, match="cache has 999,999,999,999 values"):
        model.decode(cache=range(1, 10**12))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, r"^batch is 0\ngive whole numbers of at least 1$"),
        ({"batch": -3}, "^batch is -3"),
        ({"batch": True}, "^batch is True, which is not a whole number"),
        ({"batch": None}, "^batch is None, which"),
        ({"batch": 1.5}, r"^batch is 1\.5, which"),
        ({"batch": float("nan")}, "^batch is nan, which"),
        ({"batch": "many"}, "^batch is 'many', which"),
        ({"batch": "1,2"}, "^batch is '1,2', which is several"),
        ({"batch": []}, "^batch has no values"),
        ({"batch": range(0)}, "^batch has no values"),
        ({"batch": [[1, 2]]}, "^batch is a table of several dimensions"),
        ({"batch": np.ones((2, 2), int)}, "^batch is a table of several dimensions"),
        ({"batch": torch.empty(2, device="meta")}, "^the values of batch cannot be read"),
        ({"batch": {1: 2}}, r"^batch is \{1: 2\}, which"),
        ({"cache": 0}, "^cache is 0"),
        ({"batch": range(1, 10**4), "cache": range(1, 10**4)}, "a sweep of 99,980,001 points"),
        ({"weights": "fp9"}, r"^weights is 'fp9', which is no dtype\ndid you mean fp8"),
        ({"weights": 0}, "^weights is set to 0, but an element takes more than 0 bytes"),
        ({"kv": "w8a16"}, "^kv is 'w8a16', which is no dtype"),
        ({"dtype": 8}, "^dtype is 8, which is no name"),
        ({"device": "h100smx"}, "^there is no device 'h100smx'"),
        ({"engine": "vllm"}, r"^engine is given without a device\ngive a device too"),
        ({"engine": "vlm", "device": "h100-sxm"}, "did you mean vllm"),
        ({"dtype": "nvfp4", "device": "a100-sxm"}, "a100-sxm"),
        ({"batch": 2**20, "cache": "1M", "device": "h100-sxm"}, "is beyond what is predicted: "),
        ({"tp": 0}, "^tp is 0"),
        ({"tp": [1, 2]}, "^tp has several values"),
        ({"tp": 5000}, r"^tp=5000 is not a number of GPUs\nallowed are 1 to 1024"),
    ],
)
def test_errors_are_in_the_words_of_the_call(model: lmp.Model, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as found:
        model.decode(**{"cache": 100, **arguments})
    assert len(str(found.value).splitlines()) == 2
    assert "--" not in str(found.value)


def test_what_the_call_cannot_do_without() -> None:
    for call, size in ((lmp.Model.decode, "cache"), (lmp.Model.prefill, "tokens")):
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{size}'"):
            call(None)  # type: ignore[call-arg, arg-type]


# --- models ----------------------------------------------------------------------------------------------------------


class Wide(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x)


def test_a_module_of_ones_own(derivation: None, results: Path) -> None:
    found = lmp.model(Wide(8), inputs="x: float[batch_size, seq_len, 8]")
    # 3 * 5 rows, 8 to 32.
    assert found.prefill(batch=3, tokens=5)["flops"].tolist() == [2 * 15 * 8 * 32]
    assert found.prefill(batch=3, tokens=5)["kv_bytes"].tolist() == [0]
    with pytest.warns(UserWarning, match="has no cache: cache = 7 changes nothing"):
        found.decode(batch=3, cache=7)
    assert (results / f"{__name__}.Wide" / "module_analysis.json").is_file()


def test_a_class_with_sizes_that_have_no_value(derivation: None) -> None:
    found = lmp.model(Wide, inputs="x: float[batch_size, rows, width]", init={"width": 8}, results=False)
    with pytest.raises(UsageError, match=r"^rows has no value in .*Wide\ngive it with at\(\), as in m\.at\(rows=16\)"):
        found.prefill(tokens=1)
    assert found.at(rows=5).prefill(batch=3, tokens=1)["flops"].tolist() == [2 * 15 * 8 * 32]
    assert found.at(rows=5, width=2).prefill(batch=3, tokens=1)["flops"].tolist() == [2 * 15 * 2 * 8]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its memory is not known: it is a part of a model
        row = found.at(rows=5).prefill(batch=3, tokens=1, device="h100-sxm").to_dict("records")[0]
    assert (row["fits"], row["memory_bytes"]) == (None, None)
    with pytest.raises(UsageError, match="has no parameter 'widht'"):
        found.at(widht=5)
    with pytest.raises(UsageError, match="batch_size is a size of a call"):
        found.at(batch_size=5)


def test_results_that_are_not_kept(derivation: None, results: Path) -> None:
    before = sorted(results.rglob("*"))
    lmp.analyze(nn.ReLU6(), inputs="input: float[batch_size, 8]", results=False)
    assert sorted(results.rglob("*")) == before
    lmp.analyze(nn.ReLU6(), inputs="input: float[batch_size, 8]")
    assert (results / "torch.nn.modules.activation.ReLU6").parent == results
    assert len(sorted(results.rglob("module_analysis.json"))) > len([p for p in before if p.suffix == ".json"])


def test_every_kind_of_config_is_the_same_model(transformers_tree: Path, tmp_path: Path) -> None:
    import transformers

    file = CONFIGS / "small-llama.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    config = transformers.LlamaConfig(**content)
    assert config.architectures is not None
    with torch.device("meta"):
        live = transformers.LlamaForCausalLM(config)
    nameless = transformers.LlamaConfig(**{n: v for n, v in content.items() if n != "architectures"})
    assert nameless.architectures is None
    kinds = {"path": file, "text": str(file), "mapping": content, "config": config, "module": live, "type": nameless}
    found = {name: lmp.model(kind, results=tmp_path) for name, kind in kinds.items()}
    tables = {name: one.decode(batch=[1, 4], cache=64) for name, one in found.items()}
    for name, table in tables.items():
        assert found[name].class_name == "transformers.models.llama.modeling_llama.LlamaForCausalLM"
        assert found[name].status == "verified"
        pandas.testing.assert_frame_equal(table, tables["path"])
    assert found["path"].name == "small-llama"
    # Each config's results are in a folder of its own name: of a mapping it is a digest.
    assert found["mapping"].name.startswith("given-")
    counted = sum(parameter.numel() for parameter in live.parameters())
    assert found["mapping"].parameters == counted
    assert tables["config"]["weights_bytes"].tolist() == [2 * counted] * 2


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("small.json", {}, "there is no file small.json"),
        ("block.py:Block", {}, "there is no file block.py"),
        ({"hidden_size": 8}, {}, "the config names no class"),
        ({"architectures": ["Nope"], "model_type": "nope"}, {}, "Nope"),
        ({"architectures": ["LlamaForCausalLM"]}, {"inputs": "x: float[2]"}, "a config is given with inputs"),
        ("Qwen/Qwen3-8B", {"config": {"a": 1}}, "two configs are given"),
        (5, {}, "5 is not a module"),
        (nn.Linear(2, 2), {}, "inputs are missing"),
    ],
)
def test_what_is_no_model(target: Any, settings: dict[str, Any], message: str, transformers_tree: Path) -> None:
    with pytest.raises(lmp.LmpError, match=message) as found:
        lmp.model(target, **settings)
    assert "--" not in str(found.value)


def test_an_unknown_argument() -> None:
    with pytest.raises(TypeError, match=r"model\(\) got an unexpected keyword argument 'resuls'"):
        lmp.model("Qwen/Qwen3-8B", resuls=False)  # type: ignore[call-arg]


# --- what a notebook shows -------------------------------------------------------------------------------------------


class Tree(html.parser.HTMLParser):
    """Counts tags, and holds that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(text: str) -> Tree:
    tree = Tree()
    tree.feed(text)
    tree.close()
    assert tree.open == []
    return tree


def test_the_tree_of_modules(model: lmp.Model) -> None:
    text = model._repr_html_()
    tree = read(text)
    assert set(tree.tags) == {"div", "span", "details", "summary"}
    for name in ("layers.0 LlamaDecoderLayer × 32", "mlp LlamaMLP", "lm_head Linear"):
        assert name in tree.texts
    # A decode step on 8,192 cached tokens: the head is 2 * 4096 * 128256 of all FLOPs.
    whole = model.analysis.evaluate(1, 1, 8192).totals.flops
    assert f"{2 * HEAD / whole:.1%}" in tree.texts
    assert "background:transparent" in text  # and no colour but the page's own: it is read on dark pages too
    assert "#" not in text
    assert "<script" not in text


def test_the_tree_is_escaped(model: lmp.Model) -> None:
    evil = lmp.Model("<script>alert(1)</script>&\"'", model.analysis, model.subject)
    text = evil._repr_html_()
    assert "<script>" not in text
    assert any("<script>alert(1)</script>&\"'" in one for one in read(text).texts)


def test_one_line_each(model: lmp.Model) -> None:
    predicted = lmp.predict(model.analysis, "h100-sxm", "decode", cache_len=100)
    for one in (model, model.analysis, model.analysis.evaluate(1, 1, 100), predicted):
        assert len(repr(one).splitlines()) == 1
        assert len(repr(one)) < 250
    assert repr(model) == "<Model LlamaForCausalLM: LlamaForCausalLM, 8.03 G parameters, verified>"


def test_help() -> None:
    code = "import lmp; help(lmp); help(lmp.model); help(lmp.Model.decode)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PAGER": "cat", "TERM": "dumb"},
    )  # fmt: skip
    assert 'lmp.model("Qwen/Qwen3-8B")' in done.stdout
    assert "model(target" in done.stdout
    assert "decode(self, batch: 'Sizes' = 1, *, cache: 'Sizes'" in done.stdout
    for column in ("flops", "read", "write", "compulsory", "weights_bytes", "kv_bytes", "time_ms", "fits"):
        assert f"``{column}``" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 250


def test_a_table_imports_no_torch(tmp_path: Path) -> None:
    (file,) = (ROOT / "analysis_results").glob("*.LlamaForCausalLM@*/model_analysis.json")
    code = (
        "import sys, lmp; from pathlib import Path; from lmp.records import ModelAnalysis; "
        "m = lmp.model(lmp.Analysis(ModelAnalysis.model_validate_json(Path(sys.argv[1]).read_text()))); "
        "print(len(m.decode(batch=[1, 2], cache=8192)), m._repr_html_()[:4], 'torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "2 <div False"


def test_other_sizes_hold_other_weights(model: lmp.Model) -> None:
    few = model.at(num_hidden_layers=2)
    row = few.decode(cache=100, device="h100-sxm").to_dict("records")[0]
    least = 2 * (2 * (LAYER + 2 * 4096) + 2 * HEAD + 4096)
    assert row["weights_bytes"] == least
    assert least < row["memory_bytes"] < least + 1e9


def test_the_subject_is_that_of_predictions(model: lmp.Model) -> None:
    assert isinstance(model.subject, Subject)
    assert model.numbers is model.subject.own
