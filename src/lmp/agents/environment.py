"""Whether agents can run here, and what their process gets: folders, variables, program. Secrets stay out of texts.

The engine of a command is chosen here too, as ``auto`` depends on the credential.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lmp.agents import launcher
from lmp.errors import AgentUnavailable
from lmp.settings import read_settings
from lmp.store.files import write_whole

CREDENTIALS = launcher.CREDENTIALS
"""Environment variables that may hold a credential, in their order of precedence."""

REDACTED = "[redacted]"
MAX_ANSWER_TOKENS = 100_000
"""Tokens of the longest answer of a tool; the CLI puts longer ones into a file that the agent may not read."""

_URLS = ("ANTHROPIC_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_PART = 8
"""Shortest beginning or end of a secret that is removed as well: programs store and show such parts."""


def credential() -> str | None:
    """The name of the variable that holds the credential, never its value; None where none is set."""
    return next((name for name in CREDENTIALS if os.environ.get(name)), None)


@dataclass(frozen=True)
class Choice:
    """The engine of a command. ``why`` is the reason to show if it was not asked for by name."""

    engine: str
    why: str = ""


def chosen_engine(asked: str) -> Choice:
    """`auto` is the agent if the settings ask for it and a credential is set; else trace."""
    if asked != "auto":
        return Choice(asked)
    if read_settings().engine != "agent":
        return Choice("trace", "auto: the settings ask for no agents")
    name = credential()
    if name is None:
        return Choice("trace", "auto: the settings ask for agents, and no credential is set")
    return Choice("agent", f"auto: the settings ask for agents, and {name} is set")


def check_runnable(instead: str = "use `--engine trace`") -> None:
    """Raises AgentUnavailable if no agent can be started, before anything is begun.

    ``instead`` is what the user can do without one.
    """
    if credential() is None:
        raise no_credential(instead)
    cli_path()


def no_credential(instead: str = "use `--engine trace`") -> AgentUnavailable:
    return AgentUnavailable(
        "no credential for the agent is set\n"
        f"set ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN, or {instead}"
    )


def cli_path() -> Path:
    """The CLI in the SDK's wheel: one that is installed elsewhere may not know the options that confine it.

    Raises AgentUnavailable if it is missing.
    """
    spec = importlib.util.find_spec("claude_agent_sdk")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(location) / "_bundled" / "claude"
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise AgentUnavailable(
        "the agent's program is not installed: claude-agent-sdk has no bundled CLI here\n"
        "install it with `pip install --force-reinstall claude-agent-sdk`, or use `--engine trace`"
    )


def cli_version() -> str | None:
    """The bundled CLI's version, from the file beside it; None if there is no CLI."""
    try:
        cli = cli_path()
    except AgentUnavailable:
        return None
    try:
        return cli.with_name(f"{cli.name}.version").read_text(encoding="utf-8").strip() or "of an unknown version"
    except OSError:
        return "of an unknown version"


def redacted(text: str) -> str:
    """``text`` without the credentials of this process, nor beginnings or ends of them of eight characters and more."""
    for secret in _secrets():
        text = text.replace(secret, REDACTED)
        text = _without_beginnings(text, secret)
        # an end is a beginning read backwards
        text = _without_beginnings(text[::-1], secret[::-1], REDACTED[::-1])[::-1]
    return text


def _without_beginnings(text: str, secret: str, instead: str = REDACTED) -> str:
    if len(secret) < _PART:
        return text
    at = text.find(secret[:_PART])
    while at >= 0:
        end = at + _PART
        while end < len(text) and end - at < len(secret) and text[end] == secret[end - at]:
            end += 1
        text = text[:at] + instead + text[end:]
        at = text.find(secret[:_PART], at + len(instead))
    return text


def _secrets() -> list[str]:
    values = [os.environ.get(name, "") for name in CREDENTIALS]
    for name in _URLS:
        try:
            values.append(urlsplit(os.environ.get(name, "")).password or "")
        except ValueError:  # not a URL, so it is known to hold nothing; the CLI will say what it thinks of it
            continue
    return sorted({value for value in values if len(value) >= 4}, key=len, reverse=True)


class PrivatePlace:
    """The private folder of a run's agents. It holds the conversations that can be resumed.

    ``folder`` must be the same path when a conversation is resumed: the CLI stores them by their path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.config, self.home, self.cwd = (self.folder / name for name in ("config", "home", "empty"))

    def make(self) -> None:
        for folder in (self.folder, self.config, self.home, self.cwd):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def environment(self, retries: int) -> dict[str, str]:
        """The variables that lmp sets; of the others only those of `launcher.ALLOWED` reach the process."""
        return {
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "CLAUDE_CODE_MAX_RETRIES": str(retries),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
            "MAX_MCP_OUTPUT_TOKENS": str(MAX_ANSWER_TOKENS),
            # Checking a draft can execute a module: an hour, in milliseconds. The task's own timeout is what ends it.
            "MCP_TOOL_TIMEOUT": "3600000",
        }

    def program(self, cli: Path) -> Path:
        """A file that starts ``cli`` through the launcher. It holds no value of the environment."""
        words = [sys.executable, "-I", launcher.__file__, str(cli)]
        path, text = self.folder / "claude", f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
        if not path.exists() or path.read_text() != text:  # another agent may be starting through it
            write_whole(path, text)
            path.chmod(0o700)
        return path

    def holds(self, session: str) -> bool:
        """Whether the CLI can resume this conversation."""
        return any(path.stem == session for path in self.config.glob("projects/*/*.jsonl"))

    def scrub(self) -> None:
        """Remove secrets from files of the CLI: some of its settings keep the end of the key."""
        for path in (path for root in (self.config, self.home) for path in root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                text = path.read_text(errors="surrogateescape")
                if (clean := redacted(text)) != text:
                    write_whole(path, clean.encode(errors="surrogateescape"))
