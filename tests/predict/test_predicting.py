"""Rows in, times with intervals out: order, provenance, extrapolation, sums, bad rows, a user's measurements."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmp.errors import LmpError, UsageError
from lmp.predict.check import check
from lmp.predict.lines import answers
from lmp.predict.prediction import Z80, Prediction, Predictor, total
from lmp.predict.rows import RECORDS, read_row, row_of

PREDICTOR = Predictor()
HEADS = {"op": "attention", "device": "h100-sxm", "batch": 1, "heads": 8, "kv_heads": 2, "head_dim": 64}
GEMM = {"op": "gemm", "device": "h100-sxm", "m": 16, "n": 4096, "k": 4096}


def answered(*lines: object) -> list[dict[str, Any]]:
    text = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(answers(text, PREDICTOR))


def test_answers_are_in_the_order_of_the_lines() -> None:
    rows = [{**GEMM, "id": n, "device": ("h100-sxm", "a100-sxm")[n % 2], "m": 1 + n} for n in range(50)]
    rows.insert(7, {"id": "seven", "op": "dance"})
    found = answered(*rows)
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    assert "no operator" in found[7]["error"]
    alone = answered(rows[20])[0]
    assert found[20] == alone


BAD = [
    b'{"op": "gemm", "m": ',
    b"[1]",
    b"null",
    b"\xff\xfe\x00",
    b'{"id": 3, "op": "gemm", "device": "h100-sxm", "m": NaN, "n": 1, "k": 1}',
    b"[" * 50_000,
    b'{"op": ' + b'"' + b"x" * 70_000 + b'"}',
    {**GEMM, "m": 0},
    {**GEMM, "m": -1},
    {**GEMM, "m": 1.5},
    {**GEMM, "m": 2**60},
    {**GEMM, "m": "many"},
    {**GEMM, "dtype": "fp3"},
    {**GEMM, "device": "h100-smx"},
    {**GEMM, "weight": 1},
    {**GEMM, "op": ["gemm"]},
    {**GEMM, "device": "a100-sxm", "dtype": "fp8"},
    {"op": "gemm", "device": "h100-sxm", "m": 1},
    {**HEADS, "phase": "decode", "kv_len": 9, "heads": 7},
    {**HEADS, "phase": "prefill", "q_len": 9, "kv_len": 3},
    {"op": "moe", "device": "h100-sxm", "tokens": 1, "hidden": 8, "inter": 8, "topk": 9, "experts": 8},
    {"op": "moe", "device": "h100-sxm", "tokens": 1, "hidden": 8, "inter": 8, "topk": 1, "experts": 8, "ep": 16},
    {"op": "collective", "device": "h100-sxm", "kind": "all_reduce", "gpus": 1, "bytes": 8},
]  # fmt: skip


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_a_bad_line_has_an_error_and_the_rest_goes_on(line: object) -> None:
    found = answered(GEMM, line, GEMM)
    assert "error" not in found[0]
    assert found[1].keys() == {"id", "error"}
    assert len(found[1]["error"]) < 1000
    assert found[0] == found[2]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_row_or_an_error(line: bytes) -> None:
    with contextlib.suppress(UsageError):
        assert read_row(line).device


def test_a_device_without_fp8_says_so() -> None:
    found = answered({**GEMM, "device": "a100-sxm", "dtype": "fp8"})[0]
    assert "a100-sxm has no fp8 matrix products" in found["error"]


def made(**row: Any) -> Prediction:
    found = PREDICTOR.predict([row_of({**GEMM, **row})])[0]
    assert not isinstance(found, LmpError)
    return found


@pytest.mark.parametrize(
    ("device", "provenance"),
    [
        ("h100-sxm", "calibrated"),
        ("h200-sxm", "sister:h100-sxm"),
        ("h100-pcie", "sister:h100-sxm"),
        ("gb200", "sister:b200-sxm"),
        ("b300-sxm", "sister:b200-sxm"),
        ("l40s", "datasheet"),
        ("tpu-v5p", "datasheet"),
        ("mi300x", "datasheet"),
    ],
)
def test_provenance(device: str, provenance: str) -> None:
    assert made(device=device).provenance == provenance


def relative(p: Prediction) -> float:
    return math.log(p.high_us / p.low_us)


def test_bars_widen_with_the_distance_from_what_was_measured() -> None:
    near, sister, far = (made(device=name, m=300) for name in ("h100-sxm", "h200-sxm", "l40s"))
    assert relative(near) < relative(sister) < relative(far)


def test_extrapolation_is_named_and_widens() -> None:
    inside, outside = made(), made(n=4_000_000)
    assert inside.extrapolated == ()
    assert outside.extrapolated == ("n",)
    assert relative(outside) > relative(inside)
    assert (inside.error is None) == (inside.calibration is None)


def hand_made(us: float, half: float, shared: float, family: str) -> Prediction:
    return Prediction(us, us - half, us + half, 0.0, "memory", "calibrated", None, None, (), family, "k", shared)


def test_a_sum_of_one_kernel_has_its_interval() -> None:
    assert total([hand_made(100, 10, 0.02, "a")]) == pytest.approx((100, 90, 110))


def test_independent_parts_add_in_quadrature_and_shared_ones_linearly() -> None:
    """Two families without a shared part: sqrt(3**2 + 4**2) = 5. Two of one family, all shared: 3 + 4 = 7."""
    apart = [hand_made(100, 3, 0.0, "a"), hand_made(100, 4, 0.0, "b")]
    assert total(apart) == pytest.approx((200, 195, 205))
    # shared: Z80 * s * us >= half, so that nothing is left for quadrature.
    alike = [hand_made(100, 3, 1.0 / Z80, "a"), hand_made(100, 4, 1.0 / Z80, "a")]
    assert total(alike) == pytest.approx((200, 193, 207))


def test_layers_that_repeat_a_shape_err_together() -> None:
    """32 times one kernel of 100 +- 10: 3,200 +- 320, not +- 57."""
    assert total([hand_made(100, 10, 0.0, "a")], [32]) == pytest.approx((3200, 2880, 3520))


def test_all_operators_have_a_prediction() -> None:
    lines = [
        GEMM,
        {**GEMM, "dtype": "fp8", "bench": {"weight_copies": 6}},
        {**HEADS, "phase": "prefill", "q_len": 512, "kv_len": 512, "window": None, "causal": True},
        {**HEADS, "phase": "decode", "device": "b200-sxm", "kv_dtype": "fp8", "q_len": 1, "kv_len": 512},
        {"op": "mla", "phase": "prefill", "device": "h100-sxm", "batch": 1, "q_len": 512, "kv_len": 512, "heads": 16},
        {"op": "mla", "phase": "decode", "device": "h100-sxm", "batch": 1, "kv_len": 512, "heads": 16},
        {"op": "mla_bmm", "which": "post", "device": "h100-sxm", "tokens": 16, "heads": 16},
        {
            "op": "moe", "device": "h100-sxm", "dtype": "fp8", "tokens": 64, "hidden": 2048, "inter": 768, "topk": 8,
            "experts": 128, "tp": 1, "ep": 4, "routing": "power_law_1.01",
        },
        {"op": "collective", "kind": "all_reduce", "gpus": 8, "bytes": 1 << 20, "library": "nccl", "device": "gb200"},
        {"op": "quantise", "device": "h100-sxm", "m": 64, "k": 4096, "scale": "dynamic"},
        {"op": "pointwise", "device": "h100-sxm", "read": 1 << 20, "written": 1 << 20},
        {"op": "norm", "device": "h100-sxm", "read": 1 << 20, "written": 1 << 20},
    ]  # fmt: skip
    assert {line["op"] for line in lines} == RECORDS.keys()
    for found in answered(*lines):
        assert 0.5 < found["low_us"] <= found["us"] <= found["high_us"] < 1e5


# --- a user's own measurements ----------------------------------------------------------------------------------------


def csv(folder: Path, *lines: str) -> Path:
    file = folder / "rows.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_check_of_rows_by_hand(tmp_path: Path) -> None:
    """A row that took half of what is predicted is an error of 100 %, one that took exactly that of 0."""
    exact = made(m=2048)
    lines = [f"gemm,h100-sxm,2048,4096,4096,{us}" for us in (exact.us, exact.us, exact.us * 2)]
    found = check(csv(tmp_path, "op,device,m,n,k,us", *lines), PREDICTOR)
    # |p/2p - 1| = 50 %; mean (0 + 0 + 50) / 3.
    assert found.errors[-1].rows == 3
    assert found.errors[-1].mape == pytest.approx(50 / 3)
    assert found.errors[-1].median == pytest.approx(0)
    assert found.errors[0].what == "gemm h100-sxm (calibrated)"


def test_absurd_rows_are_dropped_by_count_and_reason(tmp_path: Path) -> None:
    good = f"gemm,h100-sxm,16,4096,4096,{made().us}"
    bad = ["nan", "-3", "0", "inf", "soon", "1e12", ""]
    rows = [f"gemm,h100-sxm,16,4096,4096,{us}" for us in bad]
    rows += ["gemm,h100-sxm,0,4096,4096,5", "gemm,x,1,4096,4096,5", "gemm,h100-sxm,16,4096,4096,0.001", good]
    found = check(csv(tmp_path, "op,device,m,n,k,us", *rows), PREDICTOR)
    assert found.errors[-1].rows == 1
    assert sum(found.dropped.values()) == len(rows) - 1
    assert found.dropped["us: not a positive number below 100 s"] == len(bad)
    assert found.dropped["us: less than half of what dense peak and bandwidth allow"] == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["op,device,m,n,k"], "no column us"),
        (["op,device,us,colour"], "unknown column 'colour'"),
        (["op,device,m,n,k,us"], "no row that can be compared"),
        (["op,device,m,n,k,us", "gemm,h100-sxm,1,1,1,nan"], "1 rows: us"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(csv(tmp_path, *lines), PREDICTOR)
    with pytest.raises(UsageError, match="cannot be read"):
        check(tmp_path / "none.csv", PREDICTOR)
