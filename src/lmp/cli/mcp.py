"""``lmp mcp``: questions on models, and the tools of the agents, for any MCP client on stdin and stdout."""

from __future__ import annotations

from lmp.cli import options as o
from lmp.cli.output import note


@o.takes(*o.FOLDERS, *o.CONFIG, "path", "quiet", "debug")
def mcp(common: o.Common) -> None:
    """Serve answers on models, and the agents' tools, over MCP on stdio."""
    options = common.options()
    import anyio

    from lmp.agents.mcp_server import ClientTools, serve
    from lmp.analyze.session import WAITING
    from lmp.api.questions import Questions

    def show(name: str, stage: str) -> None:
        if not common.quiet and stage != WAITING:
            note(f"{name}: {stage}")

    client = ClientTools(options, show)
    anyio.run(serve, [*Questions(options, client.in_thread).tools(), *client.tools()])
