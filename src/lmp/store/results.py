"""The results folder: one folder per class and config.

RESULTS/<class>/module_analysis.json             at the class's default config
RESULTS/<class>/module_analysis.json.<suffix>    a former file: not valid, or of the engine that the suffix names
RESULTS/<class>/model_analysis.json              the model: the class with everything that it calls in place
RESULTS/<class>/draft.json, findings.json        the last draft that was refused, until one is accepted
RESULTS/<class>@<config>/module_analysis.json    at another config, or of a call of a class of PyTorch (call-<hash>)
RESULTS/.locks/                                  one lock per folder above, held while it is written
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.errors import InvalidAnalysis, StorageError, UsageError
from lmp.store.files import remove_left_behind, storage_errors, write_whole

if TYPE_CHECKING:
    from lmp.records import HandIn, ModelAnalysis, ModuleAnalysis

FILE_NAME = "module_analysis.json"
MODEL_FILE_NAME = "model_analysis.json"
INVALID_SUFFIX = ".invalid"
DRAFT, FINDINGS = "draft.json", "findings.json"
LOCKS = ".locks"
DEFAULT = "default"

_CLASS_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
WIDTH = 120
"""Longest line of a result file, if its parts allow it."""

_MAX_NAME = 240
"""Longest name of a folder, in bytes. File systems allow 255, and the lock's name is a little longer."""


def config_name(config_file: Path | None = None, model_id: str | None = None) -> str:
    """The name that results of a config are stored under: the file's stem, or the id with ``/`` written ``--``."""
    if config_file is None and model_id is None:
        return DEFAULT
    name = config_file.stem if config_file is not None else str(model_id).replace("/", "--")
    if not name or name == DEFAULT:
        raise UsageError(
            f"a config named {name!r} cannot be distinguished from the class's own defaults\n"
            "give the config file another name: results are stored under it"
        )
    return name


def to_data(analysis: ModuleAnalysis | ModelAnalysis) -> dict[str, Any]:
    """The analysis as JSON data, in the order of the record's fields.

    Optional fields that are None are left out, and fields that the record excludes from files. Fields of a kernel are
    left out if they have their default.
    """
    from lmp.records import Operand, Operands, Record, Step

    def plain(value: Any) -> Any:
        if isinstance(value, Record):
            fields = type(value).model_fields
            return {
                name: plain(item)
                for name, field in fields.items()
                if (item := getattr(value, name)) is not None or field.is_required()
                if not field.exclude
                if field.is_required()
                or not isinstance(value, (Step, Operand, Operands))
                or item != field.get_default(call_default_factory=True)
            }
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    data: dict[str, Any] = plain(analysis)
    return data


def to_text(analysis: ModuleAnalysis | ModelAnalysis) -> str:
    return _text(to_data(analysis))


def _text(data: dict[str, Any]) -> str:
    return _layout(data, "") + "\n"


def _layout(value: Any, indent: str) -> str:
    """JSON with each part on one line that is short enough: a shape, an operand, a pair of formulas."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or len(indent) + len(flat) <= WIDTH:
        return flat
    inner = f"{indent}  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_layout(item, inner)}" for key, item in value.items()]
    else:
        parts = [_layout(item, inner) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}{last}"


@dataclass(frozen=True)
class _Kind:
    """A kind of result file."""

    file_name: str
    record_name: str
    what: str
    redo: str
    """The command that makes the file again; ``{}`` stands for the class."""

    @property
    def record(self) -> Any:
        import lmp.records

        return getattr(lmp.records, self.record_name)


_MODULE = _Kind(FILE_NAME, "ModuleAnalysis", "analysis", "lmp analyze-module {} --fresh")
_MODEL = _Kind(MODEL_FILE_NAME, "ModelAnalysis", "model analysis", "lmp expand {} --fresh")


class Store:
    """The results below one folder. The folder is created when the first result is saved."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.kept: list[Path] = []
        """Former files of other engines that `save` kept beside the new ones, the newest last."""

    def folder(self, class_path: str, config: str = DEFAULT) -> Path:
        """The folder of a class's results. Raises UsageError or StorageError for a name that leads out of ``root``."""
        if not _CLASS_PATH.fullmatch(class_path):
            raise UsageError(
                f"{class_path!r} is not a class path\n"
                "give dotted names only, as in transformers.models.llama.modeling_llama.LlamaMLP"
            )
        name = class_path if config == DEFAULT else f"{class_path}@{_as_file_name(config)}"
        if len(name.encode()) > _MAX_NAME:
            raise UsageError(f"{name[:60]}... is too long for the name of a folder\nuse a shorter class path or config")
        folder = self.root / name
        if not folder.resolve().is_relative_to(self.root.resolve()):
            raise StorageError(
                f"{folder} is a link that leads out of the results folder, to {folder.resolve()}\nremove the link"
            )
        return folder

    def file(self, class_path: str, config: str = DEFAULT) -> Path:
        return self.folder(class_path, config) / FILE_NAME

    def model_file(self, class_path: str, config: str = DEFAULT) -> Path:
        return self.folder(class_path, config) / MODEL_FILE_NAME

    def classes(self, config: str = DEFAULT) -> list[str]:
        """The classes that have results at a config, sorted."""
        end = "" if config == DEFAULT else f"@{_as_file_name(config)}"
        with storage_errors(self.root):
            names = [p.name.removesuffix(end) for p in self.root.glob("*") if p.name.endswith(end) and p.is_dir()]
        return sorted(name for name in names if _CLASS_PATH.fullmatch(name))

    def load(self, class_path: str, config: str = DEFAULT) -> ModuleAnalysis | None:
        """The stored analysis; None if there is no file. Raises InvalidAnalysis for a file that is not valid."""
        found: ModuleAnalysis | None = self._load(_MODULE, class_path, config)
        return found

    def load_model(self, class_path: str, config: str = DEFAULT) -> ModelAnalysis | None:
        """The stored model of a class, as `load` gives its analysis."""
        found: ModelAnalysis | None = self._load(_MODEL, class_path, config)
        return found

    def save(self, analysis: ModuleAnalysis) -> Path:
        """Write an analysis to its place, whole or not at all; returns the file.

        A former file is kept beside it if it is not valid (suffix ``.invalid``), or if another engine than lmp's own
        made it (suffix: that engine's name).
        """
        return self._save(_MODULE, analysis)

    def save_model(self, model: ModelAnalysis) -> Path:
        """Write a model to its place, as `save` writes an analysis."""
        return self._save(_MODEL, model)

    def set_aside(self, analysis: ModuleAnalysis) -> Path:
        """Move a stored analysis beside its place, with the name of its engine after it; returns where it is now."""
        file = self.file(analysis.class_name, analysis.config.name)
        with storage_errors(file), self._locked(file.parent.name):
            aside = _keep(file, file.read_bytes(), _engine_suffix(analysis.engine))
            file.unlink()
        return aside

    def file_hash(self, class_path: str, config: str = DEFAULT) -> str | None:
        """sha256 of the bytes of a stored analysis, valid or not; None if there is no file."""
        from lmp.source.trees import sha256_of

        content = self._read(self.file(class_path, config))
        return None if content is None else sha256_of(content)

    def keep_draft(self, hand_in: HandIn, draft: object, config: str = DEFAULT) -> Path:
        """Write a refused draft and its findings beside the place of the result; returns the draft's file."""
        folder = self.folder(hand_in.class_name, config)
        file = folder / DRAFT
        with storage_errors(file), self._locked(folder.name):
            # As ASCII: a draft may hold characters that are not valid Unicode.
            write_whole(file, json.dumps(draft, indent=2, default=str) + "\n")
            findings = hand_in.model_dump(mode="json", exclude_none=True)
            write_whole(folder / FINDINGS, json.dumps(findings, indent=2) + "\n")
        return file

    def drop_draft(self, class_path: str, config: str = DEFAULT) -> None:
        """Remove the refused draft and its findings, after another one was accepted."""
        folder = self.folder(class_path, config)
        with storage_errors(folder):
            for name in (DRAFT, FINDINGS):
                (folder / name).unlink(missing_ok=True)

    def _load(self, kind: _Kind, class_path: str, config: str) -> Any:
        file = self.folder(class_path, config) / kind.file_name
        data = self._read(file)
        return None if data is None else _checked(kind, file, data, class_path, config)

    def _save(self, kind: _Kind, analysis: ModuleAnalysis | ModelAnalysis) -> Path:
        from lmp.store.schemas import problem

        class_path, config = analysis.class_name, analysis.config.name
        file = self.folder(class_path, config) / kind.file_name
        data = to_data(analysis)
        wrong = problem(kind.record, data)
        if wrong is not None:
            raise InvalidAnalysis(f"the {kind.what} of {class_path} is not valid and was not stored: {wrong}")
        text = _text(data)
        with storage_errors(file), self._locked(file.parent.name):
            remove_left_behind(file)
            old = self._read(file)
            if old == text.encode():
                return file
            if old is not None:
                _keep_if_invalid(kind, file, old, class_path, config)
                self.kept += _keep_if_of_others(file, old, analysis.engine)
            write_whole(file, text)
        return file

    def _read(self, file: Path) -> bytes | None:
        with storage_errors(file):
            if self.root.exists() and not self.root.is_dir():
                raise StorageError(f"{self.root} is a file, not a folder\ngive another folder with `--results`")
            try:
                return file.read_bytes()
            except FileNotFoundError:
                return None

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        from filelock import FileLock, Timeout

        locks = self.root / LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(locks / f"{name}.lock", timeout=60):
                yield
        except Timeout as error:
            raise StorageError(
                f"another lmp has been writing {self.root / name} for a minute\nwait for it to end, and run again"
            ) from error


def strict_json(content: bytes) -> Any:
    """The JSON value in some bytes. Raises ValueError for NaN, for a duplicate name and for anything that is not JSON,
    RecursionError for a value that is nested too deeply."""
    return json.loads(content.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)


def read_result(file: Path) -> ModuleAnalysis | ModelAnalysis:
    """The analysis or model in any file, inside or outside of a results folder.

    Raises UsageError for a file that cannot be read, InvalidAnalysis for one that is not valid.
    """
    give = f"give a {FILE_NAME} or {MODEL_FILE_NAME}, or a folder that holds one"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}\n{give}") from error
    data = None
    with contextlib.suppress(ValueError, RecursionError):  # refused below, with the reason
        data = json.loads(content)
    if isinstance(data, dict) and "schema_version" not in data:
        raise InvalidAnalysis(f"{file} is not an analysis: it has no schema_version\n{give}")
    is_model = isinstance(data, dict) and "totals" in data
    found: ModuleAnalysis | ModelAnalysis = _checked(_MODEL if is_model else _MODULE, file, content)
    return found


def _checked(kind: _Kind, file: Path, content: bytes, class_path: str | None = None, config: str | None = None) -> Any:
    """The analysis or model in a file's bytes. Raises InvalidAnalysis, also for another class or config."""
    from lmp.records import SCHEMA_VERSION
    from lmp.store.schemas import problem

    command = kind.redo.format(class_path or "CLASS")
    redo = f"run `{command}` to make it again"
    redo += f" (the file is kept as {kind.file_name}.invalid)" if class_path is not None else ""
    a = f"{'an' if kind.what[0] in 'aeiou' else 'a'} {kind.what}"

    def invalid(what: str, then: str = redo) -> InvalidAnalysis:
        return InvalidAnalysis(f"{file} {what}\n{then}")

    try:
        data = strict_json(content)
    except (ValueError, RecursionError) as error:
        raise invalid(f"is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise invalid(f"is not {a}: it does not hold a JSON object")
    version = data.get("schema_version")
    if isinstance(version, int) and version != SCHEMA_VERSION:
        if version > SCHEMA_VERSION:
            newer = f"install the newer lmp, or {redo}"
            raise invalid(
                f"was written by a newer lmp: schema version {version}, this one reads {SCHEMA_VERSION}", newer
            )
        raise invalid(f"was written by an older lmp: schema version {version}, this one reads {SCHEMA_VERSION}")
    wrong = "schema_version: missing" if version is None else problem(kind.record, data)
    if wrong is not None:
        raise invalid(f"is not a valid {kind.what}: {wrong}")
    analysis = kind.record.model_validate(data)
    if class_path is not None and analysis.class_name != class_path:
        raise invalid(f"is {a} of another class: {analysis.class_name}")
    if config is not None and analysis.config.name != config:
        raise invalid(f"is {a} at another config: {analysis.config.name}")
    return analysis


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    return found


def _keep_if_invalid(kind: _Kind, file: Path, old: bytes, class_path: str, config: str) -> None:
    """Keep a file that is not a valid analysis: its owner may still need it."""
    try:
        _checked(kind, file, old, class_path, config)
    except InvalidAnalysis:
        _keep(file, old, INVALID_SUFFIX)


def _keep_if_of_others(file: Path, old: bytes, engine: str) -> list[Path]:
    """Keep a file of another engine: lmp cannot make it again. Returns the kept files."""
    from lmp.records import OWN_ENGINE

    data: Any = None
    with contextlib.suppress(ValueError, RecursionError):  # kept already, as one that is not valid
        data = json.loads(old)
    before = data.get("engine") if isinstance(data, dict) else None
    if isinstance(before, str) and before not in (OWN_ENGINE, engine):
        return [_keep(file, old, _engine_suffix(before))]
    return []


def _engine_suffix(engine: str) -> str:
    """The suffix of a kept file that an engine made."""
    return f".{_as_file_name(engine)}"[:40]


def _keep(file: Path, old: bytes, suffix: str) -> Path:
    number = 1
    while True:
        aside = file.with_name(f"{file.name}{suffix}{'' if number == 1 else f'.{number}'}")
        if not aside.exists():
            write_whole(aside, old)
            return aside
        if aside.read_bytes() == old:
            return aside
        number += 1


def _as_file_name(config: str) -> str:
    """The config's name as part of a folder's name: other characters are written %XX, so that no two names collide."""
    if not config:
        raise UsageError("a config needs a name: results are stored under it")
    return re.sub(r"[^\w.+-]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), config)
