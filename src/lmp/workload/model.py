"""A module of transformers in its real context: the smallest model of its file that contains it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.overrides import TorchFunctionMode

from lmp.workload.answers import Asked, answered
from lmp.workload.arguments import recording
from lmp.workload.base import CHUNKED, Refusal, Turn, Variable, refusal
from lmp.workload.configs import (
    LAYERS,
    STANDARD_NAMES,
    config_variables,
    cut_lists,
    layer_lists,
    lists_by_rule,
    standard_names,
    text_part,
)
from lmp.workload.failures import failure_of
from lmp.workload.forgetting import forgetting
from lmp.workload.kinds import kind_of, kinds_of, own_factors, own_indices, turn_of
from lmp.workload.model_inputs import Inputs
from lmp.workload.shapes import ENCODER_LENGTH
from lmp.workload.standalone import no_initialisation


class ModelWorkload:
    """A whole model of transformers, run as ``from_config`` builds it, cut to the layers that differ."""

    def __init__(
        self, model_class: type[Any], config: Any, dtype: torch.dtype = torch.bfloat16, attention: str = "sdpa"
    ) -> None:
        self.model_class, self.config, self.dtype, self.attention = model_class, config, dtype, attention
        if attention == "sdpa" and not getattr(model_class, "_supports_sdpa", True):
            self.attention = "eager"  # as transformers itself chooses; the analysis says so
        self.variables = config_variables(config)
        self._built: dict[tuple[tuple[str, Any], ...], torch.nn.Module] = {}
        self._fillings: dict[tuple[int, ...], tuple[torch.nn.Module, Any]] = {}
        self.asked: Asked = {}
        """Questions about data that runs were answered."""
        self.chosen: Asked | None = None
        """Choices that the model cannot be run without, and that were made for it."""
        self.flags: frozenset[str] = frozenset()
        self.required: frozenset[str] = frozenset()
        part, _ = text_part(config)
        named = {own: STANDARD_NAMES.get(standard, standard) for own, standard in standard_names(part).items()}
        self.aliases = {own: name for own, name in named.items() if own != name and name in self.variables}
        """The config's own names -> variables."""
        self.inputs = Inputs(model_class, config, dtype, self.variables)
        if self.inputs.encoder_length:
            self.required = frozenset({ENCODER_LENGTH})
            self.variables[ENCODER_LENGTH] = Variable(ENCODER_LENGTH, "inputs.input_ids.shape[1]", 11)
        self.has_cache, self.has_encoder, self.has_tokens = True, self.inputs.has_decoder, True
        self.cache_name = CACHE
        """What the model returns to be given in the next call: a KV cache, or the state of a recurrence."""
        self.called_with: dict[str, str] = {}
        """What the model is called with where that is not token ids alone: tensors -> their shapes."""
        self.full_layers: dict[str, int] = {}
        self.in_order: dict[str, int] = {}
        self.turns: dict[str, Turn] = {}
        self.stacks: set[str] = set()
        self.by_place = False
        """Whether layers that are alike have factors made from their places: one of them need not stand for all."""
        self.refused: dict[str, Refusal] = {}
        """Phases in which the model says that it does not run."""
        self.failed: dict[str, Exception] = {}
        """Phases that do not run for another reason, and what they end with."""
        self._same: dict[str, str] = {}
        """Other names of the config for the number of layers, with their paths: they are no variables."""
        self._has_rule: bool | None = None
        self._each_chooses = False
        self._chosen: list[int] = []
        """Layers of the full model that the smallest one has; none: its first ones."""
        self.defaults = {name: variable.default for name, variable in self.variables.items()}
        self._cut_layers()
        self._lengthen()
        self.fewest_tokens = 1 if self.has_cache or not self.has_tokens else self._fewest_tokens()
        self.hints = self.defaults

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        """The model with its integers set to ``values``; the last ones that were built from plain numbers are kept."""
        own = tuple((name, values[name]) for name in self.variables if name in values)
        if not all(type(value) is int for _, value in own) or detect_fake_mode() is not None:
            return self._build(values)  # what is built among fake tensors is made of them
        if own not in self._built:
            if len(self._built) >= KEPT:
                self._built.pop(next(iter(self._built)))
            self._built[own] = self._build(values)
        return self._built[own]

    def _build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        from transformers import initialization

        with torch.device("meta"), initialization.no_init_weights(), recording(), _as_loaded():
            model = self._constructed(values)
            _leave_no_data(model)
            # Skipping the initialisation skips the tying of weights, which decides what counts as a parameter.
            model.tie_weights()
        # Without gradients: a parameter that forward() returns as it is would ask torch's flop counter for one.
        return model.eval().requires_grad_(False)

    def _config_with(self, values: Mapping[str, Any]) -> Any:
        """A config of its own with these values, which may be symbolic: such a config must not be copied any more."""
        config = copy.deepcopy(self.config)
        part, _ = text_part(config)
        full, layers = self.full_layers.get(LAYERS), values.get(LAYERS)
        if full:
            # A symbolic number of layers stands for that of the hints.
            layers = layers if isinstance(layers, int) else self.defaults[LAYERS]
            if layers == len(self._chosen):
                cut_lists(part, full, self._chosen)
            elif layers != full and not self._apply_rule(part, full, layers):
                cut_lists(part, full, [i % full for i in range(layers)])
        aliases = dict(getattr(part, "attribute_map", {}) or {})
        for name, variable in self.variables.items():
            attribute = variable.path.rpartition(".")[2]
            if isinstance(getattr(type(part), attribute, None), property):
                continue  # it follows from the rest of the config
            if variable.path.startswith("config.") and (name in values or name in self.defaults):
                # Configs are strict dataclasses that validate on assignment; a symbolic size is no int to them.
                object.__setattr__(part, aliases.get(attribute, attribute), values.get(name, self.defaults[name]))
        for path in self._same.values():
            attribute = path.rpartition(".")[2]
            object.__setattr__(part, aliases.get(attribute, attribute), values.get(LAYERS, self.defaults[LAYERS]))
        return config

    def _constructed(self, values: Mapping[str, Any]) -> torch.nn.Module:
        """The model with the attention that was asked for, in each of its parts that has it."""
        made: Callable[..., torch.nn.Module] = self.model_class._from_config
        if not self._each_chooses:
            try:
                return made(self._config_with(values), dtype=self.dtype, attn_implementation=self.attention)
            except ValueError as error:
                if self.attention != "sdpa" or "attention implementation" not in str(error):
                    raise
                # A part has no sdpa. Left to themselves, all parts that have it take it.
                self._each_chooses = True
        return made(self._config_with(values), dtype=self.dtype)

    def _apply_rule(self, part: Any, full: int, layers: int) -> bool:
        """Give the config the per-layer lists that transformers makes for so many layers; whether it makes them.

        A list that the config states itself is no rule: what transformers makes for all layers must be what it has.
        """
        if self._has_rule is None:
            self._has_rule = lists_by_rule(self.config, full) == layer_lists(text_part(self.config)[0], full)
        made = lists_by_rule(self.config, layers) if self._has_rule else None
        for name, value in (made or {}).items():
            object.__setattr__(part, name, value)
        return made is not None

    def run(
        self,
        module: torch.nn.Module,
        values: Mapping[str, Any],
        observer: AbstractContextManager[Any],
        before: AbstractContextManager[Any] | None = None,
    ) -> None:
        # Some models make modules in forward(): filling their weights is no work of it.
        with self._as_built(module), torch.no_grad(), no_initialisation(), answered(self.asked, self.chosen):
            past: dict[str, Any] = {}
            cached = values["cache_len"]
            if not (isinstance(cached, int) and cached == 0):
                with before or contextlib.nullcontext():
                    filled = self._filled(module, {**values, "seq_len": cached})
                past = {self.cache_name: getattr(filled, self.cache_name)}
            given = self.inputs.later(values, filled) if past else self.inputs.first(values)
            extra = {"use_cache": True} if self.has_cache else {}
            with forgetting(module), observer, self.inputs.place():
                module(**given, **past, **extra)

    @contextlib.contextmanager
    def _as_built(self, module: torch.nn.Module) -> Iterator[None]:
        """A model that remembers what it was called with here is another one afterwards: it is kept no more."""
        state = _state(module) if self._keeps(module) else None
        try:
            yield
        finally:
            if state is not None and _state(module) != state:
                self._built = {own: kept for own, kept in self._built.items() if kept is not module}

    def _keeps(self, module: torch.nn.Module) -> bool:
        return any(module is kept for kept in self._built.values())

    def _filled(self, module: torch.nn.Module, values: Mapping[str, Any]) -> Any:
        """What the call returns that fills the cache. A model that is kept is filled once for the same sizes."""
        own = {name: values[name] for name in ("batch_size", "seq_len", *self.required)}
        if not self._keeps(module) or not all(type(v) is int for v in own.values()):
            return self._first_call(module, values)
        key = (id(module), *own.values())
        if key not in self._fillings:
            if len(self._fillings) >= KEPT:
                self._fillings.pop(next(iter(self._fillings)))
            # With the module, so that its id is given to no other one meanwhile.
            self._fillings[key] = (module, self._first_call(module, values))
        # A call changes the cache that it is given.
        return copy.deepcopy(self._fillings[key][1])

    def _first_call(self, module: torch.nn.Module, values: Mapping[str, Any]) -> Any:
        with forgetting(module), self.inputs.place():
            return module(**self.inputs.first(values), use_cache=True)

    def _probe(self, tokens: int) -> None:
        """Find out by running it on so many tokens what the model is called with, and what it returns that it takes
        again: its cache, whatever it calls it."""
        parameters = inspect.signature(self.model_class.forward).parameters
        others = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        asked = "use_cache" in parameters or (others and CACHE in parameters)
        extra = {"use_cache": True} if asked else {}
        model, point = self.build(self.defaults), {**self.defaults, "batch_size": 1, "seq_len": tokens}
        with forgetting(model), self._as_built(model), torch.no_grad(), answered(self.asked, self.chosen):
            try:
                output = self.inputs.choose(lambda given: model(**given, **extra), point)
            except (TypeError, ValueError) as error:
                if not extra or "use_cache" not in str(error):
                    raise
                asked = False  # it, or a part of it, refuses to be asked for a cache
                output = self.inputs.choose(lambda given: model(**given), point)
        given = self.inputs.first(point)
        returned = {name: getattr(output, name, None) for name in (CACHE, *parameters) if name not in given}
        again = [n for n, v in returned.items() if v is not None and not isinstance(v, torch.Tensor)]
        self.has_cache = asked and bool(again) and self.inputs.grows
        self.cache_name = next((name for name in again if name in parameters), CACHE)
        self.has_tokens, self.called_with = self.inputs.has_tokens, self.inputs.shown()

    def _lengthen(self) -> None:
        """Leave more layers, up to all of them, where a longer model runs in more phases than the cut one.

        A cache may need a layer of attention at a certain place, a layer whose weights are shared another one.
        """
        failed = self._failures()
        full, few = self.full_layers.get(LAYERS), self.defaults.get(LAYERS)
        if failed and full and few and few != full:
            chosen, self._chosen, defaults = self._chosen, [], self.defaults
            self.defaults = {**defaults, LAYERS: full}
            best = self._failures()
            if len(best) < len(failed):
                self._leave_more(self.in_order.pop(LAYERS, few), full, len(best))
                failed = best
            else:
                self._chosen, self.defaults = chosen, defaults
        if PREFILL in failed:
            raise failed[PREFILL]
        said = _refusal(failed[CHUNKED]) if CHUNKED in failed else None
        # A model that refuses one new token as well has not been called as it wants to be.
        if said is not None and len(failed) == 1:
            self.refused = {CHUNKED: said}
        self.failed = {phase: error for phase, error in failed.items() if phase not in self.refused}

    def _leave_more(self, few: int, full: int, left: int) -> None:
        """The fewest layers with which no more than ``left`` phases fail."""
        for layers in _longer(few, full):
            self.defaults = {**self.defaults, LAYERS: layers}
            if len(self._failures()) <= left:
                self.variables[LAYERS] = dataclasses.replace(self.variables[LAYERS], default=layers)
                return

    def _failures(self) -> dict[str, Exception]:
        """Phases that do not run at the default sizes, with what they end with."""
        error = self._fails()
        if error is not None and not self._runs_with_choices():
            return {PREFILL: error}
        if not self.has_cache:
            return {}
        failed = self._failing_with_cache()
        for way in self.inputs.other_ways() if failed else ():
            setattr(self.inputs, way, True)
            again = self._failing_with_cache()
            if len(again) < len(failed):
                return again
            setattr(self.inputs, way, False)
        return failed

    def _fails(self) -> Exception | None:
        first: Exception | None = None
        for tokens in (2, MOST_TRIED):  # a model that pools its tokens takes no two
            try:
                self._probe(tokens)
                return None
            except Exception as error:
                first = first or error
        return first

    def _fewest_tokens(self) -> int:
        """As few as the model runs with; as many as it was tried with at first where it runs with none fewer."""
        point = {**self.defaults, "batch_size": 2, "cache_len": 0}
        tries = range(1, MOST_TRIED)
        return next((n for n in tries if refusal(self, {**point, "seq_len": n}) is None), MOST_TRIED)

    def _runs_with_choices(self) -> bool:
        """Whether the model runs once choices are made for it; else, none are."""
        if self.chosen is not None:
            return False
        self.chosen = {}
        if self._fails() is not None:
            self.chosen = None
        return self.chosen is not None

    def _failing_with_cache(self) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        for phase, (batch, new, cached) in {"decode": (2, 1, 3), CHUNKED: (2, 3, 2)}.items():
            point = {**self.defaults, "batch_size": batch, "seq_len": new, "cache_len": cached}
            if (error := refusal(self, point)) is not None:
                failed[phase] = error
        return failed

    def _cut_layers(self) -> None:
        """Leave as many layers in each stack as it needs for a layer of every kind the full model has.

        The full model is built once (without weights); layers are alike when their classes and their plain
        attributes are, the layer's own index aside.
        """
        lists = _lists(self.build(self.defaults))
        counts = {n: v for n, v in self.defaults.items() if n == LAYERS or "layers" in n}
        owned: set[str] = set()
        # The main count last: what no other one shortens is its own, and building with each of them takes time.
        for name in sorted(counts, key=lambda n: n == LAYERS):
            long = {path for path, layers in lists.items() if len(layers) == counts[name] > 1} - owned
            if name != LAYERS and long:
                long = {p for p in long if len(self._lists_with({name: 1}).get(p, lists[p])) == 1}
            elif long:
                self._find_same_counts(long, lists)
            if not long:
                continue
            owned |= long
            first: set[int] = set()
            turns: list[Turn] = []
            for path in long:
                self.by_place |= bool(own_factors(lists[path]))
                kinds = kinds_of(lists[path])
                first.update(kinds.index(kind) for kind in set(kinds))
                turn = turn_of(kinds)
                turns += [turn] if turn is not None else []
            staged = len(first) == counts[name] > 2 or (name != LAYERS and len(first) > 1)
            if staged and "input_ids" not in self.inputs.main:
                continue  # stages, each with sizes of its own: there are no more and no fewer of them
            needed = max(first) + 1
            self.full_layers[name] = counts[name]  # from now on a build with fewer cuts the config's lists with them
            if len(first) > 1:
                needed = self._with_every_kind(name, needed, {path: lists[path] for path in long})
            self.stacks |= long
            if len(turns) == len(long):
                self.turns[name] = max(turns, key=lambda turn: turn.period)
            if name == LAYERS and len(first) < needed and self._can_choose(sorted(first), {p: lists[p] for p in long}):
                self.in_order[name], needed = needed, len(first)
            self.variables[name] = dataclasses.replace(self.variables[name], default=needed)
        self.defaults = {name: variable.default for name, variable in self.variables.items()}

    def _find_same_counts(self, long: Collection[str], lists: Mapping[str, torch.nn.ModuleList]) -> None:
        """Find the counts of the config that say the same as the number of layers, under another name."""
        full = self.defaults[LAYERS]
        one = self._lists_with({LAYERS: 1})
        if all(len(one.get(p, lists[p])) == 1 for p in long):
            return
        for name in (n for n, v in self.defaults.items() if v == full and n != LAYERS):
            one = self._lists_with({LAYERS: 1, name: 1})
            if all(len(one.get(p, lists[p])) == 1 for p in long):
                self._same[name] = self.variables.pop(name).path
                self.defaults.pop(name)
                return

    def _with_every_kind(self, name: str, needed: int, full: Mapping[str, torch.nn.ModuleList]) -> int:
        """So many layers, or some more, that no kind is missing: the last one may be of a kind by being the last."""
        own = {path: own_indices(layers) | own_factors(layers) for path, layers in full.items()}
        wanted = {path: {kind_of(layer, own[path]) for layer in layers} for path, layers in full.items()}
        for count in range(needed, min(needed + MOST_MORE, len(next(iter(full.values()))))):
            few = self._lists_with({name: count})
            if all(wanted[p] <= {kind_of(layer, own[p]) for layer in few.get(p, ())} for p in full):
                return count
        return needed

    def _can_choose(self, chosen: list[int], full: Mapping[str, torch.nn.ModuleList]) -> bool:
        """Whether a model of these layers alone can be built from the config's lists; then it is what is run."""
        self._chosen = chosen
        few = self._lists_with({LAYERS: len(chosen)})
        if all(
            len(few.get(path, ())) == len(chosen)
            and all(kind_of(few[path][i], own) == kind_of(layers[index], own) for i, index in enumerate(chosen))
            for path, layers in full.items()
            for own in [own_indices(layers) | own_factors(layers)]
        ):
            return True
        self._chosen = []
        return False

    def _lists_with(self, change: Mapping[str, int]) -> dict[str, torch.nn.ModuleList]:
        try:
            return _lists(self.build({**self.defaults, **change}))
        except Exception:
            return {}  # a count that cannot be changed by itself stays as it is


PREFILL = "prefill"

CACHE = "past_key_values"
"""What most models call their cache."""

MOST_MORE = 3
"""Layers that are tried beyond the first ones of each kind."""

MOST_TRIED = 8
"""Tokens that a model is called with at first where it takes no two."""

KEPT = 4
"""Models without weights that are kept to be run again."""


def _state(model: torch.nn.Module) -> list[Any]:
    """Plain attributes of all modules, and which tensors they hold."""
    return [
        (id(value) if isinstance(value, torch.Tensor) else value)
        for module in model.modules()
        for held in (vars(module), module._buffers)
        for value in held.values()
        if isinstance(value, (bool, int, float, str, torch.Tensor, type(None)))
    ]


def _lists(model: torch.nn.Module) -> dict[str, torch.nn.ModuleList]:
    return {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList)}


@contextlib.contextmanager
def _as_loaded() -> Iterator[None]:
    """While active, what constructors make is what there is once weights are loaded.

    ``torch.FloatTensor(2, 3)`` has the default dtype and device: the old constructor knows neither, and such weights
    would stay float32, and on the CPU.
    """
    original = torch.FloatTensor

    class Made:
        """A class, as the original: modules that are read meanwhile name it in their annotations."""

        def __new__(cls, *sizes: Any) -> Any:
            plain = all(isinstance(size, (int, torch.SymInt)) for size in sizes)
            return torch.empty(sizes) if plain else original(*sizes)

    torch.FloatTensor = Made
    try:
        with _Constants():
            yield
    finally:
        torch.FloatTensor = original


def _leave_no_data(model: torch.nn.Module) -> None:
    """Put weights of ``torch.Tensor(2, 3)``, which knows no default device, on the meta device as well.

    A weight that several modules share stays one.
    """
    moved: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            if weight.device.type != "meta":
                if weight not in moved:
                    made = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
                    moved[weight] = torch.nn.Parameter(made, requires_grad=False)
                module.register_parameter(name, moved[weight])


class _Constants(TorchFunctionMode):
    """While active, a whole number in a tensor (a stride) keeps its value, which forward() reads."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and type(args[0]) is int and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


def _refusal(error: Exception) -> Refusal | None:
    """Where a model's own source raises this; None where something else went wrong in it."""
    failure = failure_of(error)
    line = failure.place.rpartition(":")[2]
    if not failure.code.strip().startswith(("raise ", "assert ")) or not line.isdigit():
        return None
    return Refusal(failure.file, int(line), failure.text)


def _longer(few: int, full: int) -> Iterator[int]:
    """Numbers of layers to try, each about half as large again as the last; then all."""
    while few < full:
        yield few
        few += max(1, few // 2)
    yield full
