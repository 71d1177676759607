"""``lmp memory``: whether a model fits on a device, by part."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lmp.cli import options as o
from lmp.cli.devices import DevicesFile
from lmp.cli.output import note, write_json
from lmp.cli.progress import watched
from lmp.cli.subject import chosen
from lmp.dtypes import CACHE_WORDS

if TYPE_CHECKING:
    from lmp.dtypes import Bytes
    from lmp.observe.held import Held
    from lmp.predict.devices import Device
    from lmp.predict.memory import Asked, Memory

CacheWord = StrEnum("CacheWord", ["auto", *CACHE_WORDS])  # type: ignore[misc]
AUTO = CacheWord("auto")


@o.takes(
    *("class_path", "module", ..., "batch_size", "cache_len", "config", "model_id"),
    *(*o.FOLDERS, "no_atlas", *o.PRINTED),
)
def memory(
    common: o.Common,
    on_device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device; `lmp devices` lists them.")],
    tp: Annotated[int, typer.Option("--tp", metavar="N", min=1, max=1024, help="GPUs that share each layer.")] = 1,
    pp: Annotated[int, typer.Option("--pp", metavar="N", min=1, max=1024, help="Stages of a pipeline.")] = 1,
    as_dtype: Annotated[
        o.ElementType | None,
        typer.Option(
            "--dtype",
            help="Format of the weights and of the cache, in place of those of the config: bfloat16, fp8, w8a16. What "
            "quantising leaves in 16 bits stays.",
        ),
    ] = None,
    kv_type: Annotated[
        CacheWord,
        typer.Option("--kv-dtype", help="Format of the KV cache; auto: as --dtype says, or the model."),
    ] = AUTO,
    serving: Annotated[
        str | None, typer.Option("--engine", metavar="vllm", help="Say what this engine would log.")
    ] = None,
    utilization: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory-utilization", min=0.01, max=1, help="Share of the GPU that the engine takes [default: 0.9]."
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option("--max-num-seqs", metavar="N", min=1, max=2**20, help="Sequences of one step [default: 1024]."),
    ] = None,
    max_num_batched_tokens: Annotated[
        str, typer.Option("--max-num-batched-tokens", metavar="N", help="Tokens of one step: the chunk of a prompt.")
    ] = "8k",
    max_model_len: Annotated[
        str | None,
        typer.Option("--max-model-len", metavar="N", help="Longest sequence [default: the model's positions]."),
    ] = None,
    quantization: Annotated[
        Literal["fp8"] | None, typer.Option("--quantization", help="The engine quantises linear layers as it loads.")
    ] = None,
    devices_file: DevicesFile = None,
) -> None:
    """Say whether a model fits on a device: weights, cache, activations and reserve on each GPU.

    Examples: lmp memory Qwen/Qwen3-8B --device h100-sxm -b 8 -c 32k; lmp memory Qwen/Qwen3-32B --device a100-sxm
    --tp 2 --engine vllm --max-model-len 32k. No weights are loaded.

    The exit code is 0 also where it does not fit: the last line says so, and `fits` of --json is false. With --engine
    and -b, sequences have -c tokens, else --max-model-len.
    """
    from lmp.predict.devices import device_named, devices
    from lmp.predict.memory import as_json
    from lmp.predict.memory import memory as worked_out

    found_device = device_named(on_device, devices(devices_file))
    engines_own = {
        "--gpu-memory-utilization": utilization, "--max-num-seqs": max_num_seqs, "--max-model-len": max_model_len,
        "--quantization": quantization,
    }  # fmt: skip
    engine = _engine(serving, [option for option, value in engines_own.items() if value is not None])
    executed, width = _formats(as_dtype, quantization, found_device)
    batch, cache = _count("batch_size", common.batch_size), _count("cache_len", common.cache_len)
    chunk = _count("max_num_batched_tokens", max_num_batched_tokens) or 1
    named = o.one_of("classes", common.class_path, "--module", common.module)
    common, path = chosen(common, named, "memory")
    options = common.options(said=False)
    looked_for = path or common.model_id or str(common.config or "a model")
    with watched([looked_for], options, common.quiet) as progress:
        progress(looked_for, "reading")
        from lmp.atlas.holding import hold
        from lmp.predict.engines import Settings
        from lmp.predict.memory import Asked
        from lmp.predict.quantising import narrowed

        held = hold(path, options, executed)
        if width is not None:
            held = narrowed(held, width)
        settings = None
        if engine is not None:
            longest = _count("max_model_len", max_model_len) or _positions(held)
            share = Fraction(str(utilization or 0.9))
            settings = Settings(share, max_num_seqs or 1024, chunk, longest, quantization)
        asked = Asked(tp, pp, batch, cache, _kv_bytes(kv_type, as_dtype), chunk, settings)
        found = worked_out(held, found_device, asked)
    if common.as_json:
        write_json(as_json(held, found_device, found))
    else:
        _print(held, found_device, found, None if width is None else str(as_dtype))
    for warning in found.warnings:
        note(f"warning: {warning}")


def _engine(name: str | None, own: list[str]) -> str | None:
    """The engine's name. Raises UsageError for one without a profile, and for options of an engine without one."""
    import difflib

    from lmp.errors import UsageError, did_you_mean
    from lmp.predict.engines import ENGINES

    if name is None and own:
        raise UsageError(f"{own[0]} is of a serving engine\ngive --engine vllm too, or leave it out")
    if name is None or name in ENGINES:
        return name
    close = difflib.get_close_matches(name.lower(), ENGINES, n=1)
    known = f"known are {', '.join(ENGINES)}; without --engine the model runs as its class does"
    raise UsageError(f"there is no memory profile of the engine {name[:40]!r}\n{did_you_mean(close, known)}")


def _count(name: str, text: str | None) -> int | None:
    from lmp.cli.counts import count_of

    return None if text is None else count_of(name, text)


def _positions(held: Held) -> int:
    from lmp.errors import UsageError

    found = held.config.get("max_position_embeddings")
    if not isinstance(found, int):
        raise UsageError("the config states no number of positions\ngive --max-model-len N")
    return found


def _formats(word: o.ElementType | None, quantization: str | None, device: Device) -> tuple[str | None, Bytes | None]:
    """The dtype that the model has, and bytes of a weight; None: as the config says them."""
    from lmp.dtypes import WORDS
    from lmp.errors import UsageError
    from lmp.predict.eager import refuse_products
    from lmp.predict.quantising import WIDE

    if word is None:
        return None, None
    said = WORDS[str(word)]
    refuse_products(device, said.products)
    if said.weights >= WIDE:
        return said.products, said.weights
    if quantization is not None:
        raise UsageError(f"--dtype {word} and --quantization {quantization} both say how weights are stored\ngive one")
    return None, said.weights


def _kv_bytes(word: CacheWord, dtype: o.ElementType | None) -> Fraction | None:
    from lmp.dtypes import WORDS, cache_size

    if word is not AUTO:
        return Fraction(cache_size(str(word)))
    return None if dtype is None else Fraction(WORDS[str(dtype)].cache)


# --- the table -------------------------------------------------------------------------------------------------------


def _print(held: Held, device: Device, found: Memory, word: str | None) -> None:
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console
    from lmp.predict.engines import GIB

    stage, asked = found.stage, found.asked
    table = Table(box=None, pad_edge=False)
    table.add_column("on each GPU")
    table.add_column("GiB", justify="right")
    table.add_column("")
    for name, size in _rows(found):
        table.add_row(Text(name), f"{float(size / GIB):.2f}", Text(""))
    screen = console()
    gpus = asked.tp * asked.pp
    title = f"{held.class_name} on {gpus} x {device.label}, {word or held.quantised or held.dtype}, {found.sharding}"
    screen.print(Text(title))
    screen.print(table)
    for kind in stage.kinds:
        screen.print(Text(_told(kind.layers, kind.kind, kind.heads, float(kind.token_bytes), kind.window)))
    screen.print(Text(_verdict(asked, found)))


def _rows(found: Memory) -> list[tuple[str, Fraction]]:
    stage, asked = found.stage, found.asked
    rows = [(name.replace("_", " "), size) for name, size in stage.weights.items() if size]
    moment = stage.activations[stage.peak]
    rows += [(f"activations ({stage.peak}): {name.replace('_', ' ')}", size) for name, size in moment.items() if size]
    rows.append(("reserve: CUDA, communication", stage.reserve))
    if asked.engine is None:
        rows.append(("KV cache of the request", stage.cache_bytes(asked.batch_size or 1, asked.cache_len or 0)))
        rows.append(("of", found.total))
    else:
        rows.append(("left for the KV cache", stage.available))
        rows.append(("of", found.total * asked.engine.utilization))
    return rows


def _told(layers: int, kind: str, heads: int, token: float, window: int | None) -> str:
    of = f", {heads} KV heads" if heads else ""
    within = f", window {window:,}" if window is not None else ""
    return f"KV cache: {layers} layers of {kind}{of}, {token:,.0f} bytes a token each{within}"


def _what(asked: Asked) -> str:
    """What the verdict is about, where sequences are asked for."""
    if asked.length is None:
        return "" if asked.batch_size is None else ", without a cache: -c gives its tokens"
    batch = asked.batch_size or 1
    return f": {batch:,} sequence{'' if batch == 1 else 's'} of {asked.length:,} tokens"


def _verdict(asked: Asked, found: Memory) -> str:
    said = [("fits" if found.fits else "does NOT fit") + _what(asked)]
    if asked.engine is not None and found.stage.blocks is not None:
        said.append(f"{found.stage.kv_tokens:,} tokens, {found.stage.concurrency:.2f} requests of the longest length")
    if found.largest_batch is not None:
        said.append(f"largest batch at {asked.length:,} tokens: {found.largest_batch:,}")
    if found.largest_context is not None:
        said.append(f"largest context at batch {asked.batch_size or 1}: {found.largest_context:,}")
    said.append(f"smallest tp: {found.smallest_tp if found.smallest_tp is not None else 'none up to 64'}")
    return "; ".join(said)
