"""Holds the rule `pointwise_chain` against the code that inductor generates on a CPU, for small models of two layers.

    .venv/bin/python benchmarks/compiled_kernels.py --results FOLDER [MODEL...]

Each model is compiled by torch.compile; its code is generated and not built. A fused kernel's name lists the operators
in it. lmp's launches of the profile transformers-compiled are of the same model at the same sizes. Compared are their
numbers, and the operators of each pair of kernels, as |common| / |either|. Left out are products, attention, views and
the cache: the compiled call has none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}
HEADS = {"intermediate_size": 96, "num_key_value_heads": 2, "head_dim": 16}
MODELS: Mapping[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, **HEADS},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **SIZES, **HEADS},
    "gemma": {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], **SIZES, **HEADS},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,
             "vocab_size": 1000},
    "olmo2": {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], **SIZES, **HEADS},
}  # fmt: skip
BATCH, TOKENS = 2, 8
SKIPPED = frozenset(
    {
        "view", "_unsafe_view", "slice", "transpose", "unsqueeze", "expand", "t", "permute", "select", "squeeze",
        "split", "split_with_sizes", "alias", "reshape", "clone", "scalar_tensor", "full", "arange", "new_ones",
        "lift_fresh_copy", "_scaled_dot_product_flash_attention_for_cpu",
    }
)  # fmt: skip
"""Views, constants, and copies that the layout of one back end alone needs."""
SAME = {"addmm": "mm", "embedding": "embedding", "_softmax": "softmax"}


@dataclass(frozen=True)
class Compared:
    """Fused kernels of one model, each as the set of its operators."""

    model: str
    inductor: tuple[frozenset[str], ...]
    chains: tuple[frozenset[str], ...]

    @property
    def pairs(self) -> list[tuple[frozenset[str], frozenset[str], float]]:
        """Each kernel of inductor with the chain that is nearest to it, each chain once."""
        free, found = list(self.chains), []
        near = sorted(((likeness(a, b), i, j) for i, a in enumerate(self.inductor) for j, b in enumerate(free)),
                      key=lambda one: -one[0])  # fmt: skip
        used: tuple[set[int], set[int]] = (set(), set())
        for alike, i, j in near:
            if i not in used[0] and j not in used[1]:
                used[0].add(i)
                used[1].add(j)
                found.append((self.inductor[i], self.chains[j], alike))
        return found

    @property
    def agreement(self) -> float:
        """Mean likeness of all kernels of both: one without a pair counts 0."""
        return sum(alike for _, _, alike in self.pairs) / max(len(self.inductor), len(self.chains))


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--results", type=Path, required=True)
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    print(f"{'model':8} {'inductor':>9} {'chains':>7} {'same':>5} {'agreement':>10}")
    for name in given.models:
        found = compared(name, given.results)
        same = sum(alike == 1.0 for _, _, alike in found.pairs)
        print(f"{name:8} {len(found.inductor):9} {len(found.chains):7} {same:5} {found.agreement:10.0%}", flush=True)
        for theirs, ours, alike in found.pairs:
            if alike < 1:
                print(f"    {alike:.0%}: only inductor {sorted(theirs - ours)}, only the chain {sorted(ours - theirs)}")
    return 0


def compared(name: str, results: Path) -> Compared:
    return Compared(name, tuple(inductor_kernels(MODELS[name])), tuple(chains(MODELS[name], results)))


# --- inductor --------------------------------------------------------------------------------------------------------


def inductor_kernels(config: Mapping[str, Any]) -> Iterator[frozenset[str]]:
    """Operators of each fused kernel that the generated code calls, in its order."""
    words = known_operators()
    for name in re.findall(r"^\s+cpp_fused_(\w+?)_\d+\(", generated(config), re.MULTILINE):
        found = split_name(name, words)
        if found:
            yield found


def generated(config: Mapping[str, Any]) -> str:
    """The code of one call without a cache, with positions and a mask given: no kernel makes them."""
    import torch
    import transformers
    from torch._inductor import config as inductor
    from torch._inductor.utils import get_code

    model = getattr(transformers, config["architectures"][0])(transformers.AutoConfig.for_model(**config))
    model = model.to(torch.bfloat16).eval()
    ids = torch.zeros(BATCH, TOKENS, dtype=torch.int64)
    given = {"position_ids": torch.arange(TOKENS)[None], "use_cache": False,
             "attention_mask": torch.zeros(BATCH, 1, TOKENS, TOKENS, dtype=torch.bfloat16)}  # fmt: skip
    # The code is wanted, and a cached graph has none.
    with torch.no_grad(), inductor.patch(force_disable_caches=True):
        compiled = torch.compile(lambda ids: model(input_ids=ids, **given).logits)
        return "\n".join(get_code(compiled, ids))


def known_operators() -> frozenset[str]:
    import torch

    names = torch._C._dispatch_get_all_op_names()
    return frozenset(name.removeprefix("aten::").partition(".")[0] for name in names if name.startswith("aten::"))


def split_name(name: str, words: frozenset[str]) -> frozenset[str]:
    """``_to_copy_add_mul``: the operators _to_copy, add and mul. They stand in the alphabet's order."""
    parts = name.split("_")
    best: list[tuple[str, ...] | None] = [()] + [None] * len(parts)
    for end in range(1, len(parts) + 1):
        for start in range(end):
            before, word = best[start], "_".join(parts[start:end])
            follows = before is not None and word in words and (not before or before[-1] <= word)
            if follows and before is not None and (best[end] is None or len(before) + 1 < len(best[end] or ())):
                best[end] = (*before, word)
    found = best[-1]
    if found is None:
        raise ValueError(f"the kernel's name {name} is of no known operators")
    return kept(found)


def kept(operators: Sequence[str]) -> frozenset[str]:
    return frozenset(SAME.get(one, one) for one in operators) - SKIPPED - {""}


# --- lmp -------------------------------------------------------------------------------------------------------------


def chains(config: Mapping[str, Any], results: Path) -> Iterator[frozenset[str]]:
    """Operators of each launch of the compiled profile that is no product, once for each time it runs."""
    from lmp.analyze.models import expand_model
    from lmp.analyze.session import Options
    from lmp.cli.progress import class_of_config
    from lmp.link.numbers import ModelNumbers
    from lmp.link.values import values_for
    from lmp.predict.rewrite.graph import Graph
    from lmp.predict.rewrite.profiles import profile_named
    from lmp.predict.rewrite.rewriting import rewritten

    file = results / f"compiled-{config['model_type']}.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    options = Options(results=results, config_file=file)
    model = expand_model(class_of_config(options), options, lambda name, stage: None).model
    numbers = ModelNumbers(model)
    sizes = {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2, "batch_size": BATCH, "seq_len": TOKENS, "cache_len": 0}
    values = values_for(model, sizes)
    kernels = numbers.evaluation(values, numbers.tree(values)).kernels
    graph = Graph(kernels, values)
    for launch in rewritten(kernels, profile_named("transformers-compiled").rules, values).launches:
        members = [one for one in launch.members if not graph.appends(one) and not graph.is_product(one)]
        members = [one for one in members if one not in graph.positions]
        found = kept([graph.operator(one) for one in members])
        yield from [found] * launch.kernel.repeat if found else []


if __name__ == "__main__":
    sys.exit(main())
