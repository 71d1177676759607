"""What reaches the CLI's process, and what is taken out of texts and files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from agents_bench import DUMMY_KEY

from lmp.agents import environment
from lmp.agents.environment import REDACTED, PrivatePlace, cli_path, credential, redacted
from lmp.errors import AgentUnavailable

_TELLS = """#!{python} -I
import json, os, sys
json.dump([dict(os.environ), sys.argv[1:], os.getcwd()], open({path!r}, "w"))
sys.exit("told")
"""


def test_nothing_but_listed_names_reaches_the_cli(bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    cli = tmp_path / "fake-claude"
    cli.write_text(_TELLS.format(python=os.path.realpath("/proc/self/exe"), path=str(told)))
    cli.chmod(0o700)
    for name in ("SECRET_X", "AWS_SECRET_ACCESS_KEY", "CLAUDE_CODE_USE_BEDROCK", "NODE_OPTIONS", "GIT_SSH_COMMAND"):
        monkeypatch.setenv(name, "planted-value")
    # of another session, further out
    for name in ("CLAUDECODE", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CONFIG_DIR", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "planted-value")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    bench.options = {"cli": cli}

    with pytest.raises(AgentUnavailable, match="told"):
        bench.run()

    got, _, cwd = json.loads(told.read_text())
    assert "planted-value" not in json.dumps(got)
    place = (bench.folder / "agents").resolve()
    assert got.pop("HOME") == str(place / "home")
    assert got.pop("CLAUDE_CONFIG_DIR") == str(place / "config")
    assert got.pop("PWD") == cwd == str(place / "empty")
    assert got.pop("ANTHROPIC_API_KEY") == DUMMY_KEY
    assert got.pop("HTTPS_PROXY") == "http://proxy.test:3128"
    # Python itself sets LC_CTYPE where there is no locale
    got.pop("LC_CTYPE", None), got.pop("LANG", None), got.pop("TMPDIR", None)
    assert sorted(got) == [
        "ANTHROPIC_BASE_URL",
        "CLAUDE_AGENT_SDK_VERSION",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE",
        "MAX_MCP_OUTPUT_TOKENS",
        "MCP_TOOL_TIMEOUT",
        "PATH",
    ]


def test_the_program_works_in_folders_with_odd_names(tmp_path: Path) -> None:
    place = PrivatePlace(tmp_path / "it's a $(run)")
    place.make()
    program = place.program(Path("/bin/echo"))
    said = subprocess.run([program, "a b", "$HOME", "'"], capture_output=True, text=True, check=True)
    assert said.stdout == "a b $HOME '\n"
    assert DUMMY_KEY not in program.read_text()
    assert {oct(path.stat().st_mode & 0o777) for path in (place.folder, place.config, program)} == {"0o700"}


def test_the_bundled_cli_is_found() -> None:
    assert cli_path().parent.parts[-2:] == ("claude_agent_sdk", "_bundled")


def test_a_wheel_without_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(AgentUnavailable, match=r"the agent's program is not installed.*\ninstall it with"):
        cli_path()


def test_the_credential_is_known_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "dummy-token-of-a-test")
    assert credential() == "ANTHROPIC_API_KEY"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    assert credential() == "CLAUDE_CODE_OAUTH_TOKEN"
    monkeypatch.delenv("CLAUDE_CODE_OAUTH_TOKEN")
    assert credential() is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"key {DUMMY_KEY}.", f"key {REDACTED}."),
        (f"{DUMMY_KEY}{DUMMY_KEY}", REDACTED * 2),
        (f"key {DUMMY_KEY[:14]}…", f"key {REDACTED}…"),
        (f"…{DUMMY_KEY[-20:]} it ends", f"…{REDACTED} it ends"),
        (f"{DUMMY_KEY[:8]}", REDACTED),
        (f"{DUMMY_KEY[:7]}, {DUMMY_KEY[-7:]}", f"{DUMMY_KEY[:7]}, {DUMMY_KEY[-7:]}"),
        ("token: dummy-of-another-kind!", f"token: {REDACTED}!"),
        ("via http://me:pass-of-proxy@proxy.test", f"via http://me:{REDACTED}@proxy.test"),
        ("nothing secret", "nothing secret"),
        ("", ""),
    ],
)
def test_redacted(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "dummy-of-another-kind")
    monkeypatch.setenv("https_proxy", "http://me:pass-of-proxy@proxy.test:1")
    assert redacted(text) == expected


def test_what_the_cli_stored_of_the_key_is_taken_out(tmp_path: Path) -> None:
    place = PrivatePlace(tmp_path)
    place.make()
    stored = place.config / "deeper" / ".claude.json"
    stored.parent.mkdir()
    stored.write_text(json.dumps({"approved": [DUMMY_KEY[-20:]]}))
    binary = place.home / "cache"
    binary.write_bytes(b"\xff\x00" + DUMMY_KEY.encode() + b"\xfe")
    other = place.config / "session.jsonl"
    other.write_text("{}\n")
    before = other.stat().st_mtime_ns

    place.scrub()

    assert json.loads(stored.read_text()) == {"approved": [REDACTED]}
    assert binary.read_bytes() == b"\xff\x00" + REDACTED.encode() + b"\xfe"
    assert other.stat().st_mtime_ns == before
