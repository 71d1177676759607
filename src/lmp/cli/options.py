"""The options that commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_RESULTS = "analysis_results"
DEBUG = "lmp.debug"


class Engine(StrEnum):
    auto = "auto"
    trace = "trace"
    agent = "agent"


class Attention(StrEnum):
    sdpa = "sdpa"
    eager = "eager"


class Dtype(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"


def remember_debug(context: typer.Context, value: bool) -> bool:
    """For the error handler, which sees the context of the command and none of its parameters."""
    if value:
        context.meta[DEBUG] = True
    return value


ClassPath = Annotated[
    str | None, typer.Argument(metavar="CLASS", help="Class path, or a public alias of it: torch.nn.Linear.")
]
ClassPaths = Annotated[
    list[str] | None, typer.Argument(metavar="CLASS...", help="Class paths, or public aliases: torch.nn.Linear.")
]
ModulePath = Annotated[str | None, typer.Option("--module", metavar="CLASS", help="The class, as an option.")]
ModulePaths = Annotated[list[str] | None, typer.Option("--module", metavar="CLASS", help="A class, as an option.")]
EngineName = Annotated[
    Engine,
    typer.Option("--engine", help="What derives the formulas; auto is trace, unless your settings ask for agents."),
]
Results = Annotated[
    Path | None,
    typer.Option("--results", metavar="DIR", help=f"Where results are kept [default: {DEFAULT_RESULTS}]."),
]
Transformers = Annotated[
    Path | None, typer.Option("--transformers", metavar="DIR", help="A clone of transformers to read instead.")
]
Pytorch = Annotated[Path | None, typer.Option("--pytorch", metavar="DIR", help="A clone of pytorch to read instead.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A config.json to analyse at.")]
ModelId = Annotated[
    str | None, typer.Option("--model-id", metavar="ID", help="A model on the hub, org/name, to analyse at.")
]
Attn = Annotated[Attention | None, typer.Option("--attn", help="Attention implementation [default: sdpa].")]
DtypeName = Annotated[Dtype, typer.Option("--dtype", help="The dtype that the module is executed in.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Analyse again, whatever is stored.")]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="SHAPES",
        help='Of a class of your own, what forward() takes: "x: float[batch_size, seq_len, 256]".',
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        "--init", metavar="ARGS", help='Of a class of your own, how it is made: "hidden_size=256, bias=true".'
    ),
]
Paths = Annotated[
    list[Path] | None,
    typer.Option("--path", metavar="DIR", help="A folder that holds your own packages [default: the current one]."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, everything else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", callback=remember_debug, is_eager=True)
]
