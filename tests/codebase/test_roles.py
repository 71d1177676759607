"""Parts by what code does: names that say nothing find them, and names alone do not."""

from __future__ import annotations

from pathlib import Path

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.pitfalls import pitfalls
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.spine import decode_loops
from lmp.codebase.rows import every_row

ENGINE = """import torch
import torch.nn.functional as F


class Zebra(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.k_cache = torch.zeros(8, 4, 16)

    def forward(self, x, at):
        self.k_cache[at] = x
        return F.scaled_dot_product_attention(x, self.k_cache, self.k_cache)


class Pool:
    def __init__(self, n):
        self.state = torch.zeros(n)

    def alloc(self, n):
        return self.state[:n]

    def free(self, at):
        self.state[at] = 0


class Walrus:
    def __init__(self):
        self.waiting = []
        self.zebra = Zebra()

    def add(self, request):
        self.waiting.append(request)

    def go(self):
        while True:
            request = self.waiting.pop(0)
            out = self.zebra(request, 0)
            self.pick(out)

    def pick(self, logits):
        return torch.multinomial(logits, 1)


def main():
    Walrus().go()


if __name__ == "__main__":
    main()
"""


def read(tmp_path: Path, text: str) -> Reading:
    (tmp_path / "m.py").write_text(text)
    return Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))


def symbols(rows: list[Row], section: str) -> set[str]:
    return {row.symbol for row in rows if row.section == section}


def test_parts_without_telling_names(tmp_path: Path) -> None:
    reading = read(tmp_path, ENGINE)
    rows = every_row(reading)
    assert "Zebra" in symbols(rows, "attention")
    assert {"Pool", "Pool.alloc", "Pool.free"} <= symbols(rows, "kv_cache")
    assert {"Walrus", "Walrus.add", "Walrus.go"} <= symbols(rows, "scheduler")
    assert symbols(rows, "sampling") == {"Walrus.pick"}
    assert "main" in symbols(rows, "entry_points")
    assert decode_loops(reading)[0].qualname == "Walrus.go"


def test_names_alone_play_no_part(tmp_path: Path) -> None:
    text = "class AttentionConfig:\n    size = 1\n\n\ndef attention_name(x):\n    return x\n"
    rows = every_row(read(tmp_path, text))
    assert symbols(rows, "attention") == set()


PITFALLS = """import os
import argparse


async def healthy():
    return True


def probe():
    if healthy():
        return 200


def made(items, more):
    kept = items.extend(more)
    return kept


def switch():
    if os.environ.get("FAST"):
        return 1


def warm(temperature):
    scale = temperature if temperature > 0 else 1.0
    return scale


class Model:
    def __init__(self, size, **kwargs):
        self.size = size


parser = argparse.ArgumentParser()
parser.add_argument("--nccl_port", type=int, default=28765)
parser.add_argument("--table", default="./table.json")
# TODO: this is slow
"""


def test_pitfalls_have_a_form(tmp_path: Path) -> None:
    found = pitfalls(read(tmp_path, PITFALLS))
    assert {each.symbol for each in found} == {
        "probe",
        "made",
        "switch",
        "warm",
        "Model.__init__",
        "--nccl_port",
        "--table",
    }
    assert all(each.trigger and each.effect and each.fix for each in found)
    # The cause is the line that does it, the place the definition: ``def made`` and the line below it.
    made = next(each for each in found if each.symbol == "made")
    lines = PITFALLS.split("\n")
    assert lines[made.place.line - 1] == "def made(items, more):"
    assert lines[made.cause.line - 1] == "    kept = items.extend(more)"
