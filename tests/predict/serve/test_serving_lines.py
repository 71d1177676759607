"""Requests as JSON lines: their order, errors of single lines, models that do not fit, each expanded once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lmp.errors import NotFound, UsageError
from lmp.observe.held import Held
from lmp.predict.prediction import Predictor
from lmp.predict.serve.lines import answers
from lmp.predict.serve.setup import Room, Servers, Setup, Sources
from lmp.predict.shard.parallel import Parallel
from lmp.records import ModelAnalysis

RESULTS = Path(__file__).parents[3] / "analysis_results"
ROW = {"model": "llama", "device": "h100-sxm", "engine": "vllm", "isl": 512, "osl": 128, "concurrency": 8}


@cache
def llama() -> ModelAnalysis:
    (folder,) = RESULTS.glob("*LlamaForCausalLM*")
    return ModelAnalysis.model_validate_json((folder / "model_analysis.json").read_text())


@dataclass
class Given:
    """A source of one model, whose memory is not known."""

    asked: list[str] = field(default_factory=list)

    def expanded(self, name: str) -> ModelAnalysis:
        self.asked.append(name)
        if name != "llama":
            raise NotFound(f"there is no {name}\ngive llama")
        return llama()

    def held(self, name: str) -> Held:
        raise UsageError("it was not built\nbuild it")


def answered(rows: list[Any], given: Given | None = None) -> list[dict[str, Any]]:
    given = given or Given()
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return list(answers(lines, Servers(Sources(given.expanded, given.held), Predictor())))


def test_answers_keep_the_order_of_the_lines() -> None:
    rows = [
        {**ROW, "id": 1, "concurrency": 32},
        {**ROW, "id": "two", "device": "b200-sxm"},
        b"{cut",
        {**ROW, "id": 4},
        b"",
        {**ROW, "id": 5, "concurrency": 1},
    ]
    found = answered(rows)
    assert [row["id"] for row in found] == [1, "two", None, 4, 5]
    assert ["error" in row for row in found] == [False, False, True, False, False]
    # More requests at once take longer each, and a newer device less.
    assert found[0]["tpot_ms"] > found[3]["tpot_ms"] > found[1]["tpot_ms"]
    assert found[3]["tpot_low_ms"] < found[3]["tpot_ms"] < found[3]["tpot_high_ms"]
    # Alone on the server a request has a first token; under load it has a reason.
    assert found[4]["ttft_ms"] == found[4]["prefill_ms"]
    assert found[3]["ttft_ms"] is None
    assert "queue" in found[3]["ttft_reason"]


def test_a_line_is_the_same_alone_and_among_others() -> None:
    rows = [{**ROW, "id": n, "concurrency": n, "isl": 100 * n} for n in (1, 5, 9)]
    assert answered(rows) == [answered([row])[0] for row in rows]


def test_a_model_is_expanded_once() -> None:
    given = Given()
    rows = [{**ROW, "concurrency": n, "tp": tp, "device": name} for n in (1, 2) for tp in (1, 2)
            for name in ("h100-sxm", "h200-sxm")]  # fmt: skip
    assert not any("error" in row for row in answered(rows, given))
    assert given.asked == ["llama"]


def test_two_gpus_share_the_work() -> None:
    one, two = answered([{**ROW, "tp": 1}, {**ROW, "tp": 2}])
    assert one["tpot_ms"] / 2 < two["tpot_ms"] < one["tpot_ms"]
    assert two["gpus"] == 2
    assert two["tokens_per_s_per_gpu"] == pytest.approx(two["tokens_per_s"] / 2, abs=1e-3)
    assert "collective" in two["families"]


def test_a_pipeline_takes_turns() -> None:
    one, two = answered([{**ROW, "concurrency": 1}, {**ROW, "concurrency": 1, "pp": 2}])
    # A single request passes both halves one after the other, and a message between them: no faster, half of it empty.
    assert two["tpot_ms"] > 0.95 * one["tpot_ms"]
    assert two["tokens_per_s"] < 1.05 * one["tokens_per_s"]


@pytest.mark.parametrize(
    ("fields", "parallel"),
    [
        ({"tp": 8, "ep": 2}, Parallel(8, 2)),
        # Experts on more GPUs than one that attends: each of them attends to its own requests.
        ({"tp": 1, "ep": 8, "pp": 2}, Parallel(8, 8, 2, True)),
        ({"tp": 4, "ep": 4, "dp_attention": True}, Parallel(4, 4, 1, True)),
    ],
)
def test_how_gpus_share_a_model(fields: dict[str, Any], parallel: Parallel) -> None:
    setup = Setup(model="x", device="h100-sxm", **fields)
    assert setup.parallel == parallel
    assert setup.gpus == parallel.tp * parallel.pp


def test_groups_that_attend_together_and_apart_are_refused() -> None:
    with pytest.raises(UsageError, match="--ep 8 does not divide --tp 2"):
        _ = Setup(model="x", device="h100-sxm", tp=2, ep=8).parallel


def test_speculation_says_what_was_stated() -> None:
    (found,) = answered([{**ROW, "speculative_tokens": 3, "acceptance": 0.5}])
    # 1 + 1/2 + 1/4 + 1/8 = 1.875.
    assert (
        "speculation: 1.88 tokens a step at the stated acceptance; the draft's time is 0, as none is stated"
        in (found["notes"])
    )


def test_what_is_not_known_of_memory_is_said() -> None:
    (found,) = answered([ROW])
    assert found["fits"] is None
    assert found["notes"] == ["whether it fits is not known: it was not built"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"concurrency": 0}, "concurrency: Input should be greater than or equal to 1"),
        ({"engine": "vlm"}, "no profile of the engine 'vlm' · did you mean vllm?"),
        ({"engine": "transformers-eager"}, "launches kernels one by one"),
        ({"device": "h100-smx"}, "did you mean h100-sxm"),
        ({"device": "a100-sxm", "dtype": "fp8"}, "a100-sxm has no fp8"),
        ({"dtype": "int3"}, "dtype 'int3' is not served"),
        ({"model": "none"}, "there is no none"),
        ({"tp": 3}, "--tp 3 does not divide"),
        ({"ep": 2, "tp": 2}, "the model has no experts"),
        ({"acceptance": 0.5}, "give speculative_tokens too"),
        ({"prefix": 1}, "prefix: Input should be less than 1"),
        ({"force": "yes"}, "force: true or false"),
        ({"batch": 4}, "there is no field 'batch'"),
        ({"routing": "fair"}, "routing: Input should be 'balanced'"),
    ],
)
def test_a_bad_line_has_an_error_that_says_what_to_do(fields: dict[str, Any], message: str) -> None:
    bad, good = answered([{**ROW, **fields, "id": 1}, {**ROW, "id": 2}])
    assert message in bad["error"]
    assert bad["id"] == 1
    assert "error" not in good


@pytest.mark.parametrize("line", [b"[1]", b"3", b'{"id": NaN}', b"\xff", b'{"id": 1' + b" " * 70_000 + b"}"])
def test_lines_that_are_no_rows(line: bytes) -> None:
    (found,) = answered([line])
    assert "error" in found


class Full(Room):
    """A cache that holds 2.5 requests of any length."""

    def requests(self, tokens: int) -> float:
        return 2.5


class Short(Full):
    def requests(self, tokens: int) -> float:
        return 0.4

    def refuse(self, setup: Any, tokens: int) -> None:
        raise UsageError(f"{setup.model} does not fit\nforce")


def test_a_full_cache_lets_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    room: Any = Full(object(), 8192)  # type: ignore[arg-type]
    monkeypatch.setattr(Servers, "room", lambda *_: room)
    found, two = answered([ROW, {**ROW, "concurrency": 2}])
    assert found["running"] == 2
    assert found["tpot_ms"] == two["tpot_ms"]
    assert found["notes"] == ["the cache holds 2 requests at once: the others wait"]
    assert two["notes"] == []


def test_what_does_not_fit_is_an_error_unless_it_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    room: Any = Short(object(), 8192)  # type: ignore[arg-type]
    monkeypatch.setattr(Servers, "room", lambda *_: room)
    refused, forced = answered([ROW, {**ROW, "force": True}])
    assert refused["error"] == "llama does not fit · force"
    assert forced["fits"] is False
    assert forced["notes"] == ["the model does not fit: the figures are of GPUs with more memory"]
