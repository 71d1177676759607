"""A profile's rules, one after the other, over the kernels of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lmp.errors import InvalidAnalysis
from lmp.formula import Number
from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite import attending, fused, latent, mixtures, norms, products, recurrent, rotary
from lmp.predict.rewrite.graph import Graph
from lmp.predict.rewrite.rules import NOTHING, Launch, Match, Rule, State
from lmp.records import MATMUL_CATEGORIES

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("bias", "an addition after a product that moves no bytes", "a part of the product", NOTHING,
             products.epilogues),
        Rule("wide_product", "a product in float32 of a weight and an activation of 16 bits, converted before",
             "one product of 16 bits", NOTHING, products.converted),
        Rule("norm", "rsqrt of a mean of squares, its products; a residual add before it, a gate beside it",
             "rms_norm, add_rms_norm or gated rms_norm", NOTHING, norms.norms),
        Rule("rope_table", "what is made of positions and weights alone, with FLOPs", "a table made once", NOTHING,
             rotary.tables),
        Rule("rope", "mul, neg, cat, add of one module that use the table", "one kernel for queries and keys", NOTHING,
             rotary.rotations),
        Rule("causal_conv", "a convolution of each channel, the cat and copy of its state, the activation behind it",
             "one kernel", NOTHING, recurrent.convolutions),
        Rule("scan", "kernels of one module around a state that decays and is stored, no product with a weight",
             "one kernel", NOTHING, recurrent.scans),
        Rule("mla_absorb", "a product of cached latents that makes keys and values, before attention of one new token",
             "two products of each head, and attention over the latents", latent.SAVED, latent.absorbed),
        Rule("mla_prefill", "the same before attention of several new tokens",
             "the product; keys from two parts, and attention of all heads", NOTHING, latent.expanded),
        Rule("flash", "sdpa, or softmax between two batched products; copies and cat of the cache before it",
             "a write of the new tokens, and attention that reads the cache", NOTHING, attending.attention),
        Rule("kv_append", "a cat of the cache with new tokens that no attention has taken", "a write of the new tokens",
             NOTHING, attending.appended),
        Rule("moe", "grouped products, or all experts' products, the top-k selection before and the sum after them",
             "one operator", mixtures.SAVED, mixtures.experts),
        Rule("chained_products", "two products of activations, what is between them larger than the result",
             "one kernel", NOTHING, products.chained),
        Rule("gated_act", "an activation and a product of two activations", "one kernel", NOTHING,
             fused.gated_activations),
        Rule("merge_same_input", "products of one input with weights", "one product, its columns summed", NOTHING,
             products.merged),
        Rule("last_token_logits", "the last product, with a row for each token", "a row for each sequence",
             "2 * batch_size * (seq_len - 1) * n * k", products.last_logits),
        Rule("constant", "what is made of weights alone", "nothing: it is made at loading", NOTHING, fused.constants),
        Rule("dead_mask", "what is made of positions alone, for masks and tables that are gone", "nothing", NOTHING,
             fused.dead_masks),
        Rule("quantise", "an fp8 product whose input is not from norm or gated_act", "a quantise kernel before it",
             NOTHING, products.quantises),
        Rule("pointwise_chain", "connected kernels in the same layers with no product between them", "one kernel",
             NOTHING, fused.pointwise_chains),
    )
}  # fmt: skip
"""Every rule by its name. A profile orders them: a rule takes what none before it has taken."""


@dataclass(frozen=True)
class Firing:
    """One place where a rule held."""

    rule: str
    members: tuple[EvaluatedKernel, ...]
    launches: tuple[EvaluatedKernel, ...]
    saved: int

    @property
    def lines(self) -> tuple[str, ...]:
        """The source lines that it replaced, each once."""
        return tuple(dict.fromkeys(f"{kernel.class_name}:{kernel.line}" for kernel in self.members))


@dataclass(frozen=True)
class Rewritten:
    """What is launched in place of the kernels of a call."""

    launches: tuple[Launch, ...]
    firings: tuple[Firing, ...]
    matmul_flops_before: int
    saved: int

    @property
    def matmul_flops(self) -> int:
        """Of what is launched."""
        return sum(launch.matmul_flops * launch.kernel.repeat for launch in self.launches)


def rewritten(
    kernels: Sequence[EvaluatedKernel],
    rules: Sequence[str],
    values: Mapping[str, Number],
    dtype: str = "bfloat16",
    of_expert: Callable[[EvaluatedKernel], Mapping[str, object] | None] | None = None,
    absorbed: str | None = None,
    reads_fp8: Callable[[EvaluatedKernel], bool] = lambda kernel: True,
) -> Rewritten:
    """The list after the rules. Raises InvalidAnalysis if matrix FLOPs are lost or made.

    ``dtype``: of products, as a datasheet names it; ``of_expert``: of the experts of a layer, if it differs;
    ``absorbed``: of the products that latent attention absorbs, if it differs; ``reads_fp8``: as `State` has it.
    """
    graph = Graph(kernels, values)
    state = State(graph, dtype, of_expert or (lambda _: {"dtype": dtype}), absorbed or dtype, reads_fp8)
    firings = []
    for name in rules:
        for match in list(RULES[name].find(state)):
            if any(one in state.taken for one in match.members):
                continue  # an earlier match of the rule has a part of it
            state.taken.update(dict.fromkeys(match.members, name))
            state.launches.extend(match.launches)
            firings.append(_firing(graph, name, match))
    launches = [*state.launches, *(_eager(graph, one) for one in state.untaken())]
    launches.sort(key=lambda launch: (launch.members[0], launch.rule != "quantise"))
    before = sum(_matmul_flops(kernel) * kernel.repeat for kernel in graph.kernels)
    found = Rewritten(tuple(launches), tuple(firings), before, sum(one.saved for one in firings))
    if found.matmul_flops != before - found.saved:
        wrong = next((one for one in firings if not _conserves(one, state.launches)), None)
        rule = f"the rule {wrong.rule} at {wrong.lines[0]}" if wrong is not None else "the rules"
        raise InvalidAnalysis(
            f"{rule} changed the matrix FLOPs: {found.matmul_flops:,} for {before - found.saved:,}\n"
            "its shapes differ from the verified FLOPs: choose a profile without it"
        )
    return found


def _matmul_flops(kernel: EvaluatedKernel) -> int:
    return kernel.flops if kernel.category in MATMUL_CATEGORIES else 0


def _eager(graph: Graph, one: int) -> Launch:
    return Launch(graph.kernels[one], None, (one,), _matmul_flops(graph.kernels[one]))


def _firing(graph: Graph, name: str, match: Match) -> Firing:
    members = match.members or match.launches[0].members  # a rule that takes none stands before a kernel
    kernels = tuple(graph.kernels[one] for one in members)
    return Firing(name, kernels, tuple(launch.kernel for launch in match.launches), match.saved)


def _conserves(firing: Firing, launches: Sequence[Launch]) -> bool:
    made = [launch for launch in launches if any(launch.kernel is kernel for kernel in firing.launches)]
    if firing.rule == "quantise":
        return True
    before = sum(_matmul_flops(kernel) * kernel.repeat for kernel in firing.members)
    return sum(launch.matmul_flops * launch.kernel.repeat for launch in made) == before - firing.saved
