"""``lmp predict``: how long a call of a model takes on a device, kernel by kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile, predictor_of
from lmp.cli.output import note, write_json
from lmp.cli.progress import class_of_config, watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from lmp.predict.devices import Device
    from lmp.predict.eager import CallTime

HOST = "kernels alone: the eager profile's host time is uncalibrated, so a call of many small kernels takes longer"

NO_OVERHEAD = "kernels alone: no overhead of a step was measured; --overhead-us adds one"


@o.takes(*(*o.ONE_CLASS, ..., *o.SIZES, *o.FOLDERS, "config", "model_id", "attn", *o.PRINTED))
def predict(
    common: o.Common,
    on_device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device; `lmp devices` lists them.")],
    each: Annotated[Literal["operator"] | None, typer.Option("--each", help="Every operator, dearest first.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Value of a variable, as batch_size=4.")
    ] = None,
    devices_file: DevicesFile = None,
    calibration: CalibrationFolder = None,
    serving: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Predict what this engine launches: vllm, sglang, trtllm, transformers-eager, transformers-compiled, "
            "or a TOML file with a profile [default: every operator of the class is a kernel].",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --engine: each rewrite, with the source lines that it replaced.")
    ] = False,
    overhead: Annotated[
        float | None,
        typer.Option("--overhead-us", min=0, metavar="US", help="With --engine: host time of a step [default: 0]."),
    ] = None,
) -> None:
    """Predict how long a call of a model takes on a device: its kernels, one by one, with 80 % intervals.

    Examples: lmp predict Qwen/Qwen3-8B --device h100-sxm --phase decode -b 16 -c 8k --each operator; the same with
    --engine vllm --explain: what a serving engine launches in place of these kernels.
    """
    from lmp.cli.predict_engine import chosen_profile, print_engine
    from lmp.errors import UsageError
    from lmp.predict.eager import refuse_products

    profile = chosen_profile(serving, explain, overhead)
    predictor = predictor_of(devices_file, calibration)
    found_device = predictor.device(on_device)
    given = g.given_values(common, settings or [])
    if profile is not None and profile.cache_bytes is not None:
        given.setdefault("kv_bytes", [profile.cache_bytes])
    several = next((name for name, values in given.items() if len(values) > 1), None)
    if several is not None:
        raise UsageError(f"{several} has several values\ngive one: predict has one point")
    products = _products(common)
    refuse_products(found_device, products)
    named = o.one_of("classes", common.class_path, "--module", common.module)
    common, class_path = chosen(common, named, "predict")
    options = common.options()
    if class_path is None:
        g.need_batch_size(given, common)
    name = class_path or class_of_config(options)
    with watched([name], options, common.quiet) as progress:
        from lmp.analyze.models import expand_model

        model = expand_model(name, options, progress, keep=False).model
    from lmp.link.numbers import ModelNumbers
    from lmp.link.quantisation import scheme_of
    from lmp.link.quantised import with_own_bytes
    from lmp.link.sweep import plan
    from lmp.predict.eager import as_json, beyond_positions, time_of_call
    from lmp.report.warnings import of_assumptions, of_the_model, of_the_values

    model = with_own_bytes(model) if "w_bytes" not in given else model
    numbers = ModelNumbers(model)
    values = plan(model, given, 1).fixed
    evaluation = numbers.evaluation(values, numbers.tree(values))
    scheme = scheme_of(model.quantization.config) if model.quantization and model.quantization.applied else None
    step = None
    if profile is not None:
        from lmp.predict.rewrite.timing import OfEngine, Step, time_of_step

        wanted = Step(evaluation.kernels, values, products, scheme)
        step = time_of_step(wanted, profile, OfEngine(predictor, profile.kernels), found_device)
        found = step.call
    else:
        found = time_of_call(evaluation.kernels, predictor, found_device, values, products, scheme)
    warnings = [*of_the_model(model), *of_the_values(model, values["cache_len"])]
    warnings += of_assumptions(evaluation.violated_assumptions)
    config = options.found_config
    too_long = beyond_positions(None if config is None else config.content, values)
    warnings += [] if too_long is None else [too_long]
    if common.as_json:
        about = {"class_name": evaluation.class_name, "device": found_device.name, "profile": serving or "eager"}
        sizes = evaluation.model_dump(mode="json")["values"]
        rewrites = step.as_json() if step is not None else {}
        write_json({**about, "values": sizes, **as_json(found), **rewrites, "warnings": warnings})
    else:
        _print(found, found_device, each is not None)
        if step is not None:
            print_engine(step, explain)
            if not step.overhead_us:
                note(NO_OVERHEAD)
        else:
            note(HOST)
    for warning in warnings:
        note(f"warning: {warning}")


def _products(common: o.Common) -> str:
    from lmp.dtypes import WORDS

    return "bfloat16" if common.element_type is None else WORDS[str(common.element_type)].products


# --- the tables ------------------------------------------------------------------------------------------------------


def _print(found: CallTime, device: Device, each: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console, short

    us, low, high = found.whole
    screen = console()
    screen.print(Text(f"{us / 1e3:.3f} ms on {device.label}, 80 % interval {low / 1e3:.3f} to {high / 1e3:.3f} ms"))
    for what in ("bound", "provenance", "family"):
        told = ", ".join(f"{name} {share:.0%}" for name, share in found.shares(what).items() if share >= 0.005)
        screen.print(Text(f"{what}: {told}"))
    screen.print(Text(f"kernels: {found.launches:,}"))
    for name, error in found.calibrations.items():
        told = "" if error is None else f", median error {error:.1f} % on held-out sites"
        screen.print(Text(f"calibration: {name}{told}"))
    for text in found.extrapolated[:3]:
        screen.print(Text(f"extrapolated: {text}"))
    if not each:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("operator", "line"):
        table.add_column(column)
    for column in ("runs", "us", "low", "high", "ms in all"):
        table.add_column(column, justify="right")
    for column in ("bound", "from"):
        table.add_column(column)
    for one in sorted(found.operators, key=lambda one: -one.us):
        kernel, time = one.kernel, one.time
        table.add_row(
            Text(f"{kernel.path or 'the model'}: {kernel.operation}"),
            Text(f"{short(kernel.class_name)}:{kernel.line}"),
            f"{kernel.repeat:,}", f"{time.us:.2f}", f"{time.low_us:.2f}", f"{time.high_us:.2f}", f"{one.us / 1e3:.3f}",
            time.bound, time.provenance,
        )  # fmt: skip
    screen.print(table)
