"""Ensembles of decision trees as JSON, evaluated in numpy: no pickle, no scikit-learn.

A tree is written in preorder as two lists. ``splits`` has the feature of an inner node, or -1 for a leaf. ``values``
has the index of the threshold among the feature's ``edges``, or the leaf's value in units of ``unit``. Rows whose
feature is at most the threshold go to the left child, which is the next node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAF = -1
CHUNK = 4096
"""Rows that are evaluated at once: the node of every tree is held for each."""


@dataclass(frozen=True)
class Forest:
    """The sum of the values of all trees, plus ``base``."""

    base: float
    unit: float
    edges: tuple[NDArray[np.float64], ...]
    """Thresholds of each feature, ascending."""
    roots: NDArray[np.int32]
    split: NDArray[np.int16]
    threshold: NDArray[np.int32]
    """Index among the feature's edges; 0 at leaves."""
    right: NDArray[np.int32]
    """The right child; the node itself at leaves."""
    value: NDArray[np.float64]

    def __call__(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """One value for each row."""
        parts = [self._sum(features[start : start + CHUNK]) for start in range(0, len(features), CHUNK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def leaves(self, features: NDArray[np.float64]) -> NDArray[np.int32]:
        """The node at which each row ends in each tree."""
        binned = np.column_stack(
            [np.searchsorted(edges, features[:, column]) for column, edges in enumerate(self.edges)]
        ).astype(np.int32)
        node = np.broadcast_to(self.roots, (len(features), len(self.roots))).copy()
        rows = np.arange(len(features))[:, None]
        while True:
            split = self.split[node]
            inner = split != LEAF
            if not inner.any():
                return node
            left = binned[rows, split] <= self.threshold[node]
            node = np.where(inner, np.where(left, node + 1, self.right[node]), node)

    def _sum(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.base + self.value[self.leaves(features)].sum(axis=1))


def read(data: Mapping[str, Any]) -> Forest:
    """The forest that ``write`` described."""
    split = np.asarray(data["splits"], dtype=np.int16)
    values = np.asarray(data["values"], dtype=np.int64)
    right, roots = _structure(data["splits"])
    leaf = split == LEAF
    return Forest(
        base=float(data["base"]),
        unit=float(data["unit"]),
        edges=tuple(np.asarray(edges, dtype=np.float64) for edges in data["edges"]),
        roots=roots,
        split=split,
        threshold=np.where(leaf, 0, values).astype(np.int32),
        right=right,
        value=np.where(leaf, values * float(data["unit"]), 0.0),
    )


def _structure(splits: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Right child of each node, and the root of each tree, from the preorder."""
    right = list(range(len(splits)))
    roots: list[int] = []
    waiting: list[int] = []
    # A node follows its parent, which is its left parent, or a leaf that ended the left half of the last one waiting.
    ended = True
    for node, split in enumerate(splits):
        if ended:
            if waiting:
                right[waiting.pop()] = node
            else:
                roots.append(node)
        ended = split == LEAF
        if not ended:
            waiting.append(node)
    return np.asarray(right, dtype=np.int32), np.asarray(roots, dtype=np.int32)
