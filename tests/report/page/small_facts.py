"""Facts of the hand-made model of the store's tests, with sources that have markup in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import small_models as small

from lmp.predict.screen.grid import Axes
from lmp.report.devices import device_named
from lmp.report.facts import ModelFacts
from lmp.report.on_device import Screen
from lmp.source.locate import ClassSource
from lmp.source.parsed import parse
from lmp.source.trees import Tree, Trees

HOSTILE = "</script><script>window.intruder = 1</script><img src=x onerror='window.intruder = 2'>"
"""What must stay text wherever it comes from."""

AXES = (Axes("decode", (1, 2, 4), (1024, 2048)), Axes("prefill", (1, 4), (16, 2048)))
SCREEN = Screen(engines=("vllm", "sglang"), tps=(1, 2), axes=AXES)
"""Few points, so that a page is made at once."""

# Lines as small_models has them: the root's kernels at 10 to 13, the layer's at 21 and 22.
ROOT = f'''\
class Root(Module):
    """A root."""

    def __init__(self, config):
        super().__init__()
        self.layers = ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

    def forward(self, ids):
        # {HOSTILE}
        x = embedding(ids, self.table)
        x = self.layers[0](x)
        x = attend(x, "<b>&amp;</b>")
        return x.view(-1)
'''
LAYER = (
    "\n" * 17
    + '''\
class Layer(Module):
    def forward(self, x):
        """One layer."""
        x = x + x
        return self.proj(x)
'''
)
LINEAR = "\n" * 28 + "class Linear(Module):\n    def forward(self, x):\n        return x @ self.weight\n"


def facts(folder: Path, **more: Any) -> ModelFacts:
    """``more`` are fields of the model that are other than small_models has them."""
    model = small.model(**more)
    tree = Tree("a", folder, folder / "src", "a", "1.0")
    files = {
        small.ROOT: ("src/a/models.py", ROOT, (8, 13)),
        small.LAYER: ("src/a/layers.py", LAYER, (19, 22)),
        small.LINEAR: ("src/a/linear.py", LINEAR, (30, 31)),
    }
    for file, text, _ in files.values():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return ModelFacts(
        name=model.class_name,
        model=model,
        expanded=model,
        analyses={},
        sources={name: _source(name, tree, file, lines) for name, (file, _, lines) in files.items()},
        trees=Trees(None, None, (tree,), folder),
        config=None,
        config_class=None,
        settings={},
        inspection=None,
        device=device_named("H100"),
        screen=SCREEN,
    )


def written(text: str, folder: Path) -> Path:
    """The page as a file."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return file


def _source(name: str, tree: Tree, file: str, lines: tuple[int, int]) -> ClassSource:
    path = tree.root / file
    module, _, own = name.rpartition(".")
    return ClassSource(
        class_path=name,
        requested=name,
        name=own,
        module=module,
        tree=tree,
        file=file,
        path=path,
        class_lines=lines,
        lines=lines,
        forward_qualname=f"{own}.forward",
        forward_class=name,
        forward_tree=tree,
        forward_file=file,
        forward_path=path,
        sha256=parse(path).sha256,
        bases=(),
        mro=(name,),
    )
