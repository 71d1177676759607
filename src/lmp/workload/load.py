"""Import of the analysed classes from the same trees that are quoted."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmp.errors import NotFound, TraceFailed, UsageError, first_line
from lmp.source.installed import package_folder
from lmp.source.trees import Tree
from lmp.workload.gc_tuning import gc_paused


def use_transformers_tree(source_root: Path) -> None:
    """Make ``import transformers`` load the package below ``source_root``, the folder that contains ``transformers/``.

    Raises TraceFailed if another copy is already imported: one process can run one copy only.
    """
    # No request goes to the hub, and advisory warnings of transformers do not appear in lmp's output.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    wanted = str(source_root.resolve())
    loaded = sys.modules.get("transformers")
    if loaded is not None:
        there = str(Path(str(loaded.__file__)).resolve().parent.parent)
        if there != wanted:
            raise TraceFailed(
                f"this process has imported transformers from {there}, so it cannot run that in {wanted}.\n"
                "Leave out the other copy's folder, or use a new process."
            )
        return
    folder = package_folder("transformers")
    if folder is not None and folder.resolve().parent == Path(wanted):
        return  # an installed copy: its folder stays behind Python's own in the path
    sys.path[:] = [wanted, *(p for p in sys.path if p != wanted)]


def check_torch_file(tree_file: Path, relative: str) -> None:
    """Raise TraceFailed if the quoted file is not the installed one. PyTorch is compiled, so it runs as installed."""
    import torch

    installed = Path(torch.__file__).parent / relative
    if not installed.is_file() or _digest(installed) != _digest(tree_file):
        raise TraceFailed(
            f"{tree_file} is not the file that the installed torch {torch.__version__} runs: it cannot be executed.\n"
            "Install the torch that this tree is of, or leave out --pytorch to use the pinned sources."
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_class(class_path: str) -> type[Any]:
    """Import the class at its defining path.

    Raises NotFound if it is missing, TraceFailed if its module cannot be executed here, UsageError if it is no module.
    """
    module_name, _, name = class_path.rpartition(".")
    try:
        with gc_paused():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise TraceFailed(
            f"{module_name} cannot be imported: {error}\ninstall what it needs; its source alone cannot be executed"
        ) from error
    except Exception as error:
        raise TraceFailed(
            f"{module_name} cannot be executed with the installed torch: {_where(error)}{first_line(error)}\n"
            f"mend what `python -c 'import {module_name}'` shows"
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise NotFound(f"{module_name} has no {name} when it is executed here (an optional dependency may be missing).")
    import torch

    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise UsageError(f"{class_path} is not a torch.nn.Module.")
    return found


def load_own(class_path: str, tree: Tree) -> type[Any]:
    """Import a user's class from the folder whose lines are quoted.

    Raises TraceFailed if its package was imported from elsewhere, or cannot be executed.
    """
    root = str(tree.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    cls = load_class(class_path)
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    if file is None or not Path(file).resolve().is_relative_to(tree.package_dir.resolve()):
        raise TraceFailed(
            f"{cls.__module__} is imported from {file}, not from {tree.package_dir}\n"
            "give the package another name, or `--path` the folder that Python takes it from"
        )
    return cls


def _where(error: Exception) -> str:
    """``blocks.py line 3: ``, the innermost line that ran; empty for an error without one."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return f"{Path(frames[-1][0].f_code.co_filename).name} line {frames[-1][1]}: " if frames else ""


@contextlib.contextmanager
def quiet_warnings() -> Iterator[None]:
    """Suppress warnings of the analysed code."""
    import warnings

    # PyTorch logs an operator that fails on symbolic shapes before it raises. lmp then runs it in another way.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
