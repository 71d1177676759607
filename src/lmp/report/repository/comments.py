"""Comments of C, C++ and CUDA that say what is left to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.report.repository.signs import Note

_TODO = re.compile(r"(?://|/\*|^\s*\*)\s*(?P<text>.*\b(?:TODO|FIXME|HACK|XXX)\b.*?)(?:\*/)?\s*$")
_NEEDS = re.compile(r"\b(?:static_assert|TORCH_CHECK)\s*\((?P<text>.*(?:__CUDA_ARCH__|is_cuda|sm_?\d|capability).*)")
_ERROR = re.compile(r"^\s*#\s*error\s+(?P<text>.+)$")


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
