"""One offline page that compares models of the atlas: FLOPs, bytes, memory and predicted times at any sizes.

`page` writes it. Each model has the formulas of its totals, its memory and a grid of predicted times (`models`);
``static/`` has what runs in the browser, beside the modules of a model's own page.
"""

from __future__ import annotations

from lmp.report.compare.writing import page

__all__ = ["page"]
