"""A model id, a config and a class in a file, as the argument of the commands."""

from __future__ import annotations

import json
from pathlib import Path

import analyses
import pytest
from fakes import FakePipeline, Lmp
from typer.testing import Result

from lmp.analyze import session
from lmp.cli.elsewhere import TABLE
from lmp.cli.main import COMMANDS as LMP_COMMANDS
from lmp.cli.main import command as built
from lmp.source import hub

MLP, LINEAR = analyses.MLP, analyses.LINEAR
SMALL = {"architectures": ["LlamaMLP"]}
POINT = ("-b", "2", "-s", "16")
COMMANDS = (("evaluate", *POINT), ("expand",), ("verify",), ("analyze-module",))

FILE = """
from torch import nn


class Block(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)

    def forward(self, x):
        return self.up(x)


class Other(nn.Module):
    def __init__(self, n: int):
        super().__init__()

    def forward(self, x, causal: bool):
        return x
"""


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the cache nor the hub has any model."""
    monkeypatch.setattr(hub, "cached_config", lambda model_id: None)
    monkeypatch.setattr(hub, "fetch_config", lambda model_id: hub.Answer(problem=hub.UNREACHABLE, reason="no network"))


@pytest.fixture
def of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every config is that of the MLP."""
    monkeypatch.setattr(session, "class_of_config", lambda options: MLP)


def refused(result: Result, code: int, message: str) -> None:
    assert result.exit_code == code, result.output
    assert result.stderr.startswith(f"error: {message}"), result.stderr
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("of_the_config")
def test_a_model_id_is_the_argument(lmp: Lmp, fake: FakePipeline, command: tuple[str, ...]) -> None:
    result = lmp(command[0], "Qwen/Qwen3-8B", *command[1:], "--quiet")
    assert result.exit_code == 0, result.output
    assert fake.options is not None
    assert (fake.asked, fake.options.model_id, fake.options.config_file) == ([MLP], "Qwen/Qwen3-8B", None)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("of_the_config")
def test_a_config_is_the_argument(lmp: Lmp, fake: FakePipeline, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(SMALL))
    result = lmp(command[0], "mine.json", *command[1:], "--quiet")
    assert result.exit_code == 0, result.output
    assert fake.options is not None
    assert (fake.asked, fake.options.model_id, fake.options.config_file) == ([MLP], None, Path("mine.json"))


@pytest.mark.usefixtures("of_the_config")
def test_the_same_name_twice_is_fine(lmp: Lmp, fake: FakePipeline) -> None:
    assert lmp("verify", "a/b", "--model-id", "a/b", "--module", "a/b", "--quiet").exit_code == 0
    assert fake.asked == [MLP]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a/b --model-id c/d", "two configs are given: a/b and, with --model-id, c/d\ngive one\n"),
        ("a/b --config c.json", "two configs are given: a/b and, with --config, c.json\ngive one\n"),
        (
            "a/b --module torch.nn.Linear",
            "a/b is given with other names, but only class paths may be several\ngive it alone",
        ),
    ],
)
def test_two_that_differ(lmp: Lmp, fake: FakePipeline, arguments: str, message: str) -> None:
    refused(lmp("verify", *arguments.split(), "--quiet"), 2, message)


def test_two_classes_for_a_command_of_one(lmp: Lmp) -> None:
    message = "two classes are given: a/b and, with --module, torch.nn.Linear\ngive one\n"
    refused(lmp("evaluate", "a/b", "--module", "torch.nn.Linear", *POINT, "--quiet"), 2, message)


def test_what_stands_alone(lmp: Lmp, fake: FakePipeline) -> None:
    refused(lmp("analyze-module", MLP, "a/b", "--quiet"), 2, "a/b is given with other names, but only class paths may")


@pytest.mark.usefixtures("offline")
def test_an_id_that_nobody_knows(lmp: Lmp, tmp_path: Path) -> None:
    result = lmp("evaluate", "Qwen/Qwen3-8Bx", *POINT, "--quiet")
    refused(
        result, 3, "no config of Qwen/Qwen3-8Bx: not in the Hugging Face cache, not in lmp's catalogue; the hub: no "
    )
    assert "\ndid you mean Qwen/Qwen3-8B" in result.stderr
    assert "no network" in (tmp_path / "analysis_results" / "SCRATCHPAD.md").read_text()


def test_a_model_without_a_batch_size_is_refused_before_it_is_analysed(lmp: Lmp, fake: FakePipeline) -> None:
    refused(
        lmp("evaluate", "a/b"), 2, "no batch size is given\ntype lmp evaluate a/b -b 1 -s 2k, or for a decode step: "
    )
    assert fake.options is None


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("predict a/b --device h100-sxm", "type lmp predict a/b --device h100-sxm -b 1 -s 2k, or for a decode step: "),
        ("predict a/b --device h100-sxm --phase decode -c 8k",
         "type lmp predict a/b --device h100-sxm --phase decode -c 8k -b 16\n"),
        ("evaluate a/b -s 2k --depth 1", "type lmp evaluate a/b -s 2k --depth 1 -b 16\n"),
    ],
)  # fmt: skip
def test_the_hint_is_the_command_that_was_typed(lmp: Lmp, fake: FakePipeline, typed: str, hint: str) -> None:
    refused(lmp(*typed.split()), 2, f"no batch size is given\n{hint}")
    assert fake.options is None


@pytest.mark.parametrize("name", ["evaluate", "predict"])
def test_a_cache_without_new_tokens_is_a_decode_step_to_most(lmp: Lmp, fake: FakePipeline, name: str) -> None:
    device = ["--device", "h100-sxm"] if name == "predict" else []
    typed = [name, MLP, "-c", "8k", *device]
    said = "-c 8k says what the cache holds, and nothing says how many tokens are new\n"
    refused(lmp(*typed), 2, f"{said}did you mean lmp {' '.join(typed)} --phase decode -b 16 (one new token)?")
    refused(lmp(*typed, "-b", "4"), 2, f"{said}did you mean lmp {' '.join(typed)} -b 4 --phase decode (one new token)?")
    assert fake.options is None


def test_a_cache_with_new_tokens_or_a_phase_is_taken(lmp: Lmp, fake: FakePipeline) -> None:
    assert values(lmp("evaluate", MLP, "-b", "1", "-c", "8k", "-s", "16", "--json"))["cache_len"] == 8192
    assert values(lmp("evaluate", MLP, "-b", "1", "-c", "8k", "--phase", "decode", "--json"))["seq_len"] == 1
    assert values(lmp("evaluate", MLP, "-b", "1", "-s", "4", "-c", "0", "--json"))["cache_len"] == 0


# --- options of other tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("evaluate x --weights fp8", "--weights: one word sets the bytes of weights, activations and cache\n"
                                     "did you mean --dtype w8a16? see `lmp evaluate --help`\n"),
        ("memory x --weights fp8", "--weights: one word sets the bytes of weights, activations and cache\n"
                                   "did you mean --dtype w8a16? see `lmp memory --help`\n"),
        ("evaluate x --context 8k", "--context: tokens of a call are new ones (-s), or in the cache (-c)\n"
                                    "did you mean -c? see `lmp evaluate --help`\n"),
        ("predict x --ctx 8k", "--ctx: tokens of a call are new ones (-s), or in the cache (-c)\ndid you mean -c? "),
        ("evaluate x --seqlen 8k", "--seqlen: the new tokens of a call are its sequence length\ndid you mean -s? "),
        ("diff x --batch 8", "--batch: a batch is a number of sequences\ndid you mean -b? "),
        ("evaluate x --tensor-parallel-size 8", "--tensor-parallel-size: GPUs that share each layer are a "
                                                "tensor-parallel group\ndid you mean --tp? "),
        ("evaluate x --tensor_parallel_size 8", "--tensor_parallel_size: GPUs that share each layer"),
        ("plan x --tp 8", "--tp\n"),
        ("plan x --tensor-parallel-size 8", "--tensor-parallel-size: GPUs that share each layer are a "
                                            "tensor-parallel group\ndid you mean --gpus? "),
        ("evaluate x --gpus 8", "--gpus: GPUs that share each layer are a tensor-parallel group\ndid you mean --tp? "),
        ("evaluate x --gpu h100", "--gpu: hardware is named by its datasheet: `lmp devices` lists them\n"
                                  "did you mean --device h100-sxm? "),
        ("evaluate --model x", "--model: the model is the first argument\ndid you mean --module? "),
        # A command without such an option: nothing of another meaning is named.
        ("expand x --batch 8", "--batch\nsee `lmp expand --help`\n"),
        ("expand x --weights fp8", "--weights\nsee `lmp expand --help`\n"),
        # Not of another tool: what is typed nearly right.
        ("evaluate x --cache-length 8k", "--cache-length\ndid you mean --cache-len? "),
        ("evaluate x -tp 4", "-tp\ndid you mean --tp? "),
        ("evaluate x --zzz", "--zzz\nsee `lmp evaluate --help`\n"),
    ],
)  # fmt: skip
def test_options_of_other_tools(lmp: Lmp, fake: FakePipeline, typed: str, said: str) -> None:
    result = lmp(*typed.split())
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: no such option {said}"), result.stderr
    assert fake.options is None


def test_every_option_that_is_named_is_one_of_a_command() -> None:
    there = {option for name in LMP_COMMANDS for parameter in built(name).params for option in parameter.opts}
    named = {ours.split()[0] for found in TABLE.values() for ours in found.ours}
    assert named <= there
    assert all(found.why and not found.why.endswith(".") for found in TABLE.values())


# --- sizes -----------------------------------------------------------------------------------------------------------


def values(result: Result) -> dict[str, int]:
    assert result.exit_code == 0, result.output
    found: dict[str, int] = json.loads(result.stdout)["values"]
    return found


def test_units_in_short_options(lmp: Lmp, fake: FakePipeline) -> None:
    found = values(lmp("evaluate", MLP, "-b", "1k", "-s", "1.5k", "-c", "1M", "--json"))
    # 1024, 1.5 * 1024, 1024 * 1024
    assert (found["batch_size"], found["seq_len"], found["cache_len"]) == (1024, 1536, 1_048_576)
    found = values(lmp("evaluate", MLP, "--set", "batch_size=2,seq_len=8k", "--json"))
    assert found["seq_len"] == 8192


@pytest.mark.parametrize("text", ["8q", "k", "1kk", "", "1.3k", "-1k", "0", "8k:4k"])
@pytest.mark.parametrize("option", ["-b", "-s", "-c"])
def test_sizes_that_are_none(lmp: Lmp, fake: FakePipeline, option: str, text: str) -> None:
    if (option, text) == ("-c", "0"):
        return  # an empty cache
    name = {"-b": "batch_size", "-s": "seq_len", "-c": "cache_len"}[option]
    refused(lmp("evaluate", MLP, option, text, "--quiet"), 2, f"{name} is set to ")
    assert fake.options is None


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    (tmp_path / "blocks.py").write_text(FILE)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_class_in_a_file(lmp: Lmp, fake: FakePipeline, blocks: Path, command: tuple[str, ...]) -> None:
    fake.analyses["blocks.Block"] = analyses.linear()
    inputs = ("--inputs", "x: float[batch_size, seq_len, dim]", "--init", "dim=64")
    result = lmp(command[0], "blocks.py:Block", *command[1:], *inputs, "--quiet", "--json")
    assert fake.asked == ["blocks.Block"], result.output
    assert fake.options is not None
    assert fake.options.paths == (blocks,)


def test_a_file_without_a_class_lists_them(lmp: Lmp, fake: FakePipeline, blocks: Path) -> None:
    result = lmp("analyze-module", "blocks.py")
    refused(result, 2, "blocks.py has 2 classes, and none is named\n")
    assert result.stdout == (
        "Block(dim=64)   blocks.py:5\n"
        "  forward(x)\n"
        '  lmp analyze-module blocks.py:Block --inputs "x: float[batch_size, seq_len, dim]" --init "dim=64"\n'
        "Other(n: int)   blocks.py:14\n"
        "  forward(x, causal: bool)\n"
        '  lmp analyze-module blocks.py:Other --inputs "x: float[batch_size, seq_len, SIZE], causal=true" '
        '--init "n=SIZE"\n'
        "The shapes are a template, from names and layers in the source. Put values in place of SIZE.\n"
    )
    assert fake.options is None


def test_the_printed_command_has_all_that_was_typed(lmp: Lmp, fake: FakePipeline, blocks: Path) -> None:
    result = lmp("evaluate", "./blocks.py:Block", "-b", "2", "-s", "16", "--each", "line", "--exact")
    assert result.exit_code == 2
    inputs = '--inputs "x: float[batch_size, seq_len, dim]" --init "dim=64"'
    assert result.stdout.splitlines()[2] == f"  lmp evaluate blocks.py:Block -b 2 -s 16 --each line --exact {inputs}"
    named = lmp("evaluate", "--module=blocks.py:Block", "-b", "2", "-s", "16").stdout.splitlines()[2]
    assert named == f"  lmp evaluate --module=blocks.py:Block -b 2 -s 16 {inputs}"
    # A file alone: the class is put in.
    listed = lmp("evaluate", "blocks.py", "-b", "2", "--each", "line").stdout
    assert "  lmp evaluate blocks.py:Other -b 2 --each line --inputs " in listed


@pytest.mark.parametrize("form", [(), ("--format", "markdown"), ("--json",)])
def test_diff_prints_its_own_command_with_inputs(lmp: Lmp, blocks: Path, form: tuple[str, ...]) -> None:
    typed = ("diff", "blocks.py:Block@HEAD", "blocks.py:Block", "-b", "1", "-s", "1", "--fail-above", "bytes=1%", *form)
    result = lmp(*typed)
    assert result.exit_code == 2
    shown = (result.stderr if form else result.stdout).splitlines()
    inputs = '--inputs "x: float[batch_size, seq_len, dim]" --init "dim=64"'
    assert shown[2] == f"  lmp {' '.join(typed)} {inputs}"
    assert result.stderr.splitlines()[-2:] == [
        "error: lmp does not know how blocks.py:Block is called",
        "type the command above",
    ]
    assert not form or result.stdout == ""


@pytest.mark.parametrize("name", ["mine", "org/mine", "./mine"])
@pytest.mark.usefixtures("of_the_config")
def test_a_folder_with_a_config_stands_for_its_config(lmp: Lmp, fake: FakePipeline, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "config.json").write_text(json.dumps(SMALL))
    assert lmp("evaluate", name, *POINT, "--quiet").exit_code == 0
    assert fake.options is not None
    assert fake.options.config_file == Path(name) / "config.json"
    refused(lmp("evaluate", name, "--config", "other.json"), 2, f"two configs are given: {Path(name)}/config.json and")


def test_the_printed_command_has_the_sizes(lmp: Lmp, fake: FakePipeline, blocks: Path) -> None:
    result = lmp("evaluate", "blocks.py:Block", "-b", "2", "-c", "8k", "--phase", "decode", "--json")
    refused_lines = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")  # with --json nothing but JSON is on stdout
    assert refused_lines[2] == (
        "  lmp evaluate blocks.py:Block -b 2 -c 8k --phase decode --json "
        '--inputs "x: float[batch_size, seq_len, dim]" --init "dim=64"'
    )
    assert refused_lines[-2] == "error: lmp does not know how blocks.py:Block is called"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("blocks.py:Blok", 3, "blocks.py has no class Blok\ndid you mean Block? (what was looked for: "),
        ("nothing.py:Block", 3, "there is no file nothing.py\n"),
        (
            "blocks.py --inputs x:float[2]",
            2,
            "blocks.py has 2 classes: Block, Other\nname one, as in blocks.py:Block\n",
        ),
        ("empty.py", 3, "empty.py defines no nn.Module with a forward()\n"),
        ("broken.py:B", 3, "{}/broken.py is not valid Python at line 1: invalid syntax\n"),
        ("binary.py", 3, "{}/binary.py "),
        ("my-blocks.py", 2, "my-blocks.py cannot be imported: the name of its file my-blocks is no Python name\n"),
        ("folder.py", 2, "folder.py is a folder, not a Python file\n"),
        ("./folder.py", 2, "folder.py is a folder, not a Python file\n"),
    ],
)
def test_files_that_cannot_be(lmp: Lmp, blocks: Path, arguments: str, code: int, message: str) -> None:
    (blocks / "empty.py").write_text("x = 1\n")
    (blocks / "broken.py").write_text("def f(:\n")
    (blocks / "binary.py").write_bytes(bytes(range(256)))
    (blocks / "my-blocks.py").write_text(FILE)
    (blocks / "folder.py").mkdir()
    for command in ("analyze-module", "evaluate", "expand", "verify", "prompt"):
        refused(lmp(command, *arguments.split(), "--quiet"), code, message.format(blocks))


def test_a_file_is_nothing_to_inspect(lmp: Lmp, blocks: Path) -> None:
    refused(
        lmp("inspect", "blocks.py:Block", "--quiet"), 2, "lmp inspect is for models with a config, not for blocks.py"
    )


def test_the_config_of_a_class_path_stays_that_of_the_option(lmp: Lmp, fake: FakePipeline) -> None:
    lmp("verify", MLP, "--model-id", "a/b", "--quiet")
    assert fake.options is not None
    assert (fake.asked, fake.options.model_id) == ([MLP], "a/b")


def test_what_an_id_is_does_not_depend_on_the_command(lmp: Lmp, fake: FakePipeline, tmp_path: Path) -> None:
    """In an existing folder a name is a path, for `lmp diff` too."""
    (tmp_path / "old").mkdir()
    for command in (("diff", "old/x", "old/y"), ("verify", "old/x"), ("evaluate", "old/x")):
        result = lmp(*command, "--quiet")
        assert (result.exit_code, "there is no file" in result.stderr) == (2, True), result.stderr
