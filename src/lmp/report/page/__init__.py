"""One self-contained HTML page of a model: tree, figures, sliders; works offline.

`page` writes it. What the page knows is data (`content`): the tree, the formulas as small steps (`steps`), the source
lines (`code`), what can be changed (`controls`). ``static/`` has what runs in the browser.
"""

from __future__ import annotations

from lmp.report.page.writing import page

__all__ = ["page"]
