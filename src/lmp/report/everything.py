"""``lmp report --all``: a report on everything in the store, and an index of what there is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lmp.errors import InvalidAnalysis, LmpError, NotFound, StorageError, UsageError
from lmp.pipeline.module import Options, Progress
from lmp.records import DEFAULT_CONFIG, ModelAnalysis
from lmp.report.devices import Device
from lmp.report.document.markdown import to_markdown
from lmp.report.folder import write_changed
from lmp.report.index import Found, Listed, Stored, index
from lmp.store.files import storage_errors, write_whole
from lmp.store.fingerprint import sources_fingerprint
from lmp.store.results import FILE_NAME, MODEL_FILE_NAME, read_result

INDEX = "index.md"
STATE = ".lmp-state.json"
MADE_BY = ("report", "pipeline", "expand", "formula", "flops.py", "records.py")
"""lmp's own sources that decide what a report says."""


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
                    kind[folder.name] = Stored(read_result(file), file)
                except LmpError as error:
                    unreadable[folder.name] = str(error).splitlines()[0]
    return _sorted_out(models, modules, unreadable)


def _sorted_out(models: dict[str, Stored], modules: dict[str, Stored], unreadable: dict[str, str]) -> Found:
    covered: dict[str, str] = {}
    for model in models.values():
        assert isinstance(model.analysis, ModelAnalysis)
        for part in model.analysis.parts:
            for name in (part, f"{part}@{model.analysis.config.name}"):
                if name in modules and name != model.name and _is_of(modules[name], model):
                    covered.setdefault(name, model.name)
    inside = {name for name in covered if name in models}
    roots = [stored for name, stored in models.items() if name not in inside]
    roots += [stored for name, stored in modules.items() if name not in covered and name not in models]
    return Found(tuple(sorted(roots, key=lambda stored: stored.name)), dict(sorted(covered.items())), unreadable)


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
        made_from = _made_from(stored, device, html)
        one = Listed(stored)
        listed.append(one)
        one.report = state.unchanged(stored.name, made_from)
        if one.report is None:
            _make(one, folder, options, progress, device, html)
            if one.report is not None:
                state.remember(stored.name, made_from, one.report)
                state.save()  # what is done is done, whatever comes next
    with storage_errors(folder, "--reports"):
        write_changed(folder / INDEX, to_markdown(index(folder, listed, found)).encode())
    return listed


def _make(one: Listed, folder: Path, options: Options, progress: Progress, device: Device, html: bool) -> None:
    from lmp.report.gathering import gather
    from lmp.report.model import write_model_report, write_page

    try:
        facts = gather(one.stored.analysis.class_name, _options_of(one.stored, options), progress, device)
        written = write_model_report(folder, facts)
        is_new = html and write_page(folder, facts)[1]
    except (UsageError, NotFound, InvalidAnalysis) as error:
        if isinstance(error, StorageError):
            raise
        one.why_not = str(error).splitlines()[0]
        return
    one.report, one.changed = written.file.relative_to(folder).as_posix(), bool(written.changed) or is_new
    one.notes = written.notes


def _options_of(stored: Stored, options: Options) -> Options:
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


def _made_from(stored: Stored, device: Device, html: bool) -> str:
    """Changes when the report would."""
    from lmp.source.trees import sha256_of

    parts = [sha256_of(stored.file.read_bytes()), sources_fingerprint(MADE_BY), device.name, f"html={html}"]
    return sha256_of("\n".join(parts).encode())


class _State:
    """What the reports in a folder were made from, so that unchanged ones are not made again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / STATE
        self._known: dict[str, dict[str, str]] = {}
        try:
            content = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return  # it says nothing that cannot be worked out: everything is made again
        if isinstance(content, dict) and all(isinstance(entry, dict) for entry in content.values()):
            self._known = content

    def unchanged(self, name: str, made_from: str) -> str | None:
        """The report's file, if it is there as it was written and would be made from the same."""
        entry = self._known.get(name, {})
        report = str(entry.get("report"))
        if entry.get("made_from") != made_from or entry.get("sha256") != self._hash(report):
            return None
        return report

    def remember(self, name: str, made_from: str, report: str) -> None:
        self._known[name] = {"made_from": made_from, "report": report, "sha256": self._hash(report) or ""}

    def save(self) -> None:
        with storage_errors(self._folder, "--reports"):
            write_whole(self._file, json.dumps(self._known, indent=1, sort_keys=True) + "\n")

    def _hash(self, report: str) -> str | None:
        from lmp.source.trees import sha256_of

        file = self._folder / report
        return sha256_of(file.read_bytes()) if file.is_file() else None
