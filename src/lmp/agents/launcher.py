"""Becomes the agent's CLI with nothing of the environment but the names that are listed here.

Run as ``python -I launcher.py CLI ARGUMENTS``: the SDK can add to an inherited environment and cannot take away from
it, so the CLI is started through this. Standard library only, and nothing of lmp's is imported.
"""

import ctypes
import os
import signal
import sys

CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")

_INHERITED = (
    *CREDENTIALS,
    "ANTHROPIC_BASE_URL",
    # how the service is reached from here
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
)
_SET_BY_LMP = (
    "HOME",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
    "MAX_MCP_OUTPUT_TOKENS",
    "MCP_TOOL_TIMEOUT",
)
_SET_BY_THE_SDK = (
    "CLAUDE_AGENT_SDK_VERSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    "PWD",
)
_PR_SET_PDEATHSIG = 1

ALLOWED = frozenset((*_INHERITED, *_SET_BY_LMP, *_SET_BY_THE_SDK))


def main() -> None:
    cli, *arguments = sys.argv[1:]
    environment = {name: value for name, value in os.environ.items() if name in ALLOWED}
    # A session of its own: Ctrl-C in the terminal reaches lmp alone, which then ends the CLI in an orderly way.
    os.setsid()
    if sys.platform == "linux":
        # Where lmp is killed, its agents end with it: they would go on asking the service.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.execve(cli, [cli, *arguments], environment)


if __name__ == "__main__":
    main()
