"""Whether a code base has to do with language models, by what its own code does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from lmp.codebase.facts import Place
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.states import carried_states
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.repository.code_base import CodeBase
from lmp.report.repository.pieces import joined, plural, pointer, sentence

LIBRARIES = (
    "transformers",
    "vllm",
    "sglang",
    "mlx_lm",
    "flash_attn",
    "flashinfer",
    "xformers",
    "ctranslate2",
    "llama_cpp",
    "tensorrt_llm",
    "exllamav2",
    "tiktoken",
    "sentencepiece",
)
ATTENTION, SAMPLING, STATES = "attention classes or functions", "token sampling", "KV caches"
_NAMES = (
    (ATTENTION, r"Attention|[Aa]ttn|^attention"),
    ("causal language models", r"ForCausalLM$|LM(?:Head)?Model$|LanguageModel|^(GPT|Llama|Qwen\d*)(Model)?$"),
    (STATES, r"KV_?Cache|KVPool|kv_?cache"),
    ("mixtures of experts", r"Mo[eE](?![a-z])|^moe|[Ee]xperts?(?![a-z])"),
    ("prefill or decode steps", r"prefill|decode_step|forward_decode|generate_(?:step|token|text)|next_token|decoding"),
    (SAMPLING, r"sample_token|(?<![a-z])top_[kp](?![a-z])|^Sampler$|make_sampler|SamplingParams|sample_logits"),
    ("tokenizers", r"[Tt]okenizer"),
    ("rotary embeddings", r"[Rr]otary|_rope|RoPE"),
)
ENOUGH = 2


@dataclass(frozen=True)
class Llm:
    base: CodeBase
    reading: Reading
    named: tuple[str, ...] = ()
    """Parts of a run of a language model that a reader named: ``KV cache``."""

    @cached_property
    def signals(self) -> list[list[Inline]]:
        """What of the code says so, each with a count and a place."""
        found: list[list[Inline]] = []
        for what, pattern in _NAMES:
            named = [each for each in self.base.definitions if re.search(pattern, each.name)]
            if named:
                first = max(
                    named,
                    key=lambda d: (
                        not d.name.startswith("_"),
                        "." not in d.qualname,
                        self.base.imported_by(d),
                        -d.place.line,
                    ),
                )
                found.append(
                    sentence(f"{what}: ", *plural(len(named), "definition"), ", as ", pointer(first.place, first.name))
                )
            elif (does := self._does(what)) is not None:
                found.append(does)
        attention = [
            kernel for kernel in self.base.facts.kernels if re.search(r"attn|attention|softmax|rope", kernel.name)
        ]
        if attention:
            found.append(
                sentence(
                    "kernels for it: ",
                    *plural(len(attention), "kernel"),
                    ", as ",
                    pointer(attention[0].place, attention[0].name),
                )
            )
        return found

    def _does(self, what: str) -> list[Inline] | None:
        """What functions compute, whatever they are named."""
        title, functions = {
            ATTENTION: ("attention", self.reading.attends.keys()),
            SAMPLING: ("token draws", self.reading.samples.keys()),
            STATES: ("states that are handed on from step to step", carried_states(self.reading).keys()),
        }.get(what, ("", set()))
        if not functions:
            return None
        first = min(functions, key=lambda each: each.key)
        at = pointer(Place(first.file, first.line), first.qualname)
        return sentence(f"{title}: ", *plural(len(functions), "function"), ", as ", at)

    @cached_property
    def libraries(self) -> list[tuple[str, int]]:
        used = self.base.packages_used
        return [(name, used[name]) for name in LIBRARIES if name in used]

    @cached_property
    def related(self) -> bool:
        return bool(self.named) or len(self.signals) >= ENOUGH or (bool(self.signals) and bool(self.libraries))

    def line(self) -> Line:
        """``yes (signals: …)`` for the head of the report."""
        libraries = joined(
            [[Code(name), " imported by ", *plural(files, "file")] for name, files in self.libraries[:3]]
        )
        named: list[Inline] = [f"named by a reader: {', '.join(self.named)}"] if self.named else []
        parts = [each for each in (named, *self.signals[:4], libraries) if each]
        if not parts:
            searched = "names of attention, causal models, experts, KV caches, prefill, sampling, tokenizers; imports"
            return f"no (signals: none found (searched: {searched}))"
        return sentence("yes" if self.related else "no", " (signals: ", joined(parts, "; "), ")")
