"""What the shipped calibration states about itself, and what its tables allow to check."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmp.errors import NotFound, UsageError
from lmp.predict import calibration
from lmp.predict.kernels import FAMILIES

DATA = Path(__file__).parents[3] / "shared" / "data" / "calibration"
FILES = sorted(calibration.FOLDER.glob("*.json"))


def stated(family: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((calibration.FOLDER / f"{family}.json").read_text())
    return found


def pooled_mape(family: str, *variants: str) -> float:
    rows = [row for row in stated(family)["summary"]["pooled"] if not variants or row["variant"] in variants]
    assert rows
    return float(sum(row["mape"] * row["rows"] for row in rows) / sum(row["rows"] for row in rows))


@pytest.mark.parametrize(
    ("family", "variants", "most"),
    [
        ("gemm", ("bfloat16",), 5.5),
        ("gemm", ("fp8",), 7.0),
        ("prefill", (), 7.0),
        ("decode", (), 6.5),
        ("collective", ("nccl/all_reduce",), 8.0),
    ],
)
def test_held_out_errors_are_within_what_was_asked_for(family: str, variants: tuple[str, ...], most: float) -> None:
    assert pooled_mape(family, *variants) <= most


def test_experts_of_an_unseen_shape() -> None:
    for row in stated("moe")["summary"]["pooled"]:
        assert row["median"] <= 20, row


@pytest.mark.parametrize("family", ["gemm", "prefill", "decode", "moe", "collective", "mla_prefill", "mla_decode"])
def test_intervals_cover_what_they_promise_and_are_narrow(family: str) -> None:
    for row in stated(family)["summary"]["pooled"]:
        assert 72 <= row["coverage"] <= 90, row
        assert row["half_width"] <= 2.5 * row["median"], row


def test_errors_are_of_three_draws_of_held_out_sites() -> None:
    for file in FILES:
        assert json.loads(file.read_text())["provenance"]["seeds"] == [1, 2, 3]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_file_says_where_it_comes_from(file: Path) -> None:
    data = json.loads(file.read_text())
    provenance = data["provenance"]
    assert provenance["source"].startswith("https://github.com/ai-dynamo/aiconfigurator")
    assert "Apache-2.0" in provenance["licence"]
    assert provenance["seeds"]
    assert all(len(digest) == 64 for digest in provenance["sha256"].values())
    for slot in data["slots"]:
        ranges = {p.name: (p.low, p.high) for p in FAMILIES[data["family"]].parameters}
        for name, value in slot["parameters"].items():
            low, high = ranges[name]
            assert low * 0.999 <= value <= high * 1.001, (slot["device"], name)


def test_the_calibration_takes_little_of_a_wheel(tmp_path: Path) -> None:
    packed = tmp_path / "wheel.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in FILES:
            archive.write(file, file.name)
    assert packed.stat().st_size < 3_000_000


def test_a_folder_without_tables(tmp_path: Path) -> None:
    data = pytest.importorskip("lmp.predict.fit.data")
    with pytest.raises(NotFound, match="no table of measured rows"):
        data.read_tables(tmp_path)


def test_tables_with_bad_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    from lmp.predict.fit.data import clean

    row = {"gpu": "h100_sxm", "backend": "b", "kernel_source": "k", "gemm_dtype": "bfloat16", "m": 1, "n": 8, "k": 8}
    times = [5.0, float("nan"), -1.0, 0.0, 1e9]
    frame = pandas.DataFrame([{**row, "us": us} for us in times] + [{**row, "us": 3.0, "m": 0}])
    kept, dropped = clean(frame, "gemm")
    assert kept["us"].tolist() == [5.0]
    assert dropped == {"us: not a number": 1, "us: not positive": 2, "us: more than 100 s": 1, "m: not positive": 1}
    with pytest.raises(UsageError, match="no column m"):
        clean(frame.drop(columns="m"), "gemm")


def test_no_measured_time_is_below_the_floor() -> None:
    """The bound of every family against measured rows, whose caches may be warm: the bound knows."""
    if not DATA.is_dir():
        pytest.skip("no measured rows beside this checkout")
    pytest.importorskip("pyarrow")
    from lmp.predict.devices import device_named
    from lmp.predict.fit.data import read_tables

    for measured in read_tables(DATA).slots:
        if "_minus_" in measured.name:
            continue  # a difference of two measured kernels, too small by the error of either
        floor = FAMILIES[measured.family].floor(measured.columns, device_named(measured.device))
        below = float(np.mean(measured.us < floor * 0.999))
        # Skewed routing draws experts by chance: a GPU may get fewer than one token's worth.
        assert below <= (0.002 if measured.family == "moe" else 0.0), measured.name
