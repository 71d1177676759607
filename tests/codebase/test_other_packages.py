"""What another package, a graph or a state does in place of own code: each row follows from the few lines here."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.reach import Reading
from lmp.codebase.rows import likely


def found(folder: Path, section: str, text: str, name: str = "run.py") -> set[str]:
    (folder / name).write_text(text)
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    return {row.symbol for row in likely(reading).ruled[section].values()}


CHOICE = """from distant import Model, Engine, SamplingParams
from far import DynamicCache


class Own:
    def __init__(self, path, attn_implementation, n_ctx=0, temperature=0, top_p=0, top_k=0):
        self.path = path


def by_word(path):
    return Model.read(path, attn_implementation="eager")


def by_key(path):
    kwargs = {"path": path}
    kwargs["attn_implementation"] = "eager"
    return Model.read(**kwargs)


def by_setting(path, config):
    config._attn_implementation = "eager"
    return Model.read(path, config)


def own(path):
    return Own(path, attn_implementation="eager", n_ctx=8, temperature=0.5, top_p=0.5, top_k=4)


def size_by_word(path):
    return Engine(path, gpu_memory_utilization=0.5)


def size_by_key(path):
    return Engine(**{"path": path, "n_ctx": 64})


def draw_by_words(engine, prompt, heat):
    return engine.run(prompt, SamplingParams(temperature=heat, top_p=0.5, top_k=4))


def draw_by_keys(post, prompt, heat):
    return post({"prompt": prompt, "temperature": heat, "top_p": 0.5, "max_tokens": 4})


def few(post, prompt, heat):
    return post({"prompt": prompt, "temperature": heat})


def whole(model, ids):
    cache = DynamicCache()
    model(ids, past=cache)
    return cache


def each(states):
    return [DynamicCache(state) for state in states]


class ShortLogitsProcessor:
    def __call__(self, ids, logits):
        return logits - ids


class ImageProcessor:
    def __call__(self, ids, logits):
        return logits - ids
"""


@pytest.mark.parametrize(
    ("section", "rows"),
    [
        # The setting has one name wherever it is given; own code that takes it is no other package.
        ("attention", {"by_word", "by_key", "by_setting"}),
        # Two tell how large a cache is. One that is made outside of loops is that of all layers.
        ("kv_cache", {"size_by_word", "size_by_key", "whole"}),
        # Three parameters, one of them of the draw, are handed over. A step is named so and takes logits.
        ("sampling", {"draw_by_words", "draw_by_keys", "ShortLogitsProcessor"}),
    ],
)
def test_what_is_told_to_another_package(tmp_path: Path, section: str, rows: set[str]) -> None:
    assert found(tmp_path, section, CHOICE) == rows


GRAPH = """
void layer_eval(struct context *ctx, struct tensor *x, struct tensor *past) {
  for (int i = 0; i < 4; ++i) {
    struct tensor *q = graph_mul_mat(ctx, wq, x);
    graph_expand(ctx, graph_cpy(ctx, x, past));
    struct tensor *scores = graph_mul_mat(ctx, past, q);
    struct tensor *weights = graph_soft_max(ctx, scores);
    x = graph_mul_mat(ctx, past, weights);
  }
}

void feed_eval(struct context *ctx, struct tensor *x) {
  for (int i = 0; i < 4; ++i) {
    x = graph_mul_mat(ctx, up, x);
    x = graph_mul_mat(ctx, down, x);
  }
}
"""


def test_attention_within_a_graph_of_another_language(tmp_path: Path) -> None:
    # Products around a softmax attend, and the copy fills the cache; products alone do neither.
    assert found(tmp_path, "attention", GRAPH, "graph.cpp") == {"layer_eval"}
    assert found(tmp_path, "kv_cache", GRAPH, "graph.cpp") == {"layer_eval"}


STATE = """import torch


class Model:
    def forward(self, x, state):
        for at in range(8):
            x, state[at] = self.mix(x, state[at])
            x = self.first(x)
        return x, state

    def mix(self, x, state):
        k = torch.sigmoid(x)
        v = torch.tanh(x)
        r = torch.exp(x)
        state = state * r + k * v
        out = r * state
        return out, state

    def first(self, x):
        y = torch.sigmoid(x)
        z = torch.tanh(y)
        return z


def run(model: Model, x, state):
    for at in range(4):
        x, state = model.forward(x, state)
    return x
"""


def test_a_recurrent_state_stands_in_for_attention(tmp_path: Path) -> None:
    # ``forward`` only hands the state on, ``first`` has none.
    assert found(tmp_path, "attention", STATE) == {"Model.mix"}
