"""The files of a calibration: one for each family, with the summary of its errors and its provenance."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from lmp.predict import calibration as store
from lmp.predict.fit.calibrate import Fitted, Result
from lmp.predict.fit.data import Tables
from lmp.predict.fit.summary import summary
from lmp.store.files import write_whole

SOURCE = "https://github.com/ai-dynamo/aiconfigurator"
STATE = "commit 095f58a51c4ca8e61b66ec108d86f223f8d559ce, 2026-08-21"
LICENCE = "Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES"


def write_calibration(result: Result, tables: Tables, folder: Path, seeds: Sequence[int]) -> list[Path]:
    """One file for each family; files are written whole."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    provenance = {
        "source": SOURCE,
        "state": STATE,
        "licence": LICENCE,
        "fitted": date,
        "seeds": list(seeds),
    }
    families: dict[str, list[Fitted]] = defaultdict(list)
    for one in result.fitted:
        families[one.slot.family].append(one)
    written = []
    for family, all_of in families.items():
        used = sorted({f"{one.held.measured.table}.parquet" for one in all_of})
        sha = {name: tables.sha256[name] for name in used}
        dropped = {name: tables.dropped[name] for name in used if name in tables.dropped}
        data = {
            "schema": store.SCHEMA,
            "id": f"{family}-{date}-{hashlib.sha256(json.dumps(sha).encode()).hexdigest()[:8]}",
            "family": family,
            "provenance": {**provenance, "sha256": sha, "dropped": dropped},
            "summary": summary(Result(all_of, [r for r in result.left_out if r["family"] == family])),
            "slots": [
                *(one.slot.as_json() for one in all_of),
                *(slot.as_json() for slot in result.joint if slot.family == family),
            ],
        }
        path = folder / f"{family}.json"
        write_whole(path, json.dumps(data, separators=(",", ":")) + "\n")
        written.append(path)
    return written
