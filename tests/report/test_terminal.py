"""Tables that fit a terminal: what is cut, what is dropped, and that it is said."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lmp.report.terminal import GLUE, Column, Line, bar, cut, fitted, wrapped

COLUMNS = (Column("share", "share", 9), Column("flops", "FLOPs", 8), Column("read", "read", 1))
ROWS = [Line("model.layers.0.self_attn.q_proj", ["49.4%", "138.5 GFLOP", "8.711 GB"], indent=2)]


def test_the_middle_of_a_name_is_cut() -> None:
    # 12 cells: one for the sign; of the other 11 a third, 3, at the front and 8 at the end.
    assert cut("model.layers.0.q_proj", 12) == "mod…0.q_proj"
    assert cut("q_proj", 6) == "q_proj"


def test_a_number_stays_with_its_unit() -> None:
    assert wrapped(f"FLOPs 319.6{GLUE}GFLOP a step", 14) == ["FLOPs", "319.6 GFLOP a", "step"]


@pytest.mark.parametrize(
    ("share", "blocks"), [(None, 0), (Fraction(0), 0), (Fraction(1, 20), 0), (Fraction(1, 2), 4), (Fraction(1), 8)]
)
def test_a_bar_has_eight_blocks(share: Fraction | None, blocks: int) -> None:
    assert bar(share) == "█" * blocks


def test_all_fits_a_wide_terminal() -> None:
    found = fitted("module", COLUMNS, ROWS, 80)
    assert (found.hidden, found.cut, found.notes()) == ((), False, [])
    assert found.lines[1].plain == "  model.layers.0.self_attn.q_proj  49.4%  138.5 GFLOP  8.711 GB"


def test_the_least_important_column_goes_first_and_is_named() -> None:
    # 31 + 2 cells of the name; 5, 11 and 8 of the columns, each with a gap of 2: 63 in all, 53 without the last.
    assert fitted("module", COLUMNS, ROWS, 63).hidden == ()
    # A third of 39 is 13 cells for the name, and 39 - 30 are 9.
    found = fitted("module", COLUMNS, ROWS, 39)
    assert found.hidden == ("read",)
    assert found.notes()[0] == "1 column hidden: read; --columns all shows all"
    assert "names are cut in the middle" in found.notes()[1]
    assert max(len(line.plain) for line in found.lines) <= 39


def test_numbers_are_whole_even_where_the_terminal_is_narrow() -> None:
    for width in range(16, 64):
        row = fitted("module", COLUMNS, ROWS, width).lines[1].plain
        assert "49.4%" in row
        assert len(row) <= width
        assert ("138.5 GFLOP" in row) or ("138.5" not in row)


def test_what_is_asked_for_stays() -> None:
    found = fitted("module", COLUMNS, ROWS, 20, ["flops", "read"])
    assert found.hidden == ()
    assert found.lines[1].plain.endswith("138.5 GFLOP  8.711 GB")


def test_the_figure_of_the_shares_is_dropped_last() -> None:
    columns = [Column("flops", "FLOPs", 80), Column("bytes", "bytes", 85)]
    rows = [Line("a module", ["1.000 GFLOP", "2.000 GB"])]
    # 20 columns: 8 for the name, 2 + 8 for one figure of bytes; 2 + 11 more do not fit.
    assert fitted("module", columns, rows, 20).hidden == ("flops",)


def test_a_column_is_kept_where_names_may_be_cut_further() -> None:
    columns = [Column(name, name, 50) for name in ("one", "two", "six")]
    rows = [Line("n" * 40, ["1" * 8] * 3)]
    # Three columns of 2 + 8 leave 30 of 60 for the name. Half of the width is 30, the whole is 60.
    assert fitted("name", columns, rows, 60, part=2).hidden == ()
    assert fitted("name", columns, rows, 60, part=1).hidden == ("one",)


def test_the_end_of_a_name_stays_whole() -> None:
    name = "grouped matrix multiplication experts:379"
    (_, line) = fitted("operator", [], [Line(name, [], end=" experts:379")], 30).lines
    # 30 cells: 12 of " experts:379", and 18 of the operator, whose last is the ellipsis.
    assert line.plain == "grouped matrix mu… experts:379"
