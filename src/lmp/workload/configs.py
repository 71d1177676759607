"""The config of a model: the section of its text model, its integers, and its per-layer lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lmp.workload.base import Variable

Section = tuple[str, Any]
"""The path of a section in the whole config (``text_config.``, or "" for the whole), and the section."""

LAYERS = "num_hidden_layers"

STANDARD_NAMES = {"num_attention_heads": "num_heads"}
"""The contract's names where they differ from transformers' standard ones."""


def text_part(config: Any) -> tuple[Any, str]:
    """The section of a config that the text model is built from, and its name; "" if it is the whole config."""
    part = config.get_text_config()
    if part is config:
        return config, ""
    return part, next((name for name, value in vars(config).items() if value is part), "")


def sections_of(config: Any, prefix: str = "") -> Iterator[Section]:
    """The config and its nested sections, each with its path."""
    yield prefix, config
    for name, value in vars(config).items():
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            yield from sections_of(value, f"{prefix}{name}.")


def stated(config: Any) -> dict[str, Any]:
    """The values of a config, without those that a model built from it has written into it."""
    return {n: v for n, v in config.to_dict().items() if not n.startswith("_") and n not in ("dtype", "architectures")}


def standard_names(part: Any) -> dict[str, str]:
    """A config's own name -> transformers' standard name of the same field."""
    return {own: standard for standard, own in (getattr(part, "attribute_map", {}) or {}).items()}


def config_variables(config: Any) -> dict[str, Variable]:
    """The integers of the config's text section by canonical name (attribute_map, then the contract's own names)."""
    part, prefix = text_part(config)
    canonical = standard_names(part)
    found = {}
    for attribute, value in vars(part).items():
        # Token ids, booleans and disabled switches (0) are no sizes; private attributes belong to transformers.
        if (
            type(value) is not int
            or value <= 0
            or attribute.startswith("_")
            or attribute.endswith(("token_id", "token_ids"))
        ):
            continue
        standard = canonical.get(attribute, attribute)
        name = STANDARD_NAMES.get(standard, standard)
        found[name] = Variable(name, ".".join(filter(None, ("config", prefix, standard))), value)
    layers = getattr(part, LAYERS, None)
    if type(layers) is int and LAYERS not in found:
        found[LAYERS] = Variable(LAYERS, ".".join(filter(None, ("config", prefix, LAYERS))), layers)
    return found


def layer_lists(config: Any, layers: int) -> dict[str, Any]:
    """The per-layer lists of a config: those with ``layers`` entries."""
    return {n: list(v) for n, v in vars(config).items() if isinstance(v, (list, tuple)) and len(v) == layers}


def lists_by_rule(config: Any, layers: int) -> dict[str, Any] | None:
    """The per-layer lists that transformers derives for ``layers`` layers without explicit lists; None if it cannot."""
    part, _ = text_part(config)
    own = (getattr(part, "attribute_map", {}) or {}).get(LAYERS, LAYERS)
    stated = part.to_dict()
    full = stated.get(own)
    if not isinstance(full, int):
        return None
    for name in layer_lists(part, full):
        stated.pop(name, None)
    try:
        made = layer_lists(type(part).from_dict({**stated, own: layers}), layers)
    except Exception:
        return None
    # A rule that derives no list with ``layers`` entries does not apply to this number of layers.
    return made if made.keys() >= layer_lists(part, full).keys() else None


def cut_lists(config: Any, full: int, chosen: Sequence[int]) -> None:
    """Cut a config's per-layer lists, and lists derived from them, to the chosen layers."""
    cut = {n: [v[index] for index in chosen] for n, v in layer_lists(config, full).items()}
    for name, value in {**_following(config, cut), **cut}.items():
        object.__setattr__(config, name, value)


def _following(config: Any, cut: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Lists that a config derives from others (the positions of one kind of layer), derived from the cut ones."""
    fields = getattr(type(config), "__dataclass_fields__", {})
    stated = {n: v for n, v in config.to_dict().items() if n in fields}
    made = {n: v for n, v in vars(config).items() if isinstance(v, (list, tuple)) and n not in fields and n not in cut}
    if not made:
        return {}
    try:
        short = type(config).from_dict({**stated, **{n: v for n, v in cut.items() if n in fields}})
    except Exception:
        return {}
    return {n: v for n in made if isinstance(v := getattr(short, n, None), (list, tuple))}
