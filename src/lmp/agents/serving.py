"""lmp's tools as an MCP server, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lmp.agents.base import Answer, Tool
from lmp.agents.tools import input_schema

if TYPE_CHECKING:
    from mcp.server import Server

MAX_ANSWER = 150_000
"""Characters of an answer. What is longer is cut, with a note: the CLI would put it where the agent cannot read it."""

_SHOWN_PROBLEMS = 12


async def answered(tool: Tool, given: dict[str, Any]) -> Answer:
    """What ``tool`` says to arguments as a model wrote them. Raises what the tool raises."""
    try:
        arguments = tool.arguments.model_validate_json(json.dumps(given))
    except ValidationError as error:
        return Answer(_problems(tool.name, error), refused=True)
    answer = await tool.call(arguments)
    if len(answer.text) <= MAX_ANSWER:
        return answer
    note = f"\n({len(answer.text) - MAX_ANSWER} more characters are left out: ask for less at once)"
    return Answer(answer.text[:MAX_ANSWER] + note, answer.refused)


def tool_server(
    name: str, tools: Sequence[Tool], on_bug: Callable[[Exception], None], instructions: str | None = None
) -> Server[Any]:
    """A server of ``tools``. ``on_bug`` gets what a tool raised: a model must never see that as just another answer."""
    from mcp.server import Server
    from mcp.types import CallToolResult, ListToolsResult

    by_name = {tool.name: tool for tool in tools}
    listed = ListToolsResult.model_validate({"tools": [_listed(tool) for tool in tools]})

    async def list_tools(_context: Any, _request: Any) -> ListToolsResult:
        return listed

    async def call_tool(_context: Any, request: Any) -> CallToolResult:
        try:
            tool = by_name.get(request.name)
            missing = Answer(f"there is no tool {request.name}; there are {', '.join(by_name)}", refused=True)
            answer = await answered(tool, request.arguments or {}) if tool is not None else missing
        except Exception as error:
            on_bug(error)
            answer = Answer("lmp itself failed; this run ends", refused=True)
        content = [{"type": "text", "text": answer.text}]
        return CallToolResult.model_validate({"content": content, "isError": answer.refused})

    return Server(name, instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool)


def _listed(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": input_schema(tool.arguments),
        # the CLI's own limit is far lower
        "_meta": {"anthropic/maxResultSizeChars": 2 * MAX_ANSWER},
    }


def _problems(tool: str, error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    lines = [f"{_place(problem['loc'])}: {problem['msg']}{_got(problem)}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"({len(problems) - _SHOWN_PROBLEMS} more)")
    return "\n".join([f"{tool} was not called: its arguments are not valid", *lines])


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "arguments"


def _got(problem: Any) -> str:
    if problem["type"] == "missing":
        return ""
    got = json.dumps(problem["input"], default=str)
    return f", not {got if len(got) <= 80 else got[:77] + '...'}"
