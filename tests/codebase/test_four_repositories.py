"""Four code bases of the package index, read whole: every place is real, and the counts are those of another counter.

The other counter (recon_counters.py, autotune_counters.py) works on text with comments and strings blanked.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest
from autotune_counters import Repository
from environment_counters import class_reads, cpp_reads, direct_reads, helper_reads, helpers
from recon_counters import (
    PythonFile,
    argparse_flags,
    cuda_kernels,
    hand_flags,
    python_files,
    python_kernels,
)

from fetched_repositories import REPOSITORIES, facts_of, of_each
from lmp.codebase.facts import Place, RepoFacts

# One process reads a repository once for all its tests.
pytestmark = pytest.mark.usefixtures("code_bases")
each = of_each("name")
facts = facts_of


@cache
def files(name: str) -> tuple[PythonFile, ...]:
    return tuple(python_files(REPOSITORIES / name))


@each
def test_kernels_of_every_language(name: str) -> None:
    counted = Counter[str]()
    for file in files(name):
        counted.update(python_kernels(file))
    counted["cuda"] = cuda_kernels(REPOSITORIES / name)
    assert Counter(kernel.language for kernel in facts(name).kernels) == +counted
    assert facts(name).counts["kernels"] == counted.total()


@each
def test_flags(name: str) -> None:
    counted = sum(argparse_flags(file) for file in files(name))
    by_hand = sum(hand_flags(file) for file in files(name))
    found = Counter(flag.parser for flag in facts(name).flags)
    assert (found["argparse"], found["dataclass"], found["argv"]) == (counted, 0, by_hand)
    assert facts(name).counts["flags"] == counted + by_hand


@each
def test_reads_of_the_environment(name: str) -> None:
    direct = sum(direct_reads(file) for file in files(name))
    known = helpers(list(files(name)))
    through_functions = sum(helper_reads(file, known) for file in files(name))
    through_classes = class_reads(list(files(name)))
    of_cpp = cpp_reads(REPOSITORIES / name)
    assert facts(name).counts["env_reads"] == direct + through_functions + through_classes + of_cpp


@each
def test_configurations_of_autotuned_kernels(name: str) -> None:
    repository = Repository({file.name: file for file in files(name)})
    tuned = [kernel for kernel in facts(name).kernels if kernel.autotuned is not None]
    by_file: Counter[str] = Counter()
    for kernel in tuned:
        by_file[kernel.place.file] += len(kernel.configs)
    assert by_file == +Counter({file.name: repository.configs(file) for file in files(name)})
    assert facts(name).counts["autotuned"] == sum(len(repository.tuners(file)) for file in files(name))
    assert facts(name).counts["autotune_configs"] == by_file.total()


@each
def test_every_place_opens_at_what_it_names(name: str) -> None:
    found = facts(name)
    wrong = [(place, word) for place, word in _named(found) if word not in _line(name, place)]
    assert wrong == []
    assert [place for place in _places(found) if not _line(name, place).strip()] == []


def _named(found: RepoFacts) -> list[tuple[Place, str]]:
    """Places with a word that stands in their very line."""
    named = [(each.place, each.name) for each in found.definitions]
    named += [(each.place, each.name) for each in found.env if not each.derived and each.resolved]
    named += [(kernel.place, kernel.name.rpartition(".")[2]) for kernel in found.kernels if kernel.language != "metal"]
    named += [(kernel.autotuned, "autotune") for kernel in found.kernels if kernel.autotuned is not None]
    named += [(config.place, "Config") for each in found.kernels for config in each.configs if not config.expression]
    named += [(place, macro) for macro, _, place in found.macros]
    named += [(each.place, each.name.rpartition(".")[2]) for each in found.entries if each.kind == "server"]
    named += [(each.place, each.name) for each in found.entries if each.kind == "cli"]
    named += [
        (place, key.rpartition(".")[2])
        for config in found.config_files
        for place, key in zip(config.keys, config.names, strict=True)
    ]
    return named


def _places(found: RepoFacts) -> list[Place]:
    places = [each.place for each in (*found.env, *found.flags, *found.launches, *found.entries)]
    places += [place for _, place in found.install]
    return places + [c.stopped_at for k in found.kernels for c in k.configs if c.stopped_at is not None]


@cache
def _lines(name: str, file: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", (REPOSITORIES / name / file).read_text("utf-8"))


def _line(name: str, place: Place) -> str:
    return _lines(name, place.file)[place.line - 1]


@each
def test_flags_stand_in_their_lines(name: str) -> None:
    for flag in facts(name).flags:
        line = _line(name, flag.place)
        field = flag.names[0].lstrip("-").replace("-", "_")
        # A flag of a field that has a name of its own for the command line stands below the field.
        near = "\n".join(_lines(name, flag.place.file)[flag.place.line - 1 : flag.place.line + 60])
        assert any(word in line for word in (flag.names[0], field)) or flag.names[0] in near


@each
def test_files_are_all_read_or_listed(name: str) -> None:
    there = {
        path.relative_to(REPOSITORIES / name).as_posix() for path in (REPOSITORIES / name).rglob("*") if path.is_file()
    }
    read = {file.file for file in facts(name).files}
    assert there - read <= {each.file for each in facts(name).skipped}
    assert read <= there
