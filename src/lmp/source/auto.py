"""Model families: what transformers' auto classes map model types to, read from their source without running it."""

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
"""A task -> transformers' mappings of it. The first that has a family names its class."""

ALL = "all"

AUTO = Path("models") / "auto" / "modeling_auto.py"


@dataclass(frozen=True)
class Family:
    """A model type, and the name of its class for a task."""

    name: str
    task: str
    class_name: str


def families(trees: Trees, task: str) -> list[Family]:
    """All families of a task, in the order of transformers' own mapping.

    Raises NotFound where the tree has no such mapping.
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
    """The families whose names match any of the patterns, as ``qwen*``; all of them where there is no pattern.

    Raises UsageError for a pattern that matches none.
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
    """Where the family's class is defined. Raises NotFound where no file of the tree defines and offers it."""
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
    """Every ``NAME = OrderedDict([...])`` of a file: model types to class names, starred mappings included."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError) as error:
        missing = Search("model types and their classes", str(path), type(error).__name__)
        raise NotFound(f"{path} cannot be read\ngive sources with `--transformers DIR`", [missing]) from error
    found: dict[str, dict[str, str]] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.List(elts=items)])):
                found[name] = _pairs(items, found)
    return found


def _pairs(items: Sequence[ast.expr], known: dict[str, dict[str, str]]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        match item:
            case ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Constant(value=str(name))]):
                pairs[key] = name
            case ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Tuple(elts=[ast.Constant(value=str(name)), *_])]):
                pairs[key] = name  # of several classes the first is the one that AutoModel builds by default
            case ast.Starred(value=inner):
                for node in ast.walk(inner):
                    if isinstance(node, ast.Name):
                        pairs.update(known.get(node.id, {}))
    return pairs
