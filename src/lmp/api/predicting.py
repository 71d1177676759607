"""``lmp.predict``: the time of one call of a model on a device."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, cast

from lmp.api.analysing import GuardWhenRun, Settings, memory_of, options_of
from lmp.api.results import Analysis, frame
from lmp.api.words import in_api_words, translated
from lmp.errors import UsageError

if TYPE_CHECKING:
    import pandas

    from lmp.analyze.session import Options
    from lmp.predict.screen.asking import Subject
    from lmp.predict.screen.whole import Whole


@dataclass(frozen=True, repr=False)
class Predicted:
    """Time of one call of a model on a device, with 80 % intervals, and where each figure comes from."""

    record: Whole
    """The complete prediction: ``answer`` with kernels and host, ``dearest``, ``room`` in memory, ``changes``."""
    warnings: tuple[str, ...]
    """What is not verified, not counted, or beyond what was measured."""

    def __repr__(self) -> str:
        time, low, high = self.ms
        call = self.record.answer
        name = call.evaluation.class_name.rpartition(".")[2]
        on = f"{name} on {call.ask.device.name} ({call.ask.name})"
        return f"<Predicted {on}: {time:.3g} ms, 80 % within {low:.3g} to {high:.3g}, {self.bound}-bound>"

    @property
    def ms(self) -> tuple[float, float, float]:
        """Milliseconds of the call, and the ends of the 80 % interval."""
        us, low, high = self.record.answer.us
        return us / 1e3, low / 1e3, high / 1e3

    @property
    def least_ms(self) -> float:
        """Milliseconds that no implementation of these kernels is below: each at dense peak or peak bandwidth."""
        return sum(one.time.floor_us * one.kernel.repeat for one in self.record.answer.call.operators) / 1e3

    @property
    def bound(self) -> str:
        """What bounds the call: ``launch`` (the host), ``compute``, ``memory``, ``link`` or ``latency``."""
        return self.record.answer.bound

    @property
    def tokens_per_s(self) -> tuple[float, float, float]:
        """New tokens a second in all sequences, and the ends of the 80 % interval."""
        return self.record.answer.tokens_per_s

    @property
    def provenance(self) -> dict[str, float]:
        """``calibrated``, ``sister:NAME``, ``datasheet``, ``datasheet:uncalibrated`` -> share of the kernels' time."""
        return self.record.answer.call.shares("provenance")

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel that is launched, in execution order; times in microseconds, of one execution.

        Columns: ``path``, ``class_name``, ``line``, ``operation``, ``repeat``, ``us``, ``low_us``, ``high_us``,
        ``floor_us``, ``bound``, ``provenance``, ``calibration``, ``error`` (median on held-out sites, per cent).

        Raises UsageError if pandas is not installed.
        """
        of_kernel = ("path", "class_name", "line", "operation", "repeat")
        of_time = ("us", "low_us", "high_us", "floor_us", "bound", "provenance", "calibration", "error")
        return frame(
            [
                {name: getattr(one.kernel, name) for name in of_kernel}
                | {name: getattr(one.time, name) for name in of_time}
                for one in self.record.answer.call.operators
            ]
        )

    def to_json(self) -> str:
        """The prediction as ``lmp predict --json`` prints it."""
        from lmp.predict.screen.writing import as_json

        found = as_json(self.record, self.record.answer.ask.name)
        return json.dumps({**found, "warnings": list(self.warnings)}, indent=2, ensure_ascii=False) + "\n"


class Sources(TypedDict, total=False):
    """Keyword arguments of `predict`, described there."""

    dtype: str | None
    kv_dtype: str | None
    memory: bool
    config: str | Path | None
    results: str | Path | Literal[False] | None
    attention: str | None
    transformers: str | Path | None
    pytorch: str | Path | None
    fresh: bool


@in_api_words()
def predict(
    model: str | Path | Analysis,
    device: str,
    phase: Literal["prefill", "decode"] | None = None,
    *,
    batch_size: int = 1,
    seq_len: int | None = None,
    cache_len: int = 0,
    engine: str | None = None,
    **settings: Unpack[Sources],
) -> Predicted:
    """Predict how long one call of a model takes on a device, kernel by kernel.

    ``model`` is a model id (``"Qwen/Qwen3-8B"``), the path of a config.json, a class path, or an ``Analysis``.
    ``device`` is a name of ``lmp devices``. ``phase="prefill"`` needs ``seq_len``, ``phase="decode"`` needs
    ``cache_len``; without a phase both may be given.

    ``engine`` is a profile: ``"vllm"``, ``"sglang"``, ``"trtllm"``, ``"transformers-eager"``,
    ``"transformers-compiled"``, or a TOML file. Without it, each operator of the class is a kernel.

    ``settings`` are keyword arguments. ``dtype`` is a word for weights, activations and cache, as ``"bf16"``, ``"fp8"``
    or ``"w8a16"``, and ``kv_dtype`` one for the cache. ``memory=True`` works out what the device's memory holds, and
    refuses a model that does not fit. ``config`` (a file), ``results``, ``attention``, ``transformers``, ``pytorch``
    and ``fresh`` are as of ``analyze``.

    Raises UsageError for an unknown device, engine or dtype, or sizes that do not go together.
    """
    from lmp.predict.prediction import Predictor
    from lmp.predict.screen.asking import asked_for
    from lmp.predict.screen.whole import Wanted, whole
    from lmp.report.warnings import of_assumptions, of_the_model, of_the_values

    predictor = Predictor()
    sizes = _call_sizes(phase, batch_size, seq_len, cache_len)
    ask = asked_for(predictor.device(device), sizes, engine, (settings.get("dtype"), settings.get("kv_dtype")))
    for unknown in settings.keys() - Sources.__annotations__.keys():
        raise TypeError(f"predict() got an unexpected keyword argument {unknown!r}")
    subject, options = _predicted_model(model, settings)
    if settings.get("memory") and options is not None:
        with GuardWhenRun() as progress:
            held = memory_of(subject, options, ask, progress)
    else:
        held = "it was not asked for"
    found = whole(subject, ask, predictor, held, Wanted(changes=False))
    now = found.answer
    warnings = [*of_the_model(subject.numbers(ask.given).model), *of_the_values(subject.model, now.values["cache_len"])]
    warnings += [*of_assumptions(now.evaluation.violated_assumptions), *found.warnings]
    return Predicted(found, tuple(translated(warning) for warning in warnings))


def _call_sizes(phase: str | None, batch_size: int, seq_len: int | None, cache_len: int) -> dict[str, int]:
    if phase not in (None, "prefill", "decode"):
        raise UsageError(f"there is no phase {phase!r:.40}\ngive prefill or decode")
    if phase == "prefill" and (seq_len is None or cache_len):
        raise UsageError("a prefill has new tokens and an empty cache\ngive seq_len, and no cache_len")
    if phase == "decode" and (seq_len not in (None, 1) or cache_len < 1):
        raise UsageError("a decode step has one new token on a cache\ngive cache_len, and no seq_len")
    if seq_len is None and phase is None:
        raise UsageError("the size of the call is missing\ngive seq_len, or phase='decode' and cache_len")
    return {"batch_size": batch_size, "seq_len": 1 if seq_len is None else seq_len, "cache_len": cache_len}


def _predicted_model(model: str | Path | Analysis, settings: Sources) -> tuple[Subject, Options | None]:
    """The expanded model, and the options it was made with; None for an analysis that was handed in."""
    from lmp.predict.screen.asking import Subject
    from lmp.source.subject import subject_of

    if isinstance(model, Analysis):
        return Subject(model.linked()), None
    named = subject_of(str(model))
    if named.file is not None:
        raise UsageError(f"{model} is a file with classes\ngive an Analysis: lmp.expand(Class, inputs=...)")
    with GuardWhenRun() as progress:
        from lmp.atlas.asking import atlas_folder, with_atlas
        from lmp.atlas.models import class_of_config, expand_model

        options = with_atlas(options_of(cast("Settings", settings), "bfloat16"), atlas_folder())
        options = replace(options, model_id=named.model_id)
        if named.config is not None:
            options = replace(options, config_file=named.config)
        name = named.class_path or class_of_config(options)
        found = expand_model(name, options, progress).model
    config = options.found_config
    return Subject(found, None if config is None else config.content), options
