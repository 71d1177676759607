"""Devices: dense peaks, bandwidth and sizes as datasheets state them, each value with its source and the date of it.

``devices.toml`` is the catalogue. A user's TOML file of the same form adds devices, or replaces some of them.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from lmp.errors import UsageError, did_you_mean

CATALOGUE = Path(__file__).with_name("devices.toml")
LARGEST_FILE = 1 << 20
"""Bytes of the largest file of a user."""

Dtype = Literal["float64", "float32", "tfloat32", "float16", "bfloat16", "fp8", "int8", "fp4"]
Text = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]

FLOPS_PER_CLOCK = {
    "turing": 1024,
    "ampere": 2048,
    "ada": 1024,
    "hopper": 4096,
    "blackwell": 8192,
    "cdna3": 2048,
}
"""Architecture -> dense 16-bit FLOP that one multiprocessor starts in a cycle, from the architecture whitepapers."""
TIMES = {"tfloat32": 0.5, "fp8": 2.0}
"""Dtype -> its rate over that of 16 bits on all units that have it."""
RATIO_ROOM = 1.05
ROOM = 1.15
"""A peak may exceed units x clock x FLOP a cycle by this much: datasheets round, and clocks differ by variant."""


class Source(BaseModel):
    """Where some of a device's values come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Text
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}(-\d{2})?$")]
    values: tuple[Text, ...] = Field(min_length=1, max_length=32)


class Sheet(BaseModel):
    """A device as the TOML file has it, in the units of that file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: Text
    maker: Text
    architecture: Text
    aliases: tuple[Name, ...] = Field(default=(), max_length=16)
    dense: dict[Dtype, Positive] = Field(min_length=1)
    bandwidth: Positive
    memory: Positive
    visible_memory: Positive | None = None
    sms: Annotated[int, Field(gt=0, lt=100_000)]
    l2: Positive | None = None
    clock: Positive | None = None
    power: Positive | None = None
    link: Positive | None = None
    on_chip: Text
    sources: tuple[Source, ...] = Field(min_length=1, max_length=32)


SOURCED = ("bandwidth", "memory", "visible_memory", "sms", "l2", "clock", "power", "link", "on_chip")


@dataclass(frozen=True)
class Device:
    """Peak rates and sizes of one device. What is worked out from them alone is a bound: no kernel reaches them."""

    name: str
    label: str
    """The name in reports."""
    maker: str
    architecture: str
    aliases: tuple[str, ...]
    dense: Mapping[str, int]
    """FLOP/s of dense matrix multiplication by dtype; of float32, the rate of the vector units."""
    bandwidth: int
    """Bytes/s of the device's memory."""
    memory: int
    """Bytes, as the datasheet states them."""
    visible_memory: int | None
    """Bytes that the driver offers; None if not stated."""
    sms: int
    """Streaming multiprocessors, compute units or cores."""
    l2: int | None
    """Bytes of the last cache."""
    clock: int | None
    """Hertz, boost."""
    power: int | None
    """Watts."""
    link: int | None
    """Bytes/s to other devices, one direction; None if there is no link."""
    on_chip: str
    """Caches and registers, as text."""
    sources: Mapping[str, str]
    """Value -> title and date of its source."""
    origin: str
    """``catalogue``, or the user's file."""

    def peak(self, dtype: str) -> int:
        """FLOP/s of dense matrix products of this dtype. Raises UsageError if the device has none."""
        if dtype not in self.dense:
            raise UsageError(f"{self.name} has no {dtype} matrix products\nit has {', '.join(self.dense)}")
        return self.dense[dtype]

    @property
    def matmul_flops(self) -> int:
        """FLOP/s of dense 16-bit matrix products."""
        return next(self.dense[dtype] for dtype in ("bfloat16", "float16", "float32") if dtype in self.dense)

    @property
    def other_flops(self) -> int:
        """FLOP/s of everything else: the float32 rate of the vector units, or the matrix rate if none is stated."""
        return self.dense.get("float32", self.matmul_flops)

    @property
    def source(self) -> str:
        """Title of the source of the peaks, without its date."""
        return next(source for value, source in self.sources.items() if value.startswith("dense.")).rpartition(", ")[0]


def devices(file: Path | None = None) -> dict[str, Device]:
    """All devices by name: the catalogue, with the user's file on top."""
    found = dict(_catalogue())
    if file is not None:
        found.update(_read(_text_of(file), str(file)))
        check_names(found, str(file))
    return found


@functools.cache
def _catalogue() -> dict[str, Device]:
    return _read(CATALOGUE.read_text(encoding="utf-8"), "catalogue")


def device_named(name: str, known: Mapping[str, Device] | None = None) -> Device:
    """The device of this name, label or alias, ignoring case. Raises UsageError, with the nearest names, if none is."""
    known = _catalogue() if known is None else known
    names = _names(known)
    wanted = name.lower().replace("_", "-")
    if wanted not in names:
        close = difflib.get_close_matches(wanted, names, n=3)
        listed = f"the names are {', '.join(known)}"
        raise UsageError(f"there is no device {name[:80]!r}\n{did_you_mean(close, listed)}")
    return known[names[wanted]]


def _names(known: Mapping[str, Device]) -> dict[str, str]:
    """Each name, label and alias in lower case -> the device's name."""
    found = {alias: device.name for device in known.values() for alias in (device.label.lower(), *device.aliases)}
    return {**found, **{name: name for name in known}}


def check_names(known: Mapping[str, Device], origin: str) -> None:
    """Raises UsageError if two devices answer to one name."""
    seen: dict[str, str] = {}
    for device in known.values():
        for name in {device.name, device.label.lower(), *device.aliases}:
            if seen.setdefault(name, device.name) != device.name:
                raise UsageError(
                    f"{origin}: {seen[name]} and {device.name} are both called {name!r}\ngive one of them another alias"
                )


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as handle:
            content = handle.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise UsageError(f"{file} is larger than 1 MiB\na file of devices has some lines for each")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}\ngive a TOML file as `lmp devices --help` shows") from error


def _read(text: str, origin: str) -> dict[str, Device]:
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{origin} is no TOML: {error}\nsee `lmp devices --help` for the form") from error
    return {name: _device(name, table, origin) for name, table in tables.items()}


def _device(name: str, table: object, origin: str) -> Device:
    try:
        NamedSheet(name=name)
        sheet = Sheet.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (name[:64], *first["loc"])))
        raise UsageError(
            f"{origin}: {place}: {first['msg']}\nvalues of a device are: {', '.join(Sheet.model_fields)}"
        ) from error
    device = Device(
        name=name,
        label=sheet.label,
        maker=sheet.maker,
        architecture=sheet.architecture,
        aliases=sheet.aliases,
        dense={dtype: round(value * 1e12) for dtype, value in sheet.dense.items()},
        bandwidth=round(sheet.bandwidth * 1e9),
        memory=round(sheet.memory * 1e9),
        visible_memory=None if sheet.visible_memory is None else round(sheet.visible_memory * 2**20),
        sms=sheet.sms,
        l2=_scaled(sheet.l2, 1e6),
        clock=_scaled(sheet.clock, 1e6),
        power=_scaled(sheet.power, 1),
        link=_scaled(sheet.link, 1e9),
        on_chip=sheet.on_chip,
        sources=_sources(name, sheet, origin),
        origin=origin,
    )
    check_dense(device)
    return device


class NamedSheet(BaseModel):
    """The name of a device, which stands in messages and files."""

    name: Name


def _scaled(value: float | None, unit: float) -> int | None:
    return None if value is None else round(value * unit)


def _sources(name: str, sheet: Sheet, origin: str) -> dict[str, str]:
    """Value -> its source. Raises UsageError for a value without a source, and for a source of no value."""
    values = [f"dense.{dtype}" for dtype in sheet.dense] + [v for v in SOURCED if getattr(sheet, v) is not None]
    found = {value: f"{source.title}, {source.date}" for source in sheet.sources for value in source.values}
    without = [value for value in values if value not in found]
    unknown = [value for value in found if value not in values]
    if without:
        raise UsageError(f"{origin}: {name}: no source for {', '.join(without)}\nname each value in one of its sources")
    if unknown:
        raise UsageError(f"{origin}: {name}: a source of {unknown[0]!r}, which is not given\nthe values are {values}")
    return found


def check_dense(device: Device) -> None:
    """Raises UsageError if a 16-bit peak is more than the units can start: makers print such figures with sparsity."""
    per_clock = FLOPS_PER_CLOCK.get(device.architecture)
    if per_clock is None or device.clock is None:
        return
    for dtype, times in TIMES.items():
        peak, most = device.dense.get(dtype, 0), times * device.matmul_flops
        if peak > RATIO_ROOM * most:
            raise UsageError(
                f"{device.origin}: {device.name}: {peak / 1e12:g} TFLOP/s in {dtype} is more than {times:g} "
                f"times that of 16 bits\ngive the dense peaks of both: datasheets print the sparse ones"
            )
    for dtype, times in (("bfloat16", 1), ("float16", 1), ("fp8", 2), ("int8", 2), ("fp4", 6)):
        limit = per_clock * device.sms * device.clock * times * ROOM
        if device.dense.get(dtype, 0) > limit:
            raise UsageError(
                f"{device.origin}: {device.name}: {device.dense[dtype] / 1e12:g} TFLOP/s in {dtype} is more than "
                f"{device.sms} units reach, {limit / 1e12:.0f}\ngive the dense peak: datasheets print the sparse one"
            )
