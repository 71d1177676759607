"""Questions on models as tools for MCP clients: `evaluate`, `predict`, `memory`, `inspect`, `diff` and `catalogue`.

Answers are short JSON: totals, and the dearest parts. A model is named by its id, its name in the catalogue, a class of
torch or transformers, or a config.json below the working folder; no other path is read.
"""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field

from lmp.agents.base import Answer, Tool
from lmp.agents.tools import Arguments
from lmp.api.analysing import Settings, guard
from lmp.api.calls import Asked, points
from lmp.api.models import ARGUMENTS, How, Model, asked_of, model, predictor
from lmp.api.sizes import kv_size
from lmp.api.words import in_api_words
from lmp.errors import LmpError, UsageError
from lmp.formula import json_number, plain
from lmp.link.values import values_for
from lmp.predict.experts import of_many_calls
from lmp.records import short

if TYPE_CHECKING:
    from lmp.analyze.session import Options
    from lmp.link.numbers import KernelNumbers
    from lmp.observe.inspection import Module

T = TypeVar("T")
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

CHARACTERS = 2_000
"""Length of an answer, unless more is asked for."""
MOST_CHARACTERS = 20_000
MOST_POINTS = 64
"""Points of one question."""
SERVING = "vllm"
"""Engine whose time stands beside that of eager mode, where none is named."""
NOT_OF_TIME = ("flops", "matmul_flops", "read", "write", "compulsory")
"""Columns of a table that `evaluate` answers with, and `predict` leaves out."""
KEPT_MODELS = 4
"""Models whose formulas stay in memory between questions."""

Count = Annotated[int, Field(ge=1, le=2**20)]
Tokens = Annotated[int, Field(ge=1, le=2**30)]
Word = Annotated[str, Field(max_length=40)]
Engine = Literal["vllm", "sglang", "trtllm", "transformers-eager", "transformers-compiled"]


class Short(Arguments):
    characters: int = Field(
        CHARACTERS, ge=200, le=MOST_CHARACTERS, description="length of the answer; longer lists with more"
    )


class OfModel(Short):
    model: str = Field(
        max_length=300,
        description="model id (Qwen/Qwen3-8B), class path of torch or transformers, or a config.json in the working "
        "folder",
    )


class Call(Short):
    phase: Literal["decode", "prefill"] = Field(
        description="decode: one new token a sequence, on cached ones; prefill: prompts, with an empty cache"
    )
    batch: Count | list[Count] = Field(1, description="sequences; a list gives one row each")
    cache: Tokens | list[Tokens] | None = Field(None, description="decode: tokens in the cache of each sequence")
    tokens: Tokens | list[Tokens] | None = Field(None, description="prefill: tokens of each prompt")
    dtype: Word | None = Field(
        None, description="word for all elements and products: bf16, fp8, w8a16 [default: as the checkpoint]"
    )
    weights: Word | None = Field(None, description="format of the weights alone: fp8, int4, mxfp4")
    kv: Word | None = Field(None, description="format of the KV cache alone: fp8")


class Evaluate(OfModel, Call):
    tp: int = Field(1, ge=1, le=1024, description="GPUs that share each layer: FLOPs and bytes are of one of them")
    by: Literal["bytes", "flops"] = Field("bytes", description="what the dearest parts are sorted by")
    top: int = Field(8, ge=1, le=100, description="dearest parts to list")


class Predict(Evaluate):
    device: str = Field(max_length=80, description="name of a device: h100-sxm, a100-sxm, b200-sxm, mi300x")
    engine: Engine | None = Field(None, description="what launches the kernels [default: eager PyTorch beside vllm]")


class Memory(OfModel):
    device: str = Field(max_length=80, description="name of a device: h100-sxm, a100-sxm, b200-sxm, mi300x")
    batch: Count = Field(1, description="sequences")
    cache: Tokens = Field(description="tokens of each sequence")
    tp: int = Field(1, ge=1, le=1024, description="GPUs that share each layer")
    weights: Word | None = Field(None, description="format of the weights: fp8 [default: as the checkpoint]")
    kv: Word | None = Field(None, description="format of the KV cache: fp8 [default: the model's dtype]")


class Inspect(OfModel):
    depth: int = Field(3, ge=0, le=20, description="levels of modules to list")


class Diff(Call):
    a: str = Field(max_length=300, description="first model, as `model` of evaluate")
    b: str = Field(max_length=300, description="second model")
    top: int = Field(8, ge=1, le=100, description="largest changes to list")


class Catalogue(Short):
    contains: str = Field("", max_length=80, description="part of an id, case ignored; empty: all models")


@dataclass
class Questions:
    """The tools, with the models that they were asked about."""

    options: Options
    """Folders of results and sources."""
    in_thread: InThread
    """Runs blocking work: one question at a time."""
    _models: OrderedDict[str, Model] = field(default_factory=OrderedDict, repr=False)

    def tools(self) -> list[Tool]:
        """The six tools. Each bad argument is answered in words."""
        asked: list[tuple[type[Short], str, Callable[[Any], dict[str, Any]]]] = [
            (Evaluate, "Costs of a model's call: FLOPs, bytes, KV bytes, and its dearest operators.", self._evaluate),
            (Predict, "Time of a model's call on a GPU: ms with 80 % interval, tokens/s, memory.", self._predict),
            (Memory, "Whether a model fits on a GPU: weights, KV cache, activations, what is the most.", self._memory),
            (Inspect, "Modules, parameters and KV cache of a model, without weights.", self._inspect),
            (Diff, "Calls of two models side by side: FLOPs, bytes, and what differs most.", self._diff),
            (Catalogue, "Models that lmp knows without a network.", self._catalogue),
        ]
        return [self._tool(arguments, description, answer) for arguments, description, answer in asked]

    def _tool(self, arguments: type[Short], description: str, answer: Callable[[Any], dict[str, Any]]) -> Tool:
        async def call(given: Short) -> Answer:
            answered: Answer = await self.in_thread(lambda: _answered(answer, given))
            return answered

        return Tool(arguments.__name__.lower(), description, arguments, call)

    # -- the questions -------------------------------------------------------------------------------------------------

    def _evaluate(self, given: Evaluate) -> dict[str, Any]:
        found = self._model(given.model)
        rows, said = _rows(found, given, tp=given.tp)
        counted = of_many_calls(found.subject.model)
        data = {**_about(found), "units": "FLOPs: scalar operations; all else: bytes", "counted": counted, "rows": rows}
        return {**data, "dearest": _dearest(found, given), "warnings": said}

    def _predict(self, given: Predict) -> dict[str, Any]:
        found = self._model(given.model)
        engines = [given.engine] if given.engine is not None else [None, SERVING]
        data: dict[str, Any] = {
            **_about(found), "device": given.device, "counted": of_many_calls(found.subject.model),
        }  # fmt: skip
        said: list[str] = []
        for engine in engines:
            rows, more = _rows(found, given, tp=given.tp, device=given.device, engine=engine)
            data[engine or "eager"] = [{name: row[name] for name in row if name not in NOT_OF_TIME} for row in rows]
            said += more
        return {**data, "dearest": _slowest(found, given, engines[0]), "warnings": list(dict.fromkeys(said))}

    def _memory(self, given: Memory) -> dict[str, Any]:
        from lmp.predict.memory import Asked, as_json, memory
        from lmp.predict.quantising import narrowed

        found = self._model(given.model)
        how = How.of(weights=given.weights, kv=given.kv, device=given.device, tp=given.tp)
        ask = asked_of("decode", {"batch": given.batch, "cache": given.cache}, how).ask
        assert ask is not None
        held = found.held(ask)
        if isinstance(held, str):
            raise UsageError(f"its memory is not known: {held}\ngive a whole model, by id or config")
        kv = None if given.kv is None else Fraction(kv_size(given.kv))
        held = narrowed(held, ask.given.get("w_bytes"))
        asked = Asked(given.tp, 1, given.batch, given.cache, kv, min(given.cache, 8192), None)
        data = as_json(held, ask.device, memory(held, ask.device, asked))
        breakdown = data.pop("breakdown")
        assert isinstance(breakdown, dict)
        return {**_rounded(data), "kv_layers": breakdown["kv"]}

    def _inspect(self, given: Inspect) -> dict[str, Any]:
        from lmp.observe.inspecting import inspect_model

        path, options = self._named(given.model)
        with guard():
            found = inspect_model(path, options)
        data = found.model_dump(mode="json", exclude_none=True, exclude={"tree", "distribution", "version"})
        return {**data, "config": data["config"]["origin"], "modules": list(_lines(found.tree, given.depth, 0))}

    def _diff(self, given: Diff) -> dict[str, Any]:
        from lmp.link.compare import Side, compare

        a, b = self._model(given.a), self._model(given.b)
        point = next(points(_asked(given)))
        records = [one.subject.numbers(point).model for one in (a, b)]
        values = [values_for(record, point) for record in records]
        found = compare(Side(given.a, records[0], values[0]), Side(given.b, records[1], values[1]))
        totals = {}
        for name, one in found.totals.items():
            ours, theirs = (None if term is None else _number(term.value) for term in (one.a, one.b))
            share = None if one.relative is None else _digits(one.relative)
            totals[name] = {"a": ours, "b": theirs, "relative": share}
        changes = [
            (one.change, one.state, place)
            for one in found.modules
            for place in [one.b or one.a]
            if one.change is not None and place is not None
        ]
        changes.sort(key=lambda change: -abs(Fraction(change[0].read) + Fraction(change[0].write)))
        modules = [
            {
                "path": place.path or "the model", "class": short(place.class_name), "state": state,
                "flops": change.flops, "bytes": _number(plain(change.read + change.write)),
            }
            for change, state, place in changes[: given.top]
        ]  # fmt: skip
        about = {"a": _about(a), "b": _about(b), "point": _point(given)}
        return {**about, "totals": totals, "changes_b_minus_a": modules}

    def _catalogue(self, given: Catalogue) -> dict[str, Any]:
        from lmp.source.catalogue import entries

        part = given.contains.lower()
        found = [one for one in entries() if part in one.id.lower() or any(part in a.lower() for a in one.aliases)]
        return {"models": [f"{one.id} ({one.architecture})" for one in found], "count": len(found)}

    # -- models --------------------------------------------------------------------------------------------------------

    def _model(self, text: str) -> Model:
        refuse_other_paths(text)
        key = text
        if text.endswith(".json") and Path(text).is_file():
            key = f"{text} {Path(text).stat().st_mtime_ns}"  # it may have been edited since
        if key not in self._models:
            self._models[key] = model(text, **self._settings())
        self._models.move_to_end(key)
        while len(self._models) > KEPT_MODELS:
            self._models.popitem(last=False)
        return self._models[key]

    def _named(self, text: str) -> tuple[str | None, Options]:
        """The class path, and the options with the config that a text names."""
        from lmp.source.subject import subject_of

        refuse_other_paths(text)
        named = subject_of(text)
        return named.class_path, replace(self.options, model_id=named.model_id, config_file=named.config)

    def _settings(self) -> Settings:
        return {
            "results": self.options.results,
            "transformers": self.options.transformers,
            "pytorch": self.options.pytorch,
            "attention": self.options.attention,
            "dtype": self.options.dtype,
        }


def refuse_other_paths(text: str) -> None:
    """Raise UsageError for what is no model: a path outside of the working folder, a Python file, a class of others."""
    from lmp.source.subject import is_model_id, looks_like_path

    otherwise = "give a model id, as Qwen/Qwen3-8B, or a config.json in the working folder"
    if "\0" in text or not text.isprintable():
        raise UsageError(f"the name has characters that no model has\n{otherwise}")
    if not looks_like_path(text) and is_model_id(text):
        return
    if "/" in text or "\\" in text or text.endswith((".json", ".py")) or text.startswith((".", "~")):
        here = Path.cwd().resolve()
        if not Path(text).resolve().is_relative_to(here) or not text.endswith(".json"):
            raise UsageError(f"{text[:80]!r} is no config.json below the working folder\n{otherwise}")
    elif not text.startswith(("torch.", "transformers.")):
        from lmp.errors import did_you_mean
        from lmp.source.catalogue import close_ids

        raise UsageError(f"{text[:80]!r} is no model\n{did_you_mean(close_ids(text), otherwise)}")


# --- answers ---------------------------------------------------------------------------------------------------------


def _answered(answer: Callable[[Any], dict[str, Any]], given: Short) -> Answer:
    """The answer as JSON of the asked length; an error of lmp in words."""
    try:
        with in_api_words(ARGUMENTS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are in the answer
            return Answer(shortened(answer(given), given.characters))
    except LmpError as error:
        return Answer(str(error)[: given.characters], refused=True)


def shortened(data: dict[str, Any], most: int) -> str:
    """The data as JSON of at most ``most`` characters: the longest list loses its end, and ``left_out`` says so."""
    data, left_out = dict(data), dict[str, int]()
    text = json.dumps(data, ensure_ascii=False)
    while len(text) > most:
        lists = {name: value for name, value in data.items() if isinstance(value, list) and value}
        if not lists:
            return text[: most - 1] + "…"
        longest = max(lists, key=lambda name: len(json.dumps(lists[name])))
        data[longest] = data[longest][:-1]
        left_out[longest] = left_out.get(longest, 0) + 1
        text = json.dumps({**data, "left_out": left_out}, ensure_ascii=False)
    return text


def _about(found: Model) -> dict[str, Any]:
    return {"model": found.name, "class": short(found.class_name), "status": found.status}


def _point(given: Call) -> dict[str, Any]:
    """The sizes of a call by their arguments. Raises UsageError for a size that the phase does not have."""
    needed, other = ("cache", "tokens") if given.phase == "decode" else ("tokens", "cache")
    size = getattr(given, needed)
    if size is None:
        raise UsageError(f"a {given.phase} needs {needed}\ngive it, as in {needed}=8192")
    if getattr(given, other) is not None:
        raise UsageError(f"a {given.phase} has no {other}\nleave it out")
    points = 1
    for name, value in (("batch", given.batch), (needed, size)):
        points *= len(value) if isinstance(value, list) else 1
        if not points:
            raise UsageError(f"{name} has no values\ngive one at least")
    if points > MOST_POINTS:
        raise UsageError(f"{points:,} points are more than {MOST_POINTS}\nask for fewer at once")
    return {"batch": given.batch, needed: size}


def _rows(found: Model, given: Call, **how: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of the table of a call, and what their reader has to know."""
    call = found.decode if given.phase == "decode" else found.prefill
    table = call(**_point(given), dtype=given.dtype, weights=given.weights, kv=given.kv, **how)
    rows = [_rounded(row) for row in table.to_dict("records")]
    return rows, list(table.attrs["warnings"])


def _rounded(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The values that are known; those that are no whole numbers with five digits."""
    return {str(name): _digits(v) if isinstance(v, float) else v for name, v in row.items() if v is not None}


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def _number(value: Any) -> Any:
    return json_number(value) if isinstance(value, Fraction) else value


def _asked(given: Call, device: str | None = None, engine: str | None = None, tp: int = 1) -> Asked:
    """The first point of a call."""
    sizes = {name: value[0] if isinstance(value, list) else value for name, value in _point(given).items()}
    return asked_of(given.phase, sizes, How.of(given.dtype, given.weights, given.kv, device, engine, tp))


def _dearest(found: Model, given: Evaluate) -> list[dict[str, Any]]:
    """The dearest operators of the whole model at the first point."""
    point = next(points(_asked(given)))
    numbers = found.subject.numbers(point)
    tree = numbers.tree(values_for(numbers.model, point))
    whole = tree.total.bytes if given.by == "bytes" else tree.total.flops

    def cost(one: KernelNumbers) -> Any:
        return one.total.bytes if given.by == "bytes" else one.total.flops

    kernels = sorted(tree.kernels(), key=lambda one: -cost(one))[: given.top]
    return [
        {
            "path": one.path or "the model", "operation": one.kernel.operation, "line": one.kernel.line,
            "runs": one.runs, "flops": one.total.flops, "bytes": _number(one.total.bytes),
            "share": round(float(cost(one) / whole), 4),
        }
        for one in kernels
        if cost(one)
    ]  # fmt: skip


def _slowest(found: Model, given: Predict, engine: str | None) -> list[dict[str, Any]]:
    """The kernels with the largest share of the time at the first point."""
    from lmp.predict.screen.asking import answer
    from lmp.predict.screen.dearest import dearest

    asked = _asked(given, given.device, engine, given.tp)
    assert asked.ask is not None
    now = answer(found.subject, replace(asked.ask, given=next(points(asked))), predictor())
    return [
        {"operation": one.operation, "runs": one.runs, "ms": _digits(one.us / 1e3), "share": _digits(one.share),
         "bound": one.bound}
        for one in dearest(now, given.top)
    ]  # fmt: skip


def _lines(module: Module, depth: int, level: int) -> Iterable[str]:
    """One line a module, indented: name, class, how often, parameters of one."""
    times = f" x {module.repeat}" if module.repeat != 1 else ""
    yield f"{'  ' * level}{module.name or 'model'} {short(module.class_name)}{times}: {module.parameters_count:,}"
    if level < depth:
        for inner in module.modules:
            yield from _lines(inner, depth, level + 1)
