"""The transcript's lines: there at once, numbered on, without secrets, harmless to show."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from agents_bench import DUMMY_KEY

from lmp.agents.transcript import MAX_TEXT, Transcript, shown
from lmp.errors import StorageError


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_a_line_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / "transcript.jsonl"
    with Transcript(path) as transcript:
        assert path.exists()
        transcript.write({"event": "text", "text": "hello"}, "a.B", "module-analyzer")
        (line,) = read(path)
    assert (line["number"], line["class"], line["stage"], line["text"]) == (1, "a.B", "module-analyzer", "hello")
    assert str(line["time"]).endswith("Z")
    assert datetime.fromisoformat(str(line["time"])).utcoffset() is not None


def test_a_transcript_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    with Transcript(path) as transcript:
        transcript.write({"event": "text"})
    with path.open("a") as file:
        file.write('{"number": 2, "cut off by a cra')
    with Transcript(path) as transcript:
        transcript.write({"event": "text"})
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    assert json.loads(lines[2])["number"] == 3


def test_no_credential_at_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    with Transcript(path) as transcript:
        transcript.write({"event": "tool", "input": {DUMMY_KEY: [f"x {DUMMY_KEY}", {"a": (DUMMY_KEY[-20:], 3, None)}]}})
    assert DUMMY_KEY[-12:] not in path.read_text()
    assert read(path)[0]["input"] == {"[redacted]": ["x [redacted]", {"a": ["[redacted]", 3, None]}]}


def test_long_texts_are_cut_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    with Transcript(path) as transcript:
        transcript.write({"event": "answer", "text": "x" * (MAX_TEXT + 7)})
    assert read(path)[0]["text"] == "x" * MAX_TEXT + "… (7 characters left out)"


def test_the_file_is_harmless_in_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    text = "\x1b[2J\x9b31m\u202eabc\r\x07 é"
    with Transcript(path) as transcript:
        transcript.write({"event": "text", "text": text})
    raw = path.read_bytes()
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in raw)
    assert read(path)[0]["text"] == text


def test_half_a_surrogate_pair_is_written(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    with Transcript(path) as transcript:
        transcript.write({"event": "text", "text": "\ud800"})
    assert read(path)[0]["text"] == "\ud800"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 漢字", "plain é 漢字"),
        ("two\nlines", "two\nlines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]8;;http://evil\x07", "\\x1b]8;;http://evil\\x07"),
        ("a\rb\x08c\x7f\x9b", "a\\rb\\x08c\\x7f\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\ud800", "\\ud800"),
    ],
)
def test_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        Transcript(tmp_path / "file" / "transcript.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_full_disk_is_said_when_it_is_closed_too(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "transcript.jsonl")
    transcript._file.close()
    transcript._file = Path("/dev/full").open("a", encoding="ascii")  # noqa: SIM115
    with pytest.raises(StorageError, match="the disk is full"):
        transcript.write({"event": "text", "text": "x"})
    with pytest.raises(StorageError, match="the disk is full"):
        transcript.close()
