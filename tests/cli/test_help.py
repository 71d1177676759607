"""Help pages: commands by what people do, options in groups, no word of a list lost."""

from __future__ import annotations

import re
import shlex

import pytest
from fakes import FakePipeline, Lmp

from lmp.cli import main
from lmp.cli.help import GROUPS, LONGEST
from lmp.dtypes import WORDS
from lmp.report.formats import FORMATS


def section(page: str, name: str) -> str:
    """The lines of a section, without its head."""
    found = re.search(rf"^{name}:\n((?:  .*\n)+)", page, re.MULTILINE)
    assert found is not None, page
    return found[1]


def test_every_command_is_in_one_group() -> None:
    named = [name for names in main.GROUPS.values() for name in names]
    assert sorted(named) == sorted(main.COMMANDS)


def test_the_page_of_lmp_has_whole_sentences_and_examples(lmp: Lmp) -> None:
    page = lmp("--help").stdout
    for group, names in main.GROUPS.items():
        rows = section(page, group)
        told = " ".join(rows.split())
        for name in names:
            assert re.search(rf"^  {name} ", rows, re.MULTILINE)
            assert main.COMMANDS[name][1] in told  # not cut
    for line, _ in main.EXAMPLES:
        assert f"\n  {line}\n" in page


@pytest.mark.parametrize("line", [line for line, _ in main.EXAMPLES])
def test_the_options_of_the_examples_exist(lmp: Lmp, line: str) -> None:
    _, command, *arguments = shlex.split(line)
    known = {flag for parameter in main.command(command).params for flag in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= known


def test_options_in_groups(lmp: Lmp) -> None:
    page = lmp("evaluate", "--help").stdout
    assert "  -b, --batch-size N " in section(page, "Sizes")
    assert "  -s, --seq-len N " in section(page, "Sizes")
    assert "  -c, --cache-len N " in section(page, "Sizes")
    assert "  -o, --output FILE " in section(page, "Output")
    assert "  --model-id ID " in section(page, "Source")
    assert "  --inputs SHAPES " in section(page, "Own classes")


def test_long_lists_of_words_are_in_the_help(lmp: Lmp) -> None:
    page = lmp("evaluate", "--help").stdout
    for option, words in (("--dtype DTYPE", WORDS), ("--format FORMAT", FORMATS)):
        told = " ".join(page[page.index(option) :].split())
        assert f"One of {', '.join(words)}." in told
    assert "  --phase <prefill|decode>  " in page  # 24 characters: short enough


@pytest.mark.parametrize("name", main.COMMANDS)
def test_no_option_is_lost_and_none_is_twice(lmp: Lmp, name: str) -> None:
    page = re.split(r"^[A-Z][\w ]*:\n", lmp(name, "--help").stdout, maxsplit=1, flags=re.MULTILINE)[1]
    for parameter in main.command(name).params:
        if parameter.param_type_name == "option":
            longest = next(opt for opt in parameter.opts if opt.startswith("--"))
            assert len(re.findall(rf"^  (?:-\w, )?(?:--[\w-]+, )*{longest}\b(?![-\w])", page, re.MULTILINE)) == 1, (
                longest
            )
    for line in page.splitlines():
        option = re.match(r"  --[\w-]+ <[^>]*\|[^>]*>", line)
        assert option is None or len(option[0].strip()) <= LONGEST, line


def test_a_parameter_is_in_one_group() -> None:
    named = [name for names in GROUPS.values() for name in names]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate x --dtype fp9", "did you mean fp8? see `lmp evaluate --help`"),
        ("evaluate x --phase Decod", "did you mean decode? see `lmp evaluate --help`"),
        ("evaluate x --format jsn", "did you mean json? see `lmp evaluate --help`"),
        ("evaluate x --format zzz", "see `lmp evaluate --help`"),
        ("report x --format htm", "did you mean html? see `lmp report --help`"),
    ],
)
def test_the_nearest_word_of_an_option(lmp: Lmp, fake: FakePipeline, arguments: str, message: str) -> None:
    result = lmp(*arguments.split())
    assert (result.exit_code, result.stderr.splitlines()[1:]) == (2, [message])
