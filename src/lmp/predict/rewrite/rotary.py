"""Rules on rotary embedding: the table of angles, and the rotation of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.predict.rewrite.fused import fused
from lmp.predict.rewrite.rules import Match, State

ROTATION = frozenset({"mul", "neg", "cat", "stack", "add", "sub"})


def tables(state: State) -> Iterator[Match]:
    """Numbers that depend on positions and weights alone, as the cosines of angles: an engine looks them up.

    Positions and masks are made without a FLOP: comparisons and additions of integers have none.
    """
    graph, seen = state.graph, set[int]()

    def is_part(one: int) -> bool:
        found = graph.kernels[one].flops or graph.kernels[one].category in ("copy", "scatter")
        return bool(found) and one in graph.of_no_token and not graph.is_product(one) and not graph.weights_only(one)

    for anchor in state.untaken():
        if anchor in seen or not graph.kernels[anchor].flops or not is_part(anchor):
            continue
        place = graph.kernels[anchor].path

        def kept(one: int, place: str = place) -> bool:
            return is_part(one) and one not in state.taken and graph.kernels[one].path == place

        members = graph.closure([anchor], graph.both_ways, kept)
        seen |= members
        yield Match(tuple(sorted(members)), ())


def rotations(state: State) -> Iterator[Match]:
    """Rotations of queries and keys: what uses a table of angles, in one module."""
    graph, regions = state.graph, dict[tuple[str, int], set[int]]()
    for anchor in state.untaken():
        of_table = any(state.taken.get(maker) == "rope_table" for maker in graph.makers(anchor))
        if graph.operator(anchor) not in ROTATION or not of_table:
            continue
        place = (graph.kernels[anchor].path, graph.kernels[anchor].repeat)

        def kept(one: int, path: str = place[0], anchor: int = anchor) -> bool:
            own = graph.operator(one) in ROTATION and graph.kernels[one].path == path
            return own and state.free(one, anchor) and not graph.appends(one)

        regions.setdefault(place, set()).update(graph.closure([anchor], graph.both_ways, kept))
    for region in regions.values():
        region |= _conversions(state, region)
        yield Match(tuple(sorted(region)), (fused(state, "rope", region, "rotary embedding", "elementwise"),))


def _conversions(state: State, region: set[int]) -> set[int]:
    """Conversions between a rotation and its neighbours: the kernel computes as wide as it likes."""
    graph, like = state.graph, min(region)
    near = {maker for one in region for maker in graph.makers(one) if set(graph.consumers[maker]) <= region}
    near |= {user for one in region for user in graph.consumers[one] if set(graph.makers(user)) <= region}
    return {one for one in near if graph.operator(one) == "_to_copy" and state.free(one, like)}
