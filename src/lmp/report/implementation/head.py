"""The lines under the title, and what the reader has to know of all numbers before the first section."""

from __future__ import annotations

from importlib import metadata

from lmp.records import Finding, short
from lmp.report.deployment import DEFAULT
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.document.quoting import quoted
from lmp.report.facts import ModelFacts, Point, point_text
from lmp.report.implementation.naming import plain_formula

HASH = 12
"""Digits of a sha256 that are shown."""


def head(facts: ModelFacts) -> list[tuple[str, Line]]:
    """Name and content of each bold line. A report that is made again from the same is equal: there is no day in it."""
    model = facts.model
    source, versions = model.source, _versions(facts)
    where = facts.sources[model.class_name]
    made = ", ".join([*versions.values(), f"lmp {metadata.version('lmp')}"])
    # With its end: decorators may take more lines before the name than a pointer may be away from it.
    place = facts.place(where.file, where.class_lines[0], where.name, where.class_lines[1])
    return [
        (
            "Repository",
            [
                f"{source.distribution} {source.version}, ",
                place,
                f"; sha256 of the file {source.sha256[:HASH]}",
            ],
        ),
        ("Framework", f"{versions['pytorch']}, eager, {model.dtype}, attention {model.attn_implementation or 'none'}"),
        ("Analysis Date", f"not dated, to be equal when made again: {made}"),
        ("Class", [Code(model.class_name)]),
        ("Config", _config(facts)),
        ("Verification", f"{model.verification.status}: {verification(facts)}"),
        *([("Sizes", ", ".join(f"{name}={value}" for name, value in facts.sizes.items()))] if facts.sizes else []),
        *([("Points", ", ".join(map(point_text, facts.at)))] if "seq_len" in model.parameters else []),
        ("Device", [f"{facts.device.name}; peak rates of {facts.device.source}. No time here was measured"]),
        *([] if facts.deployment == DEFAULT else [("Deployment", facts.deployment.words)]),
    ]


def _versions(facts: ModelFacts) -> dict[str, str]:
    names = {"pytorch": "PyTorch", "transformers": "transformers"}
    read = {tree.name for source in facts.sources.values() for tree in (source.tree, source.forward_tree)}
    trees = (tree for tree in facts.trees if tree.name in read or tree.name in names)
    found = {tree.name: f"{names.get(tree.name, tree.name)} {tree.version}" for tree in trees}
    return {**{"pytorch": "PyTorch"}, **found}


def _config(facts: ModelFacts) -> list[Inline]:
    config = facts.model.config
    line: list[Inline] = [Code(config.name), " from ", quoted(config.origin)]
    return [*line, f", sha256 {config.sha256[:HASH]}"] if config.sha256 else line


def verification(facts: ModelFacts) -> str:
    """How many classes are verified, and at how many points."""
    model = facts.model
    counts: dict[str, int] = {}
    for part in model.parts.values():
        counts[part.status] = counts.get(part.status, 0) + 1
    told = ", ".join(f"{count} of {len(model.parts)} classes {status}" for status, count in sorted(counts.items()))
    points = {analysis.verification.points for analysis in facts.analyses.values()}
    held = f"each held against execution at {min(points)} to {max(points)} points" if max(points, default=0) else ""
    return f"{told}{f', {held}' if held else ''}"


def broken(facts: ModelFacts) -> list[tuple[Point, Code]]:
    """Assumptions of the formulas that do not hold at a point."""
    found = ((point, one) for point in facts.points for one in facts.numbers.violated(point.values))
    return [(point, Code(plain_formula(one.assumption))) for point, one in found]


def failed(facts: ModelFacts) -> list[tuple[str, Finding]]:
    """The first findings of each class whose formulas do not agree with execution."""
    names = [name for name, part in facts.model.parts.items() if part.status == "failed"]
    return [(short(name), one) for name in names for one in facts.analyses[name].verification.findings[:3]]
