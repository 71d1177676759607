"""Ways to run, sampling and order of work in makes that differ: each row follows from reading the few lines here."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_rules import carrying_calls, ruled_rows

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.entry import entry_rows
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.scheduling import scheduler_rows

MODEL = """import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self, width, vocab_size, max_batch):
        super().__init__()
        self.max_batch = max_batch
        self.last = torch.nn.Linear(width, vocab_size)

    @staticmethod
    def from_files(path) -> "Net":
        return Net(8, 16, 2)

    def forward(self, x):
        assert len(x) <= self.max_batch
        return self.last(F.scaled_dot_product_attention(x, x, x))
"""
RUN = """import torch

from tool.model import Net


def generate(
    prompts,
    model: Net,
    piece_chunk,
    temperature: float,
):
    model = model.eval()
    for at in range(0, len(prompts), piece_chunk):
        logits = model.forward(prompts[at : at + piece_chunk])
    while True:
        token = pick(logits, temperature=temperature, top_p=0.9)
        logits = model.forward(token)


def pick(logits, temperature, top_p):
    cut(logits, top_p)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1)


def cut(scores, amount):
    scores[scores < amount] = 0


def shuffle(items):
    torch.manual_seed(1)
    return items
"""
MAIN = """from fire import Fire

from tool.model import Net
from tool.run import generate


def talk(path: str):
    generate([path], Net.from_files(path), 4, 0.7)


def look(path: str):
    print(path)


if __name__ == "__main__":
    Fire({"talk": talk, "look": look})
"""


def read(folder: Path, files: dict[str, str]) -> list[Row]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return ruled_rows(Reading(read_repository(folder, Selection(), lambda at, of, file: None)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    files = {
        "README.md": "Use it:\n\n    from tool.model import Net\n    net = Net.from_files('weights')\n",
        "tool/__init__.py": "",
        "tool/model.py": MODEL,
        "tool/run.py": RUN,
        "tool/cli.py": MAIN,
    }
    return read(tmp_path_factory.mktemp("base"), files)


def placed(rows: list[Row], section: str) -> set[tuple[str, int]]:
    return {(row.place.file, row.place.line) for row in rows if row.section == section}


def line(text: str, part: str) -> int:
    return next(at for at, each in enumerate(text.split("\n"), 1) if part in each)


def test_ways_to_run_without_a_main_function(rows: list[Row]) -> None:
    # The block hands a table of commands on; what they start elsewhere, and what the README shows, a program may use.
    assert placed(rows, "entry_points") == {
        ("tool/cli.py", line(MAIN, "__main__")),
        ("tool/cli.py", line(MAIN, "def talk")),
        ("tool/cli.py", line(MAIN, "def look")),
        ("tool/run.py", line(RUN, "def generate")),
        ("tool/model.py", line(MODEL, "class Net")),
        ("tool/model.py", line(MODEL, "def from_files")),
    }


def test_logits_are_followed_to_the_draw(rows: list[Row]) -> None:
    # ``forward`` calls the projection to the vocabulary, ``cut`` gets the logits of the draw, ``generate`` hands them
    # on with a temperature of its own and another number that nobody sets. What seeds no run is no seed of sampling.
    assert placed(rows, "sampling") == {
        ("tool/model.py", line(MODEL, "def forward")),
        ("tool/run.py", line(RUN, "def generate")),
        ("tool/run.py", line(RUN, "temperature: float")),
        ("tool/run.py", line(RUN, "top_p=0.9")),
        ("tool/run.py", line(RUN, "def pick")),
        ("tool/run.py", line(RUN, "def cut")),
    }


def test_order_of_work_where_no_requests_wait(rows: list[Row]) -> None:
    # The loop takes several prompts, cuts them into chunks, and the model refuses more than its batch.
    assert placed(rows, "scheduler") == {
        ("tool/run.py", line(RUN, "def generate")),
        ("tool/run.py", line(RUN, "in range(0")),
        ("tool/model.py", line(MODEL, "assert")),
    }


SERVER = """import queue

import uvicorn
from fastapi import FastAPI

from serve.work import Orderer

app = FastAPI()


class Request:
    def __init__(self, text):
        self.text = text


class Front:
    def __init__(self):
        self.waiting_requests = queue.Queue()
        self.orderer = Orderer()

    def accept(self, text):
        request = Request(text)
        self.waiting_requests.put(request)

    def turn(self):
        while True:
            batch = self.orderer.next_batch(self.waiting_requests.get())
            self.advance(batch)

    def advance(self, batch):
        return batch

    def count(self):
        return self.waiting_requests.qsize()


def launch():
    Front().turn()
    uvicorn.run(app)
"""
WORK = """class Orderer:
    def next_batch(self, request):
        if request is None:
            return []
        kept = [request]
        kept.sort()
        return kept
"""
LAZY = """def Front(*args):
    from serve.server import Front

    return Front(*args)
"""


def test_queue_with_what_it_asks(tmp_path: Path) -> None:
    files = {
        "serve/__init__.py": "from serve.lazy import Front\n",
        "serve/lazy.py": LAZY,
        "serve/server.py": SERVER,
        "serve/work.py": WORK,
        "serve/__main__.py": 'from serve.server import launch\n\nif __name__ == "__main__":\n    launch()\n',
    }
    rows = read(tmp_path, files)
    # The queue's line; the method that counts decides nothing.
    assert placed(rows, "scheduler") == {
        ("serve/server.py", line(SERVER, "class Front")),
        ("serve/server.py", line(SERVER, "queue.Queue()")),
        ("serve/server.py", line(SERVER, "def accept")),
        ("serve/server.py", line(SERVER, "def turn")),
    }


def test_an_import_in_a_function_hides_the_module_s_name(tmp_path: Path) -> None:
    model = MODEL.replace("class Net", "class Thing").replace("Net", "Thing")
    lazy = "def Thing(*args):\n    from pack.model import Thing\n\n    return Thing(*args)\n"
    rows = read(
        tmp_path,
        {"pack/__init__.py": "from pack.lazy import Thing\n", "pack/lazy.py": lazy, "pack/model.py": model},
    )
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    made = next(each for each in reading.functions if each.file == "pack/lazy.py")
    assert [edge.callee.qualname for edge in reading.graph.edges[made]] == ["Thing.__init__"]
    assert rows


LIBRARY_INIT = "from far.wrap import Distant\n"
WRAP = """import torch
import torch.nn.functional as F
from elsewhere import Mixin, register_model


class Distant(Mixin):
    def generate(self, ids, **options):
        return super().generate(ids, **options)


class Head(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(config.vocab_size, config.width))

    def forward(self, x):
        table = self.weight.float()
        return F.linear(x, table)


def ended(tokens, stop_ids):
    reached = torch.isin(tokens, stop_ids)
    tokens = tokens.clone()
    tokens[reached] = 0
    return tokens


def generate(model, ids, stop_ids, temperature=1.0):
    while len(ids) < 9:
        logits = model(ids)
        ids = torch.multinomial(torch.softmax(logits / temperature, -1), 1)
        ids = ended(ids, stop_ids)
    return ids
"""


def test_what_another_package_generates_or_runs(tmp_path: Path) -> None:
    rows = read(tmp_path, {"far/__init__.py": LIBRARY_INIT, "far/wrap.py": WRAP})
    # The loop of one is in the class above, which is of another package; nothing calls the other.
    assert {
        ("far/wrap.py", line(WRAP, "def generate(self")),
        ("far/wrap.py", line(WRAP, "def generate(model")),
    } <= placed(rows, "entry_points")
    # The head multiplies by a table with a row for each token; what stops a text is part of the draw's loop.
    assert {
        ("far/wrap.py", line(WRAP, "def generate(self")),
        ("far/wrap.py", line(WRAP, "def forward")),
        ("far/wrap.py", line(WRAP, "class Head")),
        ("far/wrap.py", line(WRAP, "def ended")),
        ("far/wrap.py", line(WRAP, "temperature=1.0")),
    } <= placed(rows, "sampling")


DATA = """import collections
import torch
from torch.utils.data import DataLoader


def longest(samples):
    width = max(len(each) for each in samples)
    padded = []
    for each in samples:
        missing = torch.full((width - len(each),), 0)
        padded.append(torch.cat([each, missing]))
    return torch.stack(padded)


def pieces(rows, max_batch_size):
    for piece in torch.split(rows, max_batch_size):
        if len(piece):
            yield piece
    return None


def loader(rows):
    return DataLoader(
        rows,
        batch_size=4,
        collate_fn=longest,
    )


class Order:
    def steps(self, model, micro_batches):
        for one in micro_batches:
            loss = model(one)
            loss.backward()
        return loss


class Pending:
    def __init__(self):
        self.batches_to_send = collections.deque()
        self.batches_to_recv = collections.deque()

    def keep(self, one):
        if one is None:
            return
        self.batches_to_send.append(one)
        self.batches_to_recv.append(one)
        print(one)
"""


def test_order_of_samples_and_of_their_batches(tmp_path: Path) -> None:
    rows = read(tmp_path, {"learn/__init__.py": "", "learn/data.py": DATA})
    # What joins samples, cuts to a size, makes the loader, steps micro batches or keeps them.
    assert placed(rows, "scheduler") == {
        ("learn/data.py", line(DATA, part))
        for part in (
            "def longest",
            "def pieces",
            "def loader",
            "class Order",
            "def steps",
            "class Pending",
            "def keep",
        )
    }


POOL = """import queue
import threading


class Task:
    def __init__(self, priority, args):
        self.priority, self.args = priority, args


class Pool(threading.Thread):
    def __init__(self, work):
        self.work = work
        self.submitted_tasks = queue.Queue()
        self.ordered_tasks = queue.PriorityQueue()

    def run(self):
        while True:
            task = self.submitted_tasks.get()
            if task is None:
                break
            self.ordered_tasks.put(task)

    def submit_task(self, *args, priority=0):
        task = Task(priority, args)
        if len(args) > 4:
            raise ValueError("too large")
        self.submitted_tasks.put(task)
        return task
"""


def test_queues_of_a_run_in_another_package(tmp_path: Path) -> None:
    rows = read(tmp_path, {"pool/__init__.py": "", "pool/pool.py": POOL})
    # An endless loop takes from one queue and puts into another; what puts in.
    assert placed(rows, "scheduler") == {
        ("pool/pool.py", line(POOL, "class Pool")),
        ("pool/pool.py", line(POOL, "def run")),
        ("pool/pool.py", line(POOL, "def submit_task")),
    }


HOLDER = """from hold.order import OrderScheduler
from hold.net import Net


class Hub:
    order = None
    net = None


def begin(kind):
    Hub.net = Net(8, 16, 2)
    Hub.order = OrderScheduler.build(kind)


def advance():
    chosen = Hub.order.schedule()
    logits = Hub.net(chosen)
    logits.argmax(-1)
    Hub.order.update(chosen)


def measure(task):
    return len(task)
"""
ORDER = """from hold.tasks import Jobs


class OrderScheduler:
    @staticmethod
    def build(kind):
        if kind == "long":
            return LongestPipelineScheduler()
        return OldestScheduler()

    def schedule(self):
        raise NotImplementedError

    def update(self, chosen):
        for task_id in chosen:
            Jobs.remove(task_id)


class OldestScheduler(OrderScheduler):
    def schedule(self):
        first = Jobs.kept[:4]
        for task_id in first:
            print(task_id)
        return first


class LongestPipelineScheduler(OrderScheduler):
    def schedule(self):
        ranked = sorted(Jobs.kept, key=len)
        for task_id in ranked:
            print(task_id)
        return ranked[:4]
"""
TASKS = """class Jobs:
    kept = []

    def add(task):
        Jobs.kept.append(task.name)

    def remove(task_id):
        Jobs.kept.remove(task_id)
"""
PROGRAM = """from hold.holder import advance, begin, measure
from hold.tasks import Jobs


def accept(task):
    Jobs.add(task)


def work():
    while True:
        advance()


def main():
    begin("long")
    measure("a")
    work()


if __name__ == "__main__":
    main()
"""


def test_an_engine_that_classes_keep_without_objects(tmp_path: Path) -> None:
    files = {"__init__": "", "holder": HOLDER, "order": ORDER, "tasks": TASKS, "program": PROGRAM, "net": MODEL}
    rows = read(tmp_path, {f"hold/{name}.py": text for name, text in files.items()})
    # Kinds of scheduler that ``Hub.order`` may be, and the queue. ``build`` is too short.
    assert placed(rows, "scheduler") == {
        ("hold/order.py", line(ORDER, "class OrderScheduler")),
        ("hold/order.py", line(ORDER, "class OldestScheduler")),
        ("hold/order.py", line(ORDER, "def schedule")),
        ("hold/order.py", line(ORDER, "class OldestScheduler") + 1),
        ("hold/tasks.py", line(TASKS, "class Jobs")),
        ("hold/tasks.py", line(TASKS, "def add")),
        ("hold/tasks.py", line(TASKS, "def remove")),
    }


BLOCKS = {
    # Parses, and does several things: the block.
    "tool/clean.py": """import argparse


def skip(one):
    return not one


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    args = parser.parse_args()
    print([one for one in open(args.path) if not skip(one)])
""",
    # Hands on all arguments to its last function: that function, and not the one that makes the parser.
    "tool/change.py": """import argparse


def make_parser():
    return argparse.ArgumentParser()


def change(path):
    print(path)


if __name__ == "__main__":
    parser = make_parser()
    args = parser.parse_args()
    change(**vars(args))
""",
    # Makes a thing and starts a server of another package: the block.
    "tool/front.py": """import argparse
import asyncio
import uvicorn

app = object()


def create():
    return argparse.ArgumentParser().parse_args()


def take(worker):
    return worker.semaphore.acquire()


def nearest(workers):
    return min(workers, key=lambda each: each.queue_length)


if __name__ == "__main__":
    args = create()
    uvicorn.run(app, host=args.host)
""",
    # Calls one function only: that function.
    "tool/once.py": """import argparse


def work():
    print(argparse.ArgumentParser().parse_args())


if __name__ == "__main__":
    work()
""",
}


def test_what_a_main_block_starts(tmp_path: Path) -> None:
    for name, text in BLOCKS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    assert {(row.role, row.symbol, row.place.file) for row in entry_rows(reading)} == {
        ("cli", "__main__", "tool/clean.py"),
        ("cli", "change", "tool/change.py"),
        ("server", "__main__", "tool/front.py"),
        ("cli", "work", "tool/once.py"),
    }
    # A semaphore limits requests in flight; the shortest queue says which worker is next.
    assert {(row.role, row.symbol) for row in scheduler_rows(reading)} == {
        ("admission", "take"),
        ("queue", "nearest"),
    }


OTHERS = """import threading

import torch
import transformers
from transformers import DynamicCache


def forward(self, x):
    query = self.q(x)
    key = self.k(x)
    value = self.v(x)
    bias = self.bias[: len(x)]
    weights = bias + torch.softmax(torch.matmul(query, key.transpose(1, 2)), -1)
    return torch.matmul(weights, value)


def exchange_attention():
    transformers.models.llama.LlamaAttention.forward = forward


class Held:
    def __init__(self, model, cache):
        self.model = model
        self.cache = cache


def hold(model):
    cache = DynamicCache(model)
    return Held(model, cache)


def generate_stream(model, params):
    temperature = params.get("temperature", 1.0)
    top_p = params.get("top_p", 1.0)
    options = dict(temperature=temperature, top_p=top_p)
    thread = threading.Thread(
        target=model.generate,
        kwargs=options,
    )
    thread.start()
    return thread


def check(request):
    if request.temperature < 0:
        raise ValueError(request)
    if request.top_p > 1:
        raise ValueError(request)
    if request.top_k < 0 or request.max_tokens < 1:
        raise ValueError(request)


def answer(request, model):
    check(request)
    return generate_stream(hold(model).model, request.params)


def timed(timer, ids):
    timer.stop()
    return ids
"""


def test_what_another_package_is_handed(tmp_path: Path) -> None:
    rows = read(tmp_path, {"loan/__init__.py": "", "loan/work.py": OTHERS})
    # The loop is a thread's target. A timer that stops ends no text.
    assert placed(rows, "sampling") == {
        ("loan/work.py", line(OTHERS, "def generate_stream")),
        ("loan/work.py", line(OTHERS, "def check")),
    }
    # Nothing calls ``forward`` here: a class of the other package does, once it is put there.
    assert ("loan/work.py", line(OTHERS, "def forward")) in placed(rows, "attention")
    # One makes the cache, the other keeps it.
    assert placed(rows, "kv_cache") == {
        ("loan/work.py", line(OTHERS, "class Held")),
        ("loan/work.py", line(OTHERS, "def hold")),
    }


SHOWN = """# deep

    import deep
    from deep import api as surface
    pipe = deep.pipeline("weights")
    sampler = surface.text.Talker(pipe)
    sampler.chat("hello")
    sampler.note("hello")
"""
TALKER = """import torch
from far.settings import FarConfigModel


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class Talker:
    def __init__(self):
        self.net = Net()

    def chat(self, tokens):
        for step in range(8):
            logits = self.net(tokens)
            tokens = torch.argmax(logits, -1)
        return tokens

    def note(self, text):
        return text


class TalkConfig(FarConfigModel):
    length: int = 8
    steps: int = 4
    name: str = "a"


def pipeline(path):
    return path
"""


def test_what_a_readme_calls_through_modules_and_settings_of_another_package(tmp_path: Path) -> None:
    files = {
        "README.md": SHOWN,
        "deep/__init__.py": "from deep.api.text.talker import pipeline\n",
        "deep/api/__init__.py": "from deep.api import text\n",
        "deep/api/text/__init__.py": "from deep.api.text.talker import Talker\n",
        "deep/api/text/talker.py": TALKER,
    }
    rows = read(tmp_path, files)
    # ``note`` runs no model.
    assert {row.symbol for row in rows if row.section == "entry_points"} == {"pipeline", "Talker", "Talker.chat"}
    # The class above stands in another package, and its name says what it is for. So few settings are not all.
    assert {row.symbol for row in rows if row.section == "configuration"} == {
        "pipeline.path",
        "Talker.chat.tokens",
        "TalkConfig.length",
        "TalkConfig.steps",
        "TalkConfig.name",
    }


def test_packages_inside_hand_out_where_those_above_do_not(tmp_path: Path) -> None:
    files = {
        "deep/__init__.py": "",
        "deep/api/__init__.py": "from deep.api import text\n",
        "deep/api/text/__init__.py": "from deep.api.text.talker import Talker\n",
        "deep/api/text/talker.py": TALKER,
    }
    # The loop itself is there for users: nothing of the code base runs it.
    found = {row.symbol for row in read(tmp_path, files) if row.section == "entry_points"}
    assert found == {"Talker", "Talker.chat"}


def test_what_a_function_of_a_readme_gives_back_and_a_package_that_is_run(tmp_path: Path) -> None:
    files = {
        "README.md": "```python\nimport far\n\nbox = far.connect(1)\nbox.send(2)\ntalker = far.pipeline()\n```\n"
        "`talker.chat(3)` talks, `turned(talker)` turns.\n",
        "far/__init__.py": "from far.api import connect, pipeline, turned\nfrom far.more import *\n",
        "far/more.py": "def ready():\n    pass\n\n\ndef apart():\n    pass\n",
        "far/api.py": (
            "from far.talker import Box, Talker\nfrom far.more import ready\n\n\n"
            "def connect(port):\n    return Box(port)\n\n\n"
            "def pipeline():\n    ready()\n    return Talker()\n\n\ndef turned(talker: Talker):\n    return talker\n"
        ),
        "far/talker.py": TALKER.partition("class TalkConfig")[0]
        + "class Box:\n    def __init__(self, port):\n        self.port = port\n"
        "    def send(self, text):\n        pass\n",
        "far/__main__.py": "from far.server import app\n\napp(prog_name='far')\n",
        "far/server.py": (
            "from fastapi import FastAPI\n\n\ndef build():\n    return FastAPI()\n\n\n"
            "def app(prog_name):\n    return build()\n"
        ),
    }
    found = {row.symbol for row in read(tmp_path, files) if row.section == "entry_points"}
    # ``pipeline`` makes a Talker, ``turned`` does not. ``build`` is part of a start.
    assert found == {"connect", "Box", "pipeline", "Talker", "Talker.chat", "turned", "__main__"}


MADE = """import os
from dataclasses import dataclass, field
from flax import linen as nn


class Way:
    pass


@dataclass
class Best(Way):
    pass


@dataclass
class Hot(Way):
    heat: float = 1.0


@dataclass
class State:
    step: int


class Speaker(nn.Module):
    loud: bool = False


@dataclass
class Talker(Speaker):
    way: Way = field(default_factory=Best)
    last: State | None = None

    def chat(self, tokens):
        self.last = State(step=int(os.environ["STEP"]))
        return os.environ["STEP"]


@dataclass
class NetConfig:
    width: int
    depth: int = 2
"""


def test_settings_are_fields_of_what_users_make(tmp_path: Path) -> None:
    files = {
        "README.md": "```python\nfrom deep.talker import Talker\n\ntalker = Talker()\ntalker.chat(2)\n```\n",
        "deep/talker.py": MADE,
    }
    rows = [row for row in read(tmp_path, files) if row.section == "configuration"]
    # The code base makes a State itself, and no Hot.
    assert {row.symbol for row in rows} == {
        *(
            "STEP",
            "Talker.way",
            "Talker.last",
            "Talker.chat.tokens",
            "Hot.heat",
            "NetConfig.width",
            "NetConfig.depth",
        )
    }
    # The variable is read in lines 35 and 36.
    assert [(row.place.file, row.place.line) for row in rows if row.role == "env var"] == [("deep/talker.py", 35)]


def test_arguments_and_keys_are_settings_where_there_are_no_others(tmp_path: Path) -> None:
    files = {
        "README.md": "```python\nfrom far import faster\n\nmodel = faster('a', {'length': 8})\n```\n",
        "far/__init__.py": "from far.api import faster\n",
        "far/api.py": (
            "def faster(name, cache_config, depth=2):\n"
            "    assert 'length' in cache_config\n"
            "    return made(name, cache_config['length'], cache_config.get('kind', 'plain'), depth)\n\n\n"
            "def made(name, length, kind, depth):\n    names = {}\n    return names['a']\n"
        ),
    }
    rows = [row for row in read(tmp_path, files) if row.section == "configuration"]
    # ``made`` is called here; ``names`` is no dictionary of settings; a key stands where it is first asked for.
    assert {(row.symbol, row.place.line, row.why) for row in rows} == {
        ("faster.name", 1, ""),
        ("faster.cache_config", 1, ""),
        ("faster.depth", 1, "2"),
        ("cache_config.length", 2, ""),
        ("cache_config.kind", 3, "'plain'"),
    }


def test_a_settings_file_that_code_looks_for_stands_once(tmp_path: Path) -> None:
    read_twice = "def run(folder):\n    return open(folder / 'run_config.json'), open(folder / 'weights.json')\n"
    files = {"far/names.py": "OTHER = 'adapter_config.json'\n", "far/ask.py": read_twice, "far/generate.py": read_twice}
    rows = [row for row in read(tmp_path, files) if row.role == "config file"]
    # Of two runs the one that generates; weights are no settings.
    assert {(row.symbol, row.place.file, row.place.line) for row in rows} == {
        ("run_config.json", "far/generate.py", 2),
        ("adapter_config.json", "far/names.py", 1),
    }


def test_the_model_what_gives_it_and_an_object_that_a_command_names(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[project.scripts]\nfar = "far.cli:app"\n',
        "far/cli.py": "import typer\n\napp = typer.Typer()\n",
        "far/__init__.py": "from far.net import Transformer\n",
        "far/net.py": TALKER.partition("class Talker")[0].replace("class Net", "class Transformer"),
        "far/build.py": (
            "from far.net import Transformer\n\n\ndef parts(path):\n    return path, Transformer()\n\n\n"
            "def _hidden(path):\n    return Transformer()\n"
        ),
    }
    rows = [row for row in read(tmp_path, files) if row.section == "entry_points"]
    assert {(row.symbol, row.place.line) for row in rows} == {("app", 3), ("Transformer", 5), ("parts", 4)}


STATE = """from dataclasses import dataclass, field

import torch


@dataclass
class Sequence:
    tokens: list[int]


@dataclass
class Waiting:
    queued: dict[str, Sequence] = field(default_factory=dict)

    def add(self, seq: Sequence):
        self.queued[seq.id] = seq

    def take(self, name):
        return self.queued.pop(name)


@dataclass
class State:
    line: Waiting


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def choose(line: Waiting, most: int):
    chosen = []
    for name in list(line.queued)[:most]:
        if name:
            chosen.append(line.take(name))
    return chosen


def steps(state: State, model: Net):
    while True:
        batch = choose(state.line, 8)
        if not batch:
            break
        logits = model(batch)
        torch.multinomial(logits, 1)
        state.line.add(batch[0])


async def answer(line: Waiting, seq: Sequence):
    line.add(seq)
    text = ""
    for each in seq.tokens:
        text += str(each)
    return text


def beside(size: int):
    total = 0
    for each in range(size):
        total += each
    return total
"""


def test_functions_that_are_given_a_queue_schedule(tmp_path: Path) -> None:
    rows = read(tmp_path, {"engine.py": STATE})
    found = {row.symbol for row in rows if row.section == "scheduler"}
    # The dictionary keeps what comes in; ``choose`` is given it, ``steps`` what holds it, ``beside`` neither.
    # ``answer`` serves one request.
    assert {"Waiting", "Waiting.take", "choose", "steps"} <= found
    assert not {"answer", "beside"} & found


COMMAND = """import pydra
from multiprocessing import Process

from line.front import serve


def build(config):
    return [Process(target=serve, args=(config,))]


def engine(config):
    for each in build(config):
        each.start()


def start(config):
    for each in build(config):
        each.start()


def main():
    pydra.run(start)
"""
ASKED_FRONT = """import uvicorn
from fastapi import FastAPI

from line.maker import Maker

app = FastAPI()


@app.get("/state")
def state():
    return "ready"


@app.post("/v1/completions")
def complete(text):
    return text


def serve(config):
    Maker.build(config).generate([1])
    uvicorn.run(app)
"""
MAKER = """import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class Params:
    pass


class Maker:
    @staticmethod
    def build(config):
        return Maker()

    def __init__(self):
        self.net = Net()

    def generate(self, tokens):
        for step in range(8):
            logits = self.net(tokens)
            tokens = torch.argmax(logits, -1)
        return tokens
"""
ASKING = """import pydra
import requests


def ask(config):
    requests.post(config.address)


if __name__ == "__main__":
    pydra.run(ask)
"""


def test_what_is_started_over_a_package_and_what_nothing_calls(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[project.scripts]\nline = "line.command:main"\n',
        "line/__init__.py": "",
        "line/command.py": COMMAND,
        "line/front.py": ASKED_FRONT,
        "line/maker.py": MAKER,
        "line/benchmarks/asks.py": ASKING,
    }
    rows = [row for row in read(tmp_path, files) if row.section == "entry_points"]
    assert {(row.role, row.symbol) for row in rows} == {
        # The command, what it has another package run, and a measurement that reaches no model but a server.
        ("cli", "main"),
        ("cli", "start"),
        ("benchmark", "ask"),
        # What starts the web server, and the route by which a request for text comes in.
        ("server", "serve"),
        ("server", "complete"),
        # Nothing calls ``engine``, and nothing makes a Maker but its own method.
        ("library", "engine"),
        ("library", "Maker"),
        ("library", "Maker.generate"),
    }


SAMPLER = """import json
import typing
from pathlib import Path

import checks
import torch


def typed(function):
    return checks.checked(function)


class Config(typing.NamedTuple):
    width: int
    layers: int = 2


class Net(torch.nn.Module):
    @typed
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class Sampler:
    def __init__(self, config: Config):
        self.net = Net(config.width)
        self.words = json.loads((Path(__file__).parent / "words.json").read_text())

    def __call__(self, tokens):
        return self.draw_all(tokens)

    def draw_all(self, tokens):
        while len(tokens) < 8:
            tokens = torch.argmax(self.net(tokens), -1)
        return tokens
"""


def test_names_that_a_package_assigns_decorators_that_hand_on_and_files_of_words(tmp_path: Path) -> None:
    files = {
        "draw/__init__.py": "",
        "draw/torch/__init__.py": "from draw.torch import sampler\n\nSampler = sampler.Sampler\n",
        "draw/torch/sampler.py": SAMPLER,
        "draw/torch/words.json": "{" + ", ".join(f'"word{at}": "other"' for at in range(300)) + "}",
    }
    rows = read(tmp_path, files)
    # Its objects generate where they are called: it has no method for it.
    assert {row.symbol for row in rows if row.section == "entry_points"} == {"Sampler", "Sampler.__call__"}
    # The 300 words are data, though the code names their file. What users make is given its configuration.
    settings = {row.symbol for row in rows if row.section == "configuration"}
    assert settings == {"Config.width", "Config.layers", "Sampler.config", "Sampler.__call__.tokens"}
    reading = Reading(read_repository(tmp_path, Selection(), lambda done, total, file: None))
    edges = {(edge.caller.qualname, edge.callee.qualname) for edge in carrying_calls(reading)}
    # Another package checks what ``typed`` hands to it; the loop calls the module.
    assert {("Sampler.__call__", "Sampler.draw_all"), ("Sampler.draw_all", "Net.forward")} <= edges
    assert not [caller for caller, _ in edges if caller == "typed"]


KIT = """import torch
from transformers import PretrainedConfig, PreTrainedModel


class NetConfig(PretrainedConfig):
    def __init__(self, width=8, layers=2):
        self.width = width


class Attention(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class Base(PreTrainedModel):
    pass


class Net(Base):
    def __init__(self, config: NetConfig, device="cpu"):
        self.attention = Attention()


def load_net(path):
    return torch.load(path)


def load_part(path):
    return torch.load(path)


def both(path):
    return load_part(path), load_part(path)
"""
KIT_FRONT = """import uvicorn
from fastapi import FastAPI


class Front:
    def create(self):
        app = FastAPI()

        @app.post("/v1/completions")
        def complete(request):
            return self.engine.complete(request)

        return app

    def serve(self):
        uvicorn.run(self.create())
"""
ROUTED = """from flask import Flask

app = Flask(__name__)


@app.route("/generate", methods=["GET", "POST"])
def ask():
    return {}


@app.route("/models")
def models():
    return {}
"""
FETCHES = """import sys

if len(sys.argv) < 2:
    sys.exit("name a model")
"""
TRAINED = """from kit.trainer import Trainer


def main(args):
    Trainer(args).train()


if __name__ == "__main__":
    main(argv)
"""
SEARCH = """import argparse


def cost(at):
    return at


def search(function, settings):
    return found(settings)


def found(settings):
    return min(settings)


if __name__ == "__main__":
    args = argparse.ArgumentParser().parse_args()
    search(cost, vars(args))
"""


def test_what_a_package_hands_out_installs_and_serves(tmp_path: Path) -> None:
    files = {
        "setup.py": 'from setuptools import setup\n\nsetup(name="kit", scripts=["tools/fetch.py"])\n',
        "tools/fetch.py": FETCHES,
        "kit/__init__.py": "from kit.net import Base, Net, NetConfig, both, load_net, load_part\n",
        "kit/net.py": KIT,
        "kit/front.py": KIT_FRONT,
        "kit/routed.py": ROUTED,
        "kit/trainer.py": "class Trainer:\n    def __init__(self, args): ...\n\n    def train(self):\n        step()\n",
        "kit/pretrain.py": TRAINED,
        # Another program uses the first.
        "kit/tune.py": TRAINED.replace("argv", "pretrain.argv").replace("\n", "\nfrom kit import pretrain\n", 1),
        "kit/search.py": SEARCH,
    }
    rows = read(tmp_path, files)
    ways = {(row.role, row.symbol, row.place.file, row.place.line) for row in rows if row.section == "entry_points"}
    assert ways == {
        # The installed script has no main block: it begins with its first call.
        ("cli", "__main__", "tools/fetch.py", 3),
        ("cli", "main", "kit/pretrain.py", 4),
        ("cli", "main", "kit/tune.py", 5),
        # ``cost`` is handed to what is started.
        ("cli", "search", "kit/search.py", 8),
        # The handler within a method belongs to the class; of the routes one asks for text.
        ("server", "Front", "kit/front.py", 5),
        ("server", "Front.serve", "kit/front.py", 15),
        ("server", "ask", "kit/routed.py", 7),
        # The whole model, by what it builds on, and what it is made with; no part of it and no base of others.
        ("library", "Net", "kit/net.py", 19),
        ("library", "NetConfig", "kit/net.py", 5),
        # ``both`` calls ``load_part``.
        ("library", "load_net", "kit/net.py", 24),
        # Two programs make it.
        ("library", "Trainer", "kit/trainer.py", 1),
    }
    # What users make with defaults: the model, and its settings by the arguments of their constructor.
    settings = {row.symbol for row in rows if row.section == "configuration"}
    assert {"NetConfig.width", "NetConfig.layers", "Net.device"} <= settings


def test_settings_of_what_a_readme_shows_though_own_code_makes_it_too(tmp_path: Path) -> None:
    """And of the constructor that it hands its keywords on to. What own code alone makes has none."""
    files = {
        "README.md": "```python\nfrom nets import Decoder\n\nDecoder(width=8)\n```\n",
        "nets/__init__.py": "from nets.layers import Decoder, Inner, Both\n",
        "nets/layers.py": (
            "import torch\n\n\n"
            "class Layers(torch.nn.Module):\n    def __init__(self, width=4, deep=2):\n        self.width = width\n\n\n"
            "class Decoder(Layers):\n    def __init__(self, causal=True, **kwargs):\n"
            "        super().__init__(**kwargs)\n\n    def forward(self, x):\n        return x\n\n\n"
            "class Inner(torch.nn.Module):\n    def __init__(self, size=3):\n        self.size = size\n\n\n"
            "class Both(torch.nn.Module):\n    def __init__(self):\n"
            "        self.parts = [Decoder(), Inner()]\n"
        ),
    }
    symbols = {row.symbol for row in read(tmp_path, files) if row.section == "configuration"}
    assert symbols == {"Decoder.causal", "Layers.width", "Layers.deep"}


def test_records_of_a_file_of_settings_and_records_on_own_bases(tmp_path: Path) -> None:
    files = {
        "train/recipe_config.py": (
            "from dataclasses import dataclass\n\n\n@dataclass\nclass OptimSection:\n    lr: float = 0.1\n"
        ),
        "train/other.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass Point:\n    x: float = 0.1\n",
        "train/sizes.py": (
            "class Configuration:\n    def __init__(self):\n        self._given = {}\n\n\n"
            "class SmallConfiguration(Configuration):\n    WIDTH = 4\n    DEPTH = 2\n    LIMIT = None\n"
        ),
    }
    symbols = {row.symbol for row in read(tmp_path, files) if row.section == "configuration"}
    small = {f"SmallConfiguration.{name}" for name in ("WIDTH", "DEPTH", "LIMIT")}
    assert symbols == {"OptimSection.lr", *small}


def test_a_package_whose_folder_itself_is_read(tmp_path: Path) -> None:
    """Its first file has no folder: what it hands out is imported from the folder's name."""
    files = {
        "__init__.py": "from .nets import Net\n",
        "nets.py": (
            "import torch\nimport torch.nn.functional as F\n\n\nclass Net(torch.nn.Module):\n"
            "    def forward(self, x):\n        return F.scaled_dot_product_attention(x, x, x)\n"
        ),
    }
    rows = [row for row in read(tmp_path, files) if row.section == "entry_points"]
    assert [(row.symbol, row.why) for row in rows] == [("Net", f"from {tmp_path.name} import Net")]


def test_constants_are_settings_where_there_are_no_others_and_a_function_that_modal_starts(tmp_path: Path) -> None:
    files = {
        "app.py": (
            "import modal\n\nMODEL = 'small'\nROOT = find()\nlower = 2\napp = modal.App('a')\n\n\n"
            "@app.local_entrypoint()\ndef main():\n    return MODEL, ROOT, lower\n"
        ),
    }
    rows = read(tmp_path, files)
    # ROOT is worked out, and `lower` is no name of a constant.
    settings = [(row.role, row.symbol, row.place.line) for row in rows if row.section == "configuration"]
    assert settings == [("constant", "MODEL", 3)]
    ways = [(row.role, row.symbol, row.why) for row in rows if row.section == "entry_points"]
    assert ways == [("cli", "main", "modal run app.py::main")]


def test_a_script_without_a_main_block_and_the_settings_that_it_runs_a_file_over(tmp_path: Path) -> None:
    # The loop stands in the file itself. `steps` and `rate` stand before the line that runs what the command line
    # names; `width` is worked out, and `seen` comes behind.
    files = {
        "train.py": (
            "import torch\nfrom net import Net\n\nsteps = 8\nrate = 0.1\nwidth = int(rate * 80)\n"
            "exec(open('configurator.py').read())\nseen = 0\nmodel = Net()\n"
            "for at in range(steps):\n    loss = model(torch.zeros(1, width))\n    loss.sum().backward()\n"
        ),
        "net.py": (
            "import torch\nimport torch.nn.functional as F\n\n\nclass Net(torch.nn.Module):\n"
            "    def forward(self, x):\n        return F.scaled_dot_product_attention(x, x, x)\n"
        ),
        # It parses arguments for what it calls; the other calls nothing of the code base.
        "chat.py": (
            "import argparse\nfrom net import Net\n\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--text')\nprint(Net()(parser.parse_args().text))\n"
        ),
        "tool.py": "import argparse\n\nparser = argparse.ArgumentParser()\nprint(parser.parse_args())\n",
    }
    rows = read(tmp_path, files)
    settings = {
        (row.role, row.symbol, row.place.line)
        for row in rows
        if row.place.file == "train.py" and row.section == "configuration"
    }
    assert {each for each in settings if each[0] == "cli flag"} == {
        ("cli flag", "--steps", 4),
        ("cli flag", "--rate", 5),
    }
    ways = {row.why for row in rows if row.role == "cli"}
    assert ways == {"python train.py", "python chat.py"}
