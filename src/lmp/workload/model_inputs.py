"""Inputs of a model of transformers, derived from its config and the signature of its forward()."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from lmp.errors import TraceFailed
from lmp.formula import Expr, to_text, var
from lmp.workload.shapes import ENCODER_LENGTH, MASKS, Shape, Sizes, layouts, shape_of, tensor

MOST_TRIES = 48
"""Maximum number of calling conventions that are tried."""

TOKENS = ("input_ids", "decoder_input_ids")
"""Inputs that every text model has. A description of the inputs leaves them out."""

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
"""Arguments with a default that some models still require, in the order in which they are tried."""

PRECOMPUTED: tuple[tuple[str, ...], ...] = (
    ("position_ids", "cu_seqlens"),
    ("position_ids", "cu_seqlens", "interp_indices", "interp_weights"),
    ("position_ids", "cu_seqlens", "window_index", "cu_window_seqlens"),
    ("position_ids", "cu_seqlens", "interp_indices", "interp_weights", "window_index", "cu_window_seqlens"),
)
"""Groups of precomputed inputs for towers with a patch grid. With them the tower does not read the grid's values."""

_WIDTHS = re.compile(r"must have same reduction dim, but got \[\d+, (\d+)\] X \[(\d+), \d+\]")
"""The error message of a matrix product with rows of another width than its weights."""

Call = tuple[tuple[str, int], ...]
"""Arguments by name, each with its layout."""


class Inputs:
    """The tensors of one call, by the calling convention with the fewest of them.

    ``names`` are the config's variables. With ``only`` the model is called with these tensors, and in no other way.
    """

    def __init__(
        self,
        model_class: type[Any],
        config: Any,
        dtype: torch.dtype,
        names: Iterable[str] = (),
        only: Sequence[str] | None = None,
    ) -> None:
        self.config, self.dtype, self.names, self.only = config, dtype, tuple(names), only
        self.parameters = inspect.signature(model_class.forward).parameters
        main = getattr(model_class, "main_input_name", "input_ids")
        self.main = [name for name in ([main] if isinstance(main, str) else main) if name in self.parameters]
        self.has_decoder = bool(getattr(config, "is_encoder_decoder", False)) and has_decoder_inputs(model_class)
        self.encoder_length = self.has_decoder and "input_ids" in self.main
        self.call: Call = next(iter(self._calls()), ())
        self.on_meta = False
        """True if forward() makes tensors without a device: these must be on the meta device too."""
        self.repeats = False
        """True if a call with a cache also gets the cached tokens."""
        self.by_name = False
        """True if the model reads the encoder's output by name, not by position."""
        self.mask = torch.int64
        """The dtype of the masks."""
        self.widths: dict[str, int] = {}
        """Input whose last dimension is no size of the config -> the width in an operator's error message."""

    def choose(self, runs: Callable[[Mapping[str, Any]], Any], values: Mapping[str, Any]) -> Any:
        """Find a calling convention and return the model's output. Else raises the error of the furthest attempt."""
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
        """True if an error shows how to change the inputs: another device, boolean masks, or another width."""
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
        """Context with the device for tensors that forward() makes without one."""
        return torch.device("meta") if self.on_meta else contextlib.nullcontext()

    def first(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs of a call without a cache."""
        return {name: self._tensor(name, layout, self._sizes(values)) for name, layout in self.call}

    def _tensor(self, name: str, layout: int, sizes: Sizes) -> torch.Tensor:
        made = tensor(name, layout, sizes, self.dtype, self.mask)
        return made.new_empty((*made.shape[:-1], self.widths[name])) if name in self.widths else made

    def later(self, values: Mapping[str, Any], before: Any) -> dict[str, Any]:
        """Inputs of a call after ``before``: the encoder has run, and the cache holds other inputs than text."""
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
            vars(made)["attention_mask"] = None  # the encoder got none: nothing is padded
            return {"encoder_outputs": made, **given}
        return {"encoder_outputs": (states,), **given}

    def other_ways(self) -> tuple[str, ...]:
        """Attributes of this object that change how a model with a cache is called: see ``by_name`` and ``repeats``."""
        if self.has_decoder:
            return ("by_name",)
        # Some models take all tokens and determine the new ones themselves.
        return ("repeats",) if "input_ids" in dict(self.call) else ()

    @property
    def grows(self) -> bool:
        """True if a call with a cache adds tokens. False if it adds sound or images."""
        return self.has_decoder or "input_ids" in dict(self.call)

    @property
    def has_tokens(self) -> bool:
        """True if an input is a sequence of tokens, so that ``seq_len`` has a meaning."""
        return any(var("seq_len") in shape for _, shape in self._named())

    def shown(self) -> dict[str, str]:
        """Tensors with their shapes as text; empty if token ids are the only inputs."""
        named = dict(self._named())
        if not named.keys() - set(TOKENS) and not any(layout for _, layout in self.call):
            return {}
        texts = {name: [to_text(s) if isinstance(s, Expr) else str(s) for s in shape] for name, shape in named.items()}
        kinds = {name: " of truth values" for name in MASKS if self.mask == torch.bool}
        return {name: f"[{', '.join(sizes)}]{kinds.get(name, '')}" for name, sizes in texts.items()}

    def _named(self) -> Iterator[tuple[str, Shape]]:
        """The shape of each tensor, with sizes as formulas."""
        values = {name: var(name) for name in ("batch_size", "seq_len", ENCODER_LENGTH, *self.names)}
        for name, layout in self.call:
            shape = shape_of(name, layout, self._sizes(values))
            yield name, (*shape[:-1], self.widths.get(name, shape[-1]))

    def _sizes(self, values: Mapping[str, Any]) -> Sizes:
        return Sizes(values, self.config, ENCODER_LENGTH if self.encoder_length else "seq_len")

    def _calls(self) -> Iterator[Call]:
        """Calling conventions: the required arguments, then one more argument, and so on."""
        given = self._named_parameters()
        least = list(
            dict.fromkeys([*self.main, *self._required(), *(["decoder_input_ids"] if self.has_decoder else [])])
        )
        more = [n for n in OPTIONAL if n in given and n not in least]
        values = {"batch_size": 1, "seq_len": 2, ENCODER_LENGTH: 2}
        if self.only is not None:
            yield from self._laid_out(list(self.only), values)
            return
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
        """The call in every layout of its arguments. A mask has the layout of the masked argument."""
        counts = [range(max(1, layouts(n, self._sizes(values)))) if n not in MASKS else range(1) for n in names]
        for chosen in itertools.product(*counts):
            laid = dict(zip(names, chosen, strict=True))
            for name in laid:
                laid[name] = laid.get(name.removesuffix("_mask"), laid[name])
            yield tuple(laid.items())


@contextlib.contextmanager
def _counted() -> Iterator[list[None]]:
    """A list with one entry for each module that is entered meanwhile: a measure of how far a call ran."""
    entered: list[None] = []
    handle = register_module_forward_pre_hook(lambda module, args: entered.append(None))
    try:
        yield entered
    finally:
        handle.remove()


def has_decoder_inputs(model_class: type[Any]) -> bool:
    """True if a model's encoder and decoder have separate inputs."""
    return "decoder_input_ids" in inspect.signature(model_class.forward).parameters
