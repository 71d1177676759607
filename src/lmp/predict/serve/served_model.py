"""A model as an engine holds it on one GPU: its kernels at any call, in the dtypes that it is served in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lmp.errors import UsageError
from lmp.formula import Number
from lmp.link.numbers import ModelNumbers
from lmp.link.quantisation import Scheme, scheme_of
from lmp.link.quantised import with_own_bytes
from lmp.link.records import EvaluatedKernel
from lmp.link.values import values_for
from lmp.predict.quantising import Narrowed, kept_wide
from lmp.predict.rewrite.timing import Step
from lmp.predict.serve.regimes import SIZES, Regimes, Sizes, regimes_of
from lmp.predict.shard.parallel import ONE, Parallel
from lmp.predict.shard.planning import Plan, planned
from lmp.predict.shard.ranked import ranked
from lmp.records import ModelAnalysis

WEIGHTS: Mapping[str, tuple[int, str]] = {"bfloat16": (2, "bfloat16"), "fp8": (1, "float8_e4m3fn")}
"""Dtype that a model is served in -> bytes of a weight, and the dtype that products read their operands in."""
CACHE: Mapping[str, int] = {"bfloat16": 2, "fp8": 1}
"""Dtype of the KV cache -> bytes of an element."""
GENERIC: Sizes = (29, 37, 1031)
"""A call of primes, at which its sizes and a config's are likely to differ."""


MOST_TOKENS = 2**17
"""New tokens of a call at which a structure is solved for."""
MOST_SCORES = 2**28
"""New tokens times tokens seen, of the same."""
LADDERS = (
    (1, 2, 3, 5, 7, 11, 13, 17, 23, 29, 43, 61, 127, 251),
    (1, 2, 3, 5, 17, 67, 131, 263, 521, 1031, 1543, 2053, 3079, 4099, 8209, 12289),
    (0, 1, 2, 5, 17, 67, 131, 263, 521, 1031, 2053, 4099, 8209, 16411, 65537, 131101),
)
"""Batch, new tokens and cached tokens of calls at which a structure is solved for: primes, so that few sizes agree."""
UNLIKELY = 11
"""Least size of a call that is hardly a size of a config too."""


@dataclass
class ServedModel:
    """An expanded model, and the dtypes of its weights and its cache."""

    model: ModelAnalysis
    dtype: str | None = None
    """`bfloat16` or `fp8`; None: as the checkpoint stores them."""
    kv_dtype: str | None = None
    """`bfloat16` or `fp8`; None: 16 bits."""
    parallel: Parallel = ONE
    """How GPUs share it: its kernels are those of one of them."""
    _whole: dict[Sizes, list[EvaluatedKernel]] = field(default_factory=dict, repr=False)
    """Kernels of the whole model at calls, for all ways to share it."""
    _plans: dict[bytes, Plan] = field(default_factory=dict, repr=False)
    """Regime -> how the model divides there."""

    def __post_init__(self) -> None:
        for name, word, known in (("dtype", self.dtype, WEIGHTS), ("kv_dtype", self.kv_dtype, CACHE)):
            if word is not None and word not in known:
                raise UsageError(f"{name} {word[:40]!r} is not served\nknown are {', '.join(known)}")
        if self.is_own:
            self.model = with_own_bytes(self.model)

    @property
    def is_own(self) -> bool:
        """Whether the weights are as a quantised checkpoint stores them."""
        quantised = self.model.quantization is not None
        return quantised and (self.dtype is None or (self.dtype == "fp8" and self._method is not None))

    @property
    def _method(self) -> str | None:
        """The checkpoint's method, if its products are of 8 bits."""
        said = self.model.quantization
        scheme = None if said is None else scheme_of(said.config)
        known = scheme is not None and any(rule.storage.products == WEIGHTS["fp8"][1] for rule in scheme.rules)
        return scheme.method if scheme is not None and known else None

    @cached_property
    def products(self) -> str:
        """The dtype of products of modules that no scheme is for."""
        return "bfloat16" if self.dtype is None or self.is_own else WEIGHTS[self.dtype][1]

    @cached_property
    def scheme(self) -> Scheme | None:
        """How modules' weights are stored, where they differ."""
        said = self.model.quantization
        if self.is_own and said is not None:
            return scheme_of(said.config) if said.applied else None
        return Narrowed("fp8", paths=kept_wide(self.whole(GENERIC))) if self.dtype == "fp8" else None

    @cached_property
    def numbers(self) -> ModelNumbers:
        return ModelNumbers(self.model)

    @cached_property
    def regimes(self) -> Regimes:
        return regimes_of(self.model, self.values(GENERIC))

    def values(self, sizes: Sizes) -> dict[str, Number]:
        """Of all variables at a call."""
        weights = {} if self.dtype is None or self.is_own else {"w_bytes": WEIGHTS[self.dtype][0]}
        widths = {"a_bytes": 2, "kv_bytes": CACHE[self.kv_dtype or "bfloat16"], **weights}
        return values_for(self.model, {**dict(zip(SIZES, sizes, strict=True)), **widths})

    @cached_property
    def samples(self) -> Mapping[bytes, list[Sizes]]:
        """Calls of each regime, in no order, but small sizes last: there tensors may have one size by chance."""
        every = [
            (b, q, c) for b, q, c in itertools.product(*LADDERS)
            if b * q <= MOST_TOKENS and b * q * (q + c) <= MOST_SCORES
        ]  # fmt: skip
        random.Random(0).shuffle(every)
        every.sort(key=lambda call: _smallest(call) < UNLIKELY)
        found: dict[bytes, list[Sizes]] = {}
        for call, key in zip(every, self.regimes.of(np.array(every)), strict=True):
            found.setdefault(key, []).append(call)
        return found

    def on(self, parallel: Parallel) -> ServedModel:
        """The same model, shared in another way. What is known of the whole model is known of both."""
        found = replace(self, parallel=parallel)
        known: dict[str, object] = {
            name: self.__dict__[name] for name in ("numbers", "regimes", "samples") if name in self.__dict__
        }
        found.__dict__.update(known)
        return found

    def whole(self, sizes: Sizes) -> list[EvaluatedKernel]:
        """The kernels of the whole model at a call, as the class runs them."""
        found = self._whole.get(sizes)
        if found is None:
            values = self.values(sizes)
            found = self._whole[sizes] = self.numbers.evaluation(values, self.numbers.tree(values)).kernels
        return found

    def kernels(self, sizes: Sizes) -> Sequence[EvaluatedKernel]:
        """The kernels of one GPU at a call. Raises UsageError, with the allowed values, where it does not divide.

        With data-parallel attention the sequences of the call are those of one GPU.
        """
        parallel = self.parallel
        if parallel == ONE:
            return self.whole(sizes)
        if not parallel.dp_attention:
            return ranked(self.whole(sizes), self.values(sizes), parallel, self._plan(sizes)).kernels
        batch, new, cached = sizes
        every = (batch * parallel.tp, new, cached)
        plan = self._plan(every)
        return ranked(self.whole(every), self.values(every), parallel, plan, self.whole(sizes)).kernels

    def _plan(self, sizes: Sizes) -> Plan:
        """How the model divides at calls of one regime, which run the same operators: found at sizes of no config."""
        (key,) = self.regimes.of(np.array([sizes]))
        if key not in self._plans:
            like = max(self.samples.get(key, [sizes]), key=_smallest)
            self._plans[key] = planned(self.whole(like), self.values(like))
        return self._plans[key]

    def step(self, sizes: Sizes) -> Step:
        return Step(self.kernels(sizes), self.values(sizes), self.products, self.scheme)


def _smallest(sizes: Sizes) -> int:
    """The smallest size of a call that may be larger."""
    batch, new, cached = sizes
    return min([size for size, least in ((batch, 1), (new, 1), (cached, 0)) if size > least], default=0)
