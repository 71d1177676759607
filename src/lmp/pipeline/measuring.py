"""What a model keeps between two calls, and which of its experts one token uses: found out by running it on meta.

Of layers that are alike only the first ones are run, as many from the start of each list as have one of every kind;
what was measured of one counts for those like it. Where a model does not run so, all of it is run.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmp.pipeline.inspection import Cache, CacheSegment

Groups = Mapping[str, Sequence[Sequence[int]]]
"""Path of a list of layers -> for each kind the indices of its layers, in the order of their first ones."""

Shares = dict[str, Fraction]
"""Path of a parameter -> the share of it that one token uses; what is not in it is used whole."""

CACHE_FIELDS = ("past_key_values", "cache_params", "state", "rnn_state")
STEP = 128
"""Tokens between the lengths that are compared. Caches that compress do so by powers of two that divide it."""

ENCODER_TOKENS = (32, 64)
POSITIONS = ("max_position_embeddings", "max_target_positions", "n_positions")


class CannotMeasure(Exception):
    """Why something cannot be measured, in words."""


class Runs:
    """Runs of one model on the meta device."""

    def __init__(self, model: Any, groups: Groups) -> None:
        self.model, self.groups = model, groups

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """The whole model, and the text model in it for one that does not run on token ids alone."""
        yield "", self.model
        if getattr(self.model.config, "is_encoder_decoder", False):
            return  # its decoder alone keeps less than both
        with contextlib.suppress(Exception):
            decoder = self.model.get_decoder()
            yield from ((path, m) for path, m in self.model.named_modules() if m is decoder and path)

    def _first_that_runs(self, measure: Callable[[_Running], Any]) -> tuple[str, Any]:
        """What ``measure`` says of the first part that runs. Raises CannotMeasure with the reason of the first."""
        reasons = []
        for path, part in self._parts():
            for groups in (self.groups, {}) if self.groups else ({},):
                try:
                    with _cut(self.model, groups):
                        return path, measure(_Running(self.model, part, groups))
                except CannotMeasure as error:
                    reasons.append(str(error))
                except Exception as error:  # whatever a model raises that was not made to run like this
                    lines = str(error).strip().splitlines()
                    why = lines[0][:120] if lines else type(error).__name__
                    reasons.append(f"it cannot be run on the meta device with token ids: {why}")
        raise CannotMeasure(reasons[0])

    def expert_shares(self) -> tuple[Shares, str | None]:
        """The share of each expert weight that one token uses; or why it is not known."""
        try:
            return self._first_that_runs(_Running.shares)[1], None
        except CannotMeasure as error:
            return {}, str(error)

    def cache(self) -> Cache:
        """What the model keeps for a sequence; or why it is not known."""
        try:
            path, found = self._first_that_runs(_Running.cache)
        except CannotMeasure as error:
            return Cache(reason=str(error))
        return found.model_copy(update={"of": path or None})


@contextlib.contextmanager
def _cut(model: torch.nn.Module, groups: Groups) -> Iterator[None]:
    """The model with each list of layers cut after the first of the last kind, while the block runs."""
    lists = {path: model.get_submodule(path) for path in groups}
    kept = {path: list(layers) for path, layers in lists.items()}
    try:
        for path, layers in lists.items():
            del layers[max(kind[0] for kind in groups[path]) + 1 :]
        yield
    finally:
        for path, layers in lists.items():
            layers.extend(kept[path][len(layers) :])


@dataclass
class _Running:
    """A part of a model that is run, its lists cut by ``groups``."""

    model: Any
    part: Any
    groups: Groups
    windows: set[int] = field(default_factory=set)
    _held: dict[tuple[int, int], int] = field(default_factory=dict)

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, tokens: int, encoder_tokens: int = ENCODER_TOKENS[0]) -> Any:
        parameters = inspect.signature(self.part.forward).parameters
        given: dict[str, Any] = {}
        if self.has_decoder:
            given = {**self._encoder_inputs(encoder_tokens), "decoder_input_ids": _token_ids(tokens)}
        else:
            given = {"input_ids": _token_ids(tokens)}
        if "use_cache" in parameters or "past_key_values" in parameters:
            given["use_cache"] = True
        with torch.no_grad():
            return self.part(**given)

    @property
    def has_decoder(self) -> bool:
        takes = "decoder_input_ids" in inspect.signature(self.part.forward).parameters
        return takes and bool(getattr(self.part.config, "is_encoder_decoder", False))

    @property
    def reads_tokens(self) -> bool:
        return getattr(self.part, "main_input_name", "input_ids") == "input_ids"

    def _encoder_inputs(self, tokens: int) -> dict[str, torch.Tensor]:
        if self.reads_tokens:
            return {"input_ids": _token_ids(tokens)}
        name, config = self.part.main_input_name, self.part.config
        mels, positions = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
        if name != "input_features" or mels is None or positions is None:
            raise CannotMeasure(f"lmp has no rule for the shape of {name}, which its encoder reads")
        # Two frames of a spectrogram make one position: the convolution before the encoder has stride 2.
        return {name: torch.empty((1, mels, 2 * positions), dtype=self.part.dtype, device="meta")}

    # -- the cache ---------------------------------------------------------------------------------------------------

    def cache(self) -> Cache:
        if not any(name in inspect.signature(self.part.forward).parameters for name in ("use_cache", *CACHE_FIELDS)):
            raise CannotMeasure("its forward() returns no cache")
        self.held(8)  # finds the windows too
        with_encoder = self.has_decoder and self.reads_tokens
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
        grown: dict[tuple[str, int], int] = {}
        with self._watched(grown):
            output = self.run(tokens, encoder_tokens)
        caches = [getattr(output, name) for name in CACHE_FIELDS if getattr(output, name, None) is not None]
        if not caches:
            raise CannotMeasure("its forward() returns no cache")
        self.windows |= set(_windows(caches))
        total = _bytes_in(caches)
        if not self.groups:
            return total
        if sum(grown.values()) != total:
            raise CannotMeasure("what a layer adds to the cache cannot be told")
        return sum(grown.get((path, kind[0]), 0) * len(kind) for path, kinds in self.groups.items() for kind in kinds)

    @contextlib.contextmanager
    def _watched(self, grown: dict[tuple[str, int], int]) -> Iterator[None]:
        """Note what each layer of the cut lists adds to the cache that it is given."""
        from transformers.cache_utils import Cache as ModelCache

        def caches(arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
            return [value for value in (*arguments, *named.values()) if isinstance(value, ModelCache)]

        def before(key: tuple[str, int]) -> Any:
            def note(module: Any, arguments: Any, named: Any) -> None:
                grown[key] = grown.get(key, 0) - _bytes_in(caches(arguments, named))

            return note

        def after(key: tuple[str, int]) -> Any:
            def note(module: Any, arguments: Any, named: Any, output: Any) -> None:
                grown[key] += _bytes_in(caches(arguments, named))

            return note

        with contextlib.ExitStack() as stack:
            for path in self.groups:
                for index, layer in enumerate(self.model.get_submodule(path)):
                    for handle in (
                        layer.register_forward_pre_hook(before((path, index)), with_kwargs=True),
                        layer.register_forward_hook(after((path, index)), with_kwargs=True),
                    ):
                        stack.callback(handle.remove)
            yield

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

    # -- experts -----------------------------------------------------------------------------------------------------

    def shares(self) -> Shares:
        """What one token uses of the weights that experts' matrix products read.

        A grouped product has one row for each expert that is chosen. A batched product over all experts is known by a
        choice of some (``topk``) of as many, made in the same block of the model.
        """
        watch = _ExpertWatch(self.model)
        with watch.modules(), watch:
            self.run(1)
        found: Shares = {}
        for path, experts, share in watch.read:
            owner = self.model.get_submodule(path.rpartition(".")[0])
            # Biases and scales of the experts stand beside their weights, and are picked with them.
            for name, parameter in owner.named_parameters(recurse=False):
                if parameter.dim() and parameter.shape[0] == experts:
                    found[f"{path.rpartition('.')[0]}.{name}"] = share
        return found


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


class _ExpertWatch(TorchDispatchMode):
    """Sees which stacks of expert weights are read, and how many of them are chosen."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.read: list[tuple[str, int, Fraction]] = []
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stacks = {_storage(p): path for path, p in model.named_parameters() if p.dim() >= 3}
        self._inside: list[str] = []
        self._choices: list[tuple[str, int, int]] = []

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Follow which module runs, while the block does."""
        before = torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        after = torch.nn.modules.module.register_module_forward_hook(self._leave)
        try:
            yield
        finally:
            before.remove()
            after.remove()

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
        return func(*args, **(kwargs or {}))

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


def _token_ids(count: int) -> torch.Tensor:
    return torch.empty((1, count), dtype=torch.int64, device="meta")


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
