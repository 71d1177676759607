"""``lmp.analyze`` and ``lmp.expand``: the costs of each line of a module's ``forward()``, as formulas."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from lmp.api.inputs import Init, Inputs, spec_of
from lmp.api.results import Analysis
from lmp.api.words import in_api_words
from lmp.errors import UsageError

if TYPE_CHECKING:
    import torch

    from lmp.analyze.session import Options, Session
    from lmp.observe.held import Held
    from lmp.predict.screen.asking import Ask, Subject
    from lmp.records import ModuleAnalysis
    from lmp.source.trees import Trees

Places = str | Path | Sequence[str | Path]


class Settings(TypedDict, total=False):
    """Keyword arguments of `analyze` and `expand`, described at `analyze`."""

    config: str | Path | Mapping[str, Any] | None
    results: str | Path | Literal[False] | None
    path: Places
    dtype: str
    attention: str | None
    transformers: str | Path | None
    pytorch: str | Path | None
    fresh: bool


@in_api_words()
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
    - ``results``: a folder in which analyses are stored and reused. Without it that of the command line: the variable
      ``LMP_RESULTS``, else ``analysis_results`` of the project, else the user's data folder. False keeps nothing:
      analyses last as long as the process. Those of a live model of transformers are kept only in a folder that is
      named, as they would replace the results of its class.
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


@in_api_words()
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
    return replace(analysis, record=analysis.linked())


# --- session and class -----------------------------------------------------------------------------------------------


def _analyzed(module_or_class: Any, inputs: Inputs | None, init: Init | None, settings: Settings) -> Analysis:
    from lmp.analyze.modules import analyze as analyze_class
    from lmp.analyze.modules import make_references, requested

    with guard():
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


def guard() -> AbstractContextManager[None]:
    """The process stays as it was. Raises EngineMissing if torch or transformers is not installed."""
    from lmp.source.installed import engine_missing, lacking

    if lacking():
        raise engine_missing(lacking())
    from lmp.workload.isolation import isolated

    return isolated()


class GuardWhenRun:
    """Progress callback that isolates the process as soon as something is read to be run.

    Stored results run nothing, and then torch is not imported.
    """

    def __init__(self) -> None:
        self._held = ExitStack()
        self._entered = False

    def __enter__(self) -> GuardWhenRun:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)

    def __call__(self, class_path: str, stage: str) -> None:
        if stage in ("reading", "tracing", "verifying") and not self._entered:
            self._entered = True
            self._held.enter_context(guard())


def memory_of(subject: Subject, options: Options | None, ask: Ask, progress: GuardWhenRun) -> Held | str:
    """What a model holds in memory; or why that is not known. Only where formulas do not tell is the model built."""
    from lmp.predict.holding import held_by_formulas
    from lmp.predict.screen.whole import held_of
    from lmp.source.installed import lacking

    found = held_by_formulas(subject, ask.given, ask.parallel.tp)
    if options is None or not isinstance(found, str):
        return found
    if not lacking():
        progress(subject.model.class_name, "reading")
    return held_of(subject, options, ask)


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
        if settings.get("results") is None and type(target).__module__.startswith("transformers."):
            settings = {**settings, "results": False}
    options = options_of(settings, dtype)
    session = Session(options, lambda name, stage: None)
    trees = find_trees(None, options.transformers, options.pytorch, list(options.paths))
    session.trees = _runnable(trees, given=options.transformers is not None)
    say_releases(session.trees)
    return session


def options_of(settings: Settings, dtype: str) -> Options:
    """The options of an analysis. ``dtype`` is that in which a class is executed."""
    from lmp.analyze.session import Options
    from lmp.source.project import results_folder

    config, results, path = settings.get("config"), settings.get("results"), settings.get("path", ())
    places = [path] if isinstance(path, (str, Path)) else list(path)
    transformers, pytorch = settings.get("transformers"), settings.get("pytorch")
    folder = results_folder() if results is None else _kept_while_running() if results is False else Path(results)
    options = Options(
        results=folder,
        transformers=None if transformers is None else Path(transformers),
        pytorch=None if pytorch is None else Path(pytorch),
        config_file=Path(config) if isinstance(config, (str, Path)) else None,
        attention=settings.get("attention"),
        dtype=dtype,
        fresh=settings.get("fresh", False),
        paths=tuple(Path(p) for p in places),
    )
    content = content_of(config)
    return options if content is None else with_config(options, content)


def content_of(config: object) -> dict[str, Any] | None:
    """The values of a config that is a mapping, or an object of transformers; None for anything else."""
    if isinstance(config, Mapping):
        return dict(config)
    to_dict = getattr(config, "to_dict", None)
    if not hasattr(config, "model_type") or not callable(to_dict):
        return None
    found = to_dict()
    return dict(found) if isinstance(found, Mapping) else None


def with_config(options: Options, content: dict[str, Any]) -> Options:
    """The options with a config that is no file. Its results are stored under a digest of its values."""
    from lmp.source.configs import FoundConfig

    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    found = FoundConfig(content, "given as a mapping", digest, model_id=f"given-{digest[:12]}")
    made = replace(options)
    # A cached property keeps its value here: a config that is found is not looked for again.
    vars(made)["found_config"] = found
    return made


def _runnable(trees: Trees, given: bool) -> Trees:
    """The trees to use: the installed package if none is vendored, or if the process has imported it already."""
    from lmp.source.trees import completed, installed_tree

    trees = completed(trees)
    there = None if given else imported_elsewhere(trees)
    return trees if there is None else replace(trees, transformers=installed_tree("transformers", there))


def imported_elsewhere(trees: Trees) -> Path | None:
    """The folder of the copy of transformers that the process has imported, if it is not that of the trees."""
    loaded = getattr(sys.modules.get("transformers"), "__file__", None)
    if loaded is None or trees.transformers is None:
        return None
    there = Path(loaded).resolve().parent
    return None if there == trees.transformers.package_dir.resolve() else there


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
        return source.class_path, OwnCall(spec_of(inputs, init))
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        name = path_of(target)
        if name.startswith(("torch.", "transformers.")):
            return _own_call(name, inputs, init, session)
        _hand_over([target], session)
        return name, OwnCall(spec_of(inputs, init))
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
    return name, OwnCall(spec_of(inputs, None, module), module)


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
