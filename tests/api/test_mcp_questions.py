"""Questions on models over MCP: what is answered, and that nonsense is answered in words while the server goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from lmp.api.questions import CHARACTERS, refuse_other_paths, shortened
from lmp.errors import UsageError

PROJECT = Path(__file__).parents[2]
LLAMA, MOE = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"
POINT = {"phase": "decode", "batch": 16, "cache": 8192}
HEAD, LAYER = 4096 * 128256, 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
KV_TOKEN = 2 * 8 * 128 * 32

Asked = Callable[[Client], Awaitable[None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, transformers_tree: Path) -> Path:
    """A working folder in a copy of the project's results: sources are the project's, by links."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(PROJECT / "analysis_results", folder / "analysis_results")
    for name in ("transformers", "pytorch", "vendor.lock"):
        (folder / name).symlink_to(PROJECT / name)
    shutil.copy(PROJECT / "tests" / "data" / "configs" / "small-llama.json", folder / "small-llama.json")
    content = json.loads((folder / "small-llama.json").read_text(encoding="utf-8"))
    (folder / "own.json").write_text(json.dumps({**content, "hidden_act": "gelu"}))  # no entry of the atlas has it
    (folder / "outside.json").symlink_to(PROJECT / "tests" / "data" / "configs" / "small-llama.json")
    (folder / "broken.json").write_text("{")
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(PROJECT / "src"), "PATH": os.environ["PATH"], "HOME": str(folder)}


def converse(folder: Path, asked: Asked) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "lmp", "mcp", "--quiet"], env=environment(folder), cwd=folder
    )

    async def run() -> None:
        with anyio.fail_after(400):
            async with Client(server) as client:
                await asked(client)

    anyio.run(run)


async def said(client: Client, name: str, /, **arguments: Any) -> tuple[bool, str]:
    answer = await client.call_tool(name, arguments)
    return bool(answer.is_error), "".join(part.text for part in answer.content)  # type: ignore[union-attr]


async def answered(client: Client, name: str, /, **arguments: Any) -> Any:
    refused, text = await said(client, name, **arguments)
    assert not refused, text
    assert len(text) <= arguments.get("characters", CHARACTERS)
    return json.loads(text)


def test_each_question_has_a_short_answer(folder: Path) -> None:
    async def asked(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed.keys() >= {"evaluate", "predict", "memory", "inspect", "diff", "catalogue", "analysis_task"}
        for name in ("evaluate", "predict", "memory", "inspect", "diff", "catalogue"):
            fields = listed[name].input_schema["properties"]
            assert [field for field, about in fields.items() if not about.get("description")] == []

        found = await answered(client, "evaluate", model=LLAMA, **POINT, weights="fp8")
        (row,) = found["rows"]
        # Products of 16 tokens, and attention over 8,192 cached tokens and the token itself.
        assert row["matmul_flops"] == 16 * (2 * (32 * LAYER + HEAD) + 4 * 32 * 32 * 128 * 8193)
        assert row["kv_bytes"] == 16 * 8193 * KV_TOKEN * 2
        # A byte for each of 32 layers' 4,096 * (2 * 4,096 + 2 * 1,024 + 3 * 14,336) elements; 2 for all else.
        matrices = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
        assert row["weights_bytes"] == matrices + 2 * (8_030_261_248 - matrices)
        assert found["status"] == "verified"
        shares = [one["share"] for one in found["dearest"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1

        many = await answered(client, "evaluate", model=LLAMA, phase="prefill", batch=[1, 2, 4], tokens=[128, 1024])
        assert len(many["rows"]) + many.get("left_out", {}).get("rows", 0) == 6
        longer = await answered(
            client, "evaluate", model=LLAMA, phase="prefill", batch=[1, 2, 4], tokens=[128, 1024], characters=20_000
        )
        assert len(longer["rows"]) == 6
        assert "left_out" not in longer

        found = await answered(client, "predict", model=LLAMA, **POINT, device="h100-sxm", engine="vllm")
        (row,) = found["vllm"]
        assert row["low_ms"] < row["time_ms"] < row["high_ms"]
        assert row["tokens_per_s"] == pytest.approx(16_000 / row["time_ms"], rel=1e-3)
        # 16.06 GB of weights and 17.18 GB of cache on 80 GB.
        assert row["fits"] is True
        assert 33e9 < row["memory_bytes"] < 40e9

        both = await answered(client, "predict", model=LLAMA, **POINT, device="h100-sxm")
        assert both["vllm"] == found["vllm"]
        assert both["eager"][0]["time_ms"] > row["time_ms"]  # eager moves the cache once more, and launches each kernel

        found = await answered(client, "memory", model=LLAMA, device="h100-sxm", batch=8, cache=131072)
        assert found["fits"] is False
        assert found["kv_bytes_per_token"] == 2 * KV_TOKEN
        assert found["kv_gib"] == 8 * 131072 * 2 * KV_TOKEN / 2**30
        assert found["weights_gib"] == pytest.approx(16_060_522_496 / 2**30, rel=1e-4)

        found = await answered(client, "inspect", model=LLAMA, depth=2)
        assert found["totals"]["parameters_count"] == 8_030_261_248
        assert f"    layers.0-31 LlamaDecoderLayer x 32: {LAYER + 2 * 4096:,}" in found["modules"]

        found = await answered(client, "diff", a=LLAMA, b=MOE, **POINT)
        assert found["totals"]["parameters_count"]["a"] == 8_030_261_248
        assert found["changes_b_minus_a"][0]["class"] == "Qwen3MoeExperts"

        found = await answered(client, "catalogue", contains="LLAMA")
        assert f"{LLAMA} (LlamaForCausalLM)" in found["models"]
        assert found["count"] == len(found["models"])

        # A config below the working folder, of a family that the atlas has; and one of a model that is analysed now.
        found = await answered(client, "evaluate", model="small-llama.json", phase="prefill", tokens=8)
        assert (found["model"], found["status"]) == ("small-llama", "unverified")
        found = await answered(client, "evaluate", model="own.json", phase="prefill", tokens=8)
        assert (found["model"], found["status"]) == ("own", "verified")

    converse(folder, asked)


NONSENSE: list[tuple[str, dict[str, Any], str]] = [
    ("evaluat", {}, "there is no tool evaluat; there are evaluate, predict"),
    ("evaluate", {}, "phase: Field required\nmodel: Field required"),
    ("evaluate", {"model": 5, **POINT}, "model: Input should be a valid string, not 5"),
    ("evaluate", {"model": LLAMA, **POINT, "surplus": 1}, "surplus: Extra inputs are not permitted"),
    ("evaluate", {"model": LLAMA, **POINT, "batch": "many"}, "batch"),
    ("evaluate", {"model": LLAMA, **POINT, "batch": []}, "batch has no values"),
    ("evaluate", {"model": LLAMA, **POINT, "batch": {"a": [1]}}, "batch"),
    ("evaluate", {"model": LLAMA, **POINT, "cache": 10**40}, "less than or equal to 1073741824"),
    ("evaluate", {"model": LLAMA, **POINT, "cache": -1}, "greater than or equal to 1"),
    ("evaluate", {"model": LLAMA, **POINT, "batch": list(range(1, 100))}, "99 points are more than 64"),
    ("evaluate", {"model": LLAMA, "phase": "sideways"}, "Input should be 'decode' or 'prefill'"),
    ("evaluate", {"model": LLAMA, "phase": "decode"}, "a decode needs cache"),
    ("evaluate", {"model": LLAMA, "phase": "prefill", "tokens": 8, "cache": 8}, "a prefill has no cache"),
    ("evaluate", {"model": LLAMA, **POINT, "weights": "fp9"}, "weights is 'fp9', which is no dtype"),
    ("evaluate", {"model": LLAMA, **POINT, "tp": 3}, "tp=3 does not divide"),
    ("predict", {"model": LLAMA, **POINT, "device": "h100smx"}, "there is no device 'h100smx'"),
    ("predict", {"model": LLAMA, **POINT, "device": "h100-sxm", "engine": "/etc/passwd"}, "engine: Input should be"),
    ("predict", {"model": LLAMA, "phase": "prefill", "batch": 2**20, "tokens": 2**30, "device": "h100-sxm"},
     "is beyond what is predicted: "),
    ("memory", {"model": "torch.nn.Linear", "device": "h100-sxm", "cache": 1}, "no"),
    ("inspect", {"model": LLAMA, "depth": 10**9}, "less than or equal to 20"),
    ("diff", {"a": LLAMA, "b": "", **POINT}, "'' is no model"),
    ("catalogue", {"contains": 1}, "Input should be a valid string"),
    ("evaluate", {"model": "/etc/passwd", **POINT}, "is no config.json below the working folder"),
    ("evaluate", {"model": "../x.json", **POINT}, "is no config.json below the working folder"),
    ("evaluate", {"model": "outside.json", **POINT}, "is no config.json below the working folder"),
    ("evaluate", {"model": "~/x.json", **POINT}, "there is no file"),
    ("inspect", {"model": "analysis_results/../../x.json"}, "is no config.json below the working folder"),
    ("evaluate", {"model": "block.py:Block", **POINT}, "'block.py:Block' is no"),
    ("evaluate", {"model": "os.path", **POINT}, "'os.path' is no model"),
    ("evaluate", {"model": "broken.json", **POINT}, "broken.json"),
    ("evaluate", {"model": "a\0b", **POINT}, "characters that no model has"),
    ("evaluate", {"model": "x" * 301, **POINT}, "at most 300 characters"),
]  # fmt: skip


def test_nonsense_is_answered_in_words(folder: Path) -> None:
    async def asked(client: Client) -> None:
        for name, arguments, message in NONSENSE:
            refused, text = await said(client, name, **arguments)
            assert refused, (name, arguments, text)
            assert message in text, (name, arguments, text)
            assert "Traceback" not in text
            assert "root:" not in text
            assert "--" not in text, text
        # And the server goes on.
        assert (await answered(client, "catalogue", contains="gpt2"))["count"] == 1

    converse(folder, asked)


# --- without a client ------------------------------------------------------------------------------------------------

HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


@pytest.fixture
def server(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lmp", "mcp", "--quiet"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=folder, env=environment(folder), **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.kill()


def write(pipe: IO[str] | None, *lines: object) -> None:
    assert pipe is not None
    for line in lines:
        pipe.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    pipe.flush()


def reply(process: subprocess.Popen[str], number: int) -> Any:
    """The answer to a request; notices about lines that are none are passed over."""
    assert process.stdout is not None
    for line in process.stdout:
        data = json.loads(line)
        if data.get("id") == number:
            return data
    raise AssertionError("the server ended")


def call(number: int, name: str, arguments: object) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_lines_that_are_no_requests(server: subprocess.Popen[str]) -> None:
    write(server.stdin, "this is no JSON", "{", "[1, 2]", "null", '"text"', "", "\x00\x01", "[" * 100_000)
    write(server.stdin, HELLO)
    assert reply(server, 1)["result"]["serverInfo"]["name"] == "lmp"
    write(server.stdin, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    write(server.stdin, {"jsonrpc": "2.0", "id": 2, "method": "no/such"}, {"jsonrpc": "2.0", "id": 3, "method": 7})
    assert "error" in reply(server, 2)
    write(server.stdin, call(4, "evaluate", "no object"), call(5, "catalogue", {"contains": "gpt2"}))
    found = reply(server, 5)["result"]
    assert json.loads(found["content"][0]["text"])["count"] == 1


@pytest.mark.parametrize("during", ["nothing", "a question"])
def test_a_client_that_goes_away(server: subprocess.Popen[str], folder: Path, during: str) -> None:
    write(server.stdin, HELLO)
    reply(server, 1)
    write(server.stdin, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    if during == "a question":
        write(server.stdin, call(2, "evaluate", {"model": "small-llama.json", "phase": "prefill", "tokens": 4}))
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(timeout=200) == 0
    for file in (folder / "analysis_results").rglob("*.json"):
        json.loads(file.read_text(encoding="utf-8"))


# --- in parts --------------------------------------------------------------------------------------------------------


def test_an_answer_is_shortened_from_its_longest_list() -> None:
    data = {"a": [1, 2], "b": ["x" * 40 for _ in range(10)], "c": "kept"}
    text = shortened(data, 200)
    found = json.loads(text)
    assert len(text) <= 200
    assert (found["a"], found["c"]) == ([1, 2], "kept")
    assert len(found["b"]) + found["left_out"]["b"] == 10
    assert shortened(data, 2000) == json.dumps(data)
    assert len(shortened({"long": "x" * 500}, 200)) == 200


@pytest.mark.parametrize("text", ["Qwen/Qwen3-8B", "torch.nn.Linear", "transformers.models.gpt2.modeling_gpt2.GPT2MLP"])
def test_what_is_a_model(text: str) -> None:
    refuse_other_paths(text)


@pytest.mark.parametrize("text", ["//x/y.json", ".", "..", "~", "a\nb", "sys", "\u202ea/b"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        refuse_other_paths(text)
