"""The report on a convolution, which no tokens go through: it has neither a prefill nor tokens a second."""

from __future__ import annotations

import re

import pytest

from lmp.analyze.session import Options
from lmp.report.devices import device_named
from lmp.report.document.markdown import to_markdown
from lmp.report.facts import ModelFacts
from lmp.report.gathering import gather
from lmp.report.implementation.sections import document

CHANNELS, SIDE, KERNEL = 8, 16, 3


@pytest.fixture(scope="module")
def convolution(tmp_path_factory: pytest.TempPathFactory, derivation: None) -> ModelFacts:
    sizes = {"in_channels": CHANNELS, "out_channels": CHANNELS, "height": SIDE, "width": SIDE, "kernel_size": KERNEL}
    options = Options(tmp_path_factory.mktemp("convolution"))
    return gather("torch.nn.Conv2d", options, lambda *_: None, device_named("H100"), sizes)


def test_the_run_has_the_sizes_of_the_numbers(convolution: ModelFacts) -> None:
    side = SIDE - KERNEL + 1  # Conv2d's defaults: a stride of 1 and no padding
    given, made = CHANNELS * SIDE * SIDE * 2, CHANNELS * side * side * 2
    assert convolution.flows.peaks["prefill-b1-s2048"].total == given + made


def test_it_says_nothing_of_phases_and_tokens(convolution: ModelFacts) -> None:
    text = to_markdown(document(convolution, None))
    assert re.findall(r"prefill|[Tt]okens/s", text) == []
    assert "of 0 files" not in text
    assert "pytorch/torch/nn/modules/conv.py" in text
