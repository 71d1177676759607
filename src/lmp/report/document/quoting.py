"""Words of other people: a docstring, a message. No word of theirs is a statement of the report."""

from __future__ import annotations

import re

from lmp.report.document.parts import Code, Inline
from lmp.report.review.citing import may_be_file
from lmp.report.review.figures import NUMBER_WITH_UNIT
from lmp.report.review.placeholders import is_placeholder, says_none, stands_for_something

_PLACE = re.compile(r"(?P<path>[\w./@+~-]+)(?P<sign>:|#L)(?=\d)")


def quoted(text: str) -> Inline:
    """As text where the review reads nothing in it; else as code, in which it looks for places alone."""
    apart = _PLACE.sub(lambda found: f"{found[0]} " if may_be_file(found["path"]) else found[0], text)
    if apart == text and not (NUMBER_WITH_UNIT.search(text) or stands_for_something(text) or says_none(text)):
        return text
    return quoted_code(apart)


def quoted_code(text: str) -> Code:
    """A piece of code that somebody else wrote."""
    apart = _PLACE.sub(lambda found: f"{found[0]} " if may_be_file(found["path"]) else found[0], text)
    return Code(f'"{apart}"' if is_placeholder(apart) else apart)
