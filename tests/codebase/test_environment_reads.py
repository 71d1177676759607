"""Which variables of the environment are read, where, and how sure that is. Lines are counted in the texts below."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmp.codebase.facts import RepoFacts

One = Callable[[str], RepoFacts]


def names(facts: RepoFacts) -> list[tuple[str, int]]:
    return [(read.name, read.place.line) for read in facts.env]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['A_B']",
        "import os\nx = os.environ.get('A_B')",
        "import os\nx = os.getenv('A_B', '1')",
        "import os\nos.environ.setdefault('A_B', '1')",
        "import os\nx = os.environ.pop('A_B', None)",
        "import os\nif 'A_B' in os.environ: pass",
        "import os\nx = 'A_B' not in os.environ",
        "import os as _o\n_o.environ['A_B']",
        "from os import environ\nenviron['A_B']",
        "from os import environ as env\nenv.get('A_B')",
        "from os import getenv\ngetenv('A_B')",
        "import os; e = os.environ\ne['A_B']",
    ],
)
def test_a_read_of_one_variable(one: One, code: str) -> None:
    facts = one(code)
    assert names(facts) == [("A_B", 2)]
    assert facts.env[0].resolved
    assert not facts.env[0].derived


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['A'] = '1'",
        "import os\ndel os.environ['A']",
        "import os\nos.environ.pop('A', None)",
        "import os\ne = os.environ.copy()",
        "import os\nos.environ.update(A='1')",
        "import os\nfor name in os.environ: pass",
        "import os\n# os.environ['A']\nx = \"os.environ['A']\"",
        "environ = {}\nenviron['A']",
        "class os:\n    pass\nx = settings.environ['A']",
    ],
)
def test_what_is_no_read(one: One, code: str) -> None:
    assert names(one(code)) == []


def test_defaults_are_as_written(one: One) -> None:
    facts = one("import os\nos.getenv('A', str(8 * 2))\nos.environ.get('B', default='x')\nos.environ['C']")
    assert [read.default for read in facts.env] == ["str(8 * 2)", "'x'", None]


def test_constants_are_followed_and_marked(one: One) -> None:
    facts = one("import os\nPREFIX = 'APP_'\nNAME = PREFIX + 'PORT'\nos.getenv(NAME)\nos.getenv(f'{PREFIX}HOST')")
    assert [(read.name, read.derived, read.resolved) for read in facts.env] == [
        ("APP_PORT", True, True),
        ("APP_HOST", True, True),
    ]


def test_what_cannot_be_told_is_given_as_written(one: One) -> None:
    facts = one("import os\ndef f(config):\n    return os.environ[config.name + suffix()]")
    assert [(read.name, read.resolved) for read in facts.env] == [("config.name + suffix()", False)]


def test_functions_that_are_handed_the_name(one: One) -> None:
    facts = one(
        """
        import os
        def flag(name, default="false"):
            return os.getenv(name, default) == "true"
        def number(name):
            return int(flag(name))
        A = flag("USE_A")
        B = flag(name="USE_B", default="true")
        C = number("COUNT_C")
        """
    )
    calls = [read for read in facts.env if read.resolved]
    assert [(read.name, read.place.line, read.via, read.default) for read in calls] == [
        ("USE_A", 7, "flag", None),
        ("USE_B", 8, "flag", '"true"'),
        ("COUNT_C", 9, "number", None),
    ]
    # The function's own read is listed with the parameter's name; its call of another wrapper is none of its own.
    assert [(read.name, read.place.line) for read in facts.env if not read.resolved] == [("name", 4)]


def test_a_prefix_inside_of_a_wrapper(one: One) -> None:
    facts = one(
        """
        import os
        def option(name):
            key = name.upper()
            return os.environ.get(f"APP_{key}") or os.environ.get("OLD_" + key)
        option("port")
        """
    )
    assert [(r.name, r.place.line, r.derived) for r in facts.env if r.resolved] == [
        ("APP_PORT", 6, True),
        ("OLD_PORT", 6, True),
    ]


def test_wrappers_are_known_in_other_files_by_import_only(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "pkg/__init__.py": "from pkg.tools import flag",
            "pkg/tools.py": "import os\ndef flag(name):\n    return os.getenv(name)\n",
            "pkg/a.py": "from pkg.tools import flag\nflag('FROM_A')\n",
            "pkg/b.py": "from .tools import flag as f\nf('FROM_B')\n",
            "pkg/c.py": "from pkg import tools\ntools.flag('FROM_C')\n",
            "pkg/d.py": "from pkg import flag\nflag('FROM_D')\n",
            "pkg/e.py": "def flag(name): return name\nflag('NOT_E')\n",
            "pkg/f.py": "from elsewhere import flag\nflag('NOT_F')\n",
        }
    )
    assert {r.name for r in facts.env if r.resolved} == {"FROM_A", "FROM_B", "FROM_C", "FROM_D"}


def test_attributes_that_give_objects_their_name(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "env.py": """
            import os
            class Field:
                def __init__(self, default): self.default = default
                def __set_name__(self, owner, name): self.name = name
                def get(self): return os.getenv(self.name)
            class Flag(Field): pass
            class Late(Flag): pass
            """,
            "settings.py": "from env import *\nfrom env import Flag, Late\n"
            "class Settings:\n    PORT = Flag(8000)\n    HOST: Flag = Late('x')\n",
        }
    )
    found = [(r.name, r.place.file, r.place.line, r.default, r.via) for r in facts.env if r.resolved]
    assert found == [
        ("PORT", "settings.py", 4, "8000", "Flag"),
        ("HOST", "settings.py", 5, "'x'", "Late"),
    ]


def test_objects_that_are_made_with_their_name(one: One) -> None:
    facts = one(
        """
        import os
        class Gate:
            def __init__(self, name, default=False):
                self._name = name
            def on(self):
                return os.environ.get(self._name)
        A = Gate("GATE_A")
        """
    )
    assert [(r.name, r.place.line) for r in facts.env if r.resolved] == [("GATE_A", 8)]


def test_classes_that_set_a_part_of_the_name(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "base.py": """
            import os
            class Backend:
                def on(self): return os.environ.get(f"USE_{self.kind.upper()}")
            """,
            "more.py": "from base import Backend\nclass Triton(Backend):\n    kind = 'triton'\n"
            "class Other:\n    kind = 'no'\n",
        }
    )
    found = [(r.name, r.place.file, r.place.line, r.derived) for r in facts.env if r.resolved]
    assert found == [("USE_TRITON", "more.py", 3, True)]


def test_a_method_is_meant_by_its_own_class(one: One) -> None:
    facts = one(
        """
        import os
        class A:
            def read(self, name): return os.getenv(name)
            def all(self): return self.read("OF_A")
        open("x").read("NOT_A")
        """
    )
    assert [r.name for r in facts.env if r.resolved] == ["OF_A"]


def test_a_function_that_sets_the_variable_in_any_case_reads_none(one: One) -> None:
    # `puts` overwrites what it tells of; `asks` sets it only where it is missing.
    facts = one(
        """
        import os
        def puts(name, value):
            if name in os.environ:
                print(os.environ[name])
            os.environ[name] = value
        def asks(name, value):
            if name not in os.environ:
                os.environ[name] = value
        puts("USE_A", "1")
        asks("USE_B", "1")
        """
    )
    assert {read.name for read in facts.env if read.resolved} == {"USE_B"}
