"""Rows that `benchmarks/gpu_capture.py` measured, against what lmp predicts for the same calls.

    python benchmarks/gpu_scores.py [benchmarks/measured/h100-sxm.json] [--rows] [--write docs/prediction.md]

The name of the file is that of the device. A random half of the calls calibrates the host's time of a launch; errors
are of the other half. Errors are 100 * (predicted / measured - 1). No GPU is needed. `--write` replaces the tables of a
page.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from lmp.analyze.session import Options
from lmp.atlas.asking import atlas_folder, with_atlas
from lmp.atlas.models import class_of_config, expand_model
from lmp.errors import LmpError
from lmp.formula import Number
from lmp.predict.devices import Device
from lmp.predict.eager import by_peaks
from lmp.predict.engines import non_torch
from lmp.predict.prediction import Prediction, Predictor, Total
from lmp.predict.rows import row_of
from lmp.predict.screen.asking import EAGER, Ask, Subject, answer, asked_for
from lmp.predict.screen.room import Room, room_or_why
from lmp.predict.screen.whole import held_quickly

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured" / "h100-sxm.json"
BEGIN, END = "<!-- scores: benchmarks/gpu_scores.py -->", "<!-- scores end -->"
CLONE_US = 4.72
"""A loop of clone() on another host (docs/prediction.md): it says how much faster a host can be."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """A measured figure, and the predicted one with its 80 % interval."""

    measured: float
    predicted: Total

    @property
    def error(self) -> float:
        return 100 * (self.predicted[0] / self.measured - 1)

    @property
    def inside(self) -> bool:
        return self.predicted[1] <= self.measured <= self.predicted[2]


@dataclass(frozen=True)
class Compared:
    """One call of a model."""

    row: Row
    launches: int
    step: Pair
    kernels: Pair
    """What the device takes without the host."""
    memory: Pair | None
    """Bytes that PyTorch allocates: weights, cache, and what the call adds."""
    calibrates: bool = False

    @property
    def name(self) -> str:
        return f"{self.row['model'].partition('/')[2]}, {self.row['attention']}"

    @property
    def started(self) -> int:
        """Kernels and copies that ran."""
        return int(self.row["launches"] + self.row["copies"])

    @property
    def waits_for_host(self) -> bool:
        return bool(self.row["wall_us"][0] > 1.1 * self.kernels.measured)

    @property
    def a_launch(self) -> float:
        """Microseconds of the host for each launch that lmp counts."""
        return float(self.row["host_us"][0]) / self.launches


def compared(rows: Sequence[Row], device: str) -> list[Compared]:
    halves = set(random.Random(0).sample(range(len(rows)), len(rows) // 2))
    predictor = Predictor()
    return [
        _compared(row, asked_for(predictor.device(device), sizes_of(row), EAGER, ("bfloat16", None)), predictor, half)
        for row, half in ((row, number in halves) for number, row in enumerate(rows))
    ]


def sizes_of(row: Row) -> dict[str, Number]:
    return {"batch_size": row["batch"], "seq_len": row["new"], "cache_len": row["cached"]}


@functools.cache
def expanded(model: str, attention: str) -> tuple[Subject, Options]:
    """The model, from the atlas where that has it; else it is derived, and nothing is stored."""
    folder = Path(tempfile.mkdtemp())
    options = with_atlas(Options(folder, attention=attention, model_id=model), atlas_folder())
    found = expand_model(class_of_config(options), options, lambda *_: None).model
    return Subject(found, None if options.found_config is None else options.found_config.content), options


def _compared(row: Row, ask: Ask, predictor: Predictor, calibrates: bool) -> Compared:
    subject, options = expanded(row["model"], row["attention"])
    found = answer(subject, ask, predictor)
    room = room_or_why(held_quickly(subject, options, ask.given, 1), ask, subject)
    memory = None
    if isinstance(room, Room):
        predicted = float(room.held - non_torch(1))
        memory = Pair(row["weights"] + row["cache"] + row["peak"] - row["held"], (predicted,) * 3)
    return Compared(
        row, found.call.launches, Pair(row["wall_us"][0], found.us),
        Pair(row.get("graph_us", row["device_us"]), found.call.whole), memory, calibrates,
    )  # fmt: skip


# --- kernels ---------------------------------------------------------------------------------------------------------


def kernel_pair(row: Row, device: Device, predictor: Predictor) -> Pair:
    """One launch of a kernel. Its operands are cold where the rows are many times the cache."""
    launches = row.get("calls", 1)
    found = _kernel(row, device, predictor)
    return Pair(row["cold_us"] / launches, (found.us, found.low_us, found.high_us))


def _kernel(row: Row, device: Device, predictor: Predictor) -> Prediction:
    op = row["op"]
    if op in ("batched", "grouped"):
        m, n, k = row.get("m", row.get("rows")), row["n"], row["k"]
        flops = 2 * row.get("batch", 1) * m * n * k
        matrices = row["batch"] if op == "batched" else min(row["experts"], row["rows"])
        rows = row.get("batch", 1) * m
        return by_peaks(flops, 2 * (rows * (k + n) + matrices * n * k), False, device, "bfloat16")
    fields = {"device": device.name, "op": op}
    if op in ("pointwise", "norm"):
        launches = row.get("calls", 1)
        fields |= {name: row[name] // launches for name in ("read", "written")}
    elif op == "gemm":
        fields |= {"dtype": "bfloat16", **{name: row[name] for name in ("m", "n", "k")}}
    else:
        names = ("phase", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")
        fields |= {"dtype": "bfloat16", "causal": True, **{name: row[name] for name in names}}
    (found,) = predictor.predict([row_of(fields)])
    if isinstance(found, LmpError):
        raise found
    return found


def kind_of(row: Row) -> str:
    if row["op"] == "attention":
        return f"sdpa, {row['phase']}"
    if row["op"] == "gemm":
        return "product with a weight" + (" and a bias" if row["kind"] == "linear_bias" else "")
    named = {"batched": "batched product", "grouped": "grouped product", "norm": "mean, softmax, layer norm"}
    return named.get(row["op"], "pointwise, copies, row lookup")


# --- tables ----------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def errors(pairs: Sequence[Pair], intervals: bool = True) -> list[object]:
    """Number of rows, median size of the errors, median error, and the share of rows inside their interval."""
    if not pairs:
        return [0, "", "", ""][: 4 if intervals else 3]
    found: list[object] = [
        len(pairs), f"{median(abs(pair.error) for pair in pairs):.1f}", f"{median(pair.error for pair in pairs):+.1f}",
    ]  # fmt: skip
    return [*found, f"{100 * sum(pair.inside for pair in pairs) / len(pairs):.0f} %"] if intervals else found


def grouped(found: Iterable[Any], key: Callable[[Any], str]) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = defaultdict(list)
    for one in found:
        made[key(one)].append(one)
    return made


def launch_us(found: Sequence[Compared], clone_us: float) -> Total:
    """The host's time of a launch: the median of calls that wait for it, one with a faster clone(), the slow tenth."""
    times = [one.a_launch for one in found if one.waits_for_host]
    middle = median(times)
    return middle, middle * CLONE_US / clone_us, quantiles(times, n=10)[-1]


def tables(measured: Mapping[str, Any], found: Sequence[Compared], device: Device) -> Iterable[str]:
    about, predictor = measured["about"], Predictor()
    clone = next(row["host_us"][0] for row in measured["host"] if row["operator"] == "clone")
    middle, low, high = launch_us([one for one in found if one.calibrates], clone)
    held = [one for one in found if not one.calibrates]
    yield (
        f"{about['gpu']}, {about['cpu']} in a virtual machine, torch {about['torch']}, transformers "
        f"{about['transformers']},\n{about['date']}: {len(found)} calls of models with random weights in bfloat16, "
        f"{len(measured['kernels'])} kernels.\n"
        f"Of the half that calibrates, a host takes {middle:.1f} us for each launch that lmp counts; one call in ten\n"
        f"takes more than {high:.1f} us. A loop of `clone()` takes {clone:.1f} us on this host. On a host where it\n"
        f"takes {CLONE_US} us, a launch would take {low:.1f} us: the low end."
    )
    yield "Launches, and the host's time of one, of calls that wait for the host:"
    waiting = grouped((one for one in found if one.waits_for_host), lambda one: one.name)
    yield table(
        ["model, attention", "calls", "launches counted", "kernels and copies that ran", "us a counted launch"],
        [
            [name, len(ones), _range(one.launches for one in ones), _range(one.started for one in ones),
             f"{median(one.a_launch for one in ones):.1f} ({min(one.a_launch for one in ones):.1f} to "
             f"{max(one.a_launch for one in ones):.1f})"]
            for name, ones in waiting.items()
        ],
    )  # fmt: skip
    yield "Time of a call, errors in per cent, of the other half:"
    yield table(
        ["", "calls", "median size", "median", "inside 80 %"],
        [
            ["step that waits for the host", *errors([one.step for one in held if one.waits_for_host])],
            ["step that does not", *errors([one.step for one in held if not one.waits_for_host])],
            *(
                [f"device alone, {name}", *errors([one.kernels for one in ones])]
                for name, ones in grouped(held, lambda one: f"{one.row['phase']}, {one.row['attention']}").items()
            ),
        ],
    )
    yield "The same by model, of all calls, with the memory that PyTorch allocates:"
    yield table(
        ["model, attention", "calls", "step", "inside 80 %", "device alone", "inside 80 %", "memory", "its worst"],
        [[name, *_by_model(ones)] for name, ones in grouped(found, lambda one: one.name).items()],
    )
    yield "Kernels alone, one after the other, errors in per cent of rows none of which calibrates:"
    rows = [row for row in measured["kernels"] if "error" not in row]
    pairs = grouped(((kind_of(row), kernel_pair(row, device, predictor)) for row in rows), lambda one: one[0])
    yield table(
        ["kernel", "rows", "median size", "median", "inside 80 %"],
        [[name, *errors([pair for _, pair in ones])] for name, ones in pairs.items()],
    )


def _range(figures: Iterable[int]) -> str:
    found = sorted(figures)
    return f"{found[0]:,}" if found[0] == found[-1] else f"{found[0]:,} to {found[-1]:,}"


def _by_model(ones: Sequence[Compared]) -> list[object]:
    memory = [one.memory for one in ones if one.memory is not None]
    _, step, _, inside = errors([one.step for one in ones])
    count, device, _, covered = errors([one.kernels for one in ones])
    worst = max((pair.error for pair in memory), key=abs, default=None)
    return [
        count, step, inside, device, covered, f"{median(abs(pair.error) for pair in memory):.1f}" if memory else "",
        "" if worst is None else f"{worst:+.1f}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=MEASURED)
    parser.add_argument("--rows", action="store_true", help="each call")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    measured = json.loads(options.file.read_text(encoding="utf-8"))
    device = Predictor().device(options.file.stem)
    found = compared([row for row in measured["calls"] if "error" not in row], device.name)
    text = "\n\n".join(tables(measured, found, device))
    print(text)
    if options.rows:
        for one in found:
            row = one.row
            print(
                f"{one.name:28} {row['phase']:7} b {row['batch']:<3} new {row['new']:<5} cached {row['cached']:<5} "
                f"step {one.step.measured / 1e3:8.2f} ms {one.step.error:+6.1f} %  device "
                f"{one.kernels.measured / 1e3:8.2f} ms {one.kernels.error:+6.1f} %  memory "
                f"{'' if one.memory is None else f'{one.memory.error:+5.1f} %'}"
            )
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        options.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
