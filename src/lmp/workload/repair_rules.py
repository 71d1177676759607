"""Rules that propose values for a config with which a model does not run. They use names and relations only."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lmp.workload.configs import Section, sections_of
from lmp.workload.failures import Failure

_DEMANDS = (
    re.compile(r"`?(\w+)`? must be (True|False|None|-?\d+)\b"),
    re.compile(r"`?\b(\w+) ?={1,2} ?(True|False|None|-?\d+)\b"),
)
"""Messages of checks that state the required value."""
_MISSING = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
_THETA = 10_000.0
"""The default base of rotary positions in transformers."""

LMPS_OWN = {
    r"(num|n)_((local|routed)_)?experts": 8,
    r".*(experts_per_tok(en)?|top_?k)": 2,
    r".*shared_experts": 1,
    r".*_budget": 64,
    r".*_ratio": 4,
    r"clip_.*": 8,
    r"prediction_length": 8,
    r"vocab_size": 1024,
}
"""Defaults of lmp for numbers that follow from no other field: small ones that are usual in models."""


@dataclass(frozen=True)
class Change:
    """Values for fields of a config, by path (``text_config.head_dim``), with one text of reason for each."""

    values: Mapping[str, Any]
    told: tuple[str, ...]


def changes(config_class: type[Any], config: Any, failure: Failure) -> Iterator[Change]:
    """Proposals that may repair a failure, the most specific first. ``config`` is None if it cannot be made."""
    yield from _demanded(config_class, config, failure)
    if config is None:
        return
    sections = list(sections_of(config))
    for rule in _RULES:
        yield from rule(sections, failure)


# -- values that the failure states -----------------------------------------------------------------------------------


def _demanded(config_class: type[Any], config: Any, failure: Failure) -> Iterator[Change]:
    """The value that a check of the config or of the model requires for a field."""
    for pattern in _DEMANDS:
        for name, text in pattern.findall(failure.text + str(failure.error)):
            value = ast.literal_eval(text)
            for prefix, before in _places(config_class, config, name):
                told = f"{prefix}{name} = {value} (was {before}: {failure.place or config_class.__name__} asks for it)"
                yield Change({f"{prefix}{name}": value}, (told,))


def _places(config_class: type[Any], config: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Sections that have a field, each with its prefix and the field's value there."""
    if config is not None:
        yield from ((p, getattr(c, name)) for p, c in sections_of(config) if name in vars(c))
        return
    if name in getattr(config_class, "__dataclass_fields__", {}):
        yield "", "another"
    for section in (*getattr(config_class, "sub_configs_defaults", {}), *getattr(config_class, "sub_configs", {})):
        yield f"{section}.", "another"


def _left_out(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """A field that the model reads from one section and that only another section has."""
    match = _MISSING.search(str(failure.error))
    if match is None:
        return
    owner, name = match.groups()
    for prefix, part in sections:
        if type(part).__name__ != owner:
            continue
        for other_prefix, other in sections:
            value = _value(other, name)
            if other is not part and value is not None:
                told = f"{prefix}{name} = {value} (was left out; {other_prefix or 'the config: '}{name})"
                yield Change({f"{prefix}{name}": value}, (told,))
        if name == "rope_theta":
            theta = _theta(part)
            yield Change({f"{prefix}{name}": theta}, (f"{prefix}{name} = {theta} (was left out; the usual base)",))


def _value(config: Any, name: str) -> Any:
    rope = getattr(config, "rope_parameters", None)
    found = vars(config).get(name)
    if found is None and isinstance(rope, Mapping):
        found = rope.get(name)
    return found if isinstance(found, bool | int | float | str) else None


def _theta(config: Any) -> float:
    return float(getattr(type(config), "default_theta", None) or _THETA)


def _rope_by_kind(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """Rotary parameters by kind of layer, if a model looks them up by kind and finds none."""
    if not isinstance(failure.error, KeyError) and "rope" not in failure.code:
        return
    for prefix, part in sections:
        kinds = sorted(set(getattr(part, "layer_types", None) or ()))
        rope = getattr(part, "rope_parameters", None)
        if not kinds or (isinstance(rope, Mapping) and set(kinds) <= set(rope)):
            continue
        theta = rope.get("rope_theta") if isinstance(rope, Mapping) else None
        value = {kind: {"rope_type": "default", "rope_theta": theta or _theta(part)} for kind in kinds}
        told = f"{prefix}rope_parameters = {value} (had none for each kind of layer)"
        yield Change({f"{prefix}rope_parameters": value}, (told,))


def _stated_in_words(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """A default in the class's documentation that the class itself does not set."""
    for prefix, part in sections:
        text = inspect.getdoc(type(part)) or ""
        for name, value in _by_relevance(_absent(part), failure):
            stated = re.search(rf"^\s*{name} \(.*defaults to `?([^`)]+)`?\)", text, re.MULTILINE)
            if stated is None:
                continue
            try:
                value = ast.literal_eval(stated[1])
            except (ValueError, SyntaxError):
                continue
            if value is not None:
                told = f"{prefix}{name} = {value} (was None; as its documentation says)"
                yield Change({f"{prefix}{name}": value}, (told,))


# -- values that a field's name states --------------------------------------------------------------------------------


def _absent(config: Any) -> dict[str, None]:
    """Fields of a config that are None, under its own names."""
    fields = getattr(type(config), "__dataclass_fields__", {})
    return {n: None for n, v in vars(config).items() if v is None and n in fields}


def _by_relevance(names: Mapping[str, Any], failure: Failure) -> list[tuple[str, Any]]:
    """The same names, with those in the failing line first."""
    return sorted(names.items(), key=lambda item: item[0] not in failure.code)


def _first_of_several(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """The first of ``languages`` for ``default_language``."""
    for prefix, part in sections:
        for name in (n for n in _absent(part) if n.startswith("default_")):
            several = getattr(part, f"{name.removeprefix('default_')}s", None)
            if isinstance(several, list | tuple | dict) and several:
                first = next(iter(several))
                listed = f"{name.removeprefix('default_')}s"
                yield Change({f"{prefix}{name}": first}, (f"{prefix}{name} = {first} (was None; first of {listed})",))


Relation = tuple[str, str, Callable[[Any], Any]]

RELATIONS: tuple[Relation, ...] = (
    (r".+_head_dim", "head_dim", lambda c: c.head_dim),
    (r"(.*_)?head_dim|attention_head_size", "hidden_size / num_heads", lambda c: c.hidden_size // _heads(c)),
    (r"(.*_)?(num_key_value|kv|key_value|num_kv)_heads", "num_heads", lambda c: _heads(c)),
    (r"(.*_)?(n|num|num_attention)_heads", "num_heads", lambda c: _heads(c)),
    (r"(.*_)?(intermediate_size|inner_dim|ffn_dim)|n_inner", "4 * hidden_size", lambda c: 4 * c.hidden_size),
    (r"(embedding|model|word_embed_proj)_(dim|size)|d_model", "hidden_size", lambda c: c.hidden_size),
)
"""Pattern of a field's name, its default value as text, and the same as a function of the config."""


def _heads(config: Any) -> int:
    return int(config.num_attention_heads)


def _sizes(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """Numbers that follow from other fields: one by one, then all with the same first word, then all."""
    for prefix, part in sections:
        found = {n: size for n, _ in _by_relevance(_absent(part), failure) if (size := _size(part, n)) is not None}
        for name, (value, why) in found.items():
            yield Change({f"{prefix}{name}": value}, (f"{prefix}{name} = {why} = {value} (was None)",))
        for word in dict.fromkeys(n.partition("_")[0] for n in found):
            alike = {n: s for n, s in found.items() if n.startswith(f"{word}_")}
            if len(alike) > 1:
                told = tuple(f"{prefix}{n} = {why} = {value} (was None)" for n, (value, why) in alike.items())
                yield Change({f"{prefix}{n}": value for n, (value, _) in alike.items()}, told)
        if len(found) > 1:
            told = tuple(f"{prefix}{n} = {why} = {value} (was None)" for n, (value, why) in found.items())
            yield Change({f"{prefix}{n}": value for n, (value, _) in found.items()}, told)


def _size(config: Any, name: str) -> tuple[int, str] | None:
    standard = next((s for s, own in (config.attribute_map or {}).items() if own == name), name)
    for own in dict.fromkeys((standard, name)):
        for pattern, why, value in RELATIONS:
            if re.fullmatch(pattern, own):
                with contextlib.suppress(AttributeError, TypeError, ZeroDivisionError):
                    if (found := value(config)) is not None:
                        return found, why
        for pattern, number in LMPS_OWN.items():
            if re.fullmatch(pattern, own):
                return number, "a choice of lmp's"
    return None


def _rounded(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """A size that an operator accepts only in multiples of so many bytes."""
    match = re.search(r"multiple of (\d+) bytes, got (\d+)", str(failure.error))
    if match is None:
        return
    step, found = int(match[1]) // 2, int(match[2])
    for prefix, part in sections:
        for name in (n for n, v in vars(part).items() if type(v) is int and v == found):
            value = -(-found // step) * step
            told = f"{prefix}{name} = {value} (was {found}: {failure.place} takes multiples of {step})"
            yield Change({f"{prefix}{name}": value}, (told,))


def _token_ids(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """A token id that the failing line or its message names."""
    for prefix, part in sections:
        # A comparison of ids with None is False, which is no tensor.
        compared = (
            re.search(r"'bool' object has no attribute|^TypeError: (ne|eq)\(\) received", failure.text) is not None
        )
        for name in _absent(part):
            named = name in f"{failure.code} {failure.text}"
            if (name.endswith("_token_id") and (named or compared)) or (name.endswith("_token_index") and compared):
                yield Change({f"{prefix}{name}": 0}, (f"{prefix}{name} = 0 (was None; the first token)",))


def _sections(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """Sections of rotary positions with the source's default, scaled to the number of positions."""
    match = re.search(r"split_sizes to sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", str(failure.error))
    if match is None:
        return
    whole, given = int(match[1]), [int(size) for size in match[2].split(",")]
    shares = [size * whole // sum(given) for size in given]
    shares[-1] += whole - sum(shares)
    for prefix, part in sections:
        rope = getattr(part, "rope_parameters", None)
        if not isinstance(rope, Mapping):
            continue
        default = re.escape(str(given))
        names = {name for text in _sources(part) for name in re.findall(rf'\.get\("(\w+)", {default}\)', text)}
        for name in sorted(names - {n for n, v in rope.items() if v is not None}):
            told = f"{prefix}rope_parameters.{name} = {shares} (was left out; {given} do not make up {whole})"
            yield Change({f"{prefix}rope_parameters": {**rope, name: shares}}, (told,))


# -- lists of layers, switches --------------------------------------------------------------------------------------


def _kinds_of_layers(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """A list of layer kinds that is absent or lacks kinds of the model's source: all kinds in rotation."""
    for prefix, part in sections:
        layers = getattr(part, "num_hidden_layers", None)
        kinds = _named_kinds(part)
        if not isinstance(layers, int) or len(kinds) < 2:
            continue
        own = (part.attribute_map or {}).get("layer_types", "layer_types")
        fields = getattr(type(part), "__dataclass_fields__", {})
        has = set(getattr(part, own, None) or ())
        if own in fields and not set(kinds) <= has:
            value = [kinds[index % len(kinds)] for index in range(layers)]
            before = "None" if not has else f"{', '.join(sorted(has))} alone"
            yield Change(
                {f"{prefix}{own}": value},
                (f"{prefix}{own} = {', '.join(kinds)} in turn (was {before}; the model's source has these kinds)",),
            )
        for name in (n for n in _absent(part) if n.endswith(("_indices", "_layer_ids", "_layers_ids"))):
            told = f"{prefix}{name} = every second layer (was None)"
            yield Change({f"{prefix}{name}": list(range(1, layers, 2))}, (told,))


def _named_kinds(config: Any) -> list[str]:
    """Kinds of layers, by transformers' names, that the source of the config's models compares with."""
    from transformers import configuration_utils

    known = getattr(configuration_utils, "ALLOWED_ATTN_LAYER_TYPES", ())
    sources = _sources(config)
    named = [kind for kind in known if any(f'"{kind}"' in text for text in sources)]
    # Attention is last: a cache counts its tokens there, and the layers before it show that they run without.
    return sorted(named, key=lambda kind: kind == "full_attention")


def _sources(config: Any) -> list[str]:
    """Source of the config, and of the models beside it."""
    package = type(config).__module__.rpartition(".")[0]
    return [
        inspect.getsource(module)
        for name, module in list(sys.modules.items())
        if name.startswith(f"{package}.modeling_") or name == type(config).__module__
    ]


def _switches(sections: list[Section], failure: Failure) -> Iterator[Change]:
    """True for ``is_decoder``: a model with a causal head is a decoder."""
    for prefix, part in sections:
        if getattr(part, "is_decoder", None) is False:
            told = f"{prefix}is_decoder = True (was False; the model has a causal head)"
            yield Change({f"{prefix}is_decoder": True}, (told,))


_RULES = (
    _left_out,
    _rope_by_kind,
    _stated_in_words,
    _first_of_several,
    _rounded,
    _sections,
    _token_ids,
    _sizes,
    _kinds_of_layers,
    _switches,
)
"""The rules in the order of their use: those that evaluate the failure itself come first."""
