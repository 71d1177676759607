"""The options that say how GPUs share a model."""

from __future__ import annotations

from typing import Annotated

import typer

Pp = Annotated[int, typer.Option("--pp", metavar="N", min=1, max=1024, help="Stages of a pipeline.")]
DpAttention = Annotated[
    bool, typer.Option("--dp-attention", help="Each GPU runs attention for its part of the sequences.")
]
