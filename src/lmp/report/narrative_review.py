"""What is wrong with a narrative, told by its own texts: ``tldr[2]``, ``pitfalls[0].fix``.

Each text goes through the review of reports by itself, so that a finding belongs to one. Beyond what that asks of a
report, a text says where it is from, names the symbol at a place, and has no number that stands nowhere. Then the whole
report is reviewed with the narrative in it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lmp.records import GateFinding, Judged, Narrative
from lmp.report.document.amending import Amendment, matches
from lmp.report.document.ledger import Ledger, entries
from lmp.report.document.markdown import renderings, to_markdown
from lmp.report.document.parts import Bullets, Document, Section
from lmp.report.document.told import Told, texts
from lmp.report.making import Making
from lmp.report.review import review_text
from lmp.report.review.figures import NUMBER_WITH_UNIT
from lmp.report.review.places import NEAR, Cited, cited, lines_of
from lmp.report.review.reading import Piece, read_markdown

LONGEST = 500
"""Characters of one text."""
MOST = {"tldr": 8, "pitfalls": 12, "open_questions": 12}
MOST_AMENDED = 12
"""Rows that are struck, and as many that are corrected: a report with more of them is for a bug report."""
MOST_TOLD = 8
"""Sentences on one component, or in one section."""

_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?=x?(?!\w))")
_ANY_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_NAME = re.compile(r"[A-Za-z_][\w.]*(?:\(\))?")
_ADDRESS = re.compile(r"(?:https?|ftp)://|\bwww\.|\b(?:mailto|xmpp):|[\w.+-]+@[\w-]+\.\w", re.IGNORECASE)
"""What a viewer of markdown makes a link of without being told."""


def findings(making: Making, narrative: Narrative) -> list[GateFinding]:
    """Everything that has to be put right; nothing where the report with it could be written."""
    reviewer = _Reviewer(making, narrative)
    return [*reviewer.of_size(), *reviewer.of_texts()] or list(reviewer.of_report())


def judgement_findings(making: Making, narrative: Narrative, judged: Judged) -> list[GateFinding]:
    """What is wrong with what a second reader says of a text: as of the texts themselves, and that a refutation names
    the place that shows it."""
    reviewer = _Reviewer(making, narrative)
    if not judged.why.strip() or len(judged.why) > LONGEST:
        return [_finding("schema", judged.text, f"why has {len(judged.why)} characters; 1 to {LONGEST} are read")]
    wrong, _ = reviewer.of_text(f"{judged.text}{'' if judged.holds else '.why'}", judged.why)
    return wrong


class _Reviewer:
    def __init__(self, making: Making, narrative: Narrative) -> None:
        self._making, self._narrative = making, narrative
        self._told = Told(narrative, making.numbers)
        self._stated = _numbers(making.plain.text)

    # -- what is there at all --------------------------------------------------------------------------------------

    def of_size(self) -> Iterator[GateFinding]:
        """Texts that the report has no place for, too many, too long or empty ones."""
        told, asked = self._narrative, self._making.asked
        for name, most in MOST.items():
            count = len(getattr(told, name))
            if count and not getattr(asked, name):
                yield _finding("schema", name, "this report has no place for it; leave it out")
            elif count > most:
                yield _finding("schema", name, f"{count} are too many; keep the {most} that matter most")
        for field, given, names in (
            ("insights", told.insights, list(asked.insights)),
            ("deep_dive", told.deep_dive, list(asked.deep_dive)),
        ):
            shorts = [name.rpartition(".")[2] for name in names] if field == "insights" else ()
            for name, sentences in given.items():
                if name not in names and name not in shorts:
                    yield _finding("schema", f"{field}[{name!r}]", _not_asked(name, names))
                elif len(sentences) > MOST_TOLD:
                    yield _finding("schema", f"{field}[{name!r}]", f"{len(sentences)} are too many; keep {MOST_TOLD}")
        yield from self._of_amendments()
        for place, text in texts(told):
            if not text.strip():
                yield _finding("schema", place, "it is empty; leave it out, or say something")
            elif len(text) > LONGEST:
                yield _finding("schema", place, f"{len(text)} characters; at most {LONGEST} are read by anybody")

    def _of_amendments(self) -> Iterator[GateFinding]:
        """Rows and sentences to strike or to correct that are not there, or not told from others."""
        told = self._narrative
        for name, asked in _amendments(told).items():
            if len(asked) > MOST_AMENDED:
                yield _finding("schema", name, f"{len(asked)} are too many; keep {MOST_AMENDED}")
            for index, one in enumerate(asked):
                found = matches(self._making.without, one)
                if len(found) != 1:
                    count = (
                        f"{len(found)} rows or sentences of {one.section} begin so" if found else "nothing begins so"
                    )
                    what = f"{count}: give the heading, the column and the beginning of one as they stand"
                    yield _finding("schema", f"{name}[{index}]", what)

    # -- each text by itself ---------------------------------------------------------------------------------------

    def of_texts(self) -> Iterator[GateFinding]:
        """What is wrong with a text; where nothing is, whether it says where it is from."""
        claims: dict[str, bool] = {}
        for place, text in texts(self._narrative):
            wrong, has_ground = self.of_text(place, text)
            yield from wrong
            claim = _claim(place)
            claims[claim] = claims.get(claim, False) or has_ground
        for claim, has_ground in claims.items():
            if not has_ground and not claim.startswith("open_questions"):
                what = "it has no place and no number of the report: say where it shows, or leave it out"
                yield _finding("ground", claim, what)

    def of_text(self, place: str, text: str) -> tuple[list[GateFinding], bool]:
        """What is wrong with one text, and whether it says where it is from."""
        document = Document("title", (), [Section("text", [Bullets([self._told.line(text)])])])
        written = to_markdown(document)
        ledger = Ledger(kind="model", subject=place, numbers=list(entries(document)))
        read = read_markdown(written)
        pointers = list(cited(read))
        pieces = [piece for piece in read.pieces if piece.section == "text"][1:]
        wrong = [
            _finding(finding.rule, place, self._corrected(finding.rule, finding.message))
            for finding in review_text(place, written, self._making.roots, ledger).findings
        ]
        wrong += [*self._of_places(place, pointers), *self._of_numbers(place, pieces, pointers)]
        if any(_ADDRESS.search(piece.prose) for piece in pieces):
            wrong.append(_finding("ground", place, "an address is no place in the code; leave it out"))
        wrong += self._of_names(place, pieces, pointers)
        if not pointers and not wrong and place.endswith(".why"):
            wrong.append(_finding("ground", place, "it names no place in the code that shows it"))
        return wrong, bool(wrong or pointers or ledger.numbers)

    def _of_names(self, place: str, pieces: list[Piece], pointers: list[Cited]) -> Iterator[GateFinding]:
        """Names in code that stand neither in the report nor in a file that the text names."""
        if not pointers:
            return
        files = [file for pointer in pointers for file in self._making.roots.find(pointer.path)[:1]]
        there = "\n".join("\n".join(lines_of(file) or ()) for file in files)
        symbols = {pointer.symbol for pointer in pointers}  # these are looked for at their lines
        for name in (span for piece in pieces for span in piece.spans if span not in symbols):
            parts = re.findall(r"[A-Za-z_]\w+", name) if _NAME.fullmatch(name) else ()
            gone = next((part for part in parts if part not in there and part not in self._making.plain.text), None)
            if gone is not None:
                yield _finding("ground", place, f"{gone} stands neither in the report nor in a file that is named here")

    def _corrected(self, rule: str, message: str) -> str:
        """Of a number: what the report has instead."""
        if rule != "number":
            return message
        number = message.partition(" is no number of")[0]
        return _no_number(number, difflib.get_close_matches(number, self._making.numbers, 3, 0.5))

    def _of_places(self, place: str, pointers: list[Cited]) -> Iterator[GateFinding]:
        for pointer in pointers:
            if pointer.symbol is None:
                what = f"{pointer.place}: say what stands there, as in `{pointer.place}` (`symbol`)"
                yield _finding("pointer", place, what)

    def _of_numbers(self, place: str, pieces: list[Piece], pointers: list[Cited]) -> Iterator[GateFinding]:
        """Numbers that stand neither in the report nor at a place that the text names."""
        there = "\n".join(line for pointer in pointers for line in self._lines_at(pointer))
        known = self._stated | _numbers(there)
        for piece in pieces:
            for found in _NUMBER.finditer(NUMBER_WITH_UNIT.sub(" ", piece.prose)):
                number = found[0].rstrip(",")
                if number.replace(",", "") not in known:
                    yield _finding("number", place, _no_number(number))
            for span in piece.spans:
                inside = NUMBER_WITH_UNIT.search(span)
                if inside is not None and span not in there and span not in self._making.plain.text:
                    yield _finding("number", place, f"{_no_number(inside[0])}; numbers stand without backticks")

    def _lines_at(self, pointer: Cited) -> tuple[str, ...]:
        files: list[Path] = self._making.roots.find(pointer.path)
        lines = lines_of(files[0]) if files else None
        return (lines or ())[max(0, pointer.first - 1 - NEAR) : pointer.last + NEAR]

    # -- the report with all of them -------------------------------------------------------------------------------

    def of_report(self) -> Iterator[GateFinding]:
        """The whole report with the narrative in it."""
        report = self._making.with_(self._narrative)
        lines = report.text.splitlines()
        forms = {place: renderings(self._told.line(text)) for place, text in texts(self._narrative)}
        for place, shown in forms.items():
            if not any(form in line for form in shown for line in lines):
                yield _finding(
                    "schema", place, "the report does not show it: there is no more room for it; leave it out"
                )
        for finding in self._making.review(report).findings:
            line = lines[finding.line - 1] if finding.line <= len(lines) else ""
            place = next((name for name, shown in forms.items() if any(form in line for form in shown)), "the report")
            yield _finding(finding.rule, place, finding.message)


def _amendments(narrative: Narrative) -> dict[str, Sequence[Amendment]]:
    return {"strikes": narrative.strikes, "corrections": narrative.corrections}


def _claim(place: str) -> str:
    """What is grounded as one: a sentence, or a pitfall with what helps against it."""
    return place.rpartition(".")[0] if place.startswith(("pitfalls", "strikes", "corrections")) else place


def _numbers(text: str) -> set[str]:
    return {found[0].rstrip(",").replace(",", "") for found in _ANY_NUMBER.finditer(text)}


def _no_number(number: str, close: list[str] | None = None) -> str:
    instead = f"; it has {', '.join(close)}" if close else ""
    return f"{number} is no number of this report{instead}"


def _not_asked(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 3, 0.4) or names[:8]
    return f"this report has nothing called so that takes text; it has {', '.join(close) or 'none'}"


def _finding(rule: str, place: str, message: str) -> GateFinding:
    return GateFinding.model_validate({"rule": rule, "message": f"{place}: {message}"})
