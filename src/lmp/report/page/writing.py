"""The page as text: the template filled, with everything that it needs in it and nothing that is fetched.

A Content-Security-Policy allows the scripts that are in the page, by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from importlib import metadata, resources
from typing import Any

from lmp.errors import UsageError
from lmp.records import ModelAnalysis
from lmp.report.facts import ModelFacts
from lmp.report.page.content import content
from lmp.report.warnings import of_the_model

SCRIPTS = ("exact", "figures", "model", "state", "controls", "totals", "charts", "table", "source", "main")
"""In the order in which they need one another."""


def page(facts: ModelFacts) -> str:
    """HTML that needs no other file and no network. Raises UsageError where the extra ``report`` is missing."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError("an HTML page needs more packages\nrun `pip install 'lmp[report]'`") from error
    environment = Environment(
        loader=PackageLoader("lmp.report.page", "static"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    scripts = {"plotly": _as_script(get_plotlyjs()), "own": _as_script(_own())}
    return environment.get_template("page.html").render(
        policy=_policy(scripts),
        scripts=scripts,
        style=_static("page.css"),
        data=as_data(content(facts)),
        model=facts.model,
        name=facts.name,
        about=_about(facts.model),
        warnings=list(of_the_model(facts.model)),
        version=metadata.version("lmp"),
    )


def as_data(value: Any) -> str:
    """JSON for a script element of type application/json: no text in it can end that element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def _about(model: ModelAnalysis) -> list[tuple[str, str]]:
    source, given = model.source, model.given
    found = [
        ("class", model.class_name),
        (
            "config",
            model.config.origin if model.config.name == "default" else f"{model.config.name}: {model.config.origin}",
        ),
        ("source", f"{source.distribution} {source.version}, {source.file}, lines {source.lines[0]}-{source.lines[1]}"),
        ("analysed in", f"{model.dtype}, by the engine {model.engine}"),
    ]
    if model.attn_implementation is not None:
        found.append(("attention", model.attn_implementation))
    if given is not None:
        found.append(("constructed with", given.init or "no arguments"))
        found.append(("called with", given.inputs))
    return found


def _own() -> str:
    """The page's own scripts as one, with names that nothing outside of it sees."""
    return '(() => {\n"use strict";\n' + "\n".join(_static(f"{name}.js") for name in SCRIPTS) + "})();\n"


@functools.cache
def _static(name: str) -> str:
    return resources.files("lmp.report.page").joinpath("static", name).read_text(encoding="utf-8")


def _as_script(text: str) -> str:
    """The text as a browser sees it in a script element, which is what its hash is of."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "</script" in text.lower() or "<!--" in text:
        raise AssertionError("a script of the page would end its element early")
    return text


def _policy(scripts: Mapping[str, str]) -> str:
    """Plotly sets styles in attributes, and saves pictures by way of a data: address."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts.values())
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
