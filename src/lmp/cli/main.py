"""The entry of ``lmp``, and how every error is answered.

An LmpError is a message of one or two lines and its exit code. Anything else is a bug of lmp's: its traceback is one
`--debug` away.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from lmp.cli import commands
from lmp.cli.options import DEBUG
from lmp.errors import LmpError

INTERRUPTED = 130
BUG = 1
UNWRITABLE = 2
OUTPUT_FULL = (errno.ENOSPC, errno.EIO)


class Lmp(TyperGroup):
    """The commands, with lmp's own answers to errors."""

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
                _say(show())
                sys.exit(exit_code)
            # typer's own complaints about options take four lines; what counts is in one.
            _say(f"error: {show()}".replace("Value error, ", "").rstrip("."))
            context = getattr(error, "ctx", None)
            _say(f"see `{context.command_path if context else 'lmp'} --help`")
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
            if ctx.meta.get(DEBUG):
                _traceback()
            _say(f"error: {error}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            _say("interrupted; what was finished is stored, and nothing was half written")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _close_stdout()
            raise typer.Exit(0) from None
        except Exception as error:
            if type(error).__module__.startswith("typer"):
                raise
            if isinstance(error, OSError) and error.errno in OUTPUT_FULL:
                _say(f"error: the output cannot be written: {error.strerror}")
                raise typer.Exit(UNWRITABLE) from error
            _bug(error, bool(ctx.meta.get(DEBUG)))


app = typer.Typer(
    cls=Lmp,
    name="lmp",
    no_args_is_help=True,
    add_completion=False,
    # typer's rich help imports half of rich: it would double the time of `lmp --help`.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
commands.register(app)


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


def run() -> NoReturn:
    """What the ``lmp`` script calls."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: what is written goes nowhere
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Sources may hold any character, a terminal's encoding not: better a \\u2026 than no table.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    code: object = BUG
    try:
        app(prog_name="lmp")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        _say("interrupted; nothing was half written")
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
    except OSError as error:
        _say(f"error: the output cannot be written: {error.strerror}")
        _close_stdout()
        code = UNWRITABLE
    sys.exit(code if isinstance(code, int) else BUG)


def _bug(error: Exception, debug: bool) -> NoReturn:
    if debug:
        _traceback()
    else:
        first = (str(error).splitlines() or [""])[0]
        _say(f"error: {type(error).__name__}: {first}: this is a bug in lmp")
        _say("run again with --debug and report what it prints; nothing was half written")
    raise typer.Exit(BUG) from error


def _traceback() -> None:
    import traceback

    traceback.print_exc(file=sys.stderr)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _close_stdout() -> None:
    """The reader of a pipe has gone: what is left to write goes nowhere, without a second complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
