"""``lmp report --all``: a report on everything in the store, and an index of what there is."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lmp.analyze.session import Options, Progress
from lmp.errors import InvalidAnalysis, LmpError, NotFound, StorageError, UsageError
from lmp.records import DEFAULT_CONFIG, ModelAnalysis, ModuleAnalysis
from lmp.report.devices import Device
from lmp.report.document.markdown import to_markdown
from lmp.report.folder import APPENDIX_ENDING, ASSETS, narrative_name, write_changed
from lmp.report.index import Found, Listed, Stored, index
from lmp.store.files import storage_errors, write_whole
from lmp.store.fingerprint import sources_fingerprint
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME, Store, read_result

INDEX = "index.md"
STATE = ".lmp-state.json"


def found_in(results: Path) -> Found:
    """Everything in a results folder. A file that cannot be read is listed and stops nothing."""
    models: dict[str, Stored] = {}
    modules: dict[str, Stored] = {}
    unreadable: dict[str, str] = {}
    for folder in sorted(results.iterdir()) if results.is_dir() else ():
        for name, kind in ((MODEL_FILE_NAME, models), (FILE_NAME, modules)):
            file = folder / name
            if file.is_file():
                try:
                    kind[folder.name] = _stored(file)
                except LmpError as error:
                    unreadable[folder.name] = str(error).splitlines()[0]
    return _sorted_out(models, modules, unreadable)


def _stored(file: Path) -> Stored:
    """Raises InvalidAnalysis for a file that is no result, or is one that is kept in another folder."""
    found = Stored(read_result(file), file)
    config = found.analysis.config.name
    kept = Store(file.parent.parent).folder(found.analysis.class_name, config).name
    if kept != file.parent.name:
        raise InvalidAnalysis(f"it is of {found.analysis.class_name} at {config}, which is kept in {kept}/")
    return found


def _sorted_out(models: dict[str, Stored], modules: dict[str, Stored], unreadable: dict[str, str]) -> Found:
    covered: dict[str, str] = {}
    for model in models.values():
        assert isinstance(model.analysis, ModelAnalysis)
        for part in model.analysis.parts:
            for name in (part, f"{part}@{model.analysis.config.name}"):
                if name in modules and name != model.name and _is_of(modules[name], model):
                    covered.setdefault(name, model.name)
    alone = {name: stored for name, stored in modules.items() if name not in covered and name not in models}
    for name, owner in _called(alone, modules).items():
        covered.setdefault(name, owner)
    inside = {name for name in covered if name in models}
    roots = [stored for name, stored in models.items() if name not in inside]
    roots += [stored for name, stored in alone.items() if name not in covered]
    return Found(tuple(sorted(roots, key=lambda stored: stored.name)), dict(sorted(covered.items())), unreadable)


def _called(alone: Mapping[str, Stored], modules: Mapping[str, Stored]) -> dict[str, str]:
    """Of modules that no stored model has in it: what is called by another one -> the outermost that calls it."""
    calls = {name: list(_callees(stored, modules)) for name, stored in alone.items()}
    called = {name for names in calls.values() for name in names}
    found: dict[str, str] = {}
    for root in (name for name in alone if name not in called):
        waiting = list(calls[root])
        while waiting:
            name = waiting.pop()
            if name not in found and name != root:
                found[name] = root
                waiting += calls.get(name, [])
    return found


def _callees(stored: Stored, modules: Mapping[str, Stored]) -> Iterator[str]:
    """The results in the folder that a module's formulas refer to."""
    from lmp.analyze.session import references_of

    if not isinstance(stored.analysis, ModuleAnalysis):
        return
    try:
        references = references_of(stored.analysis)
    except LmpError:
        return  # making its report says what is wrong with it
    for called in references:
        for name in (called, f"{called}@{stored.analysis.config.name}"):
            if name in modules and _is_of(modules[name], stored):
                yield name


def _is_of(module: Stored, model: Stored) -> bool:
    """Whether the model was linked from this result: those of PyTorch are the same under any config."""
    same = module.analysis.config.name == model.analysis.config.name
    return same or module.analysis.class_name.startswith("torch.")


# --- making them -----------------------------------------------------------------------------------------------------


def report_all(folder: Path, options: Options, progress: Progress, device: Device, html: bool) -> list[Listed]:
    """Write a report on everything in the results folder, and the index; unchanged ones are left as they are.

    A result that no report can be made of is listed with the reason, and stops nothing.
    """
    found = found_in(options.results)
    state = _State(folder)
    listed = []
    for stored in found.roots:
        one = Listed(stored)
        listed.append(one)
        one.report = state.unchanged(stored.name, _made_from(stored, options, device, html))
        if one.report is None:
            _make(one, folder, options, progress, device, html)
            if one.report is not None:
                one.stored = _as_it_is_now(stored)
                made_from = _made_from(one.stored, options, device, html)
                state.remember(stored.name, made_from, one.report, html)
                state.save()  # what is done is done, whatever comes next
    with storage_errors(folder, "--reports"):
        write_changed(folder / INDEX, to_markdown(index(folder, listed, found)).encode())
    return listed


def _make(one: Listed, folder: Path, options: Options, progress: Progress, device: Device, html: bool) -> None:
    from lmp.report.gathering import gather
    from lmp.report.model import write_model_report, write_page

    try:
        facts = gather(one.stored.analysis.class_name, options_of(one.stored, options), progress, device)
        written = write_model_report(folder, facts)
        is_new = html and write_page(folder, facts)[1]
    except (UsageError, NotFound, InvalidAnalysis) as error:
        if isinstance(error, StorageError):
            raise
        one.why_not = str(error).splitlines()[0]
        return
    except Exception as error:  # a bug with one of them is no reason to leave the others out
        name = one.stored.analysis.class_name
        first = (str(error).splitlines() or [""])[0]
        one.why_not = f"{type(error).__name__}: {first}: this is a bug in lmp; `lmp report {name} --debug` shows where"
        return
    one.report, one.changed = written.file.relative_to(folder).as_posix(), bool(written.changed) or is_new
    one.notes = written.notes


def options_of(stored: Stored, options: Options) -> Options:
    """What has to be asked for to get this result again. Raises UsageError where its config is not to be had."""
    analysis, config = stored.analysis, stored.analysis.config
    attention = None if analysis.attn_requested == "sdpa" else analysis.attn_requested
    asked = replace(options, attention=attention, dtype=analysis.dtype, config_file=None, model_id=None)
    if config.name == DEFAULT_CONFIG.name:
        return asked
    wanted = replace(asked, model_id=config.name.replace("--", "/", 1)) if "--" in config.name else None
    if options.config_file is not None and options.config_file.stem == config.name:
        wanted = replace(asked, config_file=options.config_file)
    if wanted is None:
        raise UsageError(f"it is of the config {config.origin}: write it with --config FILE")
    found = wanted.found_config
    if found is None or found.sha256 != config.sha256:
        raise UsageError(f"it is of another config than {config.name} is now: {config.origin}")
    return wanted


def _as_it_is_now(stored: Stored) -> Stored:
    """What was linked or analysed again for the report."""
    file = stored.file.with_name(MODEL_FILE_NAME)
    return Stored(read_result(file), file) if file.is_file() else stored


def _made_from(stored: Stored, options: Options, device: Device, html: bool) -> str:
    """Changes when the report would: with the results, the sources that they are of, and lmp's own."""
    from lmp.source.trees import completed, find_trees, sha256_of

    analysis, store = stored.analysis, Store(stored.file.parent.parent)
    parts = [sha256_of(stored.file.read_bytes()), _own_sources(), device.name, f"html={html}"]
    trees = completed(find_trees(None, options.transformers, options.pytorch, [*options.paths] or [Path.cwd()]))
    parts += [f"{tree.name} {tree.version}" for tree in trees if tree not in trees.extra]
    files = {analysis.source.file}
    if isinstance(analysis, ModelAnalysis):
        files |= {part.file for part in analysis.parts.values() if part.file is not None}
        for name in analysis.parts:
            parts += [str(store.file_hash(name, config)) for config in (analysis.config.name, DEFAULT_CONFIG.name)]
    for file in sorted(files):
        path = trees.path_of(file)
        parts.append(f"{file} {sha256_of(path.read_bytes()) if path is not None else ''}")
    return sha256_of("\n".join(parts).encode())


@functools.cache
def _own_sources() -> str:
    """Of lmp itself, the files of its pages included."""
    from lmp.source.trees import sha256_of

    here = Path(__file__).parent
    folders = (here / "page" / "static", here / "implementation" / "templates")
    files = (file for folder in folders for file in sorted(folder.iterdir()) if file.is_file())
    pages = [sha256_of(file.read_bytes()) for file in files]
    return "\n".join((sources_fingerprint(("",)), *pages))


_PICTURE = re.compile(r"!\[[^\]]*\]\(\.\./assets/([^)\s]+)\)")


class _State:
    """What the reports in a folder were made from, so that unchanged ones are not made again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / STATE
        self._known: dict[str, dict[str, Any]] = {}
        try:
            content = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return  # it says nothing that cannot be worked out: everything is made again
        if isinstance(content, dict) and all(isinstance(entry, dict) for entry in content.values()):
            self._known = content

    def unchanged(self, name: str, made_from: str) -> str | None:
        """The report's file, if it and what belongs to it are as they were written, and would be made from the
        same."""
        entry = self._known.get(name, {})
        files = entry.get("files")
        if entry.get("made_from") != made_from or not isinstance(files, dict):
            return None
        if any(self._hash(str(file)) != sha for file, sha in files.items()):
            return None
        report = entry.get("report")
        return report if isinstance(report, str) else None

    def remember(self, name: str, made_from: str, report: str, html: bool) -> None:
        files = {file: self._hash(file) for file in self._belonging(report, html)}
        self._known[name] = {"made_from": made_from, "report": report, "files": files}

    def _belonging(self, report: str, html: bool) -> Iterator[str]:
        """The report, its page, its pictures, its numbers, and its narrative, which may not be there."""
        yield report
        if html:
            yield f"{report.removesuffix('.md')}.html"
        stem = Path(report).name.removesuffix("-analysis.md")
        appendix = f"{Path(report).parent.as_posix()}/{stem}{APPENDIX_ENDING}"
        yield from (appendix, f"{ASSETS}/{stem}-appendix-numbers.json")
        files = [self._folder / name for name in (report, appendix)]
        texts = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
        pictures = _PICTURE.findall(texts)
        yield from dict.fromkeys(f"{ASSETS}/{unquote(picture)}" for picture in pictures)
        yield from (f"{ASSETS}/{stem}-numbers.json", f"{ASSETS}/{narrative_name(stem)}")

    def save(self) -> None:
        with storage_errors(self._folder, "--reports"):
            write_whole(self._file, json.dumps(self._known, indent=1, sort_keys=True) + "\n")

    def _hash(self, report: str) -> str | None:
        from lmp.source.trees import sha256_of

        file = self._folder / report
        return sha256_of(file.read_bytes()) if file.is_file() else None
