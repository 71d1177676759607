"""Functions, classes and structs of C++ and CUDA, by tree-sitter's grammars; what has no name there is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from lmp.codebase.facts import Definition, Place
from lmp.errors import UsageError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

TEMPLATE = re.compile(r"(?<!operator) ?<[\w\s,:*&]*>(?=::|$)")
"""``<embed>`` behind a class's name."""
CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
WALKED = (
    *("translation_unit", "declaration_list", "field_declaration_list", "namespace_definition", "template_declaration"),
    *("linkage_specification", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "ERROR", "declaration"),
    *("field_declaration", "type_definition"),
)
"""Where definitions can stand; a function's own body is not gone into."""


def definitions(file: str, text: str, cuda: bool) -> tuple[list[Definition], int]:
    """In the order of their lines, and how many places the grammar could not read."""
    tree = _parser(cuda).parse(text.encode("utf-8", "surrogatepass"))
    found: list[Definition] = []
    errors = 0
    waiting: list[tuple[Node, tuple[str, ...]]] = [(tree.root_node, ())]
    while waiting:
        node, around = waiting.pop()
        errors += node.type == "ERROR"
        if node.type == "function_definition":
            definition = _function(file, node, around)
            if definition is not None:
                found.append(definition)
        elif node.type in CLASSES and node.child_by_field_name("body") is not None:
            name = _class_name(node)
            if name:
                found.append(_class(file, node, name, around))
            waiting.append((node.child_by_field_name("body"), (*around, name) if name else around))  # type: ignore[arg-type]
        elif node.type in WALKED:
            waiting.extend((child, around) for child in node.children)
    return sorted(found, key=lambda each: each.place.line), errors


@cache
def _parser(cuda: bool) -> Parser:
    try:
        import tree_sitter_cpp
        import tree_sitter_cuda
        from tree_sitter import Language, Parser
    except ImportError:
        raise UsageError("reading C++ and CUDA needs more packages: pip install lmp[report]") from None
    return Parser(Language(tree_sitter_cuda.language() if cuda else tree_sitter_cpp.language()))


def _function(file: str, node: Node, around: tuple[str, ...]) -> Definition | None:
    named = _name(node)
    if named is None:
        return None
    name = TEMPLATE.sub("", _text(named))
    if " " in name and "operator" not in name:
        # A macro before the type makes the grammar take the type for a part of the name.
        name = name.rpartition(" ")[2]
    qualname = ".".join((*around, *name.split("::")))
    kind = "method" if around or "::" in name else "function"
    place = Place(file, named.end_point[0] + 1)
    return Definition(kind, qualname.rpartition(".")[2], qualname, place, node.end_point[0] + 1)  # type: ignore[arg-type]


def _name(node: Node) -> Node | None:
    """Down the declarators to the name: pointers and references may stand before it."""
    inner = node.child_by_field_name("declarator")
    for _ in range(12):
        if inner is None:
            return None
        if inner.type in ("identifier", "field_identifier", "destructor_name", "operator_name"):
            return inner
        if inner.type == "qualified_identifier":
            return inner
        if inner.type == "template_function":
            inner = inner.child_by_field_name("name")
            continue
        following = inner.child_by_field_name("declarator")
        if following is None:
            following = next((child for child in inner.named_children if "declarator" in child.type), None)
        inner = following
    return None


def _class_name(node: Node) -> str:
    """Without the arguments of a specialization, and without the namespaces before it."""
    named = node.child_by_field_name("name")
    while named is not None and named.type in ("template_type", "qualified_identifier"):
        named = named.child_by_field_name("name")
    return _text(named) if named is not None else ""


def _class(file: str, node: Node, name: str, around: tuple[str, ...]) -> Definition:
    body = node.child_by_field_name("body")
    named = node.child_by_field_name("name")
    assert body is not None
    assert named is not None
    bases = next((child for child in node.children if child.type == "base_class_clause"), None)
    return Definition(
        "class",
        name,
        ".".join((*around, name)),
        Place(file, named.start_point[0] + 1),
        node.end_point[0] + 1,
        bases=tuple(_text(base) for base in bases.named_children if base.type != "access_specifier") if bases else (),
        methods=tuple(dict.fromkeys(_methods(body))),
    )


def _methods(body: Node) -> Iterator[str]:
    for child in body.named_children:
        inner = child
        if child.type == "template_declaration":
            inner = next((each for each in child.named_children if each.type == "function_definition"), child)
        if inner.type == "function_definition":
            named = _name(inner)
            if named is not None:
                yield _text(named)


def _text(node: Node) -> str:
    return " ".join((node.text or b"").decode("utf-8", "replace").split())
