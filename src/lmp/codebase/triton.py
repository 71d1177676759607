"""Triton kernels (and Gluon's, its lower dialect): what is compiled, what it is autotuned over, and by which key."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from lmp.codebase.evaluation import Configured, Evaluation, Imported, Unresolved
from lmp.codebase.facts import Kernel, KernelConfig, Place
from lmp.codebase.source import FUNCTIONS, Function, Source
from lmp.codebase.templates import parameters

POSITIONAL = ("num_warps", "num_stages", "num_ctas")
"""Of ``triton.Config``, after the dictionary."""
NOT_VALUES = ("kwargs", "pre_hook", "ir_override")


def kernels(source: Source, imported: Imported) -> list[Kernel]:
    """In the order of their lines."""
    if "jit" not in source.text:
        return []
    tuned = _tuned(source)
    found = [
        _kernel(source, function, tuned.get(function.name) if scope is None else None, imported)
        for function, scope in source.every_function()
        if any(is_jit(source, each) for each in function.decorator_list)
    ]
    return sorted([*found, *_made(source)], key=lambda kernel: kernel.place.line)


def is_jit(source: Source, decorator: ast.expr) -> bool:
    """``@triton.jit``, with or without arguments, under any name that it is imported by."""
    parts = source.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator).split(".")
    return parts[-1] == "jit" and ("triton" in parts or "gluon" in parts)


def _tuned(source: Source) -> dict[str, ast.expr]:
    """``tuned = triton.autotune(configs=…)(kernel)``: the autotuner by the kernel's name."""
    return {
        call.args[0].id: call.func
        for call, _ in source.all(ast.Call)
        if len(call.args) == 1 and isinstance(call.args[0], ast.Name) and _is_autotuner(source, call.func)
    }


def _kernel(source: Source, function: Function, tuned: ast.expr | None, imported: Imported) -> Kernel:
    tuner = next((each for each in function.decorator_list if _is_autotuner(source, each)), tuned)
    return Kernel(
        "triton",
        function.name,
        Place(source.file, function.lineno),
        function.end_lineno or function.lineno,
        parameters=parameters(function),
        constexprs=tuple(_constexprs(source, function)),
        autotuned=Place(source.file, tuner.lineno) if tuner is not None else None,
        key=_key(source, tuner) if tuner is not None else (),
        configs=configurations(source, tuner, imported) if tuner is not None else (),
    )


def _made(source: Source) -> Iterator[Kernel]:
    """``name = triton.jit(function)`` and ``name = triton.jit(…)(function)``."""
    for node, _ in source.all(ast.Assign):
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(node.targets[0], ast.Name)):
            continue
        if not (is_jit(source, call) or (isinstance(call.func, ast.Call) and is_jit(source, call.func))):
            continue
        if len(call.args) != 1:
            continue
        function = source.functions.get(call.args[0].id) if isinstance(call.args[0], ast.Name) else None
        yield Kernel(
            "triton",
            node.targets[0].id,
            Place(source.file, node.lineno),
            node.end_lineno or node.lineno,
            parameters=parameters(function) if function else (),
            constexprs=tuple(_constexprs(source, function)) if function else (),
        )


def _constexprs(source: Source, function: Function) -> Iterator[str]:
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.annotation is not None and "constexpr" in source.written(each.annotation):
            yield each.arg


def _is_autotuner(source: Source, decorator: ast.expr) -> bool:
    """``@triton.autotune(configs=…)`` and wrappers of it, which are called by its name."""
    return (
        isinstance(decorator, ast.Call)
        and "autotune" in source.dotted(decorator.func).rpartition(".")[2]
        and _configs_of(decorator) is not None
    )


def _configs_of(tuner: ast.Call) -> ast.expr | None:
    named = next((each.value for each in tuner.keywords if each.arg == "configs"), None)
    return named if named is not None else (tuner.args[0] if tuner.args else None)


def _key(source: Source, tuner: ast.expr) -> tuple[str, ...]:
    assert isinstance(tuner, ast.Call)
    node = next((each.value for each in tuner.keywords if each.arg == "key"), None)
    if node is None and len(tuner.args) > 1:
        node = tuner.args[1]
    if node is None:
        return ()
    if isinstance(node, ast.Name) and node.id in source.constants:
        node = source.constants[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(
            each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else source.written(each)
            for each in node.elts
        )
    return (source.written(node),)


def configurations(source: Source, tuner: ast.expr, imported: Imported) -> tuple[KernelConfig, ...]:
    """What an autotuner chooses from. A part that cannot be worked out is one configuration with its expression."""
    assert isinstance(tuner, ast.Call)
    node = _configs_of(tuner)
    assert node is not None
    evaluation = Evaluation(imported, _is_config, _config)
    return tuple(_parts(evaluation, source, node))


def _parts(evaluation: Evaluation, source: Source, node: ast.expr, depth: int = 5) -> Iterator[KernelConfig]:
    """Each element of a list for itself, so that one that hangs on the machine hides no other."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for each in elements:
                yield from _parts(evaluation, source, each.value if isinstance(each, ast.Starred) else each, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _parts(evaluation, source, left, depth)
            yield from _parts(evaluation, source, right, depth)
        case ast.Name(id=name) if depth and isinstance(source.constants.get(name), ast.List | ast.Tuple | ast.BinOp):
            yield from _parts(evaluation, source, source.constants[name], depth - 1)
        case _:
            yield from _worked_out(evaluation, source, node)


def _worked_out(evaluation: Evaluation, source: Source, node: ast.expr) -> Iterator[KernelConfig]:
    place = Place(source.file, node.lineno)
    try:
        value = evaluation.value(source, node, {})
        values = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(each, Configured) for each in values):
            raise Unresolved(source, node)
    except Unresolved as stop:
        yield KernelConfig(place, expression=source.written(node), **_stop(source, node, stop))
    except RecursionError:
        yield KernelConfig(place, expression=source.written(node), stopped="nested too deeply", stopped_at=place)
    else:
        yield from (each.config for each in values)


def _stop(source: Source, node: ast.expr, stop: Unresolved) -> dict[str, Any]:
    """Nothing where it stopped at the expression itself, which is given anyway."""
    if stop.node is node and stop.source is source:
        return {}
    written = stop.source.written(stop.node)
    if isinstance(stop.node, FUNCTIONS):
        written = f"def {stop.node.name}"
    elif stop.name and stop.name != written and stop.source.constants.get(stop.name) is stop.node:
        written = f"{stop.name} = {written}"
    return {"stopped": written, "stopped_at": Place(stop.source.file, getattr(stop.node, "lineno", 1))}


def _is_config(source: Source, node: ast.Call) -> bool:
    parts = source.dotted(node.func).split(".")
    return parts[-1] == "Config" and ("triton" in parts or len(parts) == 1)


def _config(source: Source, node: ast.Call, value: Callable[[ast.AST], Any]) -> KernelConfig:
    """A value that cannot be worked out is given as it is written; the configuration is one all the same."""
    values: dict[str, int | str] = {}

    def told(node: ast.expr) -> int | str:
        try:
            found = value(node)
        except Unresolved:
            return source.written(node)
        return found if isinstance(found, int) and not isinstance(found, bool) else str(found)

    first = next((each.value for each in node.keywords if each.arg == "kwargs"), node.args[0] if node.args else None)
    if isinstance(first, ast.Dict):
        for key, each in zip(first.keys, first.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else source.written(key) if key else "**"
            values[str(name)] = told(each)
    elif first is not None:
        try:
            given = value(first)
        except Unresolved:
            given = None
        if not isinstance(given, dict):
            given = {"kwargs": source.written(first)}
        values.update({str(key): each if isinstance(each, int) else str(each) for key, each in given.items()})
    values.update({name: told(each) for name, each in zip(POSITIONAL, node.args[1:], strict=False)})
    values.update({each.arg: told(each.value) for each in node.keywords if each.arg and each.arg not in NOT_VALUES})
    return KernelConfig(Place(source.file, node.lineno), values)
