"""Operands of executed operators, and claims about them."""

from __future__ import annotations

import torch

from lmp.records import Operand, Operands
from lmp.verify.operands import Claim, OperandClaims, Seen, missing, seen

X = Seen("self", (6, 4), "a", "activation")
WEIGHT = Seen("mat2", (4, 3), "w", "weight")
Y = Seen("0", (6, 3), "a", "activation", is_output=True)


def test_widths_and_roles_of_executed_tensors() -> None:
    weight = torch.empty(4, 3, device="meta", dtype=torch.bfloat16)
    x, index = torch.empty(2, 4, dtype=torch.bfloat16), torch.empty(2, dtype=torch.int64)
    wide, mask = torch.empty(2, dtype=torch.float32), torch.empty(2, 2, dtype=torch.bool)
    arguments = {"x": x, "more": [None, weight.t()], "index": index, "wide": wide, "mask": mask, "alpha": 2}
    found = seen(arguments, [x], {weight.untyped_storage()._cdata}, torch.bfloat16)
    assert [(one.name, one.shape, one.width, one.role, one.is_output) for one in found] == [
        ("x", (2, 4), "a", "activation", False),
        ("more[1]", (3, 4), "w", "weight", False),
        ("index", (2,), 8, "index", False),
        ("wide", (2,), 4, "activation", False),
        ("mask", (2, 2), 1, "activation", False),
        ("0", (2, 4), "a", "activation", True),
    ]


def test_what_a_cache_holds_is_known_after_the_run() -> None:
    plain, wide = (Seen("key", (2, 4), width, "activation", storage=7) for width in ("a", 4))
    assert plain.with_cache({7}) == Seen("key", (2, 4), "kv", "cache")
    assert wide.with_cache({7}) == Seen("key", (2, 4), 4, "cache")
    assert plain.with_cache({8}) == Seen("key", (2, 4), "a", "activation")
    assert Seen("w", (2,), "w", "weight", storage=7).with_cache({7}) == Seen("w", (2,), "w", "weight")


def test_a_claim_needs_as_many_operators_as_it_has_runs() -> None:
    claim = Claim("mm", frozenset({X, WEIGHT, Y}), None)
    ran = ("mm", (X, WEIGHT, Y))
    assert missing([(claim, 2)], [ran, ran]) == []
    assert missing([(claim, 1)], [ran, ran]) == []  # further operators are of other kernels
    assert missing([(claim, 2)], [ran]) == [claim]
    assert missing([(claim, 1), (claim, 1)], [ran]) == [claim]
    assert missing([(claim, 1)], [("bmm", (X, WEIGHT, Y))]) == [claim]


def test_a_claim_at_a_point() -> None:
    key = Operand(name="key", shape=["{kv_heads}", "{cache_len} + 1"], width="kv", role="cache")
    copy = key.model_copy(update={"width": "a", "role": "activation", "present": "where({cache_len} > 9, 1, 0)"})
    operands = Operands(operator="scaled_dot_product_attention", inputs=[key, copy], outputs=[], batch="{batch_size}",
                        heads=8, q_len=1, kv_len="{cache_len} + 1", head_dim=16, v_head_dim=12)  # fmt: skip
    found = OperandClaims().at(operands, {"batch_size": 3, "cache_len": 7, "kv_heads": 2})
    assert found.operands == {Seen("key", (2, 8), "kv", "cache")}
    assert found.product == 2 * 3 * 8 * 1 * 8 * (16 + 12)
    grouped = Operands(operator="_grouped_mm", inputs=[], outputs=[], tokens=5, top_k=2, experts=8, n=3, k=4)
    assert OperandClaims().at(grouped, {}).product == 2 * 5 * 2 * 3 * 4
    assert OperandClaims().at(Operands(operator="add", inputs=[], outputs=[]), {}).product is None
