"""The first sections: what it is, what it is for, and how its parts hang together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lmp.codebase.facts import Place
from lmp.report.document.parts import Bullets, Inline, Line, Mermaid, Node, Paragraph, Section
from lmp.report.repository.header import metadata
from lmp.report.repository.pieces import (
    OF_SYSTEM,
    code,
    count,
    counted,
    folder_name,
    joined,
    plural,
    pointer,
    said,
    sentence,
    tally,
)
from lmp.report.repository.readme import quotes, summary
from lmp.report.repository.signs import Import, Note
from lmp.report.repository.study import Component, Study
from lmp.report.repository.units import Unit, units

MOST_NODES, MOST_EDGES = 14, 26
LEAST_LINES = 5
"""Of the summary, as its heading says."""
FRAMEWORKS = {
    "torch": "PyTorch",
    "triton": "Triton",
    "mlx": "MLX",
    "jax": "JAX",
    "flax": "Flax",
    "tensorflow": "TensorFlow",
    "tilelang": "TileLang",
    "cutlass": "CuTe DSL",
    "cupy": "CuPy",
    "numba": "Numba",
    "tinygrad": "tinygrad",
    "onnxruntime": "ONNX Runtime",
    "ctranslate2": "CTranslate2",
    "tensorrt": "TensorRT",
    "transformers": "transformers",
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron",
    "ray": "Ray",
    "vllm": "vLLM",
    "sglang": "SGLang",
}
CORE = ("runtime loop", "scheduler", "batching", "KV cache", "sampling")
SESSIONS = r"\.disable_(?:eager_execution|v2_behavior)\b"
"""What switches TensorFlow back to graphs."""
COMPILED = (
    ("built as a graph, which sessions run", SESSIONS),
    ("kept out of compilation", r"^[\w.]*disable\b"),
    ("recorded as CUDA graphs", r"^[\w.]*(?:CUDAGraph|cuda\.graph)\b"),
)
COMPILERS = "torch.compile, torch.jit, CUDA graphs, mx.compile, jax.jit, numba.jit"
MOST_COMPILED = 3
MOST_NEEDED = 12
BY_ITSELF = {
    "torch": "PyTorch runs eagerly what is not compiled",
    "mlx": "MLX is lazy: it records operators and runs them where a value is needed",
    "tensorflow": "TensorFlow runs eagerly what is not in a tf.function",
    "jax": "JAX runs operators one by one outside of a compiled function, and traces what is compiled",
}
"""What a framework does without a call that says otherwise."""


def tldr(study: Study) -> Section:
    lines = study.told.tldr() if study.told else list(_composed(study))
    if len(lines) < LEAST_LINES and not study.told:
        lines += list(_of_little(study))[: LEAST_LINES - len(lines)]
    return Section("TL;DR (5–8 lines)", [Bullets(lines)])


def _of_little(study: Study) -> Iterator[Line]:
    """What a small repository has to say, too."""
    named = [unit for unit in units(study.base.code, MOST_NODES, least=0.1) if unit.rest != "smaller parts"]
    parts = sorted(named, key=lambda unit: (-unit.lines, unit.title))[:3]
    shown = joined([sentence(code(unit.title), " with ", *plural(unit.lines, "line")) for unit in parts])
    if parts:
        yield sentence("Its largest parts: ", shown, ".")
    if not study.llm.related:
        yield sentence("It runs no language model: ", study.llm.line(), ".")
    if not study.base.facts.kernels:
        yield "GPU kernels of its own: none found (searched: Triton, CUDA, Metal, TileLang, CuTe, Pallas, Numba)."


def _composed(study: Study) -> Iterator[Line]:
    base, facts = study.base, study.base.facts
    yield _what_it_is(study)
    yield _size(study)
    yield _started(study)
    shared = study.most_imported[:4]
    if shared:
        parts = [
            sentence(pointer(c.definition.place, c.definition.name), " by ", *plural(c.importers, "file"))
            for c in shared
        ]
        yield sentence("Most imported of its own: ", joined(parts), ".")
    played = [each for each in study.components if each.title in CORE and not each.by_name and study.is_run(each)]
    if study.llm.related and played:
        at: dict[Place, list[Component]] = {}
        for each in played:
            at.setdefault(each.definition.place, []).append(each)
        named = [
            sentence(f"{' and '.join(one.title for one in here)} ", pointer(place, here[0].definition.name))
            for place, here in at.items()
        ]
        yield sentence("A run goes through: ", joined(named), ".")
    if facts.kernels:
        yield _kernels(study)
    controls = _controls(study)
    if controls:
        yield sentence("Controlled by ", joined(controls), ".")
    unread = len(facts.skipped) + len(base.unread)
    if unread:
        yield sentence("Not read, or not in full: ", *plural(unread, "file"), ".")


def _controls(study: Study) -> list[list[Inline]]:
    """What its own code is told by: a flag of a test controls nothing of it."""
    base, facts = study.base, study.base.facts
    variables = {read.name for read in facts.env if read.resolved and base.is_own(read.place.file)} - OF_SYSTEM
    flags = [flag for flag in facts.flags if base.is_own(flag.place.file)]
    taken = study.arguments
    found = []
    if variables:
        found.append(plural(len(variables), "environment variable"))
    if flags:
        found.append(plural(len(flags), "command line flag"))
    if facts.config_files:
        found.append(counted(facts, "config_files", "config file"))
    if study.config_classes:
        fields = sum(map(len, study.config_classes))
        found.append(
            [*plural(fields, "field"), " of ", *plural(len(study.config_classes), "config class", "config classes")]
        )
    if taken:
        of, names = taken[0]
        name = code(of.qualname.removesuffix(".__init__"), 60)
        found.append([*plural(len(names), "argument"), " of ", name, " at ", pointer(of.place, of.name)])
    return found


def _what_it_is(study: Study) -> Line:
    found = summary(study.base)
    name = folder_name(study.base.facts.root_name)
    if found is None:
        used = [FRAMEWORKS[name] for name in study.base.packages_used if name in FRAMEWORKS][:3]
        code_uses = f"its code uses {', '.join(used)}." if used else "its code imports no framework that is known here."
        return sentence(name, " says nothing of itself in a README, pyproject.toml or METADATA; ", code_uses)
    return sentence(name, ", in its own words: ", said(found.text, 200), " (", pointer(found.place), ").")


def _size(study: Study) -> Line:
    facts = study.base.facts
    own = sum(file.lines for file in study.base.code)
    # Lines of texts and data, which may be most of a repository, say nothing of its size.
    languages = joined([[f"{name} ", tally(lines)] for name, lines in list(study.base.languages.items())[:3]])
    return sentence(
        *(*counted(facts, "files", "file"), " were read; its own code is "),
        *(
            *plural(len(study.base.code), "file"),
            " with ",
            tally(own),
            " lines (all code by language: ",
            languages,
            ").",
        ),
    )


def _started(study: Study) -> Line:
    """The first way of each kind to run it, and how many more there are."""
    parts: list[list[Inline]] = []
    for what, roles in (("command", ("cli",)), ("server", ("server",)), ("example", ("example", "benchmark"))):
        found = [row for row in study.ways if row.role in roles]
        if found:
            more = [f" and {len(found) - 1} more"] if len(found) > 1 else []
            parts.append([f"{what} ", code(study.started(found[0]), 80), " at ", pointer(found[0].place), *more])
    library = next((row for row in study.ways if row.role == "library"), None)
    if not parts and library is not None:
        used: list[Inline] = ["A library: ", code(library.why or library.symbol, 80), " at ", pointer(library.place)]
        return sentence(*used, _no_start(study))
    if not parts:
        return sentence("A library, used by importing it", _no_start(study))
    return sentence("Started by ", joined(parts, "; "), ".")


def _no_start(study: Study) -> str:
    """What is true of its own code where nothing was found that starts a model."""
    own = any(study.base.is_own(each.place.file) for each in study.entries if each.kind != "library")
    return "; no command or server that runs a model was found." if own else "; no command, server or main block."


def _kernels(study: Study) -> Line:
    facts = study.base.facts
    names = [name for name in facts.counts if name.startswith("kernels.")]
    parts = [sentence(count(facts, name), f" in {name.partition('.')[2]}") for name in names]
    words = sentence(counted(facts, "kernels", "GPU kernel"), " (", joined(parts), ")")
    if facts.counts["autotuned"]:
        words += [", ", count(facts, "autotuned"), " of them autotuned over "]
        words += counted(facts, "autotune_configs", "configuration")
    if facts.counts["launches"]:
        words += ["; launched at ", *counted(facts, "launches", "place")]
    called = sum(
        not kernel.autotuned and not study.launches(kernel) and study.mentions.caller(kernel) is not None
        for kernel in study.kernels
    )
    if called:
        words += ["; ", tally(called), " of them have no launch of their own, as other kernels call them"]
    return [*words, "."]


# --- what it is for --------------------------------------------------------------------------------------------------


def problem(study: Study) -> Section:
    items: list[Line] = [sentence(said(each.text, 260), " (", pointer(each.place), ")") for each in quotes(study.base)]
    looked = "README files, METADATA, pyproject.toml, setup.cfg: summary, first paragraphs, lists of features"
    return Section("What problem it solves", [Bullets(items, looked)])


# --- how its parts hang together -------------------------------------------------------------------------------------


def architecture(study: Study) -> Section:
    parts, edges = drawn_parts(study)
    ranked = sorted(edges.items(), key=lambda item: (-item[1], item[0]))
    nodes = [Node(str(at), f"{unit.title}{rest(unit)}\n{unit.lines:,} lines") for at, unit in enumerate(parts)]
    named = sorted(by_name(study, parts) - edges.keys())
    arrows = [(str(a), str(b), str(n)) for (a, b), n in sorted(ranked)]
    graph = Mermaid(nodes, [*arrows, *((str(a), str(b), "by name") for a, b in named)])
    every = len(_edges(study, parts))
    words: Line = sentence(
        "An arrow leads from a part to a part that it imports; its number says how many pairs of files do so.",
        " One without a number leads to modules that are loaded by a name put together at run time." if named else "",
        _not_drawn(every - len(ranked), ranked[-1][1]) if every > len(ranked) else "",
    )
    if not ranked and not named:
        words = "Imports between the parts: none found (searched: import statements and includes of all source files)."
    return Section("Architecture map (one diagram)", [graph, Paragraph(words), Bullets(list(execution(study)))])


def drawn_parts(study: Study) -> tuple[list[Unit], dict[tuple[int, int], int]]:
    """The parts of a code base, and between which of them most files import: the edges that find room."""
    files = [file for file in study.base.code if file.lines]
    parts = units(files, MOST_NODES, least=0.1)
    # Files that import one another alone are parts of their own.
    if not (edges := _edges(study, parts)):
        parts = units(files, MOST_NODES, least=0.1, alone=MOST_NODES)
        edges = _edges(study, parts)
    ranked = sorted(edges.items(), key=lambda item: (-item[1], item[0]))
    return parts, dict(ranked[:MOST_EDGES])


def by_name(study: Study, parts: list[Unit]) -> set[tuple[int, int]]:
    """Pairs of parts, the second with modules that the first loads by a name that is put together."""
    of_file = {file.file: at for at, unit in enumerate(parts) for file in unit.files}
    found = ((of_file.get(file), of_file[each]) for file, _, into in study.loaded for each in into if each in of_file)
    return {(a, b) for a, b in found if a is not None and a != b}


def _edges(study: Study, parts: list[Unit]) -> dict[tuple[int, int], int]:
    of_file = {file.file: at for at, unit in enumerate(parts) for file in unit.files}
    edges: dict[tuple[int, int], int] = {}
    for file, targets in study.base.imports.items():
        for target in targets:
            if file in of_file and target in of_file and of_file[file] != of_file[target]:
                key = of_file[file], of_file[target]
                edges[key] = edges.get(key, 0) + 1
    return edges


def _not_drawn(left: int, fewest: int) -> list[Inline]:
    return [
        " Not drawn: ",
        *plural(left, "arrow"),
        " of ",
        *plural(fewest, "pair"),
        " or fewer." if fewest > 1 else ".",
    ]


def rest(unit: Unit) -> str:
    return f" ({unit.rest}: {len(unit.files)} files)" if unit.rest == "smaller parts" else ""


def frameworks(study: Study) -> list[list[Inline]]:
    """Frameworks that are imported and languages beside Python, each with its number of files."""
    base = study.base
    used = [(FRAMEWORKS[name], files) for name, files in base.packages_used.items() if name in FRAMEWORKS]
    # Of the packages below `cuda` this one alone is a language of kernels.
    tiles = sum(any(_is_tile(each) for each in found.imports) for found in base.signs.values())
    used += [("cuTile", tiles)] if tiles else []
    parts = [[f"{name} in ", *plural(files, "file")] for name, files in used]
    for language in base.languages:
        files = sum(file.language == language for file in base.code)
        if language != "python" and files:
            parts.append([f"{language} in ", *plural(files, "file")])
    return parts


def execution(study: Study) -> Iterator[Line]:
    """Framework, execution model, what it needs."""
    base, parts = study.base, frameworks(study)
    searched = f"none found (searched: imports of {', '.join(FRAMEWORKS.values())}; files of CUDA and C++)"
    yield sentence("Framework: ", joined(parts) or searched, ".")
    yield sentence("Execution model: ", _model_of_execution(study), ".")
    for file, text in list(metadata(base))[:1]:
        if required := _required(text):
            line = next(n for n, each in enumerate(text.split("\n"), 1) if each.startswith("Requires-Dist:"))
            needed = code(", ".join(required[:MOST_NEEDED]), 240)
            more = [" and ", *plural(len(required) - MOST_NEEDED, "other")] if len(required) > MOST_NEEDED else []
            yield sentence("Needs ", needed, *more, " (", pointer(Place(file, line)), ").")


def _required(text: str) -> list[str]:
    """What is installed with a package, frameworks first; of what depends on the machine, the first that is named."""
    found: dict[str, str] = {}
    for each in re.findall(r"^Requires-Dist: *(.+)$", text, re.MULTILINE):
        needed, _, marker = each.partition(";")
        name = re.match(r"[\w.-]*", needed)
        if name and "extra" not in marker:
            found.setdefault(name[0].lower(), needed.strip())
    return [found[name] for name in sorted(found, key=lambda each: each not in FRAMEWORKS)]


def _is_tile(taken: Import) -> bool:
    return f"{taken.module}.".startswith("cuda.tile.") or (taken.module == "cuda" and "tile" in taken.names)


def _model_of_execution(study: Study) -> list[Inline]:
    """What the frameworks do by themselves, where a lazy one is made to work, and what the code compiles."""
    graphs = any(re.search(SESSIONS, note.text) for _, note in study.base.notes("compiled"))
    told: list[list[Inline]] = [
        [words]
        for name, words in BY_ITSELF.items()
        if name in study.base.packages_used and not (graphs and name == "tensorflow")
    ]
    if not FRAMEWORKS.keys() & study.base.packages_used.keys() and not any(study.base.notes("compiled")):
        return ["no tensor framework is imported"]
    evaluated = list(study.base.notes("evaluated"))
    if evaluated:
        file, note = min(evaluated, key=lambda each: not study.is_below_the_loop(*each))
        first = sentence(", as ", pointer(Place(file, note.line)), " ", code(note.text, 60))
        told.append(["values are worked out at ", *plural(len(evaluated), "place"), *first])
    left = list(study.base.notes("compiled"))
    for what, pattern in COMPILED:
        chosen = [each for each in left if re.search(pattern, each[1].text)]
        left = [each for each in left if each not in chosen]
        if chosen:
            told.append([f"{what}: ", *_shown(study, chosen)])
    if left:
        told.append(["compiled: ", *_shown(study, left)])
    elif not list(study.base.notes("compiled")):
        told.append([f"compilation: none found (searched: {COMPILERS})"])
    return joined(told, "; ")


def _shown(study: Study, found: list[tuple[str, Note]]) -> list[Inline]:
    """The places with what stands around each, those that calls from the loop reach first: what is compiled elsewhere
    says nothing of the model."""
    ranked = sorted(found, key=lambda each: not study.is_below_the_loop(*each))
    shown = []
    for file, note in ranked[:MOST_COMPILED]:
        # What a call makes may be used anywhere: only of a function that is compiled itself it is known who calls it.
        itself = note.about == "itself"
        aside = (
            ", which no call from the loop is seen to reach"
            if itself and study.loops and not study.is_below_the_loop(file, note)
            else ""
        )
        where = pointer(Place(file, note.line))
        around: list[Inline] = [" of " if itself else " in ", code(note.symbol, 50)] if note.symbol else []
        shown.append([code(note.text, 60), *around, " at ", where, aside])
    more = len(found) - MOST_COMPILED
    return [*joined(shown), *([" and ", *plural(more, "more place", "more places")] if more > 0 else [])]
