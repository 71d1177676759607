"""The page as text: the template filled, with everything that it needs in it and nothing that is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from lmp.atlas.archive import Atlas
from lmp.atlas.records import Listed
from lmp.predict.devices import device_named
from lmp.report import html
from lmp.report.compare.models import SCREEN, Steps, Wanted, records
from lmp.report.on_device import Screen
from lmp.report.page import controls
from lmp.report.page.writing import PACKAGE as PAGE

PACKAGE = "lmp.report.compare"
SHARED = ("exact", "figures", "ondevice", "state", "controls")
"""Scripts of a model's own page that this one uses, in the order in which they need one another."""
SCRIPTS = ("models", "plot", "compare")
FIRST = 4
"""Models that are chosen when the page opens."""
START = {"batch_size": "16", "seq_len": "1", "cache_len": "8192"}
"""Sizes that the page opens with: a decode."""
SLIDERS = {"batch_size": 2**10, "seq_len": 2**17, "cache_len": 2**20}


def page(
    atlas: Atlas,
    listed: Sequence[Listed],
    devices: Sequence[str],
    jobs: int = 1,
    progress: Steps = lambda done, total, name: None,
    screen: Screen = SCREEN,
) -> str:
    """HTML that needs no other file and no network. Raises UsageError for an unknown device, and Damaged."""
    template = html.template(PACKAGE, "compare.html")
    names = tuple(device_named(name).name for name in devices)
    models = list(records(atlas, listed, Wanted(atlas.folder, names, screen), jobs, progress))
    own = html.joined_of([(PAGE, name) for name in SHARED] + [(PACKAGE, name) for name in SCRIPTS])
    scripts = {"own": html.as_script(own)}
    return template.render(
        policy=html.policy(scripts),
        scripts=scripts,
        style=html.static(PAGE, "base.css") + "\n" + html.static(PACKAGE, "compare.css"),
        data=html.as_data(_content(models, names, screen)),
        models=models,
        version=metadata.version("lmp"),
    )


def _content(models: Sequence[dict[str, Any]], names: Sequence[str], screen: Screen) -> dict[str, Any]:
    devices = [device_named(name) for name in names]
    return {
        "models": list(models),
        "first": [one["key"] for one in models[:FIRST]],
        "variables": [
            {
                "name": name,
                "title": controls.TITLES[name],
                "origin": "",
                "value": START[name],
                "least": 0 if name == "cache_len" else 1,
                "slider": SLIDERS[name],
                "count": True,
            }
            for name in START
        ],
        "phases": controls.PHASES,
        "precisions": controls.precisions(),
        "products": controls.products(),
        "devices": [{"id": one.name, "label": one.label, "memory": str(one.memory)} for one in devices],
        "tp": list(screen.tps),
        "engines": list(screen.engines),
        "axes": {one.phase: {"batches": list(one.batches), "lengths": list(one.lengths)} for one in screen.axes},
    }
