"""Prompts: files of plain text with named variables, ``<<name>>``, filled strictly.

No formula (``{x}``, ``${{Class}}``) has that delimiter. What is put in is not looked at again: a ``<<name>>`` in a
source that is quoted stays what it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib import resources

from lmp.errors import UsageError

_VARIABLE = re.compile(r"<<([a-z][a-z0-9_]*)>>")
_HALF = re.compile(r"<<|>>")


class PromptError(UsageError):
    """A prompt's file is not there, or its variables are not those that it is filled with."""


def load(name: str) -> str:
    """The text of ``prompts/<name>.md``. Raises PromptError."""
    try:
        return resources.files("lmp").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    except OSError as error:
        raise PromptError(f"there is no prompt {name}.md\ninstall lmp again: its prompts come with it") from error


def variables(template: str) -> frozenset[str]:
    """The names that a template asks for."""
    return frozenset(_VARIABLE.findall(template))


def fill(name: str, values: Mapping[str, str]) -> str:
    """``prompts/<name>.md`` with every variable replaced by its value, as it is.

    Raises PromptError where the file asks for a variable that is not given, where one is given that it does not ask
    for, and where a delimiter stands alone.
    """
    return filled(load(name), values, f"{name}.md")


def filled(template: str, values: Mapping[str, str], name: str = "the prompt") -> str:
    """As ``fill``, of a text."""
    asked = variables(template)
    missing, unknown = sorted(asked - values.keys()), sorted(values.keys() - asked)
    if missing:
        raise PromptError(f"{name} asks for {', '.join(missing)}, which nothing is given for\ncorrect its <<names>>")
    if unknown:
        raise PromptError(f"{name} does not ask for {', '.join(unknown)}\nput <<{unknown[0]}>> where it belongs")
    half = _HALF.search(_VARIABLE.sub("", template))
    if half is not None:
        raise PromptError(f"{name} has a {half[0]} that is no variable\na variable is <<name>>, in small letters")
    return _VARIABLE.sub(lambda match: values[match[1]], template)


def prompt_sha256(system: str, prompt: str) -> str:
    """What provenance keeps of what an agent was told: the hash of the system prompt and the first message."""
    return hashlib.sha256(f"{system}\0{prompt}".encode()).hexdigest()
