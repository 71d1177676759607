"""Predicts a step of every config of a folder: three devices, four points, what no rule takes, errors.

    .venv/bin/python benchmarks/predict_configs.py CONFIGS --results FOLDER [--engine vllm] [--csv FILE] [--only TEXT]

CONFIGS is a folder of Hugging Face's config.json files, named as one likes. Each is expanded once, or taken from the
results. Ends with 1 if something but a plain refusal of lmp is raised.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options
from lmp.cli.progress import class_of_config
from lmp.errors import LmpError
from lmp.link.numbers import ModelNumbers
from lmp.link.quantisation import Scheme, scheme_of
from lmp.link.quantised import with_own_bytes
from lmp.link.values import values_for
from lmp.predict.devices import device_named
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import Profile, profile_named
from lmp.predict.rewrite.timing import OfEngine, Step, StepTime, time_of_step

DEVICES = ("a100-sxm", "h100-sxm", "b200-sxm")
POINTS: Mapping[str, dict[str, int]] = {
    "decode 1 at 2k": {"batch_size": 1, "seq_len": 1, "cache_len": 2048},
    "decode 16 at 8k": {"batch_size": 16, "seq_len": 1, "cache_len": 8192},
    "prompt 1 of 4k": {"batch_size": 1, "seq_len": 4096, "cache_len": 0},
    "chunk 2 of 512 at 2k": {"batch_size": 2, "seq_len": 512, "cache_len": 2048},
}
LAST = ("DeepSeek-V4", "Qwen3.5", "Nemotron")
"""Parts of names of files that take minutes: they are run last. Nothing else depends on them."""
COLUMNS = ("config", "point", "device", "ms", "low", "high", "launches", "rules", "eager share", "dearest eager",
           "uncalibrated", "seconds", "error")  # fmt: skip


@dataclass(frozen=True)
class Expanded:
    numbers: ModelNumbers
    scheme: Scheme | None
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("configs", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names of files")
    given = parser.parse_args()
    files = sorted(given.configs.glob("*.json"), key=lambda file: (any(part in file.name for part in LAST), file.name))
    files = [file for file in files if any(part in file.name for part in given.only)]
    profile, rows, crashed = profile_named(given.engine), list[dict[str, object]](), 0
    predictor = OfEngine(Predictor(), profile.kernels)
    for file in files:
        try:
            made = list(of_config(file, given.results, profile, predictor))
        except Exception:
            crashed += 1
            made = [{"config": file.stem, "error": f"CRASH {traceback.format_exc().splitlines()[-1]}"}]
        for row in made:
            print(*(f"{row.get(name, '')}" for name in COLUMNS), sep=" | ", flush=True)
        rows += made
    if given.csv is not None:
        with given.csv.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    refused = sum(bool(row.get("error")) for row in rows)
    print(f"{len(files)} configs, {len(rows)} rows, {refused} with an error, {crashed} crashed")
    return 1 if crashed else 0


def of_config(file: Path, results: Path, profile: Profile, predictor: Predictor) -> Iterator[dict[str, object]]:
    try:
        model = expanded(file, results)
    except LmpError as error:
        yield {"config": file.stem, "error": str(error).splitlines()[0]}
        return
    for point, sizes in POINTS.items():
        start = time.perf_counter()
        values = values_for(model.numbers.model, {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2, **sizes})
        kernels = model.numbers.evaluation(values, model.numbers.tree(values)).kernels
        step = Step(kernels, values, "bfloat16", model.scheme)
        seconds = time.perf_counter() - start
        for device in DEVICES:
            start = time.perf_counter()
            about = {"config": file.stem, "point": point, "device": device}
            try:
                found = time_of_step(step, profile, predictor, device_named(device))
            except LmpError as error:
                yield {**about, "error": str(error).splitlines()[0]}
                continue
            yield {**about, **described(found), "seconds": f"{seconds + time.perf_counter() - start:.2f}"}


def expanded(file: Path, results: Path) -> Expanded:
    start = time.perf_counter()
    options = Options(results=results, config_file=file)
    outcome = expand_model(class_of_config(options), options, lambda name, stage: None)
    model = with_own_bytes(outcome.model)
    applied = model.quantization is not None and model.quantization.applied
    scheme = scheme_of(model.quantization.config) if applied and model.quantization is not None else None
    seconds = time.perf_counter() - start
    print(f"# {file.stem}: {model.class_name.rpartition('.')[2]}, expanded in {seconds:.1f} s", flush=True)
    return Expanded(ModelNumbers(model), scheme, seconds)


def described(found: StepTime) -> dict[str, object]:
    """What one prediction says."""
    us, low, high = found.us
    left = found.left
    held = {firing.rule for firing in found.rewritten.firings}
    dearest = left[0] if left else None
    name = "" if dearest is None else f"{dearest.kernel.class_name.rpartition('.')[2]}:{dearest.kernel.line} "
    name += "" if dearest is None else f"{dearest.kernel.operation} {dearest.us / us:.1%}"
    uncalibrated = sum(share for kind, share in found.call.shares("provenance").items() if "uncalibrated" in kind)
    return {
        "ms": f"{us / 1e3:.3f}", "low": f"{low / 1e3:.3f}", "high": f"{high / 1e3:.3f}",
        "launches": found.call.launches, "rules": " ".join(sorted(held)),
        "eager share": f"{found.left_share:.1%}", "dearest eager": name,
        "uncalibrated": f"{uncalibrated:.1%}",
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
