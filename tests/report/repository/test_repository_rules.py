"""Rules by which a repository report says what is so, and leaves out what says nothing: each on a few made-up files."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import Reported, line_of, reported, written

from lmp.codebase.facts import Selection
from lmp.errors import UsageError
from lmp.report.code_base import read_code_base
from lmp.report.repository.pieces import unmarked

LOOP = '''"""Generation."""
import functools

from serve.cache import KVCache, shrink


class PromptBatch:
    def __init__(self):
        self.cache = KVCache()

    def prompt(self, tokens):
        """Runs a part of each prompt."""
        return self.cache.update_and_fetch(tokens)


class GenerationBatch:
    def __init__(self):
        self.cache = KVCache()

    def next(self):
        """One token of each sequence."""
        return self.cache.update_and_fetch([1])


class BatchGenerator:
    """Batches requests."""

    def __init__(self):
        self._generation_batch = GenerationBatch()
        self._prompt_batch = PromptBatch()

    def insert(self, prompt):
        self.waiting.append(prompt)

    def _next(self):
        caches = []
        if len(self._generation_batch) > 0:
            responses = self._generation_batch.next()
        for _ in range(4):
            caches.append(KVCache())
        self._prompt_batch.prompt(self.waiting)
        return responses


def generate_step(prompt, model, sampler, processors):
    """Tokens of one prompt."""
    shrink_cache_fn = functools.partial(shrink, most=8)
    while len(prompt) > 1:
        model(prompt[:512])
        shrink_cache_fn(prompt)
        prompt = prompt[512:]
    while True:
        logits = model(prompt)
        for processor in processors:
            logits = processor(prompt, logits)
        yield sampler(logits)
'''
CACHE = """class KVCache:
    def update_and_fetch(self, tokens):
        self.offset += len(tokens)
        return self.keys_and_values()

    def trim(self, n):
        return n

    @property
    def nbytes(self):
        if self.keys is None:
            return 0
        return self.keys.nbytes + self.values.nbytes


class Notes:
    def append(self, note):
        self.notes += [note]


def shrink(cache, most):
    return cache[-most:]
"""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    files = {"serve/__init__.py": "", "serve/generate.py": LOOP, "serve/cache.py": CACHE}
    return reported(written(tmp_path_factory.mktemp("r") / "serving", files))


def test_a_partial_is_followed_to_its_function(serving: Reported) -> None:
    lines = serving.section("Prefill vs decode loop (real nesting)").split("\n")
    at = next(number for number, line in enumerate(lines) if "shrink_cache_fn(prompt)" in line)
    assert "serve/cache.py" in lines[at + 1]
    assert "(shrink)" in lines[at + 1]


def test_a_lists_append_is_no_method_of_the_repository(serving: Reported) -> None:
    # Notes.append is the only method of this name, and `caches` is a list.
    assert "Notes" not in serving.section("Prefill vs decode loop (real nesting)")
    assert "only method" not in serving.section("Open questions")


def test_a_place_has_its_docstring_or_what_makes_it_one(serving: Reported) -> None:
    loop = serving.section("Key components (with code locations)")
    assert "“Batches requests" in loop or "“Tokens of one prompt" in loop
    # Nothing is made up of what a function returns or calls.
    assert "returns `" not in loop
    assert "calls `" not in loop


def test_a_read_that_is_asked_for_first_is_no_pitfall(tmp_path: Path) -> None:
    source = """import os


def guarded():
    if "GUARDED" in os.environ:
        return os.environ["GUARDED"]
    return None


def kept():
    os.environ.setdefault("KEPT", "1")
    return os.environ["KEPT"]


def bare():
    return os.environ["BARE"]
"""
    report = reported(written(tmp_path / "r", {"m.py": source}))
    pitfalls = report.section("Pitfalls / time sinks")
    assert "`BARE` is read without a default" in pitfalls
    assert "GUARDED" not in pitfalls
    assert "KEPT" not in pitfalls
    rows = [row for row in report.section("Appendix A: environment variables").split("\n") if "must be set" in row]
    assert len(rows) == 1
    assert "`BARE`" in rows[0]


def test_what_is_tried_to_see_whether_it_works_loses_no_error(tmp_path: Path) -> None:
    source = """import json


def parsed(text):
    try:
        return json.loads(text)
    except Exception:
        pass
    return text


def saved(store, key):
    try:
        store.commit(key)
    except Exception:
        pass
"""
    pitfalls = reported(written(tmp_path / "r", {"m.py": source})).section("Pitfalls / time sinks")
    assert "json.loads" not in pitfalls
    assert "json.loads" not in pitfalls


@pytest.mark.parametrize("name", ["TODO", "5 GB", "中文{x}", "<x>", "[y]", "a\nb", "100%", "a.py:99"])
def test_any_folder_name_is_written_as_a_name(tmp_path: Path, name: str) -> None:
    report = reported(written(tmp_path / name, {"m.py": "def f(x):\n    return x\n"}))
    assert report.review.findings == []
    # As code: the newline by its escape, what looks like a gap of a template as a folder, and what looks like a place
    # with its number apart.
    shown = {"a\nb": "a\\nb", "TODO": "TODO/", "<x>": "<x>/", "[y]": "[y]/", "a.py:99": "a.py: 99"}.get(name, name)
    assert report.text.startswith(f"# Repo analysis: `{shown}`\n")


def test_patterns_that_leave_no_code_are_named(tmp_path: Path) -> None:
    root = written(tmp_path / "r", {"m.py": "import os; print(os.environ['X'])\n"})
    read = read_code_base(root, Selection(), lambda done, of, name: None)
    assert [each.name for each in read.env] == ["X"]
    with pytest.raises(UsageError, match=r"--include '!x' leaves no code .*: 0 files read"):
        read_code_base(root, Selection(include=("!x",)), lambda done, of, name: None)


def test_roles_are_of_the_last_word_of_a_name(tmp_path: Path) -> None:
    patches = "".join(f"def apply_kernel_to_model{n}(model):\n    return model\n\n\n" for n in range(6))
    files = {
        "lib/convert.py": "def main():\n    return 1\n",
        "lib/layer_norm.py": "def norm(x):\n    return x\n",
        "lib/patches.py": patches,
        # Enough files that each has a row of its own.
        **{f"lib/part{n}.py": "def f(x):\n    return x\n" for n in range(3)},
    }
    rows = reported(written(tmp_path / "r", files)).section("Module map (table)").split("\n")
    role = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in rows if row.startswith("| `")}
    assert role.get("`lib/layer_norm.py`", "normalization") == "normalization"
    assert "convolution" not in role.values()


def test_names_that_only_sound_like_a_matter_are_not_taken(tmp_path: Path) -> None:
    files = {
        "lib/models/base.py": """import torch


def scaled_dot_product_attention(q, k, v, scale):
    return (q @ k).softmax(-1) @ v


def is_full_attention(index):
    return index % 2 == 0


class SeedModel:
    def forward(self, x):
        return x


class LlamaForCausalLM:
    def forward(self, x):
        return scaled_dot_product_attention(x, x, x, 1)


def make_sampler(temp):
    return temp


def set_seed(seed):
    torch.manual_seed(seed)
""",
        "lib/__init__.py": "",
    }
    report = reported(written(tmp_path / "r", files))
    backends = report.section("Kernel hotspots / backends")
    assert "(`scaled_dot_product_attention`)" in backends
    assert "is_full_attention" not in backends
    assert "SeedModel" not in report.section("Sampling / decoding")


def test_config_files_say_which_keys_are_whose(tmp_path: Path) -> None:
    files = {
        "m.py": "def f(x):\n    return x\n",
        "one.yaml": "batch: 1\nseed: 2\n",
        "two.yaml": "batch: 3\nseed: 4\n",
    }
    surface = reported(written(tmp_path / "r", files)).section("Configuration surface (how to control it)")
    assert "`one.yaml` has `batch`, `seed`; `two.yaml` has `batch`, `seed`" in surface


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("{repo_name} is top_p of `kv_cache`", "{repo_name} is top_p of kv_cache"),
        ("**mlx_lm** and _this_ and `__init__`", "mlx_lm and this and __init__"),
        ("__init__ and **kwargs and a * b * c", "__init__ and **kwargs and a * b * c"),
        ("see `text`_ and :class:`Bar.baz`", "see text and Bar.baz"),
    ],
)
def test_quotes_keep_what_is_no_markup(text: str, plain: str) -> None:
    assert unmarked(text) == plain


def test_a_readme_is_quoted_as_it_stands(tmp_path: Path) -> None:
    readme = "# x\n\nmlx_lm keeps `kv_cache` and top_p for each of its many requests, `__init__` too.\n"
    report = reported(written(tmp_path / "r", {"README.md": readme, "m.py": "def f(x):\n    return x\n"}))
    assert "mlx_lm keeps kv_cache and top_p for each of its many requests, \\_\\_init\\_\\_ too" in report.text


def test_a_variable_that_the_code_sets_is_no_pitfall(tmp_path: Path) -> None:
    files = {
        "start.py": 'import os\n\n\ndef start():\n    os.environ["SET_HERE"] = "1"\n',
        "work.py": 'import os\n\n\ndef work():\n    return os.environ["SET_HERE"]\n',
    }
    root = written(tmp_path / "r", files)
    report = reported(root)
    assert "`SET_HERE` is read without a default" not in report.section("Pitfalls / time sinks")
    place = line_of(root, "start.py", "SET_HERE")
    assert f"none; the code sets it at `start.py:{place}`" in report.section("Appendix A: environment variables")


def test_a_metal_kernel_has_its_threadgroup_and_template(tmp_path: Path) -> None:
    source = """import mlx.core as mx

norm = mx.fast.metal_kernel(name="norm", input_names=["x", "w"], output_names=["y"], source="")


def run_norm(x, w):
    return norm(inputs=[x, w], template=[("T", x.dtype), ("D", 64)], grid=(x.size, 1, 1), threadgroup=(256, 1, 1))


def attention(q, k):
    return q @ k


class KVCache:
    def update(self, k):
        return k
"""
    root = written(tmp_path / "r", {"k.py": source})
    report = reported(root)
    row = next(row for row in report.section("Appendix D: kernels").split("\n") if "(`norm`)" in row)
    assert "`threadgroup = (256, 1, 1)`, `D = 64`; template `T, D`" in row
    assert row.count("metal has none") == 2
    assert f"launched at `k.py:{line_of(root, 'k.py', 'return norm(')}`" in row


def test_an_attribute_and_a_marked_parameter_are_followed(tmp_path: Path) -> None:
    source = """class Pool:
    def allocate_slots(self, n):
        return n


class Batch:
    def prepare_for_decode(self, pool):
        return pool.allocate_slots(1)


class Engine:
    def __init__(self):
        self.pool = Pool()

    def step(self, batch: "Batch", model):
        while True:
            batch.prepare_for_decode(self.pool)
            self.pool.allocate_slots(2)
            logits = model(batch)
            self.sample(logits)

    def sample(self, logits):
        return logits


class KVCache:
    def update(self, k):
        return k


def attention(q, k):
    return q @ k
"""
    root = written(tmp_path / "r", {"m.py": source})
    nesting = reported(root).section("Prefill vs decode loop (real nesting)")
    lines = nesting.split("\n")
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("batch.prepare_for_decode"))
    # What it calls stands one step deeper, from the class that the parameter is marked with.
    assert f"m.py:{line_of(root, 'm.py', 'return pool.allocate_slots(1)')}" in lines[at + 1]
