"""The files of the atlas: written, read again, and damaged in every way that a file can be."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import made
import pytest
from jsonschema import Draft202012Validator

from lmp.atlas.archive import FACTS, HELD, INDEX, MODEL, PACKAGED, Atlas, Damaged, packed
from lmp.atlas.holding import between, read
from lmp.atlas.making import Made, parts
from lmp.errors import NotFound
from lmp.records import ConfigOrigin
from lmp.source.trees import sha256_of
from lmp.store.schemas import schema


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made.atlas(tmp_path)
    found = Atlas(tmp_path)
    (listed,) = found.index.entries
    entry = found.load(listed)
    assert entry.model == made.model()
    assert entry.facts == made.FACTS
    assert entry.held == made.held()
    assert entry.modules == {}
    assert found.named("ORG/tiny") == found.named("org--Tiny") == listed


def test_the_same_parts_are_the_same_bytes() -> None:
    assert packed({"a": b"x" * 999, "b": b"y"}) == packed({"b": b"y", "a": b"x" * 999})


def test_an_unknown_entry_names_close_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="did you mean org/Tiny"):
        made.atlas(tmp_path).named("org/Tine")


def test_no_index(tmp_path: Path) -> None:
    assert Atlas(tmp_path / "none", is_new=True).index.entries == []
    assert "index.json is not there" in refused(tmp_path / "none")


def everything(found: Atlas) -> list[object]:
    """All that is in an atlas."""
    entries = [found.load(listed) for listed in found.index.entries]
    return [(entry.model, entry.modules, entry.facts, entry.held) for entry in entries]


def refused(folder: Path) -> str:
    """The message for an atlas that is damaged: two lines, of which the second says what to do."""
    with pytest.raises(Damaged) as error:
        everything(Atlas(folder))
    assert error.value.exit_code == 4
    first, second = str(error.value).splitlines()
    assert second == "install lmp again, or build the entry again: lmp atlas build"
    return first


def test_a_changed_byte(tmp_path: Path) -> None:
    made.atlas(tmp_path)
    file = tmp_path / "org--Tiny.zip"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert "has another sha256 than index.json says" in refused(tmp_path)


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    made.atlas(tmp_path)
    file = tmp_path / "org--Tiny.zip"
    file.write_bytes(file.read_bytes()[:-1])
    assert "has another sha256 than index.json says" in refused(tmp_path)


OTHER = ConfigOrigin(name="org--Other", origin="a test", sha256="d" * 64)


def two(folder: Path) -> tuple[Path, Path]:
    """The files of two entries."""
    atlas = made.atlas(folder)
    other = Made(made.model(config=OTHER), {}, made.FACTS, made.held())
    atlas.write(made.line(name="org--Other", model_id="org/Other", origin=OTHER), parts(other))
    assert len(everything(Atlas(folder))) == 2
    return folder / "org--Other.zip", folder / "org--Tiny.zip"


def test_two_files_that_are_swapped(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert "has another sha256 than index.json says" in refused(tmp_path)


def test_two_lines_of_the_index_that_are_swapped(tmp_path: Path) -> None:
    """Names and hashes agree with the files: what is in the file says that it is another model's."""
    two(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    one, other = index["entries"]
    for field in ("name", "sha256"):
        one[field], other[field] = other[field], one[field]
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert "is of another model than index.json says" in refused(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("class_name", "a.B", "is of another model"),
        ("origin", {"name": "x", "origin": "y", "sha256": None}, "is of another model"),
        ("sha256", "0" * 64, "has another sha256"),
        ("status", "unverified", "is not a valid index"),
        ("points", "many", "is not a valid index"),
        ("colour", "red", "is not a valid index"),
    ],
)
def test_an_index_that_was_edited(tmp_path: Path, field: str, value: object, said: str) -> None:
    made.atlas(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    index["entries"][0][field] = value
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert said in refused(tmp_path)


def test_the_files_of_the_package_are_of_their_schemas() -> None:
    index = json.loads((PACKAGED / INDEX).read_text(encoding="utf-8"))
    Draft202012Validator(schema("atlas_index")).validate(index)
    first = PACKAGED / f"{index['entries'][0]['name']}.zip"
    with zipfile.ZipFile(first) as archive:
        for file, name in ((FACTS, "atlas_facts"), (HELD, "atlas_held"), (MODEL, "model_analysis")):
            Draft202012Validator(schema(name)).validate(json.loads(archive.read(file)))


def test_a_missing_file(tmp_path: Path) -> None:
    made.atlas(tmp_path)
    (tmp_path / "org--Tiny.zip").unlink()
    assert "cannot be read" in refused(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"entries": 3}', b"\xff\xfe", b'{"entries": [{}]}'])
def test_a_broken_index(tmp_path: Path, content: bytes) -> None:
    (tmp_path / INDEX).write_bytes(content)
    assert "index.json is not a valid index" in refused(tmp_path)


def with_content(folder: Path, content: bytes) -> None:
    """The entry's file replaced, and the index changed so that its sha256 agrees."""
    made.atlas(folder)
    (folder / "org--Tiny.zip").write_bytes(content)
    index = json.loads((folder / INDEX).read_text())
    index["entries"][0]["sha256"] = sha256_of(content)
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all", packed({})])
def test_no_entry_where_one_should_be(tmp_path: Path, content: bytes) -> None:
    with_content(tmp_path, content)
    assert "org--Tiny.zip" in refused(tmp_path)


@pytest.mark.parametrize("part", [b"", b"{}", b"[1, 2", b"null", b'{"class_name": "a.B"}', b"[" * 100_000])
def test_a_part_that_is_no_record(tmp_path: Path, part: bytes) -> None:
    with_content(tmp_path, packed({MODEL: part}))
    assert f"has no valid {MODEL}" in refused(tmp_path)


def test_a_part_that_is_too_large_is_not_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmp.atlas.archive.MOST_BYTES", 10)
    made.atlas(tmp_path)
    assert f"has no valid {MODEL}" in refused(tmp_path)


def test_a_zip_whose_compression_is_broken(tmp_path: Path) -> None:
    content = bytearray(packed({MODEL: b"{" + b" " * 5000 + b"}"}))
    content[60:75] = b"\x00" * 15
    assert zipfile.ZIP_LZMA == 14
    with_content(tmp_path, bytes(content))
    refused(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".hidden", "a/b", "", "a\nb"])
def test_an_index_that_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    made.atlas(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    index["entries"][0]["name"] = name
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert "names an entry" in refused(tmp_path)


def test_a_removed_entry_leaves_its_reason(tmp_path: Path) -> None:
    found = made.atlas(tmp_path)
    found.leave_out("org--Tiny", "org/Tiny", "unverified: no point")
    again = Atlas(tmp_path)
    assert (again.index.entries, again.index.left_out) == ([], {"org/Tiny": "unverified: no point"})
    assert not (tmp_path / "org--Tiny.zip").exists()
    made.atlas(tmp_path)
    assert Atlas(tmp_path).index.left_out == {}


def test_peaks_between_stored_ones() -> None:
    peaks = made.held().live[0].peaks
    sizes = {tokens: found.bytes if (found := between(peaks, tokens)) else None for tokens in range(1, 10)}
    # 100 bytes a token up to 4 tokens; from (4, 400) to (8, 1600) 300 a token; nothing is known beyond 8.
    assert sizes == {1: 100, 2: 200, 3: 300, 4: 400, 5: 700, 6: 1000, 7: 1300, 8: 1600, 9: None}


def test_what_is_held_says_where_the_atlas_ends() -> None:
    held = read(made.held())
    assert held.weights[0].bytes == 8 * 8 * 2
    assert held.live(9, {}) == "the atlas has no run with 9 tokens"
    assert held.live(1, {"intermediate_size": 3}) == "the atlas has no run with these sizes"
