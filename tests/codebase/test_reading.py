"""Definitions, imports, entry points, settings, installing, roles: one small repository a rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lmp.codebase.facts import RepoFacts, Selection
from lmp.codebase.file_kinds import language, role
from lmp.codebase.modules import Modules
from lmp.codebase.reading import read_repository

Read = Callable[..., RepoFacts]


def test_definitions(read: Read) -> None:
    facts = read(
        {
            "a.py": '''
            @decorated(3)
            @other
            class Cache(Base, metaclass=Meta):
                """Keeps keys.

                And values."""
                def append(self, key):
                    def inner(): ...
                async def free(self): ...
            def top(): ...
            '''
        }
    )
    found = [(each.kind, each.qualname, each.place.line, each.end) for each in facts.definitions]
    assert found == [
        ("class", "Cache", 4, 10),
        ("method", "Cache.append", 8, 9),
        ("function", "Cache.append.inner", 9, 9),
        ("method", "Cache.free", 10, 10),
        ("function", "top", 11, 11),
    ]
    cache = facts.definitions[0]
    assert (cache.bases, cache.decorators, cache.doc) == (("Base",), ("decorated", "other"), "Keeps keys.")
    assert cache.methods == ("append", "free")


def test_imports_are_as_written(read: Read) -> None:
    facts = read(
        {"p/a.py": '"""What it is."""\nimport x.y\nfrom x import z as w, v\nfrom . import b\nfrom ..q.r import *\n'}
    )
    assert facts.files[0].imports == ("..q.r", ".b", "x.v", "x.y", "x.z")
    assert facts.files[0].doc == "What it is."


def test_modules_by_their_names() -> None:
    modules = Modules(["src/pkg/__init__.py", "src/pkg/a.py", "src/pkg/sub/a.py", "tools.py", "other/tools.py"])
    assert modules.file("pkg", "tools.py") == "src/pkg/__init__.py"
    assert modules.file("pkg.a", "tools.py") == "src/pkg/a.py"
    assert modules.file("tools", "other/x.py") == "other/tools.py"
    assert modules.file("a", "tools.py") is None
    assert modules.file("torch.nn", "tools.py") is None
    assert modules.of_import("pkg.sub.a.Thing.method", "tools.py") == ("src/pkg/sub/a.py", "Thing.method")


def test_entry_points(read: Read) -> None:
    facts = read(
        {
            "pyproject.toml": '[project]\nname = "x"\n[project.scripts]\nserve = "pkg.cli:main"\n',
            "x-1.dist-info/entry_points.txt": "[console_scripts]\nrun = pkg.cli:run\n[other]\nno = pkg:no\n",
            "setup.py": "from setuptools import setup\nsetup(\n"
            '  entry_points={"console_scripts": ["old = pkg.old:main"]})\n',
            "pkg/cli.py": '"""The command line."""\ndef main(): ...\nif __name__ == "__main__":\n    main()\n',
            "benchmarks/b.py": 'if "__main__" == __name__:\n    pass\n',
            "pkg/server.py": """
            from fastapi import FastAPI
            import uvicorn
            from http.server import BaseHTTPRequestHandler
            app = FastAPI()
            @app.post("/generate")
            async def generate(): ...
            class Handler(BaseHTTPRequestHandler): ...
            def start():
                uvicorn.run(app)
            """,
        }
    )
    found = [(each.kind, each.name, each.place.file, each.place.line, each.what) for each in facts.entries]
    assert found == [
        ("benchmark", "python benchmarks/b.py", "benchmarks/b.py", 1, ""),
        ("script", "python pkg/cli.py", "pkg/cli.py", 3, "calls main(); The command line."),
        ("server", "FastAPI", "pkg/server.py", 5, "a FastAPI application"),
        ("server", "generate", "pkg/server.py", 7, "POST /generate"),
        ("server", "Handler", "pkg/server.py", 8, "answers HTTP requests"),
        ("server", "uvicorn.run", "pkg/server.py", 10, "starts the server in start"),
        ("cli", "serve", "pyproject.toml", 4, "pkg.cli:main"),
        ("cli", "old", "setup.py", 3, "pkg.old:main"),
        ("cli", "run", "x-1.dist-info/entry_points.txt", 2, "pkg.cli:run"),
    ]


def test_config_files(read: Read) -> None:
    facts = read(
        {
            "a.json": '{"model": {"inner": 1},\n "tp": 2, "text": "no: key"}',
            "list.json": '[{"a": 1}]',
            "b.yaml": "# top\nserver:\n  port: 1\n  more:\n    deep: 2\nname: x\n",
            "c.toml": 'title = "x"\n[run]\nsteps = 3\n',
            "d.ini": "[run]\nsteps = 3\n",
            ".env": "export TOKEN=1\nPORT=2\n",
            "tests/e.json": '{"a": 1}',
        }
    )
    found = {
        each.file: list(zip(each.names, (key.line for key in each.keys), strict=True)) for each in facts.config_files
    }
    assert found == {
        "a.json": [("model", 1), ("tp", 2), ("text", 2)],
        "b.yaml": [("server", 2), ("server.port", 3), ("server.more", 4), ("name", 6)],
        "c.toml": [("title", 1), ("run.steps", 3)],
        "d.ini": [("run.steps", 2)],
        ".env": [("TOKEN", 1), ("PORT", 2)],
    }


def test_installing_and_building(read: Read) -> None:
    facts = read(
        {
            "pyproject.toml": '[project]\nname = "x"\n[project.optional-dependencies]\ndev = ["y"]\n',
            "Makefile": "VERSION := 3\nall: build\n\t@echo\nbuild:\n\tcc\n",
            "docker/Dockerfile": "# an image\nFROM python\n",
            "README.md": "To install:\n```\n$ pip install x  # from the index\npip install x\n```\n"
            "We like `pip install`.\n",
            "requirements.txt": "# pins\ntorch\n",
            "csrc/CMakeLists.txt": "cmake_minimum_required(VERSION 3)\nproject(x)\n",
        }
    )
    assert [(command, place.file, place.line) for command, place in facts.install] == [
        ("make all", "Makefile", 2),
        ("make build", "Makefile", 4),
        ("pip install x", "README.md", 3),
        ("cmake -S csrc -B build", "csrc/CMakeLists.txt", 2),
        ("docker build -f docker/Dockerfile .", "docker/Dockerfile", 2),
        ("pip install .", "pyproject.toml", 2),
        ("pip install .[dev]", "pyproject.toml", 4),
        ("pip install -r requirements.txt", "requirements.txt", 2),
    ]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("pkg/engine.py", "source"),
        ("pkg/test_engine.py", "test"),
        ("tests/helpers.py", "test"),
        ("pkg/latest.py", "source"),
        ("benchmarks/speed.py", "benchmark"),
        ("pkg/bench_serving.py", "benchmark"),
        ("examples/chat.py", "example"),
        ("third_party/x/tests/a.py", "vendored"),
        ("pkg/legacy/a.py", "legacy"),
        ("docs/index.md", "docs"),
        ("README.md", "docs"),
        ("pyproject.toml", "build"),
        ("docker/run.sh", "build"),
        ("x-1.dist-info/METADATA", "build"),
    ],
)
def test_roles(file: str, expected: str) -> None:
    assert role(file) == expected


def test_languages() -> None:
    files = ("a.py", "b.cuh", "c.h", "Dockerfile", "Dockerfile.rocm", "Makefile", "CMakeLists.txt", "d.unknown")
    assert [language(file) for file in files] == [
        "python",
        "cuda",
        "c++",
        "dockerfile",
        "dockerfile",
        "makefile",
        "cmake",
        "",
    ]


def test_the_same_folder_is_read_the_same_twice(read: Read) -> None:
    files = {f"p{n}/m.py": f"import os\nos.getenv('A{n}')\ndef f{n}(): pass\n" for n in range(20)}
    assert read(files) == read({})


def test_a_docstring_that_runs_on_is_told_to_its_end(one: Callable[[str], RepoFacts]) -> None:
    facts = one(
        '''
        def a():
            """Runs one step of the scheduler, and
            gives back what is done.

            More."""
        def b():
            """A whole sentence.
            Another one."""
        def c():
            """Takes:
            - a thing"""
        '''
    )
    assert [each.doc for each in facts.definitions] == [
        "Runs one step of the scheduler, and gives back what is done.",
        "A whole sentence.",
        "Takes:",
    ]


def test_a_folder_that_is_another_one_once_more_is_read_once(tmp_path: Path) -> None:
    for folder in ("small", "other"):
        (tmp_path / folder).mkdir()
        for name in ("one", "two"):
            (tmp_path / folder / f"{name}.py").write_text(f"from small import {name}s\n\ndef {name}():\n    return 1\n")
        (tmp_path / folder / "__init__.py").write_text("")
    facts = read_repository(tmp_path, Selection(), lambda at, of, file: None)
    # The files import ``small``.
    assert {each.place.file for each in facts.definitions} == {"small/one.py", "small/two.py"}
    assert [(each.file, each.why) for each in facts.skipped] == [
        ("other/", "the same Python files as small/, which is read")
    ]
    (tmp_path / "other" / "one.py").write_text("from small import nine\n\ndef one():\n    return 1\n")
    facts = read_repository(tmp_path, Selection(), lambda at, of, file: None)
    # Of the same length, and yet another file.
    assert {each.place.file.partition("/")[0] for each in facts.definitions} == {"small", "other"}


def test_a_folder_of_a_package_hides_no_package_of_its_name() -> None:
    # `engine` is a package: `import torch.nn` never looks into it. A file of the folder itself may be run from there.
    modules = Modules(["engine/__init__.py", "engine/patches/torch/nn.py", "engine/patches/torch/other.py", "run.py"])
    assert modules.file("torch.nn", "run.py") is None
    assert modules.file("torch.nn", "engine/patches/torch/other.py") is None
    assert modules.file("torch.nn", "engine/patches/setup.py") == "engine/patches/torch/nn.py"
    assert modules.file("engine.patches.torch.nn", "run.py") == "engine/patches/torch/nn.py"
