"""``lmp predict-serving``: one line of JSON for each line of JSON, in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from lmp.errors import LmpError, UsageError
from lmp.predict.experts import OF_MANY_CALLS
from lmp.predict.lines import BATCH, row_id
from lmp.predict.rows import LONGEST_LINE
from lmp.predict.serve.compose import NO_TTFT
from lmp.predict.serve.requests import Answer, Request, predicted, request_of
from lmp.predict.serve.setup import Servers

SMALL_PART = 0.005
"""Parts of the time below this are not named."""


def answers(lines: Iterable[bytes], servers: Servers) -> Iterator[dict[str, Any]]:
    """The answer to each line that is not blank."""
    wanted = (line for line in lines if line.strip())
    while batch := list(islice(wanted, BATCH)):
        read = [_read(line) for line in batch]
        made = iter(predicted([one for one in read if isinstance(one, Request)], servers))
        for line, one in zip(batch, read, strict=True):
            if isinstance(one, Request):
                yield answer(one.id, next(made))
            else:
                yield answer(row_id(line), one)


def _read(line: bytes) -> Request | LmpError:
    try:
        return read_request(line)
    except LmpError as error:
        return error


def read_request(line: bytes | str) -> Request:
    """The request of one line of JSON. Raises UsageError that says what is wrong with it."""
    if len(line) > LONGEST_LINE:
        raise UsageError(f"a line of {len(line)} characters\na row has at most {LONGEST_LINE}")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}\na row is one object on one line") from error
    if not isinstance(data, dict):
        raise UsageError('a row is a JSON object\nsuch as {"model": "Qwen/Qwen3-8B", "device": "h100-sxm", ...}')
    return request_of(data)


def answer(id_: object, made: Answer | LmpError) -> dict[str, Any]:
    """One line of output."""
    if isinstance(made, LmpError):
        return {"id": id_, "error": " · ".join(str(made).splitlines())}
    return {"id": id_, **as_json(made)}


def as_json(made: Answer) -> dict[str, Any]:
    """Figures of one request, as ``--json`` writes them: milliseconds, with the ends of 80 % intervals."""
    result, setup = made.served, made.request.setup
    ttft = result.ttft
    families, provenance = _sums(result.shares, 0), _sums(result.shares, 1)
    rate = result.tokens_per_s
    return {
        **_ms("tpot", result.tpot),
        "ttft_ms": None if ttft is None else _rounded(ttft[0] / 1e3),
        "ttft_reason": NO_TTFT if ttft is None else None,
        **_ms("prefill", result.prefill),
        **_ms("decode", result.decode),
        **_ms("longest_step", result.longest),
        "tokens_per_s": _rounded(rate[0]),
        "tokens_per_s_low": _rounded(rate[1]),
        "tokens_per_s_high": _rounded(rate[2]),
        "tokens_per_s_per_gpu": _rounded(rate[0] / setup.gpus),
        "requests_per_s": round(result.requests_per_s, 4),
        "running": result.running,
        "gpus": setup.gpus,
        "fits": made.fits,
        "families": families,
        "provenance": provenance,
        "extrapolated": [text for text, share in result.beyond.items() if share >= SMALL_PART],
        "notes": notes(made),
    }


def notes(made: Answer) -> list[str]:
    """What a reader has to know beside the figures, one sentence each."""
    workload, result = made.request.workload, made.served
    found = []
    if made.fits is False:
        found.append("the model does not fit: the figures are of GPUs with more memory")
    if made.room.problem is not None:
        found.append(f"whether it fits is not known: {made.room.problem}")
    elif made.fits and result.running < workload.concurrency:
        found.append(f"the cache holds {result.running} requests at once: the others wait")
    if made.request.setup.parallel.dp_attention:
        found.append("memory is worked out as if attention were divided too, not computed by each GPU for its requests")
    if any(name.startswith("moe/") for name in result.shares):
        found.append(experts_of(made.request.setup.routing))
    if workload.speculative_tokens:
        draft = f"{workload.draft_us:g} us a step, as stated" if workload.draft_us else "0, as none is stated"
        tokens = f"{workload.tokens_a_step:.2f} tokens a step at the stated acceptance"
        found.append(f"speculation: {tokens}; the draft's time is {draft}")
    return found


def experts_of(routing: str) -> str:
    """How many experts' weights served steps are counted to read."""
    if routing == "balanced":
        return OF_MANY_CALLS
    return f"tokens choose experts by {routing}: fewer are read than the most that a call's tokens reach"


def _ms(name: str, total: tuple[float, float, float]) -> dict[str, float]:
    us, low, high = total
    return {f"{name}_ms": _rounded(us / 1e3), f"{name}_low_ms": _rounded(low / 1e3),
            f"{name}_high_ms": _rounded(high / 1e3)}  # fmt: skip


def _rounded(value: float) -> float:
    return round(value, 3)


def _sums(shares: Mapping[str, float], part: int) -> dict[str, float]:
    """Shares by the first or the second part of their names, the largest first."""
    found: dict[str, float] = {}
    for name, share in shares.items():
        key = name.split("/", 1)[part]
        found[key] = found.get(key, 0.0) + share
    return {name: round(share, 4) for name, share in sorted(found.items(), key=lambda item: -item[1])}
