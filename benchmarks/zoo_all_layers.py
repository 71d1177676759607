"""Checks the models that `lmp zoo` verified against execution again, with all layers and in every phase.

    .venv/bin/python benchmarks/zoo_all_layers.py [--summary FILE] [--results DIR] [--jobs N] [FAMILY...]

For each verified entry of the summary the stored model is evaluated. The model then runs on the meta device with its
full config. FLOPs, bytes read and bytes written must equal the judge's counts of the whole run. Matmul FLOPs must equal
those of torch's counter. The points differ from those of the judge. Ends with 1 if a model differs, or if it runs at no
point.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lmp.analyze.execution import Execution
from lmp.analyze.session import Options, Session
from lmp.errors import LmpError
from lmp.link.numbers import ModelNumbers
from lmp.link.values import values_for
from lmp.records import UNIVERSAL, ZooEntry
from lmp.source.trees import find_trees
from lmp.store.results import Store
from lmp.verify.judge import observe
from lmp.workload.load import load_class, quiet_warnings, use_transformers_tree
from lmp.zoo.entries import read_summary
from lmp.zoo.requests import FOLDER

SHAPES = ((1, 11, 0), (2, 7, 0), (1, 1, 9), (2, 1, 9), (1, 5, 9), (2, 5, 9), (1, 1, 0))
"""Batch, new and cached tokens: one and several of each."""

BYTES = ((2, 2, 2), (3, 5, 7))
"""Of an element of the weights, the activations and the KV cache; unequal ones tell the three apart."""

SECONDS = 300
"""That a family may take."""


@dataclass
class Held:
    """What became of one family."""

    family: str
    equal: int = 0
    differences: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("families", nargs="*")
    parser.add_argument("--summary", type=Path, default=Path("reports/zoo/causal-lm.json"))
    parser.add_argument("--results", type=Path, default=Path("analysis_results"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    entries = [e for e in read_summary(given.summary).entries if e.status == "verified"]
    entries = [e for e in entries if not given.families or e.family in given.families]
    use_transformers_tree(find_trees().need("transformers").package_dir.parent)
    found: list[Held] = []
    # A process of its own for each: what one model leaves in memory is gone with it.
    with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=1) as pool:
        for held in pool.imap_unordered(_held, [(entry, given.results) for entry in entries]):
            found.append(held)
            said = ", ".join([f"{held.equal} equal", *held.differences[:2], *held.passed_over[:2]])
            print(f"{len(found)} of {len(entries)}: {held.family}: {said}", flush=True)
    wrong = sorted(h.family for h in found if h.differences)
    nowhere = sorted(h.family for h in found if not h.differences and not h.equal)
    equal, totals = len(found) - len(wrong) - len(nowhere), sum(h.equal for h in found)
    print(f"{equal} of {len(found)} equal, {totals} totals in all")
    for what, families in (("different", wrong), ("held nowhere", nowhere)):
        if families:
            print(f"{what}: {', '.join(families)}")
    return 1 if wrong or nowhere else 0


def _held(task: tuple[ZooEntry, Path]) -> Held:
    entry, results = task
    held = Held(entry.family)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        with quiet_warnings():
            _hold(entry, results, held)
    except Exception as error:
        held.passed_over.append(f"{type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    return held


def _too_long(*_: object) -> None:
    raise TimeoutError(f"it took more than {SECONDS} s")


def _hold(entry: ZooEntry, results: Path, held: Held) -> None:
    file = results / FOLDER / "configs" / entry.task / f"{entry.family}.json"
    config = None if entry.config == "default" else file
    dtype = "float32" if any(a.startswith("dtype = float32") for a in entry.adjustments) else "bfloat16"
    model = Store(results).load_model(entry.class_name, entry.config)
    if model is None:
        raise LookupError(f"no model is stored in {results}")
    session = Session(Options(results=results, dtype=dtype, config_file=config), lambda *_: None)
    workload = Execution(session, session.locate(entry.class_name)).workload
    if workload.model_class is not load_class(model.class_name):
        # Run inside the model whose encoder it is, what the whole run costs is no matter of it.
        held.passed_over.append(f"it runs within {workload.model_class.__name__}")
        return
    numbers = ModelNumbers(model)
    for shape in SHAPES:
        if shape[2] and not workload.has_cache:
            continue
        tokens = max(shape[1], workload.fewest_tokens)
        values = {**workload.hints, **workload.full_layers}
        values |= {"batch_size": shape[0], "seq_len": tokens, "cache_len": shape[2]}
        try:
            run = observe(workload, values)
        except Exception as error:
            held.passed_over.append(f"{shape} does not run: {type(error).__name__}")
            continue
        for sizes in BYTES:
            claimed = _claimed(numbers, {**values, **dict(zip(UNIVERSAL, sizes, strict=True))})
            if claimed is None:
                held.passed_over.append(f"{shape} is outside the assumptions")
                break
            counted = [
                sum(c.flops for c in run.counts),
                run.flop_counter,
                sum(c.read.bytes(*sizes) for c in run.counts),
                sum(c.write.bytes(*sizes) for c in run.counts),
            ]
            held.equal += claimed == counted
            if claimed != counted:
                held.differences.append(f"{shape}: {claimed} by formula, {counted} executed")


def _claimed(numbers: ModelNumbers, sizes: Mapping[str, int]) -> list[int] | None:
    """What the formulas say; None where an assumption does not hold."""
    names = {*numbers.model.parameters, *UNIVERSAL}
    try:
        values = values_for(numbers.model, {n: v for n, v in sizes.items() if n in names})
        if numbers.violated(values):
            return None
        totals = numbers.totals(values)
    except LmpError:
        return None
    return [totals.flops, totals.matmul_flops, totals.read, totals.write]


if __name__ == "__main__":
    sys.exit(main())
