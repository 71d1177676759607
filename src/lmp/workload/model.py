"""Workload of a module of transformers: the smallest model of its file that contains it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.overrides import TorchFunctionMode

from lmp.workload.arguments import recording
from lmp.workload.base import CHUNKED, LayerPattern, Refusal, Variable, Workload, executed, refusal
from lmp.workload.cache_clearing import caches_cleared
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
from lmp.workload.failures import failure_of, hand_on
from lmp.workload.kinds import kind_of, kinds_of, own_factors, own_indices, pattern_of
from lmp.workload.model_inputs import Inputs
from lmp.workload.questions import Policy, Yes
from lmp.workload.shapes import ENCODER_LENGTH
from lmp.workload.standalone import no_initialisation


class ModelWorkload(Workload):
    """A whole model of transformers, built as by ``from_config``, cut to the fewest layers with every kind.

    Its inputs are found by trying, unless ``given`` names the tensors. With ``answers`` off, a question
    about the values of a tensor ends a run.
    """

    model_class: type[Any]
    attention: str

    def __init__(
        self,
        model_class: type[Any],
        config: Any,
        dtype: torch.dtype = torch.bfloat16,
        attention: str = "sdpa",
        given: Sequence[str] | None = None,
        answers: bool = True,
    ) -> None:
        # The same choice as in transformers; the analysis states it.
        attention = attention if attention != "sdpa" or getattr(model_class, "_supports_sdpa", True) else "eager"
        super().__init__(
            dtype=dtype,
            model_class=model_class,
            config=config,
            attention=attention,
            variables=config_variables(config),
            has_cache=True,
        )
        self._answers = answers
        self._built: dict[tuple[tuple[str, Any], ...], torch.nn.Module] = {}
        self._fillings: dict[tuple[int, ...], tuple[torch.nn.Module, Any]] = {}
        part, _ = text_part(config)
        named = {own: STANDARD_NAMES.get(standard, standard) for own, standard in standard_names(part).items()}
        self.aliases = {own: name for own, name in named.items() if own != name and name in self.variables}
        self.inputs = Inputs(model_class, config, dtype, self.variables, given)
        if self.inputs.encoder_length:
            self.required = frozenset({ENCODER_LENGTH})
            self.variables[ENCODER_LENGTH] = Variable(ENCODER_LENGTH, "inputs.input_ids.shape[1]", 11)
        self.has_encoder = self.inputs.has_decoder
        self.cache_name = CACHE
        """Output that the next call takes as its input: a KV cache, or the state of a recurrence."""
        self.failed: dict[str, Exception] = {}
        """Phase that fails without being refused -> its exception."""
        self._same: dict[str, str] = {}
        """Other config names for the number of layers -> their paths. They are no variables."""
        self._has_rule: bool | None = None
        self._each_chooses = False
        self._chosen: list[int] = []
        """Indices of the full model's layers that the smallest model has; empty: its first layers."""
        self.defaults = {name: variable.default for name, variable in self.variables.items()}
        self._cut_layers()
        self._lengthen()
        self.fewest_tokens = 1 if self.has_cache or not self.has_tokens else self._fewest_tokens()
        self._cut_rounds()
        self.hints = self.defaults

    def build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        """The model with its integers set to ``values``. The last ones built from plain numbers are cached."""
        own = tuple((name, values[name]) for name in self.variables if name in values)
        if not all(type(value) is int for _, value in own) or detect_fake_mode() is not None:
            return self._build(values)  # a model built under fake tensors consists of them
        if own not in self._built:
            if len(self._built) >= KEPT:
                self._built.pop(next(iter(self._built)))
            self._built[own] = self._build(values)
        return self._built[own]

    def _build(self, values: Mapping[str, Any]) -> torch.nn.Module:
        """The model with the requested attention, in each part that supports it."""
        if not self._each_chooses:
            try:
                return build_model(self.model_class, self._config_with(values), self.dtype, self.attention)
            except ValueError as error:
                if self.attention != "sdpa" or "attention implementation" not in str(error):
                    raise
                # A part has no sdpa. By default all parts that support it use it.
                self._each_chooses = True
        return build_model(self.model_class, self._config_with(values), self.dtype)

    def _config_with(self, values: Mapping[str, Any]) -> Any:
        """A copy of the config with these values. They may be symbolic: then the copy must not be copied again."""
        config = copy.deepcopy(self.config)
        part, _ = text_part(config)
        full, layers = self.full_layers.get(LAYERS), values.get(LAYERS)
        if full:
            # A symbolic number of layers stands for the number in the hints.
            layers = layers if isinstance(layers, int) else self.defaults[LAYERS]
            if layers == len(self._chosen):
                cut_lists(part, full, self._chosen)
            elif layers != full and not self._apply_rule(part, full, layers):
                cut_lists(part, full, [i % full for i in range(layers)])
        aliases = dict(getattr(part, "attribute_map", {}) or {})
        for name, variable in self.variables.items():
            attribute = variable.path.rpartition(".")[2]
            if isinstance(getattr(type(part), attribute, None), property):
                continue  # it is derived from the rest of the config
            if variable.path.startswith("config.") and (name in values or name in self.defaults):
                # Configs are strict dataclasses that validate on assignment, and a symbolic size is no int.
                object.__setattr__(part, aliases.get(attribute, attribute), values.get(name, self.defaults[name]))
        for path in self._same.values():
            attribute = path.rpartition(".")[2]
            object.__setattr__(part, aliases.get(attribute, attribute), values.get(LAYERS, self.defaults[LAYERS]))
        return config

    def _apply_rule(self, part: Any, full: int, layers: int) -> bool:
        """Set the per-layer lists that transformers derives for ``layers`` layers. Returns whether it derives them.

        A list stated in the config is no rule: the derived lists for all layers must equal the config's own.
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
        # Some models construct modules in forward(). Initialising their weights is not part of its work.
        with self._as_built(module), torch.no_grad(), no_initialisation(), self._answering():
            past: dict[str, Any] = {}
            cached = values["cache_len"]
            if not (isinstance(cached, int) and cached == 0):
                with before or contextlib.nullcontext():
                    filled = self._filled(module, {**values, "seq_len": cached})
                past = {self.cache_name: getattr(filled, self.cache_name)}
            given = self.inputs.later(values, filled) if past else self.inputs.first(values)
            extra = {"use_cache": True} if self.has_cache else {}
            with caches_cleared(module), observer, self.inputs.place():
                hand_on(module, **given, **past, **extra)

    def _answering(self) -> Policy | AbstractContextManager[None]:
        return Yes(self.asked, self.chosen) if self._answers else contextlib.nullcontext()

    @contextlib.contextmanager
    def _as_built(self, module: torch.nn.Module) -> Iterator[None]:
        """Drop a cached model from the cache if the run changes its state."""
        state = _state(module) if self._keeps(module) else None
        try:
            yield
        finally:
            if state is not None and _state(module) != state:
                self._built = {own: kept for own, kept in self._built.items() if kept is not module}

    def _keeps(self, module: torch.nn.Module) -> bool:
        return any(module is kept for kept in self._built.values())

    def _filled(self, module: torch.nn.Module, values: Mapping[str, Any]) -> Any:
        """The output of the call that fills the cache. A cached model is filled once for the same sizes."""
        own = {name: values[name] for name in ("batch_size", "seq_len", *self.required)}
        if not self._keeps(module) or not all(type(v) is int for v in own.values()):
            return self._first_call(module, values)
        key = (id(module), *own.values())
        if key not in self._fillings:
            if len(self._fillings) >= KEPT:
                self._fillings.pop(next(iter(self._fillings)))
            # Stored with the module, so that its id is not reused.
            self._fillings[key] = (module, self._first_call(module, values))
        # A call changes the cache that it gets.
        return copy.deepcopy(self._fillings[key][1])

    def _first_call(self, module: torch.nn.Module, values: Mapping[str, Any]) -> Any:
        with caches_cleared(module), self.inputs.place():
            return module(**self.inputs.first(values), use_cache=True)

    def _probe(self, tokens: int) -> None:
        """Run the model on ``tokens`` tokens to find its inputs, and the output that it takes again: its cache."""
        parameters = inspect.signature(self.model_class.forward).parameters
        others = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        asked = "use_cache" in parameters or (others and CACHE in parameters)
        extra = {"use_cache": True} if asked else {}
        model, point = self.build(self.defaults), {**self.defaults, "batch_size": 1, "seq_len": tokens}
        with caches_cleared(model), self._as_built(model), torch.no_grad(), self._answering():
            try:
                output = self.inputs.choose(lambda given: model(**given, **extra), point)
            except (TypeError, ValueError) as error:
                if not extra or "use_cache" not in str(error):
                    raise
                asked = False  # it, or a part of it, does not accept use_cache
                output = self.inputs.choose(lambda given: model(**given), point)
        given = self.inputs.first(point)
        returned = {name: getattr(output, name, None) for name in (CACHE, *parameters) if name not in given}
        again = [n for n, v in returned.items() if v is not None and not isinstance(v, torch.Tensor)]
        self.has_cache = asked and bool(again) and self.inputs.grows
        self.cache_name = next((name for name in again if name in parameters), CACHE)
        self.has_tokens, self.called_with = self.inputs.has_tokens, self.inputs.shown()

    def _lengthen(self) -> None:
        """Keep more layers, up to all, if a longer model runs in more phases than the cut one.

        A cache may need an attention layer at a certain position. A layer with shared weights may need its owner.
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
        # A model that also refuses one new token was not called correctly.
        if said is not None and len(failed) == 1:
            self.refused = {CHUNKED: said}
        self.failed = {phase: error for phase, error in failed.items() if phase not in self.refused}

    def _leave_more(self, few: int, full: int, left: int) -> None:
        """Set the smallest number of layers with which no more than ``left`` phases fail."""
        for layers in _longer(few, full):
            self.defaults = {**self.defaults, LAYERS: layers}
            if len(self._failures()) <= left:
                self.variables[LAYERS] = dataclasses.replace(self.variables[LAYERS], default=layers)
                return

    def _failures(self) -> dict[str, Exception]:
        """Phase that does not run at the default sizes -> its exception."""
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
        for tokens in (2, MOST_TRIED):  # a model that pools its tokens does not accept two
            try:
                self._probe(tokens)
                return None
            except Exception as error:
                first = first or error
        return first

    def _fewest_tokens(self) -> int:
        """The smallest number of tokens with which the model runs, or ``MOST_TRIED`` if none is smaller."""
        point = {**self.defaults, "batch_size": 2, "cache_len": 0}
        tries = range(1, MOST_TRIED)
        return next((n for n in tries if refusal(self, {**point, "seq_len": n}) is None), MOST_TRIED)

    def _runs_with_choices(self) -> bool:
        """True if the model runs with index choices. Otherwise ``chosen`` stays None."""
        if self.chosen is not None or not self._answers:
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
        """Set the number of layers of each stack to the smallest one with every kind of the full model.

        The full model is built once, without weights. Layers are alike if their classes and plain attributes agree. The
        layer's own index does not count.
        """
        lists = _lists(self.build(self.defaults))
        counts = {n: v for n, v in self.defaults.items() if n == LAYERS or "layers" in n}
        owned: set[str] = set()
        # The main count is last: the remaining stacks are its own, and building with each of them takes time.
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
            patterns: list[LayerPattern] = []
            for path in long:
                self.by_place |= bool(own_factors(lists[path]))
                kinds = kinds_of(lists[path])
                first.update(kinds.index(kind) for kind in set(kinds))
                pattern = pattern_of(kinds)
                patterns += [pattern] if pattern is not None else []
            staged = len(first) == counts[name] > 2 or (name != LAYERS and len(first) > 1)
            if staged and "input_ids" not in self.inputs.main:
                continue  # stages with different sizes: their number is fixed
            needed = max(first) + 1
            self.full_layers[name] = counts[name]  # from now on a build with fewer layers cuts the config's lists
            full = {path: lists[path] for path in long}
            if len(first) > 1:
                needed = self._with_every_kind(name, needed, full)
            self.stacks |= long
            if len(patterns) == len(long):
                self.layer_patterns[name] = max(patterns, key=lambda pattern: pattern.period)
            if name == LAYERS and len(first) < needed and self._can_choose(sorted(first), full):
                self.in_order[name], needed = needed, len(first)
            self.variables[name] = dataclasses.replace(self.variables[name], default=needed)
        self.defaults = {name: variable.default for name, variable in self.variables.items()}

    def _cut_rounds(self) -> None:
        """Set each integer that only counts the rounds of a long loop to a few: like layers, more repeat the same.

        It only counts rounds if each operator on the same shapes runs as much more often as there are more rounds.
        """
        point = {**self.defaults, "batch_size": 2, "seq_len": self.fewest_tokens, "cache_len": 0}
        own = executed(self, point)
        if own is None or own.total() < MANY_OPERATORS:
            return
        for name, rounds in self.defaults.items():
            if name in self.full_layers or not FEW_ROUNDS + 1 < rounds <= MOST_ROUNDS:
                continue
            few = executed(self, {**point, name: FEW_ROUNDS})
            if few is None or own.total() < SHARE * few.total():
                continue
            more, times = executed(self, {**point, name: FEW_ROUNDS + 1}), rounds - FEW_ROUNDS
            if (
                more is not None
                and own.keys() == more.keys() == few.keys()
                and all(own[each] - few[each] == times * (more[each] - few[each]) for each in own)
            ):
                self.full_layers[name] = rounds
                self.variables[name] = dataclasses.replace(self.variables[name], default=FEW_ROUNDS)
                point, own = {**point, name: FEW_ROUNDS}, few
        self.defaults = {name: variable.default for name, variable in self.variables.items()}

    def _find_same_counts(self, long: Collection[str], lists: Mapping[str, torch.nn.ModuleList]) -> None:
        """Find other config names for the number of layers."""
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
        """The smallest count from ``needed`` on with every kind: the last layer's kind may depend on its position."""
        own = {path: own_indices(layers) | own_factors(layers) for path, layers in full.items()}
        wanted = {path: {kind_of(layer, own=own[path]) for layer in layers} for path, layers in full.items()}
        for count in range(needed, min(needed + MOST_MORE, len(next(iter(full.values()))))):
            few = self._lists_with({name: count})
            if all(wanted[p] <= {kind_of(layer, own=own[p]) for layer in few.get(p, ())} for p in full):
                return count
        return needed

    def _can_choose(self, chosen: list[int], full: Mapping[str, torch.nn.ModuleList]) -> bool:
        """True if a model of only these layers can be built from the config's lists. Then it is the one that is run."""
        self._chosen = chosen
        few = self._lists_with({LAYERS: len(chosen)})
        if all(
            len(few.get(path, ())) == len(chosen)
            and all(kind_of(few[path][i], own=own) == kind_of(layers[index], own=own) for i, index in enumerate(chosen))
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
            return {}  # a count that cannot change independently stays as it is


def build_model(
    model_class: type[Any], config: Any, dtype: torch.dtype, attention: str | None = None
) -> torch.nn.Module:
    """The model of a config on the meta device in eval mode, as ``from_pretrained()`` leaves it, without data.

    Without ``attention`` each part chooses its default.
    """
    from transformers import initialization

    options = {} if attention is None else {"attn_implementation": attention}
    made: Callable[..., torch.nn.Module] = model_class._from_config
    with torch.device("meta"), initialization.no_init_weights(), recording(), _as_loaded():
        model: Any = hand_on(made, config, dtype=dtype, **options)
        _leave_no_data(model)
        # Skipped initialisation also skips the tying of weights, which decides what counts as a parameter.
        model.tie_weights()
    # Weights keep requires_grad, as from_pretrained() leaves them: ATen asks for it, under no_grad too.
    found: torch.nn.Module = model.eval()
    return found


PREFILL = "prefill"

FEW_ROUNDS, MOST_ROUNDS = 3, 256
"""Rounds of a long loop that are run, and the largest number that may be one of rounds."""

MANY_OPERATORS, SHARE = 1000, 1.25
"""Operators of a model whose long loops are cut, and how many times as many the loop has to make of them."""

CACHE = "past_key_values"
"""The name of the cache in most models."""

MOST_MORE = 3
"""Maximum number of layers that are tried beyond the first ones of each kind."""

MOST_TRIED = 8
"""Tokens of the first call if a model does not accept two."""

KEPT = 4
"""Maximum number of cached models, which have no weights."""


def _state(model: torch.nn.Module) -> list[Any]:
    """Plain attributes of all modules, and the ids of their tensors."""
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
    """While active, constructors make tensors as they are after weights are loaded.

    ``torch.FloatTensor(2, 3)`` ignores the default dtype and device. Without the patch such weights would stay float32
    on the CPU.
    """
    original = torch.FloatTensor

    class Made:
        """A class like the original, because modules imported meanwhile use it in annotations."""

        def __new__(cls, *sizes: Any) -> Any:
            plain = all(isinstance(size, (int, torch.SymInt)) for size in sizes)
            return torch.empty(sizes) if plain else hand_on(original, *sizes)

    torch.FloatTensor = Made
    try:
        with _Constants():
            yield
    finally:
        torch.FloatTensor = original


def _leave_no_data(model: torch.nn.Module) -> None:
    """Move weights from ``torch.Tensor(2, 3)``, which ignores the default device, to the meta device.

    A weight that several modules share stays shared.
    """
    moved: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            if weight.device.type != "meta":
                if weight not in moved:
                    made = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
                    moved[weight] = torch.nn.Parameter(made, requires_grad=weight.requires_grad)
                module.register_parameter(name, moved[weight])


class _Constants(TorchFunctionMode):
    """While active, an integer in a tensor (a stride) keeps its value, because forward() reads it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and type(args[0]) is int and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "cpu"}
        return hand_on(func, *args, **kwargs)


def _refusal(error: Exception) -> Refusal | None:
    """The line at which a model's own source raises the error; None for other errors."""
    failure = failure_of(error)
    line = failure.place.rpartition(":")[2]
    if not failure.code.strip().startswith(("raise ", "assert ")) or not line.isdigit():
        return None
    return Refusal(failure.file, int(line), failure.text)


def _longer(few: int, full: int) -> Iterator[int]:
    """Numbers of layers to try: each is about 1.5 times the last, and the final one is all."""
    while few < full:
        yield few
        few += max(1, few // 2)
    yield full
