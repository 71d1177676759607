"""Seconds of a plan on 8 to 64 GPUs, of models that are expanded in the project's results.

python benchmarks/plan_speed.py [MODEL_ID ...]
"""

from __future__ import annotations

import sys
import time

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options, class_of_config
from lmp.observe.holding import hold
from lmp.predict.plan.limits import Limits
from lmp.predict.plan.planning import Fleet, Requests, planned
from lmp.predict.plan.serving import server
from lmp.predict.prediction import Predictor
from lmp.predict.serve.setup import Servers, Setup, Sources
from lmp.source.project import results_folder

MODELS = ("meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B")
DEVICE, ENGINE = "h100-sxm", "vllm"
REQUESTS = Requests(4096, 512)
GPUS = (8, 16, 32, 64)


def main(models: list[str]) -> None:
    predictor = Predictor()
    device = predictor.device(DEVICE)
    print(f"{'model':<32}{'GPUs':>6}{'layouts':>9}{'options':>9}{'seconds':>9}{'of CPU':>9}  best")
    for model_id in models:
        options = Options(results_folder(), model_id=model_id)
        model = expand_model(class_of_config(options), options, lambda name, stage: None, keep=False).model
        held = hold(None, options)
        for gpus in GPUS:
            started, worked = time.perf_counter(), time.process_time()
            # A new server each time: nothing is known from the plan before.
            servers = Servers(Sources(lambda _, m=model: m, lambda _, h=held: h), predictor)  # type: ignore[misc]
            serve = server(servers, Setup(model=model_id, device=DEVICE, engine=ENGINE), REQUESTS)
            found = planned(held, Fleet(device, gpus), REQUESTS, serve, Limits())
            took, worked = time.perf_counter() - started, time.process_time() - worked
            best = f"{found.chosen.layout.words}, batch {found.chosen.batch}"
            counts = f"{gpus:>6}{len(found.considered.fits):>9}{len(found.found):>9}"
            print(f"{model_id:<32}{counts}{took:>9.2f}{worked:>9.2f}  {best}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODELS))
