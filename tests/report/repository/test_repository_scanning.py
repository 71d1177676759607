"""The signs of a Python file, each with its line."""

from __future__ import annotations

from lmp.report.repository.comments import c_signs
from lmp.report.repository.scanning import signs
from lmp.report.repository.signs import Import, Note

SOURCE = '''import os
from .sibling import helper
try:
    import fast
except ImportError:
    fast = None
try:
    import faster
except:
    pass


@REGISTRY.register("a")
class Thing(Base):
    def __init__(self):
        self.k_buffer = torch.zeros((4, 8))
        self.register_buffer("x", None)

    @abstractmethod
    def must(self): ...

    def run(self, mode):
        # TODO: one more mode
        text = "TODO is no comment here"
        if mode == "odd":
            raise NotImplementedError("odd modes are not there")
        try:
            go()
        except Exception:
            pass
        try:
            go()
        except Exception as error:
            logger.warning(error)
        while True:
            batch = self.schedule()
            self.forward(batch)


def later():
    """Not yet."""
    raise NotImplementedError


warnings.warn("old() is deprecated, use new()", DeprecationWarning)
assert torch.cuda.is_available(), "needs CUDA"
'''


def _at(text: str) -> int:
    """The only line of the source with a text."""
    (found,) = (n for n, line in enumerate(SOURCE.split("\n"), 1) if text in line)
    return found


def _notes(kind: str) -> list[Note]:
    return [note for note in signs("pkg/mod.py", SOURCE).notes if note.kind == kind]


def test_imports_are_absolute() -> None:
    assert signs("pkg/mod.py", SOURCE).imports[:2] == (Import("os", (), 1), Import("pkg.sibling", ("helper",), 2))


def test_notes() -> None:
    assert _notes("todo") == [Note("todo", _at("# TODO"), "Thing.run", "TODO: one more mode")]
    odd = Note("not implemented", _at("odd modes"), "Thing.run", "odd modes are not there")
    assert _notes("not implemented") == [odd]
    assert _notes("swallowed") == [
        Note("swallowed", _at("except:"), "", "everything", "pass", "import faster"),
        Note("swallowed", _at("except Exception:"), "Thing.run", "Exception", "pass", "go()"),
    ]
    # An `except` alone catches a failed import too.
    assert _notes("optional") == [
        Note("optional", _at("import faster") - 4, "", "fast", "fast = None"),
        Note("optional", _at("import faster"), "", "faster", "pass"),
    ]
    assert _notes("deprecated") == [Note("deprecated", _at("warnings.warn"), "", "old() is deprecated, use new()")]
    assert _notes("requires") == [Note("requires", _at("assert torch"), "", "torch.cuda.is_available()", "needs CUDA")]
    assert _notes("abstract") == [Note("abstract", _at("class Thing"), "", "Thing", "must")]
    # register_buffer is torch's, and no registry.
    assert [(note.line, note.symbol, note.text) for note in _notes("registration")] == [
        (_at("@REG"), "Thing", "REGISTRY.register")
    ]


def test_c_files() -> None:
    found = c_signs('#include <cstdio>\n#include "a/b.cuh"\n// FIXME: wrong for odd sizes\nint x; // fine\n')
    assert found.imports == (Import("a/b.cuh", (), 2),)
    assert found.notes == (Note("todo", 3, "", "FIXME: wrong for odd sizes"),)
