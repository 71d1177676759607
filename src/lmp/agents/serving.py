"""lmp's tools over MCP on stdio, for any client. The one module that imports ``mcp``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from lmp import __version__
from lmp.agents.base import Answer, Tool
from lmp.agents.tools import input_schema

INSTRUCTIONS = (
    "lmp says what every source line of a PyTorch forward() costs, as formulas that are checked against execution. "
    "Start with analysis_task: it tells what to do for one class. Hand in with submit_analysis."
)


async def serve(tools: Sequence[Tool]) -> None:
    """Serve until the client closes stdin.

    Meanwhile stdout belongs to the protocol: `stdio_server` keeps it for itself and points descriptor 1 at stderr, so
    whatever else is printed, by Python or below it, goes there.
    """
    server = server_of(tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def server_of(tools: Sequence[Tool]) -> Server[Any]:
    """A server with these tools, not bound to any transport yet."""
    by_name = {tool.name: tool for tool in tools}

    async def listed(context: Any, params: Any) -> types.ListToolsResult:
        described = [
            types.Tool(name=tool.name, description=tool.description, input_schema=input_schema(tool.arguments))
            for tool in tools
        ]
        return types.ListToolsResult(tools=described)

    async def called(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await _answer(by_name.get(params.name), params)
        return types.CallToolResult(content=[types.TextContent(text=answer.text)], is_error=answer.refused)

    return Server("lmp", version=__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called)


async def _answer(tool: Tool | None, params: types.CallToolRequestParams) -> Answer:
    if tool is None:
        return Answer(f"there is no tool {params.name}", refused=True)
    try:
        arguments = tool.arguments.model_validate(params.arguments or {})
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()]
        return Answer(f"{tool.name} was not called rightly: {'; '.join(problems[:5])}", refused=True)
    return await tool.call(arguments)
