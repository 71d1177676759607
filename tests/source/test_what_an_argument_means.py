"""What a name is: a class path, a model's id, a config.json, or a class in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.errors import LmpError, NotFound, UsageError
from lmp.source.subject import Subject, is_code_base, is_model_id, subject_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_model.py").write_text("")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.md").write_text("")
    (tmp_path / "Qwen").mkdir()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    (tmp_path / "odd.py").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch.nn.Linear", Subject(class_path="torch.nn.Linear")),
        ("Linear", Subject(class_path="Linear")),
        ("checkpoint", Subject(class_path="checkpoint")),  # a package of this name may be there
        ("org/name", Subject(model_id="org/name")),
        ("Qwen/Qwen3-8B", Subject(model_id="Qwen/Qwen3-8B")),  # in the catalogue, though there is a folder Qwen
        ("config.json", Subject(config=Path("config.json"))),
        ("checkpoint/config.json", Subject(config=Path("checkpoint/config.json"))),
        ("my_model.py", Subject(file=Path("my_model.py"))),
        ("my_model.py:Block", Subject(file=Path("my_model.py"), class_name="Block")),
        ("./my_model.py:Block", Subject(file=Path("my_model.py"), class_name="Block")),
        ("Qwen/../my_model.py", Subject(file=Path("Qwen/../my_model.py"))),
    ],
)
def test_kinds(text: str, expected: Subject) -> None:
    assert subject_of(text) == expected


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("my_mdel.py:Block", NotFound, "there is no file my_mdel.py\ndid you mean my_model.py?"),
        ("elsewhere.py", NotFound, "there is no file elsewhere.py\ngive a Python file"),
        ("confg.json", UsageError, "there is no file confg.json\ndid you mean config.json?"),
        ("Qwen/nothing", UsageError, "there is no file Qwen/nothing\ngive a config.json, a .py file, "),
        ("a/b/c", UsageError, "there is no file a/b/c\n"),
        ("notes.md", UsageError, "notes.md is neither a config.json nor a .py file\n"),
        ("odd.py", UsageError, "odd.py is a folder, not a Python file\n"),
        ("./checkpoint", UsageError, "checkpoint is a folder\ngive its config: checkpoint/config.json"),
        ("my_model.py:", UsageError, "'my_model.py:' ends before the class\nwrite it as in my_model.py:Block"),
        ("Qwen3-8B", UsageError, "'Qwen3-8B' is not a class path\ndid you mean Qwen/Qwen3-8B"),
        ("what is it", UsageError, "'what is it' is not a class path\ngive dotted names"),
    ],
)
def test_names_of_no_kind(text: str, error: type[LmpError], message: str) -> None:
    with pytest.raises(error) as caught:
        subject_of(text)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["", "a\0b", "-" * 5000, "a/b/" + "x" * 5000, "/", "~", ":", ".py:", "\n"])
def test_names_that_no_file_can_have(text: str) -> None:
    with pytest.raises(LmpError) as caught:
        subject_of(text)
    assert len(str(caught.value).splitlines()) <= 2


def test_a_hint_has_no_control_characters(folder: Path) -> None:
    (folder / "my_modl\x1b[2J.py").write_text("")
    with pytest.raises(NotFound) as caught:
        subject_of("my_modl.py")
    assert str(caught.value) == "there is no file my_modl.py\ndid you mean my_model.py?"


def test_a_path_is_no_model_id() -> None:
    assert is_model_id("org/name")
    assert not is_model_id("checkpoint/config.json")
    assert not is_model_id("Qwen/nothing")
    assert not is_model_id("./name")
    assert not is_model_id("torch.nn.Linear")


def test_a_code_base() -> None:
    assert is_code_base("checkpoint")
    assert is_code_base(".")
    assert is_code_base("some/where/else")
    assert not is_code_base("some/where/else.py:Block")
    assert not is_code_base("org/name")
    assert not is_code_base("config.json")
