"""Caches and attention in makes that differ: each row follows from reading the few lines here."""

from __future__ import annotations

from pathlib import Path

from by_rules import ruled_rows

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.cache import cache_rows
from lmp.codebase.roles.reach import Reading


def found(folder: Path, section: str, text: str) -> set[str]:
    (folder / "run.py").write_text(text)
    rows = ruled_rows(Reading(read_repository(folder, Selection(), lambda at, of, file: None)))
    return {row.symbol for row in rows if row.section == section}


STATE = """import torch

LayerCache = dict[str, torch.Tensor]


class State:
    cache: dict[str, torch.Tensor] | None
    cache_length: int = 64
    use_cache: bool = True


    def drop(self, rows):
        kept = [row for row in rows if row]
        if not kept:
            raise ValueError(rows)
        first = kept[0]
        self.cache = {"k": self.cache["k"][first]}
        return first

    def left(self, rows):
        return rows


class TheCache:
    cache: LayerCache

    def cut(self, first):
        if first < 0:
            raise ValueError(first)
        last = first + 1
        size = last - first
        print(size)
        return TheCache(self.cache, last, size)


class Given:
    def __init__(self, cache):
        self.cache = cache


class PairCache:
    def __init__(self, count):
        self.keys = []
        self.values = []
        self.key_dtype = torch.half


def attend(q, k, v, cache):
    keys = torch.scatter(cache["k"], 0, q, k)
    values = cache["v"]
    cache["v"][q] = v
    scores = torch.matmul(q, keys)
    weights = torch.softmax(scores, -1)
    mixed = torch.matmul(weights, values)
    return mixed
"""


def test_where_caches_are_kept(tmp_path: Path) -> None:
    rows = found(tmp_path, "kv_cache", STATE)
    # LayerCache names the type of a cache, and TheCache has one. A state says that it has a cache and how long it is,
    # and replaces it: it is one.
    # A cache of pairs has both. Given keeps what is another's; ``use_cache`` and ``key_dtype`` hold no cache.
    # ``cache["v"]`` is of values that are kept.
    assert rows == {
        *("LayerCache", "TheCache", "TheCache.cache", "TheCache.cut"),
        *("State", "State.cache", "State.cache_length", "State.drop"),
        *("PairCache", "PairCache.keys", "PairCache.values", "attend"),
    }


FAR = """from distant import make_engine


def load(path, kind):
    if not path:
        raise ValueError(path)
    engine = make_engine(path)
    print(kind)
    if kind:
        engine.check()
    return engine


class Batcher:
    def __init__(self, engine):
        self.engine = engine
        self.waiting = []

    def admit(self, requests):
        left = self.engine.free_blocks
        taken = []
        for request in requests:
            if left > 0:
                left -= 1
                taken.append(request)
        return taken

    def finish(self, requests):
        done = []
        for request in requests:
            if request.ended:
                self.engine.flush(request.uid)
                done.append(request)
        return done

    def name(self):
        text = self.engine.name.lower()
        if not text:
            text = "none"
        words = text.split()
        first = words[0]
        return first


def main():
    batcher = Batcher(load("a", 1))
    batcher.finish(batcher.admit([1, 2]))
    batcher.name()
"""


def test_a_cache_in_another_package(tmp_path: Path) -> None:
    # The engine tells free blocks, so it holds the cache. What reads its name asks nothing of that.
    assert found(tmp_path, "kv_cache", FAR) == {"load", "Batcher.admit", "Batcher.finish"}


ELSEWHERE = """from distant import Model


def load(path, kind):
    if not path:
        raise ValueError(path)
    model = Model.read(path, attn_implementation=kind)
    print(kind)
    print(path)
    return model


def patch(model, forward):
    layers = model.layers
    if not layers:
        raise ValueError(model)
    for layer in layers:
        attention = layer.first
        attention.forward = forward
    return layers


def main():
    model = load("a", 1)
    return patch(model, print)
"""


def test_attention_of_another_package(tmp_path: Path) -> None:
    # Nothing here attends: load says which attention the model takes, and patch changes the modules of it.
    assert found(tmp_path, "attention", ELSEWHERE) == {"load", "patch"}
    text = (
        "import torch\n\n\ndef attend(q, k, v):\n    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
    )
    # Where the code attends itself, a module that is changed may be its own.
    assert found(tmp_path, "attention", text + ELSEWHERE) & {"load", "patch"} == {"load"}


MASKS = """import torch
import torch.nn.functional as F


class Attention:
    def forward(self, x, places):
        mask = _sliding_mask(places, 4)
        return F.scaled_dot_product_attention(x, x, x, mask)


def _sliding_mask(places, size):
    others = places[..., None, :]
    these = places[..., :, None]
    mask = others > these - size
    mask = mask * (others < these + size)
    return mask


def make_attention_mask(kept, images):
    mask = _causal_mask(kept)
    if images is not None:
        mask = mask | images
    shape = mask.shape
    print(shape)
    return mask


def _causal_mask(kept):
    size = kept.shape[-1]
    mask = torch.tril(torch.ones(size, size))
    wide = kept[..., None, :]
    print(size)
    print(wide)
    return wide * mask


class State:
    def attention_mask(self):
        mask = self.whole
        if mask is None:
            raise ValueError(self)
        size = self.size
        print(size)
        return mask[:size]


def main(x):
    make_attention_mask(x, x)
    State().attention_mask()
    return Attention().forward(x, x)
"""


def test_masks_of_what_may_be_attended_to(tmp_path: Path) -> None:
    rows = found(tmp_path, "attention", MASKS)
    # Attention calls the one that its module keeps to itself; _causal_mask is a part of the other. State makes none: it
    # takes nothing to make one from.
    assert rows & {"_sliding_mask", "make_attention_mask", "_causal_mask", "State.attention_mask"} == {
        "_sliding_mask",
        "make_attention_mask",
    }


PAGED = """import torch


class SlotLender:
    def __init__(self, count):
        self.left = list(range(count))
        self.taken = {}

    def allocate(self, name, count):
        if count > len(self.left):
            raise MemoryError(name)
        given = self.left[:count]
        self.left = self.left[count:]
        self.taken[name] = given
        print(given)
        return given

    def free(self, name):
        self.left += self.taken.pop(name)

class Desk:
    def allocate(self, name):
        return name

    def free(self, name):
        return name


class Attention:
    def __init__(self, size):
        self.k_cache = torch.zeros(size)
        self.v_cache = torch.zeros(size)
        self.use_cache = True


def main(x):
    lender = SlotLender(4)
    lender.allocate("a", 1)
    lender.free("a")
    Desk().free(lender)
    return Attention(4)
"""


def test_numbers_of_places(tmp_path: Path) -> None:
    # A lender of slots keeps no tensor, and main asks it for some; a desk lends no places. Attention makes
    # both tensors.
    assert found(tmp_path, "kv_cache", PAGED) == {
        *("main", "SlotLender", "SlotLender.allocate", "SlotLender.free"),
        *("Attention.__init__", "Attention.k_cache", "Attention.v_cache"),
    }


STORE = """import torch


class Shelf(dict):
    def clear_all(self):
        for key in list(self):
            del self[key]
        print(len(self))
        size = 0
        return size


class HasShelf:
    def attach(self, shelf: Shelf):
        self.shelf = shelf

    def mine(self):
        if self.shelf is None:
            return None
        name = id(self)
        print(name)
        print(self)
        return self.shelf[name]


class Mix(HasShelf):
    def forward(self, q, k, v):
        found = self.mine()
        k_cache = found["key"]
        v_cache = found["value"]
        return torch.nn.functional.scaled_dot_product_attention(q, k_cache, v_cache)


class Written:
    def forward(self, cache, k, v, at):
        new_k = cache.k.at[at].set(k)
        new_v = cache.v.at[at].set(v)
        first = at[0]
        print(first)
        print(new_k)
        return new_k, new_v


class Plain:
    def forward(self, q):
        found = self.rows()
        first = found["key"]
        return first

    def rows(self):
        return {}


def main(x):
    shelf = Shelf()
    shelf.clear_all()
    Mix().attach(shelf)
    Mix().forward(x, x, x)
    Written().forward(x, x, x, x)
    return Plain().forward(x)
"""


def test_keys_and_values_in_stores_and_in_what_is_given_back(tmp_path: Path) -> None:
    # Mix takes keys and values from what HasShelf gives it: an element of a Shelf. Written gives a cache with new ones.
    assert found(tmp_path, "kv_cache", STORE) >= {
        "Shelf",
        "Shelf.clear_all",
        "HasShelf",
        "HasShelf.mine",
        "Written.forward",
    }
    assert not {each for each in found(tmp_path, "kv_cache", STORE) if "Plain" in each}


RECURRENT = """import torch


class Mix:
    def step(self, x, conv_state, ssm_state):
        conv_state.copy_(torch.roll(conv_state, -1))
        conv_state[:, -1] = x
        y = torch.sum(conv_state)
        ssm_state.copy_(ssm_state * 2 + y)
        first = y[0]
        return first


class Other:
    def step(self, x, state):
        state.copy_(torch.roll(state, -1))
        first = x[0]
        last = x[-1]
        print(first)
        print(last)
        return state


def run(x, conv_state, ssm_state):
    for at in range(8):
        x = Mix().step(x, conv_state, ssm_state)
    return Other().step(x, x)
"""


def test_a_state_that_a_recurrent_layer_carries(tmp_path: Path) -> None:
    # A layer writes its states each step; any other state is none of a cache.
    assert found(tmp_path, "kv_cache", RECURRENT) == {"Mix.step"}


INNER = """import mlx.core as mx
import torch


class Mix:
    def __init__(self, size):
        self.size = size
        self.register_buffer("key_cache", torch.zeros(size))
        self.register_buffer("value_cache", torch.zeros(size))

    def __call__(self, x, cache):
        keys, values = x, x
        keys = mx.concatenate([cache[0], keys])
        values = mx.concatenate([cache[1], values])
        out = mx.fast.scaled_dot_product_attention(x, keys, values)
        return out, (keys, values)


class Layer:
    def __init__(self):
        self.mix = Mix(8)

    def __call__(self, x, cache):
        first = x[0]
        last = x[-1]
        out, cache = self.mix(x, cache)
        print(first, last)
        return out, cache


class Net:
    def __init__(self, size):
        self.layers = [Layer() for _ in range(size)]

    def __call__(self, x, cache=None):
        if cache is None:
            cache = [None] * len(self.layers)
        for at, layer in enumerate(self.layers):
            x, cache[at] = layer(x, cache[at])
        return self.head(x), cache


def steps(model: Net, ids, temperature, logits_processor):
    cache = None

    def sample(logits):
        if temperature == 0:
            return mx.argmax(logits)
        return mx.random.categorical(logits / temperature)

    def one(ids):
        nonlocal cache
        logits, cache = model(ids, cache=cache)
        logits = logits_processor(ids, logits)
        ids = sample(logits)
        print(ids)
        return ids

    while True:
        ids = one(ids)
        yield ids


def main(args):
    if args.seed < 0:
        raise ValueError(args)
    mx.random.seed(args.seed)
    for each in steps(Net(2), args.ids, 0.5, None):
        print(each)


class Handler:
    def do_post(self):
        self.heat = self.body.get("temperature", 1.0)
        self.top_p = self.body.get("top_p", 1.0)
        self.most = self.body.get("max_tokens", 100)
        print(self.most)
        for each in steps(Net(2), self.body["ids"], self.heat, None):
            print(each)
"""


def test_who_gives_the_cache_to_a_call_and_takes_it_back(tmp_path: Path) -> None:
    # Net does so for each layer and the inner function for the model; a layer only passes it on. Mix joins new keys
    # and values to the earlier ones, and makes its own by the names that it registers them under.
    assert found(tmp_path, "kv_cache", INNER) == {"Mix.__init__", "Mix.__call__", "Net.__call__", "steps", "steps.one"}


def test_a_draw_in_a_function_of_its_own(tmp_path: Path) -> None:
    # Both inner functions work on logits. main seeds what draws; the request's parameters are read by their names.
    assert found(tmp_path, "sampling", INNER) >= {"steps", "steps.one", "steps.sample", "Handler.do_post", "main"}


OUTSIDE = """import flashinfer
import torch


class Layout:
    def __init__(self, starts, wrapper):
        self.starts = starts
        self.wrapper = wrapper


def make_wrapper(space):
    if space is None:
        space = torch.empty(8)
    print(space)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space)
    return wrapper


def attend(q, k, v, layout: Layout):
    wrapper = make_wrapper(None)
    first = q[layout.starts]
    print(first)
    return wrapper.run(q, (k, v))


def main(x):
    return attend(x, x, x, Layout(x, None))
"""


def test_what_a_function_of_attention_is_given(tmp_path: Path) -> None:
    # No class attends: the function, and the class of what it is given.
    assert found(tmp_path, "attention", OUTSIDE) == {"attend", "Layout"}


TABLE = """class Run:
    def __init__(self):
        self.memory = {}
        self.names = {}

    def swap(self, order):
        for each in self.memory:
            first = self.memory[each]
            self.memory[each] = first[order]


class Layer:
    def fetch(self, run, make, size):
        if self.number not in run.memory:
            first_key = make(size)
            first_value = make(size)
            run.memory[self.number] = first_key, first_value
        old_key, old_value = run.memory[self.number]
        return old_key, old_value

    def name(self, run, text):
        run.names[text] = (text, 1)
        word, count = run.names[text]
        return word


class Other:
    def __init__(self):
        self.names = {}
"""


def test_what_keeps_keys_and_values_of_the_layers(tmp_path: Path) -> None:
    # A layer takes its keys and values from the table ``memory`` of a run, and puts the first ones there. The table of
    # names has pairs too, but of other things.
    assert found(tmp_path, "kv_cache", TABLE) == {"Run", "Run.swap", "Layer.fetch"}


ATTENTION_STATES = """from abc import abstractmethod

import torch
from torch.nn.functional import scaled_dot_product_attention


class AttentionState:
    @abstractmethod
    def append(self, k, v):
        pass


class FullAttentionState(AttentionState):
    def __init__(self, k, v, length):
        self._k = k.new_empty((1, length, 8))
        self._v = v.new_empty((1, length, 8))
        self._at = 0

    def append(self, k, v):
        self._k[:, self._at] = k
        self._v[:, self._at] = v
        self._at += 1


class StaticAttentionState(AttentionState):
    def __init__(self, k, v):
        self._k = k
        self._v = v

    def append(self, k, v):
        raise RuntimeError(k, v)


class Attention(torch.nn.Module):
    def forward(self, q, k, v, state):
        state.append(k, v)
        return scaled_dot_product_attention(q, k, v)
"""


def test_keys_and_values_that_an_index_write_fills_are_a_cache_whatever_its_name(tmp_path: Path) -> None:
    """And so is what says how it is filled, and what else builds on that."""
    rows = found(tmp_path, "kv_cache", ATTENTION_STATES)
    assert {"FullAttentionState", "FullAttentionState.append", "AttentionState", "StaticAttentionState"} <= rows
    # Without the writes, its keys and values are those of any module.
    plain = ATTENTION_STATES.replace("self._k[:, self._at] = k", "pass").replace("self._v[:, self._at] = v", "pass")
    assert not {each for each in found(tmp_path, "kv_cache", plain) if "AttentionState" in each}


def test_a_request_that_asks_the_allocator_is_no_allocator(tmp_path: Path) -> None:
    text = (
        "class PageTable:\n    def __init__(self, size):\n        self.free = list(range(size))\n\n"
        "    def allocate_pages(self, count):\n        return [self.free.pop() for _ in range(count)]\n\n"
        "    def free_pages(self, pages):\n        self.free += pages\n\n\n"
        "class Job:\n    def __init__(self, table: PageTable):\n        self.table = table\n\n"
        "    def allocate_pages(self):\n        self.pages = self.table.allocate_pages(2)\n\n"
        "    def free_pages(self):\n        self.table.free_pages(self.pages)\n"
    )
    assert "Job" not in found(tmp_path, "kv_cache", text)
    assert "PageTable" in found(tmp_path, "kv_cache", text)
    # What is no request may be an allocator on top of another one.
    assert "Manager" in found(tmp_path, "kv_cache", text.replace("class Job", "class Manager"))


def test_members_of_a_struct_of_cpp_that_keep_keys_and_values_stand_with_their_lines(tmp_path: Path) -> None:
    # Keys and values of earlier tokens stand in lines 3 and 4; weights of line 2 come in pairs too, and keep nothing.
    text = "struct toy_model {\n  tensor * w_k; tensor * w_v;\n  tensor * memory_k;\n  tensor * memory_v;\n};\n"
    (tmp_path / "toy.cpp").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    found = {(row.symbol, row.place.line) for row in cache_rows(reading) if row.role == "layout"}
    assert found == {("toy_model.memory_k", 3), ("toy_model.memory_v", 4)}
