"""Model families: the mappings of transformers' auto classes from model types to classes, read without running them."""

from __future__ import annotations

import ast
import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmp.errors import NotFound, Search, UsageError
from lmp.source.locate import class_offered_by_models
from lmp.source.names import Definition, Names
from lmp.source.trees import Trees

TASKS: dict[str, tuple[str, ...]] = {
    "causal-lm": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",),
    "masked-lm": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES",),
    "seq2seq": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",),
    "vision": ("MODEL_FOR_IMAGE_MAPPING_NAMES",),
    "audio": (
        "MODEL_FOR_CTC_MAPPING_NAMES",
        "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    ),
    "multimodal": ("MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",),
    "base": ("MODEL_MAPPING_NAMES",),
}
"""Task -> names of transformers' mappings for it. The first mapping that has a family names its class."""

ALL = "all"

AUTO = Path("models") / "auto" / "modeling_auto.py"


@dataclass(frozen=True)
class Family:
    """A model type and its class name for a task."""

    name: str
    task: str
    class_name: str


def families(trees: Trees, task: str) -> list[Family]:
    """All families of a task, in the order of transformers' own mapping.

    Raises NotFound if the tree has no such mapping.
    """
    path = trees.need("transformers").package_dir / AUTO
    mappings = _mappings(path)
    found: dict[str, Family] = {}
    for mapping in TASKS[task]:
        if mapping not in mappings:
            missing = Search(mapping, str(path), "no such mapping of model types to classes")
            raise NotFound(
                f"{path.name} has no {mapping}\ngive sources that have it with `--transformers DIR`", [missing]
            )
        for name, class_name in mappings[mapping].items():
            found.setdefault(name, Family(name, task, class_name))
    return list(found.values())


def chosen(known: Sequence[Family], patterns: Sequence[str]) -> list[Family]:
    """The families whose names match a pattern such as ``qwen*``; all families if there is no pattern.

    Raises UsageError for a pattern that matches no family.
    """
    if not patterns or ALL in patterns:
        return list(known)
    wanted: set[str] = set()
    for pattern in patterns:
        matched = {f.name for f in known if fnmatch.fnmatchcase(f.name, pattern.lower())}
        if not matched:
            raise UsageError(f"no family is named {pattern}{_like(pattern, known)}")
        wanted |= matched
    return [family for family in known if family.name in wanted]


def class_path_of(family: Family, names: Names) -> str:
    """The path of the family's class. Raises NotFound if no file of the tree defines and exports it."""
    folder = family.name.replace("-", "_")
    module = names.module(f"transformers.models.{folder}.modeling_{folder}") if folder.isidentifier() else None
    found = names.attribute(module, family.class_name) if module is not None else None
    if not (isinstance(found, Definition) and found.module == module):
        found = class_offered_by_models(family.class_name, names)
    if found is None:
        raise NotFound(f"no source defines {family.class_name}, which {family.name} is mapped to", names.searched)
    return found.qualified


def _like(pattern: str, known: Sequence[Family]) -> str:
    close = difflib.get_close_matches(pattern, list(dict.fromkeys(f.name for f in known)), n=3)
    return f"\ndid you mean {' or '.join(close)}?" if close else "\n`lmp zoo all --list` shows the names"


def _mappings(path: Path) -> dict[str, dict[str, str]]:
    """Every ``NAME = OrderedDict([...])`` of a file as model type -> class name, with starred mappings expanded."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError) as error:
        missing = Search("model types and their classes", str(path), type(error).__name__)
        raise NotFound(f"{path} cannot be read\ngive sources with `--transformers DIR`", [missing]) from error
    found: dict[str, dict[str, str]] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.List(elts=items)])):
                found[name] = _mapping_items(items, found)
    return found


def _mapping_items(items: Sequence[ast.expr], known: dict[str, dict[str, str]]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        match item:
            case ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Constant(value=str(name))]):
                pairs[key] = name
            case ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Tuple(elts=[ast.Constant(value=str(name)), *_])]):
                pairs[key] = name  # of several classes AutoModel builds the first by default
            case ast.Starred(value=inner):
                for node in ast.walk(inner):
                    if isinstance(node, ast.Name):
                        pairs.update(known.get(node.id, {}))
    return pairs
