"""The summary of a zoo for people: `markdown`, and `page`, which is filtered and sorted in a browser."""

from __future__ import annotations

from lmp.report.zoo.document import markdown
from lmp.report.zoo.writing import page

__all__ = ["markdown", "page"]
