"""``lmp calibrate``: fit the kernels' models to measured rows, or hold predictions against a user's own rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmp.cli import options as o
from lmp.cli.devices import CalibrationFolder, DevicesFile, predictor_of
from lmp.cli.output import note, write, write_json

if TYPE_CHECKING:
    from lmp.predict.prediction import Predictor


@o.takes(..., "as_json", "quiet", "debug")
def calibrate(
    common: o.Common,
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="Folder of tables of measured rows, or your own ROWS.csv.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="ROWS.csv", help="Compare these measured rows with predictions.")
    ] = None,
    write_to: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write parameters and trees here [default: nowhere].")
    ] = None,
    families: Annotated[
        str | None, typer.Option("--families", metavar="NAMES", help="Fit these alone, separated by commas.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=20, help="Draws of the held-out sites.")] = 3,
    stated: Annotated[
        bool, typer.Option("--stated", help="Print the errors of the calibration that lmp ships, and fit nothing.")
    ] = False,
    devices_file: DevicesFile = None,
    calibration: CalibrationFolder = None,
) -> None:
    """Fit the kernels' models to measured rows, and print the error on sites held out.

    Example: lmp calibrate --check mine.csv, with columns op, device, us and an operator's fields.
    `lmp calibrate mine.csv --write DIR` fits kernels again of which it has 64 shapes; use it with --calibration DIR.
    A whole fit takes minutes and needs lmp[calibrate].
    """
    from lmp.errors import UsageError

    if (data is not None) + (check is not None) + stated != 1:
        raise UsageError(
            "give one of DATA, --check ROWS.csv and --stated\nDATA is a folder of tables; see docs/prediction.md"
        )
    if stated:
        _stated()
        return
    if check is not None:
        _check(check, predictor_of(devices_file, calibration), common.as_json)
        return
    assert data is not None
    if data.is_file():
        _refit(data, predictor_of(devices_file, calibration), write_to, common.as_json)
        return
    from lmp.predict.fit.calibrate import calibrate as fit
    from lmp.predict.fit.data import of_families, read_tables
    from lmp.predict.fit.summary import summary, text_of
    from lmp.predict.fit.writing import write_calibration

    tables = of_families(read_tables(data), families.split(",") if families else None)
    drawn = tuple(range(1, seeds + 1))
    result = fit(tables, drawn, (lambda _: None) if common.quiet else note)
    if write_to is not None:
        write_calibration(result, tables, write_to, drawn)
    made = summary(result)
    if common.as_json:
        write_json({**made, "seeds": drawn, "sha256": tables.sha256, "dropped": tables.dropped})
    else:
        write(text_of(made, drawn, tables.dropped))


def _stated() -> None:
    from lmp.predict.calibration import FOLDER
    from lmp.predict.fit.summary import text_of_files

    write(text_of_files(sorted(FOLDER.glob("*.json"))))


def _refit(file: Path, predictor: Predictor, write_to: Path | None, as_json: bool) -> None:
    from lmp.predict.fit.refit import refit, write_refits

    found = refit(file, predictor)
    if write_to is not None:
        write_refits(found, write_to)
    rows = [
        {"family": r.slot.family, "device": r.slot.device, "variant": r.slot.variant, "from": r.base, "rows": r.rows,
         "shapes": r.shapes, "mape_before": round(r.before, 2), "mape_held_out": round(r.after, 2)}
        for r in found.found
    ]  # fmt: skip
    if as_json:
        write_json({"refits": rows, "refused": found.refused, "dropped": found.dropped})
        return
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console

    table = Table(box=None, pad_edge=False)
    for column in ("kernel", "from"):
        table.add_column(column)
    for column in ("rows", "shapes", "MAPE % before", "held out"):
        table.add_column(column, justify="right")
    for r in found.found:
        name = f"{r.slot.family} {r.slot.variant} {r.slot.device}"
        table.add_row(Text(name), r.base, str(r.rows), str(r.shapes), f"{r.before:.1f}", f"{r.after:.1f}")
    console().print(table)
    for text in found.refused:
        note(f"not fitted: {text}")
    for reason, count in found.dropped.items():
        note(f"dropped {count} rows: {reason}")
    if write_to is None:
        note("nothing is written; --write DIR keeps it, and --calibration DIR uses it")


def _check(file: Path, predictor: Predictor, as_json: bool) -> None:
    from lmp.predict.check import check

    found = check(file, predictor)
    if as_json:
        write_json({"errors": [asdict(error) for error in found.errors], "dropped": found.dropped})
        return
    from rich.table import Table
    from rich.text import Text

    from lmp.cli.tables import console

    table = Table(box=None, pad_edge=False)
    table.add_column("rows of")
    for column in ("rows", "MAPE %", "median %", "bias %", "in interval %"):
        table.add_column(column, justify="right")
    for e in found.errors:
        table.add_row(
            Text(e.what), str(e.rows), f"{e.mape:.1f}", f"{e.median:.1f}", f"{e.bias:+.1f}", f"{e.covered:.0f}"
        )
    console().print(table)
    for reason, count in found.dropped.items():
        note(f"dropped {count} rows: {reason}")
