"""Which class or function plays which part in an LLM code base: by its name, its methods, and how many import it.

A name alone is not enough: ``LLM$`` would meet every ``…ForCausalLM``, ``cache`` a ``CachedAutotuner``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lmp.codebase.facts import Definition
from lmp.report.repository.code_base import CodeBase


@dataclass(frozen=True)
class Kind:
    """A part that a component may play."""

    title: str
    strong: str
    """A name that says it."""
    methods: str = ""
    """Names of methods that go with it."""
    weak: str = ""
    """A name that says it where at least two such methods are there."""
    never: str = ""
    """Names and paths that mean something else."""
    path: str = ""
    """Folders or files where it is likely."""
    functions: bool = True
    """Whether a function may play it."""
    telling: str = ""
    """Methods that nothing else has."""
    family: bool = False
    """Whether functions that play it come in families of a common beginning."""


DIFFUSION = r"diffus|denois|euler|ddim|unipc|dpm|flow_match|flowmatch|noise|vae|lr_?sched|lrsched|multimodal_gen"
KINDS = (
    Kind(
        "engine",
        r"^(Async)?(LLM|LLMEngine|Engine|InferenceEngine|AsyncEngine|EngineCore)$|^(stream_)?generate$|^generate_step$",
        r"generate|step|add_request|chat|encode|abort_request|stream_generate",
    ),
    Kind(
        "scheduler",
        r"^Scheduler$|^(Core|LLM|Async|Batch|Request)Scheduler$|^BatchGenerator$|^ContinuousBatch\w*$",
        r"schedule|step|add|add_request|add_seq|get_next_batch\w*|get_new_batch\w*|run_batch|insert|next|preempt"
        r"|abort\w*|event_loop\w*|has_unfinished\w*|is_finished|process_batch_result|remove|filter|update_running_batch",
        weak=r"Schedul|Batcher",
        never=DIFFUSION + r"|Config$|Metrics|Stats|Policy$|Output|Step|Mixin$|Event",
        functions=False,
    ),
    Kind(
        "prefix cache",
        r"RadixCache$|^(?:\w*)Prefix(?:Cache|Tree)$|^\w*PromptCache$",
        r"match_prefix|insert\w*|evict|cache_finished_req|cache_unfinished_req|fetch\w*|lookup|trim\w*|inc_lock_ref|dec_lock_ref",
        never=r"Autotun|Compil|Config|Metrics|Stats|Event|Mixin$|Params$|Result$|Handle|Storage|Base[A-Z]|Abstract",
        functions=False,
    ),
    Kind(
        "KV cache",
        r"KV_?Cache|KVPool|TokenToKV|Paged\w*Cache|PagedKV|RadixCache|PrefixCache|BlockPool",
        r"alloc|allocate|append|append_n|free|evict|update|update_and_fetch|trim|match_prefix|cache_finished_req"
        r"|cache_unfinished_req|fetch|get_kv\w*|set_kv\w*|get_key_buffer|get_value_buffer|store_kv\w*|insert|lookup|nbytes"
        r"|get_seq_length|reset|extend|merge|crop",
        weak=r"Cache$|CacheManager|CacheEngine",
        never=r"Autotun|Compil|Graph|Config|Tokenizer|LRU|Disk|Http|Image|Template|Metrics|Stats|Event|Mixin$|Quantizer"
        r"|Error$|Params$|Result$|Handle",
        functions=False,
    ),
    Kind(
        "block or page allocator",
        r"Block(Space)?Manager|Block\w*Allocator|Page\w*Allocator|TokenToKVPoolAllocator|SlotAllocator|ReqToTokenPool"
        r"|BlockTable",
        r"alloc\w*|free\w*|available_size|append\w*|can_allocate|can_append|clear|evict|write|ref_count",
        weak=r"Allocator$|Pool$",
        never=r"Thread|Process|Connection|Buffer|Config|Host|Cuda|Workspace|Symm|AvgPool|MaxPool|Pooler",
        functions=False,
    ),
    Kind(
        "sampling",
        r"^Sampler$|^make_sampler$|^sample$|^sample_(token|logits|from|softmax|mult|argmax|top)\w*|^apply_top_[kp]\w*|^categorical_sampling$"
        r"|^top_[kp]_\w*sampl\w*",
        r"forward|sample|__call__|compute_logprobs|set_stop|apply\w*",
        weak=r"Sampler",
        never=DIFFUSION + r"|Data|Distributed|Random\w*Sampler|Upsampl|Downsampl|resampl|Config|Batch|/eval|Observer",
    ),
    Kind(
        "sampling parameters",
        r"^SamplingParams$|^SamplingConfig$|^GenerationConfig$|^SamplingArguments$|^make_logits_processors$",
        r"normalize|verify|__post_init__|from_\w+",
        never=DIFFUSION,
    ),
    Kind(
        "attention backend",
        r"Attention(Metadata)?Backend$|AttnBackend$|^AttentionImpl$",
        r"forward|forward_decode|forward_extend|forward_prefill|init_forward_metadata|get_\w*metadata\w*|run|__call__",
        weak=r"Attention$|Attn$",
        never=DIFFUSION + r"|Config$|Test|Vision|Enum|Registry",
    ),
    Kind(
        "attention",
        r"^(Radix|Paged|MultiHead|Self|Causal\w*|Flash\w*)?Attention$|^(parallel|flash|paged|chunk)_?attn\w*$"
        r"|^scaled_dot_product_attention$|^attention_forward$|^flash_attn(_func|_varlen\w*)?$",
        r"forward|__call__",
        weak=r"Attention$",
        never=DIFFUSION + r"|Vision|Config|/models?/",
    ),
    Kind(
        "model runner",
        r"^(GPU|Cuda|Base)?ModelRunner$|^Tp(Model)?Worker$|^ModelExecutor$|^ModelWorker$",
        r"forward\w*|run|execute_model|load_model|capture\w*|prepare_\w+|init_\w+|sample|warmup\w*|allocate_kv_cache",
        weak=r"ModelRunner|Executor$|Worker$",
        never=DIFFUSION + r"|Thread|Config|Output|Data|Metrics",
        functions=False,
    ),
    Kind(
        "CUDA graph runner",
        r"CudaGraph\w*Runner$|GraphRunner$",
        r"capture\w*|replay\w*|can_run\w*|run",
        never=DIFFUSION + r"|Draft|Config|Stats|Mixin$|Vit|Base",
        functions=False,
    ),
    Kind(
        "config parser",
        r"^ServerArgs$|^EngineArgs$|^(Model|Vllm|Engine|GPT|Llama|LLM)Config$|^load_config$|^get_config$|^parse_args$"
        r"|^setup_arg_parser$|^Settings$|^build_parser$|^error_usage$",
        r"from_cli_args|add_cli_args|from_pretrained|from_dict|from_\w+|check_\w*|__post_init__|get_\w+|load",
        weak=r"(Config|Args|Arguments|Settings)$",
        never=DIFFUSION + r"|Quant|Lora|/models?/|Kernel|Sampling|Generation",
        path=r"arg|config|setting",
        telling=r"from_cli_args|add_cli_args|from_args",
    ),
    Kind(
        "model loader",
        r"^(Default|Base|Auto)?ModelLoader$|^load_model$|^load_weights$|^WeightLoader$|^load_pretrained$|^\w*_build_from"
        r"_checkpoint$",
        r"load_model|load_weights|download\w*|_get_all_weights",
        weak=r"Loader$",
        never=DIFFUSION + r"|Data|Image|Lora|Batch|Processor|Config|Test",
        path=r"load|util|checkpoint",
    ),
    Kind(
        "model registry",
        r"ModelRegistry|^get_model_classes$|^_get_classes$|^import_model_classes$",
        r"register\w*|resolve\w*|get_\w+",
        never=DIFFUSION,
    ),
    Kind(
        "tokenizer",
        r"^TokenizerManager$|^TokenizerWrapper$|^(BPE|Base|Simple)?Tokenizer$|^get_tokenizer$|^load_tokenizer$|^tokenizer_init$",
        r"encode|decode|apply_chat_template|generate_request|tokenize",
        weak=r"Tokenizer",
        never=DIFFUSION + r"|Mock|Config|/multimodal|Input$|Output$|Mixin$",
    ),
    Kind(
        "detokenizer",
        r"Detokenizer(Manager)?$|^detokenize\w*$|^tokenizer_decode$",
        r"add_token|finalize|reset|last_segment|event_loop|handle_\w+|detokenize\w*",
        never=r"Config|Mixin$",
    ),
    Kind(
        "server",
        r"^(API|HTTP|Http)\w*(Server|Handler)$|^launch_server$|^run_server$|^create_app$|^build_app$|^\w*ServingChat$",
        r"do_POST|do_GET|handle_\w+|generate_\w*|completions?|chat_completions?",
        weak=r"(Server|Handler)$",
        never=DIFFUSION + r"|Args|Config|Error|Log|Signal|Test|Mock|Bootstrap|Metadata",
        path=r"server|api|entrypoint|http",
    ),
    Kind(
        "quantization",
        r"^QuantizationConfig$|^QuantizeMethodBase$|^LinearMethodBase$|^quantize_model$|^QuantizedLinear$|^get_quantization_config$",
        r"get_quant_method|from_config|create_weights|apply|process_weights_after_loading|to_quantized|dequantize",
        weak=r"^Quant|Quantize|^quantize$",
        never=DIFFUSION + r"|Test|Cache|Stats",
        path=r"quant",
    ),
    Kind(
        "speculative decoding",
        r"^(EAGLE|Eagle|NGRAM|Ngram|Spec|MTP|Medusa)\w*Worker$|^speculative_generate\w*$|^SpeculativeDecoder$|^DraftModel\w*$",
        r"draft\w*|verify\w*|forward\w*|propose\w*",
        never=DIFFUSION + r"|Graph|Config|Adapter",
    ),
    Kind(
        "mixture of experts",
        r"^FusedMoE$|^MoE$|^SparseMoeBlock$|^fused_moe$|^fused_experts$|^MoEGate$|^SwitchGLU$",
        r"forward|__call__|weight_loader|select_experts|load_\w+",
        never=DIFFUSION + r"|Config|Test",
    ),
    Kind(
        "parallel layers",
        r"^ColumnParallelLinear$|^RowParallelLinear$|^GroupCoordinator$|^initialize_model_parallel$|^init_distributed\w*$"
        r"|^shard_linear$",
        r"all_reduce|all_gather|reduce_scatter|forward|weight_loader|barrier|broadcast\w*",
        never=DIFFUSION,
    ),
    Kind(
        "adapters (LoRA)",
        r"^LoRAManager$|^LoRALinear$|^LoRAAdapter$|^linear_to_lora_layers$|^apply_lora$",
        r"load_\w+|from_base|fuse|to_linear|prepare_\w+|forward|__call__",
        never=DIFFUSION + r"|Config|Args|Test",
    ),
    Kind(
        "trainer",
        r"^Trainer$|^train$|^train_model$|^training_loop$|^main_train$",
        r"train|step|evaluate|save\w*",
        never=DIFFUSION + r"|/models?/|Config",
    ),
    Kind(
        "model patching",
        r"^apply_\w*_kernel_to_\w+$|^_?apply_\w*_kernel\w*$|^_patch_\w+$|^monkey_?patch\w*$|^patch_model$",
        never=DIFFUSION + r"|Test",
        path=r"monkey|patch",
        family=True,
    ),
    Kind(
        "backend dispatch",
        r"^BackendRegistry$|^BaseBackend$|^\w*BackendRegistry$|^dispatch(_backend)?$|^register_backend$|^get_backend$"
        r"|^resolve_backend$",
        r"register\w*|dispatch\w*|is_available|is_enabled|verify\w*|verifier|select\w*|get",
        weak=r"Backend$|Registry$|Dispatcher$",
        never=DIFFUSION + r"|/lang/|/frontend/|Attn|Attention|Model|Grammar|Sampl|Storage|Tokenizer|Function"
        r"|[Tt]oken_?[Dd]ispatch|moe|MoE",
        path=r"backend|dispatch|registry",
    ),
    Kind(
        "autotuning",
        r"^(?!_*(?:should|select|is_|check|skip|can_|has_))\w*[Aa]utotun(e|er)(_cache|_configs?)?$|^autotune_\w+$",
        r"run|__call__|bench\w*|prune\w*|check_disk_cache|get_best_config",
        never=r"Test",
    ),
    Kind("loss", r"CrossEntropy\w*(Loss|Function)$|^\w*(cross_entropy|linear_ce)\w*$|^\w+Loss$", r"forward|backward"),
    Kind(
        "normalization",
        r"(RMS|Layer|Group)Norm\w*$|^(fused_)?(add_)?(rms|layer)_?norm\w*$",
        r"forward|backward|__call__",
    ),
    Kind(
        "rotary embedding",
        r"Rotary\w*|^(apply_)?(liger_)?rotary\w*|^\w*rope(_forward|_embed\w*)?$|RoPE$",
        r"forward|__call__",
        never=r"Vision",
    ),
    Kind(
        "gated activation",
        r"^(Gated)?(SiluAndMul|GeluAndMul|MLP|SwiGLU\w*|GeGLU\w*|GatedMLP)$|^swiglu\w*$",
        r"forward|__call__",
    ),
    Kind("convolution", r"^(Short|Causal)Conv\w*$|^causal_conv1d\w*$", r"forward|step|__call__"),
    Kind("forward pass", r"^(gpt2|llama|model|transformer|net)_forward$|^llama_decode$|^llm_build\w*$"),
)

_PARTS = re.compile(r"Config$|Args$|Error$|Input$|Output$|Metrics$|Stats$|Type$|Enum$|Mode$|Event$|Params$|Req$|Mixin$")
ASIDE = re.compile(
    r"(?:^|[/_.])(?:tests?|testing|bench\w*|mock\w*|dummy|fake|debug\w*|examples?|profil\w*|eval\w*|simulat\w*|scripts?"
    r"|third_?party|legacy|deprecated|disagg\w*|hardware_backend|npu|xpu|ascend|musa|kv_canary|multimodal_gen|\w*diffusion\w*)(?:[/_.]|$)",
    re.IGNORECASE,
)
SHARED = frozenset(
    [
        "autotuning",
        "loss",
        "normalization",
        "rotary embedding",
        "gated activation",
        "convolution",
        "mixture of experts",
        "attention",
    ]
)
"""Parts of names that many helpers have: only what another file takes plays one."""
LEAST = 5.0
"""Below this score nothing is said to play a part."""
FAMILY = 25
"""Names of one beginning that count."""
NEAR = 0.7
"""Share of the best score from which something else is named beside it."""


@dataclass(frozen=True)
class Component:
    title: str
    definition: Definition
    score: float
    importers: int
    also: tuple[Definition, ...] = ()
    """What else would play the part, best first."""


class Roles:
    def __init__(self, base: CodeBase) -> None:
        self._base = base

    @cached_property
    def components(self) -> dict[str, Component]:
        """Title -> what plays the part best."""
        found: dict[str, Component] = {}
        taken: set[tuple[str, str]] = set()
        for kind in KINDS:
            ranked = self.ranked(kind)
            ranked = [each for each in ranked if (each[1].place.file, each[1].qualname) not in taken]
            if not ranked:
                continue
            score, best = ranked[0]
            also = tuple(each for near, each in ranked[1:6] if near >= NEAR * score)
            found[kind.title] = Component(kind.title, best, score, self._base.imported_by(best), also)
            taken.add((best.place.file, best.qualname))
        return found

    def ranked(self, kind: Kind) -> list[tuple[float, Definition]]:
        """What may play a part, best first, without what is below the least score."""
        scored = [(self._score(kind, each), each) for each in self._candidates(kind)]
        kept = [(score, each) for score, each in scored if score >= LEAST]
        return sorted(kept, key=lambda item: (-item[0], item[1].place.file, item[1].place.line))

    def _candidates(self, kind: Kind) -> Iterator[Definition]:
        named = re.compile(f"{kind.strong}|{kind.weak}" if kind.weak else kind.strong)
        for each in self._top:
            if kind.title in SHARED and not self._base.imported_by(each):
                continue
            if (kind.functions or each.kind == "class") and named.search(each.name):
                yield each

    def _family(self, name: str) -> int:
        """How many names begin with this one."""
        beginning = name.lstrip("_") + "_"
        return sum(other.startswith(beginning) for other in self._base.by_name)

    @cached_property
    def _top(self) -> list[Definition]:
        return [each for each in self._base.definitions if "." not in each.qualname]

    def _score(self, kind: Kind, each: Definition) -> float:
        if kind.never and re.search(kind.never, f"/{each.place.file} {each.name}"):
            return 0
        strong = re.search(kind.strong, each.name) is not None
        fitting = 0
        if kind.methods and each.methods:
            wanted = re.compile(kind.methods)
            fitting = sum(wanted.fullmatch(name) is not None for name in each.methods)
        if not strong and fitting < 2:
            return 0
        score = 4.5 if strong else 2.0
        score += 4 if kind.telling and any(re.fullmatch(kind.telling, name) for name in each.methods) else 0
        score += min(fitting, 8) * 0.5
        score += math.log2(1 + self._base.imported_by(each)) * 0.7
        score += math.log2(1 + len(self._base.subclasses.get(each.name, ()))) * 0.9
        score += min(math.log2(1 + each.end - each.place.line) / 5, 2)
        score += 0.3 if each.doc else 0
        # What takes a name in C is not told by its includes.
        score += 0.5 if not each.place.file.endswith(".py") else 0
        score += 1 if kind.path and re.search(kind.path, each.place.file.lower()) else 0
        # Of a family `apply_to_a`, `apply_to_b`, … the one that chooses among them, by the name that they begin with.
        score += min(self._family(each.name), FAMILY) / 5 if kind.family else 0
        score -= 4 if ASIDE.search(each.place.file) or ASIDE.search(each.name) else 0
        score -= 2 if not strong and _PARTS.search(each.name) and kind.title != "config parser" else 0
        return score - (1 if each.name.startswith("_") else 0)

    @cached_property
    def most_imported(self) -> list[Component]:
        """Functions and classes by how many files take them."""
        counted = [(self._base.imported_by(each), each) for each in self._top]
        ranked = sorted(
            ((n, each) for n, each in counted if n > 1 and (each.kind == "class" or each.end - each.place.line > 4)),
            key=lambda x: (-x[0], x[1].place.file, x[1].place.line),
        )
        return [Component("shared by most", each, float(n), n) for n, each in ranked[:40]]
