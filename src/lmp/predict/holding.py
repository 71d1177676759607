"""What a model holds in memory, from its formulas and their operands alone: no torch, no run of the model.

`lmp.observe.holding` builds the model and is exact. This is for answers within a second: weights are the operands that
lines read, the cache is what a next token reads, activations are tensors that later lines still need.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lmp.dtypes import WORDS
from lmp.errors import LmpError, UsageError, first_line
from lmp.formula import Number, evaluate_exact, read_number
from lmp.link.held import weight_bytes
from lmp.link.numbers import ModelNumbers
from lmp.link.quantisation import LINEAR, Scheme, is_experts
from lmp.link.records import EvaluatedKernel, Evaluation
from lmp.link.sweep import plan as points
from lmp.observe.held import Held, KeptLayer, Live, Weight
from lmp.predict.least import least_traffic, looks_up
from lmp.predict.rewrite.graph import Graph
from lmp.predict.rewrite.rewriting import rewritten
from lmp.predict.screen.asking import Subject
from lmp.predict.shard.parallel import ONE, Parallel
from lmp.predict.shard.records import collective_of
from lmp.records import Operand

LENGTHS = (5, 20_011)
"""Tokens in the cache of the two calls from which its parts are told: below any window, and above it."""
PART_OF_A_MODEL = "the class is a part of a model"
REST = "(read by no line of the call)"
"""Path of the weights that no operand stands for: of another modality, scales, a norm that is folded."""
MOST_BUFFERS = Fraction(1, 100)
"""Part of the parameters up to which weights that are no parameters are taken for buffers."""
LAST_ROWS = ("last_token_logits",)


def held_by_formulas(subject: Subject, given: Mapping[str, Number], tp: int = 1) -> Held | str:
    """What the model holds; or why its formulas do not tell.

    ``given`` are values in place of the config's; sizes of a call and bytes of an element have no effect. ``tp``: above
    1, which weights are divided is worked out.
    """
    model = subject.model
    if "vocab_size" not in {**model.parameters, **model.values}:
        return PART_OF_A_MODEL
    if "cache_len" not in model.parameters:
        return "the model has no KV cache in its formulas: `lmp memory` runs it"
    try:
        return _held(subject, {name: value for name, value in given.items() if name in model.values}, tp)
    except LmpError as error:
        return first_line(error)


def _held(subject: Subject, given: Mapping[str, Number], tp: int) -> Held:
    model, numbers = subject.model, subject.own
    calls = [{**given, "batch_size": 1, "seq_len": 1, "cache_len": length} for length in LENGTHS]
    made = [_evaluation(subject.plain, call) for call in calls]
    few, many = (one.kernels for one in made)
    values = _values(numbers, calls[1])
    _refuse_what_is_missed(subject.plain, calls, made)
    scheme = subject.scheme({})
    size = _element_size(model.dtype)
    read = _weights(many, scheme, size)
    whole = weight_bytes(numbers, values, model)
    count = numbers.quantities.get("parameters_count")
    if whole is None or count is None:
        raise UsageError("the analysis has no formula of the parameters\nrun `lmp memory`")
    parameters = int(evaluate_exact(count, values))
    weights = _with_rest(read, parameters, Fraction(whole))
    return Held(
        class_name=model.class_name,
        dtype=model.dtype,
        element_size=size,
        quantised=None if scheme is None else scheme.method,
        weights=tuple(weights),
        kept=tuple(_kept(few, many)),
        reason=None,
        part="",
        # Of several sequences, as most calls have: how a model divides is worked out once for both.
        plan={} if tp == 1 else _divided(subject, _values(numbers, {**calls[1], "batch_size": 2}), tp),
        config={**_config(subject), **given},
        vision=None,
        warnings=(),
        live=functools.partial(_live, subject.plain, given),
    )


def _refuse_what_is_missed(
    numbers: ModelNumbers, calls: Sequence[Mapping[str, Number]], made: Sequence[Evaluation]
) -> None:
    """Raise UsageError if the cache holds more than operands show: states, or indices beside keys and values.

    The proven least traffic reads each of them once. A weight that two lines share is counted twice here, so that more
    than the proven figure is no loss; but the cache has to grow as it does there.
    """
    proven, found = [], []
    for call, own in zip(calls, made, strict=True):
        compulsory = own.totals.compulsory
        if compulsory is None:
            raise UsageError("the analysis has no formula of the least traffic\nrun `lmp memory`")
        proven.append(Fraction(read_number(compulsory)))
        found.append(least_traffic(own.kernels, _values(numbers, call)))
    if found[1] < proven[1] or found[1] - found[0] != proven[1] - proven[0]:
        raise UsageError("its cache holds more than operands show: `lmp memory` runs the model\nrun `lmp memory`")


def _values(numbers: ModelNumbers, given: Mapping[str, Number]) -> dict[str, Number]:
    return points(numbers.model, {name: (value,) for name, value in given.items()}, 1).fixed


def _evaluation(numbers: ModelNumbers, given: Mapping[str, Number]) -> Evaluation:
    values = _values(numbers, given)
    return numbers.evaluation(values, numbers.tree(values))


def _element_size(dtype: str) -> int:
    return int(WORDS[dtype].weights) if dtype in WORDS else 2


def _config(subject: Subject) -> dict[str, Any]:
    """Values of the text part's config, and under the names that all configs have."""
    content = dict(subject.config or {})
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(content.get(name), Mapping):
            content = {**content, **content[name]}
    values = dict(subject.model.values)
    usual: dict[str, Any] = {"num_attention_heads": values["num_heads"]} if "num_heads" in values else {}
    if "rope_theta" in content and not content.get("rope_parameters"):
        usual["rope_parameters"] = {"rope_theta": content["rope_theta"], **(content.get("rope_scaling") or {})}
    return {**content, **values, **usual}


# --- weights ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """A weight that a line reads, as often as layers have their own."""

    weight: Weight
    times: int


def _weights(kernels: Sequence[EvaluatedKernel], scheme: Scheme | None, size: int) -> list[_Read]:
    found: list[_Read] = []
    for kernel in kernels:
        for operand in _operands(kernel, "weight"):
            if operand.width == "w":
                found.append(_Read(_weight(kernel, operand, scheme, size), kernel.repeat))
    return found


def _operands(kernel: EvaluatedKernel, role: str) -> list[Operand]:
    inputs = kernel.operands.inputs if kernel.operands is not None else []
    return [one for one in inputs if one.role == role]


def _weight(kernel: EvaluatedKernel, operand: Operand, scheme: Scheme | None, size: int) -> Weight:
    shape = tuple(int(places) for places in operand.shape)
    operands = kernel.operands
    if operands is not None and operands.n is not None and shape[-2:] == (operands.k, operands.n):
        shape = (*shape[:-2], shape[-1], shape[-2])  # a product has its weight transposed
    matrix = (kernel.class_name in LINEAR and len(shape) == 2) or (is_experts(kernel.path) and len(shape) > 2)
    storage = scheme.storage(kernel.path, kernel.class_name) if scheme is not None and matrix else None
    stored = Fraction(math.prod(shape) * size)
    if storage is not None:
        *matrices, rows, columns = shape
        stored = Fraction(math.prod(matrices) * storage.size(rows, columns))
    return Weight(kernel.path, operand.name, kernel.class_name, shape, size, stored, matrix)


def _with_rest(read: Sequence[_Read], parameters: int, whole: Fraction) -> Iterator[Weight]:
    """Each weight once, and what no operand stands for in one piece.

    Raises UsageError if lines read more weights than there are parameters, and no shared one explains it. Buffers are
    read as weights are, and are held too.
    """
    elements = sum(math.prod(one.weight.shape) * one.times for one in read)
    read = _once(read, elements - parameters, math.ceil(MOST_BUFFERS * parameters))
    weights = [one.weight for one in read for _ in range(one.times)]
    yield from weights
    rest = whole - sum((weight.stored for weight in weights), Fraction(0))
    if rest > 0:
        yield Weight(REST, "weight", "", (math.ceil(rest),), 1, rest, is_linear=False)


def _once(read: Sequence[_Read], more: int, buffers: int) -> Sequence[_Read]:
    """Without the second reading of weights that two lines share: those make up what is too much, but for buffers."""
    left = list(read)
    seen: dict[int, int] = defaultdict(int)
    for one in sorted(read, key=lambda one: -math.prod(one.weight.shape)):
        size = math.prod(one.weight.shape) * one.times
        seen[size] += 1
        if more > 0 and seen[size] > 1 and size <= more:
            left.remove(one)
            more -= size
    if more > buffers:
        raise UsageError("lines read some weights several times, so that their bytes are not known\nrun `lmp memory`")
    return left


def _divided(subject: Subject, values: Mapping[str, Number], tp: int) -> dict[str, str]:
    """The weights of which each GPU has a part, in the words of transformers' plans."""
    whole = subject.kernels({}, values, ONE)
    one = subject.kernels({}, values, Parallel(tp), whole.evaluation)
    # Where the rows that are looked up are summed over GPUs, each has a part of the table, which its operand has whole.
    summed = {source for kernel in one.kernels if collective_of(kernel) is not None for source in kernel.inputs_from}
    sizes = {
        (kernel.id, operand.name): _size(operand) for kernel in whole.kernels for operand in _operands(kernel, "weight")
    }
    return {
        f"{_any_layer(kernel.path)}.{operand.name}": "colwise"
        for kernel in one.kernels
        for operand in _operands(kernel, "weight")
        if _size(operand) < sizes.get((kernel.id, operand.name), 0) or (looks_up(kernel) and kernel.id in summed)
    }


def _any_layer(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


# --- cache -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the cache, in calls on a short and on a long one."""

    few: Operand
    many: Operand
    times: int

    @property
    def heads(self) -> int:
        return int(self.few.shape[1]) if len(self.few.shape) == 4 else 0

    @property
    def grows(self) -> bool:
        return self.few.shape != self.many.shape

    @property
    def elements(self) -> int:
        """Of one token."""
        return _size(self.few) // LENGTHS[0] if self.grows else _size(self.few)

    @property
    def window(self) -> int | None:
        """Tokens that a query sees, its own among them; None for all."""
        tokens = _size(self.many) // self.elements
        return None if tokens == LENGTHS[1] else tokens + 1


def _size(operand: Operand) -> int:
    return math.prod(map(int, operand.shape))


def _kept(few: Sequence[EvaluatedKernel], many: Sequence[EvaluatedKernel]) -> Iterator[KeptLayer]:
    """What the layers of each module keep for a sequence, from the tensors that a next token takes from the cache."""
    of_modules: dict[str, list[_Tensor]] = defaultdict(list)
    for one, other in zip(few, many, strict=True):
        if "cache" not in one.inputs_from or not one.repeat:
            continue
        pairs = zip(_operands(one, "cache"), _operands(other, "cache"), strict=False)
        of_modules[one.path] += [_Tensor(*pair, one.repeat) for pair in pairs]
    first = 0
    for tensors in of_modules.values():
        if not tensors:
            continue
        times = tensors[0].times
        yield _kept_layer(tensors, range(first, first + times))
        first += times


def _kept_layer(tensors: Sequence[_Tensor], indices: range) -> KeptLayer:
    growing = [one for one in tensors if one.grows]
    heads = max((one.heads for one in growing), default=0)
    own = [one for one in growing if one.heads == heads and heads]
    other = sum(one.elements * _width(one.few) for one in growing if one not in own)
    state = sum(one.elements * _width(one.few) for one in tensors if not one.grows)
    window = own[0].window if own else None
    return KeptLayer(tuple(indices), heads, sum(one.elements for one in own), window, other, state)


def _width(operand: Operand) -> int:
    return operand.width if isinstance(operand.width, int) else 2


# --- activations -----------------------------------------------------------------------------------------------------


def with_every_logits(held: Held, subject: Subject, given: Mapping[str, Number]) -> Held:
    """The same, for a call that returns logits of every position, as the class does unless it is told otherwise.

    The logits are those of the formulas. Where these do not tell, the activations stay as they were.
    """
    own = {name: value for name, value in given.items() if name in subject.model.values}

    def every(tokens: int) -> Live | str:
        key = frozenset(own.items()), tokens
        if key not in subject.alive:
            subject.alive[key] = _live(subject.plain, own, tokens, {}, ())
        return subject.alive[key]

    def live(tokens: int, sizes: Mapping[str, int]) -> Live | str:
        last = held.live(tokens, sizes)
        found = every(tokens) if tokens > 1 and not isinstance(last, str) else last
        return last if isinstance(last, str) or isinstance(found, str) or last.bytes >= found.bytes else found

    return replace(held, live=live)


def _live(
    numbers: ModelNumbers,
    given: Mapping[str, Number],
    tokens: int,
    sizes: Mapping[str, int],
    rules: tuple[str, ...] = LAST_ROWS,
) -> Live | str:
    """The most that is alive in a call of so many tokens, by default with logits of the last one alone."""
    own = {name: size for name, size in sizes.items() if name in numbers.model.values}
    try:
        values = _values(numbers, {**given, **own, "batch_size": 1, "seq_len": tokens, "cache_len": 0})
        kernels = numbers.evaluation(values, numbers.tree(values)).kernels
        launches = rewritten(kernels, rules, values).launches
    except LmpError as error:
        return first_line(error)
    cut = {launch.kernel.id for launch in launches if launch.rule is not None}
    by_id = {launch.kernel.id: launch.kernel for launch in launches}
    graph = Graph(kernels, values)
    made = [_made(by_id.get(kernel.id, kernel), kernel.id in cut, graph) for kernel in graph.kernels]
    ends: dict[int, list[int]] = defaultdict(list)
    last = _last_of_modules(graph.kernels)
    for one in range(len(made)):
        ends[max([one, *(_released(graph.kernels, one, user, last) for user in graph.consumers.get(one, []))])].append(
            one
        )
    alive, peak, where = 0, 0, 0
    for one, size in enumerate(made):
        alive += size
        if alive > peak:
            peak, where = alive, one
        alive -= sum(made[ended] for ended in ends[one])
    return Live(peak, graph.operator(where), ())


def _last_of_modules(kernels: Sequence[EvaluatedKernel]) -> dict[tuple[str, ...], int]:
    """Path of a module -> the last kernel in it."""
    found: dict[tuple[str, ...], int] = {}
    for number, kernel in enumerate(kernels):
        parts = tuple(kernel.path.split("."))
        found.update((parts[:depth], number) for depth in range(1, len(parts) + 1))
    return found


def _released(kernels: Sequence[EvaluatedKernel], maker: int, user: int, last: Mapping[tuple[str, ...], int]) -> int:
    """The kernel after which a user needs a tensor no more: an argument of a module is held until the module ends."""
    if user < maker:
        return maker  # in the next layer of the same kind, which the first layer stands for
    made, used = (tuple(kernels[one].path.split(".")) for one in (maker, user))
    pairs = zip(made, used, strict=False)
    shared = next((depth for depth, (a, b) in enumerate(pairs) if a != b), min(len(made), len(used)))
    return user if shared == len(used) else last[used[: shared + 1]]


def _made(kernel: EvaluatedKernel, cut: bool, graph: Graph) -> int:
    """Bytes of activations that a kernel makes. What it adds to the cache is counted there."""
    if cut or kernel.operands is None:
        return math.ceil(Fraction(read_number(kernel.write)))
    return math.ceil(sum((graph.bytes_of(one) for one in kernel.operands.outputs if one.role != "cache"), Fraction(0)))
