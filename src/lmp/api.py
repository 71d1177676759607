"""lmp from Python: analyses of classes and of live modules, their evaluation, and export to frames and files.

Only one call at a time may run in a process, because lmp changes PyTorch's global state and restores it.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from lmp.errors import UsageError
from lmp.workload.spec import Construct, Spec, is_plain, parse_init, parse_inputs, parse_tensor

if TYPE_CHECKING:
    import pandas
    import torch

    from lmp.analyze.session import Options, Session
    from lmp.link.numbers import ModelNumbers
    from lmp.link.records import EvaluatedTotals, Evaluation
    from lmp.predict.screen.asking import Subject
    from lmp.predict.screen.whole import Whole
    from lmp.records import ModelAnalysis, ModuleAnalysis
    from lmp.source.trees import Trees

Inputs = str | Mapping[str, Any]
Init = str | Mapping[str, Any]
Size = int | Fraction | Decimal | float | str
Places = str | Path | Sequence[str | Path]

_EXAMPLE = 'inputs="x: float[batch_size, seq_len, 256]"'


@dataclass(frozen=True)
class Evaluated:
    """Costs of one call of a module at one point, exact: FLOPs are scalar operations, the rest bytes.

    Bytes are ints, or Fractions where those of an element are a fraction and the sum is no whole number.
    """

    record: Evaluation
    """The complete record, as ``lmp evaluate --json`` prints it."""

    @property
    def totals(self) -> EvaluatedTotals:
        """Sums over all kernels, in scalar operations, bytes and elements.

        ``flops`` and ``matmul_flops`` count scalar operations. ``read``, ``write`` and ``compulsory`` are bytes, and
        ``parameters_count`` counts elements.
        """
        return self.record.totals

    @property
    def values(self) -> dict[str, int | Fraction]:
        """The value of every variable at this point. Bytes of an element may be a fraction, all others are ints."""
        return self.record.values

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel, in execution order.

        Columns: ``path`` of the module, ``class_name``, ``line``, ``operation``, ``category``, ``repeat``, and for one
        execution ``flops`` (scalar operations), ``read`` and ``write`` (bytes). Integers of any size and Fractions are
        Python objects.

        Raises UsageError if pandas is not installed.
        """
        columns = ("path", "class_name", "line", "operation", "category", "repeat", "flops", "read", "write")
        return _frame([{name: getattr(kernel, name) for name in columns} for kernel in self.record.kernels])

    def to_json(self) -> str:
        """The record as JSON, by the schema ``evaluation``."""
        return self.record.model_dump_json(indent=2) + "\n"


@dataclass(frozen=True)
class Analysis:
    """Costs of each line of a ``forward()`` as formulas, with the analyses of the classes that it refers to."""

    record: ModuleAnalysis | ModelAnalysis
    """The analysis as stored in its file: ``kernels``, ``parameters``, ``assumptions``, ``verification`` and more."""
    parts: Mapping[str, ModuleAnalysis] = field(default_factory=dict, repr=False)
    """Class path -> its analysis, for every referenced class."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Distribution -> the folder of the quoted sources."""

    @property
    def class_name(self) -> str:
        """The path of the class under its defining module."""
        return self.record.class_name

    @property
    def status(self) -> str:
        """``verified``: at every executed point, each line's formulas equal the counted amounts.

        For any other status ``record.verification`` has the reason.
        """
        return self.record.verification.status

    def evaluate(
        self,
        batch_size: int | None = None,
        seq_len: int | None = None,
        cache_len: int = 0,
        *,
        w_bytes: Size | None = None,
        a_bytes: Size | None = None,
        kv_bytes: Size | None = None,
        **values: int,
    ) -> Evaluated:
        """Evaluate the formulas at one point.

        The point has ``batch_size`` sequences of ``seq_len`` new tokens each, after ``cache_len`` cached ones.
        ``w_bytes`` and ``a_bytes`` are the bytes of a weight and of an activation element; the default is the analysed
        dtype's. ``kv_bytes`` are those of an element of the KV cache; the default is ``a_bytes``. Each is an int, a
        Fraction, a Decimal, a text such as ``"17/32"``, or a float, which means its shortest decimal text.
        ``values`` are other variables of ``record.parameters``. They are the module's own sizes, with the analysed
        values as defaults, and dimensions that ``inputs`` names.

        Raises UsageError for an unknown name, a missing value, or bytes that are not positive and finite;
        EvaluationError if a formula has no value.
        """
        from lmp.link.values import exact_size, values_for

        width = {"float32": 4, "float64": 8}.get(self.record.dtype, 2)
        given = {"batch_size": batch_size, "seq_len": seq_len, **values}
        named = {name: value for name, value in given.items() if value is not None}
        given_sizes = {"w_bytes": w_bytes, "a_bytes": a_bytes, "kv_bytes": kv_bytes}
        sizes = {name: exact_size(name, size) for name, size in given_sizes.items() if size is not None}
        defaults = {"w_bytes": width, "a_bytes": width}
        numbers = self._numbers if w_bytes is None else self._plain_numbers
        at = values_for(numbers.model, {**named, "cache_len": cache_len, **defaults, **sizes})
        return Evaluated(numbers.evaluation(at))

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel, with its formulas as text.

        Columns: ``path``, ``line``, ``operation``, ``category``, ``repeat``, ``flops`` (scalar operations), ``read``
        and ``write`` (bytes). For a module call the three formulas are references. In an expanded model they are empty,
        and the inner kernels follow.

        Raises UsageError if pandas is not installed.
        """
        return _frame(list(_rows(self.record.kernels)))

    def to_json(self) -> str:
        """The record as JSON, by the schema ``module_analysis`` or ``model_analysis``."""
        from lmp.store.results import to_text

        return to_text(self.record)

    def save(self, results: str | Path) -> Path:
        """Write the analysis, and the referenced ones, to a results folder, and return its file.

        The layout is that of the command line: ``RESULTS/<class>/module_analysis.json``. Raises StorageError if the
        folder is not writable.
        """
        from lmp.store.results import Store

        store = Store(Path(results))
        for part in self.parts.values():
            store.save(part)
        return _saved(store, self.record)

    @functools.cached_property
    def _numbers(self) -> ModelNumbers:
        """The formulas with the bytes of the config's checkpoint, parsed once for all evaluations."""
        from lmp.link.numbers import ModelNumbers
        from lmp.link.quantised import with_own_bytes

        return ModelNumbers(with_own_bytes(self._plain_numbers.model))

    @functools.cached_property
    def _plain_numbers(self) -> ModelNumbers:
        """The formulas in which every weight has ``w_bytes``."""
        from lmp.link.numbers import ModelNumbers

        return ModelNumbers(self._linked())

    def _linked(self) -> ModelAnalysis:
        from lmp.link.link import link
        from lmp.records import ModelAnalysis

        return self.record if isinstance(self.record, ModelAnalysis) else link(self.record, self._part)

    def _part(self, class_path: str) -> ModuleAnalysis:
        return self.parts[class_path]


@dataclass(frozen=True)
class Predicted:
    """Time of one call of a model on a device, with 80 % intervals, and where each figure comes from."""

    record: Whole
    """The complete prediction: ``answer`` with kernels and host, ``dearest``, ``room`` in memory, ``changes``."""
    warnings: tuple[str, ...]
    """What is not verified, not counted, or beyond what was measured."""

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
        return _frame(
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


class Settings(TypedDict, total=False):
    """Keyword arguments of `analyze` and `expand`, described at `analyze`."""

    config: str | Path | Mapping[str, Any] | None
    results: str | Path | None
    path: Places
    dtype: str
    attention: str | None
    transformers: str | Path | None
    pytorch: str | Path | None
    fresh: bool


class Sources(TypedDict, total=False):
    """Keyword arguments of `predict`, described there."""

    dtype: str | None
    kv_dtype: str | None
    memory: bool
    config: str | Path | None
    results: str | Path | None
    attention: str | None
    transformers: str | Path | None
    pytorch: str | Path | None
    fresh: bool


def analyze(
    module_or_class: str | type[torch.nn.Module] | torch.nn.Module,
    inputs: Inputs | None = None,
    init: Init | None = None,
    **settings: Unpack[Settings],
) -> Analysis:
    """Determine the FLOPs and bytes of each line of a module's ``forward()`` as formulas, verified against execution.

    ``module_or_class`` is one of:

    - A class path, such as ``"torch.nn.Linear"`` or ``"transformers.models.llama.modeling_llama.LlamaMLP"``. The path
      of your own class is looked up below a folder of ``path``, by default the current folder.
    - A class. It may be defined in a script or in a notebook cell.
    - A live module, with data or on the meta device. lmp analyses a copy without data, in eval mode and in the module's
      own dtype. The copy has no hooks: they do not run, and their cost is not in the formulas. The module itself does
      not run and does not change. Its own sizes are plain numbers, so the formulas use only names from ``inputs``. For
      formulas in its sizes, pass its class and ``init``.

    ``inputs`` describes the arguments of ``forward()``. It is required for your own classes and for live modules. It is
    a text such as ``"x: float[batch_size, seq_len, 256], mask: bool[seq_len, seq_len]"``, or a mapping by argument
    name. A value of the mapping is one of:

    - a text, such as ``"float[batch_size, 16]"``;
    - a shape, such as ``("batch_size", 16)``;
    - a tensor, of which the shape is used as plain numbers;
    - a plain value.

    ``batch_size``, ``seq_len`` and ``cache_len`` are variables of every call. A name that is also a constructor
    argument means that argument. Any other name is a variable that an evaluation must set. ``float`` is the module's
    own dtype. Others are ``float32``, ``float16``, ``bfloat16``, ``int`` (int64), ``int32``, ``bool``.

    ``init`` gives the constructor arguments of your own class. It is a mapping, or a text such as
    ``"hidden_size=256, bias=true, act='silu'"``. Positive integers and booleans become variables of the formulas.
    Others are fixed.

    ``settings`` are keyword arguments, each with a default:

    - ``config``, for classes of transformers: a config.json, or its content as a mapping.
    - ``results``: a folder in which analyses are stored and reused. Without it they last as long as the process.
    - ``path``: one or several folders that contain your own packages.
    - ``dtype="bfloat16"``: the dtype in which a class is executed.
    - ``attention``: the attention implementation, ``"sdpa"`` or ``"eager"``.
    - ``transformers``, ``pytorch``: clones to read instead of the vendored sources. Outside a project the installed
      packages are read. A copy of transformers that the process has imported already is read in place of any other
      (``Analysis.sources`` names the folders).
    - ``fresh=False``: True analyses again even if a result is stored.

    Returns an ``Analysis`` with formulas in FLOPs and bytes. Its errors are subclasses of LmpError:

    - UsageError for an unusable argument: a shape that ``forward()`` refuses, a module that cannot be copied;
    - NotFound if there is no source to quote;
    - TraceFailed if the module cannot be analysed;
    - VerificationFailed if formulas and execution differ.
    """
    for name in settings.keys() - Settings.__annotations__.keys():
        raise TypeError(f"analyze() got an unexpected keyword argument {name!r}")
    return _analyzed(module_or_class, inputs, init, settings)


def expand(
    module_or_class: str | type[torch.nn.Module] | torch.nn.Module | Analysis,
    inputs: Inputs | None = None,
    init: Init | None = None,
    **settings: Unpack[Settings],
) -> Analysis:
    """Analyse a module and put every called module in place: one tree of kernels in the root's variables, with totals.

    Takes the arguments of ``analyze``, or its result. The record is a ``ModelAnalysis``. Its ``record.totals`` has
    formulas for ``flops``, ``matmul_flops``, ``read``, ``write`` (bytes) and ``parameters_count``. Raises the errors of
    ``analyze``, and InvalidAnalysis if the analyses do not fit together.
    """
    if isinstance(module_or_class, Analysis):
        if inputs is not None or init is not None or settings:
            raise UsageError("an Analysis is expanded as it is\nleave out inputs, init and options")
        analysis = module_or_class
    else:
        analysis = analyze(module_or_class, inputs, init, **settings)
    return replace(analysis, record=analysis._linked())


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

    ``settings`` are keyword arguments. ``dtype`` and ``kv_dtype`` are words of ``lmp predict --dtype`` and
    ``--kv-dtype``. ``memory=True`` works out what the device's memory holds, and refuses a model that does not fit.
    ``config`` (a file), ``results``, ``attention``, ``transformers``, ``pytorch`` and ``fresh`` are as of ``analyze``.

    Raises UsageError for an unknown device, engine or dtype, or sizes that do not go together.
    """
    from lmp.predict.prediction import Predictor
    from lmp.predict.screen.asking import asked_for
    from lmp.predict.screen.whole import Wanted, held_of, whole
    from lmp.report.warnings import of_assumptions, of_the_model, of_the_values

    predictor = Predictor()
    sizes = _call_sizes(phase, batch_size, seq_len, cache_len)
    ask = asked_for(predictor.device(device), sizes, engine, (settings.get("dtype"), settings.get("kv_dtype")))
    for unknown in settings.keys() - Sources.__annotations__.keys():
        raise TypeError(f"predict() got an unexpected keyword argument {unknown!r}")
    subject, options = _predicted_model(model, settings)
    if settings.get("memory") and options is not None:
        with _guard():
            held = held_of(subject, options, ask)
    else:
        held = "it was not asked for"
    found = whole(subject, ask, predictor, held, Wanted(changes=False))
    now = found.answer
    warnings = [*of_the_model(subject.numbers(ask.given).model), *of_the_values(subject.model, now.values["cache_len"])]
    warnings += [*of_assumptions(now.evaluation.violated_assumptions), *found.warnings]
    return Predicted(found, tuple(warnings))


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
        return Subject(model._linked()), None
    named = subject_of(str(model))
    if named.file is not None:
        raise UsageError(f"{model} is a file with classes\ngive an Analysis: lmp.expand(Class, inputs=...)")
    with _guard():
        from lmp.analyze.models import expand_model
        from lmp.analyze.session import class_of_config

        options = replace(_options(cast("Settings", settings), "bfloat16"), model_id=named.model_id)
        if named.config is not None:
            options = replace(options, config_file=named.config)
        name = named.class_path or class_of_config(options)
        found = expand_model(name, options, lambda path, stage: None).model
    config = options.found_config
    return Subject(found, None if config is None else config.content), options


# --- session and class -----------------------------------------------------------------------------------------------


def _analyzed(module_or_class: Any, inputs: Inputs | None, init: Init | None, settings: Settings) -> Analysis:
    from lmp.analyze.modules import analyze as analyze_class
    from lmp.analyze.modules import make_references, requested

    guard = _guard()
    with guard:
        session = _session(module_or_class, settings)
        name, call = _own_call(module_or_class, inputs, init, session)
        if call is not None:
            session.own[name] = call
        record = requested(analyze_class(name, session)).analysis
        make_references(record, session)
        parts: dict[str, ModuleAnalysis] = {}
        _collect(record, session, parts)
    sources = {tree.distribution: str(tree.root) for tree in session.trees}
    return Analysis(record, parts, sources)


def _guard() -> AbstractContextManager[None]:
    """Raises EngineMissing if torch or transformers is not installed."""
    from lmp.source.installed import engine_missing, lacking

    if lacking():
        raise engine_missing(lacking())
    from lmp.workload.isolation import isolated

    return isolated()


def _collect(analysis: ModuleAnalysis, session: Session, parts: dict[str, ModuleAnalysis]) -> None:
    from lmp.analyze.session import references_of

    for name in references_of(analysis):
        if name not in parts:
            parts[name] = session.lookup(name)
            _collect(parts[name], session, parts)


def _session(target: Any, settings: Settings) -> Session:
    import torch

    from lmp.analyze.session import Session
    from lmp.source.trees import find_trees, say_releases

    dtype = settings.get("dtype", "bfloat16")
    if isinstance(target, torch.nn.Module):
        from lmp.workload.live import dtype_of

        dtype = str(dtype_of(target)).removeprefix("torch.")
    options = _options(settings, dtype)
    session = Session(options, lambda name, stage: None)
    config = settings.get("config")
    if isinstance(config, Mapping):
        session.origin, session.config = _given_config(dict(config))
    trees = find_trees(None, options.transformers, options.pytorch, list(options.paths))
    session.trees = _runnable(trees, given=options.transformers is not None)
    say_releases(session.trees)
    return session


def _options(settings: Settings, dtype: str) -> Options:
    from lmp.analyze.session import Options

    config, results, path = settings.get("config"), settings.get("results"), settings.get("path", ())
    places = [path] if isinstance(path, (str, Path)) else list(path)
    transformers, pytorch = settings.get("transformers"), settings.get("pytorch")
    return Options(
        results=Path(results) if results is not None else _kept_while_running(),
        transformers=None if transformers is None else Path(transformers),
        pytorch=None if pytorch is None else Path(pytorch),
        config_file=Path(config) if isinstance(config, (str, Path)) else None,
        attention=settings.get("attention"),
        dtype=dtype,
        fresh=settings.get("fresh", False),
        paths=tuple(Path(p) for p in places),
    )


def _given_config(content: dict[str, Any]) -> Any:
    from lmp.records import ConfigOrigin

    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    return ConfigOrigin(name=f"given-{digest[:12]}", origin="given as a mapping", sha256=digest), content


def _runnable(trees: Trees, given: bool) -> Trees:
    """The trees to use: the installed package if none is vendored, or if the process has imported it already."""
    import sys

    from lmp.source.trees import completed, installed_tree

    trees = completed(trees)
    loaded = getattr(sys.modules.get("transformers"), "__file__", None)
    tree = trees.transformers
    if loaded is not None and tree is not None and not given:
        there = Path(loaded).resolve().parent
        if there != tree.package_dir.resolve():
            installed = installed_tree("transformers", there)
            trees = replace(trees, transformers=installed)
    return trees


@functools.cache
def _kept_while_running() -> Path:
    """Results folder for calls that name none; removed at exit."""
    folder = Path(tempfile.mkdtemp(prefix="lmp-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_call(target: Any, inputs: Inputs | None, init: Init | None, session: Session) -> tuple[str, Any]:
    """The class path, and for a user's class the way in which it is run."""
    import torch

    from lmp.analyze.own import OwnCall
    from lmp.source.runtime import path_of

    if isinstance(target, str):
        source = session.locate(target)
        if inputs is None and init is None:
            return source.class_path, None
        _check_takes_a_call(source.class_path, session)
        return source.class_path, OwnCall(_spec(inputs, init))
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        name = path_of(target)
        if name.startswith(("torch.", "transformers.")):
            return _own_call(name, inputs, init, session)
        _hand_over([target], session)
        return name, OwnCall(_spec(inputs, init))
    if not isinstance(target, torch.nn.Module):
        raise UsageError(
            f"{target!r:.80} is not a module, a module class or a class path\n"
            'give one of them, as in lmp.analyze("torch.nn.Linear")'
        )
    module = getattr(target, "_orig_mod", target)  # the module inside the wrapper of torch.compile()
    if init is not None:
        raise UsageError("init is given with a live module\nleave it out, or give the module's class")
    _hand_over([type(m) for m in module.modules()], session)
    name = path_of(type(module))
    return name, OwnCall(_spec(inputs, None, module), module)


def _check_takes_a_call(name: str, session: Session) -> None:
    if not session.takes_a_call(name):
        raise UsageError(
            f"inputs and init are for classes of your own or of torch.nn and for live modules, but {name} is neither\n"
            "leave them out, or give an instance"
        )


def _hand_over(classes: Sequence[type[Any]], session: Session) -> None:
    """Register the user's classes and their folders with the session."""
    from lmp.source.runtime import tree_of
    from lmp.source.trees import siblings

    extra = dict.fromkeys(session.trees.extra)
    for cls in dict.fromkeys(classes):
        if not cls.__module__.startswith(("torch.", "transformers.")) and "<locals>" not in cls.__qualname__:
            session.classes[f"{cls.__module__}.{cls.__qualname__}"] = cls
            tree = tree_of(cls)
            extra |= dict.fromkeys([tree, *siblings(tree)])
    session.trees = replace(session.trees, extra=tuple(extra))


# --- inputs and arguments --------------------------------------------------------------------------------------------


def _spec(inputs: Inputs | None, init: Init | None, module: torch.nn.Module | None = None) -> Spec:
    if inputs is None:
        raise UsageError(f"inputs are missing: lmp must know what forward() is called with\ngive them as in {_EXAMPLE}")
    if isinstance(inputs, str):
        found = parse_inputs(inputs)
    else:
        found = {name: _as_input(name, value, module) for name, value in inputs.items()}
    if init is None or isinstance(init, str):
        return Spec(found, parse_init(init or ""))
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in init.items()}
    odd = [name for name, value in arguments.items() if not is_plain(value) or isinstance(value, Construct)]
    if odd:
        raise UsageError(
            f"init: {odd[0]} is {arguments[odd[0]]!r:.60}, which is not a number, text, boolean, None or tuple\n"
            'write an object as text, init="config=Config(n_embd=64)", or give a live module'
        )
    return Spec(found, arguments)


def _as_input(name: str, value: Any, module: torch.nn.Module | None) -> Any:
    import torch

    if isinstance(value, str):
        return parse_tensor(value)
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if module is not None:
            from lmp.workload.live import dtype_of

            dtype = "float" if value.dtype == dtype_of(module) else dtype
        value, written = tuple(value.shape), dtype
    else:
        written = "float"
    if isinstance(value, (tuple, list, torch.Size)) and all(isinstance(d, (int, str)) for d in value):
        return parse_tensor(f"{written}[{', '.join(map(str, value))}]")
    if value is None or is_plain(value):
        return value
    raise UsageError(
        f"inputs: {name} is {value!r:.60}, which is not a tensor, shape, text or plain value\n"
        f"give them as in {_EXAMPLE}"
    )


# --- results ---------------------------------------------------------------------------------------------------------


def _rows(kernels: Sequence[Any], above: str = "") -> Any:
    for kernel in kernels:
        memory = kernel.memory_access
        yield {
            "path": kernel.path or above,
            "line": kernel.line,
            "operation": kernel.operation,
            "category": kernel.category,
            "repeat": kernel.repeat,
            "flops": kernel.flops,
            "read": memory.read if memory is not None else None,
            "write": memory.write if memory is not None else None,
        }
        yield from _rows(getattr(kernel, "kernels", ()), kernel.path or above)


def _frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise UsageError("to_frame() needs pandas, which is not installed\ninstall it: pip install pandas") from error
    return pandas.DataFrame(rows)


def _saved(store: Any, record: Any) -> Path:
    from lmp.records import ModelAnalysis

    file: Path = store.save_model(record) if isinstance(record, ModelAnalysis) else store.save(record)
    return file


__all__ = ["Analysis", "Evaluated", "Predicted", "analyze", "expand", "predict"]
