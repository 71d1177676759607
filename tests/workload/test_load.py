"""Import of the analysed classes: what an error at import says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmp.errors import TraceFailed
from lmp.workload.load import load_class


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('x = 1\nraise RuntimeError("boom\\nmore\\nand more")\n', "broken_at_import.py line 2: boom\n"),
        ("def f():\n    return 1 / 0\nf()\n", "broken_at_import.py line 2: division by zero\n"),
        ("raise ValueError\n", "broken_at_import.py line 1: ValueError\n"),
    ],
)
def test_an_error_at_import_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    (tmp_path / "broken_at_import.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TraceFailed) as caught:
        load_class("broken_at_import.Block")
    assert message in str(caught.value)
    assert str(caught.value).splitlines()[1:] == ["mend what `python -c 'import broken_at_import'` shows"]
