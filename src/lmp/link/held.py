"""What a model holds in memory: its weights and its KV cache, from its formulas, without running it."""

from __future__ import annotations

from lmp.formula import Number, evaluate_exact, free_variables, parse, plain
from lmp.link.numbers import ModelNumbers
from lmp.link.values import Point
from lmp.records import ModelAnalysis

ALL_EXPERTS = 10**12
"""Sequences in a call that reads every weight, those of all routed experts too."""


def cache_bytes(numbers: ModelNumbers, values: Point) -> Number | None:
    """Bytes that the cache holds after the call, states of a recurrence included; None if the formulas do not tell.

    The next call reads the whole cache once. So these are the compulsory bytes that it reads more than a call without a
    cache, weights aside.
    """
    compulsory = numbers.model.compulsory
    if compulsory is None or "cache_len" not in values or "seq_len" not in values:
        return None
    read = parse(compulsory.read)
    if "cache_len" not in free_variables(read):
        return None
    after = {**values, "w_bytes": 0, "cache_len": values["cache_len"] + values["seq_len"]}
    held = plain(evaluate_exact(read, after) - evaluate_exact(read, {**after, "cache_len": 0}))
    return held if held > 0 else None


def weight_bytes(numbers: ModelNumbers, values: Point, at_w_bytes: ModelAnalysis | None) -> Number | None:
    """Bytes of all parameters; None if the formulas do not tell.

    ``at_w_bytes`` is the same model with all weights at w_bytes, if the formulas have those of a quantised checkpoint.
    The two differ by the checkpoint's bytes, once a call reads every weight.
    """
    count = numbers.quantities.get("parameters_count")
    if count is None:
        return None
    held = evaluate_exact(count, values) * values["w_bytes"]
    if numbers.model.quantization is None or numbers.model.quantization.applied is None:
        return plain(held)
    own = numbers.model.compulsory
    if at_w_bytes is None or at_w_bytes.compulsory is None or own is None:
        return None
    every = {**values, "batch_size": ALL_EXPERTS}
    return plain(held + evaluate_exact(own.read, every) - evaluate_exact(at_w_bytes.compulsory.read, every))
