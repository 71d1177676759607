"""Labels beside points of a plot, where none covers another one, a point, or a line that is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_REACHES = (9, 15, 22, 31, 42, 54, 68, 84, 102, 125, 150)
"""How far from its point a label may stand, in pixels: the nearest free place is taken."""

_DIRECTIONS = [math.radians(angle) for angle in (0, 180, -30, 30, 150, 210, -60, 60, 120, 240, 90, 270)]


@dataclass(frozen=True)
class Box:
    """In pixels; y grows upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def holds(self, x: float, y: float) -> bool:
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def inside(self, other: Box) -> bool:
        return other.holds(self.left, self.bottom) and other.holds(self.right, self.top)


Spot = tuple[float, float]


def places(
    points: Sequence[Spot], sizes: Sequence[Spot], inside: Box, line: Sequence[Spot] = (), gap: float = 3
) -> list[Box]:
    """A box of its size for each point. ``line`` are spots that labels stay clear of, where there is room enough."""
    marks = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    placed: list[Box] = []
    for point, (width, height) in zip(points, sizes, strict=True):
        boxes = list(_around(point, width, height))
        free = [
            box
            for box in boxes
            if box.inside(inside) and not any(_wider(box, gap).overlaps(other) for other in (*placed, *marks))
        ]
        clear = [box for box in free if not any(box.holds(*spot) for spot in line)]
        placed.append((clear or free or boxes)[0])
    return placed


def _around(point: Spot, width: float, height: float) -> Iterator[Box]:
    x, y = point
    for reach in _REACHES:
        for direction in _DIRECTIONS:
            # The side of the box that is nearest to the point, at this distance.
            across, up = math.cos(direction), math.sin(direction)
            middle = x + across * (reach + width / 2), y + up * (reach + height / 2)
            yield Box(middle[0] - width / 2, middle[1] - height / 2, middle[0] + width / 2, middle[1] + height / 2)


def _wider(box: Box, gap: float) -> Box:
    return Box(box.left - gap, box.bottom - gap, box.right + gap, box.top + gap)
