"""What a replica of a layout does, by the step models of ``lmp predict --serve``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from lmp.predict.plan.layouts import Layout
from lmp.predict.plan.options import Reply, Serve
from lmp.predict.plan.planning import Requests, replies
from lmp.predict.serve.served_model import CACHE
from lmp.predict.serve.setup import Servers, Setup, kv_dtype_of


def server(servers: Servers, setup: Setup, requests: Requests) -> Serve:
    """The function from a layout and batches to what a replica does. ``setup`` says all but the layout."""

    def serve(layout: Layout, batches: Sequence[int]) -> list[Reply]:
        shared = setup.model_copy(update={"tp": layout.tp, "ep": layout.ep, "pp": layout.pp})
        return replies(servers.stepper(shared), requests, batches)

    return serve


def cache_width(servers: Servers, setup: Setup) -> Fraction | None:
    """Bytes of an element of the cache, as asked for or as the engine chooses; None: those of the model's dtype."""
    word = kv_dtype_of(setup, servers.profile(setup))
    return None if word is None else Fraction(CACHE[word])
