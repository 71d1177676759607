"""What a model keeps between two calls, and which of its experts one token uses: seen in runs of its workload on meta.

The engine's own workload is what is run: one layer of each kind, and what was measured of one counts for those that it
stands for. Where a model does not run so, all of its layers are run.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmp.observe.flow import KEPT
from lmp.observe.held import KeptLayer
from lmp.observe.inspection import Cache, CacheSegment
from lmp.observe.lifetimes import Lifetimes, Peak
from lmp.workload.failures import blame, hand_on
from lmp.workload.kinds import kind_of, own_factors, own_indices
from lmp.workload.model import ModelWorkload
from lmp.workload.model_inputs import has_decoder_inputs
from lmp.workload.paths import is_kv_cache
from lmp.workload.shapes import ENCODER_LENGTH

Shares = dict[str, Fraction]
"""Path of a parameter -> the share of it that one token uses; what is not in it is used whole."""

STEP = 128
"""Tokens between the lengths that are compared. Caches that compress do so by powers of two that divide it."""

ENCODER_TOKENS = (32, 64)
POSITIONS = ("max_position_embeddings", "max_target_positions", "n_positions")

KEPT_TOKENS = (8, 24)
"""Lengths at which the cache of each layer is looked at: below any window."""

CACHE_FIELDS = ("past_key_values", "cache_params", "state", "rnn_state")
NO_CACHE = "its forward() returns no cache"
UNRUNNABLE = "it cannot be run on the meta device with token ids"


class CannotMeasure(Exception):
    """Why something cannot be measured, in words."""


def _unrunnable(error: Exception) -> CannotMeasure:
    """What a model raises that was not made to run like this, as a reason. Raises what is lmp's own mistake."""
    if blame(error) == "lmp":
        raise error
    lines = str(error).strip().splitlines()
    return CannotMeasure(f"{UNRUNNABLE}: {lines[0][:120] if lines else type(error).__name__}")


class Measured:
    """Measures a model: the workload of its class, or that of the text model in it."""

    def __init__(self, model: Any, config: Any, dtype: torch.dtype) -> None:
        """``config`` is what the ``model`` was built of, as it was before."""
        self.model, self.config, self.dtype = model, config, dtype
        self._workloads: dict[str, ModelWorkload | CannotMeasure] = {}
        """By the path of the part: what runs it, or why nothing does."""

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """The whole model, and the text model in it for one that does not run on token ids alone."""
        yield "", self.model
        if getattr(self.model.config, "is_encoder_decoder", False):
            return  # its decoder alone keeps less than both
        with contextlib.suppress(Exception):
            decoder = self.model.get_decoder()
            yield from ((path, m) for path, m in self.model.named_modules() if m is decoder and path)

    def _first_that_runs(
        self, measure: Callable[[_Running], Any], check: Callable[[Any], None] = lambda part: None
    ) -> tuple[str, Any]:
        """What ``measure`` says of the first part that passes the ``check`` and runs.

        Raises CannotMeasure with the reason of the first part.
        """
        reasons = []
        for path, part in self._parts():
            try:
                check(part)
                return path, self._measured(path, part, measure)
            except CannotMeasure as error:
                reasons.append(str(error))
        raise CannotMeasure(reasons[0])

    def _measured(self, path: str, part: Any, measure: Callable[[_Running], Any]) -> Any:
        """What ``measure`` says of a part: with one layer of each kind, else with all of them."""
        workload = self._workload(path, part)
        reasons = []
        for whole in (False, True) if workload.full_layers else (False,):
            try:
                return measure(_Running(workload, part, path, whole))
            except CannotMeasure as error:
                reasons.append(error)
            except Exception as error:
                reasons.append(_unrunnable(error))
        raise reasons[0]

    def _workload(self, path: str, part: Any) -> ModelWorkload:
        """The workload of a part. Raises CannotMeasure where it cannot be run."""
        if path not in self._workloads:
            config = self.config if part is self.model else part.config
            try:
                self._workloads[path] = ModelWorkload(
                    type(part), copy.deepcopy(config), self.dtype, given=token_inputs(part), answers=False
                )
            except CannotMeasure as error:
                self._workloads[path] = error
            except Exception as error:
                self._workloads[path] = _unrunnable(error)
        found = self._workloads[path]
        if isinstance(found, CannotMeasure):
            raise found
        return found

    def expert_shares(self) -> tuple[Shares, str | None]:
        """The share of each expert weight that one token uses; or why it is not known."""
        try:
            return self._first_that_runs(_Running.shares)[1], None
        except CannotMeasure as error:
            return {}, str(error)

    def cache(self) -> Cache:
        """What the model keeps for a sequence; or why it is not known."""
        try:
            path, found = self._first_that_runs(_Running.cache, _check_cache)
        except CannotMeasure as error:
            return Cache(reason=str(error))
        return found.model_copy(update={"of": path or None})

    def kept(self) -> tuple[str, list[KeptLayer]]:
        """What each layer keeps for one sequence, and the path of the part that was run. Raises CannotMeasure."""
        path, found = self._first_that_runs(_Running.kept, _check_cache)
        return path, found

    def live(self, tokens: int, sizes: Mapping[str, int]) -> Peak:
        """The moment with most live bytes in a call of so many tokens, with logits of the last one.

        ``sizes`` replace values of the config. Raises CannotMeasure.
        """
        found: Peak = self._first_that_runs(lambda running: running.live(tokens, sizes))[1]
        return found


def token_inputs(part: Any) -> tuple[str, ...]:
    """The inputs of a call with nothing but tokens, or with a spectrogram whose length the config says.

    Raises CannotMeasure where a model is called with others.
    """
    parameters, config = inspect.signature(part.forward).parameters, part.config
    main = getattr(part, "main_input_name", "input_ids")
    if getattr(config, "is_encoder_decoder", False) and has_decoder_inputs(type(part)):
        stated = all(getattr(config, name, None) is not None for name in ("num_mel_bins", "max_source_positions"))
        if main != "input_ids" and not (main == "input_features" and stated):
            raise CannotMeasure(f"lmp has no rule for the shape of {main}, which its encoder reads")
        return main, "decoder_input_ids"
    if "input_ids" not in parameters:
        raise CannotMeasure(f"{UNRUNNABLE}: it is called with {main}")
    return ("input_ids",)


def _check_cache(part: Any) -> None:
    """Raises CannotMeasure where a part does not even have arguments that are about a cache."""
    if not any(name in inspect.signature(part.forward).parameters for name in ("use_cache", *CACHE_FIELDS)):
        raise CannotMeasure(NO_CACHE)


@dataclass(frozen=True)
class _Stack:
    """A list of layers that is run with fewer of them."""

    path: str
    stands_for: Sequence[Sequence[int]]
    """Of each layer that is run, the layers of the whole model that are alike; none where one before it is."""


def _stacks(workload: ModelWorkload, part: torch.nn.Module, run: torch.nn.Module) -> list[_Stack]:
    """The stacks that are cut. Raises CannotMeasure where a kind of layer is not run at all."""
    found: list[_Stack] = []
    for path in sorted(workload.stacks):
        if any(path.startswith(f"{stack.path}.") for stack in found):
            continue
        layers, few = part.get_submodule(path), run.get_submodule(path)
        own = own_indices(layers) | own_factors(layers)
        places: dict[Any, list[int]] = {}
        for index, layer in enumerate(layers):
            places.setdefault(kind_of(layer, own=own), []).append(index)
        stands_for = [places.pop(kind_of(layer, own=own), []) for layer in few]
        if places:
            raise CannotMeasure("what a layer adds to the cache cannot be told: none of its kind is run")
        found.append(_Stack(path, stands_for))
    return found


class _Seen:
    """Sizes in one layer of a cache after a call."""

    def __init__(self, layer: Any) -> None:
        named = (getattr(layer, "keys", None), getattr(layer, "values", None))
        pair = [t for t in named if isinstance(t, torch.Tensor) and t.dim() == 4]
        self.heads = pair[0].shape[1] if pair else 0
        self.elements = sum(t.numel() for t in pair)
        self.element_size = pair[0].element_size() if pair else 1
        self.bytes = _bytes_in([layer])
        window = getattr(layer, "sliding_window", None)
        self.window = window if type(window) is int else None


def _kept(few: _Seen, many: _Seen, indices: tuple[int, ...]) -> KeptLayer:
    """The layer from two lengths. Raises CannotMeasure if it does not grow evenly between them."""
    short, long = KEPT_TOKENS
    if few.elements * long != many.elements * short:
        raise CannotMeasure(f"keys and values do not grow evenly between {short} and {long} tokens")
    others = [seen.bytes - seen.elements * seen.element_size for seen in (few, many)]
    grown, rest = divmod(others[1] - others[0], long - short)
    if rest or grown < 0:
        raise CannotMeasure(f"what a layer keeps does not grow evenly between {short} and {long} tokens")
    return KeptLayer(indices, few.heads, few.elements // short, few.window, grown, others[0] - grown * short)


@dataclass
class _Running:
    """Runs of a part of a model: with one layer of each kind, or with the ``whole``."""

    workload: ModelWorkload
    part: Any
    path: str
    whole: bool
    windows: set[int] = field(default_factory=set)
    _held: dict[tuple[int, int], int] = field(default_factory=dict)

    # -- running -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        return {**self.workload.defaults, **(self.workload.full_layers if self.whole else {})}

    @functools.cached_property
    def model(self) -> Any:
        return self.workload.build(self.sizes)

    @functools.cached_property
    def stacks(self) -> list[_Stack]:
        return [] if self.whole else _stacks(self.workload, self.part, self.model)

    def run(self, tokens: int, observer: AbstractContextManager[Any], encoder_tokens: int = ENCODER_TOKENS[0]) -> None:
        """One call of so many tokens."""
        values = {**self.sizes, "batch_size": 1, "seq_len": tokens, "cache_len": 0, ENCODER_LENGTH: encoder_tokens}
        self.workload.run(self.model, values, observer)

    # -- the cache ---------------------------------------------------------------------------------------------------

    def cache(self) -> Cache:
        if not self.workload.has_cache:
            raise CannotMeasure(NO_CACHE)
        self.held(8)  # finds the windows too
        with_encoder = self.workload.inputs.encoder_length
        encoder = Fraction(0)
        if with_encoder:
            short, long = ENCODER_TOKENS
            encoder = Fraction(self.held(8, long) - self.held(8, short), long - short)
        segments = self._segments(encoder * ENCODER_TOKENS[0])
        return Cache(segments=segments, encoder_bytes_per_token=_number(encoder) if with_encoder else None)

    def held(self, tokens: int, encoder_tokens: int = ENCODER_TOKENS[0]) -> int:
        """Bytes in the whole model's cache after a call with so many tokens."""
        if (tokens, encoder_tokens) not in self._held:
            self._held[tokens, encoder_tokens] = self._measured(tokens, encoder_tokens)
        return self._held[tokens, encoder_tokens]

    def _measured(self, tokens: int, encoder_tokens: int) -> int:
        watch = _CacheWatch(self.model, self.workload.cache_name, self.stacks)
        self.run(tokens, watch, encoder_tokens)
        caches = watch.returned
        if not caches:
            raise CannotMeasure(NO_CACHE)
        self.windows |= set(_windows(caches))
        total = _bytes_in(caches)
        if not self.stacks:
            return total
        if sum(watch.grown.values()) != total:
            raise CannotMeasure("what a layer adds to the cache cannot be told")
        return sum(
            watch.grown.get((stack.path, index), 0) * len(alike)
            for stack in self.stacks
            for index, alike in enumerate(stack.stands_for)
        )

    def _segments(self, encoder_bytes: Fraction) -> list[CacheSegment]:
        """The straight lines that the cache follows: below the smallest window, between windows, beyond them."""
        lines: list[_Line] = []
        bounds = sorted(self.windows)
        for low, high in itertools.zip_longest([0, *bounds], bounds):
            line = self._line(low, high)
            if line is not None and not (lines and line.same_as(lines[-1])):
                lines.append(line)
        ends: list[int | None] = [one.last_before(other) for one, other in itertools.pairwise(lines)]
        return [
            CacheSegment(
                from_tokens=(before or 0) + 1,
                to_tokens=end,
                bytes_per_token=_number(line.slope),
                constant_bytes=_number(line.start - encoder_bytes),
                steps_of=line.steps_of,
            )
            for line, before, end in zip(lines, [0, *ends], [*ends, None], strict=True)
        ]

    def _line(self, low: int, high: int | None) -> _Line | None:
        """The line through three lengths between two bounds; None where there is no room for them."""
        if high is None or low + 10 < high:
            few = self.held(low + 8)
            if self.held(low + 9) == few:  # what is not kept of one token more is kept of none
                return _Line(low, Fraction(0), Fraction(few), None)
        positions = [p for n in POSITIONS if type(p := getattr(self.part.config, n, None)) is int and p > 0]
        limit = min([low + 3 * STEP + 2, *([high] if high is not None else []), *positions])
        step = STEP
        while low + 3 * step + 1 >= limit and step:
            step //= 2
        if not step:
            return None
        a, b, c = (self.held(low + i * step) for i in (1, 2, 3))
        if b - a != c - b:
            raise CannotMeasure(f"the cache does not grow evenly between {low + step:,} and {low + 3 * step:,} tokens")
        slope = Fraction(b - a, step)
        even = self.held(low + step + 1) - a == slope
        return _Line(low, slope, a - slope * (low + step), None if even else step)

    # -- what each layer keeps, and what lives during a call ---------------------------------------------------------

    def kept(self) -> list[KeptLayer]:
        """What each layer of the cache keeps for one sequence."""
        if not self.workload.has_cache:
            raise CannotMeasure(NO_CACHE)
        few, many = (self._layers(tokens) for tokens in KEPT_TOKENS)
        places = next((s.stands_for for s in self.stacks if len(s.stands_for) == len(few)), None)
        if self.stacks and places is None:
            raise CannotMeasure("the layers of its cache are not those of one list of layers")
        indices = places if places is not None else [[index] for index in range(len(few))]
        return [_kept(a, b, tuple(here)) for a, b, here in zip(few, many, indices, strict=True)]

    def _layers(self, tokens: int) -> list[_Seen]:
        watch = _CacheWatch(self.model, self.workload.cache_name, [])
        self.run(tokens, watch)
        layers = getattr(watch.returned[0], "layers", None) if watch.returned else None
        if not isinstance(layers, list):
            raise CannotMeasure("what its cache keeps is not told by layers")
        return [_Seen(layer) for layer in layers]

    def live(self, tokens: int, sizes: Mapping[str, int]) -> Peak:
        """The peak of one call, in which each kind of layer runs once: what a layer leaves alive is its cache."""
        values = {**self.sizes, **{name: size for name, size in sizes.items() if name in self.workload.variables}}
        model = self.workload.build(values)
        seen = Lifetimes(model, detail=False)
        given = {KEPT: 1} if KEPT in inspect.signature(type(model).forward).parameters else {}
        asked = model.register_forward_pre_hook(lambda _, args, kwargs: (args, {**kwargs, **given}), with_kwargs=True)
        call = {"batch_size": 1, "seq_len": tokens, "cache_len": 0, ENCODER_LENGTH: ENCODER_TOKENS[0]}
        try:
            self.workload.run(model, {**values, **call}, seen)
        finally:
            asked.remove()
        if seen.peak is None:
            raise CannotMeasure("a call runs no operator")
        return seen.peak

    # -- experts -----------------------------------------------------------------------------------------------------

    def shares(self) -> Shares:
        """What one token uses of the weights that experts' matrix products read.

        A grouped product has one row for each expert that is chosen. A batched product over all experts is known by a
        choice of some (``topk``) of as many, made in the same block of the model.
        """
        watch = _ExpertWatch(self.model)
        self.run(1, watch)
        found: Shares = {}
        for path, experts, share in watch.read:
            holder = path.rpartition(".")[0]
            # Biases and scales of the experts stand beside their weights, and are picked with them.
            for name, parameter in self.model.get_submodule(holder).named_parameters(recurse=False):
                if parameter.dim() and parameter.shape[0] == experts:
                    found |= dict.fromkeys(self._in_whole_model(f"{holder}.{name}"), share)
        return found

    def _in_whole_model(self, path: str) -> Iterator[str]:
        """The paths of all that a parameter of the run stands for."""
        prefix = f"{self.path}." if self.path else ""
        for stack in self.stacks:
            if path.startswith(f"{stack.path}."):
                index, _, rest = path.removeprefix(f"{stack.path}.").partition(".")
                yield from (f"{prefix}{stack.path}.{alike}.{rest}" for alike in stack.stands_for[int(index)])
                return
        yield prefix + path


@dataclass(frozen=True)
class _Line:
    """``start + slope * tokens`` bytes from ``low`` tokens on, or that on the average of ``steps_of`` tokens."""

    low: int
    slope: Fraction
    start: Fraction
    steps_of: int | None

    def same_as(self, other: _Line) -> bool:
        return (self.slope, self.start) == (other.slope, other.start)

    def last_before(self, other: _Line) -> int:
        """The last number of tokens for which this line holds: where they cross, as a window may keep one token less
        than its size."""
        if self.slope == other.slope or self.steps_of or other.steps_of:
            return other.low
        return int((other.start - self.start) / (self.slope - other.slope))


class _CacheWatch:
    """Sees the caches that a model returns, and what each layer of its stacks adds to the cache that it is given."""

    def __init__(self, model: Any, name: str, stacks: Sequence[_Stack]) -> None:
        self.returned: list[Any] = []
        self.grown: dict[tuple[str, int], int] = {}
        """By the stack's path and the layer's place in it: bytes."""
        self._model, self._name, self._stacks = model, name, stacks
        self._hooks = contextlib.ExitStack()

    def __enter__(self) -> _CacheWatch:
        self._keep(self._model.register_forward_hook(self._returns))
        for stack in self._stacks:
            for index, layer in enumerate(self._model.get_submodule(stack.path)):
                begins, ends = (functools.partial(f, (stack.path, index)) for f in (self._begins, self._ends))
                self._keep(layer.register_forward_pre_hook(begins, with_kwargs=True))
                self._keep(layer.register_forward_hook(ends, with_kwargs=True))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._hooks.close()

    def _keep(self, handle: Any) -> None:
        self._hooks.callback(handle.remove)

    def _returns(self, model: Any, arguments: Any, output: Any) -> None:
        found = getattr(output, self._name, None)
        self.returned = [] if found is None else [found]

    def _begins(self, key: tuple[str, int], layer: Any, arguments: Any, named: Any) -> None:
        self.grown[key] = self.grown.get(key, 0) - _bytes_in(_given_caches(arguments, named))

    def _ends(self, key: tuple[str, int], layer: Any, arguments: Any, named: Any, output: Any) -> None:
        self.grown[key] += _bytes_in(_given_caches(arguments, named))


def _given_caches(arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    return [value for value in (*arguments, *named.values()) if is_kv_cache(value)]


class _ExpertWatch(TorchDispatchMode):
    """Sees which stacks of expert weights are read, and how many of them are chosen."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.read: list[tuple[str, int, Fraction]] = []
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stacks = {_storage(p): path for path, p in model.named_parameters() if p.dim() >= 3}
        self._inside: list[str] = []
        self._choices: list[tuple[str, int, int]] = []
        self._hooks = contextlib.ExitStack()

    def __enter__(self) -> _ExpertWatch:
        for hook, register in (
            (self._enter, torch.nn.modules.module.register_module_forward_pre_hook),
            (self._leave, torch.nn.modules.module.register_module_forward_hook),
        ):
            self._hooks.callback(register(hook).remove)
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self._hooks.close()

    def _enter(self, module: torch.nn.Module, arguments: Any) -> None:
        self._inside.append(self._paths.get(id(module), ""))

    def _leave(self, module: torch.nn.Module, arguments: Any, output: Any) -> None:
        self._inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "topk":
            scores, count = args[0], args[1]
            dim = args[2] if len(args) > 2 else -1
            self._choices.append((self._inside[-1] if self._inside else "", scores.shape[dim], count))
        elif name in ("_grouped_mm", "_scaled_grouped_mm", "bmm", "baddbmm"):
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            for tensor in tensors:
                path = self._stacks.get(_storage(tensor))
                if path is not None and tensor.dim() == 3:
                    self._note(path, tensor, next(t for t in tensors if t is not tensor), "grouped" in name)
        return hand_on(func, *args, **(kwargs or {}))

    def _note(self, path: str, weights: torch.Tensor, rows: torch.Tensor, grouped: bool) -> None:
        experts = weights.shape[0]
        if grouped:
            self.read.append((path, experts, Fraction(min(experts, rows.shape[-2]), experts)))
            return
        block = path.rpartition(".")[0].rpartition(".")[0]
        chosen = [count for where, of, count in self._choices if of == experts and f"{where}.".startswith(f"{block}.")]
        if chosen and block:
            self.read.append((path, experts, Fraction(chosen[-1], experts)))


def _storage(tensor: torch.Tensor) -> int:
    """What a tensor shares with all views of it, on the meta device too, where addresses are 0."""
    return int(tensor.untyped_storage()._cdata)


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _reachable(roots: Sequence[Any]) -> Iterator[Any]:
    """The objects that caches are made of: transformers' own, and what their attributes and containers hold."""
    waiting, seen = list(roots), set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, list | tuple):
            waiting += thing
        elif isinstance(thing, dict):
            waiting += thing.values()
        elif type(thing).__module__.startswith("transformers.") and not isinstance(thing, torch.nn.Module):
            waiting += vars(thing).values() if hasattr(thing, "__dict__") else []


def _bytes_in(caches: Sequence[Any]) -> int:
    """Bytes of the tensors in caches, each once; counters, which are single numbers, are no part of it."""
    tensors = {id(t): t for t in _reachable(caches) if isinstance(t, torch.Tensor) and t.dim()}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def _windows(caches: Sequence[Any]) -> Iterator[int]:
    for thing in _reachable(caches):
        window = getattr(thing, "sliding_window", None) if not isinstance(thing, torch.Tensor) else None
        if type(window) is int and window > 1:
            yield window
