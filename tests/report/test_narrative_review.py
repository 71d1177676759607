"""What is wrong with a narrative comes back by its own texts; what only looks like markup comes out as text."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import small_report as small
from markdown_it import MarkdownIt

from lmp.records import Narrative
from lmp.report.making import Making
from lmp.report.narrative_review import findings

STEP = small.STEP


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return small.making(small.code_base(tmp_path / "code"))


def told(**changes: Any) -> Narrative:
    return Narrative.model_validate({**copy.deepcopy(small.GOOD), **changes})


def found(making: Making, **changes: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.message) for finding in findings(making, told(**changes))]


def test_a_narrative_that_holds(making: Making) -> None:
    assert making.review(making.plain).findings == []
    assert found(making) == []
    assert making.with_(told()).text.splitlines()[6:8] == [
        "- Every step walks over all pages: `engine.py:15` (`step`).",
        "- It moves 2.154 GB a step.",
    ]


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        ("See `engine.py:99` (`step`).", "pointer", "engine.py:99: the file has 17 lines"),
        (
            "See `engine.py:4` (`step`).",
            "pointer",
            "engine.py:4: step does not stand within 3 lines; it stands at line 15",
        ),
        (
            "See `engine.py:15` (`leap`).",
            "pointer",
            "engine.py:15: leap does not stand within 3 lines; nor anywhere else in the file",
        ),
        ("See `motor.py:15` (`step`).", "pointer", "motor.py:15: there is no such file"),
        (
            "See `/etc/passwd.py:1` (`root`).",
            "pointer",
            "/etc/passwd.py:1 leads out of the folders that are looked in: name it relative to one of them",
        ),
        ("See engine.py:15 there.", "pointer", "engine.py:15: say what stands there, as in `engine.py:15` (`symbol`)"),
        (f"It moves 2.16 GB: {STEP}.", "number", "2.16 GB is no number of this report; it has 2.154 GB"),
        (f"It takes 7 ms: {STEP}.", "number", "7 ms is no number of this report"),
        (f"It has 33 layers: {STEP}.", "number", "33 is no number of this report"),
        (f"It is 40x faster: {STEP}.", "number", "40 is no number of this report"),
        (
            f"It takes `7 ms`: {STEP}.",
            "number",
            "7 ms is no number of this report; numbers stand without backticks",
        ),
        (f"It is {{fast}}: {STEP}.", "placeholder", "{fast} is left of a template: fill it in"),
        (f"TODO: {STEP}.", "placeholder", "TODO is left of a template: fill it in"),
        ("It is fast.", "ground", "it has no place and no number of the report: say where it shows, or leave it out"),
        (f"More at https://example.org: {STEP}.", "ground", "an address is no place in the code; leave it out"),
        (f"More at www.example.org: {STEP}.", "ground", "an address is no place in the code; leave it out"),
        ("none found", "table", '"none found" does not say where was looked: (searched: …)'),
        (" ", "schema", "it is empty; leave it out, or say something"),
        (f"{'long ' * 100}{STEP}", "schema", "523 characters; at most 500 are read by anybody"),
    ],
)
def test_a_text_that_does_not_hold(making: Making, text: str, rule: str, message: str) -> None:
    good = small.GOOD["tldr"][0]
    assert (rule, f"tldr[1]: {message}") in found(making, tldr=[good, text])


@pytest.mark.parametrize(
    "text",
    [
        f"It moves 2.154 GB in 32 layers: {STEP}.",
        "It has 16 pages: `engine.py:4` (`Cache`).",  # stands in the lines there, and nowhere in the report
        f"`pages[1:]` and `x if y else 7`: {STEP}.",
        f"On an H100, in bfloat16: {STEP}.",
    ],
)
def test_a_text_that_holds(making: Making, text: str) -> None:
    assert found(making, tldr=[text]) == []


def test_every_text_has_its_place(making: Making) -> None:
    bad = "`engine.py:99` (`step`)"
    changes = {
        "insights": {"Cache": [bad]},
        "pitfalls": [small.GOOD["pitfalls"][0], {"what": STEP, "detect": bad, "fix": "Wait."}],
        "deep_dive": {"Loops": [STEP, bad]},
        "open_questions": [bad],
    }
    assert [message.partition(": ")[0] for _, message in found(making, **changes)] == [
        "insights['Cache'][0]",
        "pitfalls[1].detect",
        "deep_dive['Loops'][1]",
        "open_questions[0]",
    ]


def test_what_the_report_has_no_place_for(making: Making) -> None:
    wrong = found(making, insights={"engine.Casche": [STEP]}, deep_dive={"Scheduler": [STEP]})
    assert wrong == [
        ("schema", "insights['engine.Casche']: this report has nothing called so that takes text; it has engine.Cache"),
        (
            "schema",
            "deep_dive['Scheduler']: this report has nothing called so that takes text; it has "
            "Loops, TL;DR, Facts, Pitfalls, Open questions",
        ),
    ]
    # The summary of this report has room for two sentences.
    [(rule, message)] = found(making, tldr=[*small.GOOD["tldr"], f"A third: {STEP}."])
    assert (rule, message) == (
        "schema",
        "tldr[2]: the report does not show it: there is no more room for it; leave it out",
    )


def test_any_section_can_be_taken_further(making: Making) -> None:
    assert list(making.asked.deep_dive) == ["Loops", "TL;DR", "Facts", "Pitfalls", "Open questions"]
    lines = making.with_(told(deep_dive={"Facts": [f"More: {STEP}."]})).text.splitlines()
    assert lines.index("## Facts") < lines.index(f"- More: {STEP}.") < lines.index("## Loops")


def test_both_names_of_a_component_are_one_too_many(making: Making) -> None:
    both = {"engine.Cache": [f"One: {STEP}."], "Cache": [f"Two: {STEP}."]}
    assert [message.partition(": ")[0] for _, message in found(making, insights=both)] == ["insights['Cache'][0]"]


MARKUP = [
    "<script>alert(1)</script>",
    "[x](javascript:alert)",
    "![x](data:text/html,y)",
    "# heading",
    "- item",
    "1. item",
    "> quote",
    "a | b | c",
    "| --- | --- |",
    "**bold** _em_ ~~gone~~ $x$",
    "<!-- hidden -->",
    "&lt;b&gt;",
    "---",
    "line\n\n# heading\n\n```\nfence",
    "\x1b[31mred\u202e",
    "`a | <b> \\`",
]


@pytest.mark.parametrize("markup", MARKUP)
def test_what_looks_like_markup_comes_out_as_text(making: Making, markup: str) -> None:
    text = f"{markup} {STEP}"
    pitfall = {"what": text, "detect": text, "fix": text}
    given = told(
        tldr=[text], insights={"Cache": [text]}, pitfalls=[pitfall], deep_dive={"Loops": [text]}, open_questions=[text]
    )
    # The text stands where another one stood: nothing else of the report's structure is changed by it.
    assert _shape(making.with_(given).text) == _shape(making.with_(_plain(given)).text)
    assert "\x1b" not in making.with_(given).text
    assert "\u202e" not in making.with_(given).text


def _plain(narrative: Narrative) -> Narrative:
    pitfall = {"what": STEP, "detect": STEP, "fix": STEP}
    assert narrative.pitfalls
    return told(
        tldr=[STEP], insights={"Cache": [STEP]}, pitfalls=[pitfall], deep_dive={"Loops": [STEP]}, open_questions=[STEP]
    )


def _shape(text: str) -> list[str]:
    """Blocks and inline markup that a viewer makes of it, with HTML and links on."""
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    inline = [child.type for token in tokens for child in token.children or ()]
    kept = [name for name in inline if name not in ("text", "text_special", "code_inline")]
    return [token.type for token in tokens] + kept


def test_a_report_that_does_not_hold_is_not_the_agents_fault(tmp_path: Path) -> None:
    making = small.making(small.code_base(tmp_path / "code"), {"bytes": 1, "layers": 32})
    wrong = [(finding.rule, finding.message) for finding in findings(making, told(tldr=[STEP]))]
    assert wrong == [("number", "the report: 2.154 GB is 1 B in the results")]
