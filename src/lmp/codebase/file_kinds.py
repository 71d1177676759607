"""What a file is for and what it is written in, by its name and the folders it lies in."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal

Role = Literal["source", "test", "example", "benchmark", "vendored", "legacy", "docs", "build"]

LANGUAGES = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), "python"),
    **dict.fromkeys((".cu", ".cuh"), "cuda"),
    ".hip": "hip",
    **dict.fromkeys((".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".h", ".inl"), "c++"),
    ".c": "c",
    **dict.fromkeys((".sh", ".bash", ".zsh"), "shell"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".json", ".jsonl"), "json"),
    ".toml": "toml",
    **dict.fromkeys((".ini", ".cfg", ".conf"), "ini"),
    **dict.fromkeys((".md", ".mdx"), "markdown"),
    ".rst": "restructuredtext",
    **dict.fromkeys((".txt", ".in"), "text"),
    ".rs": "rust",
    ".go": "go",
    **dict.fromkeys((".js", ".mjs", ".ts", ".tsx", ".jsx"), "javascript"),
    ".java": "java",
    ".proto": "protobuf",
    ".cmake": "cmake",
    ".metal": "metal",
    **dict.fromkeys((".html", ".css"), "web"),
    **dict.fromkeys((".jinja", ".jinja2", ".j2"), "jinja"),
    ".ipynb": "notebook",
    ".csv": "data",
    **dict.fromkeys((".s", ".asm", ".ptx"), "assembly"),
}
NAMES = {
    "dockerfile": "dockerfile",
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "justfile": "makefile",
    "cmakelists.txt": "cmake",
    "metadata": "text",
}
CPP = ("cuda", "hip", "c++", "c")
CODE = frozenset({"python", "metal", *CPP})
"""Languages whose code a report describes."""

# Whole parts of a path. The first rule that meets one decides: a test of vendored code is vendored.
FOLDER_NAMES: tuple[tuple[Role, str], ...] = (
    ("vendored", "third_party thirdparty 3rdparty third-party vendor vendored _vendor external extern"),
    ("legacy", "legacy deprecated _deprecated old archive archived attic obsolete"),
    ("test", "test tests testing unittest unittests unit_tests integration_tests e2e conformance"),
    ("benchmark", "benchmark benchmarks bench benches perf profiling"),
    ("example", "example examples samples demo demos tutorial tutorials cookbook"),
    ("docs", "doc docs documentation"),
    ("build", "cmake docker .github .circleci .buildkite ci .ci packaging"),
)
FOLDERS = tuple((role, frozenset(names.split())) for role, names in FOLDER_NAMES)
FILES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    ("test", re.compile(r"(test_.*|.*_tests?|conftest)\.(py|cc|cpp|cu)")),
    ("benchmark", re.compile(r"(bench_.*|benchmark(_.*)?|.*_bench(mark)?)\.(py|cc|cpp|cu|sh)")),
    ("example", re.compile(r"(example_.*|.*_example|demo(_.*)?|.*_demo)\.(py|cc|cpp|cu|sh)")),
    (
        "build",
        re.compile(
            r"(setup\.(py|cfg)|pyproject\.toml|(gnu)?makefile|justfile|cmakelists\.txt|.*\.cmake"
            r"|(.*\.)?dockerfile(\..*)?|requirements.*\.(txt|in)|constraints.*\.txt|manifest\.in)"
        ),
    ),
    ("docs", re.compile(r".*\.(md|mdx|rst)")),
)


def role(file: str) -> Role:
    """Of a posix path relative to the repository."""
    *folders, name = PurePosixPath(file.lower()).parts
    if any(folder.endswith((".dist-info", ".egg-info")) for folder in folders):
        return "build"
    for kind, names in FOLDERS:
        if not names.isdisjoint(folders):
            return kind
    for kind, pattern in FILES:
        if pattern.fullmatch(name):
            return kind
    return "source"


def language(file: str) -> str:
    """Of a file by its name; empty where the name does not tell."""
    name = PurePosixPath(file).name.lower()
    if name in NAMES:
        return NAMES[name]
    if name.startswith("dockerfile") or name.endswith(".dockerfile"):
        return "dockerfile"
    return LANGUAGES.get(PurePosixPath(name).suffix, "")
