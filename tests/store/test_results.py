"""The results folder: what is written reads back, and what goes wrong loses nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import analyses
import pytest

from lmp.errors import InvalidAnalysis, StorageError, UsageError
from lmp.link.link import link
from lmp.records import ConfigOrigin, Finding, FindingKind, ModelAnalysis, ModuleAnalysis, Verification
from lmp.store import files
from lmp.store.results import Store, config_name, to_text

MLP = analyses.MLP


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def left_behind(store: Store) -> list[str]:
    """Everything but results and locks."""
    kept = {"module_analysis.json", "module_analysis.json.invalid"}
    return [p.name for p in store.root.rglob("*") if p.is_file() and p.name not in kept and p.suffix != ".lock"]


def spoil(store: Store, text: str) -> Path:
    file = store.save(analyses.mlp())
    file.write_text(text)
    return file


def changed(store: Store, **more: Any) -> Path:
    file = store.save(analyses.mlp())
    data = json.loads(file.read_text())
    data.update(more)
    file.write_text(json.dumps(data))
    return file


# --- writing and reading ---------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(store: Store) -> None:
    file = store.save(analyses.mlp())
    assert file == store.root / MLP / "module_analysis.json"
    assert store.load(MLP) == analyses.mlp()
    assert left_behind(store) == []


def test_nothing_stored_is_none_and_creates_nothing(store: Store) -> None:
    assert store.load(MLP) is None
    assert not store.root.exists()


def test_equal_content_is_equal_bytes(store: Store, tmp_path: Path) -> None:
    first = store.save(analyses.mlp()).read_bytes()
    other = Store(tmp_path / "other")
    other.save(analyses.linear())
    loaded = store.load(MLP)
    assert loaded is not None
    assert other.save(loaded).read_bytes() == first
    assert first.endswith(b"}\n")
    assert first.startswith(b'{\n  "schema_version": 1,\n  "class_name": "transformers.')


def test_defaults_of_kernels_are_left_out_and_required_nulls_stay(store: Store) -> None:
    finding = Finding(line=None, quantity="read", point="seq_len=1", claimed="1", counted="2")
    failed = Verification(status="failed", points=1, findings=[finding])
    data = json.loads(store.save(analyses.mlp(verification=failed)).read_text())
    basic = data["kernels"][1]
    assert not {"repeat", "causal", "file", "function", "path"} & basic.keys()
    assert "attn_implementation" not in data
    assert data["verification"]["findings"][0]["line"] is None
    assert data["assumptions"] == []
    assert store.load(MLP) == analyses.mlp(verification=failed)


def test_what_the_judge_says_for_code_alone_is_not_in_the_file(store: Store) -> None:
    finding = Finding(
        line=None,
        quantity="read",
        point="seq_len=1",
        claimed="1",
        counted="2",
        kind=FindingKind.total,
        operator="aten.f",
    )
    failed = Verification(status="failed", points=1, findings=[finding])
    data = json.loads(store.save(analyses.mlp(verification=failed)).read_text())
    assert {"kind", "operator"}.isdisjoint(data["verification"]["findings"][0])


def test_configs_are_kept_apart(store: Store) -> None:
    big = analyses.mlp(config=ConfigOrigin(name="big", origin="big.json"))
    assert store.save(big).parent.name == f"{MLP}@big"
    assert store.load(MLP) is None
    assert store.load(MLP, "big") == big


def test_config_names_are_made_safe_without_colliding(store: Store) -> None:
    assert store.folder(MLP, "a/b").name == f"{MLP}@a%2Fb"
    assert store.folder(MLP, "../..").name == f"{MLP}@..%2F.."
    assert store.folder(MLP, "a b") != store.folder(MLP, "a_b")


def test_config_name_is_the_stem_or_the_id() -> None:
    assert config_name() == "default"
    assert config_name(Path("configs/llama-8b.json")) == "llama-8b"
    assert config_name(model_id="meta-llama/Llama-3.1-8B") == "meta-llama--Llama-3.1-8B"
    with pytest.raises(UsageError, match="cannot be distinguished from the class's own defaults"):
        config_name(Path("default.json"))


@pytest.mark.parametrize("path", ["../../x", "a/b", "a..b", "", ".", "a.b ", "a.b\n", "1a", "/etc/passwd", "a\0b"])
def test_a_class_path_cannot_leave_the_folder(store: Store, path: str) -> None:
    with pytest.raises(UsageError, match="is not a class path"):
        store.folder(path)


def test_a_link_cannot_leave_the_folder(store: Store, tmp_path: Path) -> None:
    store.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (store.root / MLP).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is a link that leads out of the results folder"):
        store.save(analyses.mlp())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_name_too_long_for_a_folder(store: Store) -> None:
    with pytest.raises(UsageError, match="too long for the name of a folder"):
        store.folder("a." * 200 + "b")


# --- files that are not valid ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not valid JSON: Expecting value"),
        ('{"schema_version": 1, "class_na', "is not valid JSON: Unterminated string"),
        ("[]", "is not an analysis: it does not hold a JSON object"),
        ('{"schema_version": NaN}', "is not valid JSON: NaN is not a JSON number"),
        ('{"engine": 1, "engine": 2}', "is not valid JSON: 'engine' stands twice in one object"),
        ("{}", "is not a valid analysis: schema_version: missing"),
        ('{"schema_version": 0}', "was written by an older lmp: schema version 0, this one reads 1"),
        ('{"schema_version": 2}', "was written by a newer lmp: schema version 2, this one reads 1"),
        ('{"schema_version": "1"}', "is not a valid analysis: "),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_corrupt_file(store: Store, text: str, message: str) -> None:
    file = spoil(store, text)
    with pytest.raises(InvalidAnalysis) as caught:
        store.load(MLP)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{file} {message}")
    assert f"lmp analyze-module {MLP} --fresh" in second
    assert caught.value.exit_code == 4


def test_bytes_that_are_no_text(store: Store) -> None:
    file = store.save(analyses.mlp())
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidAnalysis, match="is not valid JSON"):
        store.load(MLP)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"engine": 5}, "engine: 5 is not of type 'string'"),
        ({"surprise": 1}, "the whole: Additional properties are not allowed ('surprise' was unexpected)"),
        ({"kernels": [{}]}, "kernels[0]: 'kernel_type' is a required property"),
        ({"class_name": analyses.LINEAR}, f"is an analysis of another class: {analyses.LINEAR}"),
        ({"config": {"name": "big", "origin": "big.json"}}, "is an analysis at another config: big"),
    ],
)
def test_a_file_against_the_schema(store: Store, more: dict[str, Any], message: str) -> None:
    changed(store, **more)
    with pytest.raises(InvalidAnalysis) as caught:
        store.load(MLP)
    assert message in str(caught.value).splitlines()[0]


def test_an_invalid_file_is_kept_when_it_is_replaced(store: Store) -> None:
    file = spoil(store, "my notes")
    store.save(analyses.mlp())
    assert store.load(MLP) == analyses.mlp()
    assert file.with_name("module_analysis.json.invalid").read_text() == "my notes"
    for text in ("other notes", "my notes"):
        file.write_text(text)
        store.save(analyses.mlp())
    assert sorted(p.name for p in file.parent.iterdir()) == [
        "module_analysis.json",
        "module_analysis.json.invalid",
        "module_analysis.json.invalid.2",
    ]


def test_a_valid_file_is_replaced_without_a_copy(store: Store) -> None:
    store.save(analyses.mlp())
    file = store.save(analyses.mlp(free_lines=[]))
    assert [p.name for p in file.parent.iterdir()] == ["module_analysis.json"]


def test_what_is_set_aside_is_moved_and_nothing_is_lost(store: Store) -> None:
    first, second = (analyses.mlp(engine="agent", dtype=dtype) for dtype in ("float16", "float32"))
    file = store.save(first)
    content = file.read_bytes()
    aside = store.set_aside(first)
    assert (aside.name, aside.read_bytes()) == ("module_analysis.json.agent", content)
    assert not file.exists()
    assert store.load(MLP) is None
    # Another one gets a name of its own, the same one does not.
    store.save(second)
    assert store.set_aside(second).name == "module_analysis.json.agent.2"
    store.save(first)
    assert store.set_aside(first) == aside
    assert aside.read_bytes() == content


def test_an_analysis_that_is_not_valid_is_not_stored(store: Store) -> None:
    wrong = analyses.mlp().model_copy(update={"engine": 5})
    with pytest.raises(InvalidAnalysis, match="is not valid and was not stored: engine: 5 is not of type 'string'"):
        store.save(wrong)
    assert not store.root.exists()


# --- disks and folders -----------------------------------------------------------------------------------------------


def no_space(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store.save(analyses.mlp())
    monkeypatch.setattr(files.os, call, no_space)
    with pytest.raises(StorageError) as caught:
        store.save(analyses.mlp(free_lines=[]))
    monkeypatch.undo()
    file = store.file(MLP)
    assert str(caught.value) == (
        f"the disk is full: {file} cannot be written\nfree some space and run again; what was stored is intact"
    )
    assert caught.value.exit_code == 2
    assert store.load(MLP) == analyses.mlp()
    assert left_behind(store) == []


def test_a_full_disk_leaves_no_empty_folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(StorageError):
        store.save(analyses.mlp())
    assert not (store.root / MLP).exists()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interrupt_while_writing(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    store.save(analyses.mlp())
    monkeypatch.setattr(files.os, call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.save(analyses.mlp(free_lines=[]))
    monkeypatch.undo()
    assert store.load(MLP) == analyses.mlp()
    assert left_behind(store) == []


def test_what_a_killed_writer_left_is_removed(store: Store) -> None:
    file = store.save(analyses.mlp())
    (file.parent / ".module_analysis.json.1234-abcd.tmp").write_text("half")
    store.save(analyses.mlp(free_lines=[]))
    assert left_behind(store) == []


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    store = Store(tmp_path / "results")
    for attempt in (lambda: store.load(MLP), lambda: store.save(analyses.mlp())):
        with pytest.raises(StorageError) as caught:
            attempt()
        assert str(caught.value) == (f"{store.root} is a file, not a folder\ngive another folder with `--results`")
    assert (tmp_path / "results").read_text() == "mine"


def test_a_folder_without_permission(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", denied)  # the tests may run as root, whom no permission stops
    with pytest.raises(StorageError, match="Permission denied\ngive a folder that can be written with `--results`"):
        store.save(analyses.mlp())


# --- two processes ---------------------------------------------------------------------------------------------------


def save_often(root: Path, free_lines: list[int]) -> None:
    for _ in range(40):
        Store(root).save(analyses.mlp(free_lines=free_lines))


def test_two_processes_at_once(store: Store) -> None:
    store.save(analyses.mlp())
    context = multiprocessing.get_context("spawn")
    # Of very different lengths: a mixture of the two would not be JSON.
    versions = ([1], list(range(2000)))
    writers = [context.Process(target=save_often, args=(store.root, version)) for version in versions]
    for writer in writers:
        writer.start()
    seen: list[ModuleAnalysis | None] = []
    while any(writer.is_alive() for writer in writers):
        seen.append(store.load(MLP))
    assert [writer.exitcode for writer in writers] == [0, 0]
    allowed = [to_text(analyses.mlp(free_lines=lines)) for lines in ([176], *versions)]
    assert all(found is not None and to_text(found) in allowed for found in seen)
    assert left_behind(store) == []


# --- whole models ----------------------------------------------------------------------------------------------------


def model(**more: Any) -> ModelAnalysis:
    known = {a.class_name: a for a in (analyses.mlp(), analyses.linear())}
    return link(known[MLP], known.__getitem__).model_copy(update=more)


def test_a_model_stands_beside_the_analysis_of_its_class(store: Store) -> None:
    assert store.load_model(MLP) is None
    store.save(analyses.mlp())
    file = store.save_model(model())
    assert file == store.model_file(MLP) == store.root / MLP / "model_analysis.json"
    assert store.load_model(MLP) == model()
    assert store.load(MLP) == analyses.mlp()
    data = json.loads(file.read_text())
    assert data["kernels"][0]["kernels"][0]["flops"].startswith("2 * {batch_size}")
    assert not {"flops", "memory_access", "repeat"} & data["kernels"][0].keys()
    big = model(config=ConfigOrigin(name="big", origin="big.json"))
    assert store.save_model(big).parent.name == f"{MLP}@big"
    assert store.load_model(MLP, "big") == big


def test_equal_models_are_equal_bytes(store: Store, tmp_path: Path) -> None:
    first = store.save_model(model()).read_bytes()
    loaded = store.load_model(MLP)
    assert loaded is not None
    assert Store(tmp_path / "other").save_model(loaded).read_bytes() == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a model analysis: it does not hold a JSON object"),
        ('{"schema_version": 0}', "was written by an older lmp: schema version 0, this one reads 1"),
        ('{"schema_version": 1}', "is not a valid model analysis: "),
    ],
)
def test_a_corrupt_model(store: Store, text: str, message: str) -> None:
    file = store.save_model(model())
    file.write_text(text)
    with pytest.raises(InvalidAnalysis) as caught:
        store.load_model(MLP)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{file} {message}")
    assert f"lmp expand {MLP} --fresh" in second
    store.save_model(model())
    assert file.with_name("model_analysis.json.invalid").read_text() == text


def test_the_analysis_of_a_class_is_no_model(store: Store) -> None:
    store.model_file(MLP).parent.mkdir(parents=True)
    store.model_file(MLP).write_text(to_text(analyses.mlp()))
    with pytest.raises(InvalidAnalysis, match="is not a valid model analysis"):
        store.load_model(MLP)


def test_a_model_that_is_not_valid_is_not_stored(store: Store) -> None:
    with pytest.raises(InvalidAnalysis, match=r"the model analysis of .* is not valid and was not stored: engine"):
        store.save_model(model(engine=5))
    assert not store.root.exists()


def test_a_full_disk_keeps_the_model_that_was_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save_model(model())
    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(StorageError, match="the disk is full"):
        store.save_model(model(free_lines=[]))
    monkeypatch.undo()
    assert store.load_model(MLP) == model()


def test_the_hash_is_that_of_the_files_bytes(store: Store) -> None:
    assert store.file_hash(MLP) is None
    file = store.save(analyses.mlp())
    assert store.file_hash(MLP) == hashlib.sha256(file.read_bytes()).hexdigest() == model().parts[MLP].sha256
    file.write_bytes(b"\xff not even text")
    assert store.file_hash(MLP) == hashlib.sha256(b"\xff not even text").hexdigest()
