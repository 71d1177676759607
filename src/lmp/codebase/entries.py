"""Where a repository is started: scripts of its packages, ``__main__`` blocks, servers, benchmarks and examples."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from lmp.codebase.definitions import first_line
from lmp.codebase.facts import EntryPoint, Place
from lmp.codebase.file_kinds import role
from lmp.codebase.source import Source
from lmp.codebase.templates import no_elsewhere, template, text_of

SERVERS = {
    "fastapi.FastAPI": "a FastAPI application",
    "flask.Flask": "a Flask application",
    "aiohttp.web.Application": "an aiohttp application",
    "starlette.applications.Starlette": "a Starlette application",
    "sanic.Sanic": "a Sanic application",
    "grpc.server": "a gRPC server",
    "grpc.aio.server": "a gRPC server",
    "http.server.HTTPServer": "an HTTP server of the standard library",
    "http.server.ThreadingHTTPServer": "an HTTP server of the standard library",
    "socketserver.TCPServer": "a TCP server of the standard library",
}
HANDLERS = ("http.server.BaseHTTPRequestHandler", "http.server.SimpleHTTPRequestHandler", "tornado.web.RequestHandler")
STARTERS = ("uvicorn.run", "uvicorn.Server", "granian.Granian", "hypercorn.asyncio.serve", "gradio.launch")


def entries(source: Source) -> list[EntryPoint]:
    """Of a Python file, in the order of their lines."""
    return sorted([*_main(source), *_servers(source)], key=lambda each: each.place.line)


def _main(source: Source) -> Iterator[EntryPoint]:
    for node, scope in source.all(ast.If):
        if scope is None and _is_main(node.test):
            kind = {"benchmark": "benchmark", "example": "example"}.get(role(source.file), "script")
            what = first_line(source.tree)
            started = ", ".join(_called(source, node))
            told = f"calls {started}" if started else ""
            yield EntryPoint(
                kind,  # type: ignore[arg-type]
                f"python {source.file}",
                Place(source.file, node.lineno),
                "; ".join(part for part in (told, what) if part and not part.endswith(":")),
            )


def _is_main(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [getattr(each, "id", getattr(each, "value", None)) for each in (test.left, *test.comparators)]
    return sides in (["__name__", "__main__"], ["__main__", "__name__"])


def _called(source: Source, node: ast.If) -> list[str]:
    """The functions of this file or of its imports that the block calls by name."""
    found = {
        each.func.id: None
        for statement in node.body
        for each in ast.walk(statement)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Name)
        and (each.func.id in source.functions or each.func.id in source.aliases)
    }
    return [f"{name}()" for name in found][:4]


def _servers(source: Source) -> Iterator[EntryPoint]:
    for call, scope in source.all(ast.Call):
        dotted = source.dotted(call.func)
        what = SERVERS.get(dotted) or ("starts the server" if dotted in STARTERS else "")
        if what:
            where = f" in {scope.qualname}" if scope else ""
            at = Place(source.file, call.func.end_lineno or call.lineno)
            yield EntryPoint("server", source.written(call.func), at, f"{what}{where}")
    for node, _ in source.all(ast.ClassDef):
        if any(source.dotted(base) in HANDLERS for base in node.bases):
            yield EntryPoint("server", node.name, Place(source.file, node.lineno), "answers HTTP requests")
    for function, _ in source.every_function():
        for decorator in function.decorator_list:
            route = _route(source, decorator)
            if route:
                yield EntryPoint("server", function.name, Place(source.file, function.lineno), route)


def _route(source: Source, decorator: ast.expr) -> str:
    """``@app.post("/generate")``, and ``@app.route("/generate", methods=["GET", "POST"])``: ``GET,POST /generate``."""
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and decorator.args):
        return ""
    method = decorator.func.attr
    if method not in ("get", "post", "put", "delete", "patch", "route", "api_route", "websocket"):
        return ""
    told = next((each.value for each in decorator.keywords if each.arg == "methods"), None)
    listed = told.elts if isinstance(told, ast.List | ast.Tuple | ast.Set) else []
    verbs = [str(each.value) for each in listed if isinstance(each, ast.Constant)] or [method]
    path = text_of(template(source, decorator.args[0], None, no_elsewhere))
    return f"{','.join(verbs).upper()} {path}" if path is not None and path.startswith("/") else ""


def command_tables(source: Source) -> list[tuple[str, str, str, str]]:
    """``CLI({"serve": serve, …})``: file and function of the call, command, and the name that the table gives it."""
    found = []
    for call, scope in source.all(ast.Call):
        for given in call.args:
            table = source.constants.get(given.id) if isinstance(given, ast.Name) else given
            if isinstance(table, ast.Dict) and len(table.keys) > 1:
                for key, value in zip(table.keys, table.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Name):
                        found.append((source.file, scope.qualname if scope else "", key.value, value.id))
    return found


def package_scripts(file: str, text: str) -> list[EntryPoint]:
    """Commands that installing the package makes: pyproject.toml, setup.cfg, entry_points.txt."""
    name = PurePosixPath(file).name
    if name == "pyproject.toml":
        scripts = _pyproject(text)
    elif name in ("setup.cfg", "entry_points.txt"):
        scripts = _ini(text, name)
    else:
        return []
    return [
        EntryPoint("cli", script, Place(file, line_of(text, script)), target)
        for script, target in sorted(scripts.items())
    ]


# Lines may stand behind a prompt, or be what a comparison adds.
IMPORTED = re.compile(r"^[ \t>+]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n(]+)", re.MULTILINE)
SHOWN = re.compile(IMPORTED.pattern.replace(r"([\w.]+)", r"([\w.-]+)"), re.MULTILINE)
IMPORTS = re.compile(r"^[ \t>+]*import[ \t]+([\w.]+)(?:[ \t]+as[ \t]+(\w+))?[ \t]*$", re.MULTILINE)


def told_imports(file: str, text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """What a README at the top, or a package's metadata, imports: module, name, methods that it calls by that name.

    What it calls by its name alone has no module; of what it imports nowhere the module begins with a dot.

    What it names most often comes first.
    """
    if not _is_readme(file):
        return []
    names: dict[str, tuple[str, str]] = {}
    modules = {alias or module: module for module, alias in IMPORTS.findall(text)}
    for module, imported in IMPORTED.findall(text):
        for each in _names_in(imported):
            names[each] = module, each
            modules[each] = f"{module}.{each}"
    for first, module in modules.items():
        # What is called of a module, by its name or through the modules in it: ``gm.text.Sampler(…)``.
        for inner, last in re.findall(rf"(?<![\w.]){re.escape(first)}\.((?:\w+\.)*)(\w+)\(", text):
            names[f"{first}.{inner}{last}"] = f"{module}.{inner}".rstrip("."), last
    for each in re.findall(r"(?<![\w.])(\w+)\(", text):
        names.setdefault(each, ("", each))
    for first, last in re.findall(r"(?<![\w.])(\w+)\.([A-Z]\w*)\(", text):
        # An example that leaves its imports out: ``api.Engine(…)`` is of a module of the package.
        names.setdefault(f"{first}.{last}", (f".{first}", last))
    said = Counter(re.findall(r"\w+", text))
    ranked = sorted(names.items(), key=lambda each: -said[each[1][1]])
    return [(module, name, _methods_of(written, text)) for written, (module, name) in ranked]


def shown_imports(file: str, text: str) -> list[tuple[str, str, Place]]:
    """What such a text imports by ``from``, as it is written: module, name, and the place of the line."""
    if not _is_readme(file):
        return []
    found: list[tuple[str, str, Place]] = []
    for match in SHOWN.finditer(text):
        place = Place(file, text.count("\n", 0, match.start(1)) + 1)
        found += [(match[1], name, place) for name in _names_in(match[2])]
    return found


def _names_in(imported: str) -> list[str]:
    """What stands behind ``import``, without comments and other names."""
    return re.findall(r"\w+", re.sub(r"#[^\n]*|\bas[ \t]+\w+", "", imported))


def told_paths(file: str, text: str) -> dict[str, int]:
    """Paths in such a text, without ending, and how often they stand there: ``--config small/8B_full``."""
    found = re.findall(r"(?<![\w./:@-])[\w.-]+(?:/[\w.-]+)+", text) if _is_readme(file) else ()
    return Counter(re.sub(r"\.(?:ya?ml|json|toml|ini)$", "", each) for each in found)


def _is_readme(file: str) -> bool:
    name = file.rpartition("/")[2].lower()
    return (name.startswith("readme") and file.count("/") < 2) or name in ("metadata", "pkg-info")


def _methods_of(written: str, text: str) -> tuple[str, ...]:
    """The methods that a text calls by a class's name, or of what it makes of the class."""
    made = re.findall(rf"\b(\w+)[ \t]*=[ \t]*{re.escape(written)}\(", text)
    objects = "|".join(map(re.escape, (written, *dict.fromkeys(made))))
    return tuple(dict.fromkeys(re.findall(rf"(?<![\w.])(?:{objects})\.(\w+)\(", text)))


def _pyproject(text: str) -> dict[str, str]:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    project = found.get("project", {})
    poetry = found.get("tool", {}).get("poetry", {}) if isinstance(found.get("tool"), dict) else {}
    scripts: dict[str, str] = {}
    for table in (project, poetry):
        if isinstance(table, dict) and isinstance(table.get("scripts"), dict):
            scripts.update({str(key): str(value) for key, value in table["scripts"].items()})
    return scripts


def _ini(text: str, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    if name == "entry_points.txt":
        return dict(parser.items("console_scripts")) if parser.has_section("console_scripts") else {}
    if not parser.has_option("options.entry_points", "console_scripts"):
        return {}
    parts = [line.partition("=") for line in parser.get("options.entry_points", "console_scripts").split("\n")]
    return {name.strip(): target.strip() for name, equals, target in parts if equals and name.strip()}


def setup_scripts(source: Source) -> list[EntryPoint]:
    """``setup(entry_points={"console_scripts": ["name = module:function"]}, scripts=["tools/name.py"])``."""
    found = []
    for node, _ in source.all(ast.Call):
        if source.dotted(node.func) not in ("setup", "setuptools.setup", "distutils.core.setup"):
            continue
        files = {id(each) for keyword in node.keywords if keyword.arg == "scripts" for each in ast.walk(keyword.value)}
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                match = re.fullmatch(r"\s*([\w.-]+)\s*=\s*([\w.]+:[\w.]+)\s*", each.value)
                if match:
                    found.append(EntryPoint("cli", match[1], Place(source.file, each.lineno), match[2]))
                elif id(each) in files:
                    at = PurePosixPath(source.file).parent / each.value
                    found.append(EntryPoint("cli", at.name, Place(source.file, each.lineno), str(at)))
    return found


def line_of(text: str, key: str) -> int:
    """The first line that sets a key."""
    pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=:]")
    return next((at for at, line in enumerate(text.split("\n"), 1) if pattern.match(line)), 1)
