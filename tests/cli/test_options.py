"""The record of the shared options, and the decorator that fills it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import pytest
import typer
from fakes import Lmp
from typer.testing import CliRunner

from lmp.cli import main
from lmp.cli import options as o

Own = Annotated[int, typer.Option("--own")]


def names(command: object) -> list[str]:
    return list(inspect.signature(command).parameters)  # type: ignore[arg-type]


def test_the_command_gets_what_typer_reads() -> None:
    seen: list[tuple[o.Common, int]] = []

    @o.takes("results", ..., "as_json")
    def command(common: o.Common, own: Own = 3) -> None:
        """What it does."""
        seen.append((common, own))

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["--results", "out", "--own", "4", "--json"])
    assert result.exit_code == 0, result.output
    assert seen == [(o.Common(results=Path("out"), as_json=True), 4)]
    assert command.__doc__ == "What it does."
    assert CliRunner().invoke(app, ["--quiet"]).exit_code == 2


def test_the_order_of_the_help_page() -> None:
    def command(common: o.Common, one: Own = 1, two: Own = 2) -> None: ...

    assert names(o.takes("results", "quiet")(command)) == ["one", "two", "results", "quiet"]
    assert names(o.takes("results", ..., "quiet")(command)) == ["results", "one", "two", "quiet"]
    assert names(o.takes("results", "one", "quiet")(command)) == ["two", "results", "one", "quiet"]


def test_another_form_of_an_option() -> None:
    def command(common: o.Common) -> None: ...

    taken = o.takes("agent_model", agent_model=o.ModelOrAgentModel)(command)
    app = typer.Typer()
    app.command()(taken)
    assert CliRunner().invoke(app, ["--model", "small"]).exit_code == 0


def test_names_that_are_no_option_are_refused() -> None:
    def command(common: o.Common, quiet: Own = 1) -> None: ...

    with pytest.raises(TypeError, match=r"command: not one option each: \['reslts'\]"):
        o.takes("reslts")(command)
    with pytest.raises(TypeError, match=r"command: not one option each: \['quiet'\]"):
        o.takes("quiet")(command)
    with pytest.raises(TypeError, match=r"command: not one option each: \['results'\]"):
        o.takes("debug", results=o.ModelOrAgentModel)(command)


def test_a_name_is_given_once() -> None:
    assert o.one_of("classes", "a.B", "--module", None) == "a.B"
    assert o.one_of("classes", None, "--module", "a.B") == "a.B"
    assert o.one_of("classes", "a.B", "--module", "a.B") == "a.B"
    assert o.one_of("classes", None, "--module", None) is None


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_table_of_commands_has_the_first_line_of_their_help(name: str) -> None:
    _, summary = main.COMMANDS[name]
    assert main.command(name).help.splitlines()[0] == summary
    assert main.command(name).name == name


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_can_show_the_traceback_of_its_errors(lmp: Lmp, name: str) -> None:
    assert "\n  --debug " in lmp(name, "--help").stdout
