"""Flags and arguments of command lines: argparse, click, typer, absl, fire and comparisons by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lmp.codebase.facts import Flag, Place
from lmp.codebase.source import FUNCTIONS, Function, Scope, Source
from lmp.codebase.templates import defaults, no_elsewhere, template, text_of

LONGEST_HELP = 300
CLICK = ("click.option", "click.argument", "rich_click.option", "rich_click.argument")
COMMANDS = ("click.command", "rich_click.command")
SHORT = ("add", "add_arg")
"""Names that configargparse gives to ``add_argument``."""
DECLARES = frozenset(["default", "help", "type", "action", "dest", "choices", "nargs", "required"])
TYPER = ("typer.Option", "typer.Argument", "typer.params.Option", "typer.params.Argument")


def flags(source: Source) -> list[Flag]:
    """In the order of their lines. A name that reading cannot work out is given as it is written."""
    found = [*_argparse(source), *_click(source), *_typer(source), *_absl(source), *_fire(source), *_by_hand(source)]
    return sorted(found, key=lambda each: each.place.line)


def _argparse(source: Source) -> Iterator[Flag]:
    """Every ``add_argument(name, …)``, whichever parser, group or variable it is called on, or a function of that name.

    A call that only passes names on (``parser.add_argument(*names, **settings)``) is no flag of its own.
    """
    for node, scope in source.all(ast.Call):
        func = node.func
        called = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if not node.args or isinstance(node.args[0], ast.Starred):
            continue
        if called != "add_argument" and not (called in SHORT and _declares(node)):
            continue
        if any(keyword.arg == "default" for keyword in node.keywords):
            default = written_keyword(source, node, "default")
            # It says that there is none.
            default = None if default is not None and default.rpartition(".")[2] == "SUPPRESS" else default
        else:
            default = {"store_true": "False", "store_false": "True"}.get(constant(keyword_of(node, "action")) or "")
        names = tuple(flag_name(source, each, scope) for each in node.args)
        place, told = Place(source.file, _name_line(node)), help_text(source, node, scope)
        yield Flag(names, place, "argparse", default, told, required=_is_required(node, names, default))


def _declares(node: ast.Call) -> bool:
    """``parser.add("--name", default=1)``: a set of strings takes no keywords."""
    name = constant(node.args[0])
    return isinstance(name, str) and name.startswith("-") and any(each.arg in DECLARES for each in node.keywords)


def _is_required(node: ast.Call, names: tuple[str, ...], default: str | None) -> bool:
    """``required=True``, or a positional argument that may not be left out."""
    asked = keyword_of(node, "required")
    if asked is not None:
        return is_true(asked)
    left_out = keyword_of(node, "nargs")
    positional = re.fullmatch(r"[A-Za-z]\w*", names[0]) is not None and isinstance(node.args[0], ast.Constant)
    return positional and default is None and left_out is None and keyword_of(node, "action") is None


def _click(source: Source) -> Iterator[Flag]:
    for function, scope in source.every_function():
        for node in function.decorator_list:
            if isinstance(node, ast.Call) and source.dotted(node.func) in CLICK:
                names = tuple(flag_name(source, each, scope) for each in node.args)
                default = written_keyword(source, node, "default")
                place, told = Place(source.file, _name_line(node)), help_text(source, node, scope)
                required = is_true(keyword_of(node, "required"))
                yield Flag(names, place, "click", default, told, required=required)


def _typer(source: Source) -> Iterator[Flag]:
    """Parameters whose default or annotation is an Option or Argument, and all others of a command."""
    if "typer" not in source.text:
        return
    calls = [node for node, _ in source.all(ast.Call) if source.dotted(node.func) == "typer.run"]
    run = {given.id for node in calls for given in node.args if isinstance(given, ast.Name)}
    for function, scope in source.every_function():
        given = defaults(function)
        arguments = function.args
        whole = function.name in run or any(_is_command(source, each) for each in function.decorator_list)
        for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            default = given.get(parameter.arg)
            if default is not None and _is_typer(source, default):
                assert isinstance(default, ast.Call)
                value = default.args[0] if default.args else keyword_of(default, "default")
                yield _typer_flag(source, parameter, default, default.args[1:], value, scope)
            elif (marked := _annotated(source, parameter.annotation)) is not None:
                yield _typer_flag(source, parameter, marked, marked.args, default, scope)
            elif whole and not (parameter.annotation and source.dotted(parameter.annotation) == "typer.Context"):
                name = parameter.arg if default is None else "--" + parameter.arg.replace("_", "-")
                written = None if default is None else source.written(default)
                yield Flag((name,), Place(source.file, parameter.lineno), "typer", written, required=default is None)


def _is_command(source: Source, decorator: ast.expr) -> bool:
    """``@app.command()``, but of click."""
    called = source.dotted(decorator.func) if isinstance(decorator, ast.Call) else ""
    return called.endswith(".command") and called not in COMMANDS


def _typer_flag(
    source: Source,
    parameter: ast.arg,
    marked: ast.Call,
    named: list[ast.expr],
    default: ast.expr | None,
    scope: Scope | None,
) -> Flag:
    names = tuple(flag_name(source, each, scope) for each in named)
    if not names:
        is_option = source.dotted(marked.func).endswith("Option")
        names = ("--" + parameter.arg.replace("_", "-"),) if is_option else (parameter.arg,)
    required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    written = None if required or default is None else source.written(default)
    told = help_text(source, marked, scope)
    return Flag(names, Place(source.file, parameter.lineno), "typer", written, told, required=required)


def _annotated(source: Source, annotation: ast.expr | None) -> ast.Call | None:
    """The Option or Argument of ``Annotated[T, typer.Option(…)]``."""
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Tuple):
        return None
    if source.dotted(annotation.value).rpartition(".")[2] != "Annotated":
        return None
    for each in annotation.slice.elts[1:]:
        if _is_typer(source, each):
            assert isinstance(each, ast.Call)
            return each
    return None


def _is_typer(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and source.dotted(node.func) in TYPER


def _absl(source: Source) -> Iterator[Flag]:
    """``flags.DEFINE_integer(name, default, help)``."""
    for node, scope in source.all(ast.Call):
        if not (isinstance(node.func, ast.Attribute) and node.func.attr.startswith("DEFINE_") and node.args):
            continue
        if source.dotted(node.func.value) not in ("absl.flags", "flags"):
            continue
        name = text_of(template(source, node.args[0], scope, no_elsewhere))
        default = node.args[1] if len(node.args) > 1 else keyword_of(node, "default")
        told = text_of(template(source, node.args[2], scope, no_elsewhere)) if len(node.args) > 2 else None
        yield Flag(
            (f"--{name}" if name is not None else source.written(node.args[0]),),
            Place(source.file, _name_line(node)),
            "absl",
            source.written(default) if default is not None else None,
            shortened(told) if told is not None else help_text(source, node, scope),
        )


def _fire(source: Source) -> Iterator[Flag]:
    """``fire.Fire(function)``: its parameters are the flags; of a class those of its ``__init__``."""
    for node, _ in source.all(ast.Call):
        if source.dotted(node.func) != "fire.Fire" or not node.args or not isinstance(node.args[0], ast.Name):
            continue
        for function in _fired(source, node.args[0].id):
            given = defaults(function)
            arguments = function.args
            for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if parameter.arg not in ("self", "cls"):
                    default = given.get(parameter.arg)
                    yield Flag(
                        (f"--{parameter.arg}",),
                        Place(source.file, parameter.lineno),
                        "fire",
                        source.written(default) if default is not None else None,
                    )


def _by_hand(source: Source) -> Iterator[Flag]:
    """``arg == "--name"`` in a file that reads ``sys.argv``, each name once."""
    if "sys.argv" not in source.text or not any(
        isinstance(node, ast.Attribute) and source.dotted(node) == "sys.argv" for node in ast.walk(source.tree)
    ):
        return
    seen: set[str] = set()
    for node, _ in source.all(ast.Compare):
        name = (constant(node.comparators[0]) or "") if isinstance(node.ops[0], ast.Eq) else ""
        if name not in seen and re.fullmatch(r"--[a-z][\w-]*", name):
            seen.add(name)
            yield Flag((name,), Place(source.file, node.lineno), "argv", None)


def _fired(source: Source, name: str) -> list[Function]:
    if name in source.functions:
        return [source.functions[name]]
    classes = [node for node, scope in source.all(ast.ClassDef) if scope is None and node.name == name]
    return [
        each for node in classes[:1] for each in node.body if isinstance(each, FUNCTIONS) and each.name == "__init__"
    ]


def flag_name(source: Source, node: ast.expr, scope: Scope | None) -> str:
    found = text_of(template(source, node, scope, no_elsewhere))
    return found if found is not None else source.written(node)


def _name_line(node: ast.Call) -> int:
    """Where the name stands, which may be below the call's own line."""
    return node.args[0].lineno if node.args else node.lineno


def keyword_of(node: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in node.keywords if each.arg == name), None)


def written_keyword(source: Source, node: ast.Call, name: str) -> str | None:
    value = keyword_of(node, name)
    return None if value is None else source.written(value)


def constant(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def help_text(source: Source, node: ast.Call, scope: Scope | None) -> str:
    value = keyword_of(node, "help")
    if value is None:
        return ""
    found = text_of(template(source, value, scope, no_elsewhere))
    return shortened(found if found is not None else source.written(value))


def shortened(text: str) -> str:
    """On one line, cut where it is long, which is shown."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_HELP else text[: LONGEST_HELP - 1].rstrip() + "…"
