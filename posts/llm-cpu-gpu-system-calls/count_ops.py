"""Count what torch's dispatcher runs in one decode step of decode.py's model: the operators that compute or copy.

On a GPU each of them is at least one launch. Operators that return a view of their argument launch nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))
import decode  # noqa: E402

SHOWN = 8


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.working: Counter[str] = Counter()
        self.views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func._schema.returns
        is_view = bool(returned) and returned[0].alias_info is not None and not returned[0].alias_info.is_write
        if is_view or func._schema.name.endswith("_unsafe_view"):
            self.views += 1
        else:
            self.working[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def main() -> None:
    sys.argv = ["decode.py"]
    options = decode.arguments()
    with torch.inference_mode():
        run = decode.Run(decode.build(options), options, 1)
        run.forward()
        with Counting() as seen:
            run.forward()
    print(f"operators that compute or copy: {seen.working.total()}")
    print(f"views: {seen.views}")
    for name, count in seen.working.most_common(SHOWN):
        print(f"  {name:<44} {count}")


if __name__ == "__main__":
    main()
