"""The tools over MCP on stdin and stdout, for any client."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from lmp.agents.base import Tool
from lmp.agents.serving import tool_server

INSTRUCTIONS = (
    "lmp says what every source line of a PyTorch forward() costs, as formulas that are checked against execution. "
    "Start with analysis_task: it tells what to do for one class. Hand in with submit_analysis."
)


async def serve(tools: Sequence[Tool]) -> None:
    """Serve until the client closes stdin.

    Meanwhile stdout belongs to the protocol: `stdio_server` keeps it for itself and points descriptor 1 at stderr, so
    whatever else is printed, by Python or below it, goes there.
    """
    from mcp.server.stdio import stdio_server

    server = tool_server("lmp", tools, _on_bug, INSTRUCTIONS)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _on_bug(error: Exception) -> None:
    """A client may go on after it: the next call may be of another class."""
    traceback.print_exception(error, file=sys.stderr)
