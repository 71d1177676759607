"""Reads one parsed Python file into the records of the call graph, in one walk over its statements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from lmp.codebase.graph import hazards, slips
from lmp.codebase.graph.records import (
    CLASS,
    ENTERED,
    IMPORTED,
    ITEM,
    MANY,
    SUPER,
    Applied,
    Call,
    Chain,
    Chains,
    Class,
    Field,
    FileGraph,
    Function,
    Held,
    Made,
    Write,
    at,
    pick,
    settle,
)
from lmp.codebase.modules import absolute
from lmp.codebase.source import Source, children

MAKERS = frozenset(
    [
        "zeros",
        "empty",
        "full",
        "ones",
        "zeros_like",
        "empty_like",
        "full_like",
        "ones_like",
        "empty_strided",
        "new_zeros",
        "new_empty",
        "new_full",
        "Buffer",
        "ShapeDtypeStruct",
    ]
)
"""Functions of array libraries that make a tensor of a given shape."""
UPDATES = frozenset(["dynamic_update_slice", "dynamic_update_slice_in_dim", "dynamic_update_index_in_dim"])
"""Of JAX: they are given the tensor."""
SETTINGS_FILE = re.compile(r"\.(?:ya?ml|json|toml|ini)$")
SETTINGS = re.compile(r"(?i)(?:^|_)(?:config|cfg|settings|options|opts)(?:_map|_dict)?$|(?:^|_)kwargs$")
SETTINGS_NAME = re.compile(r"(?i)(?:config|settings)_?(?:name|file|path)?$")
"""Parameters that take a file of settings."""
FILLERS = frozenset(["copy_", "index_copy_", "index_put_", "scatter_", "fill_", "zero_"]) | UPDATES
"""Functions of array libraries that write into a tensor that is there."""
COLLECTIONS = frozenset(
    [
        "ModuleList",
        "Sequential",
        "list",
        "tuple",
        "set",
        "deque",
        "ModuleDict",
        "dict",
        "sorted",
        "reversed",
        "iter",
        "frozenset",
    ]
)
KEYED = frozenset(["dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "DefaultDict"])
TUPLES = frozenset(["tuple", "Tuple"])
"""What annotations call collections whose elements are found by a key, or by their place."""
TAKES_ONE = frozenset(["next", "min", "max"])
"""Functions of the language that give one of the elements, or of the arguments."""
PUTS = frozenset(["append", "appendleft", "add", "put", "insert", "extend"])
LOOPS = frozenset(["while_loop", "fori_loop"])
"""Functions of JAX that call one that they are given again and again."""
LONGEST_CHAIN = 12
MOST_CHAINS, MOST_ENTRIES = 8, 64
"""Values of one expression that are kept, and of a dictionary: a registry has many."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def file_graph(source: Source) -> FileGraph:
    """Raises RecursionError where expressions nest too deeply."""
    found = FileGraph(source.file, imports=source.aliases, stars=_stars(source), imported_at=_imported_at(source))
    found.packages = _packages(source)
    body = Function("<module>", "", source.file, 1, source.text.count("\n") + 1)
    found.body = body
    found.functions.append(body)
    reader = _Reader(source, found)
    reader.block(source.tree.body, body, None, 0)
    slips.of_import(source, body, reader.absent)
    found.names = body.locals
    for function in found.functions:
        settle(function)
    return found


def _imported_at(source: Source) -> dict[str, int]:
    tried = [each for each, _ in source.all(ast.Try)]
    # What only a type checker reads is never imported.
    typed = [each for each, _ in source.all(ast.If) if source.written(each.test).endswith("TYPE_CHECKING")]
    spans = [(each.lineno, each.end_lineno or each.lineno) for each in (*tried, *typed)]
    return {
        alias.asname or alias.name: alias.lineno
        for node, _ in source.all(ast.ImportFrom)
        if not any(first <= node.lineno <= last for first, last in spans)
        for alias in node.names
    }


def _packages(source: Source) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in source.tree.body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            found.setdefault(name.partition(".")[0], node.lineno)
    return found


def _stars(source: Source) -> list[str]:
    return [
        absolute(node.module or "", node.level, source.file)
        for node, _ in source.all(ast.ImportFrom)
        if any(alias.name == "*" for alias in node.names)
    ]


class _Reader:
    def __init__(self, source: Source, found: FileGraph) -> None:
        self.source, self.found = source, found
        self.absent = slips.missing(source)

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, body: Iterable[ast.stmt], inside: Function, owner: Class | None, loop: int) -> None:
        for statement in body:
            self.statement(statement, inside, owner, loop)

    def statement(self, node: ast.stmt, inside: Function, owner: Class | None, loop: int) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node, inside, owner)
            case ast.ClassDef():
                self.a_class(node, inside, owner)
            case ast.For() | ast.AsyncFor():
                self.expression(node.iter, inside, loop)
                self.bind(node.target, self.items(node.iter), inside, owner)
                hazards.of_loop(self.source, node, inside)
                inside.loops += 1
                self.block(node.body, inside, owner, loop + 1)
                self.block(node.orelse, inside, owner, loop)
            case ast.While():
                inside.loops += 1
                inside.endless = True
                hazards.of_while(self.source, node, inside)
                self.expression(node.test, inside, loop + 1)
                self.block(node.body, inside, owner, loop + 1)
                self.block(node.orelse, inside, owner, loop)
            case ast.Assert():
                hazards.of_assert(self.source, node, inside)
                self.expression(node.test, inside, loop)
            case ast.If():
                hazards.of_if(self.source, node, inside)
                if inside is self.found.body and is_main(node.test):
                    self.found.main = node.lineno
                self.expression(node.test, inside, loop)
                test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
                if isinstance(test, ast.Call) and inside.calls:
                    for call in inside.calls[-4:]:
                        call.tested |= call.callee == self.chains(test.func)
                self.block(node.body, inside, owner, loop)
                self.block(node.orelse, inside, owner, loop)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expression(item.context_expr, inside, loop)
                    if item.optional_vars is not None:
                        entered = [(*chain, ENTERED) for chain in self.chains(item.context_expr)]
                        self.bind(item.optional_vars, entered, inside, owner)
                self.block(node.body, inside, owner, loop)
            case ast.Try() | ast.TryStar():
                self.block(node.body, inside, owner, loop)
                for handler in node.handlers:
                    hazards.of_handler(self.source, node.body, handler, inside)
                    self.block(handler.body, inside, owner, loop)
                self.block(node.orelse, inside, owner, loop)
                self.block(node.finalbody, inside, owner, loop)
            case ast.Match():
                self.expression(node.subject, inside, loop)
                for case in node.cases:
                    self.block(case.body, inside, owner, loop)
            case ast.Assign():
                self.expression(node.value, inside, loop)
                if inside is self.found.body:
                    # ``CONFIG_FILE = "config.json"``, which is put after a folder elsewhere.
                    self.opens(node.value)
                for target in node.targets:
                    self.assign(target, node.value, inside, owner, loop)
            case ast.AnnAssign():
                self.annotated(node, inside, owner, loop)
            case ast.AugAssign():
                self.expression(node.value, inside, loop)
                self.expression(node.target, inside, loop)
                self.written_to(node.target, node.value, inside)
            case ast.ImportFrom() if inside is not self.found.body:
                base = absolute(node.module or "", node.level, self.source.file)
                for alias in node.names:
                    inside.imports[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name
            case ast.Global() if self.found.body is not None:
                for name in node.names:
                    # What it assigns is the module's.
                    inside.locals[name] = self.found.body.locals.setdefault(name, [])
            case ast.Return():
                if node.value is not None:
                    self.expression(node.value, inside, loop)
                    inside.returns += self.chains(node.value)
            case _:
                for child in children(node):
                    if isinstance(child, ast.expr):
                        self.expression(child, inside, loop)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, inside: Function, owner: Class | None) -> None:
        decorators = tuple(chain for each in node.decorator_list for chain in self.chains(each))
        if any(chain[-1] == "overload" for chain in decorators):
            # It only tells a type checker how the function of its name, which follows, may be called.
            return
        outer = None if inside is self.found.body else inside
        around = owner.qualname if owner is not None else inside.qualname
        made = Function(
            node.name,
            f"{around}.{node.name}" if around else node.name,
            self.source.file,
            node.lineno,
            node.end_lineno or node.lineno,
            owner,
            outer,
        )
        made.decorators = decorators
        made.abstract = _says_nothing(node)
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            made.params[argument.arg] = self.annotation(argument.annotation)
            if argument.lineno != node.lineno:
                made.lines[argument.arg] = argument.lineno
        positional = [*arguments.posonlyargs, *arguments.args]
        late = positional[len(positional) - len(arguments.defaults) :]
        for argument, default in (
            *zip(late, arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ):
            self.names_settings(default, argument.arg)
            if chains := self.chains(default):
                made.defaults[argument.arg] = chains
        for argument in filter(None, (arguments.vararg, arguments.kwarg)):
            made.params[f"*{argument.arg}"] = ()
        made.annotated = self.annotation(node.returns)
        made.is_async = isinstance(node, ast.AsyncFunctionDef)
        made.arguments = tuple(_arguments(self.source, arguments))
        hazards.of_function(self.source, node, made)
        self.found.functions.append(made)
        if owner is not None:
            # Of overloads the last is the one that runs; a property's setter is none.
            if not any(chain[-1] in ("setter", "deleter") for chain in made.decorators):
                owner.methods[node.name] = made
        elif outer is not None:
            outer.inner[node.name] = made
        else:
            self.found.top.setdefault(node.name, made)
        for each in node.decorator_list:
            self.expression(each, inside, 0)
        self.block(node.body, made, None, 0)
        own = hazards.own_nodes(node)
        for of in (hazards.of_read_back, hazards.of_no_branch, hazards.of_late_check, hazards.of_global):
            of(self.source, own, made)
        slips.of_slips(self.source, own, made, self.absent)
        made.hazards = hazards.settled(node, made)
        made.hazards.sort(key=lambda each: each.line)

    def a_class(self, node: ast.ClassDef, inside: Function, owner: Class | None) -> None:
        within = None if inside is self.found.body else inside
        around = owner.qualname if owner is not None else inside.qualname
        made = Class(
            node.name,
            f"{around}.{node.name}" if around else node.name,
            self.source.file,
            node.lineno,
            node.end_lineno or node.lineno,
            owner,
            within,
        )
        made.bases = tuple(chain for each in node.bases for chain in self.chains(_unsubscripted(each)))
        made.decorators = tuple(chain for each in node.decorator_list for chain in self.chains(each))
        self.found.every_class.append(made)
        if owner is not None:
            owner.classes[node.name] = made
        elif within is not None:
            within.classes[node.name] = made
        else:
            self.found.classes[node.name] = made
        self.block(node.body, inside, made, 0)

    def annotated(self, node: ast.AnnAssign, inside: Function, owner: Class | None, loop: int) -> None:
        kind = self.annotation(node.annotation)
        if owner is not None and isinstance(node.target, ast.Name):
            default = self.source.written(node.value) if node.value is not None else None
            value = self.chains(node.value) if node.value is not None else ()
            written = self.source.written(node.annotation)
            owner.fields.append(Field(node.target.id, node.lineno, written, kind, default, value))
            owner.lines.setdefault(node.target.id, node.lineno)
            self.keep(owner, node.target.id, None, [*map(_object, kind)], node.lineno)
        else:
            name = _plain(node.target)
            typed = [*map(_object, kind)]
            if name and len(name) == 1:
                inside.locals.setdefault(name[0], []).extend(typed)
            elif name and name[0] == "self" and len(name) == 2 and (holder := _holder(inside)) is not None:
                self.keep(holder, name[1], inside, typed, node.lineno)
        if node.value is not None:
            self.expression(node.value, inside, loop)
            self.assign(node.target, node.value, inside, owner, loop)

    def assign(self, target: ast.expr, value: ast.expr, inside: Function, owner: Class | None, loop: int) -> None:
        hazards.of_value(self.source, value, inside)
        hazards.of_assign(self.source, target, value, inside)
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, other in zip_longest(target.elts, value.elts):
                if one is not None and other is not None:
                    self.assign(one, other, inside, owner, loop)
            return
        if isinstance(target, ast.Subscript):
            self.expression(target, inside, loop)
        self.written_to(target, value, inside)
        self.bind(target, self.chains(value), inside, owner)
        if inside is self.found.body and owner is None:
            self.tried(target, value, inside)
        self.makes(target, value, inside)

    def tried(self, target: ast.expr, value: ast.expr, body: Function) -> None:
        """``flash, found = load_if_there("flash")``: a name that a call with the same name as a text gives is the
        package."""
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        text = value.args[0] if isinstance(value, ast.Call) and value.args else None
        if isinstance(first, ast.Name) and isinstance(text, ast.Constant) and text.value == first.id:
            self.found.imports[first.id] = first.id
            body.locals[first.id] = []

    def bind(self, target: ast.expr, chains: Iterable[Chain], inside: Function, owner: Class | None) -> None:
        chains = list(chains)
        match target:
            case ast.Name():
                if owner is not None:
                    self.keep(owner, target.id, None, chains, target.lineno)
                else:
                    inside.locals.setdefault(target.id, []).extend(chains)
                    if inside is self.found.body:
                        inside.lines.setdefault(target.id, target.lineno)
            case ast.Tuple() | ast.List():
                for number, each in enumerate(target.elts):
                    self.bind(each, [(*chain, pick(number)) for chain in chains], inside, owner)
            case ast.Starred():
                self.bind(target.value, chains, inside, owner)
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                holder = _holder(inside)
                if holder is not None:
                    self.keep(holder, target.attr, inside, chains, target.lineno)
            case ast.Attribute(value=ast.Name(id=name)) if chains and self.is_global(name, inside):
                self.found.held.append(Held(inside, name, target.attr, tuple(chains), target.lineno))
            case ast.Attribute() if chains and not target.attr.startswith("__"):
                self.found.put.setdefault(target.attr, []).append((inside, self.chains(target.value), tuple(chains)))
            case ast.Subscript():
                self.fill(target.value, chains, inside, _key(target.slice))

    def fill(self, collection: ast.expr, chains: Iterable[Chain], inside: Function, key: str = "") -> None:
        """What a registry is given under a key, or a collection by a call, is one of its elements."""
        name = _plain(collection)
        elements = [(*chain, at(key)) for chain in chains]
        if len(name) == 1:
            if self.is_global(name[0], inside):
                self.found.filled.setdefault(name[0], []).extend((inside, each) for each in elements)
            else:
                inside.locals.setdefault(name[0], []).extend(elements)
        elif len(name) == 2 and name[0] in ("self", "cls") and (holder := _holder(inside)) is not None:
            self.keep(holder, name[1], inside, elements, collection.lineno)
        elif len(name) == 2 and elements and self.is_global(name[0], inside):
            self.found.held.append(Held(inside, name[0], name[1], tuple(elements), collection.lineno))

    def is_global(self, name: str, inside: Function) -> bool:
        """Whether a name in a function is the module's."""
        assert self.found.body is not None
        each: Function | None = inside
        while each is not None and each is not self.found.body:
            if {name, f"*{name}"} & each.params.keys() or (
                name in each.locals and each.locals[name] is not self.found.body.locals.get(name)
            ):
                return False
            each = each.outer
        return inside is not self.found.body

    @staticmethod
    def keep(owner: Class, name: str, inside: Function | None, chains: Iterable[Chain], line: int) -> None:
        owner.attributes.setdefault(name, []).extend((inside, chain) for chain in chains)
        declared = owner.lines.get(name, 0)
        if not declared or (inside is not None and inside.name == "__init__" and declared < inside.line):
            # What the body of a class declares is set by the constructor.
            owner.lines[name] = line

    def written_to(self, target: ast.expr, value: ast.expr, inside: Function) -> None:
        if isinstance(target, ast.Subscript):
            inside.writes.append(Write(target.lineno, self.chains(target.value), self.chains(value)))
            inside.keys |= {_key(target.slice)} - {""}
        elif isinstance(target, ast.Attribute) and _plain(target)[:-1] != ["self"]:
            inside.sets += self.chains(target)
            if target.attr == "forward":
                inside.replaces += self.chains(value)

    def makes(self, target: ast.expr, value: ast.expr, inside: Function) -> None:
        """A tensor, or a collection of tensors, that is given a name."""
        name = _plain(target)
        if not name or len(name) > 2:
            return
        for node in _shallow(value):
            if isinstance(node, ast.Call):
                by = self.source.dotted(node.func)
                last = by.rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
                if last in MAKERS:
                    on_self = name[0] == "self" and len(name) == 2
                    inside.made.append(Made(node.lineno, name[-1], by or last, on_self))
                    return

    # -- expressions ---------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr, inside: Function, loop: int) -> None:
        """Every call, name and string of an expression."""
        waiting: list[tuple[ast.AST, int]] = [(node, loop)]
        while waiting:
            each, depth = waiting.pop()
            kind = type(each)
            if kind is ast.Name:
                inside.reads.add(each.id)  # type: ignore[attr-defined]
                continue
            if kind is ast.Constant:
                continue
            if isinstance(each, ast.Attribute):
                inside.reads.add(each.attr)
                self.attribute(each, inside)
            elif isinstance(each, ast.Call):
                self.call(each, inside, depth)
            elif isinstance(each, ast.Subscript):
                self.asks(each.value, each.slice, None)
                hazards.of_subscript(self.source, each, inside)
            elif isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.In | ast.NotIn):
                self.asks(each.comparators[0], each.left, None)
            elif isinstance(each, ast.Dict):
                inside.keys |= {_key(key) for key in each.keys} - {""}
            elif isinstance(each, ast.comprehension):
                self.bind(each.target, self.items(each.iter), inside, None)
            elif isinstance(each, COMPREHENSIONS):
                depth += 1
            elif isinstance(each, ast.BinOp):
                inside.numeric += isinstance(each.op, ast.MatMult)
                if isinstance(each.op, ast.Div):
                    self.opens(each.right)
            elif isinstance(each, ast.Yield):
                inside.returns += ((*chain, MANY) for chain in self.chains(each.value))
            elif isinstance(each, ast.YieldFrom):
                inside.returns += self.chains(each.value)
            elif isinstance(each, ast.NamedExpr):
                self.bind(each.target, self.chains(each.value), inside, None)
            waiting += [(child, depth) for child in children(each)]

    def attribute(self, node: ast.Attribute, inside: Function) -> None:
        if node.attr == "total_memory":
            hazards.of_memory(self.source, node, inside)
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name) and node.value.id == "self":
            inside.gets[node.attr] = min(node.lineno, inside.gets.get(node.attr, node.lineno))

    def opens(self, name: ast.expr) -> None:
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value:
            self.found.opens.append((name.value, name.lineno))

    def asks(self, of: ast.expr, key: ast.expr, default: ast.expr | None) -> None:
        """Keeps what is asked of settings by a literal: ``config["length"]``, ``self.options.get("length", 8)``."""
        name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and SETTINGS.search(name):
            written = self.source.written(default) if default is not None else ""
            self.found.keys.append((name, key.value, written, key.lineno))

    def names_settings(self, given: ast.expr | None, by: str) -> None:
        """Keeps a literal that names a file of settings, with its ending or without: ``config_name="serve"``."""
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            name = given.value.rpartition("/")[2]
            if SETTINGS_FILE.search(name) or (name and SETTINGS_NAME.search(by)):
                self.found.settings.add(SETTINGS_FILE.sub("", name))

    def call(self, node: ast.Call, inside: Function, loop: int) -> None:
        hazards.of_call(self.source, node, inside)
        callee = self.chains(node.func)
        named = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "call" and isinstance(named, str):
            # ``worker.call("run", …)`` is a method by its name.
            callee = (*callee, *((*chain, named) for chain in self.chains(node.func.value) if named.isidentifier()))
        if not callee and isinstance(node.func, ast.Attribute):
            callee = (("", node.func.attr),)
        text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        # ``session.post(address + "/generate")`` asks for a path of a server.
        text = next((end for each in node.args if (end := _ending(each)).startswith("/")), text)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "join" and len(node.args) > 1:
            self.opens(node.args[-1])
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
            self.asks(node.func.value, node.args[0], node.args[1] if len(node.args) > 1 else None)
        for each in node.args:
            self.names_settings(each, "")
        for keyword in node.keywords:
            self.names_settings(keyword.value, keyword.arg or "")
        made = Call(
            getattr(node.func, "end_lineno", None) or node.lineno,
            callee,
            tuple(self.chains(each) for each in node.args),
            tuple((each.arg or "**", self.chains(each.value)) for each in node.keywords),
            loop,
            self.source.written(node.func)[:120],
            text if isinstance(text, str) else "",
            spread=any(isinstance(each, ast.Starred) for each in node.args),
        )
        inside.calls.append(made)
        name = made.name
        match node.args:
            case [_, ast.Constant(value="forward"), value] if name in ("setattr", "__setattr__"):
                inside.replaces += self.chains(value)
        if name == "isinstance" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            kinds = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            given = [(*chain, Applied()) for each in kinds for chain in self.chains(each)]
            inside.tested.setdefault(node.args[0].id, []).extend(given)
        if name in LOOPS:
            made.loop += 1
            inside.loops += 1
            inside.endless |= name == "while_loop"
        if name in FILLERS and isinstance(node.func, ast.Attribute):
            target = node.args[0] if name in UPDATES and node.args else node.func.value
            inside.writes.append(Write(made.line, self.chains(target), made.args[-1] if made.args else ()))
        elif name in ("set", "add") and any("at" in chain for chain in callee):
            # ``x.at[i].set(v)`` of JAX gives a new array, which is how an index write is said there.
            cut = tuple(chain[: chain.index("at")] for chain in callee if "at" in chain)
            inside.writes.append(Write(made.line, cut, made.args[-1] if made.args else ()))
        elif name in PUTS and made.args and isinstance(node.func, ast.Attribute):
            # A collection is known by what is put into it.
            self.fill(node.func.value, made.args[-1], inside)
        elif name == "update" and len(made.args) == 1 and isinstance(node.func, ast.Attribute):
            # What is put in is a collection itself.
            self.fill(node.func.value, [(*chain, ITEM) for chain in made.args[0]], inside)
        elif name == "setattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant):
            attribute = ast.Attribute(node.args[0], str(node.args[1].value), ast.Store(), lineno=node.lineno)
            self.bind(attribute, made.args[2], inside, None)

    def items(self, node: ast.expr) -> list[Chain]:
        """What a loop over an expression gives."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("enumerate", "zip"):
                first = int(node.func.id == "enumerate")
                numbered = enumerate(node.args, first)
                return [(*chain, at(number)) for number, each in numbered for chain in self.items(each)]
            if node.func.id in ("range",):
                return []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            if node.func.attr == "values":
                return [(*chain, ITEM) for chain in self.chains(node.func.value)]
            if node.func.attr == "items":
                return [(*chain, ITEM, at(1)) for chain in self.chains(node.func.value)]
        return [(*chain, ITEM) for chain in self.chains(node)]

    def chains(self, node: ast.expr | None) -> Chains:
        found = [chain for chain in self._chains(node) if len(chain) <= LONGEST_CHAIN]
        return tuple(dict.fromkeys(found[: MOST_ENTRIES if isinstance(node, ast.Dict) else MOST_CHAINS]))

    def _chains(self, node: ast.expr | None) -> Iterator[Chain]:
        match node:
            case ast.Name():
                yield (node.id,)
            case ast.Attribute():
                yield from ((*chain, node.attr) for chain in self._chains(node.value))
            case ast.Call():
                yield from self._called(node)
            case ast.Subscript():
                key = _key(node.slice) or _number(node.slice)
                yield from ((*chain, pick(key)) for chain in self._chains(node.value))
            case ast.IfExp():
                yield from self._chains(node.body)
                yield from self._chains(node.orelse)
            case ast.BoolOp():
                for each in node.values:
                    yield from self._chains(each)
            case ast.Await() | ast.NamedExpr() | ast.Starred() | ast.YieldFrom():
                yield from self._chains(node.value)
            case ast.Tuple():
                for number, each in enumerate(node.elts[:MOST_CHAINS]):
                    yield from ((*chain, at(number)) for chain in self._chains(each))
            case ast.List() | ast.Set():
                for each in node.elts[:MOST_CHAINS]:
                    yield from ((*chain, MANY) for chain in self._chains(each))
            case ast.Dict():
                for name, each in list(zip(node.keys, node.values, strict=True))[:MOST_ENTRIES]:
                    yield from ((*chain, at(_key(name))) for chain in self._chains(each))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                yield from ((*chain, MANY) for chain in self._chains(node.elt))
            case ast.DictComp():
                yield from ((*chain, MANY) for chain in self._chains(node.value))
            case ast.JoinedStr():
                for each in node.values:
                    if isinstance(each, ast.FormattedValue):
                        yield from self._chains(each.value)
            case ast.Lambda():
                yield from ((*chain[:-1],) for chain in self._chains(node.body) if isinstance(chain[-1], Applied))

    def _called(self, node: ast.Call) -> Iterator[Chain]:
        func = node.func
        if isinstance(func, ast.Name):
            if func.id == "super":
                yield (SUPER,)
                return
            if func.id == "getattr" and len(node.args) >= 2:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield from ((*chain, name.value) for chain in self._chains(node.args[0]))
                elif beginning := _beginning(name):
                    yield from ((*chain, f"{beginning}*") for chain in self._chains(node.args[0]))
                return
        last = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        if last in COLLECTIONS and node.args:
            for each in node.args[:32]:
                for chain in self._chains(each):
                    yield chain if str(chain[-1])[:1] == MANY else (*chain, MANY)
                    if isinstance(each, ast.Name | ast.Attribute):
                        # Of a collection that has a name, its elements.
                        yield (*chain, ITEM, MANY)
            return
        first = self.chains(node.args[0]) if node.args else ()
        if last in TAKES_ONE and isinstance(func, ast.Name):
            one = len(node.args) == 1 or last == "next"
            yield from (
                ((*chain, ITEM) for chain in first) if one else (c for each in node.args for c in self._chains(each))
            )
            return
        if last == "partial" and first:
            yield from first
            return
        if last == "import_module" and node.args:
            yield from self._by_import(node)
            return
        if last == "__get__" and isinstance(func, ast.Attribute):
            # A function that is bound to an object is called as what it is.
            yield from self._chains(func.value)
            return
        named: tuple[tuple[str, Chains], ...] = ()
        if last == "SimpleNamespace":
            named = tuple((each.arg, self.chains(each.value)) for each in node.keywords if each.arg)
        yield from ((*chain, Applied(first, named)) for chain in self._chains(func))

    def _by_import(self, node: ast.Call) -> Iterator[Chain]:
        """``import_module("a.b")``, ``import_module(f".{name}", "a")``: at least one name must be known."""
        name = re.sub(r"\*+", "*", _pattern(node.args[0]))
        if name.startswith("."):
            around = node.args[1] if len(node.args) > 1 else next((each.value for each in node.keywords), None)
            package = around.value if isinstance(around, ast.Constant) and isinstance(around.value, str) else ""
            if isinstance(around, ast.Name) and around.id in ("__package__", "__name__"):
                package = absolute("", 1, self.source.file)
            name = f"{package}{name}" if package and not name.startswith("..") else ""
        if name.strip(".*"):
            yield (IMPORTED + name,)

    def annotation(self, node: ast.expr | None) -> Chains:
        """The classes that an annotation names, those in its brackets and its quotes too."""
        if node is None:
            return ()
        found: list[Chain] = []
        waiting: list[ast.AST] = [node]
        while waiting and len(found) < MOST_CHAINS:
            each = waiting.pop()
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and len(each.value) < 200:
                try:
                    waiting.append(ast.parse(each.value, mode="eval").body)
                except (SyntaxError, ValueError):
                    continue
            elif isinstance(each, ast.Name | ast.Attribute):
                found.extend(self._chains(each))
            elif isinstance(each, ast.Subscript):
                name = _name(each.value)
                parts = each.slice.elts if isinstance(each.slice, ast.Tuple) else []
                if name == "Callable":
                    # What is called is none of the objects that it takes and returns.
                    continue
                if parts and name in KEYED:
                    found.extend((*chain, MANY) for chain in self.annotation(parts[-1]))
                    continue
                if parts and name in TUPLES:
                    for number, one in enumerate(parts):
                        of = MANY if isinstance(parts[-1], ast.Constant) else at(number)
                        found.extend((*chain, of) for chain in self.annotation(one))
                    continue
                inside = self.annotation(each.slice) if not isinstance(each.slice, ast.Tuple) else ()
                if name in ("type", "Type"):
                    found.extend((*chain, CLASS) for chain in inside)
                    continue
                if inside and name and name not in ("Optional", "Annotated"):
                    found.extend((*chain, MANY) for chain in inside)
                else:
                    waiting.append(each.slice)
                    if not inside:
                        waiting.append(each.value)
            elif isinstance(each, ast.BinOp | ast.Tuple):
                waiting += children(each)
        return tuple(dict.fromkeys(found))


def _arguments(source: Source, of: ast.arguments) -> Iterator[tuple[str, int, str]]:
    positional = [*of.posonlyargs, *of.args]
    given = [*[None] * (len(positional) - len(of.defaults)), *of.defaults, *of.kw_defaults]
    for each, default in zip([*positional, *of.kwonlyargs], given, strict=True):
        yield each.arg, each.lineno, source.written(default)[:80] if default is not None else ""


def is_main(test: ast.expr) -> bool:
    """``__name__ == "__main__"``."""
    if not (isinstance(test, ast.Compare) and len(test.comparators) == 1):
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in sides) and any(
        isinstance(each, ast.Constant) and each.value == "__main__" for each in sides
    )


def _object(annotation: Chain) -> Chain:
    """What is annotated: an object of the class, or a collection of such."""
    at = next((at for at, part in enumerate(annotation) if str(part)[:1] == MANY), len(annotation))
    return (*annotation[:at], Applied(made=False), *annotation[at:])


def _beginning(node: ast.expr) -> str:
    """The literal that a name put together at run time begins with."""
    first: ast.expr = node.left if isinstance(node, ast.BinOp) else node
    if isinstance(first, ast.JoinedStr) and first.values:
        first = first.values[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _name(node: ast.expr) -> str:
    """The last name of a chain of them."""
    return next(iter(_plain(node)[-1:]), "")


def _pattern(node: ast.expr) -> str:
    """A text with a ``*`` for each part that is put in at run time."""
    match node:
        case ast.Constant():
            return node.value if isinstance(node.value, str) else "*"
        case ast.JoinedStr():
            return "".join(_pattern(each) for each in node.values)
        case ast.BinOp(op=ast.Add()):
            return _pattern(node.left) + _pattern(node.right)
    return "*"


def _ending(node: ast.expr) -> str:
    """The literal that a text put together at run time ends with."""
    last = node.right if isinstance(node, ast.BinOp) else node.values[-1:] if isinstance(node, ast.JoinedStr) else None
    last = last[0] if isinstance(last, list) and last else last
    return last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else ""


def _holder(inside: Function) -> Class | None:
    """The class of the method that this is, or that it stands in."""
    each: Function | None = inside
    while each is not None:
        if each.owner is not None:
            return each.owner
        each = each.outer
    return None


def _plain(node: ast.expr) -> list[str]:
    """``self.x`` as its names; empty where it is more than names."""
    parts: list[str] = []
    each: ast.expr = node
    while isinstance(each, ast.Attribute):
        parts.append(each.attr)
        each = each.value
    return [*([each.id]), *reversed(parts)] if isinstance(each, ast.Name) else []


def _key(node: ast.expr | None) -> str:
    """A literal key of a dictionary; empty where it may be any."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _number(node: ast.expr) -> str:
    """A literal place in a tuple, counted from its beginning."""
    return str(node.value) if isinstance(node, ast.Constant) and type(node.value) is int else ""


def _unsubscripted(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def _shallow(node: ast.expr) -> Iterator[ast.AST]:
    """A value, the elements of a collection that it is, and what a call of it is made on or given first."""
    waiting: list[ast.AST] = [node]
    taken = 0
    while waiting and taken < 40:
        each = waiting.pop(0)
        taken += 1
        yield each
        if isinstance(each, ast.List | ast.Tuple):
            waiting += each.elts[:4]
        elif isinstance(each, ast.ListComp | ast.GeneratorExp):
            waiting.append(each.elt)
        elif isinstance(each, ast.DictComp):
            waiting.append(each.value)
        elif isinstance(each, ast.Dict):
            waiting += each.values[:6]
        elif isinstance(each, ast.BinOp):
            waiting += [each.left, each.right]
        elif isinstance(each, ast.IfExp):
            waiting += [each.body, each.orelse]
        elif isinstance(each, ast.Call):
            waiting += each.args[:2]
            if isinstance(each.func, ast.Attribute):
                waiting.append(each.func.value)


def _says_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for each in node.body:
        if isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
            continue
        if isinstance(each, ast.Raise) and "NotImplemented" in ast.unparse(each):
            continue
        return False
    return True
