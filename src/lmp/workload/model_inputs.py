"""What a model of transformers is called with: what follows from the signature of its forward() and from its config."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from lmp.errors import TraceFailed
from lmp.formula import Expr, to_text, var
from lmp.workload.shapes import ENCODER_LENGTH, MASKS, Shape, Sizes, layouts, shape_of, tensor

MOST_TRIES = 48
"""Ways to call a model that are tried."""

TOKENS = ("input_ids", "decoder_input_ids")
"""Inputs that need no telling: every text model has them."""

OPTIONAL = (
    "pixel_values",
    "pixel_values_videos",
    "input_values",
    "input_features",
    "input_ids",
    "bbox",
    "future_values",
    "future_time_features",
    "input_features_mask",
    "pixel_mask",
    "token_type_ids",
    "pixel_attention_mask",
    "spatial_shapes",
    "encoder_hidden_states",
    "actions",
    "returns_to_go",
    "timesteps",
)
"""Arguments with a default that models ask for all the same, those first that bring something new."""

PRECOMPUTED: tuple[tuple[str, ...], ...] = (
    ("position_ids", "cu_seqlens"),
    ("position_ids", "cu_seqlens", "interp_indices", "interp_weights"),
    ("position_ids", "cu_seqlens", "window_index", "cu_window_seqlens"),
    ("position_ids", "cu_seqlens", "interp_indices", "interp_weights", "window_index", "cu_window_seqlens"),
)
"""What towers that take a grid of patches can be given beside it, so that they need not compute it from its values."""

_WIDTHS = re.compile(r"must have same reduction dim, but got \[\d+, (\d+)\] X \[(\d+), \d+\]")
"""What a matrix product says of rows that are not as wide as its weights are long."""

Call = tuple[tuple[str, int], ...]
"""Arguments by name, each with the layout that it has."""


class Inputs:
    """The tensors of one call: of all ways to call the model, the one with the fewest of them.

    ``names`` are the config's variables.
    """

    def __init__(self, model_class: type[Any], config: Any, dtype: torch.dtype, names: Iterable[str] = ()) -> None:
        self.config, self.dtype, self.names = config, dtype, tuple(names)
        self.parameters = inspect.signature(model_class.forward).parameters
        main = getattr(model_class, "main_input_name", "input_ids")
        self.main = [name for name in ([main] if isinstance(main, str) else main) if name in self.parameters]
        self.has_decoder = bool(getattr(config, "is_encoder_decoder", False)) and has_decoder_inputs(model_class)
        self.encoder_length = self.has_decoder and "input_ids" in self.main
        self.call: Call = next(iter(self._calls()), ())
        self.on_meta = False
        """Whether forward() makes tensors without saying where: those without data must then be of the same kind."""
        self.repeats = False
        """Whether a call with a cache is given the cached tokens too."""
        self.by_name = False
        """Whether what the encoder has made is taken by its name, and not by its place."""
        self.mask = torch.int64
        """The dtype of what says which tokens count."""
        self.widths: dict[str, int] = {}
        """Inputs whose last dimension is no size of the config -> what an operator said that it must be."""

    def choose(self, runs: Callable[[Mapping[str, Any]], Any], values: Mapping[str, Any]) -> Any:
        """Find a way to call the model, and return what it returned. Raises what the way led to that came furthest."""
        furthest: tuple[int, Exception] | None = None
        for call in itertools.islice(self._calls(), MOST_TRIES):
            self.call, self.on_meta, self.mask, self.widths = call, False, torch.int64, {}
            while True:
                with _counted() as entered:
                    try:
                        with self.place():
                            return runs(self.first(values))
                    except Exception as error:
                        if furthest is None or len(entered) > furthest[0]:
                            furthest = len(entered), error
                        if not self._learn(str(error), values):
                            break
        self.call, self.on_meta, self.mask, self.widths = next(iter(self._calls()), ()), False, torch.int64, {}
        if furthest is None:
            raise TraceFailed("lmp does not know what this model is called with.")
        raise furthest[1]

    def _learn(self, said: str, values: Mapping[str, Any]) -> bool:
        """Whether an error says how inputs may be taken: on another device, masks as truth values, or wider."""
        if not self.on_meta and "device" in said:
            self.on_meta = True
            return True
        if self.mask != torch.bool and "to be bool" in said and any(name in MASKS for name, _ in self.call):
            self.mask = torch.bool
            return True
        match = _WIDTHS.search(said)
        given = self.first(values) if match is not None else {}
        for name, tensor_given in given.items():
            fits = tensor_given.is_floating_point() and tensor_given.dim() > 1 and name not in self.widths
            if match is not None and fits and int(match[1]) == tensor_given.shape[-1]:
                self.widths[name] = int(match[2])
                return True
        return False

    def place(self) -> AbstractContextManager[Any]:
        """Where tensors are made that forward() makes itself, without saying where."""
        return torch.device("meta") if self.on_meta else contextlib.nullcontext()

    def first(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs of a call without a cache."""
        return {name: self._tensor(name, layout, self._sizes(values)) for name, layout in self.call}

    def _tensor(self, name: str, layout: int, sizes: Sizes) -> torch.Tensor:
        made = tensor(name, layout, sizes, self.dtype, self.mask)
        return made.new_empty((*made.shape[:-1], self.widths[name])) if name in self.widths else made

    def later(self, values: Mapping[str, Any], before: Any) -> dict[str, Any]:
        """Inputs of a call after ``before``: an encoder has run, and what is not text is in the cache."""
        sizes = self._sizes(values)
        if not self.has_decoder:
            if self.repeats:
                sizes = self._sizes({**values, "seq_len": values["seq_len"] + values["cache_len"]})
            return {"input_ids": tensor("input_ids", dict(self.call).get("input_ids", 0), sizes, self.dtype)}
        needed = [*self._required(), "decoder_input_ids"]
        given = {name: self._tensor(name, layout, sizes) for name, layout in self.call if name in needed}
        states = before.encoder_last_hidden_state
        if self.by_name:
            from transformers.modeling_outputs import BaseModelOutput

            made = BaseModelOutput(last_hidden_state=states)
            vars(made)["attention_mask"] = None  # none was given to the encoder: nothing is padded
            return {"encoder_outputs": made, **given}
        return {"encoder_outputs": (states,), **given}

    def other_ways(self) -> tuple[str, ...]:
        """Switches of this object for other ways to call a model with a cache: see ``by_name`` and ``repeats``."""
        if self.has_decoder:
            return ("by_name",)
        # Some models are called with all tokens, and find out themselves which of them are new.
        return ("repeats",) if "input_ids" in dict(self.call) else ()

    @property
    def grows(self) -> bool:
        """Whether new tokens are what a call with a cache brings; not so where it brings sound or pictures."""
        return self.has_decoder or "input_ids" in dict(self.call)

    @property
    def has_tokens(self) -> bool:
        """Whether any of the inputs is a sequence of tokens, so that their number says something."""
        return any(var("seq_len") in shape for _, shape in self._named())

    def shown(self) -> dict[str, str]:
        """Tensors and their shapes where they are not token ids alone."""
        named = dict(self._named())
        if not named.keys() - set(TOKENS) and not any(layout for _, layout in self.call):
            return {}
        texts = {name: [to_text(s) if isinstance(s, Expr) else str(s) for s in shape] for name, shape in named.items()}
        kinds = {name: " of truth values" for name in MASKS if self.mask == torch.bool}
        return {name: f"[{', '.join(sizes)}]{kinds.get(name, '')}" for name, sizes in texts.items()}

    def _named(self) -> Iterator[tuple[str, Shape]]:
        """Each tensor's shape with its sizes as formulas."""
        values = {name: var(name) for name in ("batch_size", "seq_len", ENCODER_LENGTH, *self.names)}
        for name, layout in self.call:
            shape = shape_of(name, layout, self._sizes(values))
            yield name, (*shape[:-1], self.widths.get(name, shape[-1]))

    def _sizes(self, values: Mapping[str, Any]) -> Sizes:
        return Sizes(values, self.config, ENCODER_LENGTH if self.encoder_length else "seq_len")

    def _calls(self) -> Iterator[Call]:
        """Ways to call the model: with what it must be given alone, then with one more argument, and so on."""
        given = self._named_parameters()
        least = list(
            dict.fromkeys([*self.main, *self._required(), *(["decoder_input_ids"] if self.has_decoder else [])])
        )
        more = [n for n in OPTIONAL if n in given and n not in least]
        values = {"batch_size": 1, "seq_len": 2, ENCODER_LENGTH: 2}
        if "grid_thw" in least:
            for precomputed in PRECOMPUTED:
                yield from self._laid_out([*least, *precomputed], values)
        for extra in range(min(len(more), 3) + 1):
            for added in itertools.combinations(more, extra):
                yield from self._laid_out([*least, *added], values)

    def _named_parameters(self) -> dict[str, inspect.Parameter]:
        spread = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {n: p for n, p in self.parameters.items() if p.kind not in spread and n != "self"}

    def _required(self) -> list[str]:
        return [n for n, p in self._named_parameters().items() if p.default is inspect.Parameter.empty]

    def _laid_out(self, names: list[str], values: Mapping[str, Any]) -> Iterator[Call]:
        """The call in every layout of its arguments; a mask's is that of what it masks."""
        counts = [range(max(1, layouts(n, self._sizes(values)))) if n not in MASKS else range(1) for n in names]
        for chosen in itertools.product(*counts):
            laid = dict(zip(names, chosen, strict=True))
            for name in laid:
                laid[name] = laid.get(name.removesuffix("_mask"), laid[name])
            yield tuple(laid.items())


@contextlib.contextmanager
def _counted() -> Iterator[list[None]]:
    """How many modules are entered while this is active, one entry each: how far a call came."""
    entered: list[None] = []
    handle = register_module_forward_pre_hook(lambda module, args: entered.append(None))
    try:
        yield entered
    finally:
        handle.remove()


def has_decoder_inputs(model_class: type[Any]) -> bool:
    """Whether a model's encoder and decoder are given inputs of their own."""
    return "decoder_input_ids" in inspect.signature(model_class.forward).parameters
