"""``lmp predict``: how long a call of a model takes on a device, kernel by kernel."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lmp.cli import given as g
from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile, predictor_of
from lmp.cli.on_device import products_of
from lmp.cli.output import note, write_json
from lmp.cli.parallel import DpAttention, Pp
from lmp.cli.progress import class_of_config, watched
from lmp.cli.serving import Load, Replica, refuse_call, serve_all
from lmp.cli.subject import chosen


@o.takes(*(*o.ONE_CLASS, ..., *o.SIZES, *o.FOLDERS, "no_atlas", "config", "model_id", "attn", *o.PRINTED))
def predict(
    common: o.Common,
    on_device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device; `lmp devices` lists them.")],
    each: Annotated[Literal["operator"] | None, typer.Option("--each", help="Every operator, dearest first.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Value of a variable, as batch_size=4.")
    ] = None,
    devices_file: DevicesFile = None,
    calibration: CalibrationFolder = None,
    serving: o.ServingEngine = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --engine: each rewrite, with the source lines that it replaced.")
    ] = False,
    overhead: Annotated[
        float | None,
        typer.Option("--overhead-us", min=0, metavar="US", help="With --engine: host time of a step [default: 0]."),
    ] = None,
    launch: Annotated[
        float | None,
        typer.Option(
            "--launch-us", min=0, metavar="US", help="With --engine: host time of one launch [default: its profile's]."
        ),
    ] = None,
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    pp: Pp = 1,
    dp_attention: DpAttention = False,
    plot: o.Plot = None,
    x: o.PlotX = None,
    y: o.PlotY = None,
    advice: Annotated[
        bool, typer.Option("--next/--no-next", help="Predict what would help most next: one thing changed at a time.")
    ] = True,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Say what the GPU holds, and refuse what does not fit.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Predict the time of a model that does not fit.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Predict what requests get of a server, in place of one call.")
    ] = False,
    in_flight: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help="With --serve: requests in flight, as 1:256:*2.")
    ] = None,
    isl: Annotated[
        str | None, typer.Option("--isl", metavar="N", help="With --serve: tokens of a prompt: 1024, 1k,8k.")
    ] = None,
    osl: Annotated[
        str | None, typer.Option("--osl", metavar="N", help="With --serve: tokens of an answer, at least 2.")
    ] = None,
    stream: Annotated[
        Literal["steady", "wave"] | None,
        typer.Option(
            "--stream",
            help="With --serve: steady: each request that ends is followed by another, whose prompt delays the others; "
            "wave: none is [default: steady].",
        ),
    ] = None,
    prefix: Annotated[
        float | None,
        typer.Option("--prefix", metavar="PART", help="With --serve: part of a prompt that is in the cache, 0 to 1."),
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option(
            "--max-num-batched-tokens", metavar="N", help="With --serve: most new tokens of a step [default: 8k]."
        ),
    ] = None,
    speculative_tokens: Annotated[
        int | None,
        typer.Option("--speculative-tokens", metavar="K", help="With --serve: tokens that a draft proposes a step."),
    ] = None,
    acceptance: Annotated[
        float | None,
        typer.Option("--acceptance", metavar="A", help="With --speculative-tokens: chance that one is taken."),
    ] = None,
    draft_us: Annotated[
        float | None,
        typer.Option("--draft-us", metavar="US", help="With --speculative-tokens: time of the draft [default: 0]."),
    ] = None,
) -> None:
    """Predict how long a call of a model takes on a device: its kernels, one by one, with 80 % intervals.

    The table has the step, its dearest kernels, memory, and what would help most next.

    Examples: lmp predict Qwen/Qwen3-8B --device h100-sxm --phase decode -b 16 -c 8k --each operator; the same with
    --engine vllm --explain: what a serving engine launches in place of these kernels; lmp predict Qwen/Qwen3-8B --serve
    --device h100-sxm,b200-sxm --engine vllm --concurrency 1:256:*2 --isl 1024 --osl 1024: what requests get of it.
    """
    from lmp.predict.shard.parallel import Parallel

    parallel = Parallel(tp, ep, pp, dp_attention)
    load = Load(in_flight, isl, osl, stream, prefix, speculative_tokens, acceptance, draft_us, chunk)
    if serve:
        one_call = {"--each": each, "--set": settings, "--explain": explain or None, "--plot": plot, "--x": x, "--y": y,
                    "--launch-us": launch}  # fmt: skip
        refuse_call(common, one_call)
        replica = Replica(on_device, serving, overhead, force, parallel)
        predictor = predictor_of(devices_file, calibration)
        serve_all(common, predictor, replica, load)
        return
    load.refuse()
    from lmp.cli.predict_engine import chosen_profile
    from lmp.cli.predict_screen import drawn, print_all
    from lmp.errors import UsageError
    from lmp.predict.eager import refuse_products
    from lmp.predict.screen.plots import Axes

    wanted = o.drawn(plot, x, y)
    axes = Axes(x or Axes.x, wanted or Axes.y)
    profile = chosen_profile(serving, explain, overhead, launch)
    predictor = predictor_of(devices_file, calibration)
    found_device = predictor.device(on_device)
    given = g.given_values(common, settings or [])
    if profile is not None and profile.cache_bytes is not None:
        given.setdefault("kv_bytes", [profile.cache_bytes])
    several = next((name for name, values in given.items() if len(values) > 1), None)
    if several is not None:
        sweep = "`lmp evaluate` with the same sizes and --device sweeps: it has the time of each point"
        raise UsageError(f"{several} has several values, and predict takes one call\ngive one; {sweep}")
    products = products_of(common)
    refuse_products(found_device, products)
    named = o.one_of("classes", common.class_path, "--module", common.module)
    common, class_path = chosen(common, named, "predict")
    options = common.options()
    if class_path is None:
        g.need_batch_size(given, common)
    name = class_path or class_of_config(options)
    with watched([name], options, common.quiet) as progress:
        from lmp.atlas.models import expand_model

        model = expand_model(name, options, progress, keep=False).model
    from lmp.predict.screen.asking import Ask, Subject
    from lmp.predict.screen.whole import Wanted, held_of, whole
    from lmp.predict.screen.writing import as_json
    from lmp.report.warnings import of_assumptions, of_the_model, of_the_values

    config = options.found_config
    subject = Subject(model, None if config is None else config.content)
    sizes = {name: values[0] for name, values in given.items()}
    ask = Ask(found_device, sizes, products, profile, serving or "eager", parallel)
    held = held_of(subject, options, ask) if memory else "left out by --no-memory"
    found = whole(subject, ask, predictor, held, Wanted(advice, force))
    now = found.answer
    warnings = [*of_the_model(subject.numbers(ask.given).model), *of_the_values(model, now.values["cache_len"])]
    warnings += [*of_assumptions(now.evaluation.violated_assumptions), *found.warnings, *found.card.notes]
    warnings = list(dict.fromkeys(warnings))
    if common.as_json:
        write_json({**as_json(found, ask.name), "warnings": warnings})
    else:
        print_all(found, serving, each is not None, explain)
    if plot is not None:
        drawn(subject, found, predictor, axes, plot)
    for warning in warnings:
        note(f"warning: {warning}")
