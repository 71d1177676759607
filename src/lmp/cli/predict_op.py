"""``lmp predict-op``: times of operators, JSON lines in and out."""

from __future__ import annotations

import json
import sys

from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile, predictor_of
from lmp.cli.output import write


@o.takes(..., "as_json", "debug")
def predict_op(common: o.Common, devices_file: DevicesFile = None, calibration: CalibrationFolder = None) -> None:
    """Predict the times of operators: JSON lines on stdin, one line each on stdout.

    Example: {"id": 1, "op": "gemm", "device": "h100-sxm", "dtype": "fp8", "m": 16, "n": 4096, "k": 4096}.
    Each answer has us, low_us and high_us, an 80 % interval; a line that is no row has an error.
    """
    from lmp.predict.lines import answers

    for answer in answers(sys.stdin.buffer, predictor_of(devices_file, calibration)):
        write(json.dumps(answer, ensure_ascii=False) + "\n")
