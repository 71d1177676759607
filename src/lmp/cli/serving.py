"""Served models on the command line: their sources, a sweep of requests, and the table of what they get."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lmp.cli.options import Common
from lmp.cli.output import note, write_json
from lmp.cli.progress import class_of_config, watched
from lmp.cli.subject import chosen

if TYPE_CHECKING:
    from lmp.analyze.session import Options
    from lmp.observe.held import Held
    from lmp.predict.prediction import Predictor
    from lmp.predict.serve.requests import Answer, Request
    from lmp.predict.serve.setup import Servers
    from lmp.predict.shard.parallel import Parallel
    from lmp.records import ModelAnalysis

T = TypeVar("T")

SCOPE = (
    "one replica that computes prompts and tokens itself: disaggregated serving is not predicted. Time to the first "
    "token is of a request on an idle server"
)
MOST_ROWS = 10**6
"""Requests that one command predicts."""
DTYPES = {"bf16": "bfloat16", "fp16": "bfloat16", "float16": "bfloat16", "float8": "fp8"}


@dataclass(frozen=True)
class Replica:
    """What serves, as options say it."""

    devices: str
    """Names with commas between them."""
    engine: str | None
    overhead_us: float | None
    force: bool
    parallel: Parallel


@dataclass(frozen=True)
class Load:
    """What arrives, as options say it: a text may hold several numbers; None: not given."""

    concurrency: str | None
    isl: str | None
    osl: str | None
    stream: str | None
    prefix: float | None
    speculative_tokens: int | None
    acceptance: float | None
    draft_us: float | None
    max_num_batched_tokens: str | None

    def rows(self) -> list[dict[str, Any]]:
        """A workload for each combination of the numbers, concurrency last. Raises UsageError for what is missing."""
        from lmp.errors import UsageError

        axes = {}
        for name in ("isl", "osl", "concurrency"):
            text = getattr(self, name)
            if text is None:
                raise UsageError(
                    f"--serve needs --{name}\ngive --concurrency 1:256:*2 --isl 1024 --osl 1024, or other numbers"
                )
            axes[name] = _numbers(name, text)
        alike = {name: value for name, value in asdict(self).items() if name not in axes}
        if self.max_num_batched_tokens is not None:
            chunks = _numbers("max-num-batched-tokens", self.max_num_batched_tokens)
            if len(chunks) > 1:
                raise UsageError("--max-num-batched-tokens has several values\ngive one")
            alike["max_num_batched_tokens"] = chunks[0]
        if math.prod(map(len, axes.values())) > MOST_ROWS:
            raise UsageError(f"more than {MOST_ROWS:,} combinations\ngive fewer numbers, as 1:256:*2")
        return [{**alike, **dict(zip(axes, point, strict=True))} for point in itertools.product(*axes.values())]

    def refuse(self) -> None:
        """Raise UsageError if any is given: they are of --serve."""
        from lmp.errors import UsageError

        given = next((name for name, value in asdict(self).items() if value is not None), None)
        if given is not None:
            raise UsageError(f"--{given.replace('_', '-')} is of requests\ngive --serve too, or leave it out")


def refuse_call(common: Common, others: Mapping[str, object]) -> None:
    """Raise UsageError for options of one call beside --serve. ``others``: option -> its value, None if not given."""
    from lmp.errors import UsageError

    call = {"--phase": common.phase, "-b": common.batch_size, "-s": common.seq_len, "-c": common.cache_len}
    given = next((option for option, value in (call | dict(others)).items() if value is not None), None)
    if given is not None:
        raise UsageError(f"{given} is of one call, and --serve predicts requests\nleave out one of them")


def _numbers(name: str, text: str) -> list[int]:
    from lmp.errors import UsageError
    from lmp.link.values import parse_values

    values = parse_values("cache_len", text, f"--{name} ")  # a count: it may have a unit, a list or a range
    if len(values) > MOST_ROWS:
        raise UsageError(f"--{name} {text[:40]} has {len(values):,} values\ngive at most {MOST_ROWS:,}")
    if not all(isinstance(value, int) and value >= 1 for value in values):
        raise UsageError(f"--{name} {text[:40]}: {min(values)} is below 1\ngive whole numbers of at least 1")
    return [int(value) for value in values]


def servers_of(common: Common, predictor: Predictor) -> Servers:
    """Step models whose models are expanded, and built to see what they hold, when they are first needed."""
    from lmp.predict.serve.setup import Servers, Sources

    return Servers(Sources(_remembered(_expander(common)), _remembered(_holder(common))), predictor)


def _subject(common: Common, name: str) -> tuple[str | None, Options]:
    """The class path that a model's name says, or None for that of its config; and how it is analysed."""
    from dataclasses import replace

    found, path = chosen(replace(common, class_path=None, model_id=None, config=None), name, "predict")
    return path, found.options(said=False)


def _expander(common: Common) -> Callable[[str], ModelAnalysis]:
    def expanded(name: str) -> ModelAnalysis:
        path, options = _subject(common, name)
        found = path or class_of_config(options)
        with watched([found], options, common.quiet) as progress:
            from lmp.atlas.models import expand_model

            return expand_model(found, options, progress, keep=False).model

    return expanded


def _holder(common: Common) -> Callable[[str], Held]:
    def held(name: str) -> Held:
        path, options = _subject(common, name)
        with watched([path or name], options, common.quiet) as progress:
            progress(path or name, "reading")
            from lmp.atlas.holding import hold

            return hold(path, options)

    return held


def _remembered(function: Callable[[str], T]) -> Callable[[str], T]:
    """The function, called once for each name: also where it raises an error."""
    from lmp.errors import LmpError

    @functools.cache
    def called(name: str) -> T | LmpError:
        try:
            return function(name)
        except LmpError as error:
            return error

    def once(name: str) -> T:
        found = called(name)
        if isinstance(found, LmpError):
            raise found
        return found

    return once


def served_dtype(option: str, word: object) -> str | None:
    """The dtype of weights or of the cache that a word of an option names. Raises UsageError for others."""
    from lmp.errors import UsageError

    if word is None:
        return None
    found = DTYPES.get(str(word), str(word))
    if found not in ("bfloat16", "fp8"):
        raise UsageError(f"{option} {word} is not served\nserved are bf16 and fp8; without it, what the model has")
    return found


def serve_all(common: Common, predictor: Predictor, replica: Replica, load: Load) -> None:
    """Predict what requests get on each device, and print it."""
    from lmp.errors import UsageError
    from lmp.predict.serve.requests import request_of

    if replica.engine is None:
        raise UsageError("--serve needs the engine\ngive --engine vllm, sglang, trtllm or a file with a profile")
    rows = load.rows()
    model = common.class_path or common.module or common.model_id or (common.config and str(common.config))
    if model is None:
        raise UsageError("which model?\ngive its id or its config.json: lmp predict Qwen/Qwen3-8B --serve ...")
    setup = {
        "model": model, "engine": replica.engine, "overhead_us": replica.overhead_us, "force": replica.force,
        **asdict(replica.parallel),
        "dtype": served_dtype("--dtype", common.element_type), "kv_dtype": served_dtype("--kv-dtype", common.kv_type),
    }  # fmt: skip
    names = [name.strip() for name in replica.devices.split(",") if name.strip()]
    requests = [request_of({**setup, "device": name, **row}) for name in names for row in rows]
    serve(servers_of(common, predictor), requests, common.as_json)


def serve(servers: Servers, requests: Sequence[Request], as_json: bool) -> None:
    """Print what the requests get. Raises the first error if none of them has an answer."""
    from lmp.errors import LmpError
    from lmp.predict.serve.lines import answer, notes
    from lmp.predict.serve.requests import predicted

    made = predicted(requests, servers)
    if all(isinstance(one, LmpError) for one in made):
        raise next(one for one in made if isinstance(one, LmpError))
    if as_json:
        write_json(
            [{**_about(request), **answer(request.id, one)} for request, one in zip(requests, made, strict=True)]
        )
        return
    _print(requests, made)
    told = dict.fromkeys(text for one in made if not isinstance(one, LmpError) for text in notes(one))
    for text in told:
        note(text)
    note(SCOPE)


def _about(request: Request) -> dict[str, object]:
    given = {**request.setup.model_dump(), **request.workload.model_dump()}
    return {name: value for name, value in given.items() if value is not None}


def _print(requests: Sequence[Request], made: Sequence[Answer | Exception]) -> None:
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console
    from lmp.predict.serve.requests import Answer

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("device")
    counts = ("isl", "osl", "in flight", "decoded")
    for column in (*counts, "TPOT ms", "low", "high", "tokens/s", "per user", "prefill ms"):
        table.add_column(column, justify="right")
    table.add_column("mostly")
    failed: dict[str, None] = {}
    for request, one in zip(requests, made, strict=True):
        work = request.workload
        sizes = (request.setup.device, f"{work.isl:,}", f"{work.osl:,}", f"{work.concurrency:,}")
        if not isinstance(one, Answer):
            failed[str(one)] = None
            table.add_row(*map(Text, (*sizes, "", "-")))
            continue
        result = one.served
        us, low, high = result.tpot
        name, share = next(iter(result.shares.items()))
        cells = (
            f"{result.running:,}", f"{us / 1e3:.2f}", f"{low / 1e3:.2f}", f"{high / 1e3:.2f}",
            f"{result.tokens_per_s[0]:,.0f}", f"{1e6 / us:.1f}", f"{result.prefill[0] / 1e3:.1f}",
            f"{name.partition('/')[0]} {share:.0%}",
        )  # fmt: skip
        table.add_row(*map(Text, (*sizes, *cells)))
    screen = console()
    screen.print(table)
    for text in failed:
        note(f"no answer: {' · '.join(text.splitlines())}")
