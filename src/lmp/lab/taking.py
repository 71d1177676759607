"""Takes captures: each tool once or several times, its raw text redacted, its record with what a reader needs."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lmp.errors import Interrupted, UsageError
from lmp.lab import machine as m
from lmp.lab.config import CaptureRule, in_order
from lmp.lab.post import Post, line_sums, save, sha256
from lmp.lab.records import Capture, Status
from lmp.lab.redaction import Redactor, as_text, redactor
from lmp.lab.running import Limits, Ran, read_capped, run_tool

Progress = Callable[[str, str], None]
"""Called with a capture's id and what becomes of it."""

NOT_FOUND = 127
"""Exit code of shells, env and wrappers whose program is not there."""

_PERMISSION = re.compile(r"not permitted|permission denied|access denied", re.IGNORECASE)
_FAILURE = re.compile(r"\b(error|failed|failure|cannot|could not|not supported|no such)\b|Error:", re.IGNORECASE)
"""Signs of the line that says why a tool ended. Advice and a summary may stand below it."""

NO_GPU = "no GPU on this machine: nvidia-smi is missing or finds none"


@dataclass(frozen=True)
class Taking:
    """Where captures of one post are taken."""

    post: Post
    into: Path
    """Folder of the records."""
    build: Path
    """Scratch folder that all captures of the run share, and in which the tools run."""
    machine: m.Machine
    redactor: Redactor

    def placeholders(self, out: Path) -> dict[str, str]:
        return {
            "python": sys.executable,
            "workloads": str(self.post.workloads),
            "post": str(self.post.folder),
            "build": str(self.build),
            "out": str(out),
        }


def take(
    post: Post, into: Path, build: Path, only: Sequence[str] = (), progress: Progress | None = None
) -> list[Capture]:
    """Take the captures of a post, or those named with what they come after. Returns their records.

    Raises Interrupted on Ctrl-C. The captures taken before are whole, and the one that ran is not stored.
    """
    names = chosen(post, only)
    say = progress or (lambda name, what: None)
    build.mkdir(parents=True, exist_ok=True)
    taking = Taking(post, into, build, m.machine(), redactor(post.root, build))
    records = []
    for number, name in enumerate(names):
        try:
            rule = post.lab.capture[name]
            say(name, f"running, {rule.limit_s * rule.repeat:g} s at most")
            record, text = take_one(taking, name, rule)
            save(into, record, text)
            records.append(record)
        except KeyboardInterrupt:
            left = " ".join(f"--only {left}" for left in names[number:])
            where = "--replace" if into == post.captures else f"--out {into.parent}"
            raise Interrupted(
                f"interrupted in {name}: {number} of {len(names)} captures are whole in {into}\n"
                f"take the rest: `lmp lab run {post.folder} {left} {where}`"
            ) from None
        say(name, f"{record.status}{f': {record.message}' if record.message else ''}")
    return records


def chosen(post: Post, only: Sequence[str]) -> list[str]:
    """Ids of captures in the order in which they are taken."""
    rules = post.lab.capture
    unknown = [name for name in only if name not in rules]
    if unknown:
        raise UsageError(f"{unknown[0]} is no capture of {post.slug}\ncaptures are: {', '.join(rules)}")
    wanted = set(only or rules)
    ordered = in_order(dict(rules))
    for name in reversed(ordered):
        if name in wanted:
            wanted |= set(rules[name].after)
    return [name for name in ordered if name in wanted]


def take_one(taking: Taking, name: str, rule: CaptureRule) -> tuple[Capture, str]:
    """The record and the raw text of one capture. A tool that is missing or refuses gives a capture too."""
    hashes = taking.post.workload_hashes(rule.workloads)
    taking.redactor.counts.clear()
    before, start = m.load(), datetime.now(UTC)
    missing = what_is_missing(rule, taking)
    runs: list[_Run] = []
    if missing is None:
        for _ in range(rule.repeat):
            runs.append(_run_once(taking, rule))
            if runs[-1].status not in ("ok", "cut"):
                break
    status, message = _outcome(runs, missing)
    text = _joined([run.text for run in runs], rule.repeat)
    if text and not text.endswith("\n"):
        text += "\n"
    place = taking.placeholders(Path("<out>"))
    threads = rule.env.get("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", ""))
    argv = [taking.redactor.text(_filled(word, place)) for word in rule.argv]
    record = Capture(
        id=name,
        argv=argv,
        argv_template=rule.argv,
        env=rule.env,
        tool=rule.tool,
        tool_version=None if missing else _version(rule, taking),
        kernel=taking.machine.kernel,
        cpu=taking.machine.cpu,
        cpus=taking.machine.cpus,
        threads=int(threads) if threads.isdecimal() else taking.machine.cpus,
        memory=taking.machine.memory,
        gpu=taking.machine.gpu,
        date=start.strftime("%Y-%m-%dT%H:%M:%SZ"),
        load_before=before,
        load_after=m.load(),
        exit_code=runs[-1].ran.exit_code if runs else None,
        status=status,
        message=taking.redactor.text(message),
        seconds=round(sum(run.ran.seconds for run in runs), 3),
        repeat=len(runs),
        left_out=sum(run.left_out for run in runs),
        escaped=sum(run.escaped for run in runs),
        workload_sha256=hashes,
        redactions=dict(sorted(taking.redactor.counts.items())),
        output_sha256=sha256(text),
        line_sums=line_sums(text),
    )
    return record, text


def what_is_missing(rule: CaptureRule, taking: Taking) -> str | None:
    """What to install or to have before this capture can be taken; None if all is there."""
    if rule.needs == "gpu" and taking.machine.gpu is None:
        return NO_GPU
    program = _filled(rule.argv[0], taking.placeholders(Path("out")))
    if shutil.which(program, path=_path()) is None:
        if rule.argv[0].startswith("{build}"):
            return f"{rule.argv[0]} was not built; see the captures that it comes after: {', '.join(rule.after)}"
        return _install(rule.argv[0], rule)
    if rule.argv[0] == "{python}" and rule.argv[1:2] == ["-m"] and not _is_a_module(rule.argv[2:3]):
        return _install(rule.argv[2], rule)
    return None


def _install(what: str, rule: CaptureRule) -> str:
    package = f"; the package {rule.package} has it" if rule.package else ""
    return f"{what} is not installed{package}"


def _is_a_module(names: Sequence[str]) -> bool:
    return all(importlib.util.find_spec(name.partition(".")[0]) is not None for name in names)


def _path() -> str:
    """Programs of the running Python's environment are found without being on PATH."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _version(rule: CaptureRule, taking: Taking) -> str | None:
    if rule.tool == "python" and rule.version is None:
        return f"Python {platform.python_version()}"
    place = taking.placeholders(Path("out"))
    if rule.version is not None:
        asked = [_filled(word, place) for word in rule.version]
    elif shutil.which(rule.tool, path=_path()) is not None:
        asked = [rule.tool, "--version"]
    else:
        return _distribution(rule.tool)
    program = shutil.which(asked[0], path=_path())
    found = m.version_line([program, *asked[1:]]) if program else None
    return None if found is None else taking.redactor.text(as_text(found.encode())[0])


def _distribution(tool: str) -> str | None:
    from importlib import metadata

    try:
        return f"{tool} {metadata.version(tool.partition('.')[0])}"
    except metadata.PackageNotFoundError:
        return None


# --- one run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    ran: Ran
    text: str
    status: Status
    message: str
    left_out: int
    escaped: int


def _run_once(taking: Taking, rule: CaptureRule) -> _Run:
    uses_out = any("{out}" in word for word in rule.argv)
    budget = rule.max_bytes // rule.repeat
    with tempfile.TemporaryDirectory(prefix="out-", dir=taking.build) as scratch:
        out = Path(scratch) / "out"
        place = taking.placeholders(out)
        argv = [_filled(word, place) for word in rule.argv]
        env = {**os.environ, "PATH": _path(), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
        env |= {name: _filled(value, place) for name, value in rule.env.items()}
        limits = Limits(rule.limit_s, budget // 2 if uses_out else budget, watch=rule.others is not None)
        snapshots = {kind: m.snapshot(kind) for kind in rule.before}
        try:
            ran = run_tool(argv, env, taking.build, limits, out if uses_out else None)
        except OSError as error:
            return _Run(Ran(b"", 0, None, 0.0), "", "refused", f"{rule.argv[0]}: {error.strerror}", 0, 0)
        sections = [m.changes(kind, first, m.snapshot(kind)) for kind, first in snapshots.items()]
        written, left_out = b"", ran.left_out
        if uses_out and out.is_file():
            written, more = read_capped(out, budget - len(ran.output))
            left_out += more
        paths = {str(out): "<out>", scratch: "<out>"}
    _remember(taking.redactor, ran)
    printed, escaped = as_text(ran.output)
    if uses_out:
        file_text, also = as_text(written)
        printed = _ended(printed) + "@@out\n" + file_text
        escaped += also
    text = "".join([_ended(printed), *("\n".join(lines) + "\n" for lines in sections)])
    for path, instead in paths.items():
        text = text.replace(path, instead)
    text = taking.redactor.text(text, rule.others)
    status, message = _judged(rule, ran, text, left_out)
    return _Run(ran, text, status, message, left_out, escaped)


def _remember(by: Redactor, ran: Ran) -> None:
    for pid, names in ran.processes.items():
        by.own.setdefault(pid, set()).update(names)


def _judged(rule: CaptureRule, ran: Ran, text: str, left_out: int) -> tuple[Status, str]:
    if ran.timed_out:
        return "timed_out", f"stopped after its limit of {rule.limit_s:g} s"
    if ran.too_large:
        return "cut", "stopped: the file that it wrote reached the limit; its middle was left out"
    refusal = re.compile(rule.refusal) if rule.refusal else None
    lines = text.splitlines()
    said = next((line for line in lines if refusal is not None and refusal.search(line)), None)
    if said is not None:
        return "refused", " ".join(said.split())[:300]
    if ran.exit_code not in rule.ok_exit:
        if ran.exit_code == NOT_FOUND:
            return "missing", _install(rule.tool, rule)
        return "refused", _telling(lines) or f"exit code {ran.exit_code}"
    return ("cut", f"{left_out} bytes of output were left out") if left_out else ("ok", "")


def _telling(lines: Sequence[str]) -> str:
    """The line with which a tool refuses: the last that names a permission, else an error, else the last of all."""
    own = [line.strip() for line in lines if line.strip() and not line.startswith("@@")]
    for sign in (_PERMISSION, _FAILURE, re.compile("")):
        found = [line for line in own if sign.search(line)]
        if found:
            return found[-1][:300]
    return ""


def _outcome(runs: Sequence[_Run], missing: str | None) -> tuple[Status, str]:
    """The worst of the runs; the last one, because nothing runs behind a failure."""
    if missing is not None:
        return "missing", missing
    cut = next((run for run in runs if run.status == "cut"), None)
    last = runs[-1]
    return (cut.status, cut.message) if cut is not None and last.status == "ok" else (last.status, last.message)


def _joined(texts: Sequence[str], repeat: int) -> str:
    if repeat == 1:
        return "".join(texts)
    return "".join(f"@@run {number}\n{_ended(text)}" for number, text in enumerate(texts, 1))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _filled(word: str, place: dict[str, str]) -> str:
    """The word with its placeholders filled in. Other braces stay: programs have them."""
    return re.sub(r"\{(python|workloads|post|build|out)\}", lambda match: place[match[1]], word)


def sections(lines: Sequence[str]) -> Iterator[list[str]]:
    """The runs of a raw text: the lines behind each ``@@run``, or all lines."""
    starts = [i for i, line in enumerate(lines) if re.fullmatch(r"@@run \d+", line)]
    if not starts:
        yield list(lines)
        return
    for first, last in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield list(lines[first + 1 : last])
