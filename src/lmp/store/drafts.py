"""What was handed in and refused: the draft and its findings, kept beside the place of the result.

RESULTS/<class>/draft.json      as it was handed in
RESULTS/<class>/findings.json   what is wrong with it; both go away when a later hand-in is accepted
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.store.files import storage_errors, write_whole
from lmp.store.results import DEFAULT, Store

if TYPE_CHECKING:
    from lmp.records import GateFinding

DRAFT, FINDINGS = "draft.json", "findings.json"


def keep_draft(store: Store, class_path: str, config: str, draft: Any, findings: Sequence[GateFinding]) -> Path:
    """Keeps a refused draft; returns its file. An earlier one is replaced."""
    folder = store.folder(class_path, config or DEFAULT)
    found = [finding.model_dump(mode="json", exclude_none=True) for finding in findings]
    with storage_errors(folder):
        write_whole(folder / DRAFT, _text(draft))
        write_whole(folder / FINDINGS, _text(found))
    return folder / DRAFT


def remove_draft(store: Store, class_path: str, config: str) -> None:
    """After a hand-in that was accepted."""
    folder = store.folder(class_path, config or DEFAULT)
    for name in (DRAFT, FINDINGS):
        with storage_errors(folder), contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()


def _text(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
