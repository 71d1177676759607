"""Parts by what code does: names that say nothing find them, and names alone do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_rules import carrying_calls, ruled_rows

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles import strength
from lmp.codebase.roles.cache import role_of
from lmp.codebase.roles.pitfalls import Pitfall, pitfalls
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
    rows = ruled_rows(reading)
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


def told(reading: Reading) -> list[Pitfall]:
    return pitfalls(reading, ruled_rows(reading), carrying_calls(reading))


PITFALLS = """import os
import argparse
import importlib
import torch


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


class Model:
    def __init__(self, max_batch_size, max_length, device):
        self.keys = torch.zeros(max_batch_size, max_length, device=device)
        self.mask = torch.zeros(max_length, device=device)


def last(steps):
    for step in steps:
        loss = step.run()
    for step in (1, 2):
        kept = step
    return loss, kept


def begin(name):
    torch.distributed.init_process_group("nccl")
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    return importlib.import_module("models." + name), importlib.import_module("models")


def long(ids, limit):
    if len(ids) > limit:
        print("the prompt is too long")
        return None
    return ids


parser = argparse.ArgumentParser()
parser.add_argument("--nccl_port", type=int, default=28765)
parser.add_argument("--table", default="./table.json")
# TODO: this is slow
"""


def test_pitfalls_have_a_form(tmp_path: Path) -> None:
    found = told(read(tmp_path, PITFALLS))
    assert {each.symbol for each in found} == {
        "probe",
        "made",
        "switch",
        "Model.__init__",
        "last",
        "begin",
        "long",
        "--nccl_port",
        "--table",
    }
    assert all(each.trigger and each.effect and each.fix for each in found)
    # The cause is the line that does it, the place the definition: ``def made`` and the line below it.
    made = next(each for each in found if each.symbol == "made")
    lines = PITFALLS.split("\n")
    assert lines[made.place.line - 1] == "def made(items, more):"
    assert lines[made.cause.line - 1] == "    kept = items.extend(more)"
    # A mask of one limit is small; of a loop over two numbers something is left; who says the rank needs no launcher.
    told_of = {each.symbol: [one.written for one in (each, *each.more)] for each in found}
    assert told_of["Model.__init__"] == ["torch.zeros(max_batch_size, max_length, device=device)"]
    assert told_of["last"] == ["loss"]
    assert sorted(told_of["begin"]) == [
        'importlib.import_module("models." + name)',
        'torch.distributed.init_process_group("nccl")',
    ]
    assert told_of["long"] == ['"the prompt is too long"']


STARTED = """import argparse
from fastapi import FastAPI


class Command:
    def cmd(self, args):
        raise NotImplementedError


class Walk(Command):
    def cmd(self, args):
        return 1


def jump(args):
    return 2


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for one in made():
        commands.add_parser("one").set_defaults(run=one.cmd)
    commands.add_parser("jump").set_defaults(run=jump)


def made():
    return loaded("commands")


def application():
    app = FastAPI()
    return app
"""


def test_subcommands_and_makers_of_servers_are_ways_to_run(tmp_path: Path) -> None:
    rows = ruled_rows(read(tmp_path, STARTED))
    # Of the method that the parser starts, the class that overrides it; of a plain function, the function.
    assert symbols(rows, "entry_points") == {"Walk", "jump", "application"}


def test_what_lies_beside_a_run_counts_less(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "m.py").write_text(ENGINE)
    rows = ruled_rows(read(tmp_path, ENGINE))
    ranks = {row.place.file: row.rank for row in rows if row.symbol == "Pool"}
    # The same class has three witnesses less there, one more where others of its file are shown; its methods too few.
    assert ranks["experiments/m.py"] - ranks["m.py"] == 4
    assert {row.place.file for row in rows if row.symbol == "Pool.alloc"} == {"m.py"}
    plain = "".join(f"def f{number}():\n    pass\n\n\n" for number in range(100))
    aside = ruled_rows(read(tmp_path, plain))
    # Where requests wait beside a run alone, there is no scheduler of a run.
    assert symbols(aside, "scheduler") == set()
    # What most functions lie in is what the code base is about, whatever it is named.
    about = ruled_rows(read(tmp_path, "x = 1\n"))
    assert symbols(about, "scheduler") != set()


SETTINGS = """from dataclasses import dataclass


@dataclass
class RunConfig:
    step_count: int = 4
    step_timeout: float = 100.0


def verify(config):
    if config.step_count > 8:
        raise ValueError("too many")
    if config.step_count < 0:
        config.step_count = 1


def helper(tree):
    if tree.depth > 8:
        raise ValueError("too deep")
"""


def test_settings_files_that_the_code_reads_and_no_presets_of_them(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("step_count: 4\nstep_timeout: 1\n")
    (tmp_path / "small.yaml").write_text("step_count: 2\n")
    (tmp_path / "other.yaml").write_text("image: x\nports: y\n")
    # Of two alike files of which the code reads few keys, the one that the README shows.
    (tmp_path / "sizes").mkdir()
    (tmp_path / "README.md").write_text("Run `m.py --config sizes/mid`.\n")
    (tmp_path / "sizes" / "mid.yaml").write_text("step_count: 4\nlanes: 1\n")
    (tmp_path / "sizes" / "large.yaml").write_text("step_count: 4\nlanes: 1\ndepth: 2\n")
    rows = [row for row in ruled_rows(read(tmp_path, SETTINGS)) if row.section == "configuration"]
    assert {(row.place.file, row.symbol) for row in rows} == {
        ("m.py", "RunConfig.step_count"),
        ("m.py", "RunConfig.step_timeout"),
        ("base.yaml", "step_count"),
        ("base.yaml", "step_timeout"),
        ("sizes/mid.yaml", "step_count"),
        ("sizes/mid.yaml", "lanes"),
    }


def test_a_settings_file_that_code_names_comes_before_alike_files(tmp_path: Path) -> None:
    # ``serve.yaml`` is named without its ending and puts ``mid.yaml`` in; the code reads no key of ``serve.yaml`` by
    # its name, and of the other files of these folders no code says that they are run.
    folder = tmp_path / "settings"
    (folder / "models").mkdir(parents=True)
    (folder / "serve.yaml").write_text("defaults:\n  - models: mid\nserve:\n  host: a\n  port: 1\n")
    (folder / "serve_slow.yaml").write_text("step_count: 4\nstep_timeout: 1\nserve:\n  host: b\n")
    (folder / "models" / "mid.yaml").write_text("step_count: 4\n")
    (folder / "models" / "large.yaml").write_text("step_count: 8\nstep_timeout: 1\n")
    named = "import hydra\n\n\n@hydra.main(config_path='settings', config_name='serve')\ndef main(args):\n    pass\n"
    rows = ruled_rows(read(tmp_path, SETTINGS + "\n\n" + named))
    found = {row.place.file for row in rows if row.section == "configuration" and row.role == "config file"}
    assert found == {"settings/serve.yaml", "settings/models/mid.yaml"}


def test_pitfalls_are_of_settings(tmp_path: Path) -> None:
    found = {each.symbol: each for each in reversed(told(read(tmp_path, SETTINGS)))}
    # ``helper`` refuses what no setting brings about: it comes after ``verify``.
    assert [each for each in reversed(found) if each != "RunConfig.step_timeout"] == ["verify", "helper"]
    # The value that is replaced without a word stands beside the refusal, which has a message.
    causes = {each.written for each in (found["verify"], *found["verify"].more)}
    assert causes >= {"config.step_count if config.step_count < 0", "config.step_count > 8"}
    assert found["RunConfig.step_timeout"].trigger == "One step takes longer than 100.0."


LAUNCH = """import queue
import os
import torch
from small.parts import draw, lost


class Front:
    def __init__(self):
        self.waiting = queue.Queue()

    def put(self, one):
        try:
            self.waiting.put(one, block=False)
        except queue.Full:
            raise RuntimeError("full")
        return self.engine.run(one)

    def listen(self):
        try:
            self.put(1)
        except Exception:
            os.kill(os.getpid(), 9)


def generate(prompt, max_tokens=16, seed=0, top_p=1.0, mask=None):
    seed = torch.initial_seed()
    prompt = prompt[:max_tokens]
    tail = prompt[seed:]
    drawn = draw(prompt)
    for one in drawn:
        print(one.item())
    return drawn, draw(tail, top_p=0.8)


def start():
    torch.cuda.set_device(torch.distributed.get_rank())


if __name__ == "__main__":
    generate([1])
"""
PARTS = """from torch import nn
from torch.utils.cpp_extension import load

kernels = load(name="kernels", sources=["kernels.cu"])


def draw(prompt, mask=None, top_p=1.0):
    return prompt, mask, top_p


class Part(nn.Module):
    def __init__(self, size):
        self.inner = nn.Linear(size, size)


class Whole(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Linear(size, size)


def chosen(mode, input_ids, states, overflow):
    if mode == "fast":
        run = quick
    elif mode == "small":
        run = slim
    else:
        run = plain
    if mode == "fast":
        run = quick
    elif mode == "small":
        run = slim
    else:
        raise ValueError(mode)
    states = states[:, -overflow:]
    input_ids = input_ids[:, -overflow:]
    logger.info("unknown settings are left out")
    logger.info("made")
    return run(input_ids, states)


class Window:
    def put(self, history, one, max_context):
        history.append(one)
        history = history[-max_context:]
        self.least = min(self.least, len(history))
        return history
"""
FILES = {"parts.py": PARTS, "launch.py": LAUNCH}


def test_pitfalls_of_what_the_code_does(tmp_path: Path) -> None:
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(PARTS)
    (package / "launch.py").write_text(LAUNCH)
    found = told(Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None)))
    lines = {(file, n): line for file in FILES for n, line in enumerate(FILES[file].split("\n"), 1)}
    # By reading: each line and what is wrong with it. ``tail`` starts where a count says, so nothing is cut to a limit.
    # What grows and is cut in its own place is a window; the least of what was seen is no limit.
    expected = {
        "from small.parts import draw, lost": "lost",  # parts.py has no such name
        "        self.waiting = queue.Queue()": "self.waiting = queue.Queue()",  # never full, though Full is caught
        "        return self.engine.run(one)": "self.engine",  # no line sets it
        "        except Exception:": "except Exception",  # kills the process
        "def generate(prompt, max_tokens=16, seed=0, top_p=1.0, mask=None):": "max_tokens = 16",
        "def draw(prompt, mask=None, top_p=1.0):": "top_p = 1.0",  # counts where nothing is given
        "    seed = torch.initial_seed()": "seed",  # given, and never read before
        (device := "    torch.cuda.set_device(torch.distributed.get_rank())"): device.strip(),  # of all machines
        "    prompt = prompt[:max_tokens]": "prompt[:max_tokens]",
        "    return drawn, draw(tail, top_p=0.8)": "mask",  # ``draw`` takes it, and does not get it
        "    drawn = draw(prompt)": "top_p, mask",  # ``draw`` takes both, and gets none
        "        print(one.item())": "one.item()",  # the host waits for each
        'kernels = load(name="kernels", sources=["kernels.cu"])': "torch.utils.cpp_extension.load",  # at import
        "    def __init__(self, size):": "class Part",  # of the two modules the one that does not call its base
        '    if mode == "fast":': "mode",  # the first of the two: the second refuses what it does not know
        "        raise ValueError(mode)": 'not (mode == "small")',  # in the branch that is taken otherwise
        "    input_ids = input_ids[:, -overflow:]": "input_ids[:, -overflow:]",  # texts, where states are none
        '    logger.info("unknown settings are left out")': '"unknown settings are left out"',
    }
    every = [one for each in found for one in (each, *each.more)]
    by_line: dict[str, set[str]] = {}
    for each in every:
        by_line.setdefault(lines[each.cause.file.rpartition("/")[2], each.cause.line], set()).add(each.written)
    assert by_line.keys() == expected.keys()
    two = expected.pop("def generate(prompt, max_tokens=16, seed=0, top_p=1.0, mask=None):")
    (settings,) = (by_line.pop(line) for line in list(by_line) if line not in expected)
    # Of two settings in one line that have a default, weights tell which comes first.
    assert settings <= {two, "top_p = 1.0"}
    assert by_line == {line: {written} for line, written in expected.items()}


TOOLS = """import os
import signal
import subprocess
import library
import torch

CACHE_DIR = os.path.join(os.getcwd(), "kept")
LEVEL = os.environ.get("LEVEL", "1")
MAX_PARTS = 8


def fetch(names, queue, path, options, max_retries=3):
    global LAST
    for name in names:
        if not name:
            continue
        try:
            library.get(name)
        except Exception:
            LAST = None
        try:
            library.get(name)
        except KeyError as error:
            raise ValueError(name) from error
    while True:
        if queue.get():
            break
    if os.path.exists(path):
        return path
    os.makedirs(path)
    os.makedirs(path, exist_ok=True)
    subprocess.run(["tool", path])
    library.urlretrieve(path)
    return None


def state(module, options, past, new, probs, generator):
    library.Layer.forward = new
    os.environ["MODE"] = "fast"
    signal.signal(2, new)
    for key, value in options.items():
        setattr(module, key, value)
    setattr(module, "key", new)
    half = torch.cat([new, probs])
    for at in range(len(new)):
        past = torch.load(new[at])
    one = torch.load(new, weights_only=True)
    torch.manual_seed(0)
    generator.manual_seed(0)
    torch.multinomial(probs, 1, generator=generator)
    return half, one, new[:MAX_PARTS], torch.multinomial(probs, 1)
"""


def test_pitfalls_of_what_goes_unsaid(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    found = told(Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None)))
    lines = TOOLS.split("\n")
    named = {lines[one.cause.line - 1].strip() for each in found for one in (each, *each.more)}
    # By reading, of each pair of alike lines the one that goes unsaid: the other is raised again, is guarded by an
    # argument, or is of an object of its own. Of a function eight causes are told.
    fetched = {
        "if not name:",
        "except Exception:",
        "while True:",
        "if os.path.exists(path):",
        "os.makedirs(path)",
        'subprocess.run(["tool", path])',
        "library.urlretrieve(path)",
        "def fetch(names, queue, path, options, max_retries=3):",
        "if queue.get():",
        "global LAST",
    }
    changed = {
        "library.Layer.forward = new",
        'os.environ["MODE"] = "fast"',
        "signal.signal(2, new)",
        "setattr(module, key, value)",
        "past = torch.load(new[at])",
        "torch.manual_seed(0)",
        "return half, one, new[:MAX_PARTS], torch.multinomial(probs, 1)",
    }
    once = {lines[at].strip() for at in (6, 7, 8)}
    assert named <= fetched | changed | once
    assert once <= named
    assert len(named & fetched) == 8
    assert changed <= named


SERVICE = """import threading
import tqdm

import uvloop
from PIL import Image

ADDRESS = "localhost:5050"
TITLE = "a localhost for all"


class Where:
    FIRST = "gs://bucket/first"


class Loop:
    def __init__(self, source):
        self.source = source
        self.thread = threading.Thread(target=self)

    def __call__(self):
        while True:
            self.step(self.source)

    def step(self, prompts):
        first = prompts[0]
        return self.wrong_name, first

    def both(self, prompts):
        return prompts[0], len(prompts)

    def in_this_thread(self):
        while True:
            self.step(1)


def room(torch):
    return torch.cuda.get_device_properties(0).total_memory


def free(torch):
    return torch.cuda.get_device_properties(0).total_memory - torch.cuda.memory_allocated()


def main(get):
    Loop(get)
    options = {"do_sample": True, "other": 3}
    return options, room(get), free(get)


if __name__ == "__main__":
    main(print)
"""


def test_pitfalls_of_a_service(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "requirements.txt").write_text("numpy\nzmq>=2\nflask\nPillow==10.0\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "s"\noptional-dependencies.fast = ["uvloop>=1"]\n')
    found = told(Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None)))
    lines = SERVICE.split("\n")
    # By reading. uvloop comes with an extra alone, Pillow (PIL) is required, and tqdm comes with torch.
    expected = {
        "import uvloop": "import uvloop",
        'ADDRESS = "localhost:5050"': 'ADDRESS = "localhost:5050"',  # a title that has the word is none
        '    FIRST = "gs://bucket/first"': 'FIRST = "gs://bucket/first"',
        "        while True:": "while True",  # of ``__call__``, which a thread runs
        "        first = prompts[0]": "prompts[0]",  # ``both`` counts them too
        "        return self.wrong_name, first": "self.wrong_name",
        "    return torch.cuda.get_device_properties(0).total_memory": (
            "torch.cuda.get_device_properties(0).total_memory"  # ``free`` asks for what is taken
        ),
        '    options = {"do_sample": True, "other": 3}': "do_sample = True",
    }
    every = [one for each in found for one in (each, *each.more)]
    assert {lines[each.cause.line - 1]: each.written for each in every if each.cause.file == "service.py"} == expected
    assert (
        next(each.cause.line for each in every if each.written == "while True")
        == lines.index("        while True:") + 1
    )
    of_class = next(each for each in every if each.written.startswith("FIRST"))
    assert lines[of_class.place.line - 1] == "class Where:"
    effect = next(each.effect for each in every if each.written == "import uvloop")
    assert effect.endswith("uvloop is installed with an extra alone.")


COMMANDS = """from jsonargparse import CLI

from tool import work

COMMANDS = {"make": work.make, "take": work.take}

if __name__ == "__main__":
    CLI(COMMANDS)
"""
WORK = """def make(
    size: int = 4,
    *,
    name: str = "a",
):
    return size, name


def take(folder):
    with open(folder / "run_config.yaml") as file:
        return file.read()


def other(count: int):
    return count
"""


def test_arguments_of_functions_that_are_made_flags(tmp_path: Path) -> None:
    package = tmp_path / "tool"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(WORK)
    (package / "__main__.py").write_text(COMMANDS)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    rows = {(row.symbol, row.place.line, row.why) for row in ruled_rows(reading) if row.section == "configuration"}
    # ``other`` is no command. ``work.py`` runs no model, and nothing else does: its files count.
    assert rows == {
        ("--size", 2, "4"),
        ("--name", 4, '"a"'),
        ("--folder", 9, ""),
        ("run_config.yaml", 10, ""),
    }


def test_a_class_that_keeps_keys_and_values_is_a_cache(tmp_path: Path) -> None:
    text = """
class View:
    def __init__(self, cache_k, cache_v, count):
        self.cache_k = cache_k
        self.cache_v = cache_v

    def put(self, k, v):
        first = self.cache_k.shape[0]
        self.cache_k.index_copy_(0, first, k)
        self.cache_v.index_copy_(0, first, v)


class Table:
    def __init__(self, key, value):
        self.key, self.value = key, value


def run(k, v):
    View(k, v, 1).put(k, v)
"""
    # Keys and values of a table are those of no cache.
    assert symbols(ruled_rows(read(tmp_path, text)), "kv_cache") & {"View", "Table"} == {"View"}


ATTENDS = """import flashinfer
import torch


def twice(keys, values, times):
    many = keys.repeat(times)
    more = values.repeat(times)
    return many, more


class Zebra(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.run_it = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(1))
        self.other = flashinfer.SegmentGEMMWrapper(torch.empty(1))

    def forward(self, x, keys, values):
        keys, values = twice(keys, values, 2)
        return self.run_it.run(x, (keys, values))


class Lemur:
    def __init__(self):
        self.gemm = flashinfer.SegmentGEMMWrapper(torch.empty(1))

    def forward(self, x, weights):
        y = self.gemm.run(x, weights)
        return y + x


class Walrus:
    def __init__(self):
        self.zebra, self.lemur = Zebra(), Lemur()

    def go(self, x, keys, values):
        return self.lemur.forward(self.zebra.forward(x, keys, values), values)
"""


def test_attention_by_its_ties(tmp_path: Path) -> None:
    rows = [row for row in ruled_rows(read(tmp_path, ATTENDS)) if row.section == "attention"]
    found = {row.symbol for row in rows}
    # The object of another package that computes it is run in forward; twice works on its operands for it alone. A
    # matrix product of the same package is no attention.
    assert found >= {"Zebra", "Zebra.forward", "twice"}
    assert not any(name.startswith(("Lemur", "Walrus")) for name in found)
    # The line of the call itself, where the code base is small.
    line = 1 + ATTENDS.splitlines().index("        return self.run_it.run(x, (keys, values))")
    assert line in {row.place.line for row in rows}


HOLDS = """import torch
from dataclasses import dataclass


def sizes(layers, longest, window):
    if window is None:
        return layers * [longest]
    parts = [min(longest, each) for each in window]
    return parts * layers


@dataclass
class Places:
    positions: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor


class Shelf:
    def __init__(self, layers, longest):
        self.each = sizes(layers, longest, None)
        self.cache_k = {}
        self.cache_v = {}
        for layer, size in enumerate(self.each):
            self.cache_k[layer] = torch.empty(size, 8)
            self.cache_v[layer] = torch.empty(size, 8)

    def places(self, lengths):
        positions = torch.arange(sum(lengths))
        return Places(positions, positions % 8, lengths)

    def free(self, at):
        for layer in self.cache_k:
            self.cache_k[layer][at] = 0
            self.cache_v[layer][at] = 0


class Runner:
    def room(self, share):
        left, total = torch.cuda.mem_get_info()
        per_token = 2 * self.layers * self.kv_heads * 2
        usable = int(left * share)
        limit = usable // per_token
        return limit

    def start(self):
        limit = self.room(0.9)
        self.layers = 2
        self.kept = 0
        self.shelf = Shelf(self.layers, limit)
        return limit

    def finish(self, request):
        at = request.at
        done = request.done
        request.at = None
        if done:
            self.shelf.free(at)


def main():
    runner = Runner()
    runner.start()
    runner.room(0.5)
    runner.finish(None)


if __name__ == "__main__":
    main()
"""


def test_cache_by_what_makes_sizes_and_gives_back(tmp_path: Path) -> None:
    found = symbols(ruled_rows(read(tmp_path, HOLDS)), "kv_cache")
    # Shelf keeps keys and values, Runner divides the free memory by the bytes of a token,
    # makes the cache, and gives places back.
    assert found >= {"Shelf", "Shelf.__init__", "Shelf.free"}
    assert found >= {"Runner.room", "Runner.start", "Runner.finish"}
    assert not found & {"Runner", "main"}


HANDED_ON = """import torch
import torch.nn.functional as F


class Holder:
    def __init__(self, size):
        self.k_cache = torch.zeros(size, 8)
        self.v_cache = torch.zeros(size, 8)

    def reset(self):
        self.k_cache.zero_()
        self.v_cache.zero_()


class Mix:
    def __init__(self):
        self.held = None

    def setup_cache(self, size):
        if self.held is not None:
            print("there is one")
            return
        self.enabled = True
        self.held = Holder(size)

    def reset_cache(self):
        if self.held is None:
            raise RuntimeError("there is none")
        self.enabled = True
        self.count = 0
        self.held.reset()

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class Model:
    def __init__(self):
        self.mixes = [Mix(), Mix()]

    def setup_caches(self, size):
        if size < 1:
            raise ValueError("too short")
        self.size = size
        for mix in self.mixes:
            mix.setup_cache(size)

    def reset_caches(self):
        if not self.size:
            raise ValueError("none")
        self.at = 0
        for mix in self.mixes:
            mix.reset_cache()


def main():
    model = Model()
    model.setup_caches(8)
    model.reset_caches()
"""


def test_what_hands_the_cache_on(tmp_path: Path) -> None:
    found = symbols(ruled_rows(read(tmp_path, HANDED_ON)), "kv_cache")
    # Mix makes and empties a Holder.
    assert found >= {"Holder", "Holder.__init__", "Holder.reset", "Mix.setup_cache", "Mix.reset_cache"}
    assert "main" not in found


RETURNED = """import torch
import torch.nn.functional as F


class Mix(torch.nn.Module):
    def forward(self, q, k, v, layer_past=None):
        if layer_past is not None:
            past_k, past_v = layer_past
            k = torch.cat((past_k, k), dim=1)
            v = torch.cat((past_v, v), dim=1)
        out = F.scaled_dot_product_attention(q, k, v)
        return out, (k, v)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mixes = [Mix(), Mix()]

    def forward(self, x, past_key_values):
        present_key_values = []
        for mix, layer_past in zip(self.mixes, past_key_values):
            x, pair = mix(x, x, x, layer_past)
            present_key_values.append(pair)
        return x, present_key_values


def put(keys, values, key_cache, value_cache, places):
    key_cache[places] = keys
    value_cache[places] = values
    everything = (key_cache, value_cache)
    size = key_cache.shape
    return everything, size


def put_where(keys, values, key_cache, value_cache, places):
    result_key_cache, result_value_cache = torch.ops.far.put(
        keys, values, key_cache, value_cache, places
    )
    size = places.shape
    first = size[0]
    return result_key_cache, result_value_cache, first


def spread(states, room, mask):
    amount = mask.sum(1)
    width = mask.shape[1]
    chosen = states[mask]
    room[:, :width] = chosen
    return room, amount


def go_on(model: Model, x):
    past_key_values = None
    for step in range(8):
        out = model(x, past_key_values=past_key_values)
        past_key_values = out.past_key_values
        x = out.logits.argmax(-1)
    return x


def lookup(names, make):
    found = {}
    for name in names:
        cache_key = make(name)
        found[cache_key] = make(cache_key)
    longest = max(found)
    return longest


def main():
    model = Model()
    past_key_values = [None, None]
    x = torch.zeros(1)
    for step in range(8):
        logits, past_key_values = model.forward(x, past_key_values)
        x = logits.argmax(-1)
    put(x, x, x, x, x)
    put_where(x, x, x, x, x)
    k_cache, rest = spread(x, past_key_values[0], x)
    go_on(model, x)
    return lookup(["a"], str)


if __name__ == "__main__":
    main()
"""


def test_keys_and_values_that_no_object_owns(tmp_path: Path) -> None:
    found = symbols(ruled_rows(read(tmp_path, RETURNED)), "kv_cache")
    # Mix joins them, Model collects those of its layers, put fills them, put_where has another do so, spread fills
    # those that main gives it, main and go_on carry them from step to step. The key of a lookup is that of any cache.
    assert found == {"Mix.forward", "Model.forward", "put", "put_where", "spread", "go_on", "main"}


LENT = """import torch
import torch.nn.functional as F


class Lender:
    def __init__(self, limit):
        self.limit = limit
        self.lent: dict[int, torch.Tensor] = {}

    def allocate(self, count, shape):
        if count > self.limit:
            raise MemoryError
        self.limit -= count
        self.lent[count] = shape.make()
        return count

    def free(self, handle):
        self.limit += handle
        if handle not in self.lent:
            raise KeyError
        self.lent.pop(handle)
        return handle


class Run:
    def __init__(self):
        self.cache_lender = Lender(8)

    def again(self, shared):
        handle = self.cache_lender.allocate(2, shared)
        if handle > 4:
            handle = 4
        cache = shared.cache
        cache.length = 0
        return handle

    def go(self, q, k, v):
        self.again(q)
        return F.scaled_dot_product_attention(q, k, v)


def main():
    Run().go(1, 2, 3)
"""


def test_a_lender_of_tensors_and_what_sets_a_length(tmp_path: Path) -> None:
    rows = [row for row in ruled_rows(read(tmp_path, LENT)) if row.section == "kv_cache"]
    # Lender says that it keeps tensors, gives their handles and takes them back.
    assert {row.symbol for row in rows} == {"Lender", "Lender.allocate", "Lender.free", "Run.again"}


TABLES = """import torch.nn.functional as F

KINDS = {}


def register_attention(name, run):
    if name in KINDS:
        raise KeyError(name)
    print(name)
    KINDS[name] = run


def find_attention(name):
    if name not in KINDS:
        raise KeyError(name)
    print(name)
    return KINDS[name]


def repeat(states, times):
    if times == 1:
        return states
    wide = states.expand(times)
    print(times)
    return wide.flatten()


def plain(q, k, v):
    k = repeat(k, 2)
    v = repeat(v, 2)
    return F.scaled_dot_product_attention(q, k, v)


register_attention("plain", plain)


class FusedQKV:
    def __init__(self, width):
        self.width = width

    def forward(self, x):
        return x, x, x


class SelfAttention:
    def __init__(self, qkv: FusedQKV):
        self.qkv = qkv

    def forward(self, x):
        q, k, v = self.qkv.forward(x)
        return plain(q, k, v)


class Layer:
    def __init__(self):
        self.mix = SelfAttention(FusedQKV(8))

    def forward(self, x):
        return self.mix.forward(x)


def main():
    find_attention("plain")
    Layer().forward([1])
"""


def test_a_table_of_attention_and_its_parts(tmp_path: Path) -> None:
    rows = [row for row in ruled_rows(read(tmp_path, TABLES)) if row.section == "attention"]
    # A table is filled and read by two functions. SelfAttention takes a FusedQKV; repeat is given
    # keys and values by what attends.
    assert {row.symbol for row in rows} >= {
        *("register_attention", "find_attention", "plain", "repeat", "FusedQKV", "SelfAttention"),
    }


WRAPPED = """import torch
from tool import settings


@settings.parsed
def main(size):
    return torch.argmax(torch.nn.functional.scaled_dot_product_attention(size, size, size))
"""
PARSED = """import argparse


def parsed(run):
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default=8)
    return lambda: run(parser.parse_args().size)
"""
OTHER = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--other")
"""
GATE = OTHER.replace("other", "port") + "app = fastapi.FastAPI()\n"


def test_flags_of_what_wraps_a_run(tmp_path: Path) -> None:
    package = tmp_path / "tool"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "work": WRAPPED,
        "settings": PARSED,
        "other": OTHER,
        "gate": "import fastapi\n" + GATE,
    }.items():
        (package / f"{name}.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    rows = [row.symbol for row in ruled_rows(reading) if row.section == "configuration"]
    # What serves takes part in a run. The decorator of what runs a model reads the flags of the run. These come first;
    # where a code base has few settings, those of other files follow.
    assert rows == ["--port", "--size", "--other"]


def test_of_many_alike_what_most_share_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = (
        "import torch\nimport torch.nn.functional as F\n\n\nclass {name}Attention(torch.nn.Module):\n"
        "    def forward(self, q, k, v):\n        return F.scaled_dot_product_attention(q, k, v)\n"
    )
    files = {f"net/models/a{at}.py": attention.format(name=f"A{at}") for at in range(6)}
    files["net/layers/zebra.py"] = attention.format(name="Zebra")
    for at in range(6):
        files[f"net/users/b{at}.py"] = "from net.layers.zebra import ZebraAttention\n\nmade = ZebraAttention()\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(strength, "MOST", 3)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    shown = [row.symbol for row in ruled_rows(reading) if row.section == "attention"]
    # Seven classes do the same; six files import the one that stands last by its name and its file.
    assert shown[0] == "ZebraAttention"
    assert len(shown) == 3


def test_settings_that_a_constructor_sets_itself(tmp_path: Path) -> None:
    text = (
        "import torch\n\n\nclass NetConfig:\n    def __init__(self, path):\n        self.path = path\n"
        "        self.max_len = 2048\n        self.fused = True\n        self.chunk = 16\n\n\n"
        "class Worker:\n    def __init__(self):\n        self.a = 1\n        self.b = 2\n        self.c = 3\n\n\n"
        "class Net(torch.nn.Module):\n    def __init__(self, config):\n        self.config = config\n\n"
        "    def forward(self, x):\n        return torch.nn.functional.scaled_dot_product_attention(x, x, x)\n"
    )
    (tmp_path / "net.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    fields = [row for row in ruled_rows(reading) if row.section == "configuration" and row.role == "config class field"]
    # The path is given to it. A worker is no config, whatever it keeps.
    assert [(row.symbol, row.place.line) for row in fields] == [
        ("NetConfig.max_len", 7),
        ("NetConfig.fused", 8),
        ("NetConfig.chunk", 9),
    ]


def test_settings_that_a_constructor_keeps_a_build_reads_and_commands_repeat(tmp_path: Path) -> None:
    flags = "    p.add_argument('--{0}')\n    p.add_argument('--path')\n    p.add_argument('--seed')\n"
    command = (
        "import argparse\n\nimport remote\n\n\ndef train(args):\n    remote.start(args)\n\n\n"
        "if __name__ == '__main__':\n    p = argparse.ArgumentParser()\n{}    train(p.parse_args())\n"
    )
    shelf = "class ModelConfig:\n    width = 1\n    depth = 2\n    heads = 3\n"
    files = {
        "setup.py": "import os\n\nFAST = os.getenv('NET_FORCE_BUILD', '0')\n",
        "net/__init__.py": "",
        "net/settings.py": (
            "class LoadConfig:\n    def __init__(self, where, device='cpu', bits=4, threads=1):\n"
            "        self.where = where\n        self.device = device\n        self.bits = bits\n"
            "        self.threads = threads\n"
        ),
        "net/model.py": (
            "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
            "        return torch.nn.functional.scaled_dot_product_attention(x, x, x)\n"
        ),
        **{f"net/cli/{name}.py": command.format(flags.format(name)) for name in ("lr", "beta", "margin", "clip")},
        **{f"net/models/m{at}/config.py": shelf for at in range(10)},
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    found = [row.symbol for row in ruled_rows(reading) if row.section == "configuration"]
    # Of 12 flags 6 names differ, which are not fewer than half: each stands where it is. No command leads to the model.
    assert sorted(each for each in found if each[:2] == "--") == sorted(
        ["--beta", "--clip", "--lr", "--margin", *4 * ["--path"], *4 * ["--seed"]]
    )
    # Where to load from has no default. Of ten folders of models none has the settings of the others.
    assert [each for each in found if each[:2] != "--"] == [
        "NET_FORCE_BUILD",
        *(f"LoadConfig.{name}" for name in ("device", "bits", "threads")),
    ]
    (tmp_path / "net/cli/more.py").write_text(command.format(flags.format("lr")))
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    found = [row.symbol for row in ruled_rows(reading) if row.section == "configuration"]
    # Now they are 15 with 6 names: each once.
    assert sorted(each for each in found if each[:2] == "--") == sorted(
        ["--beta", "--clip", "--lr", "--margin", "--path", "--seed"]
    )


def test_a_library_is_set_by_what_its_readme_makes_it_with(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "    from net import Auto\n    model = Auto.from_folder('a', bits=8)\n    model.quantize(4)\n"
    )
    (tmp_path / "net").mkdir()
    (tmp_path / "net/__init__.py").write_text("from net.auto import Auto\n")
    (tmp_path / "net/auto.py").write_text(
        "import torch\n\n\nclass Auto(torch.nn.Module):\n    @classmethod\n    def from_folder(cls, path, bits=4):\n"
        "        return cls()\n\n    def quantize(self, group=64):\n        return group\n\n"
        "    def forward(self, x):\n        return torch.nn.functional.scaled_dot_product_attention(x, x, x)\n"
    )
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    found = [row.symbol for row in ruled_rows(reading) if row.section == "configuration"]
    # A path has to be given, and with so few settings it is one as well.
    assert found[:2] == ["Auto.from_folder.path", "Auto.from_folder.bits"]


def test_a_main_block_that_hands_on_each_argument_starts_that_function(tmp_path: Path) -> None:
    (tmp_path / "merge.py").write_text(
        "import argparse\n\n\ndef apply(model, out):\n    print(model, out)\n\n\n"
        "if __name__ == '__main__':\n    parser = argparse.ArgumentParser()\n    args = parser.parse_args()\n"
        "    apply(args.model, args.out)\n"
    )
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    begins = [row for row in ruled_rows(reading) if row.section == "entry_points"]
    assert [(row.role, row.symbol, row.place.line) for row in begins] == [("cli", "apply", 4)]


def test_a_default_in_the_body_of_a_class_is_told_with_the_class(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom dataclasses import dataclass\n\n\n@dataclass\nclass Window:\n"
        '    """Keeps the last tokens.\n\n    A window.\n    """\n\n    window_size: int = 64\n\n'
        "    def run(self, x):\n"
        "        return torch.nn.functional.scaled_dot_product_attention(x, x, x[-self.window_size :])\n"
    )
    (tmp_path / "net.py").write_text(text)
    (found,) = (
        each
        for each in told(Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None)))
        if each.cause.line == 12
    )
    # The class begins in line 6, its field stands in line 12.
    assert (found.symbol, found.place.line) == ("Window", 6)
    assert found.written == "window_size = 64"


def test_what_a_cache_is_asked_is_accounting() -> None:
    # `can_allocate` frees and allocates nothing, nor does `get_num_free_blocks`; `scan_blocks` has `can` inside.
    names = ("Manager.can_allocate", "get_num_free_blocks", "is_block_cached", "allocate", "scan_blocks")
    assert [role_of(name, None) for name in names] == ["accounting", "accounting", "accounting", "allocate", "paging"]
