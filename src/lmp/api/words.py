"""Errors in the words of the API: lmp's rooms name the options of commands, and a notebook has arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lmp.errors import LmpError, NotFound

ARGUMENTS: Mapping[str, str] = {
    "--model-id": "model",
    "--config": "config",
    "--results": "results",
    "--transformers": "transformers",
    "--pytorch": "pytorch",
    "--path": "path",
    "--inputs": "inputs",
    "--init": "init",
    "--attn": "attention",
    "--dtype": "dtype",
    "--kv-dtype": "kv",
    "--batch-size": "batch_size",
    "--seq-len": "seq_len",
    "--cache-len": "cache_len",
    "-b": "batch_size",
    "-s": "seq_len",
    "-c": "cache_len",
    "--device": "device",
    "--engine": "engine",
    "--tp": "tp",
}
"""Option of a command -> argument of the API that does the same."""

WITHOUT = {
    "--force": "memory=False",
    "--memory": "memory=True",
    "--no-memory": "memory=False",
    "--fresh": "fresh=True",
    "--max-points": "several calls",
    "--ep": "groups of experts",
    "--pp": "stages of a pipeline",
    "--dp-attention": "attention of one's own sequences",
    "--devices": "a file of devices",
    "--plot": "a plot",
}
"""Option of a command -> what is said of it, where the API has no such argument."""

_COMMAND = r"`(?:lmp|python|pip|hf|dask) [^`]*`"
"""A command to type in a shell stays as it is."""
_QUOTED = r"\"[^\"\n]*\"|'[^'\n]*'"
_VALUE = rf"{_QUOTED}|[A-Z]{{2,}}\b|-?[0-9][\w./]*\b"
_WORD_VALUE = r"[a-z][\w-]*[0-9][\w-]*|auto|eager|sdpa|trace|agent|vllm|sglang|trtllm"
_OPTION = re.compile(
    rf"(?P<command>{_COMMAND})"
    r"|(?P<tick>`?)(?:--set[ =](?P<set>['\"]?\w[\w.]*=?)|(?P<bare>--set)\b"
    rf"|(?P<flag>(?<![\w-])(?:--[a-z][a-z-]*|-[bsc])\b)(?:[ =](?P<value>{_VALUE}|{_WORD_VALUE}))?)(?P<end>`?)"
)
_NEIGHBOURS = re.compile(rf"(\b\w+=(?:{_QUOTED}|[\w./]+)) (?=\w+=[\w\"'])")
"""Two arguments with nothing between: options have no comma, arguments do."""


def translated(text: str, names: Mapping[str, str] | None = None) -> str:
    """The text with arguments in place of options. ``names``: variable of the formulas -> argument of the call."""
    made = _OPTION.sub(_argument, text)
    if made != text:
        made = _NEIGHBOURS.sub(r"\1, ", made)
    for name, argument in (names or {}).items():
        made = re.sub(rf"(?<![\w{{.]){name}(?![\w}}])", argument, made)
    return made


def _argument(found: re.Match[str]) -> str:
    if found["command"]:
        return found["command"]
    flag, value, ticks = found["flag"], found["value"], (found["tick"], found["end"])
    if found["set"] or found["bare"]:
        said = found["set"] or "an argument of its name"
    elif flag in WITHOUT:
        said, ticks = WITHOUT[flag], ("", "")
    elif flag not in ARGUMENTS:
        return found[0]
    elif value is None:
        said = ARGUMENTS[flag]
    else:
        plain = value[0] in "\"'" or value.isupper() or value.lstrip("-")[0].isdigit()
        said = f"{ARGUMENTS[flag]}={value}" if plain else f'{ARGUMENTS[flag]}="{value}"'
    return said.join(ticks)


@contextmanager
def in_api_words(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Errors that leave the block name arguments of the API. Their class, place and traceback stay."""
    try:
        yield
    except LmpError as error:
        if isinstance(error, NotFound):
            error.message = translated(error.message, names)
        elif error.args:
            error.args = (translated(str(error.args[0]), names), *error.args[1:])
        raise
