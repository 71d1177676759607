"""lmp from Python: costs of models and modules, their formulas, predictions, and export to frames and files.

Only one call at a time may run in a process, because lmp changes PyTorch's global state and restores it.
"""

from lmp.api.analysing import analyze, expand
from lmp.api.models import Model, model
from lmp.api.predicting import Predicted, predict
from lmp.api.results import Analysis, Evaluated

__all__ = ["Analysis", "Evaluated", "Model", "Predicted", "analyze", "expand", "model", "predict"]
