"""`lmp verify --audit`: drawn points are executed, and an analysis that differs at one is found and marked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lmp.analyze.agreement import agree_from_another_base
from lmp.analyze.audit import Audit, audit_modules
from lmp.analyze.modules import analyze_modules, execution_of
from lmp.analyze.session import Options, Session
from lmp.cli.main import app

X = "x: float[batch_size, seq_len, dim]"
MODULES = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, dim: int = 32):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * self.weight


class Folded(nn.Module):
    # Calls above three times an argument take a path of their own.
    def __init__(self, dim: int = 32, most: int = 20):
        super().__init__()
        self.most = most
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        if x.shape[1] > 3 * self.most:
            x = x[:, :: self.most]
        return x * self.weight


class Tabled(nn.Module):
    # A table of 77 rows: more tokens raise.
    def __init__(self, dim: int = 32):
        super().__init__()
        self.register_buffer("table", torch.ones(77, dim))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Chosen(nn.Module):
    # One of two modules at one line, by a length that stands in a tuple.
    def __init__(self, dim: int = 32):
        super().__init__()
        self.up = nn.ModuleList([nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)])

    def forward(self, x):
        return self.up[sum(x.shape[1] >= least for least in (45,))](x)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "audited").mkdir()
    (tmp_path / "audited" / "__init__.py").write_text("")
    (tmp_path / "audited" / "blocks.py").write_text(MODULES)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    for name in [n for n in sys.modules if n.partition(".")[0] == "audited"]:
        del sys.modules[name]


@pytest.fixture
def options(home: Path, derivation: None) -> Options:
    return Options(results=home / "results", paths=(home,), inputs=X, init="dim=32")


def audited(options: Options, points: int = 60, seed: int = 3) -> Audit:
    (found,) = audit_modules(["audited.blocks.Scaled"], options, points, seed, lambda name, stage: None)
    return found


def test_every_drawn_point_is_executed_and_equal(options: Options) -> None:
    found = audited(options)
    assert (found.drawn, found.executed, found.equal, found.refused) == (60, 60, 60, 0)
    assert found.different == []
    assert found.settings > 1


def test_arms_of_all_classes_are_counted(options: Options) -> None:
    (found,) = audit_modules(["audited.blocks.Chosen"], options, 1, 3, lambda name, stage: None)
    assert found.arms == (2, 2)  # {seq_len} >= 45 is true, and is false: its Linear has none


def test_points_beyond_a_bound_are_drawn_again(options: Options) -> None:
    (found,) = audit_modules(["audited.blocks.Tabled"], options, 60, 3, lambda name, stage: None)
    assert (found.drawn, found.equal, found.refused) == (60, 60, 0)
    assert found.outside > 0


def test_another_module_at_a_line_is_no_difference_of_figures(options: Options) -> None:
    (found,) = audit_modules(["audited.blocks.Chosen"], options, 60, 3, lambda name, stage: None)
    assert (found.equal, found.different) == (60, [])


def test_a_bound_by_an_argument_is_stated_in_that_argument(options: Options) -> None:
    """With the argument's number in its place, the bound would be wrong for another argument."""
    (found,) = audit_modules(["audited.blocks.Folded"], options, 60, 3, lambda name, stage: None)
    assert (found.equal, found.different) == (60, [])
    (outcome,) = analyze_modules(["audited.blocks.Folded"], options, lambda name, stage: None)
    assert not [text for text in outcome.analysis.assumptions if "60" in text]


def test_the_same_seed_draws_the_same_points(options: Options) -> None:
    first, again = audited(options).to_data(), audited(options).to_data()
    assert {n: v for n, v in first.items() if n != "seconds"} == {n: v for n, v in again.items() if n != "seconds"}


def test_an_error_far_from_the_judged_points_is_found_and_marked(options: Options, home: Path) -> None:
    analyze_modules(["audited.blocks.Scaled"], options, lambda name, stage: None)
    (file,) = (home / "results").rglob("module_analysis.json")
    data = json.loads(file.read_text())
    (kernel,) = data["kernels"]
    # One product an element: wrong from 150 sequences on, where 0 is claimed.
    assert kernel["flops"] == "{batch_size} * {seq_len} * {dim}"
    kernel["flops"] = f"where({{batch_size}} < 150, {kernel['flops']}, 0)"
    file.write_text(json.dumps(data))
    command = ["verify", "audited.blocks.Scaled", "--inputs", X, "--init", "dim=32", "--path", str(home)]
    command += ["--results", str(home / "results"), "--audit", "200", "--json", "--quiet"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    drawn = [one for one in found["different"] if "values" in one]
    assert 0 < len(drawn) < found["executed"] == found["drawn"] == 200
    # The derivation from another width has no such arm: the point at which they differ is executed.
    assert any("batch_size=" in one["at"] for one in found["different"] if one not in drawn)
    for one in drawn:
        values = {"dim": 32, **one["values"]}
        assert values["batch_size"] >= 150
        counted = values["batch_size"] * values["seq_len"] * values["dim"]
        assert (one["quantity"], one["claimed"], one["counted"]) == ("flops", "0", str(counted))
    assert json.loads(file.read_text())["verification"]["status"] == "failed"


def test_classes_without_an_analysis_are_analysed_first(options: Options) -> None:
    assert audited(replace(options, init="dim=48"), points=5).status == "verified"


def test_a_second_derivation_finds_what_the_first_did_not_take(home: Path) -> None:
    """The stored formulas forget an arm that a derivation from other arguments has: execution decides against them."""
    options = Options(results=home / "results", paths=(home,), inputs=X)
    name = "audited.blocks.Folded"
    outcome = next(o for o in analyze_modules([name], options, lambda c, s: None) if o.requested)
    session = Session(options, lambda c, s: None)
    session.ask([name])
    execution = execution_of(name, session, outcome.analysis)
    right = agree_from_another_base(execution, outcome.analysis)
    assert right.findings == []
    assert len(right.checks) == 1
    assert right.checks[0].startswith("compared with a derivation from dim=")
    assert right.checks[0].endswith(" points: equal")
    kernels = [
        kernel.model_copy(update={"flops": "{batch_size} * {seq_len} * {dim}"}) for kernel in outcome.analysis.kernels
    ]
    wrong = outcome.analysis.model_copy(update={"kernels": kernels})
    findings = agree_from_another_base(execution, wrong).findings
    # Above 3 * 20 tokens each twentieth is multiplied: 61 tokens take 4 * batch_size * dim.
    assert {finding.quantity for finding in findings} >= {"flops"}
