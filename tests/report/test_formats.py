"""Each format, read back by something that lmp did not write."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import gprof2dot
import pytest
import small_models as small
from jsonschema import Draft7Validator, Draft202012Validator
from markdown_it import MarkdownIt
from pyarrow import parquet
from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker
from small_models import basic, module

from lmp.errors import UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.records import Part
from lmp.report.formats import FORMATS, load
from lmp.report.formats.base import Show, one_line
from lmp.report.formats.python import FORMAT as PYTHON
from lmp.report.terminal import Terminal
from lmp.store.schemas import schema

DATA = Path(__file__).parent / "data"
GRID = {"batch_size": (1, 2, 3), "seq_len": (4, 16), "cache_len": (0, 5)}

NASTY = r'a;b | "c" \ & % $ # _ { } ~ ^ <b>*x*</b> [l](u) `t`' + " \n!\r\x00é\u2028"
"""A name with everything in it that some format uses for itself."""


def nasty() -> dict[str, Any]:
    kernels = [basic(1, "7", "8", "9", operation=NASTY), module(2, "p;q", "a.B", [basic(3, "1", "2", "3")])]
    return {"kernels": kernels, "assumptions": ["{seq_len} <= 8"]}


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_registry_knows_what_is_there() -> None:
    files = {file.stem for file in Path(load.__globals__["__file__"]).parent.glob("*.py")}
    assert set(FORMATS) <= files
    for name in FORMATS:
        form = load(name)
        assert form.point or form.model


# --- json, csv, parquet ----------------------------------------------------------------------------------------------


def test_json(written: Any) -> None:
    found = json.loads(written("json"))
    Draft202012Validator(schema("evaluation")).validate(found)
    assert found["totals"]["flops"] == small.FLOPS


def test_a_sweep_as_json_lines(swept: Any) -> None:
    model = {"assumptions": ["{seq_len} <= 8"], "compulsory": None}
    found = [json.loads(line) for line in swept("json", GRID, model=model).splitlines()]
    assert [(r["batch_size"], r["seq_len"], r["cache_len"]) for r in found] == [
        (b, s, c) for b in (1, 2, 3) for s in (4, 16) for c in (0, 5)
    ]
    at = next(r for r in found if (r["batch_size"], r["seq_len"], r["cache_len"]) == (2, 16, 0))
    assert at == {
        **{"batch_size": 2, "seq_len": 16, "cache_len": 0, "w_bytes": 2, "a_bytes": 2, "kv_bytes": 2},
        **{"flops": small.FLOPS, "matmul_flops": small.MATMUL, "read": small.READ, "write": small.WRITE},
        **{"compulsory": None, "intensity": small.FLOPS / (small.READ + small.WRITE), "assumptions_hold": False},
    }
    assert [r["assumptions_hold"] for r in found] == [r["seq_len"] == 4 for r in found]


def test_csv_of_a_point(written: Any) -> None:
    found = list(csv.DictReader(io.StringIO(written("csv"))))
    assert found[0]["flops"] == str(small.FLOPS)
    kernels = [row for row in found if row["kind"] == "kernel"]
    for name, total in (("flops", small.FLOPS), ("read", small.READ), ("write", small.WRITE)):
        assert sum(int(row[name]) for row in kernels) == total
    assert [(row["path"], row["place"]) for row in kernels][2] == ("layers.0.proj", "Linear:31")
    assert float(found[0]["intensity"]) == small.FLOPS / (small.READ + small.WRITE)


def test_csv_of_a_sweep(swept: Any) -> None:
    found = list(csv.DictReader(io.StringIO(swept("csv", {**GRID, "hidden_size": (8, 10**12)}))))
    assert len(found) == 24
    row = next(r for r in found if (r["batch_size"], r["seq_len"], r["hidden_size"]) == ("2", "16", str(10**12)))
    assert row["flops"] == str(3 * (2 * 2 * 16 * 10**24 + 2 * 16 * 10**12))
    assert row["parameters_count"] == str(3 * 10**24)
    assert {r["assumptions_hold"] for r in found} == {"true"}


def test_a_point_at_which_nothing_is_moved(swept: Any) -> None:
    zero = small.model().totals.model_copy(update={"read": "{batch_size} - 1", "write": "0"})
    text = swept("csv", {"batch_size": (1, 2), "seq_len": (1,)}, model={"totals": zero})
    assert next(csv.DictReader(io.StringIO(text)))["intensity"] == ""
    lines = swept("json", {"batch_size": (1, 2), "seq_len": (1,)}, model={"totals": zero}).splitlines()
    assert json.loads(lines[0])["intensity"] is None


def test_parquet_of_a_point(written: Any) -> None:
    table = parquet.read_table(io.BytesIO(written("parquet")))
    found = table.to_pylist()
    assert sum(row["flops"] for row in found if row["kind"] == "kernel") == small.FLOPS
    assert str(table.schema.field("flops").type) == "int64"
    assert json.loads(table.schema.metadata[b"values"])["seq_len"] == 16


def test_parquet_of_a_sweep(swept: Any) -> None:
    found = parquet.read_table(io.BytesIO(swept("parquet", GRID)))
    assert found.num_rows == 12
    row = next(r for r in found.to_pylist() if (r["batch_size"], r["seq_len"], r["cache_len"]) == (2, 16, 0))
    assert (row["flops"], row["read"], row["assumptions_hold"]) == (small.FLOPS, small.READ, True)


def test_parquet_widens_its_columns_to_what_is_in_them(swept: Any) -> None:
    sizes = {"batch_size": (1,), "seq_len": (1, 2), "hidden_size": (8, 9, 10, 11, 10**12, 10**25)}
    table = parquet.read_table(io.BytesIO(swept("parquet", sizes)))
    assert str(table.schema.field("flops").type) == "decimal256(76, 0)"
    expected = [3 * (2 * s * h * h + s * h) for s in (1, 2) for h in sizes["hidden_size"]]
    assert table.column("flops").to_pylist() == [Decimal(value) for value in expected]
    assert str(table.schema.field("seq_len").type) == "int64"
    table = parquet.read_table(io.BytesIO(swept("parquet", {**sizes, "hidden_size": (8, 10**60)})))
    assert table.column("flops").to_pylist()[1] == str(3 * (2 * 10**120 + 10**60))


def test_parquet_without_pyarrow_says_what_to_install(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow, which is not installed\nrun `pip install 'lmp\[parquet\]'`"):
        written("parquet")


# --- markdown, latex -------------------------------------------------------------------------------------------------


def markdown_tables(text: str) -> list[list[list[str]]]:
    """Text of each cell, of each row, of each table."""
    tables: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in pairwise(tokens):
        if before.type == "table_open":
            tables.append([])
        if before.type in ("th_open", "td_open"):
            if before.type == "th_open" and not tables[-1]:
                tables[-1].append([])
            kinds = {child.type for child in token.children or []}
            assert kinds <= {"text", "text_special"}, kinds  # nothing in it became markup
            tables[-1][-1].append("".join(child.content for child in token.children or []))
        if before.type == "tr_open" and token.type == "td_open":
            tables[-1].append([])
    return tables


def test_markdown(written: Any) -> None:
    (found,) = markdown_tables(written("markdown"))
    assert [len(row) for row in found] == [8] * 7
    assert found[1] == ["Root", "1", "100.0%", "13.06 kFLOP", "12.29 kFLOP", "5.760 kB", "3.584 kB", "1.40"]


def test_markdown_escapes(written: Any) -> None:
    text = written("markdown", model=nasty())
    (found,) = markdown_tables(text)
    assert one_line(found[2][0]) == one_line(f"{NASTY} (models.py:1)")
    assert "assumption {seq\\_len} \\<= 8".replace("{", "\\{").replace("}", "\\}") in text


def test_markdown_of_a_sweep(swept: Any) -> None:
    (found,) = markdown_tables(swept("markdown", GRID))
    assert len(found) == 13
    assert found[0][:4] == ["batch_size", "seq_len", "cache_len", "FLOPs"]
    with pytest.raises(UsageError, match=r"2,000 points are too many for markdown, which takes 1,000"):
        swept("markdown", {"batch_size": range(1, 2001), "seq_len": (1,)})


def latex_rows(text: str) -> list[list[str]]:
    """Text of the cells of the only tabular."""
    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    (tabular,) = [node for node in nodes if isinstance(node, LatexEnvironmentNode)]
    assert tabular.environmentname == "tabular"
    body = "".join(node.latex_verbatim() for node in tabular.nodelist)
    body = re.sub(r"^\{[lr]+\}|\\(top|mid|bottom)rule", "", body.strip())
    convert = LatexNodes2Text(keep_braced_groups=False, strict_latex_spaces=True).latex_to_text
    lines = [line for line in re.split(r"\\\\\s*", body) if line.strip()]
    return [[convert(cell).strip() for cell in re.split(r"(?<!\\)&", line)] for line in lines]


def test_latex(written: Any) -> None:
    found = latex_rows(written("latex"))
    assert {len(row) for row in found} == {8}
    assert found[1] == ["Root", "1", "100.0%", "13.06 kFLOP", "12.29 kFLOP", "5.760 kB", "3.584 kB", "1.40"]
    assert found[-1] == ["parameters", "", "", "", "", "", "", "192"]
    assert found[0][0] == "module"


def test_latex_escapes(written: Any) -> None:
    text = written("latex", model=nasty())
    found = latex_rows(text)
    expected = one_line(f"{NASTY} (models.py:1)").replace(
        "^", "\u02c6"
    )  # which is what pylatexenc makes of a circumflex
    assert re.sub(r"\s+", "", found[2][0]) == re.sub(r"\s+", "", expected)
    assert all(sign.isprintable() or sign == "\n" for sign in text)


def test_latex_of_a_sweep(swept: Any) -> None:
    assert [row[:3] for row in latex_rows(swept("latex", GRID))][1] == ["1", "4", "0"]


# --- python ----------------------------------------------------------------------------------------------------------


def python_source(model: dict[str, Any], **given: int) -> str:
    out = io.StringIO()
    assert PYTHON.model is not None
    PYTHON.model(ModelNumbers(small.model(**model)), given, out)
    return out.getvalue()


def executed(source: str, call: str, tmp_path: Path) -> Any:
    """What the call gives in a Python without site packages; integers come back exactly."""
    ast.parse(source)
    file = tmp_path / "cost.py"
    file.write_text(f"{source}\nimport json, sys\njson.dump({call}, sys.stdout)\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_python_function_gives_the_same(tmp_path: Path) -> None:
    points = [{"batch_size": b, "seq_len": s, "cache_len": c} for b in (1, 2) for s in (1, 16) for c in (0, 9)]
    points.append({"batch_size": 2, "seq_len": 16, "hidden_size": 10**30, "w_bytes": 1})
    found = executed(python_source({}), f"[cost(**point) for point in {points!r}]", tmp_path)
    numbers = ModelNumbers(small.model())
    for given, totals in zip(points, found, strict=True):
        assert totals == numbers.totals(values_for(numbers.model, given)).model_dump()
    assert executed(python_source({}), "cost(2, 16)['flops']", tmp_path) == small.FLOPS


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("ceil({batch_size} / 3) + floor({seq_len} / 3)", 6),  # 1 + 5
        ("-(-{batch_size} // 3) * 2 ** 3", 8),
        ("{batch_size} / 3 + {batch_size} / 6", 1),
        ("0.5 * {seq_len} ** 2 // 3 % 5", 2),  # 128 // 3 = 42
        ("where({batch_size} > 1 and not {seq_len} == 3 or {batch_size} < 0, {seq_len}, 1 // 0)", 16),
        ("where({batch_size} == 2, where({seq_len} > 1, 3, 4), 5) * 2", 6),
        ("min({batch_size}, {seq_len}, 7) - max({batch_size}, 3)", -1),
        ("(2 - {seq_len}) ** {batch_size} - (-2) ** 2", 192),  # 196 - 4
        ("4 * {batch_size} ** -1", 2),
        ("ceil({seq_len} ** -1)", 1),
        ("10 - (3 - {batch_size}) - (1 - 2)", 10),
        ("{seq_len} / ({batch_size} * 4) // 1", 2),
        ("{seq_len} - 7 * -{batch_size} % 5", 15),  # (-14) % 5 = 1
        (" + ".join(["{batch_size} * {seq_len}"] * 3000), 96_000),
    ],
)
def test_formulas_in_python(formula: str, expected: int, tmp_path: Path) -> None:
    totals = small.model().totals.model_copy(update={"flops": formula})
    numbers = ModelNumbers(small.model(totals=totals))
    assert numbers.totals(values_for(numbers.model, small.POINT)).flops == expected
    assert executed(python_source({"totals": totals}), "cost(2, 16)['flops']", tmp_path) == expected


def test_what_is_no_integer_is_an_error_in_python_too(tmp_path: Path) -> None:
    totals = small.model().totals.model_copy(update={"flops": "{batch_size} / 3"})
    source = python_source({"totals": totals})
    file = tmp_path / "cost.py"
    file.write_text(f"{source}\ncost(2, 16)\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, check=False)
    assert "ValueError: 2/3 is not an integer" in done.stderr


def test_python_names_texts_and_defaults(tmp_path: Path) -> None:
    names = ("class", "min", "größe", "gr__e", "2nd", "a-b", "cost")
    evil = '"""\nimport os\nos.abort()\n"""\\'
    base = small.model()
    model = {
        "parameters": {**base.parameters, **dict.fromkeys(names, evil)},
        "values": {**base.values, **{name: index for index, name in enumerate(names)}},
        "engine": evil,
        "config": base.config.model_copy(update={"origin": evil + NASTY}),
    }
    source = python_source(model, hidden_size=4)
    (function,) = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "cost"]
    arguments = [argument.arg for argument in function.args.args]
    assert arguments[:2] == ["batch_size", "seq_len"]
    assert len(function.args.defaults) == len(arguments) - 2
    assert {"class_", "min_", "gr__e", "gr__e_", "_2nd", "a_b", "cost_"} <= set(arguments)
    # 3 * (2*2*16*4*4 + 2*16*4)
    assert executed(source, "cost(2, 16)['flops']", tmp_path) == 3_456
    assert "os.abort" in (ast.get_docstring(ast.parse(source)) or "")


def test_python_says_where_it_is_from_and_where_it_holds() -> None:
    parts = {small.ROOT: Part(status="unverified", sha256="0" * 64, uncounted=["aten::x"])}
    tree = ast.parse(python_source({"assumptions": ["{seq_len} <= 8"], "parts": parts}))
    doc = ast.get_docstring(tree) or ""
    for line in (f"What {small.ROOT} costs.", "Source: a 1.0, src/a/models.py", "Formulas: unverified", "aten::x"):
        assert line in doc
    *_, function = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert "Holds where:\n    seq_len <= 8" in (ast.get_docstring(function) or "")


# --- flame graphs ----------------------------------------------------------------------------------------------------


def gprof(text: str) -> Any:
    """The profile as gprof2dot reads it."""
    return gprof2dot.CollapseParser(io.StringIO(text)).parse()


@pytest.mark.parametrize(("weight", "total"), [("flops", 13_056), ("bytes", 9_344), ("read", 5_760), ("write", 3_584)])
def test_folded(written: Any, weight: Any, total: int) -> None:
    text = written("folded", Show(weight=weight))
    profile = gprof(text)
    assert profile[gprof2dot.SAMPLES] == total
    shares = {function.name: function for function in profile.functions.values()}
    assert {"Root", "layers.0 Layer x3", "proj Linear", "matrix product (Linear:31)"} <= set(shares)
    line = next(line for line in text.splitlines() if "matrix product" in line)
    assert line.rpartition(" ")[0] == "Root;layers.0 Layer x3;proj Linear;matrix product (Linear:31)"


def test_folded_names_hold_no_separator(written: Any) -> None:
    text = written("folded", model=nasty())
    profile = gprof(text)
    assert profile[gprof2dot.SAMPLES] == 8
    assert len(profile.functions) == 4  # Root, the operator, the module, its operator
    assert text.count("\n") == len(text.splitlines()) == 2


def test_speedscope(written: Any) -> None:
    for weight, total, unit in (("flops", 13_056, "none"), ("bytes", 9_344, "bytes"), ("write", 3_584, "bytes")):
        found = json.loads(written("speedscope", Show(weight=weight)))
        Draft7Validator(json.loads((DATA / "speedscope-1.25.0-schema.json").read_text())).validate(found)
        profile = found["profiles"][found["activeProfileIndex"]]
        assert (profile["unit"], profile["endValue"], sum(profile["weights"])) == (unit, total, total)
        frames = found["shared"]["frames"]
        stacks = [[frames[i]["name"] for i in sample] for sample in profile["samples"]]
        assert ["Root", "layers.0 Layer x3", "proj Linear", "matrix product (Linear:31)"] in stacks
    assert {"name": "add (layers.py:21)", "file": "layers.py", "line": 21} in frames


def test_speedscope_with_any_names(written: Any) -> None:
    found = json.loads(written("speedscope", model=nasty()))
    Draft7Validator(json.loads((DATA / "speedscope-1.25.0-schema.json").read_text())).validate(found)
    assert f"{NASTY} (models.py:1)" in [frame["name"] for frame in found["shared"]["frames"]]


def test_perfetto(written: Any) -> None:
    found = json.loads(written("perfetto"))
    for event in found["traceEvents"]:  # what npm's @tracerbench/trace-model reads of every event, labels included
        assert {"ph", "name", "cat", "ts", "pid", "tid", "args"} <= set(event)
    slices = [event for event in found["traceEvents"] if event["ph"] == "X"]
    root, layer, add, proj, product = slices
    assert [event["name"] for event in slices][:2] == ["Root", "layers.0 Layer x3"]
    assert root["dur"] == 10**9
    assert root["args"]["flops"] == small.FLOPS
    # 768 of 13,056 FLOPs are the adds', the other 12,288 the Linears'
    assert (add["ts"], add["dur"]) == (0, 768 * 10**9 // 13_056)
    assert (proj["ts"], proj["ts"] + proj["dur"]) == (add["dur"], 10**9)
    assert (product["ts"], product["dur"]) == (proj["ts"], proj["dur"])
    assert layer["args"] == {
        **{"path": "layers.0", "class": small.LAYER, "flops": 13_056, "matmul_flops": 12_288},
        **{"read": 4_992, "write": 3_072, "repeat": 3, "runs": 3},
    }


def test_perfetto_slices_lie_inside_one_another(written: Any) -> None:
    for show in (Show(weight="flops"), Show(weight="bytes")):
        open_until: list[int] = []
        events = [e for e in json.loads(written("perfetto", show))["traceEvents"] if e["ph"] == "X"]
        for event in events:
            start, end = event["ts"], event["ts"] + event["dur"]
            while open_until and open_until[-1] <= start and open_until[-1] < end:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)
        assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)


def test_perfetto_numbers_that_a_browser_cannot_hold_are_text(written: Any) -> None:
    slices = json.loads(written("perfetto", hidden_size=10**10))["traceEvents"]
    root = next(event for event in slices if event["ph"] == "X")
    assert root["args"]["flops"] == str(3 * (2 * 32 * 10**20 + 32 * 10**10))


# --- the table -------------------------------------------------------------------------------------------------------


def test_table(written: Any) -> None:
    text = written("table", Show(width=160))
    row = next(line for line in text.splitlines() if "layers.0 Layer" in line)
    # 4,992 + 3,072 = 8,064 bytes: 13,056 / 8,064 = 1.619. All of the FLOPs are 8 blocks.
    costs = ["13.06", "kFLOP", "12.29", "kFLOP", "8.064", "kB", "4.992", "kB", "3.072", "kB", "1.62"]
    assert row.split() == ["layers.0", "Layer", "3", "100.0%", "████████", *costs]
    assert "2 operators cost nothing at these values and are not shown" in text
    assert re.search(r"compulsory bytes +1\.280 kB", text)
    assert re.search(r"parameters +192", text)


def test_a_narrow_table_has_fewer_columns(written: Any) -> None:
    text = written("table", Show(width=80))
    row = next(line for line in text.splitlines() if "layers.0 Layer" in line)
    assert row.split() == ["layers.0", "Layer", "3", "100.0%", "████████", "13.06", "kFLOP", "8.064", "kB"]
    assert "4 columns hidden: matmul, read, write, intensity; --columns all shows all" in plain(text)


def test_columns_that_are_asked_for_are_there_at_any_width(written: Any) -> None:
    text = written("table", Show(width=20, columns=("flops", "intensity")))
    row = next(line for line in text.splitlines() if line.endswith("1.62"))
    assert row.split()[-3:] == ["13.06", "kFLOP", "1.62"]
    assert "hidden" not in text
    assert "matmul FLOPs  " in written("table", Show(width=20, columns=("all",)))


def test_a_column_that_no_table_has(written: Any) -> None:
    with pytest.raises(UsageError, match=r"the table has no column 'flop': did you mean flops\?"):
        written("table", Show(columns=("flop",)))


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("each", [None, "operator", "category", "module", "line"])
def test_a_table_fits_any_width(written: Any, width: int, each: str | None) -> None:
    lines = written("table", Show(width=width, each=each)).splitlines()
    # The source's own lines keep 8 cells of code: 5 + 2 + 6 + 2 + 8 are 23.
    assert max(map(len, lines)) <= max(width, 23 if each == "line" else 0)
    # 13,056 + 0 FLOPs of the root are asked for: they stand in the first ten lines, the number beside its unit.
    assert any("13.06 kFLOP" in line for line in lines[:10])
    assert not any(re.match(r" *(k|M|G)?(FLOP|B)\b", line) for line in lines)


def test_the_most_expensive_rows_are_marked(written: Any) -> None:
    marked = [line.split()[0] for line in written("table", Show(width=200)).splitlines() if "% *" in line]
    assert marked
    assert "* the most expensive of the parts shown" in written("table")


def test_signs_of_a_terminal_without_unicode() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal = Terminal(file=out, width=40)
    terminal.put("a·b ██ c…d")
    out.flush()
    assert out.buffer.getvalue() == b"a-b ## c~d\n"  # type: ignore[attr-defined]


def test_an_exact_table(written: Any) -> None:
    text = written("table", Show(exact=True, by="bytes"))
    row = next(line for line in text.splitlines() if "layers.0 Layer" in line)
    # 8,064 of 9,344 bytes, and of 8 blocks 6.9
    costs = ["13,056", "12,288", "8,064", "4,992", "3,072", "1.62"]
    assert row.split() == ["layers.0", "Layer", "3", "86.3%", "███████", *costs]
    assert "shares are of the bytes read and written" in text


def test_warnings_stand_in_the_table(written: Any) -> None:
    parts = {small.ROOT: Part(status="unverified", sha256="0" * 64, uncounted=["aten::frob"])}
    text = plain(written("table", model={"parts": parts, "assumptions": ["{seq_len} <= 8"]}))
    assert "UNVERIFIED" in text
    assert f"warning: the formulas of {small.ROOT} are unverified" in text
    assert f"{small.ROOT} has operators without a rule, whose cost is missing: aten::frob" in text
    assert "warning: assumption {seq_len} <= 8 of Root does not hold (seq_len = 16)" in text


@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_is_cut_without_a_word_and_nothing_is_markup(written: Any, width: int) -> None:
    model = {"kernels": [basic(7, "1", "1", "1", operation="[red]a[/red] " + "x" * 190)]}
    text = written("table", Show(width=width), model=model)
    assert all(len(line) <= width for line in text.splitlines())
    assert "[red]a[" in text
    assert "…" in text
    assert "names are cut in the middle" in text


def test_the_ends_of_a_sweep(swept: Any) -> None:
    text = swept("table", {"batch_size": range(1, 101), "seq_len": (1,)}, model={"assumptions": ["{batch_size} < 100"]})
    rows = [
        line.split()[0] for line in text.splitlines() if re.match(r" +(\d+|\.\.\.) ", line) and "points" not in line
    ]
    assert rows == [*map(str, range(1, 9)), "...", *map(str, range(93, 101))]
    assert "100 points, 84 of them not shown" in text
    assert "warning: assumption {batch_size} < 100 does not hold at 1 of 100 points" in plain(text)
    short = swept("table", {"batch_size": range(1, 4), "seq_len": (1,)})
    assert "..." not in short
    assert "3 points\n" in short
