"""Sampling and order of work in makes that differ: each row follows from reading the few lines here."""

from __future__ import annotations

from pathlib import Path

from by_rules import ruled_rows

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.reach import Reading
from lmp.codebase.roles.scheduling import scheduler_rows
from lmp.codebase.roles.spine import decode_loops, stepping


def rows(folder: Path, files: dict[str, str], section: str) -> set[tuple[str, str]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    return {(row.role, row.symbol) for row in ruled_rows(reading) if row.section == section}


FLAX = """import dataclasses
import functools

import jax
import jax.numpy as jnp


class SamplingMethod:
    def choose(self, logits, key):
        raise NotImplementedError


class Greedy(SamplingMethod):
    def choose(self, logits, key):
        return jnp.argmax(logits, -1)


class Table:
    def setup(self):
        self.table = self.param("table", jax.nn.initializers.normal(), (self.vocab_size, self.width))

    def decode(self, x):
        return jnp.dot(x, self.table.T)


class Net:
    def setup(self):
        self.embedder = Table(self.config)

    def __call__(self, ids):
        x = jax.nn.dot_product_attention(ids, ids, ids)
        logits = self.embedder.decode(x)
        return logits


@dataclasses.dataclass
class Sampler:
    net: Net
    sampling: SamplingMethod
    width: int
    stop_tokens: tuple = ()
    max_out_length: int = 8

    def sample(self, prompts, seed):
        ids = self.pad_all(prompts)
        key = as_key(seed)
        return self.loop(ids, key)

    def pad_all(self, prompts):
        longest = max(len(each) for each in prompts)
        longest = to_bucket(longest, (8, 16))
        return pad_to(prompts, longest)

    def loop(self, ids, key):
        def go_on(state):
            return ~jnp.all(state.done)

        step = functools.partial(self.step, key=key)
        return jax.lax.while_loop(go_on, step, ids)

    def step(self, ids, key):
        logits = self.net(ids)
        return self.sampling.choose(logits, key)


def pad_to(prompts, length):
    found = []
    for each in prompts:
        short = length - len(each)
        found.append(each + [0] * short)
    return found


def to_bucket(length, buckets):
    for each in buckets:
        if length <= each:
            return each
    return length


def as_key(seed):
    if seed is None:
        seed = 0
    if seed < 0:
        raise ValueError(seed)
    return jax.random.key(seed)
"""


def test_an_object_that_draws(tmp_path: Path) -> None:
    # A way to draw is named by its class above. The sampler is made with it, with what ends a text and a limit; its
    # width is none. The table has a row for each token, and the net takes its logits from there.
    assert rows(tmp_path, {"flow/run.py": FLAX}, "sampling") >= {
        ("sample", "Greedy"),
        ("logits", "Table.decode"),
        ("logits", "Net.__call__"),
        ("parameters", "Sampler.sampling"),
        ("parameters", "Sampler.stop_tokens"),
        ("parameters", "Sampler.max_out_length"),
        ("sample", "Sampler.sample"),
        ("sample", "Sampler.step"),
        ("seed", "as_key"),
    }
    assert ("parameters", "Sampler.width") not in rows(tmp_path, {}, "sampling")


def test_a_batch_that_waits_for_its_longest(tmp_path: Path) -> None:
    # Prompts are padded to one length, which is that of a bucket; the loop ends when all are done, and its caller has
    # them.
    assert rows(tmp_path, {"flow/run.py": FLAX}, "scheduler") == {
        ("batch", "Sampler.pad_all"),
        ("batch", "pad_to"),
        ("batch", "to_bucket"),
        ("batch", "Sampler.loop"),
        ("batch", "Sampler.sample"),
    }


HANDED = """import torch


class Model:
    def __init__(self, net, sample_fn):
        self.net = net
        self.sample = sample_fn

    def generate(self, ids):
        for _ in range(9):
            logits = self.net(ids)
            probs = torch.softmax(logits, -1)
            ids = self.sample(probs)
            print(ids)
        return ids


def load(net, sample_fn):
    for each in net.parameters():
        each.freeze()
    net.eval()
    for each in net.buffers():
        each.freeze()
    return Model(net, sample_fn)
"""


def test_a_draw_that_a_caller_hands_in(tmp_path: Path) -> None:
    # A function that draws is an argument; the object's loop gives it probabilities.
    assert rows(tmp_path, {"hand/in.py": HANDED}, "sampling") == {
        ("parameters", "load.sample_fn"),
        ("sample", "Model.generate"),
    }


STEPS = """import torch
from torch.distributions import Categorical


class TopLogits:
    def __init__(self, top_k):
        self.top_k = top_k

    def forward(self, logits):
        least = torch.topk(logits, self.top_k)[0][-1]
        logits[logits < least] = 0
        return logits


class LogitsSampler:
    def __call__(self, logits):
        logits = logits.float()
        return Categorical(logits=logits).sample()


def run_sampler(input_logits, steps):
    if not steps:
        raise ValueError(steps)
    for each in steps.values():
        input_logits = each(input_logits)
        print(input_logits)
    return input_logits


def draw(input_logits, steps):
    return run_sampler(input_logits, steps)
"""


def test_steps_that_a_request_asks_for(tmp_path: Path) -> None:
    # A distribution draws, and so does a sampler that takes logits.
    assert rows(tmp_path, {"step/s.py": STEPS}, "sampling") >= {
        ("sample", "LogitsSampler"),
        ("sample", "run_sampler"),
    }


QUEUE = """import queue

import torch.nn.functional as F


class Batcher:
    def __init__(self, net):
        self.net = net
        self.request_queue = queue.Queue()
        self.buffer = []

    def step(self):
        for request in self.buffer:
            F.scaled_dot_product_attention(request, request, request)

    def schedule(self):
        while not self.request_queue.empty():
            self.buffer.append(self.request_queue.get())

    def reset_status(self):
        kept = []
        while not self.request_queue.empty():
            kept.append(self.request_queue.get())
        self.buffer = kept


class Server(Batcher):
    def __call__(self):
        while True:
            self.schedule()
            self.step()
            if not self.buffer:
                print("nothing waits")
                break

    def put_request(self, request):
        if request is None:
            raise ValueError(request)
        request.age = 0
        request.place = 0
        self.request_queue.put(request)

    def name_of(self, request):
        name = str(request)
        if not name:
            raise ValueError(request)
        name = name.strip()
        return name
"""


def test_a_class_that_builds_on_one_with_a_queue(tmp_path: Path) -> None:
    # The queue itself, what moves requests in either class, and the loop that a server runs for ever.
    found = rows(tmp_path, {"keep/q.py": QUEUE}, "scheduler")
    assert {symbol for _, symbol in found} >= {
        "Batcher.request_queue",
        "Batcher.schedule",
        "Batcher.reset_status",
        "Server.__call__",
        "Server.put_request",
    }
    assert "Server.name_of" not in {symbol for _, symbol in found}


ORDERS = """import queue
import torch.nn.functional as F


class Places:
    def __init__(self):
        self.free_queue = queue.Queue()

    def take_places(self, request):
        return self.free_queue.get()


class Sequences:
    def __init__(self):
        self.waiting = []

    def allocate(self, request):
        self.waiting.append(request)

    def free(self, request):
        self.waiting.pop()


class OrderScheduler:
    def __init__(self):
        self.places = Places()
        self.sequences = Sequences()
        self.running = []

    def add_request(self, request):
        self.running.append(request)

    def schedule(self):
        for request in self.running:
            self._allocate_inputs(request)
        return self.running

    def _allocate_inputs(self, request):
        self.sequences.allocate(request)
        return self.places.take_places(request)

    def _free_request(self, request):
        self.running.pop()
        self.sequences.free(request)


class Engine:
    def __init__(self):
        self.order = OrderScheduler()
        self.output_queue = queue.Queue()

    def turn(self, request):
        self.order.add_request(request)
        for each in self.order.schedule():
            F.scaled_dot_product_attention(each, each, each)
            self.output_queue.put(each)
"""


def test_a_scheduler_that_allocates_for_its_requests_is_no_allocator(tmp_path: Path) -> None:
    # It keeps what runs and allocates for itself alone. Others ask ``Sequences`` for places; ``Places`` keeps a queue
    # of what is free, ``Engine`` one of answers: no requests wait in them.
    found = rows(tmp_path, {"order/run.py": ORDERS}, "scheduler")
    assert {symbol for _, symbol in found} == {
        "OrderScheduler",
        "OrderScheduler.add_request",
        "OrderScheduler.schedule",
    }


LIMITED = """import asyncio


class Client:
    async def ask(self, text):
        async with self.places:
            return await self.post(text)

    async def ask_all(self, texts, most):
        self.places = asyncio.Semaphore(most)
        return await asyncio.gather(*[self.ask(text) for text in texts])

    async def post(self, text):
        await asyncio.sleep(1)
        return text


async def bounded(client, semaphore):
    async with semaphore:
        return await client.post("")


async def take_semaphore(client):
    await client.semaphore.acquire()


async def answer(client):
    await take_semaphore(client)
    return await client.post("")
"""


def limits(folder: Path, text: str) -> set[tuple[str, str]]:
    """What rules find, short or not."""
    folder.mkdir()
    (folder / "client.py").write_text(text)
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    return {(row.role, row.symbol) for row in scheduler_rows(reading)}


def test_a_semaphore_that_is_entered_limits_what_is_in_flight(tmp_path: Path) -> None:
    # What makes it, what enters the one that its object keeps or that it is given, and what acquires one.
    # ``answer`` only calls that.
    found = limits(tmp_path / "client", LIMITED)
    assert found == {
        ("admission", "Client.ask"),
        ("admission", "Client.ask_all"),
        ("admission", "bounded"),
        ("admission", "take_semaphore"),
    }
    # Where tokens are drawn, only what acquires one is told: the others may limit files or connections.
    draw = "import torch\n\n\ndef draw(logits):\n    return torch.multinomial(torch.softmax(logits, -1), 1)\n"
    assert limits(tmp_path / "engine", LIMITED + draw) == {("admission", "take_semaphore")}


SHRINKS = """import torch


class State:
    def __init__(self, ids):
        self.ids = ids
        self.places = ids

    def drop_ended(self, ended):
        going_on = ended.logical_not()
        self.ids = self.ids[going_on]
        self.places = self.places[going_on]
        print(going_on)
        return going_on


def generate(model, state):
    while True:
        logits = model(state.ids)
        ids = torch.multinomial(torch.softmax(logits, -1), 1)
        state.drop_ended(ids == 2)
"""


def test_a_batch_that_shrinks(tmp_path: Path) -> None:
    assert ("batch", "State.drop_ended") in rows(tmp_path, {"batch/state.py": SHRINKS}, "scheduler")


TRAINS_AND_SERVES = """import torch


def microbatched(batch, size):
    for start in range(0, len(batch), size):
        yield batch[start : start + size]


def build_dataloader(samples, size):
    return plan(samples, size)


def train(model, samples):
    for batch in microbatched(samples, 4):
        model(batch).loss.backward()


class Scheduler:
    def __init__(self):
        self.waiting = []

    def add_request(self, request):
        self.waiting.append(request)

    def schedule(self):
        while self.waiting:
            request = self.waiting.pop()
            logits = model(request)
            print(torch.multinomial(logits, 1))
"""


def test_a_package_that_trains_and_serves_orders_samples_and_requests(tmp_path: Path) -> None:
    found = {symbol for _, symbol in rows(tmp_path, {"tiny/run.py": TRAINS_AND_SERVES}, "scheduler")}
    assert found >= {"microbatched", "build_dataloader", "Scheduler.add_request", "Scheduler.schedule"}


BEAMS = """import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, ids):
        chunk_begin = 0
        while chunk_begin < len(ids):
            chunk_size = min(self.config.chunk, len(ids) - chunk_begin)
            out = self.run(ids[chunk_begin : chunk_begin + chunk_size])
            chunk_begin += chunk_size
        return out

    def run(self, x):
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        return logits


class Generator:
    def __init__(self, config):
        self.model = Model(config)

    def step(self, ids, banned=()):
        logits = self.model(ids)
        for each in banned:
            logits[:, each] = -1
        return torch.multinomial(torch.softmax(logits, -1), 1)

    def beam_search(self, ids, beams=1):
        if beams == 1:
            return self.step(ids)
        while len(ids) < 10:
            logits = self.model(ids)
            ids = torch.multinomial(torch.softmax(logits, -1), 1)
        return ids

    def simple(self, prompts):
        for i in range(16):
            prompts = self.step(prompts)
        return prompts
"""


def test_the_loop_is_the_one_that_repeats_the_step(tmp_path: Path) -> None:
    # `step` has a loop without a call; `beam_search` returns what one step gives, with its default; `run` goes over
    # layers, which is no batch; `forward` takes chunk after chunk of the prompt.
    found = rows(tmp_path, {"gen.py": BEAMS}, "scheduler")
    assert ("chunking", "Model.forward") in found
    assert not {"Model.run", "Generator.step"} & {symbol for _, symbol in found}
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    assert next(each.name for each in decode_loops(reading)) == "simple"
    assert {each.name for each in stepping(reading)} >= {"simple", "beam_search"}
    assert "run" not in {each.name for each in stepping(reading)}


PIECES = """import torch


class Reader:
    def read(self, ids, piece=512):
        states = []
        for start in range(0, ids.shape[1], piece):
            state = self.model(ids[:, start : start + piece])
            states.append(state)
        return states

    def count(self, ids, piece=512):
        return [ids[start] for start in range(0, len(ids), piece)]

    def every(self, ids):
        for start in range(0, ids.shape[1], 512):
            self.model(ids[:, start : start + 512])


class Writer:
    def write(self, ids, steps):
        batch_size = ids.shape[0]
        alive = torch.ones(batch_size)
        for _ in range(steps):
            logits = self.lm_head(ids)
            ids = torch.cat([ids, torch.multinomial(logits, 1)], -1) * alive
        return ids

    def write_all(self, batches, steps):
        for ids in batches:
            logits = self.lm_head(ids)
            print(torch.multinomial(logits, 1), steps)
"""


def test_pieces_that_a_model_is_given_and_the_size_of_one_batch(tmp_path: Path) -> None:
    # Only read gives the model a piece of a size that it is told. write reads how large its one batch is, for a tensor;
    # write_all takes batch after batch.
    (tmp_path / "read.py").write_text(PIECES)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    found = {(row.role, row.symbol) for row in scheduler_rows(reading)}
    assert found == {("chunking", "Reader.read"), ("batch", "Writer.write_all")}
