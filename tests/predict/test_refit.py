"""A user's own rows: what a refit needs, what it changes, and that it is read back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lmp.errors import InvalidAnalysis, UsageError
from lmp.predict.calibration import calibration
from lmp.predict.check import REFIT
from lmp.predict.prediction import Prediction, Predictor
from lmp.predict.rows import row_of

pytest.importorskip("sklearn")

from lmp.predict.fit.refit import refit, write_refits

HEAD = "op,device,m,n,k,us"


def time(device: str, m: int, n: int, k: int, predictor: Predictor | None = None) -> float:
    row = row_of({"op": "gemm", "device": device, "m": m, "n": n, "k": k})
    (made,) = (predictor or Predictor()).predict([row])
    assert isinstance(made, Prediction)
    return made.us


def rows_of(folder: Path, device: str, shapes: int, times: float, *more: str) -> Path:
    """Products that took so many times what is predicted, with 2 % of noise."""
    rng = random.Random(0)
    lines = [HEAD]
    for number in range(shapes):
        m, n, k = (2 ** rng.randint(3, 12), 128 * rng.randint(4, 64), 128 * rng.randint(4, 64) + 128 * number)
        lines.append(f"gemm,{device},{m},{n},{k},{time(device, m, n, k) * times * rng.gauss(1, 0.02):.3f}")
    file = folder / "mine.csv"
    file.write_text("\n".join([*lines, *more]) + "\n")
    return file


def test_a_device_that_is_slower_than_its_sister(tmp_path: Path) -> None:
    """30 % slower than predicted: errors were 1 - 1/1.3 = 23 %, and are a few per cent on shapes left out."""
    (found,) = refit(rows_of(tmp_path, "h200-sxm", 80, 1.3), Predictor()).found
    assert found.base == "sister:h100-sxm"
    assert found.before == pytest.approx(23, abs=1.5)
    assert found.after < 8
    assert found.slot.device == "h200-sxm"


def test_what_is_written_is_used(tmp_path: Path) -> None:
    written = write_refits(refit(rows_of(tmp_path, "h200-sxm", 80, 1.3), Predictor()), tmp_path / "own")
    assert [file.name for file in written] == ["gemm.json"]
    own = Predictor(folder=tmp_path / "own")
    assert time("h200-sxm", 64, 4096, 4096, own) > 1.1 * time("h200-sxm", 64, 4096, 4096)
    # Other devices and families stay.
    assert time("h100-sxm", 64, 4096, 4096, own) == time("h100-sxm", 64, 4096, 4096)
    row: dict[str, Any] = {"op": "collective", "kind": "all_reduce", "gpus": 8, "bytes": 4096, "device": "h200-sxm"}
    assert own.predict([row_of(row)]) == Predictor().predict([row_of(row)])
    (made,) = own.predict([row_of({"op": "gemm", "device": "h200-sxm", "m": 64, "n": 4096, "k": 4096})])
    assert isinstance(made, Prediction)
    assert made.provenance == "calibrated"
    assert made.calibration is not None
    assert made.calibration.endswith("+own")


def test_too_few_shapes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"gemm bfloat16 on h200-sxm: {REFIT - 1} shapes, and a refit needs {REFIT}"):
        refit(rows_of(tmp_path, "h200-sxm", REFIT - 1, 1.3), Predictor())


def test_kernels_without_a_model_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("op,device,read,written,us\n" + "".join(f"norm,h100-sxm,{n}000,10,5\n" for n in range(1, 70)))
    with pytest.raises(UsageError, match="pointwise any on h100-sxm: no kernel of this family was measured"):
        refit(file, Predictor())


def test_bad_rows_are_dropped_and_the_rest_is_fitted(tmp_path: Path) -> None:
    bad = ["gemm,h200-sxm,1,1,1,nan", "gemm,h200-sxm,-1,1,1,5", "gemm,h200-sxm,64,4096,4096,1e7"]
    found = refit(rows_of(tmp_path, "h200-sxm", 70, 1.1, *bad), Predictor())
    assert sum(found.dropped.values()) == 3
    assert found.dropped["us: more than 1000 times what is predicted at most"] == 1
    assert found.found[0].rows == 70


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 1}', '{"schema": 2}', '{"schema": 2, "slots": [1]}'])
def test_a_folder_with_another_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "gemm.json").write_text(content)
    with pytest.raises(InvalidAnalysis):
        calibration("gemm", tmp_path)
