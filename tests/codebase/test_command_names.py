"""How commands of click and typer are named, and the packages that hand out what users import."""

from __future__ import annotations

from collections.abc import Callable

from lmp.codebase.entries import told_imports
from lmp.codebase.facts import RepoFacts
from lmp.codebase.roles.entry import entry_rows, package_of
from lmp.codebase.roles.reach import Reading

Read = Callable[..., RepoFacts]


def commands(read: Read, files: dict[str, str]) -> dict[str, str]:
    """Of each way to run that is a command of a command line, how it is started."""
    return {row.symbol: row.why for row in entry_rows(Reading(read(files))) if row.role == "cli"}


def test_a_command_has_its_script_its_groups_and_its_own_name(read: Read) -> None:
    files = {
        "pyproject.toml": '[project.scripts]\ntool = "tool.cli:main"\n',
        "tool/__init__.py": "",
        "tool/cli.py": """
            import click

            @click.group()
            def main():
                pass

            @main.command("invoke")
            @click.option("--fast")
            def invoke_cmd(fast):
                pass

            @main.group("decode")
            def decode_cmd():
                pass

            @main.command()
            def list_all():
                pass
            """,
        "tool/more.py": """
            from tool.cli import decode_cmd

            @decode_cmd.command("tx")
            def to_tx(data):
                pass
            """,
        "alone.py": """
            import click

            @click.command()
            def alone():
                pass
            """,
    }
    found = commands(read, files)
    assert found["invoke_cmd"] == "tool invoke"
    assert found["list_all"] == "tool list-all"
    assert found["to_tx"] == "tool decode tx"
    assert found["alone"] == "alone"


def test_an_application_with_one_command_is_started_without_its_name(read: Read) -> None:
    text = """
        import typer

        app = typer.Typer()

        @app.command()
        def serve(port: int):
            pass
        """
    scripts = {"pyproject.toml": '[project.scripts]\nserver = "one:app"\n', "one.py": text}
    assert commands(read, scripts)["serve"] == "server"
    two = text + "\n        @app.command('stop')\n        def halt():\n            pass\n"
    found = commands(read, {**scripts, "one.py": two})
    assert (found["serve"], found["halt"]) == ("server serve", "server stop")


def test_a_package_within_a_package_has_both_names(read: Read) -> None:
    reading = Reading(read({"outer/__init__.py": "", "outer/inner/__init__.py": "X = 1\n", "plain/net.py": "X = 1\n"}))
    assert package_of(reading, "outer/inner/__init__.py") == "outer.inner"
    assert package_of(reading, "outer/__init__.py") == "outer"
    assert package_of(reading, "plain/net.py") == "plain"


def test_a_function_named_backward_is_no_step_of_training(read: Read) -> None:
    # A tensor's method takes the gradient; an operator's own function of the name is called by it.
    files = {
        "m.py": """
            def fit(model, batches):
                for batch in batches:
                    model(batch).backward()

            def ring(steps):
                def backward(x):
                    return x

                for step in steps:
                    backward(step)
            """
    }
    assert [each.qualname for each in Reading(read(files)).trains] == ["fit"]


def test_what_a_comparison_in_a_readme_adds_is_imported() -> None:
    # The line that is taken away is another package's.
    told = told_imports("README.md", "```diff\n- from far import Model\n+ from near import Model\n```\nModel()\n")
    assert ("near", "Model", ()) in told
    assert all(module != "far" for module, _, _ in told)
