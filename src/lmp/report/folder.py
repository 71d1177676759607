"""Where reports stand on disk: written whole, when something changed, and only if the review found nothing.

REPORTS/implementations/<name>-analysis.md      of a model or module; .html beside it
REPORTS/implementations/<name>-appendix.md      its whole tables and all of its components
REPORTS/repositories/<name>-analysis.md         of a code base
REPORTS/assets/<name>-*.svg                     plots
REPORTS/assets/<name>-numbers.json              every number, and how it is worked out
REPORTS/assets/<name>-narrative.json            what an agent wrote into it, and which
REPORTS/assets/<name>-findings.json             of a report that was not written: why
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lmp.errors import ReportRefused
from lmp.records import Review
from lmp.report.document.ledger import Ledger
from lmp.store.files import storage_errors, whole_file, write_whole

IMPLEMENTATIONS, REPOSITORIES, ASSETS = "implementations", "repositories", "assets"
_ENDING, APPENDIX_ENDING = "-analysis.md", "-appendix.md"


@dataclass(frozen=True)
class Report:
    """A report as it will stand on disk. Paths are posix, relative to the reports folder."""

    name: str
    kind: str
    """implementations or repositories."""
    text: str
    ledger: Ledger
    assets: Mapping[str, bytes] = field(default_factory=dict)
    """File name in ``assets/`` -> content."""
    ending: str = _ENDING
    appendix: Report | None = None
    """What is written with it, all or nothing."""

    @property
    def file(self) -> str:
        return f"{self.kind}/{self.name}{self.ending}"

    @property
    def numbers(self) -> str:
        """The file of its list of numbers in ``assets/``."""
        return ledger_file(Path(self.file)).name


def ledger_file(report: Path) -> Path:
    """Where the numbers of a written report are, whether there are any or not."""
    name = report.name.removesuffix(_ENDING).removesuffix(".md")
    return report.parent.parent / ASSETS / f"{name}-numbers.json"


def narrative_name(name: str) -> str:
    """The file of a narrative in ``assets/``."""
    return f"{name}-narrative.json"


def file_name(name: str) -> str:
    """A name of anything as the name of a file."""
    return re.sub(r"[^\w.@+-]+", "-", name).strip(".-") or "report"


def write_report(folder: Path, report: Report, review: Review) -> list[Path]:
    """Write the report with what belongs to it; returns the files that changed.

    Raises ReportRefused where the review found something: the findings are written, the report is left as it was.
    """
    findings = folder / ASSETS / f"{report.name}-findings.json"
    with storage_errors(folder, "--reports"):
        if review.findings:
            write_whole(findings, review.model_dump_json(indent=2) + "\n")
            raise ReportRefused(_refused(report, review, findings), report.file, review.findings)
        contents = {f"{ASSETS}/{name}": content for name, content in report.assets.items()}
        for one in (report, *([report.appendix] if report.appendix is not None else [])):
            contents[f"{ASSETS}/{one.numbers}"] = ledger_text(with_lines(one)).encode()
            contents[one.file] = one.text.encode()
        written = write_together({folder / name: content for name, content in contents.items()})
        findings.unlink(missing_ok=True)
    return written


def write_together(contents: Mapping[Path, bytes]) -> list[Path]:
    """Write the files that do not hold just that; returns them.

    All of them change or none: each is complete on disk before the first takes its place, in the order given.
    """
    changed = [file for file, content in contents.items() if not (file.is_file() and file.read_bytes() == content)]
    with contextlib.ExitStack() as stack:
        for file in reversed(changed):  # what was opened last takes its place first
            handle = stack.enter_context(whole_file(file))
            handle.write(contents[file])
            handle.flush()
    return changed


def write_changed(file: Path, content: bytes) -> bool:
    """Write a file unless it holds just that; whether it was written."""
    if file.is_file() and file.read_bytes() == content:
        return False
    write_whole(file, content)
    return True


def with_lines(report: Report) -> Ledger:
    """The list of numbers with the facts of every line, so that a review finds any that is another one later."""
    from lmp.report.review.reading import read_markdown
    from lmp.report.review.written import lines_of_facts

    found = [facts for _, facts in lines_of_facts(read_markdown(report.text))]
    return report.ledger.model_copy(update={"lines": found})


def ledger_text(ledger: Ledger) -> str:
    return ledger.model_dump_json(indent=1, exclude_none=True, exclude_defaults=True) + "\n"


def _refused(report: Report, review: Review, file: Path) -> str:
    count = len(review.findings)
    return (
        f"the report on {report.name} was not written: the review has {count} finding{'s' if count != 1 else ''}\n"
        f"they are below and in {file}"
    )
