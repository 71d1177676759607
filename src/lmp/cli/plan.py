"""``lmp plan``: how to spread a model over GPUs for a stream of requests, under limits."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile, predictor_of
from lmp.cli.output import note, write_json
from lmp.cli.progress import class_of_config, watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from rich.table import Table

    from lmp.predict.plan.options import Option
    from lmp.predict.plan.planning import Planned

MOST_GPUS = 4096
MOST_ROWS = 10
"""Of the front that the table shows; the JSON has all."""
MEMORY = "memory is worked out as vLLM allocates it"
STEADY = "steady stream: TPOT includes waiting for prefills of other requests; TTFT is of a request on an idle replica"


@o.takes("class_path", "module", ..., *o.FOLDERS, "no_atlas", "config", "model_id", *o.PRINTED)
def plan(
    common: o.Common,
    on_device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device; `lmp devices` lists them.")],
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=1, max=MOST_GPUS, help="GPUs in all.")],
    isl: Annotated[
        str,
        typer.Option(
            "--isl", "--cache-len", "-c", metavar="N", help="Tokens of a prompt, which the cache holds then: 4096, 4k."
        ),
    ],
    osl: Annotated[str, typer.Option("--osl", metavar="N", help="Tokens of an answer.")],
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch-size", "-b", metavar="N", help="Requests of a replica at once [default: every number that fits]."
        ),
    ] = None,
    tpot: Annotated[
        str | None, typer.Option("--tpot", metavar="TIME", help="Most time from one token to the next: 30ms.")
    ] = None,
    ttft: Annotated[
        str | None, typer.Option("--ttft", metavar="TIME", help="Most time to the first token, on an idle replica: 1s.")
    ] = None,
    serving: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Engine, or a TOML file with a profile.")
    ] = "vllm",
    as_dtype: Annotated[
        Literal["bfloat16", "fp8"] | None,
        typer.Option("--dtype", help="Dtype of weights and products [default: as the checkpoint stores them]."),
    ] = None,
    kv_type: Annotated[
        Literal["bfloat16", "fp8"] | None, typer.Option("--kv-dtype", help="Dtype of the KV cache [default: bfloat16].")
    ] = None,
    plot: o.Plot = None,
    x: o.PlotX = None,
    y: o.PlotY = None,
    devices_file: DevicesFile = None,
    calibration: CalibrationFolder = None,
) -> None:
    """Plan how to spread a model over GPUs: tensor, expert and pipeline parallelism, replicas, batch.

    Every layout that divides and fits is predicted. The front of tokens/s per GPU against tokens/s per user is shown,
    the most tokens/s per GPU within the limits is the best, and the reasons say what every other choice would give.

    Example: lmp plan Qwen/Qwen3-32B --device h100-sxm --gpus 8 --isl 4096 --osl 512 --tpot 30ms
    """
    from lmp.cli.counts import count_of
    from lmp.predict.plan.limits import Limits, microseconds
    from lmp.predict.plan.planning import Fleet, Requests, planned
    from lmp.predict.plan.plots import axes_of
    from lmp.predict.rewrite.profiles import profile_named

    profile_named(serving)  # an engine that is not known ends the command before anything is expanded
    predictor = predictor_of(devices_file, calibration)
    device = predictor.device(on_device)
    most = None if batch is None else count_of("batch_size", batch)
    requests = Requests(count_of("isl", isl), count_of("osl", osl), most)
    limits = Limits(
        None if tpot is None else microseconds(tpot, "--tpot"), None if ttft is None else microseconds(ttft, "--ttft")
    )
    if as_dtype == "fp8" or kv_type == "fp8":
        device.peak("fp8")
    axes = x or "per_user", o.drawn(plot, x, y) or ("per_gpu",)
    axes_of(*axes)
    named = o.one_of("classes", common.class_path, "--module", common.module)
    common, class_path = chosen(common, named, "plan")
    options = common.options()
    name = class_path or class_of_config(options)
    with watched([name], options, common.quiet) as progress:
        from lmp.atlas.holding import hold
        from lmp.atlas.models import expand_model
        from lmp.predict.eager import beyond_positions
        from lmp.predict.experts import of_many_calls
        from lmp.predict.plan.serving import cache_width, server
        from lmp.predict.serve.lines import experts_of
        from lmp.predict.serve.setup import Servers, Setup, Sources

        model = expand_model(name, options, progress, keep=False).model
        progress(name, "reading")
        held = hold(class_path, options, None)
    servers = Servers(Sources(lambda _: model, lambda _: held), predictor)
    setup = Setup(model=model.class_name, device=device.name, engine=serving, dtype=as_dtype, kv_dtype=kv_type)
    width = Fraction(1) if as_dtype == "fp8" and held.quantised is None else None
    too_long = beyond_positions(held.config, {"cache_len": requests.isl + requests.osl})
    counted = [experts_of(setup.routing)] * bool(of_many_calls(model))
    servers.stepper(setup)  # an engine that no step is predicted for ends the command here
    fleet = Fleet(device, gpus, width, cache_width(servers, setup))
    found = planned(held, fleet, requests, server(servers, setup, requests), limits)
    if common.as_json:
        from lmp.predict.plan.writing import as_json

        about = {"class_name": model.class_name, "device": device.name, "gpus": gpus, "engine": serving}
        write_json({**about, "isl": requests.isl, "osl": requests.osl, **as_json(found)})
    else:
        _print(found, f"{model.class_name.rpartition('.')[2]} on {gpus} x {device.label}, {serving}, "
               f"{requests.isl:,} tokens in, {requests.osl:,} out")  # fmt: skip
    if serving != "vllm":
        note(MEMORY)
    for text in [*filter(None, [too_long]), *counted]:
        note(text)
    if plot is not None:
        from lmp.predict.plan.plots import draw

        draw(found, f"{model.class_name.rpartition('.')[2]} on {gpus} x {device.label}", plot, *axes)
        note(f"{plot} written")


def _print(found: Planned, title: str) -> None:
    from rich.text import Text

    from lmp.cli.tables import console

    screen = console()
    screen.print(Text(title))
    chosen = found.chosen
    screen.print(
        Text(
            f"best: {chosen.layout.words}, batch {chosen.batch:,} each: {chosen.per_gpu:,.0f} tokens/s per GPU, "
            f"{chosen.per_user:,.1f} per user, {chosen.tokens_per_s:,.0f} in all"
        )
    )
    screen.print(_table(found))
    screen.print(Text("why"))
    for reason in found.reasons:
        screen.print(Text(f"  {reason}"))
    note(STEADY)


def _table(found: Planned) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    shown = thinned(found)
    table.add_column("front" if len(shown) == len(found.front) else f"front, {len(shown)} of {len(found.front)}")
    for column in ("batch", "TPOT ms", "80 %", "TTFT ms", "tokens/s/user", "tokens/s/GPU", "tokens/s"):
        table.add_column(column, justify="right")
    for one in shown:
        table.add_row(*map(Text, _cells(one, one == found.chosen)))
    return table


def thinned(found: Planned) -> list[Option]:
    """At most so many of the front, evenly, the best and both ends among them."""
    last = len(found.front) - 1
    kept = {round(place * last / (MOST_ROWS - 1)) for place in range(MOST_ROWS)}
    return [one for place, one in enumerate(found.front) if place in kept or one == found.chosen]


def _cells(one: Option, is_best: bool) -> tuple[str, ...]:
    tpot, low, high = (us / 1e3 for us in one.reply.tpot)
    return (
        one.layout.words + (" *" if is_best else ""), f"{one.batch:,}", f"{tpot:.2f}", f"{low:.2f} to {high:.2f}",
        f"{one.reply.ttft[0] / 1e3:.1f}", f"{one.per_user:,.1f}", f"{one.per_gpu:,.0f}", f"{one.tokens_per_s:,.0f}",
    )  # fmt: skip
