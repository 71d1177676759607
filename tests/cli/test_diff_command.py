"""`lmp diff`: what it finds, what it prints, and when it fails. On analyses written by hand, in an empty project."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from analyses import LAYER, LINEAR, MLP, kernel, layer, linear, mlp
from fakes import FakePipeline, Lmp
from jsonschema import Draft202012Validator
from typer.testing import Result

from lmp.records import ConfigOrigin, ModuleAnalysis, Quantization, Verification
from lmp.store.results import Store
from lmp.store.schemas import schema

POINT = ("--batch-size", "2", "--seq-len", "16")
CALL = "one call with 16 tokens at batch 2"


def save(folder: str, *found: ModuleAnalysis) -> None:
    for analysis in found:
        Store(Path(folder)).save(analysis.model_copy(update={"engine": "by hand"}))


def dearer(**more: Any) -> ModuleAnalysis:
    """The MLP with its activation twice as dear, two lines further down."""
    kernels = [k.model_copy(update={"line": 177}) for k in mlp().kernels]
    inner = "{batch_size} * {seq_len} * {intermediate_size}"
    kernels[1] = kernels[1].model_copy(update={"flops": f"8 * {inner}"})
    return mlp(kernels=kernels, **more)


@pytest.fixture
def two(lmp: Lmp) -> Lmp:
    """Results in old/ and new/: the MLP, and the one that is dearer."""
    save("old", mlp(), linear())
    save("new", dearer(), linear())
    return lmp


def refused(result: Result, code: int = 2) -> str:
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) <= 2
    return result.stderr


def found(result: Result, code: int = 0) -> dict[str, Any]:
    assert result.exit_code == code, result.stderr
    data: dict[str, Any] = json.loads(result.stdout)
    Draft202012Validator(schema("difference")).validate(data)
    return data


# --- output ----------------------------------------------------------------------------------------------------------


def test_json(two: Lmp) -> None:
    data = found(two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--json"))
    assert (data["a"]["given"], data["b"]["class_name"]) == (f"old/{MLP}", MLP)
    (change,) = data["kernels"]
    assert (change["state"], change["a"]["line"], change["b"]["line"]) == ("changed", 175, 177)
    # 4 * 2*16*32 = 4,096 FLOPs before, 8,192 after; all of the MLP 54,272 (see tests/expand)
    assert (change["a"]["cost"]["flops"], change["change"]["flops"]) == (4_096, 4_096)
    total = data["totals"]["flops"]
    assert (total["a"]["value"], total["change"], total["relative"]) == (54_272, 4_096, 4_096 / 54_272)
    assert data["unchanged"] == 4
    assert (data["fail_above"], data["exceeded"]) == (None, [])
    assert [(line["a"]["line"], line["change"]["flops"]) for line in data["lines"]] == [(175, 4_096)]


def test_the_changes_add_up_to_that_of_the_totals(two: Lmp) -> None:
    wide = layer(values={"hidden_size": 24, "intermediate_size": 32})
    save("old", layer())
    save("new", wide.model_copy(update={"kernels": list(reversed(wide.kernels))}))
    data = found(two("diff", f"old/{LAYER}", f"new/{LAYER}", *POINT, "--json"))
    assert len(data["kernels"]) > 4
    for name in ("flops", "matmul_flops", "read", "write"):
        assert sum(change["change"][name] for change in data["kernels"]) == data["totals"][name]["change"] != 0


def test_the_table(two: Lmp) -> None:
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--exact")
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[:3] == [
        f"A  {MLP}",
        "   transformers 5.23.0 · config: default (LlamaConfig()) · bfloat16 · verified",
        f"   old/{MLP}",
    ]
    # 4,096 of 54,272 are 7.5%, of 4,096 100%
    assert next(line for line in lines if line.startswith("FLOPs ")).split() == [
        *("FLOPs", "54,272", "58,368", "+4,096", "+7.5%")
    ]
    row = next(line for line in lines if line.startswith("changed"))
    assert row.split() == ["changed", "(the", "model)", "4,096", "8,192", "+4,096", "+100.0%", "0"]
    assert "kernel of line 175 modeling_llama.py:175 -> 177" in result.stdout
    assert "4 operators cost the same in both" in result.stdout
    assert result.stderr == ""


def test_formulas_of_the_change(two: Lmp) -> None:
    with_point = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--formulas").stdout
    without = two("diff", f"old/{MLP}", f"new/{MLP}").stdout
    for out in (with_point, without):
        assert "flops  A  4 * {batch_size} * {seq_len} * {intermediate_size}" in out
        assert "       B  8 * {batch_size} * {seq_len} * {intermediate_size}" in out
        assert "read " not in out.partition("changed")[2]  # as it was
    assert "4.096 kFLOP -> 8.192 kFLOP, +4.096 kFLOP +100.0%" in with_point
    assert "FLOP ->" not in without


def test_by_line_and_by_module(two: Lmp) -> None:
    save("old", layer())
    save("new", layer())
    out = two("diff", f"old/{LAYER}", f"new/{LAYER}", *POINT, "--each", "module", "--exact").stdout
    row = next(line for line in out.splitlines() if line.startswith("changed"))
    # Three MLPs: 3 * 54,272 = 162,816, and 3 * 4,096 = 12,288 more
    assert row.split() == ["changed", "mlp", "162,816", "175,104", "+12,288", "+7.5%", "0"]
    out = two("diff", f"old/{LAYER}", f"new/{LAYER}", *POINT, "--each", "line", "--exact").stdout
    rows = [line.split() for line in out.splitlines() if line.startswith("changed")]
    # Line 324 of the layer calls the MLP, and line 175 is all of the MLP: the same three runs, seen from both.
    assert [(row[1], row[-5:-3]) for row in rows] == [
        ("mlp", ["162,816", "175,104"]),
        ("(the", ["162,816", "175,104"]),
    ]
    assert "mlp  modeling_llama.py:175 -> 177" in out
    assert "(the model)  modeling_llama.py:324" in out
    assert "rows overlap and do not add up" in out


def test_top_and_what_is_left(lmp: Lmp) -> None:
    texts = ("first = f(x)", "second = g(x)", "third = h(x)")
    kernels = [kernel(n, f"{n} * {{seq_len}}", "0", "0", code=t, operation=t) for n, t in enumerate(texts, 1)]
    save("old", mlp(kernels=[]))
    save("new", mlp(kernels=kernels))
    out = lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--top", "1").stdout
    assert "third" in out  # 3 * 16 is the largest
    assert "second" not in out
    assert "2 more, +48 FLOP in all: --top 3 shows them" in out  # (1 + 2) * 16


def test_nothing_changed(two: Lmp) -> None:
    result = two("diff", f"old/{MLP}", f"old/{MLP}", *POINT, "--fail-above", "0%")
    assert result.exit_code == 0
    assert "nothing changed: 5 operators cost the same in both" in result.stdout
    assert (
        result.stderr == f"warning: A and B are the same file: {Path('old', MLP, 'module_analysis.json').absolute()}\n"
    )


def test_a_change_that_this_point_does_not_show(lmp: Lmp) -> None:
    save("old", mlp(kernels=[kernel(1, "{seq_len}", "0", "0")]))
    save("new", mlp(kernels=[kernel(1, "{seq_len} * {batch_size}", "0", "0")]))
    out = lmp("diff", f"old/{MLP}", f"new/{MLP}", "--batch-size", "1", "--seq-len", "16").stdout
    assert "1 changed and cost the same at these values: --formulas shows them" in out
    assert "{seq_len}" in lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--formulas").stdout


# --- what is compared ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (f"old/{MLP}", f"new/{MLP}"),
        (f"old/{MLP}/module_analysis.json", f"new/{MLP}/module_analysis.json"),
        (MLP, f"new/{MLP}", "--results", "old"),
        (MLP, MLP, "--results", "old", "--results-b", "new"),
        (MLP, "--results", "old", "--results-b", "new"),
    ],
)
def test_the_ways_to_name_two_results(two: Lmp, arguments: tuple[str, ...]) -> None:
    data = found(two("diff", *arguments, *POINT, "--json"))
    assert data["totals"]["flops"]["change"] == 4_096


def test_a_stored_model_is_compared_as_it_stands(two: Lmp) -> None:
    for folder in ("old", "new"):
        assert two("expand", MLP, "--results", folder, "--quiet").exit_code == 0
    before = {file: file.read_bytes() for file in Path().rglob("*.json")}
    names = (f"old/{MLP}/model_analysis.json", f"new/{MLP}")
    assert found(two("diff", *names, *POINT, "--json"))["totals"]["flops"]["change"] == 4_096
    assert {file: file.read_bytes() for file in Path().rglob("*.json")} == before


def test_a_model_that_is_older_than_its_analyses_is_not_used(two: Lmp) -> None:
    assert two("expand", MLP, "--results", "old", "--quiet").exit_code == 0
    save("old", dearer())
    assert found(two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--json"))["kernels"] == []
    # The file itself is what was asked for here.
    data = found(two("diff", f"old/{MLP}/model_analysis.json", f"new/{MLP}", *POINT, "--json"))
    assert len(data["kernels"]) == 1


def test_configs_side_by_side(lmp: Lmp) -> None:
    wide = ConfigOrigin(name="wide", origin="wide.json")
    save("old", mlp(), mlp(config=wide, values={"hidden_size": 16, "intermediate_size": 32}), linear())
    result = lmp("diff", MLP, f"{MLP}@wide", "--results", "old", *POINT, "--exact")
    assert "values A -> B     hidden_size 8 -> 16" in result.stdout
    text = refused(lmp("diff", MLP, f"{MLP}@wid", "--results", "old", "--quiet"), code=3)
    assert f"did you mean {MLP}@wide?" in text
    # The Linears: 3 * 2*2*16*8*32 = 49,152 more
    row = next(line for line in result.stdout.splitlines() if line.startswith("FLOPs "))
    assert row.split()[-2:] == ["+49,152", "+90.6%"]  # of 54,272
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("values  ") and "FLOP" not in line]
    assert [row[1] for row in rows if row[1].endswith("_proj")] == ["gate_proj", "up_proj", "down_proj"]


def test_a_model_id_goes_through_the_pipeline(lmp: Lmp, fake: FakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmp.analyze import comparing

    save("old", mlp(), linear())
    fake.analyses[MLP] = dearer()
    monkeypatch.setattr(comparing, "expand_model", fake.expand_model)
    monkeypatch.setattr(comparing, "class_of_config", lambda options: MLP)
    data = found(lmp("diff", f"old/{MLP}", "org/name", *POINT, "--json"))
    assert data["totals"]["flops"]["change"] == 4_096
    assert fake.options is not None
    assert fake.options.model_id == "org/name"


def test_a_class_that_is_not_stored_is_made(lmp: Lmp, fake: FakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmp.analyze import comparing

    save("old", dearer(), linear())
    monkeypatch.setattr(comparing, "expand_model", fake.expand_model)
    data = found(lmp("diff", MLP, f"old/{MLP}", "--results", "empty", *POINT, "--json"))
    assert (fake.asked, data["totals"]["flops"]["change"]) == ([MLP], 4_096)


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["7%", "0.07", "0%", "0", "7.5%"])
def test_above_the_limit(two: Lmp, limit: str) -> None:
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--fail-above", limit)
    assert result.exit_code == 4  # 4,096 / 54,272 is 7.547%
    assert result.stderr == f"error: FLOPs rose by 7.5%, from 54,272 to 58,368: above {limit}, at {CALL}\n"
    assert "changed" in result.stdout
    data = found(two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--json", "--fail-above", limit), code=4)
    assert [rise["quantity"] for rise in data["exceeded"]] == ["flops"]


def test_each_limit_has_a_row_with_its_verdict(two: Lmp) -> None:
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--fail-above", "flops=7%,parameters=0")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["limits,", "at", *CALL.split()] in lines
    # 4,096 / 54,272 is 7.5 %; three matrices of 8 and 32 are 768 parameters in both.
    assert ["FLOPs", "54.27", "kFLOP", "58.37", "kFLOP", "+7.5%", "7.0%", "ABOVE"] in lines
    assert ["parameters", "768", "768", "0%", "0%", "within"] in lines
    assert not any(line[:3] == ["bytes", "read", "and"] for line in lines)
    assert "limits" not in two("diff", f"old/{MLP}", f"new/{MLP}", *POINT).stdout


def test_the_phase_of_a_decode_step_is_named() -> None:
    from lmp.report.formats.card import call_in_words

    values = {"batch_size": 16, "seq_len": 1, "cache_len": 8192}
    said = call_in_words(values, [*values]).replace("\u00a0", " ")
    assert said == "decode of 1 token at batch 16 on a cache of 8,192"


@pytest.mark.parametrize("limit", ["7.6%", "0.08", "100%"])
def test_below_the_limit(two: Lmp, limit: str) -> None:
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--fail-above", limit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert two("diff", f"new/{MLP}", f"old/{MLP}", *POINT, "--fail-above", "0").exit_code == 0


def test_a_limit_on_what_does_not_agree_with_execution(two: Lmp) -> None:
    save("new", mlp(verification=Verification(status="failed")))
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--fail-above", "1%")
    assert result.exit_code == 4
    assert "error: the formulas of B do not agree with execution: no limit can be checked" in result.stderr
    assert two("diff", f"old/{MLP}", f"new/{MLP}", *POINT).exit_code == 0


def test_parameters_that_nobody_counted(two: Lmp) -> None:
    save("new", mlp(parameters_count=None))
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--fail-above", "1%")
    assert result.exit_code == 0
    assert "parameters are not checked against --fail-above" in result.stderr
    row = next(line for line in result.stdout.splitlines() if line.startswith("parameters"))
    assert row.split() == ["parameters", "768", "unknown", "unknown"]  # 3 * 8 * 32


# --- warnings --------------------------------------------------------------------------------------------------------


def test_unverified_results_are_shown_as_such(two: Lmp) -> None:
    save("new", mlp(verification=Verification(status="unverified", reason="no time"), uncounted=["aten::frob"]))
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT)
    assert "UNVERIFIED" in result.stdout
    assert result.stderr == (
        f"warning: B: the formulas of {MLP} are unverified\n"
        f"warning: B: {MLP} has operators without a rule, whose cost is missing: aten::frob\n"
    )


def test_a_variable_that_one_of_the_two_has(two: Lmp) -> None:
    more = {**mlp().parameters, "sliding_window": "config.sliding_window"}
    save("new", mlp(values={**mlp().values, "sliding_window": 4}).model_copy(update={"parameters": more}))
    result = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--set", "sliding_window=8")
    assert result.exit_code == 0
    assert "values A -> B     sliding_window none -> 8" in result.stdout
    assert result.stderr == "warning: sliding_window is a variable of B alone: it changes nothing in the other\n"
    assert "sliding_window none -> 4" in two("diff", f"old/{MLP}", f"new/{MLP}", *POINT).stdout


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (f"old/{MLP}", "only one result is given"),
        (f"old/{MLP} new/nothing", "there is no file or folder new/nothing"),
        (f"old/{MLP} missing.json", "there is no file or folder missing.json"),
        (f"old/{MLP} old", "old holds neither a model_analysis.json nor a module_analysis.json"),
        (f"old/{MLP} new/{MLP} --batch-size 1", "seq_len has no value"),
        (f"old/{MLP} new/{MLP} --batch-size 1,2 --seq-len 1", "batch_size is set to 2 values"),
        (f"old/{MLP} new/{MLP} --batch-size 1 --seq-len 1 --set heads=2", "neither of the two has a parameter 'heads'"),
        (f"old/{MLP} new/{MLP} --phase decode --batch-size 1", "--phase decode needs the tokens that the cache holds"),
        (f"old/{MLP} new/{MLP} --fail-above 1%", "--fail-above needs a point: batch_size and seq_len have no value"),
        (f"old/{MLP} new/{MLP} --fail-above 5", "--fail-above 5 is either a share or a percentage"),
        (f"old/{MLP} new/{MLP} --fail-above -1%", "--fail-above '-1%' is not a share"),
        (f"old/{MLP} new/{MLP} --fail-above nan", "--fail-above 'nan' is not a share"),
        (f"old/{MLP} not-a-class", "'not-a-class' is not a class path"),
    ],
)
def test_what_is_refused(two: Lmp, arguments: str, message: str) -> None:
    assert message in refused(two("diff", *arguments.split(), "--quiet"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "does not hold a JSON object"),
        ('{"hidden_size": 8}', "is not an analysis: it has no schema_version"),
        ('{"schema_version": 99}', "was written by a newer lmp: schema version 99"),
        ('{"schema_version": 0, "totals": {}}', "was written by an older lmp: schema version 0"),
        ('{"schema_version": 1}', "is not a valid analysis"),
        ('{"schema_version": 1, "totals": {}}', "is not a valid model analysis"),
    ],
)
def test_a_file_that_is_no_analysis(two: Lmp, content: str, message: str) -> None:
    Path("bad.json").write_text(content)
    text = refused(two("diff", f"old/{MLP}", "bad.json"), code=4)
    assert message in text
    assert "bad.json" in text


def test_a_class_in_neither(two: Lmp) -> None:
    text = refused(two("diff", "a.b.Nowhere", "--results", "old", "--results-b", "new", "--quiet"), code=3)
    assert "no analysis of a.b.Nowhere in " in text
    assert "make it first: lmp expand a.b.Nowhere" in text
    assert "a.b.Nowhere" in Path("old/SCRATCHPAD.md").read_text()
    assert "no analysis of" in refused(two("diff", f"{MLP}@wide", MLP, "--results", "old", "--quiet"), code=3)


def test_a_part_that_is_not_stored(lmp: Lmp) -> None:
    save("old", mlp())
    text = refused(lmp("diff", f"old/{MLP}", f"old/{MLP}", "--quiet"), code=3)
    assert LINEAR in text


def test_a_module_of_analyses_alone(lmp: Lmp) -> None:
    """No call in it, so nothing else is looked for, wherever the file is."""
    save("old", linear())
    Path("copy.json").write_bytes((Path("old") / LINEAR / "module_analysis.json").read_bytes())
    sizes = ("--set", "in_features=8,out_features=32")
    data = found(lmp("diff", f"old/{LINEAR}", "copy.json", *POINT, *sizes, "--json"))
    assert data["kernels"] == []


def test_analyses_of_other_people_are_not_markup(lmp: Lmp) -> None:
    save("old", mlp(kernels=[]))
    save("new", mlp(kernels=[kernel(1, "{seq_len}", "0", "0", code="x = y[/red]", operation="[bold]sum[/nothing]")]))
    out = lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT).stdout
    assert "[bold]sum[/nothing]" in out
    assert "x = y[/red]" in lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--each", "line").stdout


def test_a_quantised_checkpoint_beside_one_that_is_not(lmp: Lmp) -> None:
    config = {"quant_method": "fp8", "weight_block_size": [8, 8], "modules_to_not_convert": ["down_proj"]}
    save("old", mlp(), linear())
    save("new", mlp(quantization=Quantization(config=config, whole=True)), linear())
    data = found(lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--json"))
    # gate and up: 8 * 32 weights of 1 byte in place of 2, and 4 blocks of 8 * 8 with a float32
    assert data["totals"]["read"]["change"] == 2 * (16 - 256)
    assert data["totals"]["flops"]["change"] == 0
    data = found(lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--set", "w_bytes=1/2", "--json"))
    assert data["totals"]["read"]["change"] == 0
    assert data["a"]["values"]["w_bytes"] == 0.5
    save("new", mlp(quantization=Quantization(config={"quant_method": "qqq"}, whole=True)), linear())
    told = lmp("diff", f"old/{MLP}", f"new/{MLP}", *POINT)
    assert "B: the quantization method 'qqq' is not known" in told.stderr


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_number_is_broken_at_any_width(two: Lmp, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmp.cli.tables import console as wide

    whole = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--exact").stdout
    numbers = set(re.findall(r"[+-]?[0-9,.]+%|[+-]?[0-9]+(?:,[0-9]{3})+", whole))
    assert len(numbers) > 4
    monkeypatch.setattr("lmp.cli.tables.console", lambda: type(wide())(width=width, highlight=False))
    text = two("diff", f"old/{MLP}", f"new/{MLP}", *POINT, "--exact").stdout
    assert not numbers - set(re.findall(r"[+-]?[0-9,.]+%|[+-]?[0-9]+(?:,[0-9]{3})+", text))
    assert "…" not in text
