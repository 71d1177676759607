"""What pages have in common: a template that escapes, scripts that end where they should, a policy that asks nobody.

A page is one file. Its Content-Security-Policy allows the scripts that are in it, by their hashes, and no request.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from lmp.errors import UsageError

if TYPE_CHECKING:
    from jinja2 import Template

INSTALL = "an HTML page needs more packages\nrun `pip install 'lmp[report]'`"


def template(package: str, name: str) -> Template:
    """A file of the package's ``static/``. Raises UsageError where the extra ``report`` is missing."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise UsageError(INSTALL) from error
    environment = Environment(
        loader=PackageLoader(package, "static"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


@functools.cache
def static(package: str, name: str) -> str:
    return resources.files(package).joinpath("static", name).read_text(encoding="utf-8")


def joined(package: str, names: Sequence[str]) -> str:
    """Scripts of a package's ``static/`` as one, with names that nothing outside of it sees."""
    return joined_of([(package, name) for name in names])


def joined_of(scripts: Sequence[tuple[str, str]]) -> str:
    """The same of scripts of several packages."""
    return (
        '(() => {\n"use strict";\n' + "\n".join(static(package, f"{name}.js") for package, name in scripts) + "})();\n"
    )


def as_data(value: Any) -> str:
    """JSON for a script element of type application/json: no text in it can end that element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def as_script(text: str) -> str:
    """The text as a browser sees it in a script element, which is what its hash is of."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "</script" in text.lower() or "<!--" in text:
        raise AssertionError("a script of the page would end its element early")
    return text


def policy(scripts: Mapping[str, str]) -> str:
    """Plotly sets styles in attributes, and saves pictures by way of a data: address."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts.values())
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
