"""What is looked up and not read: every variable, flag, config file, kernel, note and skipped file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lmp.codebase.facts import EnvRead, Flag, Kernel, Place
from lmp.report.document.parts import Code, Inline, Line, Paragraph, Section, Table
from lmp.report.repository.pieces import OF_SYSTEM, code, counted, is_symbol, joined, plural, pointer, sentence, tally
from lmp.report.repository.signs import NoteKind
from lmp.report.repository.statements import local_values
from lmp.report.repository.study import Study

ENV = "Appendix A: environment variables"
CLI = "Appendix B: command line flags"
CONFIG = "Appendix C: config files"
KERNELS = "Appendix D: kernels"
MACROS = "Appendix E: sizes set by #define"
NOTES = "Appendix F: notes in the code"
SKIPPED = "Appendix G: files not read"
PARTS = "Appendix H: parts of a run"
CALLS = "Appendix I: calls of a run"
SETTINGS = "Appendix J: fields, arguments and keys that are settings"
MOST_SETTINGS = 1500
MUST = re.compile(r":\s*\?\?\?\s*(?:#.*)?$")
"""How OmegaConf writes a value that a run must be given."""
_SIZE = re.compile(r"B[A-Z]{0,2}$|(?i:.*(?:block|tile|chunk|group|split|warp|stage|thread))")
STAGES = re.compile(r"(?i)^(num_?)?stages?$")
TUNED = frozenset(["triton", "tilelang", "cutile"])
"""Languages whose kernels are compiled for a number of stages or warps."""
MOST_VALUES, LONGEST = 6, 60
"""Values of a local name, and characters of an expression, that are shown."""
WARPS = re.compile(r"(?i)^(num_?)?warps?$")


def appendices(study: Study) -> list[Section]:
    return [_env(study), _flags(study), _config(study), _kernels(study), _macros(study), _notes(study), _skipped(study)]


def _env(study: Study) -> Section:
    facts = study.base.facts
    reads = sorted(facts.env, key=lambda read: (not read.resolved, read.name, read.place.file, read.place.line))
    rows = [
        [_variable(read), _default(study, read), pointer(read.place), code(read.via, 40) if read.via else "direct"]
        for read in reads
    ]
    words = sentence(
        *counted(facts, "env_variables", "variable"),
        " in ",
        *counted(facts, "env_reads", "read"),
        ", by name; what reading cannot work out stands last.",
    )
    searched = "os.environ, os.getenv, getenv and wrappers of them"
    return Section(ENV, [Paragraph(words), Table(("Variable", "Default", "Read at", "Through"), rows, searched)])


def _variable(read: EnvRead) -> Line:
    if not read.resolved:
        return sentence("not resolved statically: ", code(read.name, 60))
    return sentence(code(read.name, 60), " (derived)") if read.derived else code(read.name, 60)


def _default(study: Study, read: EnvRead) -> Line:
    if read.default is not None:
        return _settled(read)
    if read.name in OF_SYSTEM:
        return "set by the operating system"
    if must_be_set(study, read):
        return "none: must be set"
    place = study.base.environment_set.get(read.name)
    return ["none; the code sets it at ", pointer(place)] if place is not None else "none"


def _settled(setting: Flag | EnvRead) -> Line:
    """The default as it stands, and what its name stands for."""
    if setting.default is None:
        return "none: must be given" if isinstance(setting, Flag) and setting.required else "none"
    named = code(setting.default, 50)
    return [named, " = ", code(setting.value, 50)] if setting.value else named


def must_be_set(study: Study, read: EnvRead) -> bool:
    """``os.environ["X"]`` raises where it is not set, unless the same function asks first, or the code sets it."""
    if (
        read.default is not None
        or read.name in OF_SYSTEM
        or read.name in study.base.environment_set
        or re.fullmatch(r"(os\.)?environ(\[.*\])?", read.via) is None
    ):
        return False
    base = study.base
    around = base.around(read.place.file, read.place.line)
    lines = base.lines(read.place.file)
    first, last = (around.place.line, around.end) if around else (1, len(lines))
    name = rf"[\"']{re.escape(read.name)}[\"']"
    guard = re.compile(
        rf"{name}\s+(?:not\s+)?in\s+(?:os\.)?environ|environ\.(?:setdefault|get)\(\s*{name}|getenv\(\s*{name}"
        rf"|environ\[\s*{name}\s*\]\s*=(?!=)|except\s+\(?[^:]*KeyError"
    )
    return not any(guard.search(line) for line in lines[first - 1 : last])


def _flags(study: Study) -> Section:
    every = sorted(study.base.facts.flags, key=lambda flag: not study.base.is_own(flag.place.file))
    rows = [[_names(flag), _settled(flag), _help(flag), pointer(flag.place)] for flag in every]
    words = sentence(*counted(study.base.facts, "flags", "flag"), ", by file; those of tests and examples stand last.")
    return Section(
        CLI, [Paragraph(words), Table(("Flag", "Default", "Help", "Where"), rows, "argparse, click, typer, fire, absl")]
    )


def _names(flag: Flag) -> Line:
    return joined([code(name, 50) for name in flag.names[:3]])


def _help(flag: Flag) -> Line:
    return code(flag.help, 90) if flag.help.strip() else f"no help text ({flag.parser})"


def _config(study: Study) -> Section:
    rows: list[list[Line]] = []
    for file in study.base.facts.config_files:
        where: Line = pointer(file.keys[0]) if file.keys else Code(file.file)
        keys: list[Inline] = joined([code(name, 30) for name in file.names[:6]]) or ["no keys at the top"]
        lines = dict(enumerate(study.base.lines(file.file), 1)) if file.kind == "yaml" else {}
        named = zip(file.names, file.keys, strict=False)
        given = [name for name, at in named if MUST.search(lines.get(at.line, ""))]
        if given:
            keys += ["; must be given: ", *joined([code(name, 40) for name in given[:6]])]
        rows.append([where, file.kind, keys])
    words = sentence(*counted(study.base.facts, "config_files", "file"), ", with their first keys.")
    return Section(
        CONFIG,
        [Paragraph(words), Table(("File", "Kind", "Keys"), rows, "YAML, TOML, JSON and INI files that hold settings")],
    )


# --- kernels ---------------------------------------------------------------------------------------------------------


def _kernels(study: Study) -> Section:
    rows = [kernel_row(study, kernel) for kernel in study.base.facts.kernels]
    words: list[Inline] = [
        *(
            *counted(study.base.facts, "kernels", "kernel"),
            " and ",
            *counted(study.base.facts, "launches", "launch", "launches"),
            ".",
        ),
        " “constexpr” are parameters that the caller sets and whose value does not stand at a launch.",
    ]
    table = Table(
        ("Kernel", "BLOCK_M/N/K and other sizes", "NUM_STAGES", "NUM_WARPS", "From"),
        rows,
        "Triton, CUDA, Metal, TileLang, CuTe, Pallas and Numba kernels in all files",
    )
    return Section(KERNELS, [Paragraph(words), table])


def kernel_row(study: Study, kernel: Kernel) -> list[Line]:
    """A kernel with what is found of its configuration: autotuning, launches, constexpr parameters."""
    values = kernel_values(study, kernel)
    sizes = {name: found for name, found in values.items() if not STAGES.match(name) and not WARPS.match(name)}
    written: list[Inline] = [] if is_symbol(kernel.name) else [code(kernel.name, 60), " at "]
    return [
        sentence(*written, pointer(kernel.place, kernel.name), f", {kernel.language}"),
        _told(kernel, _sizes(sizes)) or _no_sizes(kernel),
        _one(values, STAGES, kernel),
        _one(values, WARPS, kernel),
        _origin(study, kernel),
    ]


def _told(kernel: Kernel, sizes: list[Inline]) -> list[Inline]:
    """The sizes that are found; the parameters that set others, where there are none or the template says more."""
    parameters = _constexprs(kernel)
    if sizes and kernel.language != "metal":
        return sizes
    return joined([each for each in (sizes, parameters) if each], "; ")


def _no_sizes(kernel: Kernel) -> Line:
    return (
        "none found (searched: autotuners, launches, constexpr and template parameters)"
        if not kernel.parameters
        else sentence("takes ", code(", ".join(kernel.parameters[:8]), 70), "; no size is set by name")
    )


def kernel_values(study: Study, kernel: Kernel) -> dict[str, list[str]]:
    """Name -> the values that it takes, as found in autotune configurations and at launches: of a local name what it
    was set to."""
    found: dict[str, list[str]] = {}
    sources: list[tuple[Place, Mapping[str, int | str]]] = [(config.place, config.values) for config in kernel.configs]
    sources += [(launch.place, dict(launch.values)) for launch in study.launches(kernel)]
    for place, values in sources:
        for name, value in values.items():
            kept = found.setdefault(name, [])
            for one in _meant(study, place, str(value), name):
                if one != name and one not in kept:
                    kept.append(one)
    return {name: values for name, values in found.items() if values}


def _meant(study: Study, place: Place, value: str, name: str) -> list[str]:
    """The numbers that a local name stands for, else the value as it is written with what it was set to last. What is
    handed on by its own name is that alone."""
    if not re.fullmatch(r"(?:self\.)?[A-Za-z_]\w*", value):
        return [value]
    given = list(dict.fromkeys(text for text, _ in local_values(study.base, place, value)))
    if given and len(given) <= MOST_VALUES and all(re.fullmatch(r"\d+", text) for text in given):
        return given
    if given and len(given[-1]) <= LONGEST:
        return [given[-1] if value == name else f"{value} = {given[-1]}"]
    return [value]


def _sizes(values: Mapping[str, Iterable[str]]) -> list[Inline]:
    numbers = {name: list(found) for name, found in values.items() if all(re.fullmatch(r"-?\d+", v) for v in found)}
    # What is switched on or off at a launch is no size.
    other = {name: list(found) for name, found in values.items() if name not in numbers and _SIZE.match(name)}
    shown = sorted(
        {**numbers, **other}.items(),
        key=lambda item: (not _SIZE.match(item[0]), item[0] not in numbers),
    )
    pieces = joined([code(f"{name} = {', '.join(_in_order(found))}", 44) for name, found in shown[:5]])
    return [*pieces, f" and {len(shown) - 5} more"] if len(shown) > 5 else pieces


def _in_order(values: list[str]) -> list[str]:
    return sorted(values, key=int) if all(re.fullmatch(r"-?\d+", value) for value in values) else values


def _constexprs(kernel: Kernel) -> list[Inline]:
    shown = list(kernel.constexprs)
    if not shown:
        return []
    if kernel.language in ("metal", "cuda"):
        return ["template ", code(", ".join(shown[:8]), 60), f" and {len(shown) - 8} more" if len(shown) > 8 else ""]
    more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
    return (
        ["constexpr ", code(", ".join(shown[:6]), 60), more] if more else ["constexpr ", code(", ".join(shown[:6]), 60)]
    )


def _one(values: Mapping[str, list[str]], pattern: re.Pattern[str], kernel: Kernel) -> Line:
    found = [value for name, each in values.items() if pattern.match(name) for value in each]
    return (
        code(", ".join(_in_order(list(dict.fromkeys(found)))), 40)
        if found
        else "not set"
        if kernel.language in TUNED
        else f"{kernel.language} has none"
    )


def _origin(study: Study, kernel: Kernel) -> Line:
    parts: list[list[Inline]] = []
    resolved = [config for config in kernel.configs if config.values]
    if kernel.autotuned is not None:
        key = sentence(" by ", code(", ".join(kernel.key), 40)) if kernel.key else []
        many = plural(len(resolved), "configuration") if resolved else ["autotuned"]
        parts.append([*many, " at ", pointer(kernel.autotuned), *key])
    open_ = next((config for config in kernel.configs if not config.values and config.expression), None)
    if open_ is not None:
        stop: list[Inline] = [" (stopped at ", pointer(open_.stopped_at), ")"] if open_.stopped_at else []
        parts.append(["not resolved statically: ", code(open_.expression, 50), *stop])
    launches = study.launches(kernel)
    if launches:
        parts.append(
            [
                "launched at ",
                pointer(launches[0].place),
                *([f" and {len(launches) - 1} more"] if len(launches) > 1 else []),
            ]
        )
    if kernel.launch_bounds:
        parts.append(["launch bounds ", code(kernel.launch_bounds, 40)])
    return joined([*parts, *([] if kernel.autotuned or launches else [_mentioned(study, kernel)])], "; ")


def _mentioned(study: Study, kernel: Kernel) -> list[Inline]:
    found = study.mentions.of(kernel)
    if found is None:
        return ["no launch or autotuner found for this name"]
    place, around = found
    if around is not None:
        return ["no launch found: called by ", code(around.name, 50), " at ", pointer(place)]
    return ["no launch found: named at ", pointer(place)]


def _macros(study: Study) -> Section:
    rows: list[list[Line]] = [
        [code(name, 40), code(value or "no value", 60), pointer(place, name)]
        for name, value, place in study.base.facts.macros
    ]
    return Section(MACROS, [Table(("Name", "Value", "Where"), rows, "#define of sizes in C, C++ and CUDA files")])


# --- notes and files -------------------------------------------------------------------------------------------------

KINDS: dict[NoteKind, str] = {
    "todo": "left to do",
    "not implemented": "not implemented",
    "requires": "asks for hardware, a version or a layout",
    "deprecated": "deprecated",
    "warning": "warns",
    "swallowed": "errors not passed on",
}


def _notes(study: Study) -> Section:
    rows: list[list[Line]] = []
    for kind, words in KINDS.items():
        for file, note in study.base.notes(kind):
            said = f"{note.detail} [{note.text}]" if kind == "requires" and note.detail else note.text or "no message"
            said = f"except {note.text}: {note.detail}" if kind == "swallowed" else said
            rows.append([words, pointer(Place(file, note.line)), code(said, 110)])
    totals = joined([sentence(f"{words} ", tally(len(list(study.base.notes(kind))))) for kind, words in KINDS.items()])
    searched = "comments, raises, asserts, warnings and except clauses of the repository's own code"
    return Section(NOTES, [Paragraph(sentence(totals, ".")), Table(("What", "Where", "As it stands"), rows, searched)])


def _skipped(study: Study) -> Section:
    every = [*study.base.facts.skipped, *study.base.unread]
    rows: list[list[Line]] = [
        [Code(each.file), said_why(each.why)] for each in sorted(every, key=lambda each: each.file)
    ]
    return Section(
        SKIPPED, [Table(("File", "Why"), rows, "files that are binary, too large, not decodable or do not parse")]
    )


def said_why(why: str) -> Inline:
    return code(why, 140)
