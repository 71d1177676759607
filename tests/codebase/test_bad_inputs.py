"""Nothing that a folder holds stops the reading: it is listed, with the reason."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from lmp.codebase.facts import RepoFacts, Selection
from lmp.codebase.reading import read_repository
from lmp.errors import UsageError

Read = Callable[..., RepoFacts]


def at(root: Path, **selection: object) -> RepoFacts:
    return read_repository(root, Selection(**selection), lambda done, total, file: None)  # type: ignore[arg-type]


def why(facts: RepoFacts) -> dict[str, str]:
    return {each.file: each.why for each in facts.skipped}


def test_a_folder_without_code(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    facts = at(tmp_path)
    assert [file.file for file in facts.files] == ["notes.txt"]
    assert not facts.definitions
    assert not at(tmp_path, include=["*.py"]).files


def test_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "late.py").write_bytes(b"#" * 9000 + b"\0")
    (tmp_path / "c.py").write_bytes(b"name = '\xe9t\xe9'\n")
    facts = at(tmp_path)
    assert why(facts) == {
        "a.py": "binary",
        "b.bin": "binary",
        "late.py": "binary",
        "c.py": "not UTF-8: read as Latin-1",
    }
    assert [file.file for file in facts.files] == ["c.py"]


def test_encodings_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfimport os\r\nos.getenv('BOM')\r\n")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\nimport os; os.getenv('LATIN')\n")
    (tmp_path / "old.py").write_bytes(b"import os\ros.getenv('OLD')\r")
    # A form feed and Unicode's own separators end no line in an editor.
    (tmp_path / "feed.py").write_text("import os\n\f\nx = '\u2028'\nos.getenv('FEED')\n", "utf-8")
    facts = at(tmp_path)
    assert {read.name: read.place.line for read in facts.env} == {"BOM": 2, "LATIN": 3, "OLD": 2, "FEED": 4}
    assert {file.file: file.lines for file in facts.files} == {"bom.py": 2, "latin.py": 3, "old.py": 2, "feed.py": 4}
    assert not facts.skipped


def test_what_does_not_parse_is_listed_and_the_rest_is_read(read: Read) -> None:
    facts = read({"bad.py": "print 'old'\n", "half.py": "def f(:\n", "good.py": "def g(): pass\n"})
    assert set(why(facts)) == {"bad.py", "half.py"}
    assert ", line 1;" in why(facts)["half.py"]
    assert [each.name for each in facts.definitions if each.place.file == "good.py"] == ["g"]
    assert len(facts.files) == 3


def test_syntax_newer_than_the_running_python_is_read(read: Read) -> None:
    # Python 3.12 has ``type X = …``, parameters of types, and a string's own quotes in the braces of an f-string.
    text = (
        "import os\ntype Prompt = (\n    str\n    | list[str]\n)\nclass Box[T](list):\n    def get[S: str](self): "
        'return os.getenv(\'IN\')\nprint(f"{os.environ["OUT"]}")\n'
    )
    facts = read({"new.py": text})
    assert not facts.skipped
    assert [(each.qualname, each.place.line) for each in facts.definitions] == [("Box", 6), ("Box.get", 7)]
    assert {each.name: each.place.line for each in facts.env} == {"IN": 7, "OUT": 8}


def test_a_file_that_does_not_parse_gives_what_its_lines_say(read: Read) -> None:
    text = "import os\nclass Old:\n    def run(self):\n        print 'x'\n@triton.jit\ndef k(x): pass\n"
    facts = read({"old.py": text})
    assert [(each.kind, each.qualname, each.place.line) for each in facts.definitions] == [
        ("class", "Old", 2),
        ("method", "Old.run", 3),
        ("function", "k", 6),
    ]
    assert "by its lines" in why(facts)["old.py"]


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "+".join(["1"] * 50_000),
        "x = " + "-" * 20_000 + "1",
        "import os\nos.getenv(" + "+".join(["'a'"] * 3000) + ")",
        "x = " + "[" * 80 + "]" * 80,
        "if a: pass\n" + "".join(f"{' ' * depth}if a:\n" for depth in range(95)) + " " * 95 + "pass\n",
    ],
)
def test_deep_nesting(read: Read, text: str) -> None:
    facts = read({"deep.py": text, "good.py": "def g(): pass\n"})
    assert [each.name for each in facts.definitions] == ["g"]
    assert len(facts.files) == 2


def test_texts_made_to_take_long(read: Read) -> None:
    names = [f"A{number} = f'{f'{{A{number + 1}}}' * 30}'" for number in range(20)]
    facts = read(
        {
            "strings.py": "import os\n" + "\n".join(names) + "\nA20 = 'x'\nos.getenv(A0)\n",
            "open.cu": "f(){" * 60_000 + "k<<<1, 2>>>();",
            "round.cu": "f(" * 100_000 + "k<<<1, 2>>>();",
            "angle.cu": "a<" * 100_000 + "k<<<1, 2>>>();__global__ " + "(" * 50_000,
            "size.cu": "#define A " + "1 " * 100_000 + "!",
        }
    )
    assert len(facts.files) == 5


def test_a_large_file_is_not_opened(tmp_path: Path) -> None:
    with (tmp_path / "weights.py").open("wb") as stream:
        stream.truncate(100_000_000)
    facts = at(tmp_path)
    assert why(facts) == {"weights.py": "100,000,000 bytes, more than the 2,000,000 that are read of a file"}
    assert not facts.files


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("def secret(): pass\n")
    root = tmp_path / "root"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "a.py").write_text("def a(): pass\n")
    (root / "loop").symlink_to(root)
    (root / "pkg" / "up").symlink_to("..")
    (root / "out").symlink_to(outside)
    (root / "file.py").symlink_to(outside / "secret.py")
    (root / "same.py").symlink_to("pkg/a.py")
    (root / "nowhere").symlink_to("missing")
    (root / "self").symlink_to("self")
    facts = at(root)
    assert [file.file for file in facts.files] == ["pkg/a.py"]
    inside, leaves, broken = "is read under its own name", "leaves the repository", "leads nowhere or to itself"
    expected = {
        "loop": inside,
        "pkg/up": inside,
        "same.py": inside,
        "out": leaves,
        "file.py": leaves,
        "nowhere": broken,
        "self": broken,
    }
    assert set(why(facts)) == set(expected)
    assert all(word in why(facts)[name] for name, word in expected.items())


def test_a_pipe_and_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.py")
        assert why(at(tmp_path)) == {"pipe.py": "not a regular file", "socket.py": "not a regular file"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "a.py").chmod(0)
    (tmp_path / "folder").mkdir(mode=0)
    assert why(at(tmp_path)) == {"a.py": "no permission to read", "folder/": "no permission to read"}


def test_no_permission_as_the_system_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")

    def refused(*given: object) -> int:
        raise PermissionError

    monkeypatch.setattr("lmp.codebase.texts.os.open", refused)
    assert why(at(tmp_path)) == {"a.py": "no permission to read"}


def test_odd_names(tmp_path: Path) -> None:
    for name in ("a b.py", "ü.py", "x[1]<b>`.py", "new\nline.py", "-dash.py"):
        (tmp_path / name).write_text("def f(): pass\n")
    (tmp_path / os.fsdecode(b"bad\xff.py")).write_text("def f(): pass\n")
    facts = at(tmp_path)
    assert [file.file for file in facts.files] == ["-dash.py", "a b.py", "x[1]<b>`.py", "ü.py"]
    assert set(why(facts)) == {"new\\nline.py", "bad\\udcff.py"}
    "".join(why(facts)).encode("utf-8")


def test_patterns_are_honoured_everywhere(read: Read) -> None:
    files = dict.fromkeys(("a.py", "pkg/b.py", "pkg/gen/c.py", "tests/d.py"), "import os\nos.getenv('X')\n")
    assert [f.file for f in read(files, include=["pkg/"]).files] == ["pkg/b.py", "pkg/gen/c.py"]
    facts = read(files, include=["*.py"], exclude=["gen/", "/tests"])
    assert [read.place.file for read in facts.env] == ["a.py", "pkg/b.py"]
    assert why(facts)["pkg/gen/"] == "excluded by a pattern"
    assert [f.file for f in read(files, exclude=["*", "!a.py"]).files] == ["a.py"]


def test_an_excluded_file_is_followed_by_nobody(read: Read) -> None:
    files = {
        "a.py": "import os\nfrom names import NAME\nos.getenv(NAME)\n",
        "names.py": "NAME = 'X'\n",
    }
    assert read(files).env[0].name == "X"
    assert not read(files, exclude=["names.py"]).env[0].resolved


def test_caches_and_ignored_files_are_not_read(read: Read) -> None:
    files = {
        ".gitignore": "/out/\n*.gen.py\n",
        "pkg/.gitignore": "local.py\n",
        "pkg/local.py": "",
        "local.py": "",
        "a.gen.py": "",
        "out/b.py": "",
        "pkg/out/c.py": "",
        "node_modules/d.py": "",
        "env/pyvenv.cfg": "",
        "env/e.py": "",
        "build/f.py": "",
        "pkg/build/g.py": "",
        "pkg/__pycache__/h.py": "",
    }
    facts = read(files)
    assert [f.file for f in facts.files if f.language == "python"] == ["local.py", "pkg/build/g.py", "pkg/out/c.py"]
    skipped = {"a.gen.py", "out/", "pkg/local.py", "node_modules/", "env/", "build/", "pkg/__pycache__/"}
    assert set(why(facts)) == skipped


def test_a_pattern_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        at(tmp_path, include=["!!"] * 2 + ["a\0"] + ["!"])


def test_progress_and_order(read: Read, tmp_path: Path) -> None:
    read({f"{name}.py": "def f(): pass\n" for name in "cab"})
    told: list[tuple[int, int, str]] = []
    facts = read_repository(tmp_path, Selection(), lambda *given: told.append(given))
    assert told == [(0, 3, "a.py"), (1, 3, "b.py"), (2, 3, "c.py"), (3, 3, "")]
    assert [each.place.file for each in facts.definitions] == ["a.py", "b.py", "c.py"]


def test_an_interrupt_ends_it(read: Read, tmp_path: Path) -> None:
    read({"a.py": "", "b.py": ""})

    def interrupt(done: int, total: int, file: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_repository(tmp_path, Selection(), interrupt)


MEASURED = """
    import sys
    from pathlib import Path
    from lmp.codebase.facts import Selection
    from lmp.codebase.reading import read_repository
    facts = read_repository(Path(sys.argv[1]), Selection(), lambda done, total, file: None)
    assert not {"torch", "transformers", "numpy"} & set(sys.modules), "codebase imports what it does not need"
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(len(facts.files), len(facts.definitions), peak.split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_two_thousand_files_in_bounded_memory(tmp_path: Path, process: None) -> None:
    body = "def f_{0}(a, b):\n    return [a * b + {0} for _ in range(10)]\n\n\n"
    text = "import os\n" + "".join(body.format(number) for number in range(40))
    for number in range(2000):
        folder = tmp_path / f"pkg{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"m{number}.py").write_text(text)
    command = [sys.executable, "-c", textwrap.dedent(MEASURED), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files, definitions, peak = map(int, done.stdout.split())
    # 40 functions a file. Peak in KiB: facts of 80,000 functions at a few hundred bytes each, and one tree.
    assert (files, definitions) == (2000, 80_000)
    assert peak < 200 * 1024
