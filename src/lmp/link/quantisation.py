"""What a checkpoint's `quantization_config` says: how the weights of each kind of module are stored, scales included.

A module is converted by its kind and its path, as the loaders of transformers convert it: linear layers, and modules
named ``experts`` that hold the weights of all experts. Embeddings, norms and routers are not. What cannot be told is a
problem in words; then no module is converted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lmp.formula import Expr, Number, ceil, num

LINEAR = frozenset({"torch.nn.modules.linear.Linear", "transformers.pytorch_utils.Conv1D"})
"""Classes whose weight is one matrix, and whose bias stays as it is."""

KEYS = ("quantization_config", "compression_config")
FLOAT8 = "float8_e4m3fn"
_PARTS = ("text_config", "llm_config", "language_config")
"""Nested configs that may hold the `quantization_config` of a model with several parts."""


@dataclass(frozen=True)
class Scales:
    """``size`` bytes for each block of ``rows`` times ``columns`` weights; None is all of them in that direction.

    ``flat``: for each ``columns`` weights of the matrix as one sequence.
    """

    size: Number
    rows: int | None = 1
    columns: int | None = None
    flat: bool = False


@dataclass(frozen=True)
class Storage:
    """How the weights of one matrix are stored."""

    bits: int
    scales: tuple[Scales, ...] = ()
    a_column: int = 0
    """Bytes for each input of the matrix: an index of its group."""
    products: str = "bfloat16"
    """The dtype in which products read the weights: ``bfloat16`` if they are converted to 16 bits before."""

    def size(self, rows: int, columns: int) -> Number:
        """Bytes of a matrix with so many outputs and inputs."""
        found = Fraction(rows * columns * self.bits, 8) + self.a_column * columns
        for scales in self.scales:
            if scales.flat:
                found += scales.size * math.ceil(Fraction(rows * columns, scales.columns or 1))
            else:
                found += scales.size * _count(rows, scales.rows) * _count(columns, scales.columns)
        return found.numerator if found.denominator == 1 else found

    def formula(self, rows: Expr, columns: Expr) -> Expr:
        """The same as a formula."""
        found = rows * columns * Fraction(self.bits, 8) + columns * self.a_column
        for scales in self.scales:
            if scales.flat:
                found = found + ceil(rows * columns / (scales.columns or 1)) * scales.size
            else:
                found = found + _blocks(rows, scales.rows) * _blocks(columns, scales.columns) * scales.size
        return found


def _count(length: int, of: int | None) -> int:
    return 1 if of is None else -(-length // of)


def _blocks(length: Expr, of: int | None) -> Expr:
    return num(1) if of is None else length if of == 1 else ceil(length / of)


@dataclass(frozen=True)
class Rule:
    """How the modules of one kind are stored. ``linear`` and ``experts`` say which kinds it is for."""

    storage: Storage
    linear: bool = True
    experts: bool = True
    targets: Callable[[str, str], bool] | None = None
    """Whether the rule is for a module at a path, of a class; None: for all of its kinds."""


@dataclass(frozen=True)
class Scheme:
    """What a `quantization_config` says. With a problem, no module is converted."""

    method: str
    rules: tuple[Rule, ...] = ()
    skipped: Callable[[str, str], bool] = lambda path, class_name: False
    head: bool = False
    """True if linear layers that the model calls itself, as its output, are converted too."""
    problem: str | None = None

    def storage(self, path: str, class_name: str) -> Storage | None:
        """How the weights of a module are stored; None if it is not converted."""
        linear, experts = class_name in LINEAR, is_experts(path)
        if not (linear or experts) or self.skipped(path, class_name) or ("." not in path and not self.head):
            return None
        for rule in self.rules:
            fits = (linear and rule.linear) or (experts and rule.experts)
            if fits and (rule.targets is None or rule.targets(path, class_name)):
                return rule.storage
        return None


def is_experts(path: str) -> bool:
    """Whether a module holds the weights of all experts, by the name that transformers gives such modules."""
    return path.rpartition(".")[2] == "experts"


class _Unusable(Exception):
    """What is wrong in a `quantization_config`, in words."""


def config_of(content: Mapping[str, Any] | None) -> Any:
    """The `quantization_config` of a config.json's content; None if it has none."""
    if content is None:
        return None
    places = [content, *(part for name in _PARTS if isinstance(part := content.get(name), Mapping))]
    return next((place[key] for place in places for key in KEYS if place.get(key) is not None), None)


def scheme_of(config: Any) -> Scheme | None:
    """The scheme of a `quantization_config`, which may hold anything; None for a checkpoint that is not quantised."""
    if config is None:
        return None
    if not isinstance(config, Mapping):
        return Scheme("unknown", problem="the config's quantization_config is no JSON object")
    method = _method(config)
    if method not in _METHODS:
        known = ", ".join(sorted(_METHODS))
        return Scheme(method, problem=f"the quantization method {method!r:.60} is not known (known are {known})")
    try:
        return _METHODS[method](config)
    except _Unusable as found:
        return Scheme(method, problem=f"the config's quantization_config ({method}) cannot be used: {found}")


def _method(config: Mapping[str, Any]) -> str:
    named = config.get("quant_method")
    if named is None and (config.get("load_in_4bit") or config.get("load_in_8bit")):
        return "bitsandbytes"
    return str(named).lower().replace("_", "-")


# --- methods ---------------------------------------------------------------------------------------------------------


def _fp8(config: Mapping[str, Any]) -> Scheme:
    """Blocks with a scale each, or one scale a tensor: `FP8Linear` and `FP8Experts` of transformers."""
    if config.get("modules_to_convert"):
        raise _Unusable("modules that are converted by name (modules_to_convert) are not known")
    bits = config.get("bits", 8)
    if bits != 8:
        raise _Unusable(f"fp8 with bits {bits!r:.20}")
    fp8_scale = _choice(config, "scale_fmt", {"float": 4, "ue8m0": 1})
    block = config.get("weight_block_size", (128, 128))
    scales = Scales(4, None, None) if block is None else Scales(fp8_scale, *_pair(block, "weight_block_size"))
    static = (Scales(4, None, None),) if config.get("activation_scheme") == "static" else ()
    weights = Storage(8, (scales, *static), products=FLOAT8)
    experts = weights
    if _choice(config, "expert_dtype", {"fp8": 8, "fp4": 4}) == 4:
        experts = Storage(4, (Scales(fp8_scale, 1, 32),))
    rules = (Rule(weights, experts=False), Rule(experts, linear=False))
    return _named(config, "fp8", rules, config.get("modules_to_not_convert", config.get("ignored_layers")))


def _fbgemm(config: Mapping[str, Any]) -> Scheme:
    """A float32 scale for each row: `FbgemmFp8Linear`."""
    return _named(
        config, "fbgemm-fp8", (Rule(Storage(8, (Scales(4),), products=FLOAT8)),), config.get("modules_to_not_convert")
    )


def _mxfp4(config: Mapping[str, Any]) -> Scheme:
    """Experts alone: blocks of 32 weights of 4 bits with a scale of 8 bits."""
    rule = Rule(Storage(4, (Scales(1, 1, 32),)), linear=False)
    return _named(config, "mxfp4", (rule,), config.get("modules_to_not_convert"))


def _bitsandbytes(config: Mapping[str, Any]) -> Scheme:
    """8 bits with a float32 for each row; 4 bits with a scale for each 64 weights, float32 or quantised again.

    Quantised again: one byte for each 64 weights, a float32 for each 256 such bytes, and a float32 a matrix. Modules of
    all experts stay as they are: transformers replaces linear layers alone.
    """
    four, eight = bool(config.get("load_in_4bit")), bool(config.get("load_in_8bit"))
    if four == eight:
        raise _Unusable(f"load_in_4bit and load_in_8bit are both {str(four).lower()}")
    if eight:
        storage = Storage(8, (Scales(4),), products="int8")
    else:
        _choice(config, "bnb_4bit_quant_type", {"fp4": 4, "nf4": 4})
        storage = Storage(
            4, _DOUBLE if config.get("bnb_4bit_use_double_quant") else (Scales(4, columns=64, flat=True),)
        )
    return _named(config, "bitsandbytes", (Rule(storage, experts=False),), config.get("llm_int8_skip_modules"))


_DOUBLE = (Scales(1, columns=64, flat=True), Scales(4, columns=64 * 256, flat=True), Scales(4, None, None))
"""Scales of 64 weights that are quantised themselves, in blocks of 256, with their mean."""


def _gptq(config: Mapping[str, Any]) -> Scheme:
    """A float16 scale and a zero point for each group of a row, and the group of each input as int32."""
    if config.get("dynamic"):
        raise _Unusable("settings of single modules (dynamic) are not known")
    bits = _bits(config)
    scales = (Scales(2, 1, _group(config)), Scales(Fraction(bits, 8), 1, _group(config)))
    rule = Rule(Storage(bits, scales, a_column=4))
    skips = config.get("modules_to_not_convert")
    return _named(config, "gptq", (rule,), skips, head=bool(config.get("lm_head")), defaults=True)


def _awq(config: Mapping[str, Any]) -> Scheme:
    """A float16 scale for each group of a row, and a zero point unless there is none."""
    bits, group = _bits(config), _group(config)
    zero = (Scales(Fraction(bits, 8), 1, group),) if config.get("zero_point", True) else ()
    rule = Rule(Storage(bits, (Scales(2, 1, group), *zero)))
    return _named(config, "awq", (rule,), config.get("modules_to_not_convert"), defaults=True)


def _compressed(config: Mapping[str, Any]) -> Scheme:
    """Groups of modules with a number of bits and scales each, and a list of what is ignored."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _Unusable("there are no config_groups")
    rules = []
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        targets = group.get("targets") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise _Unusable(f"{name!r:.40} has no weights")
        inputs = group.get("input_activations")
        storage = _compressed_storage(weights, inputs if isinstance(inputs, Mapping) else None)
        rules.append(Rule(storage, targets=_compressed_names(targets, "targets")))
    ignored = _compressed_names(config.get("ignore") or [], "ignore")
    return Scheme("compressed-tensors", tuple(rules), ignored, head=True)


def _compressed_storage(weights: Mapping[str, Any], inputs: Mapping[str, Any] | None) -> Storage:
    bits = weights.get("num_bits", 8)
    kind = _choice(weights, "type", {"int": 0, "float": 1})
    if bits not in (4, 8) or not isinstance(bits, int):
        raise _Unusable(f"weights have {bits!r:.20} bits")
    # A scale is in the model's 16 bits; those of 4-bit floats are 8 bits.
    size = 1 if kind and bits == 4 else 2
    strategy = weights.get("strategy") or ("group" if weights.get("group_size") else "tensor")
    if strategy in ("group", "tensor_group"):
        places: tuple[int | None, int | None] = (1, _whole(weights.get("group_size"), "group_size"))
    elif strategy == "channel":
        places = (1, None)
    elif strategy == "tensor":
        places = (None, None)
    elif strategy == "block":
        places = _pair(weights.get("block_structure"), "block_structure")
    else:
        raise _Unusable(f"the strategy {strategy!r:.40} is not known")
    scales = [Scales(size, *places)]
    if weights.get("symmetric") is False:
        scales.append(Scales(Fraction(bits, 8), *places))
    if strategy == "tensor_group":
        scales.append(Scales(4, None, None))
    # Without quantised inputs, weights are converted to those of 16 bits.
    products = "bfloat16" if inputs is None or inputs.get("num_bits", 8) != 8 else FLOAT8 if kind else "int8"
    return Storage(bits, tuple(scales), products=products)


_METHODS: dict[str, Callable[[Mapping[str, Any]], Scheme]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
}


# --- fields ----------------------------------------------------------------------------------------------------------


def _choice(config: Mapping[str, Any], name: str, values: Mapping[str, int]) -> int:
    """The value for a word; for a missing one that of the first."""
    word = config.get(name)
    word = next(iter(values)) if word is None else word
    if not isinstance(word, str) or word not in values:
        raise _Unusable(f"{name} is {word!r:.40}, not {' or '.join(values)}")
    return values[word]


def _bits(config: Mapping[str, Any]) -> int:
    bits = config.get("bits", config.get("w_bit"))
    if bits not in (2, 3, 4, 8) or not isinstance(bits, int):
        raise _Unusable(f"bits is {bits!r:.20}, not 2, 3, 4 or 8")
    return bits


def _group(config: Mapping[str, Any]) -> int | None:
    """The size of a group; None for -1, which is a whole row."""
    group = config.get("group_size", config.get("q_group_size", 128))
    return None if group == -1 else _whole(group, "group_size")


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _Unusable(f"{name} is {value!r:.40}, not a whole number above 0")
    return value


def _pair(value: Any, name: str) -> tuple[int, int]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise _Unusable(f"{name} is {value!r:.40}, not two whole numbers")
    return _whole(value[0], name), _whole(value[1], name)


# --- names -----------------------------------------------------------------------------------------------------------


_LONGEST_PATTERN = 200
_MOST_REPEATS = 3
"""A pattern of an untrusted file may repeat so often: what it takes to try grows with this power of a path's length."""


def _named(
    config: Mapping[str, Any],
    method: str,
    rules: tuple[Rule, ...],
    skips: Any,
    head: bool = False,
    defaults: bool = False,
) -> Scheme:
    """A scheme with the names of modules that stay as they are, in the form of transformers.

    The model's output stays too if no names are given, or with ``defaults``.
    """
    if config.get("dequantize"):
        return Scheme(method)
    if skips is None:
        return Scheme(method, rules, head=head)
    patterns = [_compiled(name) for name in _texts(skips, "modules_to_not_convert")]

    def skipped(path: str, class_name: str) -> bool:
        # From the start up to the end of a name in the path, or as the path's end: `should_convert_module`.
        return any(pattern.match(path) or path.endswith(text) for text, pattern in patterns)

    return Scheme(method, rules, skipped, head=head or not defaults)


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str) and v for v in value):
        raise _Unusable(f"{name} is {value!r:.40}, not a list of names")
    return list(value)


def _compiled(text: str) -> tuple[str, re.Pattern[str]]:
    return text, _pattern(rf"(?:{text})(?:(?<=\.)|(?=\.|$))", text)


def _pattern(pattern: str, text: str) -> re.Pattern[str]:
    """A regular expression of an untrusted file. Raises _Unusable for one that could take long to try."""
    repeats = len(re.findall(r"[*+{]", text))
    if len(text) > _LONGEST_PATTERN or repeats > _MOST_REPEATS or re.search(r"\)[*+?{]|\\[1-9]", text):
        raise _Unusable(f"the pattern {text!r:.60} is longer or repeats more than lmp tries")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise _Unusable(f"the pattern {text!r:.60} cannot be read: {error}") from None


def _compressed_names(value: Any, name: str) -> Callable[[str, str], bool]:
    """Names of compressed-tensors: a path, a class, or ``re:`` and a pattern from a path's start."""
    texts = _texts(value, name)
    patterns = [_pattern(text[3:], text) for text in texts if text.startswith("re:")]
    names = {text for text in texts if not text.startswith("re:")}

    def named(path: str, class_name: str) -> bool:
        # The linear layers of experts are one module in transformers.
        kind = "Linear" if is_experts(path) else class_name.rpartition(".")[2]
        return path in names or kind in names or any(pattern.match(path) for pattern in patterns)

    return named
