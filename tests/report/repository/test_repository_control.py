"""What a report says of how code is started, controlled and executed: the code's own, and no more than it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import Reported, reported, written

from lmp.report.repository.scanning import signs

LOADING = '''import argparse
import importlib
import torch
import yaml
import packed
import mlx.core as mx

DEFAULTS = {"iters": 1000}


def load(kind, device="cuda"):
    """Loads a model of one kind."""
    try:
        import packed.fast
    except ImportError:
        packed = None
    module = importlib.import_module(f"lib.models.{kind}")
    return module.Model()


def sample_token(logits):
    return torch.argmax(logits)


def generate_step(model, prompt, temperature=1.0):
    """Yields tokens."""
    tokens = prompt
    while True:
        logits = model(tokens)
        tokens = sample_token(logits)
        mx.async_eval(tokens)
        yield tokens


def main():
    """Reads the command line and generates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--iters", type=int, default=1000)
    parser.add_argument("-c", "--config")
    args = parser.parse_args()
    given = yaml.safe_load(open(args.config))
    for k, v in DEFAULTS.items():
        if getattr(args, k, None) is None:
            setattr(args, k, v)
    for token in generate_step(load(args.model), given):
        print(token)


if __name__ == "__main__":
    main()
'''
MODEL = """import torch
from torch import nn


def exists(value):
    return value is not None


@torch.jit.script
def softclamp(value):
    return value


class Model(nn.Module):
    def forward(self, tokens):
        query = self.query(tokens)
        key = self.key(tokens)
        return softclamp(torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ self.value(tokens))
"""
TEST = """import argparse
import os

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only-in-tests")
    print(os.environ["ONLY_IN_TESTS"])
"""
METADATA = """Metadata-Version: 2.1
Name: lib
Version: 1.0
Summary: lib
Requires-Dist: packed>=1.0
Requires-Dist: torch

# lib

To see all that it takes and what it is for you can run the following:

It generates text with small models that are read from a folder of yours.
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    files = {
        "lib/__init__.py": "",
        "lib/generate.py": LOADING,
        "lib/tests/test_generate.py": TEST,
        "lib.egg-info/PKG-INFO": METADATA,
        "PKG-INFO": METADATA,
        **{f"lib/models/m{at}.py": MODEL for at in range(9)},
        **{f"lib/ops/o{at}.py": "def exists(value):\n    return value is not None\n" for at in range(9)},
        "lib/models/vocabulary.txt": "word\n" * 500,
    }
    return reported(written(tmp_path_factory.mktemp("r") / "lib", files))


def test_the_review_finds_nothing(report: Reported) -> None:
    assert report.review.findings == []


def test_what_a_framework_does_by_itself_is_said(report: Reported) -> None:
    (line,) = (each for each in report.text.split("\n") if each.startswith("- Execution model"))
    assert "PyTorch runs eagerly what is not compiled" in line
    assert "MLX is lazy" in line
    # The only call that makes it work out a value.
    assert "1 place, as `lib/generate.py:31` `mx.async_eval(tokens)`" in line
    assert "`torch.jit.script` of `softclamp` at `lib/models/m0.py:9`" in line


def test_names_that_a_decorator_is_kept_or_imported_under() -> None:
    source = """import functools
import torch
from jax import jit
import mlx.core as mx
import re
if FAST:
    Base = torch.jit.ScriptModule
    method = torch.jit.script_method
class A(Base):
    @method
    def f(self): ...
@functools.partial(jit, static_argnums=0)
def g():
    h = mx.compile(k) if FAST else k
re.compile("a")
model.eval()
"""
    found = [(note.line, note.symbol, note.text) for note in signs("a.py", source).notes if note.kind == "compiled"]
    assert {note.line for note in signs("a.py", source).notes if note.about == "itself"} == {9, 10, 12}
    assert sorted(found) == [
        (9, "A", "Base = torch.jit.ScriptModule"),
        (10, "A.f", "method = torch.jit.script_method"),
        (12, "g", "functools.partial(jit, static_argnums=0)"),
        (14, "g", "mx.compile(k)"),
    ]


def test_what_tests_take_controls_nothing(report: Reported) -> None:
    summary, surface = report.section("TL;DR (5–8 lines)"), report.section("Configuration surface (how to control it)")
    # --model, --iters and --config.
    assert "3 command line flags" in summary
    assert "environment variable" not in summary
    assert "3 flags: " in surface
    assert "none in its own code; only in files of: test" in surface
    assert "test_generate.py" not in report.section("Entrypoints (how to run)")


def test_a_command_has_what_it_does_not_start_without(report: Reported) -> None:
    assert "`python -m lib.generate --model MODEL`" in report.section("Entrypoints (how to run)")
    flags = report.section("Appendix B: command line flags")
    assert "| `--model` | none: must be given |" in flags
    assert "| `--iters` | `1000` |" in flags


def test_a_file_of_settings_that_the_code_reads(report: Reported) -> None:
    surface = report.section("Configuration surface (how to control it)")
    assert (
        "`lib/generate.py:42` | none in the repository; the code reads one that the user gives: `yaml.safe_load`"
        in surface
    )


def test_a_copied_helper_is_no_interface(report: Reported) -> None:
    extension = report.section("Extension points (safe places to modify)")
    # generate.py takes `module.Model`; nothing takes `exists` of the modules of ops.
    assert "9 files there each define `Model`" in extension
    assert "taken at `lib/generate.py:18`, loaded by name at `lib/generate.py:17`" in extension
    assert "`exists`" not in extension
    assert '-->|"by name"|' in report.section("Architecture map (one diagram)")


def test_what_is_installed_anyway_is_not_optional(report: Reported) -> None:
    assert "Optional libs: none found" in report.section("Kernel hotspots / backends")
    assert report.text.count("- Needs ") == 1


def test_a_name_or_the_beginning_of_a_list_is_no_purpose(report: Reported) -> None:
    quoted = [line for line in report.section("What problem it solves").split("\n") if line.startswith("- ")]
    assert quoted == ["- It generates text with small models that are read from a folder of yours (`PKG-INFO:12`)"]


def test_words_of_a_vocabulary_are_no_code(report: Reported) -> None:
    # 500 lines of it beside fewer of code.
    assert "files were read; its own code is" in report.section("TL;DR (5–8 lines)")


def test_arguments_of_a_class_are_how_a_library_is_controlled(tmp_path: Path) -> None:
    files = {
        "README.md": "# net\n\n```python\nfrom net import Net\nnet = Net(dim=4)\nnet.generate(prompt)\n```\n",
        "net/__init__.py": "from net.net import Net\n",
        "net/net.py": '''import torch
from torch import nn


class Base(nn.Module):
    def __init__(self, dim: int, heads: int = 8, *, flash=True):
        super().__init__()


class Net(Base):
    """A net that generates."""

    def forward(self, tokens):
        return torch.softmax(self.q(tokens) @ self.k(tokens).transpose(-1, -2), dim=-1) @ self.v(tokens)

    def generate(self, tokens, temperature=1.0):
        while len(tokens) < 9:
            logits = self.forward(tokens)
            tokens = torch.cat([tokens, torch.multinomial(logits, 1)])
        return tokens
''',
    }
    found = reported(written(tmp_path / "net", files))
    assert found.review.findings == []
    surface = found.section("Configuration surface (how to control it)")
    assert "`net/net.py:6` (`__init__`) (2)" in surface
    assert "`heads=8`, `flash=True`" in surface


def test_the_fields_of_a_dataclass_are_its_arguments(tmp_path: Path) -> None:
    files = {
        "README.md": "# net\n\n```python\nfrom net import Press\nPress(0.5).generate(prompt)\n```\n",
        "net/__init__.py": "from net.press import Press\n",
        "net/press.py": '''from dataclasses import dataclass, field

import torch


@dataclass
class Press:
    """Compresses what it generates from."""

    name: str
    ratio: float = 0.25
    seen: list = field(init=False, default_factory=list)

    def generate(self, tokens, temperature=1.0):
        while len(tokens) < 9:
            logits = torch.softmax(self.q(tokens) @ self.k(tokens).transpose(-1, -2), dim=-1) @ self.v(tokens)
            tokens = torch.cat([tokens, torch.multinomial(logits, 1)])
        return tokens
''',
    }
    surface = reported(written(tmp_path / "net", files)).section("Configuration surface (how to control it)")
    assert "`net/press.py:7` (`Press`) (1)" in surface
    assert "`Press`: `ratio=0.25`" in surface


def test_what_stands_in_code_of_a_readme_is_neither_heading_nor_prose(tmp_path: Path) -> None:
    readme = """# net

```python
# Installation of a model
device = Device("a", "b", "c", 1, 2, 3, with_a_long_list_of_arguments, and_one_more)
```

It reads a model and writes what the model says to a file of your choice.
"""
    found = reported(written(tmp_path / "net", {"README.md": readme, "net/a.py": "def f(): ...\n"}))
    quoted = [line for line in found.section("What problem it solves").split("\n") if line.startswith("- ")]
    assert quoted == ["- It reads a model and writes what the model says to a file of your choice (`README.md:8`)"]


def test_tools_settings_and_other_targets_control_and_build_nothing(tmp_path: Path) -> None:
    files = {
        "ruff.toml": "line-length = 100\n",
        ".pre-commit-config.yaml": "repos:\n",
        "net/a.yaml": "size: 3\n",
        "Makefile": "test:\n\tpytest\nbuild:\n\tcc a.c\n",
        "pyproject.toml": '[project]\nname = "net"\n[project.optional-dependencies]\nfast = ["a"]\nweb = ["b"]\n',
        "net/a.py": "def f(): ...\n",
    }
    found = reported(written(tmp_path / "net", files))
    assert "1 file: `a.yaml` has `size`" in found.section("Configuration surface (how to control it)")
    install = found.section("Install / build")
    assert "`make build`" in install
    assert "`make test`" not in install
    assert "`pyproject.toml:2`; with extras `fast, web`" in install
    assert "[fast]" not in install


def test_what_is_asked_of_a_registry_puts_nothing_into_it() -> None:
    source = """
registry.register("a", thing)
metric_registry.get(name)
_resolve_registry_fn(name)
"""
    assert [note.line for note in signs("a.py", source).notes if note.kind == "registration"] == [2]


def test_a_command_is_given_whole(tmp_path: Path) -> None:
    readme = """# net

```bash
docker run --gpus all \\
    -p 80:80 net/net:latest
pip install net  # the release
docker login
```
"""
    found = reported(written(tmp_path / "net", {"README.md": readme, "net/a.py": "def f(): ...\n"}))
    install = [line.partition(" (what")[0] for line in found.section("Install / build").split("\n")[2:] if line]
    assert install == ["- `docker run --gpus all -p 80:80 net/net:latest`", "- `pip install net`"]


def test_what_stands_in_for_a_package_is_no_import_without_a_test(tmp_path: Path) -> None:
    source = """
def first():
    import fast.base
    try:
        import fast.new as new
    except ImportError:
        new = None


def second():
    try:
        import other.new as found
    except ImportError:
        import other as found


class Attention: ...


class KVCache: ...
"""
    backends = reported(written(tmp_path / "net", {"net/a.py": source})).section("Kernel hotspots / backends")
    (fast,) = (line for line in backends.split("\n") if "`fast.new`" in line)
    (other,) = (line for line in backends.split("\n") if "`other.new`" in line)
    assert "imported without a test at `net/a.py:3`" in fast
    assert "without it: `import other as found`" in other


def test_each_of_several_commands_has_its_own_flags(tmp_path: Path) -> None:
    source = """import os
import click


def variable(name):
    return os.environ[f"NET_{name}"]


@click.group()
def cli(): ...


@cli.command()
@click.option("--size")
@click.option("--depth")
def train(size, depth):
    \"\"\"Trains the net on text.\"\"\"


@cli.command()
@click.option("--port")
def serve(port):
    \"\"\"Serves the net to others.\"\"\"
"""
    test = "import os\nos.environ['ONLY_IN_TESTS']\n"
    found = reported(written(tmp_path / "net", {"net/cli.py": source, "tests/test_a.py": test}))
    entries = found.section("Entrypoints (how to run)")
    assert "Trains the net on text”, takes 2 flags)" in entries
    assert "Serves the net to others”, takes 1 flag)" in entries
    # Which variables its own code reads depends on who calls, which nobody does here.
    assert "names that are worked out where they are read" in found.section("Configuration surface (how to control it)")
    assert "- Execution model: no tensor framework is imported." in found.text


def test_tensorflow_that_is_switched_to_graphs_does_not_run_eagerly(tmp_path: Path) -> None:
    source = "import tensorflow as tf\ntf.compat.v1.disable_eager_execution()\n\ndef run(one, op):\n    one.run(op)\n"
    found = reported(written(tmp_path / "net", {"net/run.py": source}))
    (line,) = (each for each in found.text.split("\n") if each.startswith("- Execution model"))
    assert "built as a graph, which sessions run: `tf.compat.v1.disable_eager_execution()` at `net/run.py:2`" in line
    assert "eagerly" not in line


def test_notebooks_are_examples_that_were_not_read(tmp_path: Path) -> None:
    root = written(tmp_path, {"lib/__init__.py": "X = 1\n", "demo/try.ipynb": '{"cells": []}\n'})
    entries = reported(root).section("Entrypoints (how to run)")
    assert "Benchmarks/examples: notebooks, whose cells were not read: `demo/try.ipynb`." in entries


def test_what_makes_a_code_base_one_of_language_models(tmp_path: Path) -> None:
    # A model and a step are named; `stop_prealloc` has no top-p.
    text = "class SmallLMModel:\n    pass\n\n\ndef generate_tokens(model):\n    return model\n"
    text += "\n\ndef stop_prealloc():\n    pass\n"
    head = reported(written(tmp_path, {"lib/__init__.py": "", "lib/model.py": text})).text
    assert "**LLM-related:** yes (signals: causal language models: 1 definition" in head
    assert "token sampling: " not in head.partition("\n\n")[0]


def test_a_command_on_a_path_of_one_machine_is_not_given(tmp_path: Path) -> None:
    readme = "# net\n\n```bash\npip install /opt/net-1.0.whl\npip install ./wheels/**x.whl\npip install net\n```\n"
    files = {"README.md": readme, "net/a.py": "def f(): ...\n", "wheels/net-x.whl": ""}
    install = reported(written(tmp_path / "net", files)).section("Install / build")
    assert "`pip install net`" in install
    assert "/opt" not in install
    assert "`pip install ./wheels/**x.whl`" in install


def test_fields_of_config_classes_are_shown_with_their_defaults(tmp_path: Path) -> None:
    files = {
        "net/__init__.py": "",
        "net/config.py": """from dataclasses import dataclass


@dataclass
class TrainConfig:
    steps: int = 8
    rate: float = 0.5


@dataclass
class SaveConfig:
    every: int = 2
""",
        "net/__main__.py": "from net.config import TrainConfig\nprint(TrainConfig())\n",
    }
    found = reported(written(tmp_path / "net", files))
    assert found.review.findings == []
    surface = found.section("Configuration surface (how to control it)")
    where = "`net/config.py:5` (`TrainConfig`) (2), `net/config.py:11` (`SaveConfig`) (1)"
    assert f"| config classes | {where} | 3 fields: `steps=8`, `rate=0.5` |" in surface
    listed = found.section("Appendix J: fields, arguments and keys that are settings")
    assert "| `SaveConfig.every` | config class field | `2` | `net/config.py:12` (`every`) |" in listed
    assert "3 fields of 2 config classes" in found.section("TL;DR (5–8 lines)")


def test_a_way_to_run_has_the_settings_file_that_its_file_names(tmp_path: Path) -> None:
    files = {
        "net/__init__.py": "",
        "net/config/small.yaml": "steps: 8\nmodel: ???  # the path\n",
        "net/other/small.yaml": "steps: 9\n",
        "net/run.py": """import hydra


@hydra.main(config_path="config", config_name="small")
def main(config):
    print(config.steps, config.model)


if __name__ == "__main__":
    main()
""",
    }
    found = reported(written(tmp_path / "net", files))
    assert found.review.findings == []
    # Of two files of the name, both as near, the first; the other one's value must not be given.
    assert "is set by `net/config/small.yaml`)" in found.section("Entrypoints (how to run)")
    listed = found.section("Appendix C: config files")
    assert "| `net/config/small.yaml:1` | yaml | `steps`, `model`; must be given: `model` |" in listed
    assert listed.count("must be given") == 1
