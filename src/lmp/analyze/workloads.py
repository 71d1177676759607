"""The factory for workloads. It imports torch, so it is only imported to make an analysis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from lmp.analyze.own import OwnCall
from lmp.analyze.session import Session
from lmp.errors import TraceFailed, UnsupportedDtype
from lmp.records import ModuleAnalysis
from lmp.source.locate import ClassSource
from lmp.source.trees import Tree
from lmp.workload.base import Workload
from lmp.workload.calls import folder_of
from lmp.workload.inputs import InputsWorkload
from lmp.workload.live import LiveWorkload, dtype_of
from lmp.workload.load import check_torch_file, load_class, load_own, quiet_warnings, use_transformers_tree
from lmp.workload.parent_models import config_from, find_parent_model, takes_config
from lmp.workload.questions import Decisions
from lmp.workload.standalone import StandaloneWorkload

FEW = 9
"""Arguments below this that the code turns into plain numbers are numbers of layers, powers and the like, no widths."""

TORCH = Path(torch.__file__).parent


def workload_for(source: ClassSource, session: Session, stored: ModuleAnalysis | None = None) -> Workload:
    """The workload of a class. ``stored``: an analysis to judge again, in the setting of its derivation.

    A user's own class is called as requested. A class with a config runs in the smallest model of its file that
    contains it. Any other class runs standalone.

    Raises TraceFailed if no workload runs the class, or if the given trees cannot be executed here.
    """
    _run_quoted_sources(source, session)
    call = session.own_call(source.class_path, stored)
    found = _in_model_or_alone(source, session, stored) if call is None else _own(source, session, call, stored)
    arguments = {name: found.variables[name].path.removeprefix("init.") for name in found.fixable}
    for name in [n for n, argument in arguments.items() if stored is not None and argument in stored.fixed]:
        found.fix(name)
    return found


def specialisations(
    workload: Workload, specialised: Callable[[], Iterable[str]]
) -> Iterator[tuple[frozenset[str], bool]]:
    """Sets of constructor arguments to take out of the variables; each set is tried after the one before failed.

    The second item is true if formulas with plain numbers for all sizes of the constructor are not accepted. They say
    least, so fewer plain numbers are tried first. ``specialised`` returns the arguments that the code turned into plain
    numbers in the last attempt.
    """
    flags, fixable = workload.flags, workload.fixable
    if workload.vary:
        yield frozenset(), True
        numbers = frozenset(specialised()).intersection(fixable)
        few = frozenset(n for n in numbers if workload.hints.get(n, FEW) < FEW)
        if few:
            yield few | flags, True
        yield frozenset(), False
        yield numbers, False
        yield flags, False
        yield flags | numbers, False
    else:
        yield frozenset(), False
    for name in fixable:
        yield frozenset((name,)), False
    yield frozenset(fixable), False


def roots_for(source: ClassSource, session: Session, call: OwnCall | None) -> tuple[str, ...]:
    """Folders whose files are quoted, the class's own first. Absolute paths with a trailing slash."""
    transformers = session.trees.transformers
    model_code = () if transformers is None else (f"{transformers.package_dir.resolve()}/",)
    torch_code = f"{TORCH}/nn/"
    if call is None:
        return (*model_code, torch_code)
    cls = own_class(source, session, call)
    own = torch_code if cls.__module__.startswith("torch.") else folder_of(cls)
    return tuple(dict.fromkeys((own, torch_code, *model_code)))


def own_class(source: ClassSource, session: Session, call: OwnCall) -> type[Any]:
    """A user's own class: that of the instance, the one passed as an object, or the one at its path."""
    if call.module is not None:
        return type(call.module)
    return session.classes.get(source.class_path) or _loaded(source, session)


def asked_dtype(session: Session) -> torch.dtype:
    """The dtype of ``--dtype``. Raises UnsupportedDtype if it is no floating dtype."""
    found = getattr(torch, session.options.dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UnsupportedDtype(
            f"--dtype {session.options.dtype} is not a floating dtype of torch; use bfloat16, float16 or float32."
        )
    return found


def asked_config(cls: type[Any], session: Session) -> Any:
    """The requested config, in the type that the class's model takes; None for the class's defaults."""
    return None if session.config is None else config_from(cls, session.config)


def _in_model_or_alone(source: ClassSource, session: Session, stored: ModuleAnalysis | None) -> Workload:
    cls, dtype = _loaded(source, session), asked_dtype(session)
    if not takes_config(cls):
        try:
            return StandaloneWorkload(cls, dtype)
        except TraceFailed:
            if cls.__module__.startswith("torch."):
                raise
    within = None if stored is None else stored.within
    model = None if within is None else load_class(session.locate(within).class_path)
    config = asked_config(cls if model is None else model, session)
    attention = session.options.attention or "sdpa"
    return find_parent_model(cls, config, session.unfit, model, dtype=dtype, attention=attention)


def _own(source: ClassSource, session: Session, call: OwnCall, stored: ModuleAnalysis | None) -> Workload:
    decisions = call.decisions or Decisions()
    for decision in stored.decisions if stored is not None else ():
        decisions.learn((_executed_path(decision.file, session), decision.line), decision.taken)
    cls = own_class(source, session, call)
    with quiet_warnings():
        if call.module is not None:
            found: InputsWorkload = LiveWorkload(call.module, call.spec, decisions)
        else:
            found = InputsWorkload(cls, call.spec, asked_dtype(session), decisions)
    folder = roots_for(source, session, call)[0]
    found.source_modules = [
        name
        for name, module in list(sys.modules.items())
        if str(getattr(module, "__file__", None) or "").startswith(folder) and not name.startswith("torch")
    ]
    # PyTorch's recurrent layers test that their sizes are of type int.
    found.source_modules += [name for name in list(sys.modules) if name.startswith("torch.nn.modules.")]
    return found


def own_dtype(session: Session, call: OwnCall | None) -> torch.dtype:
    """The dtype that a class is run in: an instance's own, else the requested one."""
    return asked_dtype(session) if call is None or call.module is None else dtype_of(call.module)


def _loaded(source: ClassSource, session: Session) -> type[Any]:
    own = source.tree in session.trees.extra
    return load_own(source.class_path, source.tree) if own else load_class(source.class_path)


def _executed_path(file: str, session: Session) -> str:
    """Path under which Python runs a file that an analysis names."""
    for tree in session.trees:
        path = tree.path(file)
        if path is not None:
            return str(path)
    return file


def _run_quoted_sources(source: ClassSource, session: Session) -> None:
    """Make the quoted sources the executed ones. Raises TraceFailed if the given tree cannot be executed here."""
    if session.trees.transformers is not None:
        use_transformers_tree(session.trees.transformers.package_dir.parent)
    _check(source.tree, source.path)
    _check(source.forward_tree, source.forward_path)


def _check(tree: Tree, path: Path) -> None:
    if tree.name == "pytorch":
        check_torch_file(path, path.relative_to(tree.package_dir).as_posix())
