"""Cache, sampling and attention around models of another package: each row follows from reading the few lines here."""

from __future__ import annotations

from pathlib import Path

from by_rules import ruled_rows

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.reach import Reading, Row


def found(folder: Path, section: str, text: str) -> dict[str, Row]:
    (folder / "run.py").write_text(text)
    rows = ruled_rows(Reading(read_repository(folder, Selection(), lambda at, of, file: None)))
    return {row.symbol: row for row in rows if row.section == section}


ATTENTION = """from enum import Enum

import numpy
import torch


class AttentionKind(Enum):
    WHOLE = 1
    LOCAL = 2


def default_attention(device) -> AttentionKind:
    if device == "cuda":
        return AttentionKind.WHOLE
    return AttentionKind.LOCAL


class Mixer:
    q_proj: torch.Tensor
    k_proj: torch.Tensor
    v_proj: torch.Tensor

    @staticmethod
    def start(width):
        q_proj = torch.ones(width)
        k_proj = torch.ones(width)
        v_proj = torch.ones(width)
        print(width)
        return Mixer(q_proj, k_proj, v_proj)

    def forward(self, q, k, v):
        near = _near_mask(q, 4)
        weights = torch.softmax(torch.matmul(q, k) + near, -1)
        mixed = torch.matmul(weights, v)
        print(mixed)
        return mixed


class Filter:
    def forward(self, x):
        kept = self.edge_mask(x)
        print(kept)
        return x * kept

    def edge_mask(self, x):
        first = x[0]
        print(first)
        last = x[-1]
        print(last)
        return first > last


def _near_mask(x, size):
    places = torch.arange(len(x))
    print(places)
    mask = _ahead_mask(places)
    mask = mask & (places < size)
    return mask


def _ahead_mask(places):
    others = places[None]
    print(others)
    these = places[:, None]
    print(these)
    return others <= these


def by_blocks(q, k, v, most, total):
    for at in range(0, len(k), 8):
        part = numpy.dot(q, k[at : at + 8])
        top = numpy.maximum(most, part)
        weights = numpy.exp(part - top)
        total = total + numpy.dot(weights, v[at : at + 8])
    return total


def main(x):
    default_attention(x)
    Filter().forward(x)
    Mixer.start(4)
    return by_blocks(x, x, x, x, x) + Mixer(x, x, x).forward(x, x, x)
"""


def test_masks_kinds_and_softmax_that_attention_writes_out(tmp_path: Path) -> None:
    rows = found(tmp_path, "attention", ATTENTION)
    # forward has one mask made, and that is made by another; by_blocks has the products and the softmax between them.
    # An enum names the kinds. Mixer.start makes an object; a filter has its own mask.
    assert rows.keys() >= {"Mixer", "Mixer.forward", "_near_mask", "_ahead_mask", "by_blocks", "AttentionKind"}
    assert rows.keys().isdisjoint({"Mixer.start", "Filter.edge_mask", "Filter", "main"})


CACHE = """from typing import NamedTuple

import torch
from other import Model


class Run:
    def __init__(self, model):
        self.model = model
        self.kv_cache = {}
        self.tokens = []

    def step(self, tokens):
        if not self.kv_cache:
            self.kv_cache, self.rest = self.model.hooked()
            print(tokens)
        last = tokens[-1:]
        print(last)
        return self.model(last, kv_cache=self.kv_cache)

    def words(self, tokens):
        first = tokens[0]
        print(first)
        last = tokens[-1]
        print(last)
        return first, last


def forward(x, past_key_values):
    done = past_key_values[0][0].size(1)
    places = torch.arange(done, done + len(x))
    print(places)
    embedded = x + places
    print(embedded)
    return embedded


class Wrapped(Model):
    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **rest):
        if past_key_values is not None:
            input_ids = input_ids[:, -1:]
            print(input_ids)
        return {"input_ids": input_ids, "past_key_values": past_key_values, **rest}


class Ledger:
    seats: torch.Tensor

    def allocate_pages(self, name, count):
        free = torch.nonzero(self.seats == 0)
        first = free[:count]
        print(first)
        taken = self.seats.scatter(0, first, 1)
        print(taken)
        return Ledger(taken), first

    def free_pages(self, name, places):
        left = self.seats.scatter(0, places, 0)
        print(left)
        print(name)
        print(places)
        return Ledger(left)


class PromptCache(NamedTuple):
    keys: torch.Tensor
    values: torch.Tensor


def from_prompt(k, v, most) -> PromptCache:
    last = k[-most:]
    print(last)
    other = v[-most:]
    print(other)
    return PromptCache(keys=last, values=other)


def loop(model, ids):
    given = {}
    while len(ids) < 8:
        out = model(ids, **given)
        given["past_key_values"] = out.past_key_values
        print(out)
    return ids


def main(x):
    ledger, places = Ledger(x).allocate_pages("a", 2)
    ledger.free_pages("a", places)
    from_prompt(x, x, 2)
    forward(x, [(x, x)])
    Run(Wrapped()).step(x)
    return loop(Wrapped(), x)
"""


def test_caches_around_a_model_of_another_package(tmp_path: Path) -> None:
    rows = found(tmp_path, "kv_cache", CACHE)
    # Run replaces the cache that it keeps in step; ``words`` has nothing of it. forward counts by the keys' shape.
    # A ledger is named for nothing, its methods take and free pages. A named tuple has no constructor to call.
    assert rows.keys() >= {"Run", "Run.step", "forward", "Wrapped.prepare_inputs_for_generation", "from_prompt"}
    assert rows.keys() >= {"Ledger", "Ledger.allocate_pages", "Ledger.free_pages", "PromptCache"}
    assert "Run.words" not in rows
    # The loop takes the cache from what the model gave.
    assert rows["loop.past_key_values"].place.line == CACHE[: CACHE.index('given["past')].count("\n") + 1


LONG = "".join(f"        print({number})\n" for number in range(100))
SAMPLING = f"""from dataclasses import dataclass
from enum import Enum

import jax
import torch
from fastapi import FastAPI
from transformers import LogitsProcessor

app = FastAPI()


class SamplerKind(Enum):
    GREEDY = 1
    RANDOM = 2


class SamplingParams:
    temperature: float = 1.0
    top_k: int = 4


class ChatRequest:
    text: str
    temperature: float = 1.0
    max_tokens: int = 16


@dataclass
class RunConfig:
    path: str
    temperature: float = 1.0
    top_k: int = 4


class Batch:
    def add(self, params: SamplingParams):
        self.temperatures.append(params.temperature)
        self.top_ks.append(params.top_k)
        print(params)


class NoRepeats(LogitsProcessor):
    def __call__(self, input_ids, scores):
        scores[input_ids[-1]] = 0
        print(scores)
        return scores


class Table:
    def __init__(self, vocab_size, width):
        self.rows = torch.empty((vocab_size, width))

    def back(self, x):
        print(x)
        size = len(x)
        print(size)
        wide = x.float()
        return wide @ self.rows.T


@app.post("/chat")
def chat(request: ChatRequest):
    batch = Batch()
    batch.add(SamplingParams())
    key = jax.random.PRNGKey(request.seed)
    weights_key = jax.random.PRNGKey(request.other_seed)
    weights = make_weights(weights_key)
    return loop(Table(8, 2), weights, key)


def make_weights(key):
    return jax.random.normal(key, (2, 2))


def loop(table, ids, key):
    while len(ids) < 8:
        logits = table.back(ids)
{LONG}        token = torch.multinomial(torch.softmax(logits, -1), 1)
        other = pick(logits, ids, top_p=0.9)
        print(token, other, key)
    return ids


def pick(logits, temperature, top_p):
    kept = logits[logits > top_p]
    print(kept)
    return torch.multinomial(torch.softmax(kept / temperature, -1), 1)
"""


def test_sampling_around_models_and_requests(tmp_path: Path) -> None:
    rows = found(tmp_path, "sampling", SAMPLING)
    # The enum, the two records, what puts a batch's parameters together, what transformers runs on logits, and the
    # product with the transposed table of the vocabulary. Settings of more than sampling are told by their fields.
    assert rows.keys() >= {"SamplerKind", "SamplingParams", "ChatRequest", "Batch.add", "NoRepeats", "Table.back"}
    assert rows.keys() >= {"RunConfig.temperature", "RunConfig.top_k"}
    assert "RunConfig" not in rows
    # A function that draws hands on one parameter that nobody sets.
    assert rows["loop.top_p"].place.line == SAMPLING[: SAMPLING.index("other = pick")].count("\n") + 1
    # The key goes to the loop that draws.
    assert rows["chat"].role == "seed"
    assert "make_weights" not in rows
