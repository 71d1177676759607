"""The posts in git: every number of theirs, evaluated again."""

from __future__ import annotations

from pathlib import Path

import pytest

import shared_results
from lmp.lab.checking import check
from lmp.lab.figures import Figures
from lmp.lab.post import all_posts

POSTS = shared_results.PROJECT / "posts"
ALL, FEWEST_REFERENCES = 5, 300
"""Posts that there should be, and the references that they should have together."""


def test_every_number_of_the_posts_holds(transformers_tree: Path) -> None:
    posts = all_posts(POSTS)
    if not posts:
        pytest.skip("no post has a template yet")
    rendered, problems = check(posts, posts, lambda post: Figures(post, shared_results.results()))
    assert problems == []
    assert len(posts) < ALL or sum(each.references for each in rendered) >= FEWEST_REFERENCES
