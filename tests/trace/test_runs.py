"""Points at which a module runs, and other values of sizes: those that change the result of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from lmp.formula import parse_condition
from lmp.trace.runs import Runs, _comes_out
from lmp.workload.model import ModelWorkload
from lmp.workload.standalone import StandaloneWorkload


@pytest.mark.parametrize(
    ("width", "yes", "no"),
    [
        (6, True, False),  # 10 // (6 - 4) is 5
        (9, False, True),  # 10 // (9 - 4) is 2
        (4, False, False),  # 10 // 0: no such model can be built, so the comparison has no result
    ],
)
def test_a_comparison_that_divides_by_nothing_comes_out_in_no_way(width: int, yes: bool, no: bool) -> None:
    condition = parse_condition("{size} // ({width} - 4) > 2")
    numbers = {"size": 10, "width": width}
    assert (_comes_out(condition, numbers, True), _comes_out(condition, numbers, False)) == (yes, no)


@pytest.mark.usefixtures("transformers_tree")
def test_a_name_that_a_model_does_not_define_there_is_a_point_at_which_it_cannot_run() -> None:
    from transformers import FalconConfig, FalconModel

    config = FalconConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_kv_heads=2,
        new_decoder_architecture=True, num_ln_in_parallel_attn=2,
    )  # fmt: skip
    runs = Runs(ModelWorkload(FalconModel, config), "/nowhere")
    point = {"batch_size": 2, "seq_len": 5, "cache_len": 0}
    assert runs.at(point) is not None
    # With 3, forward() reads a variable that is only assigned for 1 and 2: UnboundLocalError.
    assert runs.at({**point, "num_ln_in_parallel_attn": 3}) is None


class Wrong(StandaloneWorkload):
    """Builds no module from seven features: a bug of the workload, not a refusal of the module."""

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        return None if values.get("in_features") == 7 else super().build(values)  # type: ignore[return-value]


def test_a_mistake_of_lmps_own_is_no_point_at_which_the_module_cannot_run() -> None:
    runs = Runs(Wrong(torch.nn.Linear), "/nowhere")
    point = {"batch_size": 2, "seq_len": 5, "cache_len": 0}
    assert runs.at(point) is not None
    # PyTorch rejects Linear(-1, ...). None has no named_modules() in lmp's own CallTracker.
    assert runs.at({**point, "in_features": -1}) is None
    with pytest.raises(AttributeError, match="named_modules"):
        runs.at({**point, "in_features": 7})
