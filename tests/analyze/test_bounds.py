"""Sizes at which a module raises: the bound is an assumption, and execution raises at exactly the next size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluation import evaluate_analysis
from executed import executed, executed_model
from lmp.analyze.bounds import bounds_of
from lmp.analyze.modules import load_for_evaluation
from lmp.analyze.session import Options
from lmp.formula import evaluate_condition, to_text
from lmp.workload.inputs import InputsWorkload
from lmp.workload.load import load_class, quiet_warnings
from lmp.workload.model import ModelWorkload
from lmp.workload.parent_models import config_from
from lmp.workload.spec import Spec, parse_init, parse_inputs

X = "x: float[batch_size, seq_len, dim]"


class Learned(torch.nn.Module):
    """Positions that are learned: an index beyond the table raises nothing on the meta device."""

    def __init__(self, dim: int = 12, most: int = 70, reserved: int = 2) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(most + reserved, dim)
        self.reserved = reserved

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table(torch.arange(x.shape[1]) + self.reserved)


class Rotated(torch.nn.Module):
    """A table of cosines that is cut to the tokens."""

    def __init__(self, dim: int = 12, length: int = 33) -> None:
        super().__init__()
        self.register_buffer("cos", torch.ones(length, dim), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.cos[: x.shape[1]]


class Limited(torch.nn.Module):
    """A limit of its own, which no argument states."""

    def __init__(self, dim: int = 12) -> None:
        super().__init__()
        self.up = torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 147:
            raise ValueError("too long")
        return self.up(x)


class Blocks(torch.nn.Module):
    """Takes a first token and multiples of 4: a length between them fails, and there is no bound."""

    def __init__(self, dim: int = 12) -> None:
        super().__init__()
        self.up = torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x[:, 1:].reshape(x.shape[0], -1, 4, x.shape[2]))


class Projected(torch.nn.Module):
    def __init__(self, dim: int = 24, times: int = 2) -> None:
        super().__init__()
        self.up = torch.nn.Linear(dim * times, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x)


def stated(cls: type[torch.nn.Module], inputs: str = X, init: str = "") -> list[str]:
    with quiet_warnings():
        return [
            to_text(b.condition) for b in bounds_of(InputsWorkload(cls, Spec(parse_inputs(inputs), parse_init(init))))
        ]


@pytest.mark.parametrize(
    ("cls", "init", "bound", "most"),
    [
        (Learned, "most=70", "{seq_len} <= {most}", 70),
        (Learned, "most=45, reserved=5", "{seq_len} <= {most}", 45),
        (Rotated, "length=33", "{seq_len} <= {length}", 33),
        (Limited, "", "{seq_len} <= 147", 147),
    ],
)
def test_an_own_module(derivation: None, cls: type[torch.nn.Module], init: str, bound: str, most: int) -> None:
    assert stated(cls, init=init) == [bound]
    arguments = parse_init(init)
    tensors = [torch.zeros(1, tokens, 12) for tokens in (most, most + 1)]
    module = cls(**arguments)
    module(tensors[0])
    with pytest.raises((IndexError, RuntimeError, ValueError)):
        module(tensors[1])


class Unfolded(torch.nn.Module):
    """Needs a whole window of tokens."""

    def __init__(self, dim: int = 12, window: int = 21) -> None:
        super().__init__()
        self.window, self.up = window, torch.nn.Linear(dim * window, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x.unfold(1, self.window, 3).flatten(2))


class Dilated(torch.nn.Module):
    """Needs as many tokens as a dilated kernel spans."""

    def __init__(self, dim: int = 12, taps: int = 4, apart: int = 5) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(dim, dim, taps, dilation=apart)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.transpose(1, 2))


@pytest.mark.parametrize(
    ("cls", "init", "changed", "fewest"),
    [
        (Unfolded, "window=21", {"window": 9}, 9),
        (Unfolded, "window=3", {"window": 50}, 50),
        # A kernel of 4 taps, 5 apart, spans 3 * 5 + 1 = 16 tokens; one of 6 taps, 7 apart, 5 * 7 + 1 = 36.
        (Dilated, "", {"taps": 4, "apart": 5}, 16),
        (Dilated, "", {"taps": 6, "apart": 7}, 36),
    ],
)
def test_the_fewest_tokens_in_the_arguments_that_move_them(
    derivation: None, cls: type[torch.nn.Module], init: str, changed: dict[str, int], fewest: int
) -> None:
    (text,) = stated(cls, init=init)
    assert evaluate_condition(text, {**changed, "seq_len": fewest})
    assert not evaluate_condition(text, {**changed, "seq_len": fewest - 1})
    module = cls(**changed)
    module(torch.zeros(1, fewest, 12))
    with pytest.raises(RuntimeError):
        module(torch.zeros(1, fewest - 1, 12))


def test_multiples_alone_have_no_bound(derivation: None) -> None:
    assert stated(Blocks) == []


@pytest.mark.parametrize(
    ("inputs", "init", "bounds"),
    [
        ("x: float[batch_size, seq_len, 40]", "dim=20", ["{dim} == 20", "{times} == 2"]),
        ("x: float[batch_size, seq_len, 18]", "dim=6, times=3", ["{dim} == 6", "{times} == 3"]),
        ("x: float[batch_size, seq_len, 11]", "dim=11, times=1", ["{dim} == 11", "{times} == 1"]),
    ],
)
def test_numbers_in_the_inputs_fix_arguments(derivation: None, inputs: str, init: str, bounds: list[str]) -> None:
    # Each changed alone: Linear(dim * times) does not take the given number of features any more.
    assert stated(Projected, inputs, init) == bounds


NEO: dict[str, Any] = {
    "model_type": "gpt_neo", "vocab_size": 211, "hidden_size": 48, "num_layers": 2, "num_heads": 4,
    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 77, "window_size": 16,
    "intermediate_size": 56,
}  # fmt: skip
MPT: dict[str, Any] = {
    "model_type": "mpt",
    "d_model": 48,
    "n_heads": 4,
    "n_layers": 2,
    "max_seq_len": 61,
    "vocab_size": 97,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 48,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 53,
    "vocab_size": 97,
}
OPT: dict[str, Any] = {
    "model_type": "opt", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 64,
    "max_position_embeddings": 39, "word_embed_proj_dim": 48, "vocab_size": 97,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97,
    "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "content", "bounds"),
    [
        ("gpt_neo.modeling_gpt_neo.GPTNeoForCausalLM", NEO, ["{seq_len} + {cache_len} <= {max_position_embeddings}"]),
        ("mpt.modeling_mpt.MptForCausalLM", MPT, ["{seq_len} + {cache_len} <= {max_seq_len}"]),
        ("gpt2.modeling_gpt2.GPT2LMHeadModel", GPT2, ["{seq_len} + {cache_len} <= {max_position_embeddings}"]),
        ("opt.modeling_opt.OPTForCausalLM", OPT, ["{seq_len} + {cache_len} <= {max_position_embeddings}"]),
        # Rotary positions are computed: no number of the config is a bound.
        ("llama.modeling_llama.LlamaForCausalLM", LLAMA, []),
    ],
)
def test_a_model(path: str, content: dict[str, Any], bounds: list[str], transformers_tree: Path) -> None:
    cls = load_class(f"transformers.models.{path}")
    with quiet_warnings():
        found = bounds_of(ModelWorkload(cls, config_from(cls, content)))
    assert [to_text(bound.condition) for bound in found] == bounds


def test_it_stands_in_the_analysis_and_evaluate_tells(tmp_path: Path, transformers_tree: Path) -> None:
    file = tmp_path / "neo.json"
    file.write_text(json.dumps(NEO))
    name = "transformers.models.gpt_neo.modeling_gpt_neo.GPTNeoModel"
    analysis, lookup = load_for_evaluation(name, Options(results=tmp_path, config_file=file), lambda c, s: None)
    bound = "{seq_len} + {cache_len} <= {max_position_embeddings}"
    assert bound in analysis.assumptions

    def broken(**sizes: int) -> list[str]:
        found = evaluate_analysis(analysis, lookup, {"batch_size": 2, **sizes})
        return [v.assumption for v in found.violated_assumptions]

    inside: dict[str, int] = {"seq_len": 6, "cache_len": 71}  # 6 + 71 = 77
    assert broken(**inside) == []
    got = evaluate_analysis(analysis, lookup, {"batch_size": 2, **inside}).totals
    assert (got.flops, got.read, got.write) == executed_model(name, NEO, batch_size=2, **inside)
    assert bound in broken(seq_len=7, cache_len=71)
    with pytest.raises(RuntimeError):
        executed_model(name, NEO, batch_size=2, seq_len=7, cache_len=71)
    assert broken(seq_len=78, max_position_embeddings=90) == []


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Options:
    folder = tmp_path_factory.mktemp("rotated")
    (folder / "rotated_file.py").write_text(
        "import torch\n\n\nclass Rotated(torch.nn.Module):\n"
        "    def __init__(self, dim: int = 12, length: int = 33):\n        super().__init__()\n"
        '        self.register_buffer("cos", torch.ones(length, dim))\n\n'
        "    def forward(self, x):\n        return x * self.cos[: x.shape[1]]\n"
    )
    return Options(results=folder / "results", paths=(folder,), inputs=X, init="length=50")


def test_an_own_modules_bound_is_checked_at_other_sizes(rotated: Options) -> None:
    analysis, lookup = load_for_evaluation("rotated_file.Rotated", rotated, lambda c, s: None)
    for length, tokens in ((50, 50), (80, 80), (20, 19)):
        got = evaluate_analysis(analysis, lookup, {"batch_size": 3, "seq_len": tokens, "length": length, "dim": 10})
        assert got.violated_assumptions == []
        ran = executed(lambda length=length: Rotated(10, length), (3, tokens, 10))
        assert (got.totals.flops, got.totals.read, got.totals.write) == ran
    beyond = evaluate_analysis(analysis, lookup, {"batch_size": 3, "seq_len": 21, "length": 20, "dim": 10})
    assert [v.assumption for v in beyond.violated_assumptions] == ["{seq_len} <= {length}"]
