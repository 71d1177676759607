"""A model with the weights of its quantised checkpoint: formulas in which each module has its own bytes.

The result is an analysis as any other: what evaluates, exports or compares one needs to know nothing of quantisation.
Only weights change. Activations, and the operators that run, stay those of the model as it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lmp.errors import FormulaError
from lmp.formula import (
    Expr,
    Polynomial,
    Var,
    add,
    as_polynomial,
    equal,
    evaluate,
    free_variables,
    from_polynomial,
    mul,
    num,
    parse,
    simplify,
    to_text,
    var,
)
from lmp.link.quantisation import LINEAR, Scheme, Storage, is_experts, scheme_of
from lmp.records import MATMUL_CATEGORIES, MemoryAccess, ModelAnalysis, ModelKernel, short

MAX_LAYERS = 10_000
"""Layers of a list that are looked at one by one; those of a longer one are taken to be alike, with a warning."""

PLAIN = "its weights are evaluated at w_bytes"


def with_own_bytes(model: ModelAnalysis) -> ModelAnalysis:
    """The model with the bytes of its checkpoint's `quantization_config`; as it is where it has none.

    What could not be done is a sentence in ``quantization.warnings``.
    """
    said = model.quantization
    scheme = None if said is None or said.applied is not None else scheme_of(said.config)
    if said is None or scheme is None:
        return model
    if scheme.problem is None and not said.whole:
        problem = f"{short(model.class_name)} is not the model that the config is of, whose quantized modules it names"
        scheme = Scheme(scheme.method, problem=problem)
    if scheme.problem is not None:
        return _warned(model, [f"{scheme.problem}: {PLAIN}"])
    found = _Conversion(model, scheme)
    kernels = found.kernels(model.kernels, "", model.class_name, num(1))
    if not found.changes:
        return _warned(model, [*found.warnings(), *_nothing(scheme)])
    totals = model.totals.model_copy(update={"read": _changed(model.totals.read, found.changes)})
    compulsory = model.compulsory
    if compulsory is not None:
        compulsory = MemoryAccess(read=_changed(compulsory.read, found.changes), write=compulsory.write)
    about = said.model_copy(update={"applied": scheme.method, "warnings": found.warnings()})
    update = {"kernels": kernels, "totals": totals, "compulsory": compulsory, "quantization": about}
    return model.model_copy(update=update)


def _warned(model: ModelAnalysis, warnings: list[str]) -> ModelAnalysis:
    assert model.quantization is not None
    return model.model_copy(update={"quantization": model.quantization.model_copy(update={"warnings": warnings})})


def _nothing(scheme: Scheme) -> Iterator[str]:
    if scheme.rules:
        yield f"the quantization_config ({scheme.method}) converts no module of the model: {PLAIN}"


def _changed(text: str, changes: Sequence[Expr]) -> str:
    return to_text(simplify(add(parse(text), *changes)))


@dataclass
class _Conversion:
    """One walk through the kernels of a model."""

    model: ModelAnalysis
    scheme: Scheme
    changes: list[Expr] = field(default_factory=list)
    """Bytes that are read more than at w_bytes, in one call of the model."""
    _own_weights: dict[str, None] = field(default_factory=dict)
    """Lines that multiply by a weight in a class that is not known to be converted."""
    _mixed: dict[str, None] = field(default_factory=dict)
    """Layers that stand together and are not all converted alike."""

    def warnings(self) -> list[str]:
        found = []
        if self._own_weights:
            places = ", ".join(self._own_weights)
            found.append(
                f"weights that are read outside of a linear layer's own call are counted at w_bytes, even if the "
                f"checkpoint has them quantized: {places}"
            )
        if self._mixed:
            names = ", ".join(self._mixed)
            found.append(f"layers are quantized differently, and it is not known which they are: {names} stand for all")
        return found

    def kernels(self, kernels: Sequence[ModelKernel], path: str, class_name: str, runs: Expr) -> list[ModelKernel]:
        """The kernels of a module at a path, each with the bytes of its weights."""
        storage = self.scheme.storage(path, class_name)
        found = []
        for kernel in kernels:
            if kernel.flops is None or kernel.memory_access is None:
                for called in self._by_treatment(kernel, kernels):
                    below, times = called.path or "", runs * _repeat(called)
                    inner = self.kernels(called.kernels, below, called.class_name or class_name, times)
                    found.append(called.model_copy(update={"kernels": inner}))
            else:
                found.append(self._converted(kernel, class_name, path, storage, runs))
        return found

    # -- one operator --------------------------------------------------------------------------------------------------

    def _converted(
        self, kernel: ModelKernel, class_name: str, path: str, storage: Storage | None, runs: Expr
    ) -> ModelKernel:
        access = kernel.memory_access
        assert access is not None
        if kernel.category not in MATMUL_CATEGORIES or "{w_bytes}" not in access.read:
            return kernel
        if storage is None:
            known = class_name in LINEAR or is_experts(path) or self.scheme.skipped(path, class_name)
            if not known and any(rule.linear for rule in self.scheme.rules):
                self._own_weights[f"{short(class_name)} line {kernel.line}"] = None
            return kernel
        read = _with_storage(kernel, class_name in LINEAR, storage)
        if read is None:
            self._own_weights[f"{short(class_name)} line {kernel.line}"] = None
            return kernel
        self.changes.append(mul(runs, _repeat(kernel), read - parse(access.read)))
        return kernel.model_copy(update={"memory_access": MemoryAccess(read=to_text(read), write=access.write)})

    # -- layers that stand once ----------------------------------------------------------------------------------------

    def _by_treatment(self, kernel: ModelKernel, siblings: Sequence[ModelKernel]) -> list[ModelKernel]:
        """The call itself, or one call for each way in which the layers that it stands for are converted."""
        folder, _, own = (kernel.path or "").rpartition(".")
        if not own.isdigit():
            return [kernel]
        alike = [k for k in siblings if k.path is not None and _is_layer_of(k.path, folder)]
        counts = [self._count(k) for k in alike]
        if None in counts:
            return [kernel]
        if sum(count or 0 for count in counts) > MAX_LAYERS:
            self._mixed[kernel.path or ""] = None
            return [kernel]
        places = _places([(_index(k), count or 0) for k, count in zip(alike, counts, strict=True)])
        indices = places.get(int(own)) if places is not None else range(sum(count or 0 for count in counts))
        ways: dict[tuple[Storage | None, ...], list[int]] = {}
        for index in indices or ():
            ways.setdefault(self._treatment(_moved(kernel, folder, index)), []).append(index)
        if len(ways) < 2:
            return [kernel]
        if places is None:
            self._mixed[kernel.path or ""] = None
            return [kernel]
        main = max(ways.values(), key=len)
        split = []
        for group in ways.values():
            others = sum(map(len, ways.values())) - len(group)
            repeat = to_text(simplify(_repeat(kernel) - others)) if group is main else len(group)
            split.append(_moved(kernel, folder, group[0]).model_copy(update={"repeat": repeat}))
        return split

    def _count(self, kernel: ModelKernel) -> int | None:
        """How often a layer runs at the model's config; None if that is not known."""
        try:
            return evaluate(_repeat(kernel), self.model.values)
        except FormulaError:
            return None

    def _treatment(self, kernel: ModelKernel) -> tuple[Storage | None, ...]:
        inner = [self._treatment(k) for k in kernel.kernels if k.flops is None]
        own = self.scheme.storage(kernel.path or "", kernel.class_name or "")
        return (own, *(storage for found in inner for storage in found))


def _repeat(kernel: ModelKernel) -> Expr:
    return num(kernel.repeat) if isinstance(kernel.repeat, int) else parse(kernel.repeat)


def _is_layer_of(path: str, folder: str) -> bool:
    head, _, index = path.rpartition(".")
    return head == folder and index.isdigit()


def _index(kernel: ModelKernel) -> int:
    return int((kernel.path or "").rpartition(".")[2])


def _places(layers: Sequence[tuple[int, int]]) -> dict[int, range] | None:
    """First index -> all indices of the layers that are alike; None if kinds of layers alternate.

    ``layers`` are first indices and counts. If each kind begins where the one before it ends, no kind is in another.
    """
    found, following = {}, None
    for first, count in sorted(layers):
        if following not in (None, first):
            return None
        found[first], following = range(first, first + count), first + count
    return found


def _moved(kernel: ModelKernel, folder: str, index: int) -> ModelKernel:
    """The call as that of another layer of the list: its path and id, and those of all that is in it."""
    old = kernel.path or ""
    new = f"{folder}.{index}"
    if old == new:
        return kernel
    moved = _renamed(kernel, old, new)
    return moved if kernel.id is None else _with_ids(moved, kernel.id, f"{kernel.id}/{index}")


def _with_ids(kernel: ModelKernel, old: str, new: str) -> ModelKernel:
    """The kernel with the ids in a call replaced, also where they are sources. Sources outside of the call stay."""

    def moved(number: str) -> str:
        return new + number[len(old) :] if number == old or number.startswith(f"{old}.") else number

    update = {
        "id": None if kernel.id is None else moved(kernel.id),
        "inputs_from": [moved(source) for source in kernel.inputs_from],
        "kernels": [_with_ids(inner, old, new) for inner in kernel.kernels],
    }
    return kernel.model_copy(update=update)


def _renamed(kernel: ModelKernel, old: str, new: str) -> ModelKernel:
    path = kernel.path
    if path is not None and (path == old or path.startswith(f"{old}.")):
        path = new + path[len(old) :]
    return kernel.model_copy(update={"path": path, "kernels": [_renamed(k, old, new) for k in kernel.kernels]})


# --- the bytes of a product's weights --------------------------------------------------------------------------------


def _with_storage(kernel: ModelKernel, linear: bool, storage: Storage) -> Expr | None:
    """The bytes that a matrix product reads, with its weights as they are stored; None if they cannot be told apart.

    A product of r rows with a weight of n outputs and k inputs has 2 r n k FLOPs, reads r k and writes r n activations.
    So k is FLOPs / (2 * written), and n is written * k / read. One of experts reads that many weights for each expert.
    """
    access = kernel.memory_access
    assert access is not None
    assert kernel.flops is not None
    flops, read, write = parse(kernel.flops), as_polynomial(parse(access.read)), as_polynomial(parse(access.write))
    weights, rest = _coefficient(read, "w_bytes")
    taken = next((found for name in ("a_bytes", "kv_bytes") if (found := _coefficient(read, name)[0])), None)
    written = _coefficient(write, "a_bytes")[0]
    if not weights or not taken or not written or "w_bytes" in free_variables(from_polynomial(rest)):
        return None
    count, a, o = from_polynomial(weights), from_polynomial(taken), from_polynomial(written)
    columns = simplify(flops / (2 * o))
    rows = simplify(o * columns / a)
    matrix = rows * columns
    if not linear:
        stored = simplify(count / matrix) * storage.formula(rows, columns)
        return simplify(add(from_polynomial(rest), stored))
    bias = None if equal(count, matrix) else rows
    if bias is not None and not equal(count, matrix + bias):
        return None
    plain = num(0) if bias is None else bias * var("w_bytes")
    return simplify(add(from_polynomial(rest), storage.formula(rows, columns), plain))


def _coefficient(polynomial: Polynomial, name: str) -> tuple[Polynomial, Polynomial]:
    """What a name is multiplied with, and the other terms."""
    size = Var(name)
    with_it: Polynomial = {}
    without: Polynomial = {}
    for monomial, coefficient in polynomial.items():
        if (size, 1) in monomial:
            with_it[tuple(power for power in monomial if power != (size, 1))] = coefficient
        else:
            without[monomial] = coefficient
    return with_it, without
