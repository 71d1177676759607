"""The page as text: the template filled, with everything that it needs in it and nothing that is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from lmp.errors import UsageError
from lmp.records import ModelAnalysis
from lmp.report import html
from lmp.report.facts import ModelFacts
from lmp.report.page.content import content
from lmp.report.page.predicted import predicted
from lmp.report.warnings import of_the_model

PACKAGE = "lmp.report.page"
SCRIPTS = (
    *("exact", "figures", "model", "ondevice", "state", "controls", "totals"),
    *("charts", "icicle", "table", "source", "main"),
)
"""In the order in which they need one another."""


def page(facts: ModelFacts) -> str:
    """HTML that needs no other file and no network. Raises UsageError where the extra ``report`` is missing."""
    template = html.template(PACKAGE, "page.html")
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError(html.INSTALL) from error
    scripts = {"plotly": html.as_script(get_plotlyjs()), "own": html.as_script(html.joined(PACKAGE, SCRIPTS))}
    warnings = list(of_the_model(facts.model))
    return template.render(
        policy=html.policy(scripts),
        scripts=scripts,
        style=html.static(PACKAGE, "base.css") + "\n" + html.static(PACKAGE, "page.css"),
        data=html.as_data(content(facts)),
        model=facts.model,
        name=facts.name,
        about=_about(facts.model),
        predicted=predicted(facts),
        warnings=warnings,
        notes=_notes(warnings, facts.model),
        version=metadata.version("lmp"),
    )


def _notes(warnings: Sequence[str], model: ModelAnalysis) -> str:
    """How many notes the page has on its figures, in words; empty where it has none."""
    counts = {"warning": len(warnings), "pinned value": len(model.pinned), "data decision": len(model.decisions)}
    return ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count)


def _about(model: ModelAnalysis) -> list[tuple[str, str]]:
    source, given = model.source, model.given
    found = [
        ("class", model.class_name),
        (
            "config",
            model.config.origin if model.config.name == "default" else f"{model.config.name}: {model.config.origin}",
        ),
        ("source", f"{source.distribution} {source.version}, {source.file}, lines {source.lines[0]}-{source.lines[1]}"),
        ("analysed in", f"{model.dtype}, by the engine {model.engine}"),
    ]
    if model.attn_implementation is not None:
        found.append(("attention", model.attn_implementation))
    if given is not None:
        found.append(("constructed with", given.init or "no arguments"))
        found.append(("called with", given.inputs))
    return found
