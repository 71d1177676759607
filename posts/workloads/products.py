"""The matrix products of a decode step of four_layers.json, by torch and by products.c, beside a plain read.

products.py FLOOR PRODUCTS     the libraries of floor.c and products.c; times are as in floor.py
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from floor import HERE, loaded, row, timed

ROUNDS = 10


def shapes() -> list[tuple[int, int]]:
    """Outputs and inputs of each linear layer, in the order of the step."""
    config = json.loads((HERE / "four_layers.json").read_text())
    hidden, middle, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    layer = [(queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries)]
    layer += [(middle, hidden), (middle, hidden), (hidden, middle)]
    return layer * config["num_hidden_layers"] + [(config["vocab_size"], hidden)]


def main() -> None:
    import torch
    from torch.nn.functional import linear

    read = loaded(Path(sys.argv[1]))
    own = ctypes.CDLL(sys.argv[2]).products
    own.argtypes = (ctypes.c_void_p,) * 3 + (ctypes.c_size_t,) * 3
    torch.set_num_threads(1)
    torch.manual_seed(0)
    weights = [torch.randn(outputs, inputs) / inputs**0.5 for outputs, inputs in shapes()]

    def read_all() -> None:
        for w in weights:
            read(w.data_ptr(), w.numel() * 4, 1)

    reads = []
    for rows in (1, 2, 4):
        inputs = {w.shape[1]: torch.randn(rows, w.shape[1]) for w in weights}
        outputs = [torch.empty(rows, w.shape[0]) for w in weights]

        def by_torch(inputs: dict[int, torch.Tensor] = inputs) -> list[torch.Tensor]:
            return [linear(inputs[w.shape[1]], w) for w in weights]

        def by_hand(
            inputs: dict[int, torch.Tensor] = inputs, outputs: list[torch.Tensor] = outputs, rows: int = rows
        ) -> None:
            for w, y in zip(weights, outputs, strict=True):
                if own(w.data_ptr(), inputs[w.shape[1]].data_ptr(), y.data_ptr(), *w.shape, rows):
                    sys.exit(f"products.c: no code for {tuple(w.shape)} and {rows} rows")

        times = [(timed(by_torch), timed(by_hand), timed(read_all)) for _ in range(ROUNDS + 1)][1:]
        expected = by_torch()
        worst = max(float((a - b).abs().max()) for a, b in zip(expected, outputs, strict=True))
        row("torch", rows, [t[0] for t in times])
        row("own", rows, [t[1] for t in times], largest_difference=worst)
        reads += [t[2] for t in times]
    row("read", 0, reads, weight_bytes=sum(w.numel() * 4 for w in weights))


if __name__ == "__main__":
    main()
