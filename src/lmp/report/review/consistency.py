"""A report as a whole: no section says "none found" of what another one has, and the self-review list is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lmp.records import ReviewFinding
from lmp.report.review.citing import Cited, cited
from lmp.report.review.placeholders import check_placeholders, says_none
from lmp.report.review.places import Roots
from lmp.report.review.reading import CLOSE, OPEN, TablePiece, Text
from lmp.report.review.template import IMPLEMENTATION, REPOSITORY, is_llm, template_of

TLDR, MAP, COMPONENTS = "TL;DR (5–8 lines)", "Module map (table)", "Key components (with code locations)"
CHECKLIST = "Self-review checklist (before calling it “done”)"
DEEP = ("Prefill vs decode loop (real nesting)", "KV cache", "Scheduler / batching", "Sampling / decoding")
_APPENDICES = {"env vars": "environment variables", "config files": "config files", "CLI flags": "command line flags"}
"""Row of the configuration surface -> how the title of its appendix ends."""
_PARTS = {
    "runtime loop": "Prefill vs decode loop (real nesting)", "KV cache": "KV cache",
    "scheduler": "Scheduler / batching", "sampling": "Sampling / decoding",
}  # fmt: skip
"""Row of the key components -> the section that goes further."""
SUBJECTS = tuple(
    (re.compile(title), re.compile(symbol, re.IGNORECASE))
    for title, symbol in (
        (r"Layout/data structures|KV cache", r"(?:^|_)kv_?(?:cache|pool|buffer)|(?:paged|ragged)_?kv|^key_cache"),
        (r"Update path", r"(?:append|write|store|copy|update)\w*_kv|kv_?cache\w*_?(?:append|write|store|update)"),
        (r"Paging", r"(?:page|block)_?tables?(?:_|$)|paged_?(?:kv|attn|attention|cache)|slot_?mapping"),
        (r"Memory accounting", r"kv_?cache_?size|num_?(?:free_?)?(?:blocks|pages)|free_?(?:blocks|pages)"),
        (r"Queueing", r"schedul(?:er|e_batch)|(?:wait\w*|request|req)_?queue"),
        (r"Chunking", r"chunked_?prefill|preempt|(?:pause|retract)_?req"),
        (r"Backpressure", r"can_(?:add|admit|schedule|allocate)|admission|max_running|max_num_seqs"),
        (r"Logits processing", r"logits_?process|(?:^|_)sample(?:r|_token|_logits)?$"),
        (r"Parameters: temperature", r"^-*temperature$|^-*top_?[pk]$|sampling_?params"),
        (r"Determinism", r"(?:^|[-_])seed|determinis"),
        (r"Attention backend", r"attn|attention"),
        (r"GEMM", r"gemm|quantiz|matmul"),
        (r"Data Parallelism", r"^(?:DistributedDataParallel|DDP|fully_shard|FullyShardedDataParallel)$"),
        (r"Tensor Parallelism", r"^all_?reduce|(?:Colwise|Rowwise|Column|Row)Parallel|tensor_?parallel"),
        (r"Pipeline Parallelism", r"^(?:i?send|i?recv|batch_isend_irecv)$|pipeline_?(?:stage|schedule|parallel)"),
        (r"Sequence Parallelism", r"context_?parallel|sequence_?parallel|ring_attention|ulysses"),
        (r"Overlap", r"^(?:wait_stream|record_stream|isend|irecv|cudaStreamCreate\w*|cudaMemcpyAsync)$"),
        (r"Execution model", r"cuda_?graph|^torch_?compile"),
    )
)
"""What a line may say that none was found of -> names of what is one, wherever else they stand."""
_PLAIN_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")


# --- none found ------------------------------------------------------------------------------------------------------


def named_like(title: str) -> re.Pattern[str] | None:
    """The names of what a line with this title is about; None where its title is not known."""
    return next((symbol for known, symbol in SUBJECTS if known.match(title)), None)


def check_contradictions(text: Text) -> Iterator[ReviewFinding]:
    template = template_of(text)
    if template is not None:
        yield from _elsewhere(text)
    if template is REPOSITORY:
        yield from _surface(text)
        yield from _parts(text)
    elif template is IMPLEMENTATION:
        yield from _settings(text)
        yield from _split(text)


def _elsewhere(text: Text) -> Iterator[ReviewFinding]:
    """Of each line that says "none found": whether another section has a place with such a name."""
    places = [(each, _section_at(text, each.line)) for each in cited(text) if each.symbol and not each.is_word]
    for line, section, title, words in _statements(text):
        wanted = named_like(title)
        if wanted is None or not says_none(words):
            continue
        for place, other in places:
            if other != section and wanted.search(place.symbol or ""):
                yield _beside(line, title, f'"{other}" has {place.symbol} at {place.place}')
                break


def _statements(text: Text) -> Iterator[tuple[int, str, str, str]]:
    """Line, section, what it is about, and its words: of sentences, and of rows of tables."""
    in_tables = {line for table in text.tables for line, _ in table.rows}
    for piece in text.pieces:
        if piece.line not in in_tables:
            yield piece.line, piece.section, _bare(piece.text.partition(":")[0]), piece.prose
    for table in text.tables:
        for line, cells in table.rows:
            yield line, table.section, _bare(cells[0]), " ".join(cells[1:2])


def _surface(text: Text) -> Iterator[ReviewFinding]:
    for line, cells in _rows(text, "Configuration surface (how to control it)"):
        ending = _APPENDICES.get(_bare(cells[0]))
        listed = [table for table in text.tables if ending and _bare(table.section).endswith(ending)]
        if len(cells) > 1 and says_none(cells[1]) and any(_filled(table) for table in listed):
            yield _beside(line, _bare(cells[0]), f"the appendix on {ending} has some")


def _parts(text: Text) -> Iterator[ReviewFinding]:
    named = {_bare(cells[0]): cells for _, cells in _rows(text, COMPONENTS)}
    with_places = {_section_at(text, pointer.line) for pointer in cited(text)}
    for part, section in _PARTS.items():
        line = next((line for line, _, title in text.headings if title == section), None)
        if part in named and line is not None and section not in with_places:
            yield _beside(line, section, f"the key components have a {part}")


def _settings(text: Text) -> Iterator[ReviewFinding]:
    """Of a value of the config that is said not to be there: whether a shape of the interfaces is made of it."""
    shapes = " ".join(
        line for fence in text.fences if fence.section.startswith("4.") for line in fence.lines if "[" in line
    )
    used = set(re.findall(r"\w+", " ".join(re.findall(r"\[([^\]]*)\]", shapes))))
    for line, cells in _rows(text, "3.1 Model Configuration"):
        name = _bare(cells[0]).partition(" ")[0]
        if len(cells) > 1 and says_none(cells[1]) and name in used and _is_of_a_config(text):
            yield _beside(line, name, "shapes of the components are made of it")


def _is_of_a_config(text: Text) -> bool:
    """Whether any value of the table is there: a class without a config has arguments of the same names."""
    return any(len(cells) > 1 and not says_none(cells[1]) for _, cells in _rows(text, "3.1 Model Configuration"))


def _split(text: Text) -> Iterator[ReviewFinding]:
    """Of a way of splitting: whether its messages are listed."""
    messages = " ".join(cells[1] for _, cells in _rows(text, "7.2 Communication Patterns") if len(cells) > 3)
    for word, kind in (("all_reduce", "Tensor"), ("send/recv", "Pipeline")):
        for piece in text.pieces:
            if (
                piece.section == "7.1 Parallelism Strategy"
                and re.match(rf"{kind} Parallelism: (?:none found|No\b)", piece.text)
                and word in messages
            ):
                yield _beside(piece.line, f"{kind} Parallelism", f"7.2 has its {word}")


def _beside(line: int, what: str, why: str) -> ReviewFinding:
    return ReviewFinding(rule="section", line=line, message=f'{what}: "none found", and {why}')


# --- the self-review list --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """One item of the template's list, and what came of it."""

    begins: str
    """How the item begins, in the template's words."""
    wrong: str = ""
    """Why it does not hold; empty where it does."""


def checklist(text: Text, roots: Roots) -> list[Item]:
    """The self-review list of a report on a code base, worked out from its contents."""
    return [
        _summary(text),
        _map(text, roots),
        _components(text),
        _deep(text),
        Item("No placeholder", next((one.message for one in check_placeholders(text)), "")),
    ]


def protocol(text: Text, roots: Roots) -> list[Item]:
    """What the users' protocol asks of a report in the template of implementations, worked out from its contents."""
    drawn = {fence.section for fence in text.fences}
    told = {section: words for _, section, _, words in _statements(text) if says_none(words)}
    missing = next((title for title in DRAWN if title not in drawn and title not in told), "")
    components = [title for _, level, title in text.headings if re.match(r"4\.\d", title)]
    plain = next((title for title in components if not any(each.section == title for each in text.fences)), "")
    tasks = list(_rows(text, TASKS))
    columns = next((len(table.columns) for table in text.tables if table.section == TASKS), 0)
    places = {_section_at(text, pointer.line) for pointer in cited(text)}
    asked = [title for _, _, title in text.headings if title.startswith("Q: ")]
    unanswered = next((title for title in asked if title not in places and title not in told), "")
    files = [cells for _, cells in _rows(text, FILES)]
    return [
        Item("Architecture and data flow diagrams", f"{missing} draws nothing" if missing else ""),
        Item("Task/operator table", "" if tasks and columns == len(TASK_COLUMNS) else f"{TASKS} lacks rows or columns"),
        Item("Pseudocode for key components", f"{plain} has none" if plain and not _is_short(text, plain) else ""),
        Item("Technical FAQ", f"{unanswered} has no place" if unanswered else ""),
        Item("Key files", _gone(files, roots) or ("" if files else f"{FILES} has no rows")),
    ]


DRAWN = ("2.1 System Diagram", "6.1 Full Forward Pass")
TASKS, FILES = "5. Task/Operator Catalog", "10. Key Files Reference"
TASK_COLUMNS = ("ID", "Task Type", "Purpose", "Tiling", "Dependencies")


def _is_short(text: Text, section: str) -> bool:
    """Whether a component's section says why it has no drawing: it calls nothing, or it is alike another one."""
    return any(
        piece.section == section and re.search(r"\bnothing\b|\balike\b|\bas \d", piece.text) for piece in text.pieces
    )


def _gone(rows: list[tuple[str, ...]], roots: Roots) -> str:
    """The first path of these rows that is not there, where any of the others is."""
    named = [path for cells in rows for path in re.findall(f"^{OPEN}([^{CLOSE}:]*){CLOSE}", cells[0])]
    named = [path for path in named if _PLAIN_PATH.fullmatch(path)]
    folders = [folder for folder in roots.folders if folder.is_dir()]
    gone = [path for path in named if not roots.find(path) and not any((folder / path).exists() for folder in folders)]
    return f"{gone[0]} is not there" if gone and len(gone) < len(named) else ""


def check_checklist(text: Text, roots: Roots) -> Iterator[ReviewFinding]:
    """Items that are not there, or that do not hold. A reader may take rows away: counts are not compared."""
    if template_of(text) is IMPLEMENTATION:
        last = max((line for line, _, _ in text.headings), default=1)
        yield from (_list(last, f"{item.begins}: {item.wrong}") for item in protocol(text, roots) if item.wrong)
    if template_of(text) is not REPOSITORY:
        return
    written = [piece for piece in text.pieces if piece.section == CHECKLIST]
    line = next((line for line, _, title in text.headings if title == CHECKLIST), None)
    if line is None:
        return  # said already: a section is missing
    for item in checklist(text, roots):
        stated = next((piece for piece in written if piece.text.startswith(item.begins)), None)
        if stated is None:
            yield _list(line, f'the item "{item.begins} …" is not there')
        elif item.wrong:
            yield _list(stated.line, f"{item.begins}: {item.wrong}")


def _summary(text: Text) -> Item:
    lines = {piece.line: piece for piece in text.pieces if piece.section == TLDR and piece.text != TLDR}
    places = [place for place in cited(text) if place.line in lines]
    has_ground = bool(places) or any(re.search(r"\d", piece.text) for piece in lines.values())
    return Item("TL;DR is specific", "" if has_ground else "it has no place and no count")


def _map(text: Text, roots: Roots) -> Item:
    rows = [cells for _, cells in _rows(text, MAP)]
    # Without the code base nothing is known of its paths.
    wrong = _gone(rows, roots) or ("" if rows else "it has no rows")
    without = next((_bare(cells[0]) for cells in rows if len(cells) > 1 and not cells[1].strip()), None)
    return Item("Module map includes", wrong or (f"{without} has no role" if without else ""))


def _components(text: Text) -> Item:
    there = list(_rows(text, COMPONENTS))
    places: dict[int, list[Cited]] = {}
    for place in cited(text):
        places.setdefault(place.line, []).append(place)
    wrong = next(
        (
            f"{_bare(cells[0])} has no place"
            for line, cells in there
            if not says_none(cells[0]) and not places.get(line) and not _undetermined(cells)
        ),
        "",
    )
    return Item("Key components table", wrong)


def _undetermined(cells: tuple[str, ...]) -> bool:
    return any(cell.startswith("not determined") or says_none(cell) for cell in cells[1:])


def _deep(text: Text) -> Item:
    if not is_llm(text):
        return Item("If LLM-related")
    places = {_section_at(text, pointer.line) for pointer in cited(text)}
    without = [title for title in DEEP if title not in places]
    stated = " ".join(piece.text for piece in text.pieces if piece.section == CHECKLIST)
    wrong = [title for title in without if "none of the four is without" in stated or title not in stated]
    return Item("If LLM-related", f"{wrong[0]} has no place" if wrong else "")


# --- parts of a text -------------------------------------------------------------------------------------------------


def _rows(text: Text, section: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    for table in text.tables:
        if table.section == section:
            yield from table.rows


def _filled(table: TablePiece) -> bool:
    return any(not says_none(cells[0]) for _, cells in table.rows)


def _section_at(text: Text, line: int) -> str:
    return next((title for at, _, title in reversed(text.headings) if at <= line), "")


def _bare(text: str) -> str:
    return text.replace(OPEN, "").replace(CLOSE, "").strip()


def _list(line: int, message: str) -> ReviewFinding:
    return ReviewFinding(rule="checklist", line=line, message=message)
