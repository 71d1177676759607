"""How long a sweep of served points takes.

    python benchmarks/served_sweep.py [--config ../shared/data/model_configs/Qwen--Qwen3-32B.json] [--points 10000]
        [--results DIR] [--tp N] [--drawn]

The points are a grid of requests in flight, prompts and answers; with --drawn each size is drawn by itself, so that
fewer rows are shared. The time starts with an expanded model.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options, class_of_config
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import profile_named
from lmp.predict.serve.compose import served
from lmp.predict.serve.served_model import ServedModel
from lmp.predict.serve.stepper import Stepper
from lmp.predict.serve.workload import Workload
from lmp.predict.shard.parallel import Parallel

ROOT = Path(__file__).parents[1]
CONFIG = ROOT.parent / "shared" / "data" / "model_configs" / "Qwen--Qwen3-32B.json"


def grid(points: int) -> list[Workload]:
    """Requests in flight from 1 on, 10 prompts and 10 answers."""
    return [
        Workload(isl=512 * isl, osl=128 * osl, concurrency=count)
        for count in range(1, -(-points // 100) + 1)
        for isl in range(1, 11)
        for osl in range(1, 11)
    ][:points]


def drawn(points: int) -> list[Workload]:
    """Each size by itself, with seed 0."""
    pick = random.Random(0).randint
    return [Workload(isl=pick(1, 8192), osl=pick(2, 2048), concurrency=pick(1, 256)) for _ in range(points)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--results", type=Path, default=ROOT / "analysis_results")
    parser.add_argument("--device", default="h100-sxm")
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--drawn", action="store_true")
    given = parser.parse_args()
    options = Options(results=given.results, config_file=given.config)
    model = expand_model(class_of_config(options), options, lambda *_: None).model
    predictor = Predictor()
    works = (drawn if given.drawn else grid)(given.points)
    began, used = time.perf_counter(), time.process_time()
    parts = ServedModel(model, given.dtype).on(Parallel(tp=given.tp))
    stepper = Stepper(parts, profile_named(given.engine), predictor.device(given.device), predictor)
    found = served(stepper, works)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    mean = sum(one.tpot[0] for one in found) / len(found) / 1e3
    exact = sum(structure is None for structure in stepper.structures.values())
    print(f"{len(found):,} points in {seconds:.1f} s, {cpu:.1f} s of it on the processor; mean TPOT {mean:.2f} ms")
    print(f"regimes: {len(stepper.structures)}, of them {exact} without a structure")


if __name__ == "__main__":
    main()
