"""Pitfalls and open questions, each from a place in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from lmp.codebase.facts import Place
from lmp.codebase.parts import LONGEST, NEAR, PartPitfall
from lmp.codebase.roles.pitfalls import Pitfall
from lmp.codebase.roles.pitfalls import pitfalls as found_pitfalls
from lmp.report.document.parts import Bullets, Code, Inline, Line, Link, Paragraph, Section
from lmp.report.repository.appendix import ENV, KERNELS, NOTES, SKIPPED, must_be_set
from lmp.report.repository.pieces import ASIDE, code, count, joined, plural, pointer, said, sentence
from lmp.report.repository.statements import Condition, conditions, function_at, parameters, refusal
from lmp.report.repository.study import Study
from lmp.report.repository.workflows import anchor
from lmp.source.quoting import escaped

SHOWN = 4
"""Of each kind; the rest is in the appendix."""
MOST_TESTS = 3
"""Tests of one condition, and conditions around a refusal, that are named."""


def pitfalls(study: Study) -> Section:
    items: list[Line] = []
    for what, detect, fix in study.told.pitfalls() if study.told else ():
        items.append(_item(what, detect, fix))
    named = study.named.parts.pitfalls if study.named is not None else []
    items += [_named(each) for each in named]
    items += [each.line for each in telling(study) if not any(_is_same(each.pitfall, other) for other in named)]
    items += _unset(study)
    searched = "asserts, refusals, fixed ports and paths, dropped arguments, reads without a default"
    after: list[Inline] = [
        "What is most like what readers of other code bases named comes first; what comments and warnings say is in ",
        Link(NOTES, anchor(NOTES)),
        ".",
    ]
    return Section("Pitfalls / time sinks", [Bullets(items, searched), Paragraph(after)])


def _named(each: PartPitfall) -> Line:
    """One that a reader named."""
    effect, trigger, fix = (said(escaped(text, kept=""), LONGEST) for text in (each.effect, each.trigger, each.fix))
    return _item(sentence(pointer(Place(each.file, each.line), each.symbol), ": ", effect), [trigger], [fix])


def _is_same(found: Pitfall, named: PartPitfall) -> bool:
    return found.cause.file == named.file and abs(found.cause.line - named.line) <= NEAR


@dataclass(frozen=True)
class Telling:
    """A pitfall as it is told: what comes of it, and its whole line."""

    pitfall: Pitfall
    effect: str
    line: Line


@lru_cache(maxsize=1)
def telling(study: Study) -> list[Telling]:
    """Pitfalls whose trigger a user can meet: no assert that only tells a type checker what the line before made."""
    found = found_pitfalls(study.reading, study.rows, study.edges)
    met = [[each for each in (one, *one.more) if _is_met(study, each)] for one in found]
    return [_with_more(study, _told(study, first), more) for first, *more in filter(None, met)]


def _with_more(study: Study, first: Telling, more: list[Pitfall]) -> Telling:
    """What else the same function does goes with it."""
    if not more:
        return first
    also = [_also(study, each) for each in more]
    return replace(first, line=sentence(first.line, "; also there: ", joined(also)))


def _also(study: Study, each: Pitfall) -> Line:
    at: list[Inline] = [" at ", pointer(each.cause)]
    if refusal(study.base, each.cause).error:
        return sentence(*refused_at(study, each.cause, each.written)[1], *at)
    return sentence(code(each.written, 70), *at, " (", _within(each.effect), *_branches(study, each), ")")


def _branches(study: Study, each: Pitfall) -> list[Inline]:
    """The branches around one whose own condition is what is told of it."""
    around = conditions(study.base, each.cause)
    return _where_it_counts(around[:-1]) if around and around[-1].tests == (each.written,) else []


_NARROWS = re.compile(r"(?P<what>[\w.\[\]]+) is not None|isinstance\(.*")


def _is_met(study: Study, each: Pitfall) -> bool:
    refused = refusal(study.base, each.cause)
    if refused.error != "AssertionError":
        return True
    narrowed = _NARROWS.fullmatch(each.written)
    given = _parameters(study, each)
    return bool(refused.message) if each.written in ("False", "0") else narrowed is None or narrowed["what"] in given


def _guarded(study: Study, handler: Place) -> str:
    """The first line of the block that a handler of errors belongs to."""
    lines = study.base.lines(handler.file)
    indent = len(lines[handler.line - 1]) - len(lines[handler.line - 1].lstrip())
    for at in range(handler.line - 2, -1, -1):
        if lines[at].strip() == "try:" and len(lines[at]) - len(lines[at].lstrip()) == indent:
            return next((line.strip() for line in lines[at + 1 : handler.line - 1] if line.strip()), "")
    return ""


def _parameters(study: Study, each: Pitfall) -> list[str]:
    node = function_at(study.base, each.place)
    return [re.split("[:=]", one)[0].strip(" *") for one in parameters(node)] if node is not None else []


def _told(study: Study, each: Pitfall) -> Telling:
    at: list[Inline] = [", from ", pointer(each.cause)] if each.cause != each.place else []
    # A variable of the environment may be read by the name of a constant.
    where = [study.pointer(each.place, each.symbol)[0], *at, ": "]
    end = refusal(study.base, each.cause)
    if not end.error:
        guarded = _guarded(study, each.cause) if each.written.startswith("except") else ""
        around: list[Inline] = [" around ", code(guarded, 70)] if guarded else []
        around += _branches(study, each)
        what = sentence(*where, code(each.written, 90), *around, ". ", each.effect)
        return Telling(
            each, f"{each.written}: {_within(each.effect)}", _item(what, _within(each.trigger), _within(each.fix))
        )
    words = end.words
    own, refused = refused_at(study, each.cause, each.written)
    asked = [
        name
        for name in _parameters(study, each)
        if any(re.search(rf"(?<![\w.]){re.escape(name)}\b", test) for test in own.tests)
    ]
    owner = each.symbol.rpartition(".")[2]
    meets = "meets it" if len(own.tests) == 1 else "meets one of them"
    if asked:
        named = joined([code(name, 40) for name in asked[:3]])
        fix = sentence("give ", *named, " a value that ", "does not meet it" if own.holds != end.asserts else meets)
    elif owner.isidentifier():
        fix = sentence("check it before ", code(owner, 40), " is called")
    else:
        # What stands in no function runs with its file.
        fix = sentence("check it before this file is run")
    if any(each.handles for each in conditions(study.base, each.cause)):
        fix = sentence("keep the error before it from being raised")
    # The macro of the language itself is left out of a release build.
    unless = ", where NDEBUG is not defined" if end.error == "assert" else ""
    effect = "".join(piece.text if isinstance(piece, Code) else str(piece) for piece in refused)
    return Telling(
        each,
        f"{effect}, else {words}" if end.asserts else f"{effect}, with {words}",
        _item(sentence(*where, *refused), sentence("it stops with ", end.of, code(words, 110), unless), fix),
    )


def refused_at(study: Study, place: Place, written: str) -> tuple[Condition, list[Inline]]:
    """What the assert or raise at a line refuses, and where that counts; ``written`` is its own condition."""
    around = conditions(study.base, place)
    asserts = refusal(study.base, place).asserts
    own = Condition((written,)) if asserts or not around or around[-1].handles else around.pop()
    return own, refusal_of(own, asserts) + _where_it_counts(around)


def refusal_of(own: Condition, asserts: bool) -> list[Inline]:
    """What a condition says of the values that are taken: ``n > 0`` must hold; anything but ``kind == 'a'``
    raises an error."""
    tests = [code(test, 90) for test in own.tests[:MOST_TESTS]]
    more = [" and more"] if len(own.tests) > len(tests) else []
    if asserts:
        return [*tests, " must hold"]
    if own.holds:
        return [*tests, " raises an error"]
    return ["anything but ", *joined(tests), *more, " raises an error"]


def _where_it_counts(around: list[Condition]) -> list[Inline]:
    """The branches that a refusal stands in."""
    found: list[Inline] = []
    for number, each in enumerate(around[-MOST_TESTS:]):
        tests = joined([code(test, 60) for test in each.tests[:MOST_TESTS]])
        held = "" if each.holds else " does not hold" if len(each.tests) == 1 else " do not hold"
        found += [" and " if number else ", ", "in " if each.handles else "where " * (not number), *tests, held]
    return found


def _within(text: str) -> str:
    """A sentence as a part of another."""
    return text[:1].lower() + text[1:].rstrip(".")


def _item(what: Line, detect: Line, fix: Line) -> Line:
    return sentence(what, " (how to detect: ", detect, "; fix: ", fix, ")")


def _unset(study: Study) -> Iterator[Line]:
    found = [
        read
        for read in study.base.facts.env
        if read.resolved and must_be_set(study, read) and study.base.is_own(read.place.file)
    ]
    found.sort(key=lambda read: bool(ASIDE.search(read.place.file)))
    names: dict[str, Place] = {}
    for read in found:
        names.setdefault(read.name, read.place)
    for name, place in list(names.items())[:SHOWN]:
        yield _item(
            sentence(code(name), " is read without a default at ", pointer(place)),
            sentence("it ends with ", code(f"KeyError: '{name}'")),
            sentence("set it before the start, or read it there with ", code("os.environ.get")),
        )


# --- open questions --------------------------------------------------------------------------------------------------


def questions(study: Study) -> Section:
    items: list[Line] = list(study.told.open_questions()) if study.told else []
    items += [*_calls(study), *_names(study), *_configurations(study), *_files(study)]
    searched = "calls in the pseudocode, environment reads, autotune configurations, files"
    return Section("Open questions", [Bullets(items, searched)])


def _calls(study: Study) -> Iterator[Line]:
    seen: set[str] = set()
    for _, nest in study.nests:
        for name, place, how in nest.open_calls:
            if name in seen:
                continue
            seen.add(name)
            yield sentence(
                "What does ",
                code(name, 50),
                " call at ",
                pointer(place),
                "? Reading alone cannot tell: ",
                code(how, 70),
                ".",
            )


def _names(study: Study) -> Iterator[Line]:
    open_reads = [read for read in study.base.facts.env if not read.resolved]
    if open_reads:
        shown = joined([[code(read.name, 40), " at ", pointer(read.place)] for read in open_reads[:4]])
        yield sentence(
            "Which variables are read at ",
            *plural(len(open_reads), "place"),
            " whose name is worked out at run time (",
            shown,
            ")? All are in ",
            Link(ENV, anchor(ENV)),
            ".",
        )


def _configurations(study: Study) -> Iterator[Line]:
    found: dict[str, tuple[int, Place]] = {}
    for kernel in study.base.facts.kernels:
        for config in kernel.configs:
            if not config.values and config.expression:
                reason = config.stopped or config.expression
                number, place = found.get(reason, (0, config.stopped_at or config.place))
                found[reason] = number + 1, place
    ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    for reason, (number, place) in ranked[:5]:
        yield sentence(
            "Which configurations do " if number > 1 else "Which configurations does ",
            *plural(number, "kernel"),
            " have? They depend on ",
            code(reason, 90),
            " at ",
            pointer(place),
            ", which only the machine knows." if number > 1 else ", which only running it tells.",
        )
    if len(ranked) > 5:
        yield sentence(
            *plural(len(ranked) - 5, "more expression"),
            " of configurations could not be resolved; they stand in ",
            Link(KERNELS, anchor(KERNELS)),
            ".",
        )


def _files(study: Study) -> Iterator[Line]:
    every = [*study.base.facts.skipped, *study.base.unread]
    if every:
        shown = joined([[Code(each.file), " (", code(each.why, 60), ")"] for each in every[:4]])
        yield sentence(
            "What stands in ",
            *plural(len(every), "file"),
            " that could not be read, or not in full: ",
            shown,
            "? All are in ",
            Link(SKIPPED, anchor(SKIPPED)),
            ".",
        )
    guessed = count(study.base.facts, "definitions")
    if not study.base.facts.definitions:
        yield sentence("Why are there ", guessed, " definitions?")
