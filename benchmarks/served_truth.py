"""Time of a token that engines were measured to take, against `lmp predict-serving`, row by row.

    python benchmarks/served_truth.py [../shared/data/calibration/e2e_example.csv] [--rows]
        [--configs ../shared/data/model_configs] [--results DIR]

Nothing is fitted to these rows. A row without a precision is taken to be in 16 bits, as the model's checkpoint is.
Errors are 100 * (predicted / measured - 1). No GPU is needed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options, class_of_config
from lmp.errors import LmpError
from lmp.observe.holding import hold
from lmp.predict.prediction import Predictor
from lmp.predict.serve.requests import Answer, Request, predicted, request_of
from lmp.predict.serve.setup import Servers, Sources

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
BANDS = ((1, 16), (17, 64), (65, 2**24))
"""Requests in flight, from and to."""


@dataclass(frozen=True)
class Compared:
    """One measured row, and what is predicted for it."""

    row: dict[str, str]
    request: Request
    answer: Answer | LmpError
    dense: bool

    @property
    def concurrency(self) -> int:
        return self.request.workload.concurrency

    @property
    def error(self) -> float | None:
        """Per cent; None where there is no prediction."""
        if not isinstance(self.answer, Answer):
            return None
        return 100 * (self.answer.served.tpot[0] / 1e3 / float(self.row["tpot_ms"]) - 1)

    @property
    def inside(self) -> bool:
        """Whether the measured time is in the 80 % interval."""
        if not isinstance(self.answer, Answer):
            return False
        _, low, high = self.answer.served.tpot
        return low <= 1e3 * float(self.row["tpot_ms"]) <= high


def request(row: dict[str, str]) -> Request:
    """What a row of the table asks for."""
    tp, ep = (int(float(row[name] or 1)) for name in ("tp_size", "moe_ep_size"))
    return request_of(
        {
            "model": row["model_path"],
            "device": row["gpu"].replace("_", "-"),
            "engine": row["backend"],
            "dtype": row["precision"] or "bfloat16",
            "tp": tp,
            "ep": max(1, ep),
            "pp": int(float(row["pp_size"] or 1)),
            "isl": int(row["isl"]),
            "osl": int(row["osl"]),
            "concurrency": int(float(row["concurrency"])),
            # A row that was measured fits.
            "force": True,
        }
    )


def compared(file: Path, configs: Path, results: Path) -> list[Compared]:
    """Every row of the file."""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    sources = sources_of(configs, results)
    requests = [request(row) for row in rows]
    answers = predicted(requests, Servers(sources, Predictor()))
    return [
        Compared(row, asked, answer, not any("experts" in w.path for w in sources.held(asked.setup.model).weights))
        for row, asked, answer in zip(rows, requests, answers, strict=True)
    ]


def sources_of(configs: Path, results: Path) -> Sources:
    """Models by their ids, from a folder of configs: org--name.json."""
    known: dict[tuple[str, str], object] = {}

    def once(what: str, make: Callable[[Options], object]) -> Callable[[str], object]:
        def called(name: str) -> object:
            if (what, name) not in known:
                file = configs / f"{name.replace('/', '--')}.json"
                known[what, name] = make(Options(results=results, config_file=file))
            return known[what, name]

        return called

    expanded = once("expanded", lambda o: expand_model(class_of_config(o), o, lambda *_: None).model)
    return Sources(expanded, once("held", lambda o: hold(None, o)))  # type: ignore[arg-type]


def groups(found: Sequence[Compared]) -> Iterator[tuple[str, list[Compared]]]:
    """The rows by kind of model, precision, engine and requests in flight."""
    names = dict.fromkeys((one.dense, one.row["precision"], one.row["backend"]) for one in found)
    for dense, precision, engine in [*dict.fromkeys((d, p, "all") for d, p, _ in names), *names]:
        for low, high in BANDS:
            own = [
                one for one in found
                if (one.dense, one.row["precision"]) == (dense, precision)
                and engine in ("all", one.row["backend"]) and low <= one.concurrency <= high
            ]  # fmt: skip
            if own:
                kind = f"{'dense' if dense else 'MoE':6}{precision or '16 bits':8}{engine:8}"
                band = f"{low} to {high}" if high < 2**24 else f"from {low}"
                yield f"{kind}{band:>9}", own


def print_groups(found: Sequence[Compared]) -> None:
    print("kind  dtype   engine  in flight  rows  median |error|  mean |error|  median error  in interval")
    for name, own in groups(found):
        errors = [one.error for one in own if one.error is not None]
        if not errors:
            print(f"{name}  {len(own):4}  no prediction")
            continue
        inside = mean(one.inside for one in own if one.error is not None)
        sizes = list(map(abs, errors))
        figures = f"{median(sizes):14.1f}  {mean(sizes):12.1f}  {median(errors):12.1f}  {inside:11.0%}"
        print(f"{name}  {len(errors):4}  {figures}")


def print_rows(found: Sequence[Compared]) -> None:
    print("engine  tp  isl  osl  in flight  measured ms  predicted ms  low  high  error %")
    for one in found:
        row, work = one.row, one.request.workload
        about = f"{row['backend']:7} {one.request.setup.tp:2} {work.isl:5} {work.osl:5} {work.concurrency:4}"
        if isinstance(one.answer, Answer):
            us, low, high = (value / 1e3 for value in one.answer.served.tpot)
            print(f"{about} {float(row['tpot_ms']):8.2f} {us:8.2f} {low:8.2f} {high:8.2f} {one.error:7.1f}")
        else:
            print(f"{about} {' '.join(str(one.answer).splitlines())}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=SHARED / "calibration" / "e2e_example.csv")
    parser.add_argument("--configs", type=Path, default=SHARED / "model_configs")
    parser.add_argument("--results", type=Path, default=ROOT / "analysis_results")
    parser.add_argument("--rows", action="store_true", help="print every row")
    given = parser.parse_args()
    found = compared(given.file, given.configs, given.results)
    if given.rows:
        print_rows(found)
    print_groups(found)


if __name__ == "__main__":
    main()
