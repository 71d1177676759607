"""Flags of command lines, whatever library makes them."""

from __future__ import annotations

from collections.abc import Callable

from lmp.codebase.facts import RepoFacts

One = Callable[[str], RepoFacts]
Read = Callable[..., RepoFacts]


def found(facts: RepoFacts) -> list[tuple[tuple[str, ...], int, str | None, str]]:
    return [(flag.names, flag.place.line, flag.default, flag.help) for flag in facts.flags]


def test_argparse(one: One) -> None:
    facts = one(
        """
        import argparse
        NAME = "--seed"
        parser = argparse.ArgumentParser()
        parser.add_argument("model", help="Which model.")
        group = parser.add_argument_group("more")
        group.add_argument("-p", "--port", type=int, default=8000, help="The port, "
                           "a number.")
        group.add_argument(
            "--quiet",
            action="store_true",
        )
        parser.add_argument(NAME)
        for each in ("a", "b"):
            parser.add_argument(f"--{each}", default=each)
        """
    )
    assert found(facts) == [
        (("model",), 5, None, "Which model."),
        (("-p", "--port"), 7, "8000", "The port, a number."),
        (("--quiet",), 10, "False", ""),
        (("--seed",), 13, None, ""),
        # What a loop puts in is given as it is written.
        (('f"--{each}"',), 15, "each", ""),
    ]


def test_a_call_that_only_passes_names_on_is_none(one: One) -> None:
    facts = one(
        """
        def add_argument(*names, **settings):
            parser.add_argument(*names, **settings)
        add_argument("--width", default=8)
        """
    )
    assert found(facts) == [(("--width",), 4, "8", "")]


def test_flags_that_are_compared_by_hand(one: One) -> None:
    facts = one(
        """
        import sys
        at = 0
        for arg in sys.argv[1:]:
            if arg.startswith("--size="):
                size = arg.split("=")[1]
            elif arg == "--size":
                size = sys.argv[at + 2]
            at += 1
            if sys.argv[at] == "--size" or at == "-":
                break
        """
    )
    # The first comparison with the whole name; what is no name of a flag is none.
    assert found(facts) == [(("--size",), 7, None, "")]


def test_click_typer_absl_and_fire(one: One) -> None:
    facts = one(
        """
        import click, typer, fire
        from absl import flags
        from typing import Annotated
        @click.command()
        @click.option("--count", "-c", default=1, help="How many.")
        @click.argument("name")
        def hello(count, name): ...
        def run(path: str, tokens_per_step: int = typer.Option(8, help="Tokens."),
                dry: Annotated[bool, typer.Option("--dry-run")] = False): ...
        flags.DEFINE_integer("steps", 100, "Steps to take.")
        def train(data, lr=0.1): ...
        fire.Fire(train)
        """
    )
    assert found(facts) == [
        (("--count", "-c"), 6, "1", "How many."),
        (("name",), 7, None, ""),
        (("--tokens-per-step",), 9, "8", "Tokens."),
        (("--dry-run",), 10, "False", ""),
        (("--steps",), 11, "100", "Steps to take."),
        (("--data",), 12, None, ""),
        (("--lr",), 12, "0.1", ""),
    ]
    assert [flag.parser for flag in facts.flags] == ["click", "click", "typer", "typer", "absl", "fire", "fire"]


def test_what_a_command_of_typer_takes_without_a_mark(one: One) -> None:
    facts = one(
        """
        import typer
        app = typer.Typer()
        @app.command()
        def convert(ctx: typer.Context, folder: str, max_len: int = 8): ...
        def start(port: int = 80): ...
        def other(size: int = 1): ...
        typer.run(start)
        """
    )
    # What has no default is asked for by its place; the context is typer's own, and nothing runs ``other``.
    assert [(flag.names[0], flag.default, flag.required) for flag in facts.flags] == [
        ("folder", None, True),
        ("--max-len", "8", False),
        ("--port", "80", False),
    ]


def test_fields_that_a_function_of_the_repository_makes_flags_of(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "cli.py": """
            from typing import Annotated
            from dataclasses import fields
            A = Annotated
            class Arg: ...
            def add_all(parser, cls):
                for field in fields(cls):
                    names, settings = prepare(field)
                    parser.add_argument(*names, **settings)
            """,
            "server.py": """
            from cli import A, Arg
            class Server:
                host: A[str, "The host."] = "127.0.0.1"
                model_path: A[str, Arg(help="Weights.", aliases=["--model"])]
                tp_size: A[int, Arg(help="Ranks.", cli_name="--tensor-parallel-size")] = 1
                hidden: A[int, Arg(no_cli=True)] = 0
                plain: int = 3
            """,
        }
    )
    assert found(facts) == [
        (("--host",), 4, '"127.0.0.1"', "The host."),
        (("--model-path", "--model"), 5, None, "Weights."),
        (("--tensor-parallel-size",), 6, "1", "Ranks."),
    ]


def test_fields_that_a_library_makes_flags_of(one: One) -> None:
    facts = one(
        """
        import tyro
        from transformers import HfArgumentParser
        class A:
            batch_size: int = 8
        class B:
            max_len: int = field(default=9, metadata={"help": "Longest."})
        tyro.cli(A)
        HfArgumentParser((B,))
        """
    )
    assert found(facts) == [
        (("--batch-size",), 5, "8", ""),
        (("--max_len",), 7, "9", "Longest."),
    ]


def test_flags_that_must_be_given(one: One) -> None:
    facts = one(
        """
        import argparse, click
        parser = argparse.ArgumentParser()
        parser.add_argument("file")
        parser.add_argument("more", nargs="*")
        parser.add_argument("--model", required=True)
        parser.add_argument("--port", required=False)
        @click.option("--name", required=True)
        def main(name): ...
        """
    )
    assert [flag.names[0] for flag in facts.flags if flag.required] == ["file", "--model", "--name"]


def test_short_names_of_configargparse(one: One) -> None:
    facts = one(
        """
        def options(parser, seen):
            parser.add("--model", "-m", default="small", help="Which model.")
            parser.add_arg("--fast", action="store_true")
            seen.add("--model")
        """
    )
    # What a set of strings is given declares nothing.
    assert found(facts) == [(("--model", "-m"), 3, '"small"', "Which model."), (("--fast",), 4, "False", "")]


def test_the_fields_of_a_class_of_another_file(read: Read) -> None:
    files = {
        "tool/__init__.py": "",
        "tool/arguments.py": """
            from dataclasses import dataclass, field

            @dataclass
            class Arguments:
                model: str = field(metadata={"help": "The model."})
                steps: int = field(default=4, metadata={"help": "Its steps."})
                names: list = field(default_factory=list)
                fast: bool = False
            """,
        "tool/train.py": "from transformers import HfArgumentParser\nfrom tool.arguments import Arguments\n\n"
        "HfArgumentParser((Arguments,)).parse_args_into_dataclasses()\n",
        "tool/eval.py": "from transformers import HfArgumentParser\nfrom .arguments import Arguments\n\n"
        "HfArgumentParser((Arguments,)).parse_args_into_dataclasses()\n",
    }
    # Each once, though two commands take them; a default is what `field` is given.
    found = [(flag.names[0], flag.place.file, flag.default, flag.help) for flag in read(files).flags]
    assert found == [
        ("--model", "tool/arguments.py", None, "The model."),
        ("--steps", "tool/arguments.py", "4", "Its steps."),
        ("--names", "tool/arguments.py", "list", ""),
        ("--fast", "tool/arguments.py", "False", ""),
    ]
