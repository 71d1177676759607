"""Posts as HTML: one file each, no script, no request, markup of the text escaped, readable light and dark."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from html import escape
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from lmp.lab.flame import FLAME

if TYPE_CHECKING:
    from markdown_it.token import Token

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --ground: #ffffff; --quiet: #57606a; --box: #f3f5f7; --line: #d0d7de;
  --link: #0969da; }
@media (prefers-color-scheme: dark) { :root { --ink: #d1d7e0; --ground: #0d1117; --quiet: #9198a1; --box: #161b22;
  --line: #3d444d; --link: #4493f8; } }
body { color: var(--ink); background: var(--ground); font: 16px/1.6 system-ui, sans-serif; max-width: 54rem;
  margin: 2rem auto; padding: 0 1rem; }
a { color: var(--link); }
pre { background: var(--box); padding: .8rem; overflow-x: auto; font-size: 12.5px; line-height: 1.4; }
code { font-family: ui-monospace, monospace; font-size: .88em; background: var(--box); }
pre code { font-size: inherit; background: none; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left; }
img, svg { max-width: 100%; height: auto; }
blockquote { color: var(--quiet); border-left: 3px solid var(--line); margin-left: 0; padding-left: 1rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def post_page(title: str, markdown: str, images: Mapping[str, bytes]) -> str:
    """The page of a post. ``images``: addresses in the markdown -> SVG, put into the page."""
    return _page(title, markdown, images)


def index_page(markdown: str) -> str:
    return _page("Posts", markdown, {})


def _page(title: str, markdown: str, images: Mapping[str, bytes]) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{_body(markdown, images)}</body>\n</html>\n"
    )


def _body(markdown: str, images: Mapping[str, bytes]) -> str:
    from markdown_it import MarkdownIt

    # html=False escapes markup; markdown-it itself refuses javascript: and other such links.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_without_comments(markdown))
    for token in tokens:
        if token.type == "heading_open":
            number = tokens.index(token) + 1
            token.attrSet("id", _anchor(tokens[number].content))
        for child in token.children or []:
            if child.type == "image":
                address = str(child.attrGet("src"))
                if address in images:
                    _put_in(child, images[address])
            elif child.type == "link_open":
                child.attrSet("href", _html_address(str(child.attrGet("href"))))
    return str(parser.renderer.render(tokens, parser.options, {}))


def _put_in(image: Token, svg: bytes) -> None:
    """Put a picture into the page. A flame graph becomes part of it: the names of its frames show on hovering."""
    if svg.startswith(FLAME):
        # Its names are escaped, and it has no ids that could meet those of another picture.
        image.type, image.content, image.children = "html_inline", svg.decode(), None
        return
    image.attrSet("src", f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}")


def _without_comments(markdown: str) -> str:
    return "\n".join(line for line in markdown.split("\n") if not line.startswith("<!-- written by "))


def _html_address(address: str) -> str:
    """Where a link of the markdown leads from the page, which stands in a folder below. Posts link to pages."""
    if re.match(r"[a-z][a-z0-9+.-]*:|#|/", address):
        return address
    if "/" in address or not address.endswith(".md"):
        return f"../{address}"
    return str(PurePosixPath(address).with_suffix(".html"))


def _anchor(text: str) -> str:
    kept = "".join(sign for sign in text.lower() if sign.isalnum() or sign in " -")
    return kept.replace(" ", "-")
