"""The tools as an MCP server: in this process for the SDK (`tool_server`), and on stdio for any client (`serve`).

`ClientTools` are the tools of any class, with the gate and the store behind them.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import Field, ValidationError

from lmp.agents.attempts import findings_text, would_be_accepted
from lmp.agents.base import Answer, Tool
from lmp.agents.prompts import prompt_of_class
from lmp.agents.submission import analyse_missing, check_with_callees, submit
from lmp.agents.tools import Arguments, analyzer_tools, input_schema
from lmp.analyze.modules import analysis_of
from lmp.analyze.session import Options, Progress, Session
from lmp.errors import LmpError, NotFound, Search, UsageError
from lmp.records import ModuleAnalysis
from lmp.source.scratchpad import write_scratchpad
from lmp.source.trees import Trees

if TYPE_CHECKING:
    from mcp.server import Server

    from lmp.agents.gate import AnalysisVerdict

T = TypeVar("T")

INSTRUCTIONS = (
    "lmp says what every source line of a PyTorch forward() costs, as formulas that are checked against execution. "
    "For figures of a model ask evaluate, predict, memory, inspect or diff; catalogue lists models. "
    "To write an analysis start with analysis_task: it tells what to do for one class. Submit with submit_analysis."
)
ENDS = "lmp itself failed; this run ends"
GOES_ON = "lmp itself failed: this is a bug, and stderr of `lmp mcp` has its traceback; other calls go on"
MAX_ANSWER = 150_000
"""Characters of the longest answer; longer ones are cut, with a note: the CLI would hide them from the agent."""

_SHOWN_PROBLEMS = 12


async def call_tool_with(tool: Tool, given: dict[str, Any]) -> Answer:
    """The tool's answer to arguments as a model wrote them. Raises what the tool raises."""
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
    name: str,
    tools: Sequence[Tool],
    on_bug: Callable[[Exception], None],
    instructions: str | None = None,
    ends: Callable[[Answer], bool] = lambda answer: False,
    failed: str = ENDS,
) -> Server[Any]:
    """A server of ``tools``. ``on_bug`` receives what a tool raised: to a model it must not be an ordinary answer.

    ``failed`` is what the client is told then.

    ``ends``: whether the conversation ends with an answer. That answer is no error to the client: the CLI goes on after
    an error, whatever a hook says.
    """
    from mcp.server import Server
    from mcp.types import CallToolResult, ListToolsResult

    by_name = {tool.name: tool for tool in tools}
    listed = ListToolsResult.model_validate({"tools": [_describe(tool) for tool in tools]})

    async def list_tools(_context: Any, _request: Any) -> ListToolsResult:
        return listed

    async def call_tool(_context: Any, request: Any) -> CallToolResult:
        try:
            tool = by_name.get(request.name)
            missing = Answer(f"there is no tool {request.name}; there are {', '.join(by_name)}", refused=True)
            answer = await call_tool_with(tool, request.arguments or {}) if tool is not None else missing
        except Exception as error:
            on_bug(error)
            answer = Answer(failed, refused=True)
        content = [{"type": "text", "text": answer.text}]
        return CallToolResult.model_validate({"content": content, "isError": answer.refused and not ends(answer)})

    return Server(name, instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool)


def _describe(tool: Tool) -> dict[str, Any]:
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


# --- on stdio --------------------------------------------------------------------------------------------------------


async def serve(tools: Sequence[Tool]) -> None:
    """Serve on stdio until the client closes stdin.

    stdout carries the protocol alone: `stdio_server` duplicates it and points descriptor 1 at stderr, so that all other
    output, of Python or of C code, goes there.
    """
    from mcp.server.stdio import stdio_server

    server = tool_server("lmp", tools, _print_bug, INSTRUCTIONS, failed=GOES_ON)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _print_bug(error: Exception) -> None:
    """The server continues: the client's next call may be about another class."""
    traceback.print_exception(error, file=sys.stderr)


class TaskArguments(Arguments):
    class_path: str = Field(description="the class to analyse, as transformers.models.llama.modeling_llama.LlamaMLP")


@dataclass
class ClientTools:
    """The tools of one server. Classes without an analysis are analysed by lmp's own engine.

    Blocking work runs in a thread, one call at a time: a class is executed in this process.
    """

    options: Options
    progress: Progress
    _one: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def tools(self) -> list[Tool]:
        """The tools of the module analyzer for any class, and one that returns its prompt."""
        found = self.options.found_config
        config = {} if found is None else found.content
        task = Tool(
            "analysis_task", "What to do to analyse a class: the rules, and its facts.", TaskArguments, self._task
        )
        others = analyzer_tools(None, self._trees, self._check, self._submit, self._stop, self._analysis, config)
        return [task, *others]

    def _session(self) -> Session:
        """A new one per call, so that it sees what others stored meanwhile."""
        return Session(self.options, self.progress, takes_foreign=True)

    def _trees(self) -> Trees:
        return self._session().trees

    async def _task(self, given: TaskArguments) -> Answer:
        try:
            prompt = await self.in_thread(lambda: prompt_of_class(self._session(), given.class_path))
        except LmpError as error:
            return Answer(str(error), refused=True)
        return Answer(f"{prompt.system}\n\n{prompt.message}")

    async def _check(self, draft: Any) -> Answer:
        verdict = await self.in_thread(lambda: self._check_now(draft))
        if verdict.accepted:
            return would_be_accepted(verdict, "submit_analysis")
        return Answer(f"{findings_text(verdict.findings)}\n\nThis submitted nothing.", refused=True)

    def _check_now(self, draft: Any) -> AnalysisVerdict:
        from lmp.agents.gate import Gate
        from lmp.agents.subject import ClassSubject

        subject = ClassSubject(self._session(), class_of(draft), engine="submitted")
        gate = Gate(subject)
        return check_with_callees(gate, draft, lambda missing: analyse_missing(missing, self.options, self.progress))[0]

    async def _submit(self, draft: Any) -> Answer:
        done = await self.in_thread(lambda: submit(class_of(draft), draft, self.options, self.progress))
        if not done.hand_in.accepted:
            return Answer(
                f"{findings_text(done.hand_in.findings)}\n\nThe draft is kept: {done.hand_in.file}", refused=True
            )
        why = f", {done.hand_in.reason}" if done.hand_in.reason else ""
        return Answer(f"Accepted: {done.hand_in.status}{why}. Stored: {done.hand_in.file}")

    async def _analysis(self, class_path: str) -> ModuleAnalysis:
        return await self.in_thread(lambda: analysis_of(class_path, self._session()))

    async def _stop(self, looked_for: str, where: str, found: str) -> Answer:
        error = NotFound(
            f"no source of {looked_for}\ngive the tree that holds it with --transformers, --pytorch or --path",
            [Search(looked_for, where, found)],
        )
        page = await self.in_thread(partial(write_scratchpad, self.options.results, looked_for, error))
        return Answer(f"Noted in {page}. Stop here.")

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run blocking work, one call at a time."""
        return anyio.to_thread.run_sync(work, limiter=self._one)


def class_of(draft: Any) -> str:
    """The class that a draft names. Raises UsageError if it names none."""
    name = draft.get("class_name") if isinstance(draft, dict) else None
    if not isinstance(name, str):
        raise UsageError("the draft names no class\ngive an object with class_name, parameters and kernels")
    return name
