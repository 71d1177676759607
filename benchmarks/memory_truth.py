"""Memory that an engine logged against `lmp memory`, row by row.

    python benchmarks/memory_truth.py [../shared/data/memory_truth.csv]

Configs are in tests/data/memory: architecture numbers of public models. No weights are loaded, no GPU is needed.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import mean, median
from typing import Any

from lmp.analyze.session import Options
from lmp.observe.held import Held
from lmp.observe.holding import hold
from lmp.predict.devices import device_named
from lmp.predict.engines import GIB, Settings
from lmp.predict.memory import Asked, Stage, memory

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "tests" / "data" / "memory"
TRUTH = ROOT.parent / "shared" / "data" / "memory_truth.csv"

TEXT_ALONE = ("moonshotai/Kimi-VL-A3B-Instruct",)
"""Models whose class transformers does not have: the config is of their text part, so the image tower is missing."""


@dataclass(frozen=True)
class Compared:
    """One logged run, and the predicted values of the GPU that the log is of."""

    row: dict[str, str]
    stage: Stage
    """Of the weights and the activations."""
    kv_stage: Stage
    """Of the memory that is left."""
    kv_tokens: int
    concurrency: float

    @property
    def whole(self) -> bool:
        """Whether the config is of the whole model."""
        return self.row["model"] not in TEXT_ALONE

    @property
    def token_error(self) -> float:
        """Per cent, of bytes a token: logged GiB / tokens. In a pipeline the tokens are those of its fullest stage."""
        logged = float(self.row["kv_cache_memory_gib"]) * GIB / int(self.row["kv_cache_tokens"])
        if int(self.row["pp"]) > 1:
            return 100 * (float(self.kv_stage.available) / self.kv_tokens / logged - 1)
        assert self.stage.blocks is not None
        return 100 * (float(self.stage.blocks.token_bytes) / logged - 1)

    def error(self, column: str) -> float:
        """Per cent, predicted over logged."""
        predicted = {
            "weights_memory_gib": self.stage.weight_bytes / GIB,
            "activation_memory_gib": self.stage.activation_bytes / GIB,
            "kv_cache_memory_gib": self.kv_stage.available / GIB,
            "non_torch_forward_gib": self.stage.reserve / GIB,
            "max_concurrency": self.concurrency,
        }[column]
        return 100 * (float(predicted) / float(self.row[column]) - 1)


def compared(truth: Path, results: Path) -> Iterator[Compared]:
    """Every logged run whose config is there. A model is built once for each dtype."""
    device = device_named("h100-sxm")
    known: dict[tuple[str, str], Held] = {}
    with truth.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows:
        file = CONFIGS / f"{row['model'].replace('/', '--')}.json"
        dtype = row["dtype"].removeprefix("torch.")
        if (row["model"], dtype) not in known:
            known[row["model"], dtype] = hold(None, options(file, results), dtype)
        held = known[row["model"], dtype]
        settings = Settings(
            Fraction(row["gpu_memory_utilization"]), 1024, 8192, int(row["max_model_len"]),
            "fp8" if row["quantization"] == "fp8" else None,
        )  # fmt: skip
        kv = Fraction(1) if row["kv_cache_dtype"] == "fp8" else None
        found = memory(held, device, Asked(int(row["tp"]), int(row["pp"]), kv_bytes=kv, engine=settings))
        # The row of four stages has the weights of one in the middle; 75.23 - 4.26 - 1.10 - 0.07 is the first one's KV.
        stage = found.stages[1 if row["pp"] == "4" else 0]
        yield Compared(row, stage, found.stages[0], found.stage.kv_tokens, found.stage.concurrency)


def options(config: Path, results: Path) -> Options:
    given: dict[str, Any] = {"results": results, "config_file": config}
    return Options(**given)


COLUMNS = ("weights_memory_gib", "activation_memory_gib", "kv_cache_memory_gib", "non_torch_forward_gib",
           "max_concurrency")  # fmt: skip


def main() -> None:
    import tempfile

    truth = Path(sys.argv[1]) if len(sys.argv) > 1 else TRUTH
    print(f"{'model':44} tp pp  {'dtype':8} kv   {'token %':>8} {'weights':>8} {'activ.':>8} {'KV GiB':>8} "
          f"{'n-torch':>8} {'requests':>8}")  # fmt: skip
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for one in compared(truth, Path(folder)):
            found.append(one)
            errors = " ".join(f"{one.error(column):8.2f}" for column in COLUMNS)
            row = one.row
            model = row["model"].partition("/")[2][:42] + ("" if one.whole else " *")
            print(f"{model:44} {row['tp']:2} {row['pp']:2}  {row['dtype'].removeprefix('torch.'):8} "
                  f"{row['kv_cache_dtype']:4} {one.token_error:8.3f} {errors}", flush=True)  # fmt: skip
    whole = [one for one in found if one.whole]
    print(f"{len(found)} rows; * text part alone: not in the means of weights, activations and KV")
    print(f"bytes a token: worst {max(abs(one.token_error) for one in found):.3f} %")
    for column in COLUMNS:
        errors_of = [abs(one.error(column)) for one in whole]
        print(f"{column}: mean {mean(errors_of):.2f} %, median {median(errors_of):.2f} %, worst {max(errors_of):.2f} %")


if __name__ == "__main__":
    main()
