"""lmp from Python: analyses of classes and of live modules, with numbers put in, as frames and files.

One call at a time in a process: PyTorch's global state is used, and put back.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmp.expand as package
from lmp.errors import UsageError
from lmp.workload.spec import Construct, Spec, is_plain, parse_init, parse_inputs, parse_tensor

if TYPE_CHECKING:
    import pandas
    import torch

    from lmp.expand.numbers import ModelNumbers
    from lmp.expand.records import EvaluatedTotals, Evaluation
    from lmp.pipeline.module import Session
    from lmp.records import ModelAnalysis, ModuleAnalysis
    from lmp.source.trees import Trees

Inputs = str | Mapping[str, Any]
Init = str | Mapping[str, Any]
Places = str | Path | Sequence[str | Path]

_EXAMPLE = 'inputs="x: float[batch_size, seq_len, 256]"'


@dataclass(frozen=True)
class Evaluated:
    """What one call of a module costs at one point: exact integers. FLOPs count scalar operations, the rest bytes."""

    record: Evaluation
    """Everything, as ``lmp evaluate --json`` prints it."""

    @property
    def totals(self) -> EvaluatedTotals:
        """Sums over all kernels: ``flops``, ``matmul_flops``, ``read``, ``write``, ``compulsory`` (bytes, all three),
        ``parameters_count`` (elements)."""
        return self.record.totals

    @property
    def values(self) -> dict[str, int]:
        """The value of every variable at this point."""
        return self.record.values

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel, in the order in which they run.

        Columns: ``path`` of the module, ``class_name``, ``line``, ``operation``, ``category``, ``repeat``, and of one
        run ``flops`` (scalar operations), ``read`` and ``write`` (bytes). Integers of any size are Python objects.

        Raises UsageError where pandas is not installed.
        """
        return _frame([k.model_dump() for k in self.record.kernels])

    def to_json(self) -> str:
        """The record as JSON, of the schema ``evaluation``."""
        return self.record.model_dump_json(indent=2) + "\n"


@dataclass(frozen=True)
class Analysis:
    """What each line of a ``forward()`` costs, as formulas; and the analyses of the classes that it refers to."""

    record: ModuleAnalysis | ModelAnalysis
    """The analysis as its file holds it: ``kernels``, ``parameters``, ``assumptions``, ``verification`` and more."""
    parts: Mapping[str, ModuleAnalysis] = field(default_factory=dict, repr=False)
    """Class path -> its analysis, for every class that is referred to."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Distribution -> the folder whose lines are quoted."""

    @property
    def class_name(self) -> str:
        """The path of the class, under the module that defines it."""
        return self.record.class_name

    @property
    def status(self) -> str:
        """``verified``: at every point that was executed, each line's formulas equal what was counted. Else why not
        is in ``record.verification``."""
        return self.record.verification.status

    def evaluate(
        self,
        batch_size: int | None = None,
        seq_len: int | None = None,
        cache_len: int = 0,
        *,
        w_bytes: int | None = None,
        a_bytes: int | None = None,
        **values: int,
    ) -> Evaluated:
        """Put numbers into the formulas.

        ``batch_size`` sequences of ``seq_len`` new tokens each, after ``cache_len`` cached ones. ``w_bytes`` and
        ``a_bytes`` are the bytes of a weight and of an activation element: those of the analysed dtype unless given.
        ``values`` are other variables of ``record.parameters``: the module's own sizes, else as analysed, and
        dimensions that were named in ``inputs``.

        Raises UsageError for a name that the module does not have or that has no value, EvaluationError where a
        formula has no integer value.
        """
        from lmp.expand.point import point

        width = {"float32": 4, "float64": 8}.get(self.record.dtype, 2)
        given = {"batch_size": batch_size, "seq_len": seq_len, **values}
        named = {name: value for name, value in given.items() if value is not None}
        sizes = {"w_bytes": w_bytes or width, "a_bytes": a_bytes or width}
        at = point(self._numbers.model, {**named, "cache_len": cache_len, **sizes})
        return Evaluated(self._numbers.evaluation(at))

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel, with its formulas as text.

        Columns: ``path``, ``line``, ``operation``, ``category``, ``repeat``, ``flops`` (scalar operations), ``read``
        and ``write`` (bytes). Of a call of a module the three formulas are references, or empty in an expanded model,
        whose inner kernels follow.

        Raises UsageError where pandas is not installed.
        """
        return _frame(list(_rows(self.record.kernels)))

    def to_json(self) -> str:
        """The record as JSON, of the schema ``module_analysis`` or ``model_analysis``."""
        from lmp.store.results import to_data

        return json.dumps(to_data(self.record), indent=2, ensure_ascii=False) + "\n"

    def save(self, results: str | Path) -> Path:
        """Write the analysis, and those that it refers to, into a results folder; returns its file.

        The layout is that of the command line: ``RESULTS/<class>/module_analysis.json``. Raises StorageError where the
        folder cannot be written.
        """
        from lmp.store.results import Store

        store = Store(Path(results))
        for part in self.parts.values():
            store.save(part)
        return _saved(store, self.record)

    @functools.cached_property
    def _numbers(self) -> ModelNumbers:
        """The formulas, read once for all evaluations."""
        from lmp.expand.numbers import ModelNumbers

        return ModelNumbers(self._linked())

    def _linked(self) -> ModelAnalysis:
        from lmp.expand.link import link
        from lmp.records import ModelAnalysis

        return self.record if isinstance(self.record, ModelAnalysis) else link(self.record, self._part)

    def _part(self, class_path: str) -> ModuleAnalysis:
        return self.parts[class_path]


def analyze(
    module_or_class: str | type[torch.nn.Module] | torch.nn.Module,
    inputs: Inputs | None = None,
    init: Init | None = None,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    results: str | Path | None = None,
    path: Places = (),
    dtype: str = "bfloat16",
    attention: str | None = None,
    transformers: str | Path | None = None,
    pytorch: str | Path | None = None,
    fresh: bool = False,
) -> Analysis:
    """Say what each line of a module's ``forward()`` costs: FLOPs and bytes as formulas, held against execution.

    ``module_or_class`` is

    - a class path, as ``"transformers.models.llama.modeling_llama.LlamaMLP"``, ``"torch.nn.Linear"`` or one of your own
      below a folder of ``path`` (else of the current folder);
    - a class, which may be defined in a script or in a notebook's cell;
    - a live module, with data or on the meta device. It is copied without data, and the copy is analysed, in eval mode,
      in the module's own dtype, without its hooks: they are not run, and what they compute is not in the formulas. The
      module itself is not run, and nothing of it changes. Its own sizes are plain numbers: formulas are in the names
      that ``inputs`` uses. For formulas in its sizes, give its class and ``init``.

    ``inputs`` says what ``forward()`` takes, needed for classes of your own and live modules: a text as
    ``"x: float[batch_size, seq_len, 256], mask: bool[seq_len, seq_len]"``, or a mapping from argument to such a text
    (``"float[batch_size, 16]"``), a shape (``("batch_size", 16)``), a tensor (its shape, as plain numbers), or a plain
    value. ``batch_size``, ``seq_len`` and ``cache_len`` are variables of every call; a name that is also a
    constructor's argument is that argument; any other name is a variable that must be given to evaluate. ``float`` is
    the module's own dtype; others are ``float32``, ``float16``, ``bfloat16``, ``int`` (int64), ``int32``, ``bool``.

    ``init`` gives the constructor's arguments of a class of your own: ``"hidden_size=256, bias=true, act='silu'"`` or a
    mapping. Positive integers and truth values become variables of the formulas, others are fixed.

    ``config`` is for classes of transformers: a config.json, or its content. ``results`` keeps and reuses analyses in a
    folder; without it they last as long as the process. ``dtype`` is what a class is executed in. ``transformers`` and
    ``pytorch`` are clones to read instead of the vendored sources; where none are vendored, or the process has imported
    transformers already, the installed packages are read (``Analysis.sources`` says which).

    Returns an ``Analysis``: formulas in FLOPs and bytes. Raises UsageError for what cannot be used as given (a shape
    that ``forward()`` refuses, a module that cannot be copied), NotFound where there is no source to quote, TraceFailed
    where the module cannot be analysed, VerificationFailed where formulas and execution differ. All are LmpError.
    """
    asked = functools.partial(
        _session, config=config, results=results, path=path, dtype=dtype, attention=attention,
        transformers=transformers, pytorch=pytorch, fresh=fresh,
    )  # fmt: skip
    return _analyzed(module_or_class, inputs, init, asked)


def expand(
    module_or_class: str | type[torch.nn.Module] | torch.nn.Module | Analysis,
    inputs: Inputs | None = None,
    init: Init | None = None,
    **options: Any,
) -> Analysis:
    """The same with every called module in place: one tree of kernels in the variables of its root, and totals.

    Takes what ``analyze`` takes, or what it returned. The record is a ``ModelAnalysis``: ``record.totals`` has
    ``flops``, ``matmul_flops``, ``read``, ``write`` (bytes) and ``parameters_count`` as formulas. Raises what
    ``analyze`` raises, and InvalidAnalysis where analyses do not fit together.
    """
    if isinstance(module_or_class, Analysis):
        if inputs is not None or init is not None or options:
            raise UsageError("an Analysis is expanded as it is\nleave out inputs, init and options")
        analysis = module_or_class
    else:
        analysis = analyze(module_or_class, inputs, init, **options)
    return replace(analysis, record=analysis._linked())


class _Expand(types.ModuleType):
    """The package ``lmp.expand`` and the function have one name: the package can be called, and calls the function."""

    __call__ = staticmethod(expand)


package.__class__ = _Expand


# --- how it is asked -------------------------------------------------------------------------------------------------


def _analyzed(
    module_or_class: Any, inputs: Inputs | None, init: Init | None, session_for: Callable[..., Session]
) -> Analysis:
    guard = _guard()
    with guard:
        session = session_for(target=module_or_class)
        name, call = _own_call(module_or_class, inputs, init, session)
        if call is not None:
            session.own[name] = call
        outcomes = session.outcomes(name)
        record = next(o.analysis for o in outcomes if o.requested)
        parts: dict[str, ModuleAnalysis] = {}
        _collect(record, session, parts)
    sources = {tree.distribution: str(tree.root) for tree in session.trees}
    return Analysis(record, parts, sources)


def _guard() -> AbstractContextManager[None]:
    from lmp.workload.undisturbed import undisturbed

    return undisturbed()


def _collect(analysis: ModuleAnalysis, session: Session, parts: dict[str, ModuleAnalysis]) -> None:
    from lmp.pipeline.module import references_of

    for name in references_of(analysis):
        if name not in parts:
            parts[name] = session.lookup(name)
            _collect(parts[name], session, parts)


def _session(
    *,
    target: Any,
    config: str | Path | Mapping[str, Any] | None,
    results: str | Path | None,
    path: Places,
    dtype: str,
    attention: str | None,
    transformers: str | Path | None,
    pytorch: str | Path | None,
    fresh: bool,
) -> Session:
    import torch

    from lmp.pipeline.module import Options, Session
    from lmp.source.trees import find_trees

    live = isinstance(target, torch.nn.Module)
    if live:
        from lmp.workload.live import dtype_of

        dtype = str(dtype_of(target)).removeprefix("torch.")
    places = [path] if isinstance(path, (str, Path)) else list(path)
    options = Options(
        results=Path(results) if results is not None else _kept_while_running(),
        transformers=None if transformers is None else Path(transformers),
        pytorch=None if pytorch is None else Path(pytorch),
        config_file=Path(config) if isinstance(config, (str, Path)) else None,
        attention=attention,
        dtype=dtype,
        fresh=fresh,
        paths=tuple(Path(p) for p in places),
    )
    session = Session(options, lambda name, stage: None)
    if isinstance(config, Mapping):
        session.origin, session.config = _given_config(dict(config))
    trees = find_trees(None, options.transformers, options.pytorch, list(options.paths))
    session.trees = _runnable(trees, given=options.transformers is not None)
    return session


def _given_config(content: dict[str, Any]) -> Any:
    from lmp.records import ConfigOrigin

    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    return ConfigOrigin(name=f"given-{digest[:12]}", origin="given as a mapping", sha256=digest), content


def _runnable(trees: Trees, given: bool) -> Trees:
    """The trees, installed ones where none is vendored or the process runs the installed package already."""
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
    """Results of calls that name no folder."""
    folder = Path(tempfile.mkdtemp(prefix="lmp-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_call(target: Any, inputs: Inputs | None, init: Init | None, session: Session) -> tuple[str, Any]:
    """The class path, and how the class is run if it is one of the user's own."""
    import torch

    from lmp.pipeline.own import OwnCall
    from lmp.source.runtime import path_of

    if isinstance(target, str):
        source = session.locate(target)
        if not session.is_own(source.class_path):
            _none_wanted(inputs, init, source.class_path)
            return source.class_path, None
        return source.class_path, None if inputs is None and init is None else OwnCall(_spec(inputs, init))
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        name = path_of(target)
        if name.startswith(("torch.", "transformers.")):
            _none_wanted(inputs, init, name)
            return name, None
        _hand_over([target], session)
        return name, OwnCall(_spec(inputs, init))
    if not isinstance(target, torch.nn.Module):
        raise UsageError(
            f"{target!r:.80} is no module, no class of one and no class path\n"
            'give one of them, as in lmp.analyze("torch.nn.Linear")'
        )
    module = getattr(target, "_orig_mod", target)  # what torch.compile() wraps
    if init is not None:
        raise UsageError("init is given with a live module\nleave it out, or give the module's class")
    _hand_over([type(m) for m in module.modules()], session)
    name = path_of(type(module))
    return name, OwnCall(_spec(inputs, None, module), module)


def _none_wanted(inputs: Inputs | None, init: Init | None, name: str) -> None:
    if inputs is not None or init is not None:
        raise UsageError(
            f"inputs and init are for classes of your own and for live modules, and {name} is none\n"
            "leave them out, or give an instance"
        )


def _hand_over(classes: Sequence[type[Any]], session: Session) -> None:
    """Let the session find the user's classes where they were imported from."""
    from lmp.source.runtime import tree_of
    from lmp.source.trees import siblings

    extra = dict.fromkeys(session.trees.extra)
    for cls in dict.fromkeys(classes):
        if not cls.__module__.startswith(("torch.", "transformers.")) and "<locals>" not in cls.__qualname__:
            session.classes[f"{cls.__module__}.{cls.__qualname__}"] = cls
            tree = tree_of(cls)
            extra |= dict.fromkeys([tree, *siblings(tree)])
    session.trees = replace(session.trees, extra=tuple(extra))


# --- what it is given ------------------------------------------------------------------------------------------------


def _spec(inputs: Inputs | None, init: Init | None, module: torch.nn.Module | None = None) -> Spec:
    if inputs is None:
        raise UsageError(f"inputs are missing: what is forward() called with?\nsay it as in {_EXAMPLE}")
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
            f"init: {odd[0]} is {arguments[odd[0]]!r:.60}, which is no number, text, truth value, None or tuple\n"
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
        f"inputs: {name} is {value!r:.60}, which is no tensor, shape, text or plain value\nsay it as in {_EXAMPLE}"
    )


# --- what it returns -------------------------------------------------------------------------------------------------


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


__all__ = ["Analysis", "Evaluated", "analyze", "expand"]
