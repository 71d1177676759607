"""What agents would have to do: classes in the order in which they can be analysed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from lmp.source.constructed import constructed_classes
from lmp.source.locate import ClassSource
from lmp.source.trees import Trees


@dataclass(frozen=True)
class Planned:
    """A class to be analysed, and those of the plan that come before it."""

    source: ClassSource
    after: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.source.class_path


def plan(
    class_paths: Sequence[str], locate: Callable[[str], ClassSource], trees: Trees, stored: Callable[[str], bool]
) -> list[Planned]:
    """The classes without an analysis that are asked for or constructed by these, called ones first.

    What only execution or reading tells (a class from a registry) is not in it: it turns up when it is referred to.
    Raises NotFound for a class that is not in the sources.
    """
    found: dict[str, ClassSource] = {}
    after: dict[str, tuple[str, ...]] = {}

    def enter(class_path: str, above: tuple[str, ...]) -> str | None:
        """The class's own path, if it is to be analysed. One that constructs itself waits for nobody."""
        source = locate(class_path)
        name = source.class_path
        if name in above or stored(name):
            return None
        if name not in found:
            found[name] = source
            inner = (enter(called, (*above, name)) for called in constructed_classes(source, trees))
            after[name] = tuple(called for called in inner if called is not None)
        return name

    for class_path in class_paths:
        enter(class_path, ())
    return [Planned(found[name], after[name]) for name in TopologicalSorter(_without_circles(after)).static_order()]


def _without_circles(after: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Classes that construct one another wait one way only."""
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        after[name] = tuple(called for called in after[name] if called not in (*above, name))
        for called in after[name]:
            if called not in done:
                visit(called, (*above, name))
        done.add(name)

    for name in list(after):
        if name not in done:
            visit(name, ())
    return after
