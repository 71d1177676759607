"""Rules on attention whose cache has latents, of which a product makes the keys and values of all heads.

In decode the product is absorbed: queries go to the latents' space, and the output comes back from it. In a prompt the
product stays, and attention reads what it made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from lmp.link.records import EvaluatedKernel
from lmp.predict.rewrite.attending import Attended, attentions, moved, outgoing, selected, written_tokens
from lmp.predict.rewrite.products import flops_of, is_linear
from lmp.predict.rewrite.rules import Launch, Match, State
from lmp.predict.rows import LATENT, NOPE, ROPE, VALUE
from lmp.records import Operand, Operands


@dataclass(frozen=True)
class Latent:
    """Attention over a cache of latents. Sizes are elements of one head; ``rank`` is that of the latent."""

    attended: Attended
    ups: tuple[int, ...]
    """Products of the cached latents with weights."""
    cats: tuple[int, ...]
    """Concatenations of the cache with new tokens: of latents, and of the keys' part that all heads share."""
    copies: tuple[int, ...]
    """What hands keys, values and queries to attention."""
    batch: int
    q_len: int
    kv_len: int
    seen: int
    """Tokens of the cache that one query sees: all, or those that a selection leaves."""
    heads: int
    rank: int
    nope: int
    """Of a key: what comes from the latent."""
    rope: int
    """Of a key: what all heads share."""
    value: int

    @property
    def saved(self) -> int:
        """Matrix FLOPs that absorption saves, of one execution; less than 0 if it does more than the class.

        Before, with ``b`` sequences, ``q`` new tokens, ``c`` tokens of the cache, ``h`` heads and rank ``r``: the
        up-projection ``2 b c r h (nope + v)``, attention ``2 b h q c (nope + rope + v)``. After: the products of each
        head, ``2 b q h (nope + v) r``, and attention in the latents' space, ``2 b h q s (r + rope + r)``, where a query
        sees ``s`` tokens.
        """
        projected = (self.kv_len - self.q_len) * self.rank * (self.nope + self.value)
        before = self.q_len * self.kv_len * (self.nope + self.rope + self.value)
        return 2 * self.batch * self.heads * (projected + before - self.q_len * self.seen * (2 * self.rank + self.rope))


SAVED = "2 * b * h * ((c - q) * r * (nope + v) + q * c * (nope + rope + v) - q * s * (2 * r + rope))"


def latents(state: State) -> Iterator[Latent]:
    """Attention whose keys and values are a product of cached latents with weights."""
    graph = state.graph
    for found in attentions(state):
        copies = moved(state, found.members)
        makers = {maker for one in copies | found.members for maker in graph.makers(one)}
        ups = {one for one in makers if state.free(one, found.anchor) and is_linear(graph, one)}
        ups = {one for one in ups if (before := graph.makers(one)) and all(map(graph.appends, before))}
        behind = {cat for up in ups for cat in graph.makers(up) if state.free(cat, found.anchor)}
        shared = {one for one in copies if graph.appends(one)}
        sizes = _sizes(state, found, ups, shared)
        if ups and behind and sizes is not None:
            cats = tuple(sorted(behind | shared))
            yield Latent(found, tuple(sorted(ups)), cats, tuple(sorted(copies - shared)), **sizes)


def _sizes(state: State, found: Attended, ups: set[int], shared: set[int]) -> dict[str, int] | None:
    """Sizes of a latent's attention; None if its products and caches do not add up to keys and values of all heads."""
    graph, attends = state.graph, found.kernel.operands
    assert attends is not None
    names = ("batch", "q_len", "kv_len", "heads", "head_dim", "v_head_dim")
    batch, q_len, kv_len, heads, key, value = (getattr(attends, name) for name in names)
    products = [operands for up in ups if (operands := graph.kernels[up].operands) is not None]
    ranks, rows = {int(one.k or 0) for one in products}, {int(one.m or 0) for one in products}
    columns = sum(int(one.n or 0) for one in products)
    if None in (batch, q_len, kv_len, heads, key, value) or len(ranks) != 1 or rows != {batch * kv_len}:
        return None
    each, rest = divmod(columns, heads)
    nope, rope = each - value, key + value - each
    widths = {int(operand.shape[-1]) for cat in shared for operand in graph.appends(cat)}
    if rest or nope <= 0 or widths != ({rope} if rope else set()):
        return None
    return {"batch": batch, "q_len": q_len, "kv_len": kv_len, "seen": kv_len, "heads": heads, "rank": ranks.pop(),
            "nope": nope, "rope": rope, "value": value}  # fmt: skip


# --- decode: absorbed ------------------------------------------------------------------------------------------------


def absorbed(state: State) -> Iterator[Match]:
    """Attention of one new token a sequence, in the space of the latents."""
    for found in latents(state):
        if found.q_len != 1:
            continue
        first = state.graph.kernels[found.ups[0]]
        selection = selected(state, found.attended)
        if selection is not None:
            found = replace(found, seen=selection[0], copies=(*found.copies, *selection[1]))
        members = _members(state, found)
        written = written_tokens(state, found.cats, "mla_absorb")
        launches = [
            *([] if written is None else [written]),
            _of_each_head(state, found, first, "pre", found.nope, found.rank),
            _attends(state, found),
            _of_each_head(state, found, first, "post", found.rank, found.value),
        ]
        yield Match(members, tuple(launches), found.saved * first.repeat)


def _members(state: State, found: Latent) -> tuple[int, ...]:
    after = outgoing(state, found.attended)
    return tuple(sorted({*found.ups, *found.cats, *found.copies, *found.attended.members, *after}))


def _of_each_head(state: State, found: Latent, like: EvaluatedKernel, which: str, k: int, n: int) -> Launch:
    """A product of each head with its own part of the absorbed weight."""
    rows, heads = found.batch * found.q_len, found.heads
    inputs = [
        Operand(name="self", shape=[heads, rows, k], width="a", role="activation", present=1),
        Operand(name="mat2", shape=[heads, k, n], width="w", role="weight", present=1),
    ]
    outputs = [Operand(name="0", shape=[heads, rows, n], width="a", role="activation", present=1)]
    operands = Operands(operator="bmm", inputs=inputs, outputs=outputs, batch=heads, m=rows, n=n, k=k, window=None,
                        causal=None)  # fmt: skip
    read, write = (sum(map(state.graph.bytes_of, side), Fraction(0)) for side in (inputs, outputs))
    flops = flops_of(operands)
    side = "queries to latents" if which == "pre" else "latents to outputs"
    update = {"operation": f"{side}, each head", "category": "matmul", "flops": flops, "read": int(read),
              "write": int(write), "operands": operands}  # fmt: skip
    measured = state.absorbed in ("bfloat16", "fp8")
    measured &= (LATENT, NOPE if which == "pre" else VALUE) == (found.rank, k if which == "pre" else n)
    row = {"op": "mla_bmm", "dtype": state.absorbed, "which": which, "tokens": rows, "heads": heads}
    place = found.ups if which == "pre" else (found.attended.anchor,)
    return Launch(like.model_copy(update=update), "mla_absorb", place, flops, row if measured else None)


def _attends(state: State, found: Latent) -> Launch:
    """Attention of all heads over one latent a token, with the keys' shared part behind it."""
    kernel = found.attended.kernel
    pairs = found.batch * found.q_len * found.heads
    flops = 2 * pairs * found.seen * (2 * found.rank + found.rope)
    values = state.graph.values
    cache, width = Fraction(values.get("kv_bytes", 2)), Fraction(values.get("a_bytes", 2))
    read = found.batch * found.seen * (found.rank + found.rope) * cache + pairs * (found.rank + found.rope) * width
    name = "attention over latents" if found.seen == found.kv_len else "attention over selected latents"
    rest = max(kernel.flops - flops_of(kernel.operands), 0) if kernel.operands is not None else 0
    update = {"operation": name, "category": "attention", "flops": flops + rest, "operands": None,
              "read": int(read), "write": int(pairs * found.rank * width)}  # fmt: skip
    measured = state.dtype != "float32" and (found.rank, found.rope) == (LATENT, ROPE)
    row = _row(state, found, "decode") if measured else None
    return Launch(kernel.model_copy(update=update), "mla_absorb", tuple(sorted(found.attended.members)), flops, row)


def _row(state: State, found: Latent, phase: str) -> Mapping[str, object]:
    kv_dtype = "fp8" if phase == "decode" and state.graph.values.get("kv_bytes") == 1 else None
    return {"op": "mla", "phase": phase, "kv_dtype": kv_dtype, "batch": found.batch, "q_len": found.q_len,
            "kv_len": found.seen, "heads": found.heads}  # fmt: skip


# --- a prompt: keys and values of all heads --------------------------------------------------------------------------


def expanded(state: State) -> Iterator[Match]:
    """Attention of several new tokens: the product of the latents stays, and keys are put together from two parts."""
    graph = state.graph
    for found in latents(state):
        members = tuple(one for one in _members(state, found) if one not in found.ups)
        operands = found.attended.kernel.operands
        assert operands is not None
        width = Fraction(graph.values.get("a_bytes", 2))
        tokens, queries = found.batch * found.kv_len * found.heads * width, found.batch * found.q_len * found.heads
        written = written_tokens(state, found.cats, "mla_prefill")
        key = found.nope + found.rope
        launches = [] if written is None else [written]
        like = graph.kernels[found.ups[0]]
        if found.rope:
            shared = found.batch * found.kv_len * found.rope * width
            update = {"operation": "keys of all heads, from two parts", "category": "copy", "flops": 0,
                      "operands": None, "read": int(tokens * found.nope + shared),
                      "write": int(tokens * key)}  # fmt: skip
            after = tuple(one for one in found.copies if one > found.ups[-1]) or found.ups
            launches.append(Launch(like.model_copy(update=update), "mla_prefill", after, 0))
        update = {"read": int(tokens * (key + found.value) + queries * key * width),
                  "write": int(queries * found.value * width)}  # fmt: skip
        measured = (found.rank, found.rope, found.nope, found.value) == (LATENT, ROPE, NOPE, VALUE)
        row = _row(state, found, "prefill") if measured and state.dtype != "float32" else None
        kernel = found.attended.kernel.model_copy(update=update)
        launches.append(Launch(kernel, "mla_prefill", (found.attended.anchor,), flops_of(operands), row))
        yield Match(members, tuple(launches))
