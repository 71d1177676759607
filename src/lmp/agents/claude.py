"""The Claude agent: carries out a `Task` as one conversation of the bundled CLI, confined to its tools and roots.

Importing this imports the SDK, which takes a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    HookMatcher,
    ProcessError,
    ResultMessage,
)

from lmp.agents.base import Ended, Event, How, Task
from lmp.agents.conversation import Conversation, nothing_left, process_ended, unexpected
from lmp.agents.environment import PrivatePlace, cli_path, credential, no_credential, redacted
from lmp.agents.guard import FILE_TOOLS, MCP_PREFIX
from lmp.agents.mcp_server import tool_server
from lmp.settings import Effort
from lmp.store.files import storage_errors

# The SDK logs what it raises as well: without a handler that would be printed.
logging.getLogger("claude_agent_sdk").addHandler(logging.NullHandler())

_MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message of the CLI."""
_HOOK_SECONDS = 600.0
"""How long a hook may take before the CLI blocks the call: it waits while another tool holds this process."""
_WIND_UP_SECONDS = 5.0
"""How long the CLI has to say what a conversation that is broken off has cost."""


class ClaudeAgent:
    """Carries out tasks with the CLI of claude-agent-sdk. The caller limits their number: each is a process of 190 MB.

    ``folder`` belongs to this run alone: conversations are stored there, and can be resumed from the same path.
    ``model`` and ``effort`` None are the CLI's choice. ``retries`` is how often the CLI retries a failed request.
    ``cli`` None is the one in the SDK's wheel.
    """

    def __init__(
        self,
        folder: Path,
        *,
        model: str | None = None,
        fallback_model: str | None = None,
        effort: Effort | None = None,
        retries: int = 6,
        cli: Path | None = None,
    ) -> None:
        self.place = PrivatePlace(folder)
        self.model, self.fallback_model, self.effort = model, fallback_model, effort
        self.retries, self.cli = retries, cli
        self._running = 0

    def can_resume(self, session: str) -> bool:
        """Whether the conversation is in this run's folder. One that was killed in its first moments is not."""
        return self.place.holds(session)

    async def carry_out(self, task: Task, on_event: Callable[[Event], None]) -> Ended:
        """Raises AgentUnavailable if the agent cannot run, and whatever a tool of the task raises."""
        if credential() is None:
            raise no_credential()
        if task.caps.max_turns < 1 or (task.caps.budget_usd is not None and task.caps.budget_usd <= 0):
            raise nothing_left(task.name)  # the CLI takes 0 for no limit
        cli = self.cli or cli_path()
        conversation = Conversation(task, on_event)
        try:
            how = await self._hold(conversation, cli)
        except BaseException as error:
            conversation.broken_off(error)
            raise
        return conversation.ended(how, importlib.metadata.version("claude-agent-sdk"))

    async def _hold(self, conversation: Conversation, cli: Path) -> How:
        """Run the conversation. It leaves no process, and no secret in the folder, however it ends."""
        last_lines = deque[str](maxlen=20)
        with storage_errors(self.place.folder):
            self.place.make()
            system = _write_system_prompt(conversation.task.system, self.place.folder)
            program = self.place.program(cli)
        self._running += 1
        try:
            try:
                return await self._within_time(
                    conversation, lambda: self._options(conversation, program, system, last_lines)
                )
            finally:
                self._tidy_up(system)
        except ProcessError as error:
            raise conversation.failure or process_ended(error, last_lines) from error
        except ClaudeSDKError as error:
            raise conversation.failure or unexpected(error, last_lines) from error
        except Exception as error:
            if type(error) is Exception and error is not conversation.failure:  # so the SDK says: no answer in time
                raise unexpected(error, last_lines) from error
            raise

    async def _within_time(self, conversation: Conversation, options: Callable[[], ClaudeAgentOptions]) -> How:
        limit = asyncio.timeout(conversation.task.caps.timeout)
        try:
            async with limit:
                return await self._talk(conversation, options, limit)
        except TimeoutError:
            if not limit.expired():
                raise
            return "timeout"

    async def _talk(
        self, conversation: Conversation, options: Callable[[], ClaudeAgentOptions], limit: asyncio.Timeout
    ) -> How:
        """Send the prompt and each following message, each to a process of its own that resumes the session.

        The CLI counts turns per message, and the cap is one for all: so each process gets what is left.
        """
        task, message = conversation.task, conversation.task.prompt
        conversation.tell("prompt", system=task.system, text=message)
        while True:
            how = await self._send(conversation, ClaudeSDKClient(options()), message, limit)
            following = task.next_message() if how == "ended" else None
            if following is None:
                return how
            if conversation.turns_left < 1:
                return "turns"
            conversation.tell("said", text=following)
            message = following

    async def _send(
        self, conversation: Conversation, client: ClaudeSDKClient, message: str, limit: asyncio.Timeout
    ) -> How:
        """Send one message and listen until the agent stops, by itself or because it has to."""
        try:
            await client.connect()
            conversation.asked = True
            await client.query(message)
            return await self._listen(client, conversation)
        except BaseException:  # left alone, the CLI would go on asking the service
            if limit.expired():
                conversation.stopped = "timeout"
            await _finish(_wind_up(client, conversation))
            raise
        finally:
            await _finish(client.disconnect())

    async def _listen(self, client: ClaudeSDKClient, conversation: Conversation) -> How:
        async for message in client.receive_response():
            conversation.heard(message)
            if conversation.failure is not None:
                raise conversation.failure
            if isinstance(message, ResultMessage):
                return conversation.how_it_ended(message)
        raise ProcessError("the CLI ended without a result")

    def _options(
        self, conversation: Conversation, program: Path, system: Path, last_lines: deque[str]
    ) -> ClaudeAgentOptions:
        task, hook = conversation.task, conversation.after_tool
        server = tool_server("lmp", task.tools, conversation.fail, ends=conversation.ends)
        return ClaudeAgentOptions(
            # What exists at all. To be allowed is another matter: the file tools are allowed by `add_dirs` alone, as a
            # bare name in `allowed_tools` would open every file of the machine.
            tools=list(FILE_TOOLS),
            allowed_tools=[MCP_PREFIX + tool.name for tool in task.tools],
            permission_mode="dontAsk",
            cwd=self.place.cwd,
            add_dirs=list(conversation.guard.roots),
            mcp_servers={"lmp": {"type": "sdk", "name": "lmp", "instance": server}},
            hooks={
                "PreToolUse": [
                    HookMatcher(hooks=[conversation.before_tool], timeout=_HOOK_SECONDS, on_failure="block")
                ],
                "PostToolUse": [HookMatcher(hooks=[hook], timeout=_HOOK_SECONDS)],
                "PostToolUseFailure": [HookMatcher(hooks=[hook], timeout=_HOOK_SECONDS)],
            },
            # Nothing of the folders that are read is obeyed, and nothing in a prompt but read.
            setting_sources=[],
            strict_mcp_config=True,
            skills=[],
            verbatim_prompts=True,
            # a file: arguments of a program are limited to 128 KiB each
            system_prompt={"type": "file", "path": str(system)},
            model=self.model,
            fallback_model=self.fallback_model,
            effort=self.effort,
            max_turns=conversation.turns_left,
            max_budget_usd=task.caps.budget_usd,
            resume=conversation.session,
            cli_path=program,
            env=self.place.environment(self.retries),
            max_buffer_size=_MAX_LINE,
            stderr=lambda line: last_lines.append(redacted(line)),
        )

    def _tidy_up(self, system: Path) -> None:
        system.unlink(missing_ok=True)
        self._running -= 1
        if not self._running:  # files of a CLI that runs are its own
            self.place.scrub()


def _write_system_prompt(system: str, folder: Path) -> Path:
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".md", delete=False, encoding="utf-8") as file:
        file.write(system)
    return Path(file.name)


async def _wind_up(client: ClaudeSDKClient, conversation: Conversation) -> None:
    """Ask the CLI to stop, and receive the conversation's cost. Errors here do not replace the reason for stopping."""
    if not conversation.asked:
        return
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_WIND_UP_SECONDS):
            await client.interrupt()
            async for message in client.receive_response():
                conversation.heard(message)


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` even if this task is cancelled meanwhile, then be cancelled: no process must be left."""
    running = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    running.result()
