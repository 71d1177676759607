"""``lmp.model``: a model whose decode steps and prefills are asked for, at one point or at many."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from lmp.api.analysing import (
    GuardWhenRun,
    Settings,
    content_of,
    expand,
    imported_elsewhere,
    memory_of,
    options_of,
    with_config,
)
from lmp.api.inputs import Init, Inputs
from lmp.api.results import Analysis, frame, shown
from lmp.api.sizes import Format, Sizes, kv_size, sizes_of, weights_size, word_of
from lmp.api.words import in_api_words, translated
from lmp.errors import UsageError
from lmp.link.values import CALL, known_name
from lmp.records import short

if TYPE_CHECKING:
    import pandas

    from lmp.analyze.session import Options
    from lmp.api.calls import Asked
    from lmp.formula import Number
    from lmp.link.numbers import ModelNumbers
    from lmp.observe.held import Held
    from lmp.predict.prediction import Predictor
    from lmp.predict.screen.asking import Ask, Subject
    from lmp.records import ModelAnalysis

Target = Any
"""A model id, a path, a mapping, a config of transformers, a class, a module, or an Analysis."""

ARGUMENTS = {
    "batch_size": "batch", "seq_len": "tokens", "cache_len": "cache", "w_bytes": "weights", "kv_bytes": "kv",
}  # fmt: skip
"""Variable of the formulas -> argument of `Model.decode` and `Model.prefill`."""


class Run(TypedDict, total=False):
    """How a call runs on a device, described at `Model.decode`."""

    engine: str | None
    tp: int


VARIABLES = {argument: variable for variable, argument in ARGUMENTS.items()}


def model(
    target: Target, inputs: Inputs | None = None, init: Init | None = None, **settings: Unpack[Settings]
) -> Model:
    """Return a model, to be asked for the costs and times of its calls.

        m = lmp.model("Qwen/Qwen3-8B")
        m.decode(batch=[1, 8, 64], cache=8192, weights="fp8", device="h100-sxm")

    ``target`` is one of:

    - a model id, such as ``"Qwen/Qwen3-8B"``: its config is in the cache of the hub, on the hub or in lmp's catalogue;
    - the path of a config.json or of its folder, its content as a mapping, or a config object of transformers. The
      class is the first of its ``architectures``; without these it is the causal language model of its ``model_type``;
    - a class path, such as ``"torch.nn.Linear"``, or a class;
    - a live module with ``inputs``, as for ``lmp.analyze``. A model of transformers needs none: its config is taken;
    - the result of ``lmp.analyze`` or ``lmp.expand``.

    ``inputs``, ``init`` and ``settings`` are those of ``lmp.analyze``. ``results=False`` keeps nothing; the default is
    the results folder of the command line. The first call for a model derives and verifies formulas, which takes about
    half a minute. Later ones read them in about a second.

    Raises the errors of ``lmp.analyze`` and ``lmp.expand``.
    """
    for name in settings.keys() - Settings.__annotations__.keys():
        raise TypeError(f"model() got an unexpected keyword argument {name!r}")
    with in_api_words({"with config=FILE": "by its path"}):
        return _model(target, inputs, init, settings)


@dataclass(frozen=True, repr=False)
class Model:
    """A model with its formulas. ``decode`` and ``prefill`` return a DataFrame with one row a point."""

    name: str
    """The model id, the name of the config, or the name of the class."""
    analysis: Analysis
    """The formulas of the whole model: ``analysis.record`` is a ``ModelAnalysis``."""
    subject: Subject
    options: Options | None = None
    """How it was made; None for an analysis that was handed in."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Sizes in place of the config's, as ``at`` was given them."""
    _held: dict[int, Held | str] = field(default_factory=dict)

    def decode(
        self,
        batch: Sizes = 1,
        *,
        cache: Sizes,
        dtype: str | None = None,
        weights: Format | None = None,
        kv: Format | None = None,
        device: str | None = None,
        engine: str | None = None,
        tp: int = 1,
    ) -> pandas.DataFrame:
        """Costs of a decode step: one new token for each of ``batch`` sequences that have ``cache`` tokens each.

        ``batch`` and ``cache`` are whole numbers, or lists, ranges, arrays or tensors of them. ``"8k"`` is 8,192. Every
        combination is one row; ``cache`` varies fastest.

        ``weights`` and ``kv`` are the formats of weights and KV cache: a word as ``"fp8"`` or ``"mxfp4"``, or bytes of
        an element. ``dtype`` is a word for all of these, activations and products included. Without them, weights are
        as the checkpoint stores them, and everything else has 16 bits.

        ``device`` is a name of ``lmp devices``, and ``engine`` a profile: ``"vllm"``, ``"sglang"``, ``"trtllm"``,
        ``"transformers-eager"``, ``"transformers-compiled"`` or a TOML file. Without an engine each operator is a
        kernel. ``tp`` is the number of GPUs that share each layer.

        Columns:

        - ``batch``, ``cache``: the point.
        - ``flops``, ``matmul_flops``: scalar operations of the step.
        - ``read``, ``write``, ``bytes``: bytes that its operators read, write, and both together.
        - ``flops_per_token``, ``bytes_per_token``: the same, divided by the new tokens of all sequences.
        - ``compulsory``: bytes of the least traffic that any fusion could reach.
        - ``weights_bytes``: bytes of all weights. Below 2 bytes an element, embedding, head, routers and norms stay at
          2, as in checkpoints. All other figures count every weight alike.
        - ``kv_bytes``: bytes of the KV cache after the step.

        With ``tp`` these are of one GPU, collectives included. A figure that is not known is None.

        With a device also:

        - ``time_ms``, ``low_ms``, ``high_ms``: milliseconds of the step, and the ends of the 80 % interval.
        - ``tokens_per_s``: new tokens a second in all sequences.
        - ``bound``: ``launch``, ``compute``, ``memory``, ``link`` or ``latency``.
        - ``fits``: whether weights, cache and activations fit on each GPU; None where that is not known.
        - ``memory_bytes``: bytes that they take on the GPU with the least room.

        Figures are exact. What their reader has to know is a Python warning, and a list in ``attrs["warnings"]``.
        ``attrs["counted"]`` says how many experts' weights are counted to be read.

        Raises UsageError for an argument that cannot be used.
        """
        with in_api_words(ARGUMENTS):
            how = How.of(dtype, weights, kv, device, engine, tp)
            return self._frame("decode", {"batch": batch, "cache": cache}, how)

    def prefill(
        self,
        batch: Sizes = 1,
        *,
        tokens: Sizes,
        cache: Sizes = 0,
        dtype: str | None = None,
        weights: Format | None = None,
        kv: Format | None = None,
        device: str | None = None,
        **run: Unpack[Run],
    ) -> pandas.DataFrame:
        """Costs of a prefill: ``batch`` prompts of ``tokens`` tokens each, with an empty cache.

        With ``cache`` it is a chunk of a prompt, whose first ``cache`` tokens are there already: a column says so.

        All other arguments, ``engine`` and ``tp`` among them, and all other columns are those of ``decode``.
        """
        for name in run.keys() - Run.__annotations__.keys():
            raise TypeError(f"prefill() got an unexpected keyword argument {name!r}")
        with in_api_words(ARGUMENTS):
            how = How.of(dtype, weights, kv, device, **run)
            chunk = {} if isinstance(cache, int) and cache == 0 else {"cache": cache}
            return self._frame("prefill", {"batch": batch, "tokens": tokens, **chunk}, how)

    def at(self, **values: int) -> Model:
        """Return the model with other values of its own sizes, as in ``m.at(num_hidden_layers=2)``.

        Names are those of ``analysis.record.parameters``.

        Raises UsageError for an unknown name, or a value that it cannot have.
        """
        with in_api_words():
            record = cast("ModelAnalysis", self.analysis.record)
            found = {known_name(record, name): int(sizes_of(name, value, 0)[0]) for name, value in values.items()}
            call = next((name for name in found if name in CALL), None)
            if call is not None:
                raise UsageError(f"{call} is a size of a call\ngive it to decode() or prefill()")
            made = record.model_copy(update={"values": {**record.values, **found}})
            subject = replace(self.subject, model=made)
            return Model(self.name, replace(self.analysis, record=made), subject, None, {**self.changed, **found})

    @property
    def class_name(self) -> str:
        """The path of the class under its defining module."""
        return self.analysis.class_name

    @property
    def status(self) -> str:
        """``verified``: at every executed point, each line's formulas equal the counted amounts."""
        return self.analysis.status

    @property
    def parameters(self) -> int | None:
        """Number of parameters, each counted once; None if the analysis does not say it."""
        from lmp.api.tree import parameters

        return parameters(self.numbers)

    @property
    def numbers(self) -> ModelNumbers:
        """The formulas with the bytes of the checkpoint, parsed once."""
        return self.subject.own

    def __repr__(self) -> str:
        count = self.parameters
        size = "" if count is None else f", {shown(count, '')} parameters".replace("  ", " ")
        return f"<Model {self.name}: {short(self.class_name)}{size}, {self.status}>"

    def _repr_html_(self) -> str:
        """A tree of its modules with their shares, for a notebook."""
        from lmp.api.tree import html

        return html(repr(self), self.numbers)

    def _frame(self, phase: str, sizes: Mapping[str, Sizes], how: How) -> pandas.DataFrame:
        """The table of the calls, as a DataFrame."""
        from lmp.api.calls import points, table
        from lmp.predict.experts import of_many_calls

        self._need_values()
        asked = asked_of(phase, sizes, how)
        made = table(self.subject, asked, predictor(), "" if asked.ask is None else self.held(asked.ask))
        every = list(points(asked))
        columns = {name: [point[VARIABLES[name]] for point in every] for name in sizes}
        found = frame({**columns, **{name: _plainly(column) for name, column in made.columns.items()}})
        said = [translated(text, ARGUMENTS) for text in dict.fromkeys(made.warnings)]
        found.attrs |= {"model": self.name, "warnings": said, "counted": of_many_calls(self.subject.model)}
        for text in said:
            warnings.warn(text, stacklevel=4)
        return found

    def _need_values(self) -> None:
        record = self.subject.model
        missing = [name for name in record.parameters if name not in record.values and name not in CALL]
        if missing:
            example = ", ".join(f"{name}=16" for name in missing)
            raise UsageError(
                f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value in {record.class_name}\n"
                f"give it with at(), as in m.at({example}).decode(...)"
            )

    def held(self, ask: Ask) -> Held | str:
        """What the model holds in memory, worked out once for each tp; or why that is not known."""
        tp = ask.parallel.tp
        if tp not in self._held:
            with GuardWhenRun() as progress:
                given: dict[str, Number] = {**ask.given, **self.changed}
                self._held[tp] = memory_of(self.subject, self.options, replace(ask, given=given), progress)
        return self._held[tp]


# --- how a call is made ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class How:
    """What a call is beside its sizes. ``given`` are bytes of elements."""

    dtype: str | None
    given: Mapping[str, Number]
    device: str | None
    engine: str | None
    tp: int

    @classmethod
    def of(
        cls,
        dtype: str | None = None,
        weights: Format | None = None,
        kv: Format | None = None,
        device: str | None = None,
        engine: str | None = None,
        tp: int = 1,
    ) -> How:
        """The arguments of a call, checked. Raises UsageError."""
        for name, text in (("device", device), ("engine", engine), ("dtype", dtype)):
            if text is not None and not isinstance(text, str):
                raise UsageError(f"{name} is {text!r:.60}, which is no name\ngive a text")
        if device is None and engine is not None:
            raise UsageError('engine is given without a device\ngive a device too, as in device="h100-sxm"')
        given: dict[str, Number] = {}
        if weights is not None:
            given["w_bytes"] = weights_size(weights)
        if kv is not None:
            given["kv_bytes"] = kv_size(kv)
        gpus = sizes_of("tp", tp, 1)
        if len(gpus) != 1:
            raise UsageError("tp has several values\ngive one number of GPUs")
        return cls(None if dtype is None else word_of("dtype", dtype), given, device, engine, int(gpus[0]))


PHASES: Mapping[str, Mapping[str, int]] = {"decode": {"seq_len": 1}, "prefill": {"cache_len": 0}}
"""Phase -> the size that it fixes."""


def asked_of(phase: str, sizes: Mapping[str, Sizes], how: How) -> Asked:
    """The table that is asked for. ``sizes`` are by argument."""
    from lmp.api.calls import asked

    device = None if how.device is None else predictor().device(how.device)
    lowest = {"cache": 0} if phase == "prefill" else {}
    found = {VARIABLES[name]: sizes_of(name, given, lowest.get(name, 1)) for name, given in sizes.items()}
    fixed = {name: (value,) for name, value in PHASES[phase].items() if name not in found}
    return asked({**found, **fixed}, how.given, how.engine, (how.dtype, device, how.tp))


@cache
def predictor() -> Predictor:
    """The shipped devices and calibrations, read once."""
    from lmp.predict.prediction import Predictor

    return Predictor()


def _plainly(column: list[Any]) -> list[Any]:
    """Numbers that pandas knows: fractions of bytes as floats, a column without values as it is."""
    whole = all(isinstance(one, int) or one is None for one in column)
    return column if whole else [float(one) if isinstance(one, Fraction) else one for one in column]


# --- what a model is made from ---------------------------------------------------------------------------------------


def _model(target: Target, inputs: Inputs | None, init: Init | None, settings: Settings) -> Model:
    if isinstance(target, Model):
        return target
    if isinstance(target, Analysis):
        return _of_analysis(short(target.class_name), target)
    content = content_of(target)
    if content is not None:
        if inputs is not None or init is not None or settings.get("config") is not None:
            raise UsageError("a config is given with inputs, init or another config\nleave them out")
        return _of_config(None, with_config(_options(settings), content), settings)
    config = content_of(getattr(target, "config", None))
    if config is not None and inputs is None and type(target).__module__.startswith("transformers."):
        from lmp.source.runtime import path_of

        return _of_config(path_of(type(target)), with_config(_options(settings), config), settings)
    if isinstance(target, str | Path) and inputs is None and init is None:
        return _of_name(str(target), settings)
    found = expand(target, inputs, init, **settings)
    return _of_analysis(short(found.class_name), found)


def _options(settings: Settings) -> Options:
    """The options of a model that the atlas may answer."""
    from lmp.atlas.asking import atlas_folder, with_atlas

    return with_atlas(options_of(settings, settings.get("dtype", "bfloat16")), atlas_folder())


def _of_name(text: str, settings: Settings) -> Model:
    """The model of an id, of a config.json, or of a class path."""
    from lmp.source.subject import config_in, subject_of

    named = subject_of(config_in(text))
    if named.file is not None:
        raise UsageError(
            f"{text} is a file with classes\nimport the class, and give it with inputs: lmp.model(Block, inputs=...)"
        )
    if named.class_path is None and settings.get("config") is not None:
        raise UsageError(f"two configs are given: {text} and config\ngive one")
    options = replace(_options(settings), model_id=named.model_id)
    content = content_of(settings.get("config"))
    if named.config is not None:
        options = replace(options, config_file=named.config)
    elif content is not None:
        options = with_config(options, content)
    return _of_config(named.class_path, options, settings)


def _of_config(class_path: str | None, options: Options, settings: Settings) -> Model:
    """The model of a class at a config; without a class, of the config's own."""
    from lmp.predict.screen.asking import Subject
    from lmp.source.trees import find_trees

    found = options.found_config
    name = None if found is None else found.model_id or (found.file.stem if found.file is not None else None)
    elsewhere = imported_elsewhere(find_trees(None, options.transformers, options.pytorch))
    with GuardWhenRun() as progress:
        from lmp.atlas.models import expand_model

        class_path = class_path or _class_of(options)
        if elsewhere is None or options.transformers is not None:
            record = expand_model(class_path, options, progress, keep=False).model
    if elsewhere is not None and options.transformers is None:
        # The process runs another copy of transformers than the trees have: that copy is analysed.
        given: Settings = {**settings, "config": None if found is None else found.content}
        record = cast("ModelAnalysis", expand(class_path, **given).record)
    subject = Subject(record, None if found is None else found.content)
    return Model(name or short(record.class_name), Analysis(record), subject, options)


def _class_of(options: Options) -> str:
    """The class of the config: the first of its architectures, else the causal language model of its type."""
    from lmp.atlas.models import class_of_config
    from lmp.source.auto import class_path_of, families
    from lmp.source.names import Names
    from lmp.source.trees import find_trees

    found = options.found_config
    if found is not None and not found.architectures and isinstance(found.content.get("model_type"), str):
        trees = find_trees(None, options.transformers, options.pytorch)
        if trees.transformers is not None:
            for family in families(trees, "causal-lm"):
                if family.name == found.content["model_type"]:
                    return class_path_of(family, Names(trees))
    return class_of_config(options)


def _of_analysis(name: str, analysis: Analysis) -> Model:
    from lmp.predict.screen.asking import Subject

    record = analysis.linked()
    return Model(name, replace(analysis, record=record), Subject(record), None)
