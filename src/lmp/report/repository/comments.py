"""The signs of C, C++ and CUDA files: what they include, and comments that say what is left to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.report.repository.signs import Import, Note, Signs

_TODO = re.compile(r"(?://|/\*|^\s*\*)\s*(?P<text>.*\b(?:TODO|FIXME|HACK|XXX)\b.*?)(?:\*/)?\s*$")
_NEEDS = re.compile(r"\b(?:static_assert|TORCH_CHECK)\s*\((?P<text>.*(?:__CUDA_ARCH__|is_cuda|sm_?\d|capability).*)")
_ERROR = re.compile(r"^\s*#\s*error\s+(?P<text>.+)$")


_INCLUDE = re.compile(r'^\s*#\s*include\s*"(?P<name>[^"]+)"', re.MULTILINE)


def c_signs(text: str) -> Signs:
    """Of a file in C, C++ or CUDA: what it includes, and what its comments say."""
    includes = tuple(
        Import(found["name"], (), text.count("\n", 0, found.start("name")) + 1) for found in _INCLUDE.finditer(text)
    )
    return Signs(imports=includes, notes=tuple(c_comments(text)))


def c_comments(text: str) -> Iterator[Note]:
    """Line by line: what is left to do, and what is asked of the device."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > 1000:
            continue
        if found := _TODO.search(line):
            yield Note("todo", number, "", found["text"].strip())
        elif found := _NEEDS.search(line):
            yield Note("requires", number, "", found["text"].strip(), "")
        elif found := _ERROR.match(line):
            yield Note("requires", number, "", "the preprocessor stops here", found["text"].strip())
