"""``lmp predict-serving``: served requests, JSON lines in and out."""

from __future__ import annotations

import json
import sys

from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile, predictor_of
from lmp.cli.output import write


@o.takes(..., *o.FOLDERS, "no_atlas", "attn", *o.PRINTED)
def predict_serving(common: o.Common, devices_file: DevicesFile = None, calibration: CalibrationFolder = None) -> None:
    """Predict what requests get of a server: JSON lines on stdin, one line each on stdout.

    Example: {"id": 1, "model": "Qwen/Qwen3-8B", "device": "h100-sxm", "engine": "vllm", "dtype": "fp8", "tp": 1, "isl":
    1024, "osl": 512, "concurrency": 16}. Each answer has tpot_ms with an 80 % interval; a line that has none has an
    error. Each model is expanded once.
    """
    from lmp.cli.serving import servers_of
    from lmp.predict.serve.lines import answers

    for answer in answers(sys.stdin.buffer, servers_of(common, predictor_of(devices_file, calibration))):
        write(json.dumps(answer, ensure_ascii=False) + "\n")
