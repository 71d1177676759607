"""``lmp review``: the self-review, of a report that lmp wrote or of any markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.codebase.texts import Unreadable, read_bytes
from lmp.errors import LmpError, UsageError
from lmp.link.numbers import ModelNumbers
from lmp.link.quantised import with_own_bytes
from lmp.link.values import GIVEN, values_for
from lmp.records import ModelAnalysis, Review, ReviewFinding
from lmp.report.document.ledger import Ledger, names_in
from lmp.report.evaluating import Worth
from lmp.report.folder import ledger_file
from lmp.report.review import Roots, review_text
from lmp.report.warnings import of_the_model
from lmp.source.trees import LAYOUTS, Trees
from lmp.store.results import Store, strict_json

if TYPE_CHECKING:
    from lmp.analyze.session import Options

LARGEST = 50_000_000
"""Bytes of a file that is reviewed, and of its list of numbers."""

MOST_POINTS = 64
"""Points that the numbers of a report are of."""


def review_file(
    file: Path, folders: Sequence[Path], given: bool, trees: Trees, store: Store, options: Options | None = None
) -> Review:
    """Hold a file against the code and, where it has numbers of lmp's, against the results.

    Places are looked for in ``folders``, those of a model's report in the source trees, and, unless the folders were
    ``given``, those of a repository's where it was read, and beside the file. A report without its list of numbers is
    made again with these ``options``; without options it is not. Raises UsageError for what cannot be read as text.
    """
    text = _text(file)
    held = _held(ledger_file(file.resolve()), store)
    if held.ledger is None and not held.wrong and options is not None:
        held = _made_again(text, options, folders, file.resolve().parent.parent)
    ledger = held.ledger
    if ledger is not None and ledger.folder is not None and not given:
        folders = (Path(ledger.folder), *folders)
    beside = None if given else file.resolve().parent
    own_first = sorted(trees, key=lambda tree: tree not in trees.extra)
    here = {tree.name for tree in trees}
    absent = tuple(f"{name}/{layout.package}" for name, layout in LAYOUTS.items() if name not in here)
    roots = Roots(dict(tree.labelled for tree in own_first), tuple(folders), beside, absent)
    review = review_text(str(file), text, roots, ledger, held.worth, held.notes)
    found = [ReviewFinding(rule="number", line=1, message=message) for message in held.wrong]
    return review.model_copy(update={"findings": [*found, *review.findings]})


def _text(file: Path) -> str:
    try:
        return read_bytes(file.resolve(), LARGEST).decode("utf-8-sig")
    except Unreadable as error:
        why = str(error).removeprefix("cannot be read: ")
        raise UsageError(f"{file} cannot be read: {why}\ngive a markdown file") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}\ngive a markdown file") from error
    except RuntimeError as error:  # a loop of links
        raise UsageError(f"{file} cannot be read: {error}\ngive a markdown file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no UTF-8 text\ngive a markdown file") from error


# --- its numbers -----------------------------------------------------------------------------------------------------


@dataclass
class _Held:
    """What numbers are held against, and what is wrong with that."""

    ledger: Ledger | None = None
    worth: Worth | None = None
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _made_again(text: str, options: Options, folders: Sequence[Path], reports: Path) -> _Held:
    """The same of a report that its list of numbers does not lie beside."""
    from lmp.report.remaking import reason, remade
    from lmp.report.review.reading import read_markdown

    try:
        found = remade(read_markdown(text), options, folders, reports)
    except (LmpError, ImportError) as error:  # without torch nothing is made again
        return _Held(notes=[reason(error)])
    return _Held() if found is None else _Held(found.ledger, found.worth, [found.note])


def _held(place: Path, store: Store) -> _Held:
    """``place`` is where the list of numbers is, if there is any."""
    if not place.exists() and not place.is_symlink():
        return _Held()
    from pydantic import ValidationError

    again = "write the report again with `lmp report`"
    try:
        ledger = Ledger.model_validate(strict_json(read_bytes(place, LARGEST)))
    except (Unreadable, ValueError, RecursionError, ValidationError):
        return _Held(wrong=[f"{place} is no list of numbers of lmp's: {again}"])
    if ledger.kind != "model":
        notes = ["counts were held against those that were written with the report"]
        return _Held(ledger, Worth(None, {}, ledger.named), notes)
    try:
        model = store.load_model(ledger.subject, ledger.config)
    except LmpError as error:
        return _Held(ledger, notes=[f"{_ALONE}: {str(error).splitlines()[0]}"])
    if model is None:
        name = ledger.subject if ledger.config == "default" else f"{ledger.subject}@{ledger.config}"
        why = f"there is no model of {name} in {store.root.name}/ (`lmp expand` makes it)"
        return _Held(ledger, notes=[f"{_ALONE}: {why}"])
    try:
        return _Held(ledger, _worth(ledger, model), [f"the results: {line}" for line in of_the_model(model)])
    except LmpError as error:
        return _Held(ledger, wrong=[f"{place}: {str(error).splitlines()[0]}: {again}"])


_ALONE = "numbers were held against the list written with the report alone"


def _worth(ledger: Ledger, model: ModelAnalysis) -> Worth:
    """What the numbers are worth by the results. Raises UsageError for a list that is of no report on this model."""
    names = names_in(ledger.numbers)
    points = {key: ledger.points[key] for key in _points_of(ledger, names) if key in ledger.points}
    if len(points) > MOST_POINTS:
        raise UsageError(f"numbers of {len(points):,} points, at most {MOST_POINTS} are worked out")
    for key, values in points.items():
        _check_point(key, values, ledger.sizes, model)
    numbers = ModelNumbers(model if "w_bytes" in ledger.sizes else with_own_bytes(model))
    settings = {f"config.{name}": value for name, value in _settings(model)}
    named = {**ledger.named, **{name: settings[name] for name in names if name in settings}}
    return Worth(numbers, points, {**named, **_bounds(ledger, numbers, points, names)})


def _points_of(ledger: Ledger, names: Sequence[str]) -> Iterator[str]:
    """The points that numbers are of, once each: those of terms, and those in the names of bounds."""
    terms = (term for entry in ledger.numbers if entry.claim is not None for term in entry.claim.terms.values())
    of_terms = (term.point for term in terms if term.point is not None)
    of_names = (name.split(".")[1] for name in names if name.startswith(_OF_BOUNDS))
    yield from dict.fromkeys((*of_terms, *of_names))


_OF_BOUNDS = ("bound.", "routed.")
RUNTIME = (*GIVEN, "cache_len")
"""What a point is made of; the rest is the config's."""


def _check_point(key: str, values: Mapping[str, int], sizes: Mapping[str, int], model: ModelAnalysis) -> None:
    """Raises UsageError where a point is not one of this model's, with the values that its config has now."""
    try:
        due = values_for(model, {**sizes, **{name: values[name] for name in RUNTIME if name in values}})
    except LmpError as error:
        raise UsageError(f"point {key}: {str(error).splitlines()[0]}") from error
    for name in dict.fromkeys((*due, *values)):
        if values.get(name) != due.get(name):
            has, have = (known.get(name, "none") for known in (values, due))
            raise UsageError(f"point {key} has the value {has} for {name}, the results have {have}")


def _settings(model: ModelAnalysis) -> Iterator[tuple[str, int]]:
    """Values of the config by their names there, as the model was linked at them."""
    for name, origin in model.parameters.items():
        if origin.startswith("config.") and name in model.values:
            yield origin.removeprefix("config."), model.values[name]


def _bounds(
    ledger: Ledger, numbers: ModelNumbers, points: Mapping[str, Mapping[str, int]], names: Sequence[str]
) -> Mapping[str, int]:
    """The bounds of the report's device, worked out again where numbers are made of them."""
    if ledger.device is None:
        return {}
    from lmp.report.bounds import Bounds
    from lmp.report.devices import device_named

    device = device_named(ledger.device)
    used = {name.split(".")[1] for name in names if name.startswith(_OF_BOUNDS)}
    return Bounds(numbers, {key: values for key, values in points.items() if key in used}, device).named
