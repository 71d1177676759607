"""Options that people know from other tools, each with the one that lmp has for it and the reason."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lmp.cli.typed import typed

CLOSE = 0.75
"""How alike two names are at least, of 1, for one to be named as a correction of the other."""


_WORDS = re.compile(r"<([\w|.-]+)>")
"""The words that an option takes, as its help has them."""


@dataclass(frozen=True)
class Elsewhere:
    """What lmp has in place of another tool's option. Of ``ours``, the first that the command takes is named."""

    ours: tuple[str, ...]
    why: str


_CACHE = Elsewhere(("-c", "--isl", "--max-model-len"), "tokens of a call are new ones (-s), or in the cache (-c)")
_NEW = Elsewhere(("-s", "--isl"), "the new tokens of a call are its sequence length")
_BATCH = Elsewhere(("-b",), "a batch is a number of sequences")
_TP = Elsewhere(("--tp", "--gpus"), "GPUs that share each layer are a tensor-parallel group")
_PP = Elsewhere(("--pp",), "GPUs with a part of the layers each are stages of a pipeline")
_EP = Elsewhere(("--ep",), "groups of GPUs with different experts are expert parallelism")
_DTYPE = Elsewhere(
    ("--dtype w8a16", "--dtype fp8", "--quantization fp8"), "one word sets the bytes of weights, activations and cache"
)
_KV = Elsewhere(("--kv-dtype fp8",), "the cache has a dtype of its own")
_DEVICE = Elsewhere(("--device h100-sxm",), "hardware is named by its datasheet: `lmp devices` lists them")
_MODEL = Elsewhere(("--module", "--model-id"), "the model is the first argument")
_OUTPUT = Elsewhere(("--osl",), "tokens of an answer are its output sequence length")

TABLE = {
    "--context": _CACHE, "--context-length": _CACHE, "--ctx": _CACHE, "--ctx-len": _CACHE, "--ctx-size": _CACHE,
    "--kv-len": _CACHE, "--past-len": _CACHE, "--cache": _CACHE, "--max-seq-len": _CACHE, "--max-model-len": _CACHE,
    "--seqlen": _NEW, "--seq": _NEW, "--sequence-length": _NEW, "--tokens": _NEW, "--prompt-len": _NEW,
    "--input-len": _NEW, "--length": _NEW,
    "--batch": _BATCH, "--bs": _BATCH, "--batchsize": _BATCH, "--num-seqs": _BATCH, "--max-num-seqs": _BATCH,
    "--tensor-parallel-size": _TP, "--tensor-parallel": _TP, "--tp-size": _TP, "--gpus": _TP, "--num-gpus": _TP,
    "--ngpus": _TP, "--world-size": _TP,
    "--pipeline-parallel-size": _PP, "--pp-size": _PP,
    "--expert-parallel-size": _EP, "--ep-size": _EP, "--enable-expert-parallel": _EP,
    "--weights": _DTYPE, "--precision": _DTYPE, "--quantization": _DTYPE, "--quant": _DTYPE, "--weight-dtype": _DTYPE,
    "--wbits": _DTYPE, "--torch-dtype": _DTYPE,
    "--kv-cache-dtype": _KV, "--cache-dtype": _KV, "--kv": _KV,
    "--gpu": _DEVICE, "--hardware": _DEVICE, "--hw": _DEVICE, "--accelerator": _DEVICE, "--system": _DEVICE,
    "--model": _MODEL, "--model-name": _MODEL, "--model-path": _MODEL, "--checkpoint": _MODEL,
    "--output-len": _OUTPUT, "--max-tokens": _OUTPUT, "--max-new-tokens": _OUTPUT,
}  # fmt: skip
"""Option of another tool -> what lmp has for it."""


def no_such_option(name: str, context: Any) -> tuple[str, str]:
    """What is wrong, and the nearest options, empty if there are none. ``context`` is typer's, of the command."""
    records = {option: parameter.get_help_record(context) or ("", "")
               for parameter in context.command.params for option in parameter.opts}  # fmt: skip
    there = {option: form for option, (form, _) in records.items()}
    known = TABLE.get(name.replace("_", "-").lower())
    ours = "" if known is None else next((one for one in known.ours if _is_taken(one, there)), "")
    if known is not None and ours:
        return f"no such option {name}: {known.why}", f"did you mean {ours}? "
    written = _written(name)
    if known is not None:
        return f"no such option {written}", ""
    close = [f"-{written}"] if f"-{written}" in there else difflib.get_close_matches(written, there, n=2, cutoff=CLOSE)
    return f"no such option {written}", f"did you mean {' or '.join(close)}? " if close else ""


def _is_taken(ours: str, there: Mapping[str, str]) -> bool:
    """Whether the command takes the option, and the word after it. ``there``: option -> its form in the help."""
    option, _, word = ours.partition(" ")
    words = _WORDS.search(there.get(option, ""))
    return option in there and (not word or words is None or word in words[1].split("|"))


def _written(name: str) -> str:
    """The option as it was typed: of ``-tp``, typer names its first letter alone."""
    if name.startswith("--"):
        return name
    return next((word for word in typed() if word.startswith(name)), name)
