"""``lmp devices``, ``predict-op`` and ``calibrate``: options in, tables and JSON out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import Lmp
from typer.testing import CliRunner

from lmp.cli.main import app


def test_devices_as_a_table_and_as_json(lmp: Lmp) -> None:
    assert "h200-sxm" in lmp("devices").stdout
    shown = json.loads(lmp("devices", "show", "H100", "--json").stdout)
    # 989.4 TFLOP/s dense (H100 whitepaper).
    assert shown["dense"]["bfloat16"] == 989_400 * 10**9
    assert shown["sources"]["bandwidth"].startswith("NVIDIA H100")
    assert {device["name"] for device in json.loads(lmp("devices", "--json").stdout)} >= {"l40s", "mi300x"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("devices", "show", "h100-smx"), "did you mean h100-sxm"),
        (("devices", "show"), "which device?"),
        (("devices", "list", "h100-sxm"), "use `lmp devices show h100-sxm`"),
        (("devices", "--devices", "none.toml"), "none.toml cannot be read"),
        (("calibrate",), "give one of DATA, --check"),
        (("calibrate", "here", "--check", "rows.csv"), "give one of DATA, --check"),
        (("calibrate", "--check", "rows.csv"), "rows.csv cannot be read"),
        (("calibrate", "--check", "rows.csv", "--calibration", "none"), "none has no calibration"),
        (("predict-op", "--calibration", "none"), "none has no calibration"),
    ],
)
def test_usage_errors(lmp: Lmp, arguments: tuple[str, ...], message: str) -> None:
    done = lmp(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_predict_op_writes_a_line_for_each_line() -> None:
    rows = [
        {"id": "a", "op": "gemm", "device": "h100-sxm", "m": 8, "n": 1024, "k": 1024},
        {"id": "b", "op": "gemm", "device": "h100-sxm", "m": 8},
    ]
    text = "\n".join(map(json.dumps, rows)) + "\n{cut"
    done = CliRunner().invoke(app, ["predict-op", "--json"], input=text)
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in found] == ["a", "b", None]
    assert found[0]["low_us"] <= found[0]["us"] <= found[0]["high_us"]
    assert "error" in found[1]
    assert "error" in found[2]


def test_a_check_is_printed(lmp: Lmp, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "op,device,m,n,k,us\ngemm,h100-sxm,8,1024,1024,5\ngemm,h100-sxm,8,1024,1024,nan\n"
    )
    done = lmp("calibrate", "--check", str(tmp_path / "rows.csv"))
    assert done.exit_code == 0
    assert "gemm h100-sxm" in done.stdout
    assert "dropped 1 rows: us" in done.stderr
    made = json.loads(lmp("calibrate", "--check", str(tmp_path / "rows.csv"), "--json").stdout)
    assert made["errors"][-1]["rows"] == 1


def test_a_refit_is_printed_and_used(lmp: Lmp, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    rows = [
        f"gemm,h200-sxm,{m},{n},4096,{5 + m * n / 2e4:.2f}" for m in range(16, 144, 16) for n in range(512, 5120, 512)
    ]
    file, folder = tmp_path / "mine.csv", tmp_path / "own"
    file.write_text("\n".join(["op,device,m,n,k,us", *rows, "gemm,h200-sxm,1,1,1,nan"]) + "\n")
    done = lmp("calibrate", str(file), "--write", str(folder))
    assert done.exit_code == 0, done.stderr
    assert "sister:h100-sxm" in done.stdout
    assert "dropped 1 rows: us" in done.stderr
    shipped, own = (
        json.loads(lmp("calibrate", "--check", str(file), "--json", *more).stdout)["errors"][-1]["mape"]
        for more in ((), ("--calibration", str(folder)))
    )
    assert own < shipped
    few = tmp_path / "few.csv"
    few.write_text("\n".join(["op,device,m,n,k,us", *rows[:20]]) + "\n")
    done = lmp("calibrate", str(few))
    assert done.exit_code == 2
    assert "20 shapes, and a refit needs 64" in done.stderr
