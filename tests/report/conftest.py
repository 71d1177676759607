"""The hand-made model of the store's tests, at one point and at several; a browser for all tests of a process."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import headless
import pytest
import small_models as small

from lmp.link.numbers import ModelNumbers
from lmp.link.sweep import plan
from lmp.link.values import values_for
from lmp.report.formats import load
from lmp.report.formats.base import Result, Show, SweepResult
from lmp.report.warnings import of_a_sweep, of_assumptions, of_the_model

Written = Callable[..., Any]


def _stream(name: str) -> Any:
    return io.BytesIO() if load(name).binary else io.StringIO(newline="")


@pytest.fixture
def written() -> Written:
    """What a format writes for the small model: ``written("csv", show=Show(...), model={...}, seq_len=16)``."""

    def write(name: str, show: Show | None = None, model: dict[str, Any] | None = None, **given: int) -> Any:
        numbers = ModelNumbers(small.model(**(model or {})))
        values = values_for(numbers.model, {**small.POINT, **given})
        tree = numbers.tree(values)
        evaluation = numbers.evaluation(values, tree)
        warnings = [*of_the_model(numbers.model), *of_assumptions(evaluation.violated_assumptions)]
        out, form = _stream(name), load(name)
        assert form.point is not None
        form.point(Result(numbers, tree, evaluation, warnings), show or Show(), out)
        return out.getvalue()

    return write


@pytest.fixture
def swept() -> Written:
    """What a format writes for several points: ``swept("csv", {"batch_size": (1, 2), "seq_len": (16,)})``."""

    def write(
        name: str, given: dict[str, Any], show: Show | None = None, model: dict[str, Any] | None = None, points: int = 5
    ) -> Any:
        numbers = ModelNumbers(small.model(**(model or {})))
        sweep = plan(numbers.model, given)
        broken: Counter[str] = Counter()

        def chunks() -> Any:
            broken.clear()
            for chunk in sweep.chunks(numbers, points):
                broken.update(chunk.broken)
                yield chunk

        out, form = _stream(name), load(name)
        assert form.sweep is not None
        warnings = lambda: list(of_a_sweep(broken, sweep.size))  # noqa: E731
        form.sweep(SweepResult(numbers.model, sweep, chunks, warnings), show or Show(), out)
        return out.getvalue()

    return write


@pytest.fixture(scope="session")
def browser() -> Iterator[headless.Browser]:
    """Skips where there is none, and fails there if LMP_BROWSER_REQUIRED=1."""
    gone = headless.missing()
    if gone is not None and os.environ.get(headless.REQUIRED) == "1":
        pytest.fail(gone)
    if gone is not None:
        pytest.skip(gone)
    with headless.browser() as found:
        yield found
