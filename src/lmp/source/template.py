"""Templates of ``--inputs`` and ``--init`` for a user's own class, written from its source alone.

A size is filled in where the source has it. What is left to the user is in capitals: ``SIZE``. Imports no torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lmp.source.own_file import OwnClass
from lmp.source.parsed import FunctionNode, parse

SIZE = "SIZE"

LAYERS = {
    "Linear": "float[batch_size, seq_len, {}]",
    "LayerNorm": "float[batch_size, seq_len, {}]",
    "RMSNorm": "float[batch_size, seq_len, {}]",
    "Embedding": "int[batch_size, seq_len]",
    "Conv1d": "float[batch_size, {}, LENGTH]",
    "Conv2d": "float[batch_size, {}, HEIGHT, WIDTH]",
}
"""Layer of torch.nn -> the usual input of it; the place is that of its first argument."""

WIDTHS = ("hidden_size", "dim", "d_model", "n_embd", "embed_dim", "hidden_dim", "model_dim", "in_features", "width")
"""Names that constructors give to the size of a token's vector, the most usual first."""

INDICES = ("ids", "idx", "index", "indices", "tokens", "labels", "targets", "positions")
"""Last words of arguments that hold integers."""

FILLED_IN = ("SIZE", "VALUE", "LENGTH", "HEIGHT", "WIDTH")
"""Words of a template that the user replaces."""


@dataclass(frozen=True)
class Template:
    """The texts of both options; an empty text needs no option."""

    inputs: str
    init: str

    @property
    def open(self) -> tuple[str, ...]:
        """The words that the user replaces."""
        both = f"{self.inputs} {self.init}".replace(",", " ").replace("]", " ").replace("[", " ").replace("=", " ")
        return tuple(word for word in FILLED_IN if word in both.split())


def template_of(own: OwnClass) -> Template:
    """The template for a class: its required arguments, and the constructor's sizes that its inputs name."""
    init = _Constructor(own)
    inputs = ", ".join(_input(argument, own, init) for argument in _required(own.forward))
    return Template(inputs, ", ".join(init.arguments(inputs)))


def _required(function: FunctionNode) -> list[ast.arg]:
    """The arguments without a default, without ``self``."""
    positional = [*function.args.posonlyargs, *function.args.args][1:]
    without = positional[: max(0, len(positional) - len(function.args.defaults))]
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [*without, *(argument for argument, default in named if default is None)]


class _Constructor:
    """The arguments of a constructor, and the layers that it assigns to ``self``."""

    def __init__(self, own: OwnClass) -> None:
        init = own.init
        self.objects = {} if init is None else _objects(init, own)
        self.required = [] if init is None else _required(init)
        self.defaults = {} if init is None else dict(_whole_defaults(init))
        self.layers = {} if init is None else dict(_layers(init))

    @property
    def sizes(self) -> list[str]:
        return [*(a.arg for a in self.required if self._is_size(a)), *self.defaults]

    def _is_size(self, argument: ast.arg) -> bool:
        return _annotation(argument) in ("", "int") and argument.arg not in self.objects

    def width(self) -> str:
        """The argument that is named as the size of a token's vector; SIZE if there is none."""
        return next((name for name in WIDTHS if name in self.sizes), SIZE)

    def arguments(self, inputs: str) -> Iterator[str]:
        """The required arguments, and those with a default that the inputs name."""
        for argument in self.required:
            yield f"{argument.arg}={self.objects.get(argument.arg) or _value(argument)}"
        words = inputs.replace(",", " ").replace("]", " ").split()
        yield from (f"{name}={value}" for name, value in self.defaults.items() if name in words)


def _objects(init: FunctionNode, own: OwnClass) -> dict[str, str]:
    """The arguments without annotation whose attributes are read, with a value: ``Config()``, as another class says."""
    attributes = (node.value for node in ast.walk(init) if isinstance(node, ast.Attribute))
    read = {value.id for value in attributes if isinstance(value, ast.Name)}
    said = {
        argument.arg: _value(argument)
        for node in ast.walk(parse(own.source.path).tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for argument in node.args.args
        if argument.annotation is not None
    }
    bare = [argument.arg for argument in _required(init) if argument.annotation is None]
    return {name: said.get(name, "VALUE") for name in bare if name in read}


def _whole_defaults(function: FunctionNode) -> Iterator[tuple[str, int]]:
    positional = [*function.args.posonlyargs, *function.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(reversed(positional), reversed(function.args.defaults), strict=False),
    ]
    pairs = [*reversed(pairs), *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)]
    for argument, default in pairs:
        if isinstance(default, ast.Constant) and type(default.value) is int and default.value > 0:
            yield argument.arg, default.value


def _layers(init: FunctionNode) -> Iterator[tuple[str, ast.Call]]:
    """``self.NAME = LAYER(...)``: the name with the call, for the layers of the table."""
    for node in ast.walk(init):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as call):
                if ast.unparse(call.func).rpartition(".")[2] in LAYERS:
                    yield name, call


def _input(argument: ast.arg, own: OwnClass, init: _Constructor) -> str:
    name, kind = argument.arg, _annotation(argument)
    if kind in ("int", "bool", "float", "str"):
        return f"{name}={_value(argument)}"
    layer = _first_layer(name, own.forward, init.layers)
    if layer is not None:
        written = LAYERS[ast.unparse(layer.func).rpartition(".")[2]]
        return f"{name}: {written.format(_first_size(layer, init.sizes))}"
    if name.rpartition("_")[2] in INDICES:
        return f"{name}: int[batch_size, seq_len]"
    if "mask" in name:
        return f"{name}: bool[batch_size, 1, seq_len, seq_len]"
    return f"{name}: float[batch_size, seq_len, {init.width()}]"


def _first_layer(name: str, forward: FunctionNode, layers: Mapping[str, ast.Call]) -> ast.Call | None:
    """The layer that is called with the argument itself, the first in the source; None if there is none."""
    calls = [node for node in ast.walk(forward) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="self"), attr=attribute), args=[ast.Name(id=given), *_]
            ) if given == name and attribute in layers:
                return layers[attribute]
    return None


def _first_size(layer: ast.Call, sizes: list[str]) -> str:
    """The first argument of the layer, if it is a number or an argument of the constructor; else SIZE."""
    first = layer.args[0] if layer.args else next((keyword.value for keyword in layer.keywords), None)
    match first:
        case ast.Constant(value=int(size)):
            return str(size)
        case ast.Name(id=name) if name in sizes:
            return name
    return SIZE


def _annotation(argument: ast.arg) -> str:
    return "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")


def _value(argument: ast.arg) -> str:
    """A value of the argument's kind: ``Config()`` for an object, a word to replace for a number."""
    kind = _annotation(argument)
    if kind in ("", "int", "float"):
        return SIZE if kind != "float" else "VALUE"
    if kind == "bool":
        return "true"
    return f"{kind}()" if kind.replace(".", "").isidentifier() and kind not in ("str", "Any") else "VALUE"
