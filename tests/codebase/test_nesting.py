"""The nesting is what carries a run from an entry point to attention, sampling and the cache, not the whole graph."""

from __future__ import annotations

from pathlib import Path

from by_rules import carrying_calls

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.paths import Paths
from lmp.codebase.roles.reach import Reading

ENGINE = """import torch
import torch.nn.functional as F


class PlainAttention(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class WindowAttention(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k[-8:], v[-8:])


class Model(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        if window:
            self.mix = WindowAttention()
        else:
            self.mix = PlainAttention()

    def forward(self, x):
        self.report(x)
        return self.mix(x, x, x)

    def report(self, x):
        print(x.shape)


class Engine:
    def __init__(self):
        self.model = Model(False)

    def loop(self):
        while True:
            self.prefill()
            self.decode()
            self.log()

    def prefill(self):
        return self.pick(self.model(1))

    def decode(self):
        return self.pick(self.model(1))

    def pick(self, logits):
        return torch.multinomial(logits, 1)

    def log(self):
        print("step")


def main():
    Engine().loop()


if __name__ == "__main__":
    main()
"""

TRAINING = """import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Trainer:
    def __init__(self):
        self.model = Model()

    def fit(self):
        self.prepare()
        while True:
            self.train_step()
            self.save_checkpoint()
            self.draw_plot()

    def prepare(self):
        self.draw_plot()

    def train_step(self):
        loss = self.model(1).sum()
        loss.backward()

    def save_checkpoint(self):
        torch.save(self.model, "x")

    def draw_plot(self):
        print(1)


def main():
    Trainer().fit()


if __name__ == "__main__":
    main()
"""


def edges(tmp_path: Path, text: str) -> set[tuple[str, str]]:
    (tmp_path / "m.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    return {(each.caller.qualname, each.callee.qualname) for each in carrying_calls(reading)}


def test_a_run_is_followed_and_nothing_beside_it(tmp_path: Path) -> None:
    assert edges(tmp_path, ENGINE) == {
        ("main", "Engine.loop"),
        ("Engine.loop", "Engine.prefill"),
        ("Engine.loop", "Engine.decode"),
        ("Engine.prefill", "Model.forward"),
        ("Engine.decode", "Model.forward"),
        # Two modules may stand there, as a dense layer or one with experts may: both are shown.
        ("Model.forward", "PlainAttention.forward"),
        ("Model.forward", "WindowAttention.forward"),
        ("Engine.prefill", "Engine.pick"),
        ("Engine.decode", "Engine.pick"),
    }


def test_a_training_is_followed_to_the_model(tmp_path: Path) -> None:
    assert edges(tmp_path, TRAINING) == {
        ("main", "Trainer.fit"),
        ("Trainer.fit", "Trainer.train_step"),
        ("Trainer.train_step", "Model.forward"),
    }


def test_an_unknown_model_is_the_one_that_attends(tmp_path: Path) -> None:
    text = """import torch.nn.functional as F


class TinyModel:
    def __call__(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def run(model, x):
    while True:
        logits = model(x)
        x = logits.argmax()


def main(model):
    run(model, 1)


if __name__ == "__main__":
    main(None)
"""
    assert ("run", "TinyModel.__call__") in edges(tmp_path, text)


def test_verbs_of_any_library_name_no_class(tmp_path: Path) -> None:
    text = """class Kernels:
    def compile(self):
        return 1


def build(thing):
    thing.compile()


def known(kernels):
    kernels.compile()
"""
    (tmp_path / "m.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    called = {each.qualname: [edge.callee.qualname for edge in reading.graph.edges[each]] for each in reading.functions}
    assert called["build"] == []
    assert called["known"] == ["Kernels.compile"]


def test_a_repository_within_has_patterns_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("models/\n")
    inner = tmp_path / "vendor" / "engine"
    (inner / "models").mkdir(parents=True)
    (inner / ".gitignore").write_text("*.bin\n")
    (inner / "models" / "a.py").write_text("x = 1\n")
    (inner / "models" / "a.bin").write_text("x")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "b.py").write_text("x = 1\n")
    found = read_repository(tmp_path, Selection(), lambda at, of, file: None)
    files = {each.file for each in found.files}
    # git asks the patterns above nothing about a repository within; its own still count.
    assert "vendor/engine/models/a.py" in files
    assert "vendor/engine/models/a.bin" not in files
    assert "models/b.py" not in files


def test_virtual_methods_and_what_is_made(tmp_path: Path) -> None:
    text = """struct base {
    virtual int build(int n);
    int run(int n) {
        return build(n);
    }
};

struct model_one : public base {
    struct graph {
        graph(int n);
    };
    int build(int n);
};

int model_one::build(int n) {
    auto made = std::make_unique<graph>(n);
    return n;
}

model_one::graph::graph(int n) {
    use(n);
}

void use(int n) {
    n++;
}
"""
    (tmp_path / "m.cpp").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    called = {
        (each.qualname, edge.callee.qualname) for each in reading.graph.functions for edge in reading.graph.edges[each]
    }
    assert ("base.run", "model_one.build") in called
    assert ("model_one.build", "model_one.graph.graph") in called
    assert ("model_one.graph.graph", "use") in called


LAYERS = """import torch
import kernels


class KVCache:
    def __init__(self):
        self.keys = torch.zeros(8, 4, 64)
        self.values = torch.zeros(8, 4, 64)

    def update(self, k, v):
        self.keys[0] = k
        self.values[0] = v


class Attention(torch.nn.Module):
    def forward(self, x, cache: KVCache):
        q, k, v = self.qkv(x)
        cache.update(k, v)
        return kernels.fast(q, k, v)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()

    def forward(self, x, cache):
        return self.attention(x, cache)


class TinyModel(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        blocks = [Block() for _ in range(n)]
        self.layers = torch.nn.ModuleDict({str(i): blocks[i] for i in range(n)})

    def forward(self, x, cache):
        for i, layer in enumerate(self.layers.values()):
            x = layer(x, cache)
        return x


def generate(model: TinyModel, x):
    model = model.eval()
    cache = KVCache()
    while True:
        logits = model.forward(x, cache)
        x = torch.multinomial(logits, 1)


def main():
    generate(TinyModel(2), 1)


if __name__ == "__main__":
    main()
"""


def test_layers_of_a_dictionary_are_followed_to_a_kernel_that_is_not_known(tmp_path: Path) -> None:
    # ``kernels.fast`` is in no known library: it is given queries, keys and values. ``generate`` draws itself.
    assert edges(tmp_path, LAYERS) == {
        ("main", "generate"),
        ("generate", "TinyModel.forward"),
        ("TinyModel.forward", "Block.forward"),
        ("Block.forward", "Attention.forward"),
        ("Attention.forward", "KVCache.update"),
    }


COMMANDS = """import torch
import torch.nn.functional as F
from argtool import CLI


class TinyModel(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def step(model: TinyModel, x):
    return torch.multinomial(model(x), 1)


def generate(x):
    while True:
        x = step(TinyModel(), x)


def generate_with_two_gpus(x):
    while True:
        x = step(TinyModel(), x)


def generate_with_adapters(x):
    while True:
        x = step(TinyModel(), x)


COMMANDS = {"generate": generate, "two": generate_with_two_gpus, "adapters": generate_with_adapters}


def main():
    CLI(COMMANDS)


if __name__ == "__main__":
    main()
"""


def test_of_commands_the_plainest_stands_for_all(tmp_path: Path) -> None:
    found = edges(tmp_path, COMMANDS)
    assert {callee for caller, callee in found if caller == "main"} == {"generate"}
    assert {("generate", "step"), ("step", "TinyModel.forward")} <= found


THREADS = """import queue
import threading

import abc


class Engine(abc.ABC):
    @abc.abstractmethod
    def prefill(self, tokens):
        pass

    @abc.abstractmethod
    def generate(self, state):
        pass


class Driver:
    engine: Engine

    def __init__(self, engine: Engine):
        self.engine = engine
        self.waiting = queue.Queue()
        self.prefilled = [queue.Queue() for _ in range(2)]
        threading.Thread(target=self.prefill_loop).start()
        threading.Thread(target=self.generate_loop).start()

    def place(self, request):
        self.waiting.put(request)

    def prefill_loop(self):
        mine = self.prefilled[0]
        while True:
            request = self.waiting.get()
            mine.put(self.engine.prefill(request))

    def generate_loop(self):
        mine = self.prefilled[0]
        while True:
            state = mine.get()
            self.engine.generate(state)


class Servicer:
    def __init__(self, driver: Driver):
        self.driver = driver

    def decode(self, request):
        self.driver.place(request)


def serve(engine: Engine):
    return Servicer(Driver(engine))
"""
MOCK = """from server import Engine


class MockEngine(Engine):
    def prefill(self, tokens):
        return tokens

    def generate(self, state):
        return state
"""


def test_loops_that_hand_on_through_queues_are_one_run(tmp_path: Path) -> None:
    # No model is in this code base. ``mine`` is one of the queues of a list. The engine of a test stands for
    # nothing. ``decode`` puts requests in.
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "mock_engine.py").write_text(MOCK)
    found = edges(tmp_path, THREADS)
    assert {
        ("Driver.place", "Driver.prefill_loop"),
        ("Driver.prefill_loop", "Driver.generate_loop"),
        ("Servicer.decode", "Driver.place"),
    } <= found
    assert not [callee for _, callee in found if callee.startswith("Mock")]


OUTSIDE = """import types
import torch


class CachedModel:
    def __init__(self, model, draw):
        self.inner = model
        self.draw = types.MethodType(draw, self)

    def prefill(self, x):
        out = self.inner(x)
        return out.logits

    def one(self, x):
        return self.inner(x).logits

    def run(self, x):
        x = self.draw(self.prefill(x))
        while True:
            x = self.draw(self.one(x))


def wrap(model, draw):
    return with_cache(model, draw)


def with_cache(model, draw):
    return CachedModel(model, draw)


if __name__ == "__main__":
    wrap(None, None)
"""


def test_the_model_and_what_draws_may_be_handed_in(tmp_path: Path) -> None:
    # Nothing here attends or draws: the model is what has logits, and ``run`` calls it again and again.
    assert {
        ("CachedModel.run", "CachedModel.prefill"),
        ("CachedModel.run", "CachedModel.one"),
    } <= edges(tmp_path, OUTSIDE)


FUNCTIONAL = """import functools
import threading
import jax
import jax.numpy as jnp
from flax import linen as nn

type Prompt = str | list[str]


def first[T](given: list[T]) -> T:
    return given[0]


class Attention(nn.Module):
    def __call__(self, q, k, v):
        return jax.nn.dot_product_attention(q, k, v)


class Transformer(nn.Module):
    def setup(self):
        self.mix = Attention()

    def __call__(self, x):
        return self.mix(x, x, x)


class Loop:
    def __init__(self, model, prefix):
        self._model = model
        self.choose = pick
        self.prefix = prefix

    def sample(self, params, x):
        for _ in range(8):
            x = self.step(params, x)
        return x

    def step(self, params, x):
        logits = self._model.apply(params, x)
        return self.choose(logits)


def pick(logits):
    return jax.random.categorical(None, logits)


def fill(model, params, x):
    return model.apply(params, x)


def chat(model, params, x):
    def spell(y):
        return Loop(model, "").sample(params, y)

    fill(model, params, x)
    return spell(x)


def main():
    chat(Transformer(), {}, 1)


if __name__ == "__main__":
    main()
"""


def test_a_model_that_is_applied_and_the_prompt_before_the_loop(tmp_path: Path) -> None:
    found = edges(tmp_path, FUNCTIONAL)
    # ``type`` and ``first[T]`` are newer than some Python that reads this. ``fill`` is beside the loop, and runs the
    # model on the prompt. ``choose`` is what ``pick`` is kept as.
    assert {
        ("main", "chat"),
        ("chat", "fill"),
        ("fill", "Transformer.__call__"),
        ("chat", "chat.spell"),
        ("chat.spell", "Loop.sample"),
        ("Loop.sample", "Loop.step"),
        ("Loop.step", "Transformer.__call__"),
        ("Loop.step", "pick"),
        ("Transformer.__call__", "Attention.__call__"),
    } <= found


SERVER = """import threading
import torch
import torch.nn.functional as F


def dense(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def kernel_of(name):
    return dense


class Model(torch.nn.Module):
    def forward(self, x):
        kernel = kernel_of("dense")
        return kernel(x, x, x)


class Server:
    def __init__(self):
        self.model = Model()

    def start(self):
        threading.Thread(target=self).start()

    def __call__(self):
        while True:
            logits = self.model(1)
            torch.multinomial(logits, 1)


def main():
    Server().start()


if __name__ == "__main__":
    main()
"""


def test_an_object_that_is_a_thread_and_a_kernel_of_a_table(tmp_path: Path) -> None:
    assert edges(tmp_path, SERVER) == {
        ("main", "Server.start"),
        ("Server.start", "Server.__call__"),
        ("Server.__call__", "Model.forward"),
        ("Model.forward", "dense"),
    }


GATEWAY = """import asyncio
import queue
import torch
import torch.nn.functional as F
from fastapi import FastAPI

app = FastAPI()
backend = None


class Model(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Batcher:
    def __init__(self):
        self.waiting_queue = queue.Queue()
        self.model = Model()

    def add_request(self, request):
        self.waiting_queue.put(request)

    def step(self):
        batch = self.schedule()
        return self.draw(self.model(batch))

    def schedule(self):
        return [self.waiting_queue.get()]

    def draw(self, logits):
        return torch.multinomial(logits, 1)


class Offline:
    def __init__(self):
        self.batcher = Batcher()

    def __call__(self, request):
        while True:
            self.batcher.step()


@app.post("/v1/completions")
async def create_completion(request):
    Batcher().add_request(request)
"""


def test_a_run_begins_at_a_method_that_nobody_calls(tmp_path: Path) -> None:
    found = edges(tmp_path, GATEWAY)
    assert {
        ("Offline.__call__", "Batcher.step"),
        ("Batcher.step", "Batcher.schedule"),
        ("Batcher.step", "Batcher.draw"),
        ("Batcher.step", "Model.forward"),
    } <= found


SERVED = """import json
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def find(path):
    return json.load(open(path))


def load(path):
    weights = find(path)
    return Model().load(weights)


def generate(model: Model, x):
    while True:
        x = torch.multinomial(model(x), 1)


def main():
    model = load("x")
    generate(model, 1)


if __name__ == "__main__":
    main()
"""


SERVER_BESIDE = """from http.server import BaseHTTPRequestHandler, HTTPServer
from m import Model, generate


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        generate(Model(), 1)


def serve():
    HTTPServer(("", 8000), Handler).serve_forever()


if __name__ == "__main__":
    serve()
"""


def test_another_package_calls_the_methods_of_what_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER_BESIDE)
    # ``serve_forever`` calls ``do_POST``, which nothing here calls.
    assert edges(tmp_path, SERVED) == {
        ("main", "generate"),
        ("serve", "Handler.do_POST"),
        ("Handler.do_POST", "generate"),
        ("generate", "Model.forward"),
    }


MIXIN = """import queue
import torch
from transformers import LlamaForCausalLM


class Stage:
    def __init__(self):
        self.jobs = queue.Queue()

    def submit(self, x):
        self.jobs.put(x)

    def work(self):
        while True:
            print(self.jobs.get())


class RemoteModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()

    def forward(self, x):
        return self.stage.submit(x)


class Generation:
    def generate(self, x):
        return super().generate(x)


class RemoteForCausalLM(Generation, LlamaForCausalLM):
    def __init__(self):
        self.model = RemoteModel()
"""


def test_a_loop_of_another_package_calls_the_modules_that_the_object_keeps(tmp_path: Path) -> None:
    # ``super().generate`` is the loop; it calls the object's ``forward``, which is not of this code base, and that the
    # model which the object keeps.
    assert {
        ("Generation.generate", "RemoteModel.forward"),
        ("RemoteModel.forward", "Stage.submit"),
        ("Stage.submit", "Stage.work"),
    } <= edges(tmp_path, MIXIN)


GATEWAYS = """import httpx
import torch
import torch.nn.functional as F
from fastapi import FastAPI

app = FastAPI()
worker = FastAPI()


class Model(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


model = Model()


@app.post("/v1/chat")
async def create_chat(request):
    return await ask("http://worker", request)


async def ask(address, request):
    async with httpx.AsyncClient() as client:
        return await client.post(address + "/worker_generate", json=request)


@worker.post("/worker_generate")
async def work(request):
    return generate(request)


def generate(x):
    while True:
        x = torch.multinomial(model(x), 1)
"""


def test_a_request_whose_address_is_put_together_leads_to_what_handles_its_path(tmp_path: Path) -> None:
    # A user's request comes in at ``create_chat``, which asks the worker.
    assert edges(tmp_path, GATEWAYS) == {
        ("create_chat", "ask"),
        ("ask", "work"),
        ("work", "generate"),
        ("generate", "Model.forward"),
    }


FAMILY = """import torch
import torch.nn.functional as F


class Transformer(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class {name}:
    def __init__(self):
        self.model = Transformer()

    def generate(self, x):
        while True:
            logits = self.model.forward(x)
            x = torch.multinomial(logits, 1)


if __name__ == "__main__":
    {name}().generate(1)
"""


def test_two_families_of_models_have_a_loop_each(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(FAMILY.format(name="Second"))
    assert {("First.generate", "Transformer.forward"), ("Second.generate", "Transformer.forward")} <= edges(
        tmp_path, FAMILY.format(name="First")
    )


ARRAYS = """import equinox as eqx
import haliax as hax
import jax
from haliax.nn.scan import Stacked
from typing import Protocol


class Loss(Protocol):
    def __call__(self, model, tokens): ...


class Attention(eqx.Module):
    def __call__(self, x):
        return mixed_attention(x, x, x)

    def paged(self, x):
        return mixed_attention(x, x, x)


def mixed_attention(query, key, value):
    return hax.dot(hax.nn.softmax(hax.dot(query, key, axis="d"), axis="k"), value, axis="k")


class Block(eqx.Module):
    attention: Attention

    def __call__(self, x):
        return self.attention(x)

    def decode(self, x):
        return self.attention.paged(x)


class TinyModel(eqx.Module):
    blocks: Stacked[Block]

    def __call__(self, x):
        return self.blocks.fold(x)

    def decode(self, x):
        for number in range(2):
            block = jax.tree_util.tree_map(lambda leaf: leaf[number], self.blocks.stacked)
            x = block.decode(x)
        return x


def generate(model: TinyModel, x):
    def body(state):
        logits = model.decode(state)
        return jax.random.categorical(None, logits)

    return jax.lax.while_loop(lambda state: True, body, x)


def next_token_loss(model: TinyModel, tokens):
    return model(tokens).mean()


class Trainer:
    def __init__(self, loss: Loss):
        self.loss = loss

    def train(self, model, data):
        for tokens in data:
            self.step(model, tokens)

    def step(self, model, tokens):
        grads = eqx.filter_value_and_grad(self.loss)
        loss = self.loss(model, tokens)
        return grads, loss


def train():
    Trainer(next_token_loss).train(TinyModel(), [1])


def main():
    print(generate(TinyModel(), 1))


if __name__ == "__main__":
    train()
    main()
"""


def test_a_training_and_a_decode_of_arrays_are_both_followed(tmp_path: Path) -> None:
    """The stack folds its blocks, the loop's body is told from the function around it, a protocol's call is what the
    trainer is given, and ``decode`` of what is called block is that of the file's one block."""
    found = edges(tmp_path, ARRAYS)
    decode = {
        ("main", "generate"),
        ("generate", "TinyModel.decode"),
        ("TinyModel.decode", "Block.decode"),
        ("Block.decode", "Attention.paged"),
        ("Attention.paged", "mixed_attention"),
    }
    training = {
        ("Trainer.step", "next_token_loss"),
        ("next_token_loss", "TinyModel.__call__"),
        ("TinyModel.__call__", "Block.__call__"),
        ("Block.__call__", "Attention.__call__"),
    }
    assert decode | training <= found


REGISTRY = """import catalogue
import torch

ATTENTIONS = catalogue.create("tiny", "attentions")
KERNELS = catalogue.create("tiny", "kernels")


def plain_attention(query, key, value):
    return torch.softmax(query @ key, -1) @ value


KERNELS.register("plain", func=plain_attention)


@ATTENTIONS.register("full")
class Full(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.run = KERNELS.get(kernel)

    def forward(self, x):
        return self.run(x, x, x)


def construct(name, registry, **kwargs):
    return registry.get(name)(**kwargs)


class Layer(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.mix = construct(name=name, registry=ATTENTIONS)

    def forward(self, x):
        return self.mix(x)


class TinyModel(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.layer = Layer(name)

    def forward(self, x):
        return self.layer(x)
"""


def test_what_is_registered_is_what_a_lookup_gives(tmp_path: Path) -> None:
    """Another package calls the model back: from it down the nesting goes through what two registries keep."""
    assert edges(tmp_path, REGISTRY) == {
        ("TinyModel.forward", "Layer.forward"),
        ("Layer.forward", "Full.forward"),
        ("Full.forward", "plain_attention"),
    }


TWIN = """import torch


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


class Sampler:
    def __init__(self):
        self.attention = Attention()

    def generate(self, x):
        while True:
            x = self.step(x)

    def step(self, x):
        return torch.multinomial(self.attention(x, x, x).probs, 1)
"""


def test_a_second_family_with_attention_of_its_own_is_followed_too(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sampler.py").write_text(TWIN)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    shown = {(edge.caller.file, edge.callee.qualname) for edge in carrying_calls(reading)}
    assert shown >= {(f"{folder}/sampler.py", name) for folder in ("first", "second") for name in ("Sampler.step",)}


def engine_of_cpp(name: str, step: str) -> str:
    """A class with attention and a loop of its own, and one that wraps it behind the interface of all."""
    return (
        f"void {name.lower()}_self_attention(float* x) {{\n  scale(x);\n  gemm(x);\n  softmax(x);\n}}\n"
        f"struct {name} {{\n  int sample(float* x) {{\n    scale(x);\n    sort(x);\n    return draw(x);\n  }}\n"
        f"  int {step}(float* x) {{\n    {name.lower()}_self_attention(x);\n    return sample(x);\n  }}\n}};\n"
        f"struct {name}Model : public Model {{\n  {name}* kept_;\n"
        f"  int infer(float* x) {{\n    return kept_->{step}(x);\n  }}\n}};\n"
    )


def test_a_family_of_cpp_may_have_a_loop_of_another_name_and_a_variant_has_none(tmp_path: Path) -> None:
    # QuantGpt is Gpt with a word more: it stands for nothing. Chat attends by itself, and its loop is no ``run_one``.
    text = "struct Model {\n  virtual int infer(float* x) = 0;\n};\n"
    text += engine_of_cpp("Gpt", "run_one") + engine_of_cpp("QuantGpt", "run_one") + engine_of_cpp("Chat", "advance")
    text += "struct PyChat {\n  Model* model_;\n  int ask(float* x) {\n    return model_->infer(x);\n  }\n};\n"
    (tmp_path / "engine.cu").write_text(text)
    paths = Paths(Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None)))
    assert {each.qualname for each in paths.hubs} == {"Gpt.run_one", "Chat.advance"}
    # ``model_`` may be any of the three: what wraps Chat is named for it.
    (site,) = next(sites for each, sites in paths.sites.items() if each.qualname == "PyChat.ask")
    assert len(site) == 3
    assert [each.callee.qualname for each in paths.alternatives(site)] == ["ChatModel.infer"]


PAIR = """import torch


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


class DecoderLayer(torch.nn.Module):
    def __init__(self):
        self.attention = Attention()

    def forward(self, x):
        return self.attention(x, x, x)


class PairModel(torch.nn.Module):
    def __init__(self):
        self.encoder = DecoderLayer()
        self.decoder = DecoderLayer()

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Translator:
    def __init__(self):
        self.model = PairModel()

    def draw(self, logits):
        return torch.multinomial(torch.softmax(logits, -1), 1)

    def translate(self, x):
        for at in range(100):
            x = self.draw(self.model.decoder(x))
        return x


def train(batches):
    model = PairModel()
    translator = Translator()
    for x in batches:
        model(x).sum().backward()
    return translator.translate(x)


if __name__ == "__main__":
    train([])
"""


def test_what_draws_may_run_a_decoder_without_the_model_around_it(tmp_path: Path) -> None:
    """`train` is nearest to the model and to a draw; the loop that translates runs the decoder alone."""
    (tmp_path / "net.py").write_text(PAIR)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    assert {each.qualname for each in Paths(reading).hubs} == {"train", "Translator.translate"}


SOLVED = """import torch
from torchdiffeq import odeint


def mixed_attention(query, key, value):
    return torch.softmax(query @ key.T, -1) @ value


class Net(torch.nn.Module):
    def forward(self, x):
        return mixed_attention(x, x, x)


class Flow:
    def __init__(self):
        self.net = Net()

    def sample(self, x):
        def speed(t, x):
            return self.net(x)

        return odeint(speed, x, torch.linspace(0, 1, 8))
"""


def test_an_inner_function_is_told_itself_but_for_the_body_of_a_loop(tmp_path: Path) -> None:
    """A solver calls `speed`, which is a step of its own; a body that an array library loops is code of its maker."""

    def told(name: str) -> set[tuple[str, str]]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "net.py").write_text(SOLVED.replace("odeint", name))
        reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
        edges = [edge for every in reading.graph.edges.values() for edge in every]
        return {(edge.caller.qualname, edge.callee.qualname) for edge in Paths(reading).in_order(edges)}

    assert {("Flow.sample", "Flow.sample.speed"), ("Flow.sample.speed", "Net.forward")} <= told("odeint")
    assert ("Flow.sample", "Net.forward") in told("scan")


def test_what_stands_in_the_place_of_a_forward_of_another_package(tmp_path: Path) -> None:
    # `wrapper` attends for the model of another package, and `plain` does not; the call of the model leads to the one.
    text = """import torch
import torch.nn.functional as F
from transformers import AutoModel

class Runner:
    def __init__(self, path):
        self.model = AutoModel.from_pretrained(path)
        for layer in self.model.layers:
            object.__setattr__(layer.attn, "forward", self.make(layer))
            layer.norm.forward = plain

    def make(self, layer):
        def wrapper(q, k, v):
            return F.scaled_dot_product_attention(q, k, v)
        return wrapper

    def step(self, ids):
        return self.model(ids)

def plain(x):
    return x
"""
    (tmp_path / "run.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    (step,) = (each for each in reading.functions if each.name == "step")
    led = [(edge.callee.qualname, edge.line, edge.how) for edge in reading.graph.edges[step]]
    assert led == [("Runner.make.wrapper", 18, "name")]


def test_a_run_that_another_package_does_ends_where_it_is_handed_on(tmp_path: Path) -> None:
    text = """from distant import LLM

class Runtime:
    def __init__(self, path):
        self.engine = LLM(path)

    def generate(self, prompts, temperature=1.0, top_p=1.0):
        return self.engine.generate(prompts, temperature=temperature, top_p=top_p)

class Pipeline:
    def __init__(self, path):
        self.runtime = Runtime(path)

    def __call__(self, prompts):
        return self.runtime.generate(prompts)

def main():
    Pipeline("a")(["b"])

if __name__ == "__main__":
    main()
"""
    (tmp_path / "run.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    pairs = {(edge.caller.qualname, edge.callee.qualname) for edge in carrying_calls(reading)}
    assert ("Pipeline.__call__", "Runtime.generate") in pairs
