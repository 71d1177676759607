"""Counts the runs of a cold analysis by cause: how many, CPU time a run, and what each is for.

    .venv/bin/python benchmarks/runs_by_cause.py [CLASS]

A cause is the outermost function of CAUSES on the call stack of a run. Runs without one stand under "other".
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmp.analyze import execution
from lmp.analyze.models import expand_model
from lmp.analyze.session import Options
from lmp.source.trees import find_trees
from lmp.trace.runs import Runs
from lmp.verify import points
from lmp.workload.load import use_transformers_tree

MODEL = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
CAUSES = {
    "_scout": "both: comparisons of the source in the other phases, and what follows from them",
    "add_symbolic": "symbolic: a sample that no formula explains yet",
    "symbolic_run": "symbolic: the first formulas",
    "_run_with_one": "concrete: does a size of 1 cost otherwise",
    "compulsory_holds": "concrete: is the compulsory traffic right at held-out points",
    "_add_setting": "concrete: config values with another result of a comparison",
    "explore_layers": "concrete: other numbers of layers",
    "explore_layers_in_phases": "concrete: other numbers of layers, in each phase",
    "start": "concrete: phases, windows and pieces at the config's own values",
    "changed": "judge: config values that run, for held-out points",
    "_observe_extra": "judge: a point that takes an arm",
    "bounds": "judge: the largest length that runs",
    "_observe_all": "judge: held-out points",
}


def cause() -> str:
    """The first of CAUSES on the stack, in their order; "other" if there is none."""
    names = set()
    frame = sys._getframe(1)
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return next((name for name in CAUSES if name in names), "other")


def counted(place: Any, name: str, rows: dict[str, list[float]]) -> None:
    """Make a function count its calls and their CPU time."""
    original: Callable[..., Any] = getattr(place, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return original(*args, **kwargs)
        finally:
            rows[cause()].append(time.process_time() - start)

    setattr(place, name, counting)


def main() -> int:
    model = sys.argv[1] if len(sys.argv) > 1 else MODEL
    use_transformers_tree(find_trees().need("transformers").package_dir.parent)
    importlib.import_module(model.rpartition(".")[0])
    rows: dict[str, list[float]] = defaultdict(list)
    tried = ((points, "refusal"), (points, "executed"), (execution, "refusal"))
    for place, name in ((Runs, "_execute"), (execution, "observe"), *tried):
        counted(place, name, rows)
    start = time.process_time()
    with tempfile.TemporaryDirectory(prefix="lmp-runs-") as folder:
        expand_model(model, Options(results=Path(folder)), lambda name, stage: None)
    total = time.process_time() - start
    for name, times in sorted(rows.items(), key=lambda row: -sum(row[1])):
        each = 1000 * sum(times) / len(times)
        print(f"{len(times):5} runs  {sum(times):6.2f} s  {each:7.1f} ms a run  {CAUSES.get(name, 'other')}")
    runs, used = sum(map(len, rows.values())), sum(map(sum, rows.values()))
    print(f"{runs:5} runs  {used:6.2f} s of {total:.2f} s after the imports")
    return 0


if __name__ == "__main__":
    sys.exit(main())
