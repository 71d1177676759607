"""Why an agent could not go on, in one or two lines that say what to do. Never a secret, never a control character."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmp.agents.environment import cli_path, credential, redacted
from lmp.agents.transcript import shown
from lmp.errors import AgentUnavailable, CapReached

if TYPE_CHECKING:
    from claude_agent_sdk import ProcessError, ResultMessage

_AGAIN = "nothing is lost: go on with `lmp resume`"
_LONGEST = 300


def check_runnable(instead: str = "use `--engine trace`") -> None:
    """Raises AgentUnavailable where no agent could be started: before anything is begun.

    ``instead`` is what can be done without one.
    """
    if credential() is None:
        raise no_credential(instead)
    cli_path()


def no_credential(instead: str = "use `--engine trace`") -> AgentUnavailable:
    return AgentUnavailable(
        "no credential for the agent is set\n"
        f"set ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN, or {instead}"
    )


def nothing_left(name: str) -> CapReached:
    return CapReached(f"no turn or no money is left for {name}\ngive more with `--max-turns` or `--max-budget-usd`")


def service_refused(result: ResultMessage) -> AgentUnavailable:
    """What the service, or the CLI for it, said instead of an answer."""
    said = one_line(result.result or "; ".join(result.errors or ()) or result.subtype)
    status = result.api_error_status
    if status in (401, 403) or said.startswith("Not logged in"):
        return AgentUnavailable(
            f"the service refused the credential in {credential()}: {said}\n"
            "check it (and ANTHROPIC_BASE_URL, where it is set), then go on with `lmp resume`"
        )
    if status == 429:
        return AgentUnavailable(f"the service's rate limit is reached, also after retries: {said}\nlater, {_AGAIN}")
    if status is not None and status >= 500:
        return AgentUnavailable(f"the service is not available, also after retries: {said}\nlater, {_AGAIN}")
    if status == 404:
        return AgentUnavailable(f"the service does not know the model: {said}\nchoose another with `--agent-model`")
    return AgentUnavailable(f"the agent stopped with an error: {said}\n{_AGAIN}")


def signed_out(status: int) -> AgentUnavailable:
    """The service refused the credential; the CLI would ask again and again."""
    return AgentUnavailable(
        f"the service refused the credential in {credential()} ({status})\n"
        "check it (and ANTHROPIC_BASE_URL, where it is set), then go on with `lmp resume`"
    )


def process_ended(error: ProcessError, last_lines: Sequence[str]) -> AgentUnavailable:
    """The CLI went away. ``last_lines`` are what it wrote to stderr last."""
    if any("No conversation found" in line for line in (*last_lines, str(error))):
        return AgentUnavailable("the conversation to go on with is not in this run's folder\nstart it anew")
    code = error.exit_code
    how = "ended without a result" if code is None else f"ended with exit code {code}"
    # the launcher's shell would say 128 and more
    number = -code if code is not None and code < 0 else (code or 0) - 128
    if number in {known.value for known in signal.Signals}:
        how = f"was killed ({signal.Signals(number).name})"
    return AgentUnavailable(f"the agent's process {how}{_last(last_lines)}\n{_AGAIN}")


def unexpected(error: Exception, last_lines: Sequence[str]) -> AgentUnavailable:
    """The SDK could not start the CLI, or not understand it."""
    return AgentUnavailable(f"the agent cannot run: {one_line(str(error))}{_last(last_lines)}\nsee `lmp doctor`")


def _last(lines: Sequence[str]) -> str:
    return f": {one_line(lines[-1])}" if lines else ""


def one_line(text: str) -> str:
    line = " ".join(shown(redacted(text)).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
