"""Costs of single operators. The arithmetic of each expected number is in a comment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lmp.errors import UncountedOperator
from lmp.verify.counter import Counter
from lmp.verify.operators import Traffic

BF16 = torch.bfloat16


class Holder(torch.nn.Module):
    """A module whose forward is a given function. It has two weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.zeros(3, 4, dtype=BF16, device="meta"), requires_grad=False)
        self.register_buffer("table", torch.zeros(10, 4, dtype=BF16, device="meta"))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def new(*shape: int, dtype: torch.dtype = BF16, device: str = "meta") -> torch.Tensor:
    # The meta device writes nothing, so a tensor made under the counter costs nothing.
    make = torch.empty if device == "meta" else torch.zeros
    return make(shape, dtype=dtype, device=device)


def counted(function: Callable[..., Any], *args: Any) -> Counter:
    """The counter after one call of ``function(holder, *args)``."""
    module = Holder(function).eval()
    counter = Counter(module, BF16)
    with torch.no_grad(), counter:
        module(*args)
    return counter


def check(
    counter: Counter,
    *,
    flops: int = 0,
    matmul: int = 0,
    read: Traffic | None = None,
    write: Traffic | None = None,
) -> None:
    assert counter.uncounted == []
    assert (counter.flops, counter.matmul_flops) == (flops, matmul)
    assert counter.read == (read or Traffic())
    assert counter.write == (write or Traffic())


def test_traffic_tells_weights_activations_and_cache_apart() -> None:
    traffic = Traffic(w=3, a=5, kv=2, literal=7) + Traffic(w=1)
    assert traffic.bytes(2, 2, 2) == 2 * 4 + 2 * 5 + 2 * 2 + 7
    assert traffic.bytes(3, 5, 11) == 3 * 4 + 5 * 5 + 11 * 2 + 7


def test_elements_of_a_cached_tensor_are_known_after_the_run() -> None:
    traffic = Traffic(a=5, by_storage=((1, 5),)) + Traffic(a=6, by_storage=((2, 6),)) + Traffic(w=3)
    assert traffic.with_cache({2}) == Traffic(w=3, a=5, kv=6)
    assert traffic.with_cache(()) == Traffic(w=3, a=11)


def test_linear_with_bias() -> None:
    module = torch.nn.Linear(4, 3, device="meta", dtype=BF16).eval()
    counter = Counter(module, BF16)
    with torch.no_grad(), counter:
        module(new(2, 5, 4))
    # 10 rows: 2 * 10 * 4 * 3 = 240, and 10 * 3 = 30 additions of the bias; weight 12 + bias 3, input 40, output 30
    check(counter, flops=270, matmul=240, read=Traffic(w=15, a=40), write=Traffic(a=30))
    assert [count.operator for count in counter.counts] == ["aten.addmm.default"]


def test_linear_without_bias() -> None:
    module = torch.nn.Linear(4, 3, bias=False, device="meta", dtype=BF16).eval()
    counter = Counter(module, BF16)
    with torch.no_grad(), counter:
        module(new(2, 5, 4))
    check(counter, flops=240, matmul=240, read=Traffic(w=12, a=40), write=Traffic(a=30))


def test_an_input_given_twice_is_read_once() -> None:
    check(counted(lambda m, x: x + x, new(3, 4)), flops=12, read=Traffic(a=12), write=Traffic(a=12))
    # cat of one tensor twice reads it once and writes it twice
    check(counted(lambda m, x: torch.cat([x, x]), new(3, 4)), read=Traffic(a=12), write=Traffic(a=24))


def test_weights_views_of_them_and_buffers_cost_w() -> None:
    check(counted(lambda m, x: x + m.weight.t(), new(4, 3)), flops=12, read=Traffic(w=12, a=12), write=Traffic(a=12))
    check(counted(lambda m: m.table[2:5] * 2), flops=12, read=Traffic(w=12), write=Traffic(a=12))


def test_other_dtypes_cost_their_size() -> None:
    # upcast: 12 elements read as activations, 12 * 4 bytes written
    check(counted(lambda m, x: x.float(), new(3, 4)), read=Traffic(a=12), write=Traffic(literal=48))
    # comparison: 24 * 8 bytes of int64 read, 12 * 1 byte of bool written, no FLOPs
    a, b = new(3, 4, dtype=torch.int64), new(3, 4, dtype=torch.int64)
    check(counted(lambda m: a < b), read=Traffic(literal=192), write=Traffic(literal=12))
    # an integer product is no FLOP
    check(counted(lambda m: a * b), read=Traffic(literal=192), write=Traffic(literal=96))


def test_broadcast_dimensions_count_once() -> None:
    # the mask has 5 elements, however it is expanded; 2*3*4*5 = 120 additions
    mask = new(1, 1, 1, 5).expand(2, 3, 4, 5)
    check(counted(lambda m, x: x + mask, new(2, 3, 4, 5)), flops=120, read=Traffic(a=125), write=Traffic(a=120))
    # a contiguous copy of an expanded tensor reads the elements in memory and writes all of them
    check(counted(lambda m, x: x.expand(8, 5).contiguous(), new(1, 5)), read=Traffic(a=5), write=Traffic(a=40))


def test_views_and_allocations_are_free() -> None:
    def free(m: Any, x: torch.Tensor) -> None:
        x.view(12).unsqueeze(0).expand(4, 12).transpose(0, 1).detach()
        x.split(1)
        x.chunk(2, dim=-1)
        x[1:, ::2]
        torch.empty_like(x)
        x.new_empty(3)
        torch.unsafe_chunk(x, 2, dim=-1)
        torch.ops.aten._unsafe_view(x, [12])
        torch.empty_like(x).as_strided_([4, 3], [3, 1])

    check(counted(free, new(3, 4)))


def test_zero_dimensional_tensors_are_free() -> None:
    check(counted(lambda m, x: x * new(), new(3, 4)), flops=12, read=Traffic(a=12), write=Traffic(a=12))
    # a mean of everything: 12 additions, one division, and a result that is free
    check(counted(lambda m, x: x.mean(), new(3, 4)), flops=13, read=Traffic(a=12))


def test_empty_tensors_cost_nothing() -> None:
    check(counted(lambda m, x: torch.cat([new(0, 4), x]), new(3, 4)), read=Traffic(a=12), write=Traffic(a=12))


def test_factories_write() -> None:
    check(counted(lambda m: torch.arange(6, device="meta")), write=Traffic(literal=48))
    check(counted(lambda m, x: torch.zeros_like(x), new(3, 4)), write=Traffic(a=12))
    check(counted(lambda m, x: torch.full((3, 4), 1.0, dtype=BF16, device="meta"), new(1)), write=Traffic(a=12))


def test_in_place() -> None:
    x, y = new(3, 4), new(3, 4)
    check(counted(lambda m: x.add_(y)), flops=12, read=Traffic(a=24), write=Traffic(a=12))
    check(counted(lambda m: F.silu(x, inplace=True)), flops=48, read=Traffic(a=12), write=Traffic(a=12))
    check(counted(lambda m: x.fill_(1.0)), write=Traffic(a=12))
    check(counted(lambda m: x.zero_()), write=Traffic(a=12))
    # copy_ reads only the source (here 4 elements broadcast to 12)
    check(counted(lambda m: x.copy_(new(1, 4))), read=Traffic(a=4), write=Traffic(a=12))


def test_gathers_read_rows_not_tables() -> None:
    ids = new(2, 3, dtype=torch.int64)
    # 6 ids of 8 bytes, 6 rows of 4 from a buffer
    check(counted(lambda m: F.embedding(ids, m.table)), read=Traffic(w=24, literal=48), write=Traffic(a=24))
    check(counted(lambda m: m.table[ids]), read=Traffic(w=24, literal=48), write=Traffic(a=24))
    check(counted(lambda m, x: x[ids], new(9, 4)), read=Traffic(a=24, literal=48), write=Traffic(a=24))
    one = new(5, dtype=torch.int64)
    check(counted(lambda m, x: x.index_select(0, one), new(9, 4)), read=Traffic(a=20, literal=40), write=Traffic(a=20))
    check(counted(lambda m, x: x.gather(1, ids), new(2, 7)), read=Traffic(a=6, literal=48), write=Traffic(a=6))


def test_scatters_write_as_many_as_there_are_values() -> None:
    x, rows, values = new(9, 4), new(5, dtype=torch.int64), new(5, 4)
    put: dict[str, Any] = {"read": Traffic(a=20, literal=40), "write": Traffic(a=20)}
    check(counted(lambda m: x.index_put_((rows,), values)), **put)
    check(counted(lambda m: x.index_put((rows,), values)), **put)
    check(counted(lambda m: x.index_copy_(0, rows, values)), **put)
    index = new(2, 3, dtype=torch.int64)
    source = new(2, 3)
    check(counted(lambda m: x.scatter_(1, index, source)), read=Traffic(a=6, literal=48), write=Traffic(a=6))
    check(counted(lambda m: x.scatter_(1, index, 1.0)), read=Traffic(literal=48), write=Traffic(a=6))
    # a number written to 5 rows of 4: only the row indices are read
    check(counted(lambda m: x.index_put_((rows,), new())), read=Traffic(literal=40), write=Traffic(a=20))


def test_scatters_that_add_read_their_destinations() -> None:
    x, rows, values = new(9, 4), new(5, dtype=torch.int64), new(5, 4)
    # 20 values and 20 destinations read, 5 indices of 8 bytes; 20 additions
    added: dict[str, Any] = {"flops": 20, "read": Traffic(a=40, literal=40), "write": Traffic(a=20)}
    check(counted(lambda m: x.index_add_(0, rows, values)), **added)
    check(counted(lambda m: x.index_add(0, rows, values)), **added)
    check(counted(lambda m: x.index_put_((rows,), values, accumulate=True)), **added)
    index = new(2, 3, dtype=torch.int64)
    check(
        counted(lambda m: x.scatter_add_(1, index, new(2, 3))),
        flops=6, read=Traffic(a=12, literal=48), write=Traffic(a=6),
    )  # fmt: skip


def test_a_boolean_index_counts_what_is_set() -> None:
    x = torch.zeros(3, 4, dtype=BF16)
    mask = torch.tensor([True, False, True])
    # 2 rows of 4 are written; 3 bytes of mask are read; the value is a number
    check(
        counted(lambda m: x.index_put_((mask,), torch.zeros((), dtype=BF16))),
        read=Traffic(literal=3), write=Traffic(a=8),
    )  # fmt: skip


def test_one_row_for_all_that_a_mask_without_data_hits() -> None:
    x, mask = new(3, 4), new(3, dtype=torch.bool)
    # 4 values for each of 3 rows; values with as many dimensions show the number of set mask entries: 2 rows of 4
    check(counted(lambda m: x.index_put_((mask,), new(4))), read=Traffic(a=4, literal=3), write=Traffic(a=12))
    check(counted(lambda m: x.index_put_((mask,), new(2, 4))), read=Traffic(a=8, literal=3), write=Traffic(a=8))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_layer_norm(device: str) -> None:
    module = torch.nn.LayerNorm(4, device=device, dtype=BF16).eval()
    counter, x = Counter(module, BF16), new(2, 3, 4, device=device)
    with torch.no_grad(), counter:
        module(x)
    # 24 elements: 5 + weight 1 + bias 1 each; 6 rows: 4 each
    assert counter.flops == 24 * 7 + 6 * 4
    assert counter.read == Traffic(w=8, a=24)
    # mean and rstd, 6 each, are outputs too: float32 on the meta device, bfloat16 on the CPU
    assert counter.write == (Traffic(a=24, literal=48) if device == "meta" else Traffic(a=24 + 12))


def test_convolution() -> None:
    module = torch.nn.Conv1d(4, 6, 3, device="meta", dtype=BF16).eval()
    counter = Counter(module, BF16)
    with torch.no_grad(), counter:
        module(new(2, 4, 10))
    # 8 positions: 2 * 2 * 8 * 6 * 4 * 3 = 2304; output 2*6*8 = 96 with a bias each; weight 72 + bias 6; input 80
    check(counter, flops=2304 + 96, matmul=2304, read=Traffic(w=78, a=80), write=Traffic(a=96))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_attention_is_one_operator(device: str) -> None:
    q, k, v = new(2, 4, 3, 8, device=device), new(2, 2, 7, 8, device=device), new(2, 2, 7, 6, device=device)
    mask = new(1, 1, 1, 7, device=device, dtype=torch.bool).expand(2, 1, 3, 7)

    def attend(m: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    # 2 * B 2 * Hq 4 * Sq 3 * Sk 7 * (8 + 6) = 4704; q 192, k 224, v 168; 7 bytes of mask; output 2*4*3*6 = 144
    counter = counted(attend)
    check(counter, flops=4704, matmul=4704, read=Traffic(a=584, literal=7), write=Traffic(a=144))
    assert [count.operator for count in counter.counts] == ["scaled_dot_product_attention"]


def test_causal_attention_is_counted_in_full() -> None:
    q, k, v = (new(1, 4, 5, 8) for _ in range(3))
    counter = counted(lambda m: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    # 2 * 4 * 5 * 5 * 16 = 3200
    check(counter, flops=3200, matmul=3200, read=Traffic(a=480), write=Traffic(a=160))


def test_attention_inside_multi_head_attention_is_seen_too() -> None:
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True, device="meta", dtype=BF16).eval()
    counter = Counter(module, BF16)
    x = new(1, 3, 8)
    with torch.no_grad(), counter:
        module(x, x, x, need_weights=False)
    assert [count.operator for count in counter.counts].count("scaled_dot_product_attention") == 1
    assert not [count for count in counter.counts if "bmm" in count.operator or "softmax" in count.operator]


def test_grouped_matmul() -> None:
    rows, weights, ends = new(3, 16), new(8, 16, 32), new(8, dtype=torch.int32)
    counter = counted(lambda m: torch._grouped_mm(rows, weights, offs=ends))
    # 2 * 3 * 16 * 32 = 3072; 3 rows reach at most 3 of the 8 experts: 3*16 + 3*16*32 read, 8 offsets of 4 bytes
    check(counter, flops=3072, matmul=3072, read=Traffic(a=48 + 1536, literal=32), write=Traffic(a=96))
    counter = counted(lambda m: torch._grouped_mm(new(20, 16), weights, offs=ends))
    # 20 rows: all 8 experts
    check(counter, flops=20480, matmul=20480, read=Traffic(a=320 + 4096, literal=32), write=Traffic(a=640))


@pytest.mark.parametrize(
    ("function", "each"),
    [
        (lambda x: torch.add(x, x, alpha=2), 2),
        (lambda x: x**2, 1),
        (lambda x: x**3.0, 2),
        (lambda x: x**1.7, 3),
        (lambda x: x**-0.5, 1),
        (lambda x: F.gelu(x), 5),
        (lambda x: F.gelu(x, approximate="tanh"), 9),
        (lambda x: x.clamp(min=0, max=1), 2),
        (lambda x: x.clamp(max=1), 1),
        (lambda x: F.softmax(x, -1), 5),
        (lambda x: torch.where(x > 0, x, -x), 1),
        (lambda x: F.dropout(x, 0.5, training=False), 0),
    ],
)
def test_flops_an_element(function: Callable[[torch.Tensor], torch.Tensor], each: int) -> None:
    assert counted(lambda m, x: function(x), new(3, 4)).flops == 12 * each


def test_scaled_bias_of_a_matmul() -> None:
    bias, a, b = new(2, 3, 5), new(2, 3, 4), new(2, 4, 5)
    products = 2 * 2 * 3 * 4 * 5
    for beta, alpha, each in ((1, 1, 1), (1, 0.5, 2), (0.5, 0.5, 3), (0, 0.5, 1)):
        counter = counted(lambda m, x=beta, y=alpha: torch.baddbmm(bias, a, b, beta=x, alpha=y))
        assert counter.matmul_flops == products
        assert counter.flops == products + 30 * each


def test_pooling_counts_its_windows() -> None:
    # 1*1*2*2 results; windows of 4: a comparison each element; an average divides once more
    assert counted(lambda m, x: F.max_pool2d(x, 2), new(1, 1, 4, 4)).flops == 16
    assert counted(lambda m, x: F.avg_pool2d(x, 2), new(1, 1, 4, 4)).flops == 20


def test_an_operator_without_a_rule_is_named() -> None:
    counter = counted(lambda m, x: torch.linalg.matrix_exp(x), new(4, 4, dtype=torch.float32))
    assert counter.uncounted == ["aten.linalg_matrix_exp.default"]
    with pytest.raises(UncountedOperator, match=r"no FLOP rule for .*matrix_exp.*, executed by Holder"):
        counter.require_rules()


def test_complex_arithmetic_is_no_silent_zero() -> None:
    x = new(3, 4, dtype=torch.complex64)
    assert counted(lambda m: x / x).uncounted == ["aten.div.Tensor"]
    # 12 elements, each (a + bi)(c + di): four products and two additions
    assert sum(c.flops for c in counted(lambda m: x * x).counts) == 72
    check(counted(lambda m: x.clone()), read=Traffic(literal=96), write=Traffic(literal=96))


def test_integer_work_needs_no_rule() -> None:
    x = new(3, dtype=torch.int64)
    # 3 elements of 8 bytes read twice over (two operands), 3 written
    check(counted(lambda m: x << new(3, dtype=torch.int64)), read=Traffic(literal=48), write=Traffic(literal=24))


def test_each_entry_starts_from_nothing() -> None:
    module = Holder(lambda m, x: x + 1).eval()
    counter = Counter(module, BF16)
    for _ in range(2):
        with torch.no_grad(), counter:
            module(new(3, 4))
        assert counter.flops == 12
    module(new(3, 4))
    assert counter.flops == 12
