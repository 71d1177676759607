"""``lmp calibrate``: fit the kernels' models to measured rows, or hold predictions against a user's own rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lmp.cli import options as o
from lmp.cli.devices import DevicesFile
from lmp.cli.output import note, write, write_json


@o.takes(..., "as_json", "quiet", "debug")
def calibrate(
    common: o.Common,
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Folder of tables of measured rows.")] = None,
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
) -> None:
    """Fit the kernels' models to measured rows, and print the error on sites held out.

    Example: lmp calibrate --check mine.csv, with columns op, device, us and an operator's fields.
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
        _check(check, devices_file, common.as_json)
        return
    assert data is not None
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


def _check(file: Path, devices_file: Path | None, as_json: bool) -> None:
    from lmp.predict.check import check
    from lmp.predict.devices import devices
    from lmp.predict.prediction import Predictor

    found = check(file, Predictor(devices(devices_file)))
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
