"""``lmp`` with reports of a few lines: the command, its agents and its review are the real ones, the sections are not.

So a test of what agents write does not wait for the sections, and does not change with them.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

from lmp.recon.facts import RepoFacts
from lmp.report.document.parts import Bullets, Document, Paragraph, Pointer, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts


def of_model(facts: ModelFacts, told: Told | None = None) -> Document:
    """The FLOPs of the class at prefill, and where its forward() is."""
    name = facts.model.class_name
    flops = facts.amount("flops", facts.points[0])
    place = facts.pointer(name, facts.sources[name].lines[0], "forward")
    tldr = told.tldr() if told else [["It takes ", flops, "."]]
    return Document(
        facts.name,
        [],
        [
            Section("TL;DR", [Bullets(tldr)]),
            Section("Component", [Paragraph(["It takes ", flops, ": ", place]), *_more(told, name)]),
        ],
    )


def of_code_base(facts: RepoFacts, root: Path, told: Told | None = None) -> Document:
    """Its definitions."""
    places = [[Pointer(each.place.file, each.place.line, symbol=each.name)] for each in facts.definitions[:5]]
    tldr = told.tldr() if told else places
    return Document(
        facts.root_name, [], [Section("TL;DR", [Bullets(tldr)]), Section("Component", [Bullets(places, "files")])]
    )


def _more(told: Told | None, name: str) -> list[Bullets]:
    return [Bullets(told.insights(name), "the agent")] if told else []


def put_in(name: str, **content: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module


if __name__ == "__main__":
    put_in("lmp.report.implementation.sections", document=of_model)
    put_in("lmp.report.plots", assets=lambda facts: {})
    put_in("lmp.report.repository.document", document=of_code_base)
    from lmp.cli.main import run

    run()
