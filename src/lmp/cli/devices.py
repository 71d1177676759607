"""``lmp devices``: the catalogue of datasheets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lmp.cli import options as o
from lmp.cli.output import write_json

if TYPE_CHECKING:
    from lmp.predict.devices import Device
    from lmp.predict.prediction import Predictor

DevicesFile = Annotated[
    Path | None,
    typer.Option("--devices", metavar="FILE", help="TOML file of further devices, in the form of the catalogue."),
]
CalibrationFolder = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="DIR", help="Folder that `lmp calibrate --write` wrote, before lmp's own."),
]


def predictor_of(devices_file: Path | None, calibration: Path | None) -> Predictor:
    """The predictor with a user's devices and calibration, as options name them."""
    from lmp.errors import UsageError
    from lmp.predict.calibration import FOLDER
    from lmp.predict.calibration import calibration as family_of
    from lmp.predict.devices import devices as read
    from lmp.predict.prediction import Predictor

    files = [] if calibration is None else sorted(calibration.glob("*.json"))
    if calibration is not None and not files:
        raise UsageError(f"{calibration} has no calibration\nwrite one with `lmp calibrate ROWS.csv --write DIR`")
    for file in files:
        # A file that cannot be read ends the command, rather than each of its rows.
        family_of(file.stem, file.parent)
    return Predictor(read(devices_file), FOLDER if calibration is None else calibration)


@o.takes(..., "as_json", "debug")
def devices(
    common: o.Common,
    action: Annotated[
        Literal["list", "show"], typer.Argument(help="list: all devices; show NAME: all values of one.")
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The device to show.")] = None,
    devices_file: DevicesFile = None,
) -> None:
    """List the devices that lmp has datasheets of.

    Example: lmp devices show h100-sxm. Peaks are dense; each value has its source.
    """
    from lmp.errors import UsageError
    from lmp.predict.devices import device_named
    from lmp.predict.devices import devices as read

    known = read(devices_file)
    if action == "list":
        if name is not None:
            raise UsageError(f"`lmp devices list` takes no name\nuse `lmp devices show {name}`")
        if common.as_json:
            write_json([_as_json(device) for device in known.values()])
        else:
            _print_all(list(known.values()))
        return
    if name is None:
        raise UsageError("which device?\n`lmp devices` lists them")
    device = device_named(name, known)
    if common.as_json:
        write_json(_as_json(device))
    else:
        _print_one(device)


def _as_json(device: Device) -> dict[str, object]:
    return {**asdict(device), "dense": dict(device.dense), "sources": dict(device.sources)}


def _print_all(known: list[Device]) -> None:
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console

    table = Table(box=None, pad_edge=False)
    for column in ("device", "architecture"):
        table.add_column(column)
    for column in ("bf16 TFLOP/s", "fp8", "GB/s", "GB", "SMs", "L2 MB", "MHz", "W", "link GB/s"):
        table.add_column(column, justify="right")
    for device in known:
        values = (
            device.dense.get("bfloat16", device.dense.get("float16", 0)) / 1e12,
            device.dense.get("fp8", 0) / 1e12,
            device.bandwidth / 1e9,
            device.memory / 1e9,
            device.sms,
            (device.l2 or 0) / 1e6,
            (device.clock or 0) / 1e6,
            device.power or 0,
            (device.link or 0) / 1e9,
        )
        table.add_row(Text(device.name), Text(device.architecture), *(f"{v:g}" if v else "-" for v in values))
    console().print(table)


def _print_one(device: Device) -> None:
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console

    table = Table(box=None, pad_edge=False)
    for column in ("value", "", "source"):
        table.add_column(column, overflow="fold")
    shown = {
        **{f"dense.{dtype}": f"{flops / 1e12:g} TFLOP/s" for dtype, flops in device.dense.items()},
        "bandwidth": f"{device.bandwidth / 1e9:g} GB/s",
        "memory": f"{device.memory / 1e9:g} GB",
        "visible_memory": None if device.visible_memory is None else f"{device.visible_memory / 2**20:g} MiB",
        "sms": str(device.sms),
        "l2": None if device.l2 is None else f"{device.l2 / 1e6:g} MB",
        "clock": None if device.clock is None else f"{device.clock / 1e6:g} MHz",
        "power": None if device.power is None else f"{device.power} W",
        "link": None if device.link is None else f"{device.link / 1e9:g} GB/s, one direction",
        "on_chip": device.on_chip,
    }
    for value, text in shown.items():
        if text is not None:
            table.add_row(value, Text(text), Text(device.sources[value]))
    screen = console()
    screen.print(Text(f"{device.name}: {device.maker} {device.label}, {device.architecture}, of {device.origin}"))
    screen.print(table)
