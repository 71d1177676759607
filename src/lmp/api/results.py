"""What an analysis and an evaluation give: their records, frames and files."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.api.words import in_api_words
from lmp.errors import UsageError
from lmp.formula import Number, number_text
from lmp.link.values import CALL
from lmp.records import short

if TYPE_CHECKING:
    import pandas

    from lmp.link.numbers import ModelNumbers
    from lmp.link.records import EvaluatedTotals, Evaluation
    from lmp.records import ModelAnalysis, ModuleAnalysis

Size = int | Fraction | Decimal | float | str


@dataclass(frozen=True, repr=False)
class Evaluated:
    """Costs of one call of a module at one point, exact: FLOPs are scalar operations, the rest bytes.

    Bytes are ints, or Fractions where those of an element are a fraction and the sum is no whole number.
    """

    record: Evaluation
    """The complete record, as ``lmp evaluate --json`` prints it."""

    def __repr__(self) -> str:
        totals = self.totals
        at = ", ".join(f"{name}={number_text(value)}" for name, value in self.values.items() if name in CALL)
        moved = f"{shown(totals.read, 'B')} read, {shown(totals.write, 'B')} written"
        return f"<Evaluated {short(self.record.class_name)} at {at}: {shown(totals.flops, 'FLOP')}, {moved}>"

    @property
    def totals(self) -> EvaluatedTotals:
        """Sums over all kernels, in scalar operations, bytes and elements.

        ``flops`` and ``matmul_flops`` count scalar operations. ``read``, ``write`` and ``compulsory`` are bytes, and
        ``parameters_count`` counts elements.
        """
        return self.record.totals

    @property
    def values(self) -> dict[str, int | Fraction]:
        """The value of every variable at this point. Bytes of an element may be a fraction, all others are ints."""
        return self.record.values

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel, in execution order.

        Columns: ``path`` of the module, ``class_name``, ``line``, ``operation``, ``category``, ``repeat``, and for one
        execution ``flops`` (scalar operations), ``read`` and ``write`` (bytes). Integers of any size and Fractions are
        Python objects.

        Raises UsageError if pandas is not installed.
        """
        columns = ("path", "class_name", "line", "operation", "category", "repeat", "flops", "read", "write")
        return frame([{name: getattr(kernel, name) for name in columns} for kernel in self.record.kernels])

    def to_json(self) -> str:
        """The record as JSON, by the schema ``evaluation``."""
        return self.record.model_dump_json(indent=2) + "\n"


@dataclass(frozen=True, repr=False)
class Analysis:
    """Costs of each line of a ``forward()`` as formulas, with the analyses of the classes that it refers to."""

    record: ModuleAnalysis | ModelAnalysis
    """The analysis as stored in its file: ``kernels``, ``parameters``, ``assumptions``, ``verification`` and more."""
    parts: Mapping[str, ModuleAnalysis] = field(default_factory=dict, repr=False)
    """Class path -> its analysis, for every referenced class."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Distribution -> the folder of the quoted sources."""

    def __repr__(self) -> str:
        return f"<Analysis of {self.class_name}: {len(self.record.kernels)} kernels, {self.status}>"

    @property
    def class_name(self) -> str:
        """The path of the class under its defining module."""
        return self.record.class_name

    @property
    def status(self) -> str:
        """``verified``: at every executed point, each line's formulas equal the counted amounts.

        For any other status ``record.verification`` has the reason.
        """
        return self.record.verification.status

    @in_api_words()
    def evaluate(
        self,
        batch_size: int | None = None,
        seq_len: int | None = None,
        cache_len: int = 0,
        *,
        w_bytes: Size | None = None,
        a_bytes: Size | None = None,
        kv_bytes: Size | None = None,
        **values: int,
    ) -> Evaluated:
        """Evaluate the formulas at one point.

        The point has ``batch_size`` sequences of ``seq_len`` new tokens each, after ``cache_len`` cached ones.
        ``w_bytes`` and ``a_bytes`` are the bytes of a weight and of an activation element; the default is the analysed
        dtype's. ``kv_bytes`` are those of an element of the KV cache; the default is ``a_bytes``. Each is an int, a
        Fraction, a Decimal, a text such as ``"17/32"``, or a float, which means its shortest decimal text.
        ``values`` are other variables of ``record.parameters``. They are the module's own sizes, with the analysed
        values as defaults, and dimensions that ``inputs`` names.

        Raises UsageError for an unknown name, a missing value, or bytes that are not positive and finite;
        EvaluationError if a formula has no value.
        """
        from lmp.link.values import exact_size, values_for

        width = {"float32": 4, "float64": 8}.get(self.record.dtype, 2)
        given = {"batch_size": batch_size, "seq_len": seq_len, **values}
        named = {name: value for name, value in given.items() if value is not None}
        given_sizes = {"w_bytes": w_bytes, "a_bytes": a_bytes, "kv_bytes": kv_bytes}
        sizes = {name: exact_size(name, size) for name, size in given_sizes.items() if size is not None}
        defaults = {"w_bytes": width, "a_bytes": width}
        numbers = self._numbers if w_bytes is None else self._plain_numbers
        at = values_for(numbers.model, {**named, "cache_len": cache_len, **defaults, **sizes})
        return Evaluated(numbers.evaluation(at))

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel, with its formulas as text.

        Columns: ``path``, ``line``, ``operation``, ``category``, ``repeat``, ``flops`` (scalar operations), ``read``
        and ``write`` (bytes). For a module call the three formulas are references. In an expanded model they are empty,
        and the inner kernels follow.

        Raises UsageError if pandas is not installed.
        """
        return frame(list(_rows(self.record.kernels)))

    def to_json(self) -> str:
        """The record as JSON, by the schema ``module_analysis`` or ``model_analysis``."""
        from lmp.store.results import to_text

        return to_text(self.record)

    @in_api_words()
    def save(self, results: str | Path) -> Path:
        """Write the analysis, and the referenced ones, to a results folder, and return its file.

        The layout is that of the command line: ``RESULTS/<class>/module_analysis.json``. Raises StorageError if the
        folder is not writable.
        """
        from lmp.store.results import Store

        store = Store(Path(results))
        for part in self.parts.values():
            store.save(part)
        return _saved(store, self.record)

    @functools.cached_property
    def _numbers(self) -> ModelNumbers:
        """The formulas with the bytes of the config's checkpoint, parsed once for all evaluations."""
        from lmp.link.numbers import ModelNumbers
        from lmp.link.quantised import with_own_bytes

        return ModelNumbers(with_own_bytes(self._plain_numbers.model))

    @functools.cached_property
    def _plain_numbers(self) -> ModelNumbers:
        """The formulas in which every weight has ``w_bytes``."""
        from lmp.link.numbers import ModelNumbers

        return ModelNumbers(self.linked())

    def linked(self) -> ModelAnalysis:
        """The model with every called module in place."""
        from lmp.link.link import link
        from lmp.records import ModelAnalysis

        return self.record if isinstance(self.record, ModelAnalysis) else link(self.record, self._part)

    def _part(self, class_path: str) -> ModuleAnalysis:
        return self.parts[class_path]


def _rows(kernels: Sequence[Any], above: str = "") -> Iterator[dict[str, Any]]:
    for kernel in kernels:
        memory = kernel.memory_access
        yield {
            "path": kernel.path or above,
            "line": kernel.line,
            "operation": kernel.operation,
            "category": kernel.category,
            "repeat": kernel.repeat,
            "flops": kernel.flops,
            "read": memory.read if memory is not None else None,
            "write": memory.write if memory is not None else None,
        }
        yield from _rows(getattr(kernel, "kernels", ()), kernel.path or above)


def frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> pandas.DataFrame:
    """A DataFrame of rows, or of columns. Raises UsageError if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise UsageError("a DataFrame needs pandas, which is not installed\ninstall it: pip install pandas") from error
    return pandas.DataFrame(rows)


def shown(amount: Number, unit: str) -> str:
    """An amount with three digits and a prefix: ``16.4 GB``."""
    value = float(amount)
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _saved(store: Any, record: Any) -> Path:
    from lmp.records import ModelAnalysis

    file: Path = store.save_model(record) if isinstance(record, ModelAnalysis) else store.save(record)
    return file
