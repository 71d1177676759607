"""``lmp review``: the self-review, of a report that lmp wrote or of any markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lmp.errors import UsageError
from lmp.expand.numbers import ModelNumbers
from lmp.records import Review
from lmp.report.document.ledger import Ledger
from lmp.report.evaluating import Worth
from lmp.report.folder import ledger_file
from lmp.report.review import Roots, review_text
from lmp.source.trees import Trees
from lmp.store.results import Store, strict_json

LARGEST = 50_000_000
"""Bytes of a file that is reviewed."""


def review_file(file: Path, folders: Sequence[Path], given: bool, trees: Trees, store: Store) -> Review:
    """Hold a file against the code and, where it has numbers of lmp's, against the results.

    Places are looked for in ``folders``, those of a model's report in the source trees, and, unless the folders were
    ``given``, those of a repository's where it was read. Raises UsageError for what cannot be read as text.
    """
    text, ledger = _text(file), _ledger(file)
    if ledger is not None and ledger.folder is not None and not given:
        folders = (Path(ledger.folder), *folders)
    roots = Roots({tree.name: tree.root for tree in trees}, tuple(folders))
    if ledger is None:
        return review_text(str(file), text, roots)
    worth, notes = _worth(ledger, store)
    return review_text(str(file), text, roots, ledger, worth, notes)


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST:
            raise UsageError(f"{file} is larger than {LARGEST // 10**6} MB\ngive a markdown file")
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}\ngive a markdown file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no UTF-8 text\ngive a markdown file") from error


def _ledger(file: Path) -> Ledger | None:
    place = ledger_file(file.resolve())
    if not place.is_file():
        return None
    from pydantic import ValidationError

    try:
        return Ledger.model_validate(strict_json(place.read_bytes()))
    except (OSError, ValueError, ValidationError) as error:
        raise UsageError(f"{place} is no list of numbers of lmp's\nwrite the report again with `lmp report`") from error


def _worth(ledger: Ledger, store: Store) -> tuple[Worth | None, list[str]]:
    """What the numbers are worth by the results that are here, and what could not be held against any."""
    if ledger.kind != "model":
        return Worth(None, {}, ledger.named), ["counts were held against those that were written with the report"]
    model = store.load_model(ledger.subject, ledger.config)
    if model is None:
        name = ledger.subject if ledger.config == "default" else f"{ledger.subject}@{ledger.config}"
        return None, [
            f"numbers were held against the list written with the report alone: there is no model of {name} in "
            f"{store.root.name}/ (`lmp expand` makes it)"
        ]
    numbers = ModelNumbers(model)
    return Worth(numbers, ledger.points, {**ledger.named, **_bounds(ledger, numbers)}), []


def _bounds(ledger: Ledger, numbers: ModelNumbers) -> Mapping[str, int]:
    """The bounds of the report's device, worked out again."""
    if ledger.device is None:
        return {}
    from lmp.report.bounds import Bounds
    from lmp.report.devices import device_named

    return Bounds(numbers, ledger.points, device_named(ledger.device)).named
