"""``lmp mcp``, asked by the MCP client over stdio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

PROJECT = Path(__file__).parents[2]
DATA = PROJECT / "tests" / "data" / "submissions"
NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"

NOISY = """
import os, sys
from lmp.agents import tools
found = tools.found
def noisy(*arguments):
    print("noise of Python's")
    os.write(1, b"noise below Python\\n")
    os.system("echo noise of a child; touch $HOME/noisy")
    return found(*arguments)
tools.found = noisy
sys.argv = ["lmp", *sys.argv[1:]]
from lmp.cli.main import run
run()
"""

Asked = Callable[[Client], Awaitable[None]]


@pytest.fixture
def served(tmp_path: Path, transformers_tree: Path) -> Callable[[Asked], None]:
    """Runs a conversation with a server that prints whatever it can to stdout."""

    def serve(asked: Asked) -> None:
        environment = {"PYTHONPATH": str(PROJECT / "src"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        arguments = ["-c", NOISY, "mcp", "--results", str(tmp_path / "results"), "--quiet"]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=environment, cwd=PROJECT)

        async def converse() -> None:
            with anyio.fail_after(120):
                async with Client(server) as client:
                    await asked(client)

        anyio.run(converse)

    return serve


async def said(client: Client, name: str, /, **arguments: Any) -> tuple[bool, str]:
    answer = await client.call_tool(name, arguments)
    return bool(answer.is_error), "".join(part.text for part in answer.content)  # type: ignore[union-attr]


def test_the_tools_over_stdio(served: Callable[[Asked], None], tmp_path: Path) -> None:
    right = json.loads((DATA / "LlamaRMSNorm.json").read_text(encoding="utf-8"))
    wrong = json.loads(json.dumps(right))
    wrong["kernels"][0]["flops"] = "{batch_size}"  # a conversion has no FLOPs

    async def asked(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == {
            "analysis_task", "find_class", "read_source", "read_constructor", "computational_lines",
            "class_parameters", "check_draft", "submit_analysis", "source_not_found",
            "evaluate", "predict", "memory", "inspect", "diff", "catalogue",
        }  # fmt: skip
        assert all(tool.input_schema["type"] == "object" for tool in listed)

        refused, text = await said(client, "find_class", name=NORM)
        assert not refused
        assert text.startswith(f"{NORM}\nfile: src/transformers/models/llama/modeling_llama.py")

        refused, text = await said(client, "read_source", what="/etc/passwd")
        assert refused
        assert "root:" not in text

        refused, text = await said(client, "find_class", surplus=1)
        assert refused

        refused, text = await said(client, "submit_analysis", draft=wrong)
        assert refused
        assert "line 63" in text
        # of the first point, 3 sequences: the claim is its batch
        assert "3" in text

        refused, text = await said(client, "check_draft", draft=right)
        assert not refused

        refused, text = await said(client, "submit_analysis", draft=right)
        assert not refused
        assert text.startswith("Accepted: verified. Stored: ")

        refused, text = await said(client, "submit_analysis", draft={"kernels": []})
        assert refused
        assert "names no class" in text

        refused, text = await said(client, "source_not_found", looked_for="class X", where="src", found="nothing")
        assert not refused

    served(asked)
    assert (tmp_path / "noisy").exists()
    stored = json.loads((tmp_path / "results" / NORM / "module_analysis.json").read_text(encoding="utf-8"))
    assert stored["verification"]["status"] == "verified"
    assert "class X" in (tmp_path / "results" / "SCRATCHPAD.md").read_text(encoding="utf-8")


def test_the_task_of_a_class(served: Callable[[Asked], None]) -> None:
    async def asked(client: Client) -> None:
        refused, text = await said(client, "analysis_task", class_path=NORM)
        assert not refused
        assert f"Analyse `{NORM}`." in text
        refused, text = await said(client, "analysis_task", class_path="transformers.NoSuchThing")
        assert refused

    served(asked)
