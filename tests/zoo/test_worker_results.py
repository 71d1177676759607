"""What a worker sends back is held against what was asked for before any of it is kept."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

import analyses

from lmp.records import ConfigOrigin
from lmp.store.results import Store, to_text
from lmp.zoo import worker_results
from lmp.zoo.requests import Request
from lmp.zoo.worker_results import InvalidResult, WorkerResult, unpack, validated

ENTRY = {"family": "ant", "task": "base", "status": "verified", "fingerprint": "f"}
PLACE = f"{analyses.LINEAR}/module_analysis.json"
TEXT = to_text(analyses.linear())


def request(folder: Path) -> Request:
    return Request("ant", "base", "AntModel", str(folder), None, None, None, "bfloat16", "f")


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    files = {PLACE: TEXT, ".zoo/configs/base/ant.json": "{}"}
    result = WorkerResult("tcp://a:1", ENTRY, files)
    assert unpack(result.pack()) == result
    found = validated(unpack(result.pack()), request(tmp_path))
    assert (found.entry.family, found.files) == ("ant", {name: text.encode() for name, text in files.items()})


def test_results_at_a_config_that_was_made_consistent(tmp_path: Path) -> None:
    store = Store(tmp_path / "worker")
    file = store.save(analyses.linear(config=ConfigOrigin(name="data2vec-text_2.0", origin="data2vec-text_2.0.json")))
    name = file.relative_to(store.root).as_posix()
    assert name == f"{analyses.LINEAR}@data2vec-text_2.0/module_analysis.json"
    found = validated(WorkerResult("w", ENTRY, {name: file.read_text()}), request(tmp_path / "caller"))
    assert list(found.files) == [name]


@pytest.mark.parametrize(
    "name",
    [
        f"../{PLACE}",
        f"/tmp/{PLACE}",
        f"a/b/{PLACE}",
        f"{analyses.LINEAR}/other.json",
        "module_analysis.json",
        ".zoo/configs/base/bee.json",
        ".zoo/base/ant.json",
        "torch.nn.Other/module_analysis.json",
    ],
)
def test_files_that_are_of_no_result_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidResult):
        validated(WorkerResult("w", ENTRY, {name: TEXT}), request(tmp_path))


@pytest.mark.parametrize("text", ["{", "{}", "[]", TEXT.replace('"engine": "trace"', '"engine": "agent"'), 3])
def test_files_that_are_no_analysis_of_lmp_are_refused(tmp_path: Path, text: Any) -> None:
    with pytest.raises(InvalidResult):
        validated(WorkerResult("w", ENTRY, {PLACE: text}), request(tmp_path))


@pytest.mark.parametrize("changed", [{"family": "bee"}, {"task": "vision"}, {"fingerprint": "g"}, {"status": "good"}])
def test_an_entry_of_something_else_is_refused(tmp_path: Path, changed: dict[str, str]) -> None:
    with pytest.raises(InvalidResult, match="its entry"):
        validated(WorkerResult("w", {**ENTRY, **changed}), request(tmp_path))


@pytest.mark.parametrize("content", [b"", b"no gzip"], ids=["empty", "no gzip"])
def test_what_is_no_result(content: bytes) -> None:
    with pytest.raises(InvalidResult, match="it cannot be read"):
        unpack(content)


# The texts, not the packed bytes, are the parameters: gzip writes the time into them, and two processes
# of pytest-xdist that collect in different seconds would know the test by different names.
@pytest.mark.parametrize("text", ["{", '{"x": 1}', "3"])
def test_what_is_packed_and_no_result(text: str) -> None:
    with pytest.raises(InvalidResult, match="it cannot be read"):
        unpack(gzip.compress(text.encode()))


def test_a_result_that_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_results, "LARGEST", 1000)
    with pytest.raises(InvalidResult, match="larger than 1,000 bytes"):
        unpack(WorkerResult("w", ENTRY, {PLACE: "0" * 2000}).pack())


@pytest.mark.parametrize(("engine", "kept"), [("trace", True), ("submitted", False), ("agent", False)])
def test_what_is_there_already(tmp_path: Path, engine: str, kept: bool) -> None:
    file = tmp_path / PLACE
    file.parent.mkdir()
    there = json.loads(TEXT) | {"engine": engine, "assumptions": ["{seq_len} > 3"]}
    file.write_text(json.dumps(there))
    assert (PLACE in validated(WorkerResult("w", ENTRY, {PLACE: TEXT}), request(tmp_path)).files) is kept
    file.write_text(TEXT)
    assert validated(WorkerResult("w", ENTRY, {PLACE: TEXT}), request(tmp_path)).files == {}
