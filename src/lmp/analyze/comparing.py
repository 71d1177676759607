"""Finds the operands of `lmp diff`: stored results unchanged, or models made for the comparison."""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import dataclass, replace
from pathlib import Path

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options, Progress, class_of_config
from lmp.errors import NotFound, Search, UsageError, did_you_mean
from lmp.link.link import link
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.source.locate import locate
from lmp.source.subject import is_model_id, looks_like_path
from lmp.source.trees import find_trees
from lmp.store.results import DEFAULT, FILE_NAME, MODEL_FILE_NAME, Store, read_result


@dataclass(frozen=True)
class Found:
    """A model to compare. ``file``: its stored file; None if it was made now."""

    model: ModelAnalysis
    file: Path | None = None


def find_result(text: str, options: Options, progress: Progress, stored_only: bool = False) -> Found:
    """The model that ``text`` names.

    A file or folder is read unchanged, as is a class path or ``class@config`` stored in ``options.results``. A model
    id, and a class path without a stored result, are made as `lmp evaluate` makes them. With ``stored_only``, a class
    path is not made.

    Raises UsageError for a path without a file, NotFound for a missing class. Raises InvalidAnalysis for a file that is
    no analysis, or for analyses that do not fit together.
    """
    path = Path(text)
    with contextlib.suppress(OSError):  # a name that no file can have
        if path.is_dir():
            return _of_folder(path)
        if path.exists():
            return _of_file(path)
    if looks_like_path(text):
        raise UsageError(f"there is no file or folder {text}\ngive a result, a class path or a model's id")
    if is_model_id(text):
        options = replace(options, model_id=text)
        return Found(expand_model(class_of_config(options), options, progress, keep=False).model)
    class_path, _, config = text.partition("@")
    store = Store(options.results)
    found = _of_store(store, class_path, config or DEFAULT) or _of_alias(store, class_path, config or DEFAULT, options)
    if found is not None:
        return found
    if config or stored_only:
        raise _not_stored(store, class_path, config or DEFAULT)
    return Found(expand_model(class_path, options, progress, keep=False).model)


# --- files -----------------------------------------------------------------------------------------------------------


def _of_folder(folder: Path) -> Found:
    for name in (MODEL_FILE_NAME, FILE_NAME):
        file = folder / name
        if file.is_file():
            analysis = read_result(file)
            store, config = Store(folder.parent), analysis.config.name
            if store.folder(analysis.class_name, config) == folder.absolute():
                # The module analysis may be newer than the linked model.
                return _of_store(store, analysis.class_name, config) or _of_file(file)
            return _of_file(file)
    raise UsageError(
        f"{folder} holds neither a {MODEL_FILE_NAME} nor a {FILE_NAME}\n"
        "give the folder of one class, as in analysis_results/torch.nn.modules.linear.Linear"
    )


def _of_file(file: Path) -> Found:
    analysis = read_result(file)
    if isinstance(analysis, ModelAnalysis):
        return Found(analysis, file)
    return Found(_linked(analysis, Store(file.absolute().parent.parent)), file)


# --- the store -------------------------------------------------------------------------------------------------------


def _of_store(store: Store, class_path: str, config: str) -> Found | None:
    model, root = store.load_model(class_path, config), store.load(class_path, config)
    if model is not None and (root is None or _is_of_what_is_stored(model, store)):
        return Found(model, store.model_file(class_path, config))
    return None if root is None else Found(_linked(root, store), store.file(class_path, config))


def _is_of_what_is_stored(model: ModelAnalysis, store: Store) -> bool:
    """True if the stored analyses are still those that the model was linked from."""
    hashes = {name: store.file_hash(name, _config_of(name, model.config.name)) for name in model.parts}
    return all(hashes[name] in (None, part.sha256) for name, part in model.parts.items())


def _of_alias(store: Store, class_path: str, config: str, options: Options) -> Found | None:
    """A stored result under the path of the module that defines the class; None if there is none."""
    try:
        defined = locate(class_path, find_trees(None, options.transformers, options.pytorch)).class_path
    except NotFound:
        return None  # the caller raises for it
    return None if defined == class_path else _of_store(store, defined, config)


def _linked(root: ModuleAnalysis, store: Store) -> ModelAnalysis:
    def lookup(class_path: str) -> ModuleAnalysis:
        config = _config_of(class_path, root.config.name)
        found = store.load(class_path, config)
        if found is None:
            raise _not_stored(store, class_path, config)
        return found

    return link(root, lookup)


def _config_of(class_path: str, config: str) -> str:
    """Name of the config of a class's results. PyTorch's modules have no config, so theirs is the default."""
    return DEFAULT if class_path.startswith("torch.") else config


def _not_stored(store: Store, class_path: str, config: str) -> NotFound:
    file = store.file(class_path, config)
    name = class_path if config == DEFAULT else f"{class_path}@{config}"
    there = "no such file" if store.root.is_dir() else "no such folder"
    looked = Search(f"an analysis of {name}", str(file), there)
    close = difflib.get_close_matches(name, [folder.name for folder in store.root.glob("*@*")], n=3)
    what = did_you_mean([one for one in close if one != name], f"make it first: lmp expand {class_path}")
    return NotFound(f"no analysis of {name} in {store.root}\n{what}", [looked])
