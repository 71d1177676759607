"""The entry of ``lmp``: the table of its commands, and the answer to every error.

An LmpError is a message of one or two lines and its exit code. Anything else is a bug of lmp: its traceback is shown
with `--debug`.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from lmp.cli.output import note
from lmp.cli.typed import remember
from lmp.errors import LmpError

COMMANDS = {
    "vendor": ("project", "Copy the pinned Python sources into the project."),
    "analyze-module": ("analyze", "Derive and verify what each line of forward() costs."),
    "verify": ("analyze", "Compare the stored formulas with execution again."),
    "expand": ("analyze", "Link the analyses of a model's classes into one."),
    "resume": ("analyze", "Resume an interrupted run of agents."),
    "evaluate": ("evaluate", "Evaluate the formulas of a module or of a whole model."),
    "diff": ("diff", "Show what became more expensive from A to B, by line and by kernel."),
    "report": ("report", "Write the report on a model, a module or a code base."),
    "review": ("review", "Check a report: pointers, placeholders, tables, numbers, diagrams."),
    "lab": ("lab", "Take the captures of a post, render posts, or check every number in them."),
    "prompt": ("prompt", "Print the prompt that an agent would get for a class, or for a report."),
    "submit": ("submit", "Check a submitted analysis; store it, or list what is wrong with it."),
    "mcp": ("mcp", "Serve answers on models, and the agents' tools, over MCP on stdio."),
    "zoo": ("zoo", "Expand and verify many model families, each at its default config."),
    "inspect": ("inspect", "Show a model's tree, parameters and cache."),
    "catalogue": ("inspect", "List the models that lmp knows without a network."),
    "atlas": ("atlas", "List the verified analyses that ship with lmp; make them, or make some again and compare."),
    "predict": (
        "predict",
        "Predict how long a call of a model takes on a device: its kernels, one by one, with 80 % intervals.",
    ),
    "memory": ("memory", "Say whether a model fits on a device: weights, cache, activations and reserve on each GPU."),
    "plan": ("plan", "Plan how to spread a model over GPUs: tensor, expert and pipeline parallelism, replicas, batch."),
    "devices": ("devices", "List the devices that lmp has datasheets of."),
    "predict-op": ("predict_op", "Predict the times of operators: JSON lines on stdin, one line each on stdout."),
    "predict-serving": (
        "predict_serving",
        "Predict what requests get of a server: JSON lines on stdin, one line each on stdout.",
    ),
    "calibrate": ("calibrate", "Fit the kernels' models to measured rows, and print the error on sites held out."),
    "doctor": ("doctor", "Check the installation: what is there, what is missing, what to do."),
    "schema": ("project", "Print the JSON Schemas of lmp's files."),
}
"""Command -> the file of this folder that has it, and the first line of its help. ``analyze-module`` is the function
``analyze_module`` of its file. Only the file of the command that runs is imported; `lmp --help` imports none."""

GROUPS = {
    "Costs": ("evaluate", "expand", "inspect", "diff", "catalogue", "atlas"),
    "Time": ("predict", "plan", "memory", "predict-op", "predict-serving", "devices", "calibrate"),
    "Classes": ("analyze-module", "verify"),
    "Reports": ("report", "review", "zoo", "lab"),
    "Agents": ("prompt", "submit", "mcp", "resume"),
    "Setup": ("doctor", "vendor", "schema"),
}
"""What people do -> the commands for it, in the order of `lmp --help`."""

EXAMPLES = (
    ("lmp evaluate Qwen/Qwen3-8B --phase decode -b 16 -c 8k", "One decode step of 16 sequences."),
    ("lmp evaluate Qwen/Qwen3-8B --phase prefill -b 1 -s 1k,8k,32k", "Three prompts side by side."),
    ("lmp inspect openai/gpt-oss-20b", "Tree, parameters and cache."),
    ("lmp diff Qwen/Qwen3-8B Qwen/Qwen3-32B -b 1 -s 2k", "What the larger model costs more."),
    ("lmp analyze-module my_model.py:Block", "How to analyse a class of your own."),
    ("lmp report Qwen/Qwen3-8B --format html", "One page that works offline."),
)
"""Commands to try, with what they show."""

INTERRUPTED = 130
BUG = 1
UNWRITABLE = 2
OUTPUT_FULL = (errno.ENOSPC, errno.EIO)


def command(name: str) -> Any:
    """The command with its options, as typer builds it from the function. Imports its file."""
    file, _ = COMMANDS[name]
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=GroupedCommand)(
        getattr(importlib.import_module(f"lmp.cli.{file}"), name.replace("-", "_"))
    )
    return typer.main.get_command(single)


class GroupedCommand(TyperCommand):
    """A command whose help page has its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        from lmp.cli.help import write_options

        write_options(self, ctx, formatter)


class Lmp(TyperGroup):
    """The commands, with lmp's own answers to errors."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary, rich_markup_mode=None))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands by what people do, whole sentences, and examples."""
        widest = max(map(len, COMMANDS))
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), COMMANDS[name][1]) for name in names])
        with formatter.section("Examples"):
            for line, what in EXAMPLES:
                formatter.write(f"  {line}\n      {what}\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command in place of the entry that only has its name and its summary. Stores what was typed."""
        remember(args)
        name, entry, rest = super().resolve_command(ctx, args)
        return name, entry if name is None else command(name), rest

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except Exception as error:
            show, exit_code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
            if not standalone_mode or show is None or exit_code is None:
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                note(show())
                sys.exit(exit_code)
            # typer's own message takes four lines; one of them says what is wrong.
            message = show().replace("Value error, ", "").rstrip(".")
            context = getattr(error, "ctx", None)
            nearest = _nearest(message)
            if type(error).__name__ == "NoSuchOption" and context is not None:
                from lmp.cli.elsewhere import no_such_option

                message, nearest = no_such_option(str(getattr(error, "option_name", "")), context)
            note(f"error: {message}")
            note(f"{nearest}see `{context.command_path if context else 'lmp'} --help`")
            sys.exit(exit_code)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except LmpError as error:
            if _debug(ctx):
                _traceback()
            note(f"error: {error}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            note("interrupted; finished work is stored, and no file is incomplete")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _close_stdout()
            raise typer.Exit(0) from None
        except Exception as error:
            if type(error).__module__.startswith("typer"):
                raise
            if isinstance(error, ModuleNotFoundError):
                _end_if_engine_is_missing(error, _debug(ctx))
            if isinstance(error, OSError) and error.errno in OUTPUT_FULL:
                note(f"error: the output cannot be written: {error.strerror}")
                raise typer.Exit(UNWRITABLE) from error
            _bug(error, _debug(ctx))


def _nearest(message: str) -> str:
    """``did you mean fp8? `` for typer's message on a value that is none of an option's words; else empty."""
    import difflib
    import re

    from lmp.errors import did_you_mean

    refused = re.search(r"'([^']*)' is not one of ('.*)", message)
    words = re.findall(r"'([^']*)'", refused[2]) if refused is not None else []
    close = difflib.get_close_matches(refused[1].lower(), words, n=2) if refused is not None else []
    return f"{did_you_mean(close, '')} " if close else ""


app = typer.Typer(
    cls=Lmp,
    name="lmp",
    no_args_is_help=True,
    add_completion=True,
    # typer's rich help imports half of rich: it would double the time of `lmp --help`.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        print(f"lmp {metadata.version('lmp')}")
        raise typer.Exit()


@app.callback()
def lmp(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """What every source line of a PyTorch forward() costs: FLOPs and bytes as formulas, proven against execution."""


COLLECT_AFTER = 50_000
"""New objects between two garbage collections (Python's default: 700): some scan all that a command has imported."""


def run() -> NoReturn:
    """The entry point of the ``lmp`` script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: what is written goes nowhere
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A source may hold a character that the terminal's encoding does not have: it is printed as \\u2026.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    gc.set_threshold(COLLECT_AFTER)
    code: object = BUG
    try:
        app(prog_name="lmp")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        note("interrupted; no file is incomplete")
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
    except OSError as error:
        note(f"error: the output cannot be written: {error.strerror}")
        _close_stdout()
        code = UNWRITABLE
    sys.exit(code if isinstance(code, int) else BUG)


def _debug(ctx: Any) -> bool:
    from lmp.cli.options import DEBUG

    return bool(ctx.meta.get(DEBUG))


def _bug(error: Exception, debug: bool) -> NoReturn:
    if debug:
        _traceback()
    else:
        first = (str(error).splitlines() or [""])[0]
        note(f"error: {type(error).__name__}: {first}: this is a bug in lmp")
        note("run again with --debug and report what it prints; no file is incomplete")
    raise typer.Exit(BUG) from error


def _end_if_engine_is_missing(error: ModuleNotFoundError, debug: bool) -> None:
    """End a command that came to need torch or transformers where they are not installed."""
    from lmp.source.installed import ENGINE, engine_missing, lacking

    if error.name not in ENGINE:
        return
    if debug:
        _traceback()
    told = engine_missing(lacking() or [error.name])
    note(f"error: {told}")
    raise typer.Exit(told.exit_code) from error


def _traceback() -> None:
    import traceback

    traceback.print_exc(file=sys.stderr)


def _close_stdout() -> None:
    """Send the rest of stdout nowhere when the reader of a pipe has gone: without it Python complains at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
