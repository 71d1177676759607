"""Patterns against what matchers really open: ripgrep as the CLI has it, a shell with all on, and Python's glob."""

from __future__ import annotations

import glob
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lmp.agents.environment import cli_path
from lmp.agents.globs import OddPattern, alternatives
from lmp.agents.guard import Guard

BASH = shutil.which("bash")
SECRET = "secret.txt"

REVIEWED = ["{a, /etc}/*", "@(..)/*", "[.][.]/*", ".{.,x}/*"]
"""The globs that passed the guard once."""

UP = [
    *("..", "[.][.]", "@(..)", "+(.)", "@(.|..)", ".{.,x}", "{.,x}.", ".@(.)", r"\.\.", r"\..", ".[.]", "[.]."),
    *(
        "{..,a}",
        "{a,..}",
        "./..",
        "a/../..",
        ".//..",
        "{a/..,b}/..",
        "@(a)/../..",
        "{.,..}",
        "..@()",
        "a/./../..",
        "*/../..",
        "?(..)",
        "{{a,..},x}",
        "a/{..,x}/..",
        "{a,x}/../..",
    ),
]
"""Ways to write the folder above."""
TAILS = ["/*", "/secret.txt", "//secret.txt", "/./s*", "/{secret.txt,x}", "/[s]*", "/@(secret.txt)", "/s?cret.txt"]
ABSOLUTE = ["{outside}", "{{x,{outside}}}", "{{{outside},x}}", "@({outside})", "x {outside}", "/{outside}"]
"""Ways to write another folder; `{outside}` stands for it."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root without links, and beside it what nobody may open."""
    above = tmp_path_factory.mktemp("globs")
    (above / "root" / "a").mkdir(parents=True)
    (above / "root" / ".hidden").mkdir()
    for place in ("a.py", "a/b.py", ".hidden/c.py", "modeling_x1.py"):
        (above / "root" / place).write_text("")
    (above / SECRET).write_text("")
    return above / "root"


@pytest.fixture(scope="module")
def ripgrep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CLI's own matcher: it is ripgrep when it is called so."""
    link = tmp_path_factory.mktemp("rg") / "rg"
    link.symlink_to(cli_path())
    return link


def by_ripgrep(ripgrep: Path, pattern: str, root: Path) -> list[Path]:
    """As the CLI's Glob calls it."""
    options = ["--files", "--null", "--sort=modified", "--no-ignore", "--hidden", f"--glob={pattern}"]
    done = subprocess.run([ripgrep, *options], cwd=root, capture_output=True, env={"HOME": str(root)})
    return [root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def by_bash(pattern: str, root: Path) -> list[Path]:
    """A shell's, with all that it knows; commands cannot stand in these patterns."""
    if BASH is None or re.search(r"[$`;&<>\"'\n\0]|^\s*$", pattern):
        return []
    options = "shopt -s extglob globstar dotglob nullglob\nshopt -u globskipdots 2>/dev/null"
    script = f"{options}\neval 'printf \"%s\\0\" {pattern}'"
    done = subprocess.run([BASH, "--norc", "-c", script], cwd=root, capture_output=True, env={"HOME": str(root)})
    return [root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def by_python(pattern: str, root: Path) -> list[Path]:
    try:
        return [root / name for name in glob.glob(pattern, root_dir=root, recursive=True, include_hidden=True)]
    except (OSError, ValueError, re.error):
        return []


def outside(found: list[Path], root: Path) -> list[Path]:
    """What is there, and not below the root."""
    return [path for path in found if os.path.exists(path) and not path.resolve().is_relative_to(root.resolve())]


def refusal(pattern: str, root: Path) -> str | None:
    return Guard([root], []).refusal("Glob", {"pattern": pattern, "path": str(root)}, "/")


def escaping(root: Path) -> Iterator[str]:
    for up, tail in itertools.product(UP, TAILS):
        yield up + tail
    for form, tail in itertools.product(ABSOLUTE, TAILS):
        yield form.format(outside=root.parent) + tail


@pytest.mark.parametrize("pattern", REVIEWED)
def test_the_globs_of_the_review_are_refused(tree: Path, pattern: str) -> None:
    assert refusal(pattern, tree)
    assert Guard([tree], []).refusal("Grep", {"pattern": "x", "glob": pattern, "path": str(tree)}, "/")


@pytest.mark.skipif(BASH is None, reason="a shell shows that a pattern leaves its folder")
def test_more_than_200_patterns_that_a_matcher_follows_outside_are_refused(tree: Path) -> None:
    left = [p for p in escaping(tree) if outside([*by_bash(p, tree), *by_python(p, tree)], tree)]
    assert len(left) >= 200
    assert [p for p in left if refusal(p, tree) is None] == []
    # Those that these matchers do not follow are refused all the same.
    assert [p for p in escaping(tree) if refusal(p, tree) is None] == []


PIECES = st.sampled_from(
    [
        *("a", "b.py", "secret.txt", "..", ".", "/", "//", "*", "**", "?", "{", "}", ",", "[", "]", "^", "!", "-", "|"),
        *(
            "@(",
            "+(",
            "?(",
            "*(",
            "!(",
            ")",
            "~",
            "\\",
            " ",
            "=",
            "+",
            "%",
            "0",
            "9",
            "..{",
            "{a,",
            "[.]",
            "[!a]",
            "[a-z]",
        ),
        *("/etc", "{..", "é", "\u2024", "\uff0e\uff0e", "\uff0f", "[[:punct:]]", "[+--]", "{-..0}", "\t", "**/", "*/"),
    ]
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(PIECES, min_size=1, max_size=7).map("".join))
@example("{-..0}{-..0}/secret.txt")
@example("{a,**}/../secret.txt")
@example("[+--][+--]/secret.txt")
@example(".*/secret.txt")
@example("**/.?/secret.txt")
@example("{.,}{.,}/secret.txt")
@example("!{a,..}/secret.txt")
def test_what_is_allowed_opens_nothing_outside(tree: Path, ripgrep: Path, pattern: str) -> None:
    if refusal(pattern, tree) is None:
        found = [*by_bash(pattern, tree), *by_python(pattern, tree), *by_ripgrep(ripgrep, pattern, tree)]
        assert outside(found, tree) == []


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["a", "*", "?", "b.py", "[a-z]", "{a,b}", "modeling_", "[0-9]", ".py", "/", "**/"]),
        min_size=1,
        max_size=5,
    ).map("".join)
)
def test_what_people_write_is_allowed(tree: Path, pattern: str) -> None:
    odd = pattern.startswith("/") or pattern.startswith("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}")
    assert (refusal(pattern, tree) is None) != odd


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("*.py", [("*.py",)]),
        ("!test_*", [("test_*",)]),
        ("src/{a,b{c,d}}/*.{py,pyi}", [("src", x, y) for x in ("a", "bc", "bd") for y in ("*.py", "*.pyi")]),
        ("layer[0-9].py", [("layer[0-9].py",)]),
        ("a..b/*", [("a..b", "*")]),
    ],
)
def test_the_language(pattern: str, parts: list[tuple[str, ...]]) -> None:
    assert alternatives(pattern) == parts


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "it is empty"),
        ("x" * 401, "it has 401 characters, of at most 400"),
        ("{" * 65 + "a", "its braces do not close"),
        ("{a,b}" * 7, "its braces have more than 64 alternatives"),  # 2**7 = 128
        ("a,b", "a comma stands in braces only"),
        ("a}b", "its braces do not close"),
        ("[A-z]", "the range A-z holds more than letters and digits"),
        ("a*\0", r"it may not hold '\x00'"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(pattern: str, why: str) -> None:
    with pytest.raises(OddPattern) as raised:
        alternatives(pattern)
    assert str(raised.value) == why


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A root with links that lead out of it, and one that does not."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.py").write_text("")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / SECRET).write_text("")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "sub" / "deep").symlink_to("../../outside")
    (root / "file.txt").symlink_to(tmp_path / "outside" / SECRET)
    (root / "loop").symlink_to("loop")
    (root / "inside").symlink_to("sub")
    return root


@pytest.mark.parametrize(
    "pattern",
    [
        *("out/*", "out/secret.txt", "./out/*", "o?t/*", "*/secret.txt", "{x,out}/*", "[a-z]ut/s*", "sub/deep/*"),
        *("sub/d*/s*", "file.txt", "s*/deep/*", "loop/*", "inside/deep/*", "*/*/secret.txt", "out", "sub//deep/*"),
    ],
)
def test_links_that_lead_outside_are_refused(linked: Path, pattern: str) -> None:
    assert "leads through a link" in str(refusal(pattern, linked))


@pytest.mark.parametrize("pattern", ["inside/*", "sub/*.py", "**/*", "**/*.txt", "*", "*.txt", "s*/*", "**/deep/*"])
def test_what_the_matcher_does_not_follow_is_allowed(linked: Path, ripgrep: Path, pattern: str) -> None:
    assert refusal(pattern, linked) is None
    assert outside(by_ripgrep(ripgrep, pattern, linked), linked) == []
