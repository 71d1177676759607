"""Bytes that are a fraction, in every format. The small model reads, at 2 bytes an activation element,

    16 tokens, batch 2: 256 + 256 * w + 3 * (3 * 512 + 64 * w) = 4,864 + 448 * w
     1 token,  batch 1:   8 +   8 * w + 3 * (3 *  16 + 64 * w) =   152 + 200 * w

so 258.25 at w = 17/32 and 656/3 at w = 1/3 for one token; 5,102 and 15,040/3 for the others.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import small_models as small
from jsonschema import Draft202012Validator
from pyarrow import parquet

from lmp.formula import Number
from lmp.link.numbers import ModelNumbers
from lmp.link.sweep import plan
from lmp.report.formats.base import Show
from lmp.report.formats.figures import figure, in_full, ratio
from lmp.report.formats.python import FORMAT as PYTHON
from lmp.store.schemas import schema

ONE = {"batch_size": 1, "seq_len": 1}
SIZES = (Fraction(17, 32), Fraction(1, 3), 2)
READ = (Fraction(1033, 4), Fraction(656, 3), 552)


@pytest.mark.parametrize(("size", "read"), [(SIZES[0], 258.25), (SIZES[1], "656/3"), (2, 552)])
def test_json(written: Any, size: Number, read: Any) -> None:
    found = json.loads(written("json", **ONE, w_bytes=size))
    Draft202012Validator(schema("evaluation")).validate(found)
    assert found["totals"]["read"] == read
    assert type(found["totals"]["flops"]) is int
    assert found["values"]["w_bytes"] == (0.53125 if size == SIZES[0] else "1/3" if size == SIZES[1] else 2)


def test_a_whole_sum_of_fractions_is_a_whole_number(written: Any) -> None:
    read = json.loads(written("json", w_bytes=Fraction(17, 32)))["totals"]["read"]
    assert (type(read), read) == (int, 5_102)


def test_sweeps(swept: Any) -> None:
    given = {"batch_size": (1, 2), "seq_len": (1,), "w_bytes": SIZES}
    found = [json.loads(line) for line in swept("json", given).splitlines()]
    assert [row["w_bytes"] for row in found[:3]] == [0.53125, "1/3", 2]
    assert [row["read"] for row in found[:3]] == [258.25, "656/3", 552]
    # 12,... FLOPs are whole; 3 * (2 * 8 * 8 + 8) = 408 over 258.25 + (16 + 3 * 2 * 16) bytes
    assert found[0]["intensity"] == float(408 / Fraction("370.25"))
    rows = list(csv.DictReader(io.StringIO(swept("csv", given))))
    assert [row["read"] for row in rows[:3]] == ["258.25", "656/3", "552"]
    assert [row["w_bytes"] for row in rows[:3]] == ["0.53125", "1/3", "2"]


def test_csv_of_a_point(written: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(written("csv", **ONE, w_bytes=Fraction(1, 3)))))
    assert rows[0]["read"] == "656/3"
    assert sum(Fraction(row["read"]) for row in rows if row["kind"] == "kernel") == READ[1]


def test_parquet(swept: Any, written: Any) -> None:
    given = {"batch_size": (1,), "seq_len": (1,), "w_bytes": SIZES}
    table = parquet.read_table(io.BytesIO(swept("parquet", given, points=1)))
    assert table.column("read").to_pylist() == ["258.25", "656/3", "552"]
    table = parquet.read_table(io.BytesIO(swept("parquet", {**given, "w_bytes": (2, Fraction(17, 32))}, points=1)))
    assert str(table.schema.field("read").type) == "double"
    assert table.column("read").to_pylist() == [552.0, 258.25]
    table = parquet.read_table(io.BytesIO(written("parquet", **ONE, w_bytes=Fraction(1, 3))))
    assert table.column("read").to_pylist()[0] == "656/3"
    assert json.loads(table.schema.metadata[b"values"])["w_bytes"] == "1/3"


def test_tables_for_people_are_rounded(written: Any) -> None:
    text = " ".join(written("table", Show(exact=False), w_bytes=Fraction(1, 3)).split())
    assert "w_bytes = 1/3" in text
    assert "bytes read 5.013 kB" in text  # 5,013.33
    exact = " ".join(written("table", Show(exact=True), **ONE, w_bytes=Fraction(17, 32)).split())
    assert "bytes read 258.25" in exact
    for form in ("markdown", "latex"):
        assert "218.7 B" in written(form, **ONE, w_bytes=Fraction(1, 3))  # 656 / 3 = 218.67


def test_figures() -> None:
    assert figure(Fraction(1, 2), "B") == "0.500 B"
    assert figure(Fraction(1999, 2), "B") == "999.5 B"
    assert figure(Fraction(20001, 2), "B") == "10.00 kB"
    assert (in_full(Fraction(24691, 2)), in_full(Fraction(12346, 3))) == ("12,345.5", "12346/3")
    assert ratio(1, Fraction(1, 3)) == "3.00"


def test_flame_graphs_have_whole_weights(written: Any) -> None:
    lines = written("folded", Show(weight="read"), **ONE, w_bytes=Fraction(1, 3)).splitlines()
    # lookup 8 + 8/3 = 10.67, add 3 * 32, product 3 * (16 + 64/3) = 112, each rounded
    assert sorted(int(line.rpartition(" ")[2]) for line in lines) == [11, 96, 112]
    profiles = json.loads(written("speedscope", Show(weight="read"), **ONE, w_bytes=Fraction(17, 32)))["profiles"]
    read = next(profile for profile in profiles if profile["name"] == "bytes read")
    assert read["endValue"] == 258.25
    events = json.loads(written("perfetto", Show(weight="read"), **ONE, w_bytes=Fraction(1, 3)))
    assert next(e for e in events["traceEvents"] if e["ph"] == "X")["args"]["read"] == "656/3"


@pytest.mark.parametrize("size", ["17/32", "1/3", "0.1", "2"])
def test_python(tmp_path: Path, size: str) -> None:
    out = io.StringIO()
    assert PYTHON.model is not None
    PYTHON.model(ModelNumbers(small.model()), {"w_bytes": Fraction(size)}, out)
    calls = f"print(*(str(v) for v in (cost(1, 1)['read'], cost(1, 1, w_bytes={size!r})['read'])))"
    file = tmp_path / "cost.py"
    file.write_text(f"{out.getvalue()}\n{calls}\nprint(cost(1, 1, w_bytes=0.1)['read'])\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, check=False)
    expected = 152 + 200 * Fraction(size)
    assert done.stdout.split() == [str(expected), str(expected), "172"], done.stderr  # 152 + 200 * 0.1


@pytest.mark.parametrize("size", ["0", "-1", "float('nan')", "'1/0'"])
def test_python_refuses_what_is_no_size(tmp_path: Path, size: str) -> None:
    out = io.StringIO()
    assert PYTHON.model is not None
    PYTHON.model(ModelNumbers(small.model()), {}, out)
    file = tmp_path / "cost.py"
    file.write_text(f"{out.getvalue()}\ncost(1, 1, w_bytes={size})\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Error" in done.stderr


def test_each_point_of_a_sweep_is_the_point_by_itself() -> None:
    numbers = ModelNumbers(small.model())
    given: dict[str, Any] = {"batch_size": (1, 2), "seq_len": (1, 16), "w_bytes": SIZES, "a_bytes": (1, Fraction(1, 2))}
    found = plan(numbers.model, given)
    assert found.size == 24
    rows = [
        dict(zip((*chunk.values, *chunk.costs), row, strict=True))
        for chunk in found.chunks(numbers, 7)
        for row in zip(*(array.tolist() for array in (*chunk.values.values(), *chunk.costs.values())), strict=True)
    ]
    for row in rows:
        totals = numbers.totals({name: row[name] for name in found.names})
        assert {name: row[name] for name in numbers.quantities} == dict(totals)
        assert row["kv_bytes"] == row["a_bytes"]
