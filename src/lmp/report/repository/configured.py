"""Section 3 of the implementation template: sizes of the model, of the kernels, and what must hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from lmp.codebase.facts import Place
from lmp.codebase.roles.reach import Row
from lmp.report.document.parts import (
    Bold,
    Bullets,
    Inline,
    Line,
    Pointer,
    Section,
    Table,
)
from lmp.report.repository.appendix import kernel_values
from lmp.report.repository.pieces import (
    ASIDE,
    code,
    joined,
    plural,
    pointer,
    sentence,
)
from lmp.report.repository.pitfalls import refused_at
from lmp.report.repository.study import Study

SIZES = {
    "hidden_size": r"hidden_size|n_embd|d_model|emb_dim|hidden_dim|embed_dim|dim",
    "num_layers": r"num_hidden_layers|num_layers|n_layers?|num_decoder_layers",
    "num_heads": r"num_attention_heads|num_heads|n_heads?|num_query_heads",
    "head_dim": r"head_dim|head_size|d_head",
    "intermediate_size": r"intermediate_size|ffn_dim|d_ff|mlp_dim|hidden_dim_mlp",
    "vocab_size": r"vocab_size|n_vocab",
    "max_seq_len": r"max_(?:seq_|req_)?(?:total_)?len|max_position_embeddings|block_size|max_target_length|n_ctx"
    r"|max_model_len|seq_len",
}
"""The template's parameters, and the names that configs give them."""
TILES = {
    "BLOCK_M": r"(?:k|c)?_?(?:block|tile|cta_tile)_?(?:size_?)?[mq]|bm",
    "BLOCK_N": r"(?:k|c)?_?(?:block|tile|cta_tile)_?(?:size_?)?(?:n|kv)|bn",
    "BLOCK_K": r"(?:k|c)?_?(?:block|tile|cta_tile)_?(?:size_?)?(?:k|d|dmodel)|bk",
    "NUM_STAGES": r"(?:num_?)?stages?",
    "NUM_WARPS": r"(?:num_?)?warps?",
}
"""The template's parameters of kernels, and the names that kernels give them."""
UNKNOWN = "cannot be told by reading alone"
SHOWN = 12


def configuration(study: Study) -> Section:
    return Section(
        "3. Configuration & Parameters",
        [],
        [
            Section("3.1 Model Configuration", [Table(("Parameter", "Value", "Description"), list(_sizes(study)))]),
            Section("3.2 Kernel Configuration", [Table(("Parameter", "Value", "Purpose"), list(_tiles(study)))]),
            Section("3.3 Constraints & Requirements", [Bullets(list(_constraints(study)))]),
        ],
    )


def _sizes(study: Study) -> Iterator[Sequence[Line]]:
    """A setting with its default, else the first read of a config by such a name: its value comes with a checkpoint."""
    settings = [row for row in study.ranked("configuration") if not ASIDE.search(row.place.file)]
    keys = Counter(row.place.file for row in settings)
    for name, pattern in SIZES.items():
        wanted = re.compile(rf"(?:base_)?(?:{pattern})", re.IGNORECASE)
        found = [
            row
            for row in settings
            if wanted.fullmatch(row.symbol.rpartition(".")[2].lstrip("-").replace("-", "_"))
            and is_of_model(row, settings)
        ]
        # A model's own setting before a layer's, the file with most settings first, and of equals a number.
        found.sort(
            key=lambda row: (
                "." in row.symbol and _OF_MODEL.search(row.symbol) is None,
                -keys[row.place.file],
                not re.fullmatch(r"\d+", row.why),
            )
        )
        if found:
            more = [" and at ", *plural(len(found) - 1, "more place")] if len(found) > 1 else []
            value = setting_value(study, found[0])
            shown: Line = code(value, 40) if value else "no default"
            yield [code(name), shown, sentence(code(found[0].symbol, 60), " at ", pointer(found[0].place), *more)]
        elif (given := _constructor(study, name, pattern)) is not None:
            default, where = given
            yield [code(name), code(default, 40), where]
        elif (read := study.base.config_read(pattern)) is not None:
            kept = rf"\s*(?:self\.)?{re.escape(read[0])}\s*=(?!=)\s*(.*[^\d\s].*)"
            lines = enumerate(study.base.lines(read[1].file), 1)
            filled = next(((match[1], at) for at, line in lines if (match := re.match(kept, line))), None)
            if filled is not None:
                # An object that the code fills itself is no config.
                yield [
                    code(name),
                    code(filled[0], 60),
                    sentence("worked out at ", pointer(Place(read[1].file, filled[1]))),
                ]
                continue
            where = sentence("read as ", code(read[0], 60), " at ", pointer(read[1]))
            yield [code(name), "set by the model's config", where]
        elif (made := study.base.worked_out(pattern)) is not None:
            yield [code(name), code(made[0].rstrip(", "), 60), sentence("worked out at ", pointer(made[1]))]
        else:
            searched = "settings, reads of configs and assignments by such a name"
            yield [code(name), f"none found (searched: {searched})", UNKNOWN]


def is_of_model(row: Row, settings: Sequence[Row]) -> bool:
    """A block is a whole sequence where sizes of a model stand beside it, and else a part of one."""
    if not row.symbol.lower().endswith("block_size"):
        return True
    owner = row.symbol.rpartition(".")[0]
    beside = (
        each for each in settings if each.place.file == row.place.file and each.symbol.rpartition(".")[0] == owner
    )
    return any(re.search("n_layer|n_embd|vocab_size|hidden_size|num_layers", each.symbol) for each in beside)


CONSTRUCTED = {
    "hidden_size": "dim",
    "num_layers": "depth",
    "num_heads": "heads",
    "head_dim": "dim_head",
    "intermediate_size": "dim_ff|ff_dim",
}
"""More names that constructors of modules give to the parameters."""


def _constructor(study: Study, name: str, pattern: str) -> tuple[str, list[Inline]] | None:
    """What most constructors of modules that lead to attention give such a parameter, and the first place."""
    wanted = re.compile(f"{pattern}|{CONSTRUCTED[name]}" if name in CONSTRUCTED else pattern, re.IGNORECASE)
    found: dict[str, list[tuple[str, Place]]] = {}
    for function in study.reading.functions:
        owner = function.owner
        if function.name != "__init__" or owner is None or ASIDE.search(function.file):
            continue
        if any(owner.methods.get(name) in study.reading.attending for name in ("forward", "__call__")):
            for parameter, line, default in function.arguments:
                if wanted.fullmatch(parameter) and re.fullmatch(r"[1-9]\d*", default):
                    found.setdefault(default, []).append((f"{owner.name}({parameter})", Place(function.file, line)))
    if not found:
        return None
    default, places = max(found.items(), key=lambda item: len(item[1]))
    symbol, place = places[0]
    more = [" and ", *plural(len(places) - 1, "more constructor")] if len(places) > 1 else []
    others = [f"; others: {', '.join(sorted(set(found) - {default}, key=int)[:4])}"] if len(found) > 1 else []
    return default, sentence("default of ", code(symbol, 60), " at ", pointer(place), *more, *others)


_LITERAL = r"""\s*(-?[\d.e_]+|"[^"]*"|'[^']*'|True|False)"""
_OF_MODEL = re.compile(r"(?i)model|transformer|decoder|gpt|args\b|^\w*config\.\w+$")
"""Classes whose settings are those of a whole model."""


def setting_value(study: Study, row: Row) -> str:
    """The default of a setting; of a key in a file what stands behind it; of an attribute what it is set to."""
    if row.why:
        return row.why
    line = study.base.lines(row.place.file)[row.place.line - 1]
    if row.role != "config file":
        name = re.escape(row.symbol.rpartition(".")[2])
        literal = re.match(rf"\s*(?:self\.)?{name}\s*(?::[^=]+)?={_LITERAL}\s*(?:#.*)?$", line)
        return literal[1] if literal else ""
    return re.sub(r"\s+#.*", "", re.split(r"[:=]", line, maxsplit=1)[-1]).strip().rstrip(",")


def _tiles(study: Study) -> Iterator[Sequence[Line]]:
    """Each size with every value that an autotuner, a launch or a macro gives it, and where."""
    values: dict[str, dict[str, list[Pointer]]] = {}
    for kernel in study.kernels:
        for name in kernel.constexprs:
            values.setdefault(name, {}).setdefault("", []).append(pointer(kernel.place, kernel.name))
        for name, found in kernel_values(study, kernel).items():
            # A value stands at the launch, unless it is one of an autotuner's.
            at = next((launch.place for launch in study.launches(kernel) if name in launch.values), None)
            for value in found:
                tuned = any(str(config.values.get(name)) == value for config in kernel.configs)
                shown = pointer(kernel.place, kernel.name) if at is None or tuned else pointer(at)
                values.setdefault(name, {}).setdefault(value, []).append(shown)
    tiled = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in TILES.items()}
    for name, value, place in study.base.facts.macros:
        if study.base.is_own(place.file) and any(pattern.fullmatch(name) for pattern in tiled.values()):
            values.setdefault(name, {}).setdefault(value, []).append(pointer(place, name))
    of_template: set[str] = set()
    missing: list[str] = []
    for title, pattern in tiled.items():
        named = sorted(name for name in values if pattern.fullmatch(name))
        of_template |= set(named)
        yield from (_tile(title if name == title else f"{title}: {name}", values[name]) for name in named)
        threads = _threads(values.get("block", {})) if title == "NUM_WARPS" and not named else {}
        if threads:
            yield _tile("NUM_WARPS: threads / 32", threads)
        elif not named:
            missing.append(title)
    if missing:
        searched = "autotuners, launches, macros and compile-time parameters of all kernels"
        told = f"none found (searched: {searched})" if study.kernels else "no kernel of its own"
        yield [code(", ".join(missing)), told, UNKNOWN if study.kernels else "the packages that it calls set them"]
    rest = sorted(values.keys() - of_template, key=lambda name: (-sum(map(len, values[name].values())), name))
    yield from (_tile(name, values[name]) for name in rest[:SHOWN])


def _threads(blocks: dict[str, list[Pointer]]) -> dict[str, list[Pointer]]:
    """Warps of blocks whose sizes are numbers: their product over the 32 threads of a warp."""
    found: dict[str, list[Pointer]] = {}
    for value, places in blocks.items():
        sizes = re.fullmatch(r"\(?\s*\d+(?:\s*,\s*\d+)*\s*\)?", value)
        threads = prod(int(each) for each in re.findall(r"\d+", value)) if sizes else 0
        if threads:
            found.setdefault(str(-(-threads // 32)), []).extend(places)
    return found


def _tile(title: str, values: dict[str, list[Pointer]]) -> Sequence[Line]:
    told = sorted((value for value in values if value), key=lambda v: (not v.isdigit(), int(v) if v.isdigit() else 0))
    # A place with a value first.
    ranked = sorted(values.items(), key=lambda item: not item[0])
    places = list(dict.fromkeys(place for _, found in ranked for place in found))
    shown = code(", ".join(told), 90) if told else "set by the caller, not by its name"
    return [code(title), shown, sentence("at ", *plural(len(places), "place"), ", as ", places[0])]


_WORDS = "multiple|align|divis|power of"
_TYPES = r"\bdtype\b|bfloat16|float16|fp8|int8|float32"
_VERSION = re.compile(r"^\s*#\s*(?:el)?if\b.*\b(?:CUDA_VERSION|CUDART_VERSION|HIP_VERSION|TORCH_VERSION_M\w+)\b.*")
_DEVICE = re.compile(r"(?i)cuda|capability|arch|(?<![a-z])sm_?\d|gpu|hip|rocm|tpu|device|triton\.__version__")


def _constraints(study: Study) -> Iterator[Line]:
    hazards = [
        (function, hazard)
        for function in study.reading.functions
        for hazard in function.hazards
        if hazard.kind in ("assert", "raise") and not (ASIDE.search(function.file) or study.reading.is_dead(function))
    ]
    for title, patterns in (
        (
            "Alignment",
            {"assert": rf"%[^=!<>]*==\s*0\b|{_WORDS}|\*[^=]*==", "raise": rf"%(?![^=]*==)|{_WORDS}|\*[^=!]*!="},
        ),
        ("Precision", {"assert": _TYPES, "raise": _TYPES}),
    ):
        kept = {
            hazard.text: (function, hazard)
            for function, hazard in reversed(hazards)
            if re.search(patterns[hazard.kind], hazard.text)
        }
        shown = [
            [*refused_at(study, place, hazard.text)[1], " in ", pointer(place)]
            for function, hazard in list(reversed(kept.values()))[:6]
            for place in [Place(function.file, hazard.line)]
        ]
        searched = f"{title}: none found (searched: asserts and refusals)"
        yield sentence(Bold(f"{title}:"), " ", joined(shown, "; "), ".") if shown else searched
    guards: list[list[Inline]] = [[code(text, 80), " at ", pointer(place)] for text, place in device_guards(study)[:6]]
    needed = [(f, n) for f, n in study.base.notes("requires") if _DEVICE.search(n.text) and "contiguous" not in n.text]
    guards += [[code(_condition(note.text), 80), " at ", pointer(Place(file, note.line))] for file, note in needed[:4]]
    for kernel in [each for each in study.kernels if each.launch_bounds][:2]:
        guards.append([code(f"launch bounds {kernel.launch_bounds}", 60), " of ", pointer(kernel.place, kernel.name)])
    searched = "Hardware: none found (searched: guards on the device, its architecture and the versions of compilers)"
    yield (
        sentence(Bold("Hardware:"), " the code asks for the device, or tests it: ", joined(guards, "; "), ".")
        if guards
        else searched
    )


def device_guards(study: Study) -> list[tuple[str, Place]]:
    """Tests of the device, and of the version of its tools by C's preprocessor."""
    found = dict(study.base.arch_guards)
    for file in study.base.code:
        if file.language in ("c", "c++", "cuda", "hip"):
            for at, line in enumerate(study.base.lines(file.file), 1):
                if len(line) < 400 and _VERSION.match(line):
                    found.setdefault(" ".join(re.sub(r"//.*|/\*.*", "", line).split()), Place(file.file, at))
    return list(found.items())


def _condition(text: str) -> str:
    """Of a check's arguments the first, where the text ends with a bracket that it did not open."""
    return text.partition(", ")[0] if text.count(")") > text.count("(") else text
