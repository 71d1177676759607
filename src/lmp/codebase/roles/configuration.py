"""The configuration surface: flags, environment variables, fields of config classes, keys of config files."""

from __future__ import annotations

import re

from lmp.codebase.facts import Place
from lmp.codebase.graph.records import Class
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.spine import leaves

CONFIG = re.compile(r"(?:Config|Args|Arguments|Settings|Options|Params|Parameters)$")
MODELS = frozenset(["BaseModel", "BaseSettings", "Struct"])


def configuration_rows(reading: Reading) -> list[Row]:
    found: dict[tuple[str, int], Row] = {}

    def add(mechanism: str, symbol: str, where: Place, default: str | None) -> None:
        found.setdefault((where.file, where.line), Row("configuration", mechanism, symbol, where, default or ""))

    run = _files(reading)
    for flag in reading.facts.flags:
        if reading.is_own(flag.place.file) and (flag.place.file in run or not run):
            add("cli flag", flag.names[0], flag.place, flag.value or flag.default)
    for read in reading.facts.env:
        if reading.is_own(read.place.file):
            add("env var", read.name, read.place, read.value or read.default)
    for of in reading.classes:
        if is_config(reading, of):
            for each in of.fields:
                if not each.name.startswith("_"):
                    add("config class field", f"{of.qualname}.{each.name}", Place(of.file, each.line), each.default)
    for file in reading.facts.config_files:
        for name, where in zip(file.names, file.keys, strict=False):
            if reading.is_own(where.file):
                add("config file", name, where, None)
    return list(found.values())


def _files(reading: Reading) -> set[str]:
    """Files that take part in a run of a model: those with a function that leads to it, and those that these call."""
    key = reading.reaching(leaves(reading))
    found = {each.file for each in key}
    for each in key:
        found |= {edge.callee.file for edge in reading.graph.edges.get(each, ())}
    return found


def is_config(reading: Reading, of: Class) -> bool:
    """A class of settings: a dataclass or a model of pydantic whose name or use says that it configures."""
    if of.native or not of.fields or not CONFIG.search(of.name):
        return False
    marked = any("dataclass" in str(chain) or "define" in chain for chain in of.decorators)
    line = reading.graph.evaluator.line(of)
    inherits = any("dataclass" in str(chain) for each in line[1:] for chain in each.decorators)
    bases = {str(chain[-1]) for each in line for chain in each.bases if chain}
    return marked or inherits or bool(bases & MODELS)
