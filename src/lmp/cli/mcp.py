"""``lmp mcp``: lmp's tools for any MCP client, on stdin and stdout."""

from __future__ import annotations

import sys

from lmp.cli import options as o
from lmp.cli.commands import _options


def mcp(
    results: o.Results = None,
    transformers: o.Transformers = None,
    pytorch: o.Pytorch = None,
    config: o.Config = None,
    model_id: o.ModelId = None,
    attn: o.Attn = None,
    dtype: o.DtypeName = o.Dtype.bfloat16,
    path: o.Paths = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Serve the tools of the agents over MCP on stdio."""
    from dataclasses import replace

    options = _options(o.Engine.auto, results, transformers, pytorch, config, model_id, attn, dtype)
    options = replace(options, paths=tuple(path or ()))
    import anyio

    from lmp.agents.stdio import serve
    from lmp.pipeline.serving import Serving

    def told(name: str, stage: str) -> None:
        if not quiet:
            print(f"{name}: {stage}", file=sys.stderr)

    anyio.run(serve, Serving(options, told).tools())
