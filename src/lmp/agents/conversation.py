"""One conversation with the CLI: its messages become events, counts and, at the end, `Ended` or an error.

Errors are one or two lines that say what to do next. They hold no secret and no control character.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    HookContext,
    HookInput,
    HookJSONOutput,
    Message,
    ProcessError,
    RateLimitEvent,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk.types import PreToolUseHookSpecificOutput

from lmp.agents.base import Answer, Ended, Event, How, Task
from lmp.agents.environment import credential, redacted
from lmp.agents.guard import FILE_TOOLS, MCP_PREFIX, Guard
from lmp.agents.transcript import shown
from lmp.errors import AgentUnavailable, CapReached

RESUME = "lmp resume"
"""The command that an error names; `commands` puts in the one of the run at hand."""

_SYNTHETIC = "<synthetic>"
"""The model that the CLI names in messages of its own."""
_SHORT = 100
_LONGEST = 300


class Conversation:
    """Handles every message and answers the hooks. ``failure`` must end the run: a bug, or a refusal."""

    def __init__(self, task: Task, on_event: Callable[[Event], None]) -> None:
        self.task, self.on_event = task, on_event
        self.guard = Guard(task.roots, [tool.name for tool in task.tools])
        self.failure: Exception | None = None
        self.stopped: How | None = None
        self.asked = False
        """Something was said, and there is no result of it yet."""
        self.session = task.session
        self.cost_usd: float | None = None
        self._messages: set[str] = set()
        self._models: dict[str, None] = {}
        self._calls: dict[str, tuple[str, str]] = {}
        self._denied: set[str] = set()
        self._after_the_end: set[str] = set()
        """Calls that were stopped because the conversation was over: no denials."""
        self._last_words: set[str] = set()
        """Refusals that ended the conversation, which the CLI knows as ordinary answers."""
        self._said, self._cwd = "", "/"
        self._cli_version: str | None = None
        self._started = time.monotonic()

    @property
    def turns(self) -> int:
        """Answers of the model so far. One can arrive as several messages, so their ids are counted."""
        return len(self._messages)

    @property
    def turns_left(self) -> int:
        return self.task.caps.max_turns - self.turns

    @property
    def tools(self) -> set[str]:
        """The tools that there are, by the names that the CLI gives them."""
        return {*FILE_TOOLS, *(MCP_PREFIX + tool.name for tool in self.task.tools)}

    def tell(self, event: str, **fields: Any) -> None:
        self.on_event({"event": event, **fields})

    def fail(self, error: Exception) -> None:
        self.failure = self.failure or error

    def ended(self, how: How, sdk_version: str | None) -> Ended:
        return Ended(
            how=how,
            models=tuple(self._models),
            turns=self.turns,
            cost_usd=self.cost_usd,
            seconds=time.monotonic() - self._started,
            session=self.session,
            denials=len(self._denied),
            sdk_version=sdk_version,
            cli_version=self._cli_version,
            said=self._said,
        )

    def broken_off(self, error: BaseException) -> None:
        """Report what is needed to resume: the conversation, and its cost if it is known."""
        why = one_line(str(error)) or type(error).__name__
        self.tell("broken_off", why=why, session=self.session, turns=self.turns, cost_usd=self.cost_usd)

    def ends(self, answer: Answer) -> bool:
        """Whether the conversation is over with this answer of a tool."""
        over = self.task.is_over()
        if over and answer.refused:
            self._last_words.add(answer.text)
        return over

    async def before_tool(self, given: HookInput, call: str | None, _context: HookContext) -> HookJSONOutput:
        """Hook before every tool call. If it raises, the CLI blocks the call."""
        try:
            assert given["hook_event_name"] == "PreToolUse"
            tool, arguments = given["tool_name"], given["tool_input"]
            if self.task.is_over():  # the CLI goes on after a failed call, whatever the hook after it says
                self.stopped = "over"
                self._after_the_end.add(call or "")
                return _deny("this conversation is over", ends=True)
            why = self.guard.refusal(tool, arguments, given["cwd"])
            if why is None:
                return {}
            self._denial(call or "", tool, _short(tool, arguments, self.guard.roots), why)
        except Exception as error:
            self.fail(error)
            raise
        return _deny(why)

    async def after_tool(self, _given: HookInput, _call: str | None, _context: HookContext) -> HookJSONOutput:
        """Hook after every tool call: ends the conversation before the model is asked again."""
        try:
            if self.failure is None and not self.task.is_over():
                return {}
            self.stopped = "over"
        except Exception as error:
            self.fail(error)
        return {"continue_": False, "stopReason": "over"}

    def heard(self, message: Message) -> None:
        match message:
            case SystemMessage():
                self._system(message)
            case AssistantMessage():
                self._assistant(message)
            case UserMessage():
                self._answers(message)
            case RateLimitEvent():
                self._rate_limit(message)
            case ResultMessage():
                self._result(message)

    def how_it_ended(self, result: ResultMessage) -> How:
        """Raises AgentUnavailable if the service or the CLI refused: ``subtype`` can be ``success`` even then."""
        if self.stopped is not None:
            return self.stopped
        if result.subtype == "error_max_turns":
            return "turns"
        if result.subtype == "error_max_budget_usd":
            return "budget"
        if result.is_error or result.subtype != "success":
            raise service_refused(result)
        return "ended"

    def _system(self, message: SystemMessage) -> None:
        data = message.data
        match message.subtype:
            case "init" if self._cli_version is None:
                self._cli_version = str(data.get("claude_code_version"))
                self.session, self._cwd = data["session_id"], data["cwd"]
                self.tell("started", session=self.session, model=data.get("model"), tools=data["tools"])
                if set(data["tools"]) != self.tools:
                    odd = ", ".join(sorted(set(data["tools"]) ^ self.tools))
                    self.fail(AgentUnavailable(f"the agent's tools are not those that were asked for: {odd}"))
            case "api_retry":
                status, wait = data.get("error_status"), round(data.get("retry_delay_ms", 0) / 1000, 1)
                why = f"{data.get('error')} ({status})" if status else "connection lost"
                self.tell("retry", attempt=data.get("attempt"), of=data.get("max_retries"), seconds=wait, why=why)
                if status in (401, 403):
                    self.fail(signed_out(status))
            case "model_fallback":
                self.tell("fallback", model=data.get("fallback_model"), why=data.get("trigger"))
            case "permission_denied":
                tool, short = self._calls.get(data.get("tool_use_id", ""), (data.get("tool_name", ""), ""))
                self._denial(data.get("tool_use_id", ""), tool, short, "the permission mode does not allow it")

    def _assistant(self, message: AssistantMessage) -> None:
        if message.model == _SYNTHETIC:
            return
        before = self.turns
        self._messages.add(message.message_id or message.uuid or "")
        if self.turns > before:
            self.tell("turn", turns=self.turns, model=message.model)
        self._models[message.model] = None
        for block in message.content:
            match block:
                case TextBlock():
                    self._said = block.text
                    self.tell("text", text=self._said)
                case ThinkingBlock():
                    self.tell("thinking", text=block.thinking)
                case ToolUseBlock():
                    self._call(block)

    def _call(self, block: ToolUseBlock) -> None:
        given = block.input if isinstance(block.input, dict) else {}  # what a model wrote can be anything
        short = _short(block.name, given, self.guard.roots)
        self._calls[block.id] = (block.name, short)
        self.tell("tool", tool=_plain(block.name), short=short, call=block.id, input=block.input)
        # The CLI refuses some calls by itself, without the hook: they are reported all the same.
        if (why := self.guard.refusal(block.name, given, self._cwd)) is not None:
            self._denial(block.id, block.name, short, why)

    def _answers(self, message: UserMessage) -> None:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                tool, _ = self._calls.get(block.tool_use_id, ("", ""))
                text = _text(block.content)
                refused = bool(block.is_error) or text in self._last_words
                self.tell("answer", tool=_plain(tool), call=block.tool_use_id, refused=refused, text=text)

    def _rate_limit(self, message: RateLimitEvent) -> None:
        info = message.rate_limit_info
        if info.status != "allowed":
            self.tell("rate_limit", status=info.status, until=info.resets_at, window=info.rate_limit_type)

    def _result(self, result: ResultMessage) -> None:
        self.asked = False
        self.session = result.session_id
        self.cost_usd = result.total_cost_usd
        for denial in result.permission_denials or ():
            tool, short = self._calls.get(denial["tool_use_id"], (denial["tool_name"], ""))
            self._denial(denial["tool_use_id"], tool, short, "the permission mode does not allow it")
        why = self.stopped or result.terminal_reason
        usage = {name: n for name, n in (result.usage or {}).items() if type(n) is int}
        self.tell("result", turns=self.turns, cost_usd=self.cost_usd, why=why, session=self.session, usage=usage)

    def _denial(self, call: str, tool: str, short: str, why: str) -> None:
        """Guard, CLI and result can each report the same one."""
        if call not in self._denied | self._after_the_end:
            self._denied.add(call)
            self.tell("denied", tool=_plain(tool), short=short, why=why, call=call)


def _deny(why: str, ends: bool = False) -> HookJSONOutput:
    output: PreToolUseHookSpecificOutput = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": why,
    }
    if ends:
        return {"continue_": False, "stopReason": "over", "hookSpecificOutput": output}
    return {"hookSpecificOutput": output}


def _plain(tool: str) -> str:
    return tool.removeprefix(MCP_PREFIX)


def _text(content: str | list[dict[str, Any]] | dict[str, Any] | None) -> str:
    if isinstance(content, str | None):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part.get("text", f"({part.get('type')})") for part in parts)


def _short(tool: str, given: dict[str, Any], roots: tuple[Path, ...]) -> str:
    """The call on one line: files by their place below the root they are in."""
    words = []
    for key, value in given.items():
        if isinstance(value, dict | list):  # a submission is long; the transcript has it
            continue
        text = value if isinstance(value, str) else repr(value)
        root = next((root for root in roots if text.startswith(f"{root}/")), None)
        place = text if root is None else f"{root.name}/{text[len(str(root)) + 1 :]}"
        words.append(place if tool in FILE_TOOLS and key in ("file_path", "path", "pattern") else f"{key}={place}")
    line = " ".join(" ".join(words).split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"


# --- why a conversation cannot go on ---------------------------------------------------------------------------------

_NOTHING_LOST = "nothing is lost: continue with"
_CHECK_CREDENTIAL = "check it (and ANTHROPIC_BASE_URL, where it is set), then continue with"

# The CLI has no code for these two: its words are all that it gives. They choose between messages, nothing else.
_NOT_LOGGED_IN = "Not logged in"
_NO_CONVERSATION = "No conversation found"


def nothing_left(name: str) -> CapReached:
    return CapReached(f"no turn or no money is left for {name}\ngive more with `--max-turns` or `--max-budget-usd`")


def service_refused(result: ResultMessage) -> AgentUnavailable:
    """The error for a result that the service, or the CLI for it, refused."""
    said = one_line(result.result or "; ".join(result.errors or ()) or result.subtype)
    status = result.api_error_status
    if status in (401, 403) or said.startswith(_NOT_LOGGED_IN):
        return AgentUnavailable(
            f"the service refused the credential in {credential()}: {said}\n{_CHECK_CREDENTIAL}", RESUME
        )
    if status == 429:
        why = f"the service's rate limit is reached, also after retries: {said}"
        return AgentUnavailable(f"{why}\nlater, {_NOTHING_LOST}", RESUME)
    if status is not None and status >= 500:
        why = f"the service is not available, also after retries: {said}"
        return AgentUnavailable(f"{why}\nlater, {_NOTHING_LOST}", RESUME)
    if status == 404:
        return AgentUnavailable(f"the service does not know the model: {said}\nchoose another with `--agent-model`")
    return AgentUnavailable(f"the agent stopped with an error: {said}\n{_NOTHING_LOST}", RESUME)


def signed_out(status: int) -> AgentUnavailable:
    """The error for a refused credential while the CLI would still retry."""
    return AgentUnavailable(
        f"the service refused the credential in {credential()} ({status})\n{_CHECK_CREDENTIAL}", RESUME
    )


def process_ended(error: ProcessError, last_lines: Sequence[str]) -> AgentUnavailable:
    """The error for a CLI that exited. ``last_lines`` are the end of its stderr."""
    if any(_NO_CONVERSATION in line for line in (*last_lines, str(error))):
        return AgentUnavailable("the conversation to resume is not in this run's folder\nstart it anew")
    code = error.exit_code
    how = "ended without a result" if code is None else f"ended with exit code {code}"
    # The launcher's shell adds 128 to a signal's number.
    number = -code if code is not None and code < 0 else (code or 0) - 128
    if number in {known.value for known in signal.Signals}:
        how = f"was killed ({signal.Signals(number).name})"
    return AgentUnavailable(f"the agent's process {how}{_last(last_lines)}\n{_NOTHING_LOST}", RESUME)


def unexpected(error: Exception, last_lines: Sequence[str]) -> AgentUnavailable:
    """The error for an SDK that could not start the CLI, or not understand it."""
    return AgentUnavailable(f"the agent cannot run: {one_line(str(error))}{_last(last_lines)}\nsee `lmp doctor`")


def _last(lines: Sequence[str]) -> str:
    return f": {one_line(lines[-1])}" if lines else ""


def one_line(text: str) -> str:
    line = " ".join(shown(redacted(text)).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
