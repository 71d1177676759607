"""What tests of posts share."""

from __future__ import annotations

from lmp.lab.figures import Figures
from lmp.lab.post import Post


def no_figures(post: Post) -> Figures:
    """Figures in a folder that has none: a post without subjects asks for none."""
    return Figures(post, post.posts / "results")
