"""Where a config comes from: a file, the cache, a hub on this machine, the catalogue. And which class it is of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import COMMIT, Hub, loopback_hub
from synthetic import MakeTrees

from lmp.errors import LmpError, NotFound, UsageError
from lmp.source import hub as hub_module
from lmp.source.configs import class_of, resolve_config

LLAMA_8B = "meta-llama/Meta-Llama-3.1-8B"
CONFIG = b'{"architectures": ["TinyForCausalLM"], "model_type": "tiny", "hidden_size": 8}'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache, and no network."""
    from huggingface_hub import constants

    folder = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(hub_module, "_ASKED_OFFLINE", True)
    return folder


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that answers, and a token that nobody may see."""
    monkeypatch.setattr(hub_module, "_ASKED_OFFLINE", False)
    with loopback_hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.setenv("HF_TOKEN", "hf_not_to_be_sent")
        yield found
        assert found.tokens == []


def message(error: type[LmpError] = UsageError, **asked: object) -> str:
    with pytest.raises(error) as caught:
        resolve_config(**asked)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 2
    return str(caught.value)


def put_in_cache(cache: Path, model_id: str, content: bytes) -> None:
    folder = cache / f"models--{model_id.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "config.json").write_bytes(content)


# --- files -----------------------------------------------------------------------------------------------------------


def test_nothing_asked_is_nothing_found() -> None:
    assert resolve_config() is None


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(CONFIG)
    found = resolve_config(file)
    assert found is not None
    assert found.content["hidden_size"] == 8
    assert found.architectures == ("TinyForCausalLM",)
    assert (found.origin, found.file, found.model_id) == ("mine.json", file, None)
    assert found.sha256 == hashlib.sha256(CONFIG).hexdigest()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "does not hold a JSON object"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 10**5, "is not"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    assert why in message(config_file=file)


def test_a_file_that_is_too_large_or_not_there(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    assert "cannot be read" in message(config_file=file)
    file.write_bytes(b" " * (hub_module.MAX_BYTES + 1))
    assert "which is not a config" in message(config_file=file)


def test_a_file_and_an_id() -> None:
    assert "two configs are given" in message(config_file=Path("a.json"), model_id=LLAMA_8B)


# --- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model_id",
    ["gpt2", "../etc/passwd", "/etc/passwd", "a/b/c", "a/..", "a/b..c", "a b/c", "a/", "", "a--b/c", "a/" + "b" * 95,
     "https://huggingface.co/a/b", "a/b\n"],
)  # fmt: skip
def test_what_is_no_id(cache: Path, model_id: str) -> None:
    with pytest.raises(UsageError, match="is not a model id"):
        resolve_config(model_id=model_id)


def test_a_name_without_its_organisation_is_looked_for_in_the_catalogue() -> None:
    assert message(model_id="gpt-oss-20b").endswith("did you mean openai/gpt-oss-20b or openai/gpt-oss-120b?")


def test_the_cache_comes_first(cache: Path, hub: Hub) -> None:
    put_in_cache(cache, LLAMA_8B, CONFIG)
    found = resolve_config(model_id=LLAMA_8B)
    assert found is not None
    assert (found.origin, found.model_id) == ("Hugging Face cache", LLAMA_8B)
    assert found.sha256 == hashlib.sha256(CONFIG).hexdigest()
    assert hub.asked == []


def test_junk_in_the_cache(cache: Path) -> None:
    put_in_cache(cache, LLAMA_8B, b"<html>")
    assert "is not JSON" in message(model_id=LLAMA_8B)


def test_the_hub_comes_second_and_fills_the_cache(cache: Path, hub: Hub) -> None:
    hub.files["org/tiny"] = CONFIG
    found = resolve_config(model_id="org/tiny")
    assert found is not None
    assert (found.origin, found.content["hidden_size"]) == ("Hugging Face hub", 8)
    assert {line.partition(" ")[2] for line in hub.asked} == {"/org/tiny/resolve/main/config.json"}
    hub.asked.clear()
    again = resolve_config(model_id="org/tiny")
    assert again is not None
    assert again.origin == "Hugging Face cache"
    assert again.sha256 == found.sha256
    assert hub.asked == []


def test_the_catalogue_comes_last(cache: Path, hub: Hub) -> None:
    hub.refused[LLAMA_8B.lower()] = (401, "GatedRepo")
    found = resolve_config(model_id=LLAMA_8B.lower())
    assert found is not None
    assert hub.asked
    assert found.model_id == LLAMA_8B
    assert found.origin == "lmp's catalogue, source: ai-dynamo/aiconfigurator, 2026-08-21"
    assert found.content["intermediate_size"] == 14336


def test_what_is_put_into_a_config_is_not_put_into_the_catalogue(cache: Path, hub: Hub) -> None:
    """transformers puts `rope_theta` into the `rope_scaling` that it is given."""
    first = resolve_config(None, "meta-llama/Meta-Llama-3.1-8B")
    assert first is not None
    first.content["rope_scaling"]["rope_theta"] = 1.0
    again = resolve_config(None, "meta-llama/Meta-Llama-3.1-8B")
    assert again is not None
    assert (again.sha256, "rope_theta" in again.content["rope_scaling"]) == (first.sha256, False)


def test_without_a_network_the_catalogue_answers(cache: Path) -> None:
    found = resolve_config(model_id="openai/gpt-oss-20b")
    assert found is not None
    assert found.origin.startswith("lmp's catalogue")
    why = message(NotFound, model_id="openai/gpt-oss-21b")
    assert "the hub: not asked, because HF_HUB_OFFLINE is set" in why
    assert "give a config.json with --config FILE" in why
    assert why.splitlines()[1].startswith("did you mean openai/gpt-oss-20b or openai/gpt-oss-120b? else ")


@pytest.mark.parametrize(
    ("status", "code", "why", "then"),
    [
        (401, "GatedRepo", "the hub: it is gated", "run `hf download org/x config.json`"),
        (403, "GatedRepo", "the hub: it is gated", "log in as someone with access"),
        (403, "", "the hub: access is refused (403)", "log in as someone with access"),
        (401, "RepoNotFound", "the hub: it is not there, or not public", "check the id"),
        (404, "RepoNotFound", "the hub: it is not there, or not public", "check the id"),
        (404, "EntryNotFound", "the hub: it has no config.json", "check the id"),
        (500, "", "answered 500", "give a config.json with --config FILE"),
    ],
)
def test_what_the_hub_refuses(hub: Hub, status: int, code: str, why: str, then: str) -> None:
    hub.refused["org/x"] = (status, code)
    first, second = message(NotFound, model_id="org/x").splitlines()
    assert why in first
    assert then in second


def test_a_hub_that_sends_no_config(hub: Hub) -> None:
    hub.files["org/html"] = b"<html>"
    assert "is not JSON" in message(model_id="org/html")
    hub.files["org/huge"] = b" " * (hub_module.MAX_BYTES + 1)
    # 4 * 2^20 + 1
    assert "its config.json has 4,194,305 bytes, which is not a config" in message(NotFound, model_id="org/huge")


def test_a_hub_that_does_not_answer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TOTAL_SECONDS", 1)
    hub.silent.add("org/slow")
    assert "the hub: no answer within 1 seconds" in message(NotFound, model_id="org/slow")


def test_no_hub_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "_ASKED_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the port of a service that is switched off everywhere
    assert "the hub: 127.0.0.1:9: " in message(NotFound, model_id="org/x")


# --- the class -------------------------------------------------------------------------------------------------------

TREE = {
    "models/tiny/modeling_tiny.py": "class TinyForCausalLM:\n    pass\n\n__all__ = ['TinyForCausalLM']\n",
    "models/tiny_v2/modeling_tiny_v2.py": "class TinyForCausalLM:\n    pass\n\n__all__ = ['TinyForCausalLM']\n",
    "models/other/modeling_other.py": "class OtherModel:\n    pass\n\n__all__ = ['OtherModel']\n",
    "models/auto/modeling_auto.py": "NAMES = [('tiny', 'TinyForCausalLM')]\n",
}


def test_the_class_of_a_config(make_trees: MakeTrees) -> None:
    trees = make_trees(TREE)
    content = json.loads(CONFIG)
    assert class_of(content, trees) == "transformers.models.tiny.modeling_tiny.TinyForCausalLM"
    # Two files offer this class; the model type says which is meant, with a hyphen for an underscore.
    assert class_of({**content, "model_type": "tiny-v2"}, trees).startswith("transformers.models.tiny_v2.")
    # A model type of its own for another model's classes.
    borrowed = {"architectures": ["OtherModel"], "model_type": "kimi"}
    assert class_of(borrowed, trees) == "transformers.models.other.modeling_other.OtherModel"
    assert class_of({"architectures": ["OtherModel"]}, trees) == "transformers.models.other.modeling_other.OtherModel"


@pytest.mark.parametrize("architectures", [None, [], "Llama", [3], ["not a name"], [None]])
def test_a_config_without_a_class(make_trees: MakeTrees, architectures: object) -> None:
    with pytest.raises(UsageError, match="architectures"):
        class_of({"architectures": architectures}, make_trees(TREE))


def test_an_unknown_architecture(make_trees: MakeTrees) -> None:
    trees = make_trees(TREE)
    with pytest.raises(NotFound) as caught:
        class_of({"architectures": ["TinyForCausalML"], "model_type": "tiny", "transformers_version": "9.9"}, trees)
    assert str(caught.value) == (
        "transformers 7.0.0 has no class TinyForCausalML, which the config names (model_type tiny)\n"
        "it was written by transformers 9.9: give a clone of transformers that has it with `--transformers DIR`; "
        "it has TinyForCausalLM"
    )
    assert [search.looked_for for search in caught.value.searched] == ["class TinyForCausalML"]
    with pytest.raises(NotFound, match="its code is in the checkpoint, and lmp does not run such code"):
        class_of({"architectures": ["Own"], "auto_map": {}}, trees)


@pytest.mark.parametrize("model_type", ["../../x", 3, None, "tiny.modeling", "no_such"])
def test_a_model_type_is_no_path(make_trees: MakeTrees, model_type: object) -> None:
    found = class_of({"architectures": ["OtherModel"], "model_type": model_type}, make_trees(TREE))
    assert found == "transformers.models.other.modeling_other.OtherModel"
