"""``--plot``, ``--x`` and ``--y`` of evaluate and predict."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from fakes import Lmp

from lmp.predict import charts
from lmp.predict.charts import Chart

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("stored_llama")
CLASS = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
SWEEP = ("--phase", "decode", "-b", "1:16:*2", "-c", "8k")
CALL = ("--phase", "decode", "-b", "16", "-c", "8k")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Chart]:
    """The charts that are written."""
    found: list[Chart] = []
    monkeypatch.setattr("lmp.report.sweep_plot.write", lambda chart, file: found.append(chart))
    monkeypatch.setattr("lmp.predict.screen.plots.write", lambda chart, file: found.append(chart))
    return found


def test_a_sweep_is_drawn(lmp: Lmp, tmp_path: Path) -> None:
    done = lmp("evaluate", CLASS, *SWEEP, "--plot", "a.svg")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert "wrote a.svg" in done.stderr
    assert "batch_size" in done.stdout  # the table is printed too


def test_each_quantity_has_a_panel_and_each_engine_a_line(lmp: Lmp, drawn: list[Chart]) -> None:
    done = lmp("evaluate", CLASS, *SWEEP, "--device", "h100-sxm", "--plot", "a.svg", "--y", "intensity,latency")
    assert done.exit_code == 0, done.stderr
    first, second = drawn[0].panels
    (line,) = first.series
    assert list(line.x) == [1, 2, 4, 8, 16]
    # FLOPs divided by bytes read and written.
    evaluated = lmp("evaluate", CLASS, *CALL, "--json").stdout
    totals = json.loads(evaluated)["totals"]
    assert line.y[-1] == pytest.approx(totals["flops"] / (totals["read"] + totals["write"]))
    assert [one.name for one in second.series] == ["eager", "vllm"]
    assert first.log_x
    for one in second.series:
        assert all(a < b < c for a, b, c in zip(one.low, one.y, one.high, strict=True))  # type: ignore[operator]


def test_points_without_a_time_are_said(lmp: Lmp, drawn: list[Chart]) -> None:
    # 64 sequences of 8k are 68.7 GB beside 16.1 GB of weights.
    sizes = ("--phase", "decode", "-b", "32,64", "-c", "8k", "--device", "h100-sxm")
    done = lmp("evaluate", CLASS, *sizes, "--plot", "a.svg", "--y", "latency")
    assert "warning: eager: 1 of 2 points have no time: does not fit, " in done.stderr
    assert drawn[0].panels[0].series[0].y[1] is None


def test_predict_draws_over_a_size(lmp: Lmp, drawn: list[Chart]) -> None:
    options = ("--device", "h100-sxm", "--engine", "vllm", "--plot", "a.svg", "--no-next")
    done = lmp("predict", CLASS, *CALL, *options, "--x", "cache_len", "--y", "latency")
    assert done.exit_code == 0, done.stderr
    latency, roofline = drawn[0].panels
    assert latency.x_label == "tokens in the cache"
    assert latency.ticks[-1] == 8 * 8192
    assert roofline.title == "kernels on H100"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*SWEEP, "--plot", "a.jpeg2"), "has no ending of a picture\ngive one of .svg, .png, .html, .pdf"),
        ((*SWEEP, "--plot", ""), "has no ending of a picture"),
        ((*SWEEP, "--x", "batch_size"), "--x is of a plot"),
        ((*SWEEP, "--y", "intensity"), "--y is of a plot"),
        (
            (*SWEEP, "--plot", "a.svg", "--x", "batch"),
            "--x 'batch' is no quantity of this plot\ndid you mean batch_size?",
        ),
        (
            (*SWEEP, "--plot", "a.svg", "--y", "flop"),
            "--y 'flop' is no quantity of this plot\ndid you mean flops or matmul_flops?",
        ),
        ((*SWEEP, "--plot", "a.svg", "--y", "latency"), "--y latency is of a device\ngive one too"),
        ((*CALL, "--plot", "a.svg"), "a plot needs several values, and all sizes have one\ngive a range"),
        (("--phase", "decode", "-b", "1:2000", "-c", "1:9", "--plot", "a.svg"), "9 lines are too many for one plot"),
        (("--phase", "decode", "-b", "1:20000", "-c", "8k", "--plot", "a.svg"), "20,000 points are too many"),
        (
            ("--phase", "decode", "-b", "1:300", "-c", "8k", "--plot", "a.svg", "--device", "h100-sxm"),
            "300 points are too many for times on a device, which take 256",
        ),
        ((*SWEEP, "--tp", "2", "--plot", "a.svg"), "batch_size has several values"),
    ],
)
def test_what_evaluate_refuses(lmp: Lmp, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = lmp("evaluate", CLASS, *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--plot", "a.svg", "--x", "heads"), "--x 'heads' is no quantity of this plot\ngive one of batch_size"),
        (("--plot", "a.svg", "--y", "flops"), "--y 'flops' is no quantity of this plot\ngive one of latency"),
        (("--y", "latency"), "--y is of a plot"),
    ],
)
def test_what_predict_refuses(lmp: Lmp, options: tuple[str, ...], message: str) -> None:
    done = lmp("predict", CLASS, *CALL, "--device", "h100-sxm", *options)
    assert done.exit_code == 2
    assert message in done.stderr


def test_plan_refuses_names_before_anything_is_worked_out(lmp: Lmp) -> None:
    options = ("--device", "h100-sxm", "--gpus", "2", "--isl", "1k", "--osl", "16", "--plot", "a.svg")
    done = lmp("plan", CLASS, *options, "--x", "users")
    assert done.exit_code == 2
    assert "--x 'users' is no quantity of this plot\ngive one of per_user" in done.stderr


def test_a_folder_that_cannot_be_written(lmp: Lmp, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = lmp("evaluate", CLASS, *SWEEP, "--plot", "file/a.svg")
    assert done.exit_code == 2
    assert "is a file, not a folder\ngive another folder with `--plot`" in done.stderr
    assert done.stdout == ""


def test_a_full_disk(lmp: Lmp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lmp.store.files.os.fsync", full)
    done = lmp("evaluate", CLASS, *SWEEP, "--plot", "a.svg")
    assert done.exit_code == 2
    assert "the disk is full" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vendor.lock"]


def test_a_missing_extra(lmp: Lmp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts.importlib.util, "find_spec", lambda name: None)
    done = lmp("evaluate", CLASS, *SWEEP, "--plot", "a.html")
    assert done.exit_code == 2
    assert done.stderr == "error: plots need plotly, which is not installed\nrun `pip install 'lmp[report]'`\n"
