"""The sizes at which formulas are evaluated, as the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from lmp.cli.options import Common, Phase

if TYPE_CHECKING:
    from lmp.dtypes import Bytes
    from lmp.link.values import Values

    Axes: TypeAlias = Mapping[str, Values]


def given_values(common: Common, settings: Sequence[str]) -> dict[str, Values]:
    """All values that the command line gives, by name. Raises UsageError if two contradict each other."""
    from lmp.errors import UsageError
    from lmp.link.values import canonical, parse_axes, parse_values

    given = parse_axes(settings)
    sizes = {"batch_size": common.batch_size, "seq_len": common.seq_len, "cache_len": common.cache_len}
    for name, text in sizes.items():
        if text is not None:
            option = f"--{name.replace('_', '-')}"
            values = parse_values(name, text, f"{option} ")
            for written, other in given.items():
                if canonical(written) == name and list(other) != list(values):
                    raise UsageError(f"{name} is set twice: by {option} {text} and by --set\ngive it once")
            given[name] = values
    for name in sizes.keys() & given.keys():
        _check_lowest(name, given[name])
    if common.phase is not None:
        _apply_phase(common.phase, given)
    else:
        _refuse_cache_alone(common, given)
    _add_sizes(common, given)
    return given


def need_batch_size(given: Axes, common: Common) -> None:
    """Raise UsageError, with the command to type, if the batch size of a config's model is not given."""
    from lmp.cli.typed import again
    from lmp.errors import UsageError

    model = common.model_id or common.config
    if model is None or "batch_size" in given:
        return
    if common.phase is not None or {"seq_len", "cache_len"} & given.keys():
        raise UsageError(f"no batch size is given\ntype {again('-b', '16')}")
    raise UsageError(
        f"no batch size is given\ntype {again('-b', '1', '-s', '2k')}, or for a decode step: -b 16 -c 8k --phase decode"
    )


def _refuse_cache_alone(common: Common, given: Axes) -> None:
    """Raise UsageError for a cache without new tokens: most who give it mean a decode step."""
    from lmp.cli.typed import again
    from lmp.errors import UsageError

    if common.cache_len is None or "seq_len" in given or not any(given["cache_len"]):
        return
    batch = () if "batch_size" in given else ("-b", "16")
    raise UsageError(
        f"-c {common.cache_len[:40]} says what the cache holds, and nothing says how many tokens are new\n"
        f"did you mean {again('--phase', 'decode', *batch)} (one new token)? for a prefill in chunks, give -s too"
    )


def _check_lowest(name: str, values: Values) -> None:
    """Raise UsageError for a size below the lowest, before anything is analysed. A range begins with its lowest."""
    from lmp.link.values import GIVEN, checked

    lowest = 1 if name in GIVEN else 0
    checked(name, name, values[0] if isinstance(values, range) else min(values), lowest)


def _apply_phase(phase: Phase, given: dict[str, Values]) -> None:
    from lmp.errors import UsageError

    if phase is Phase.prefill:
        if any(given.get("cache_len", ())):
            raise UsageError(
                "--phase prefill starts with an empty cache, but --cache-len is not 0\n"
                "leave out one of them: without --phase, both may be larger than 0 (a prefill in chunks)"
            )
        if "seq_len" not in given:
            raise UsageError("--phase prefill needs the tokens of a prompt\ngive -s, as in --phase prefill -b 1 -s 2k")
        given["cache_len"] = (0,)
        return
    if any(length != 1 for length in given.get("seq_len", ())):
        raise UsageError("--phase decode has one new token, but --seq-len is not 1\nleave out -s, or --phase")
    if not all(given.get("cache_len", (0,))):
        raise UsageError(
            "--phase decode needs the tokens that the cache holds, at least 1\n"
            "give -c, as in --phase decode -b 16 -c 8k"
        )
    given["seq_len"] = (1,)


def _add_sizes(common: Common, given: dict[str, Values]) -> None:
    """Add the bytes that --dtype and --kv-dtype say. Raises UsageError if --set says otherwise."""
    from lmp.dtypes import cache_size, sizes
    from lmp.errors import UsageError
    from lmp.formula import number_text

    found: dict[str, tuple[Bytes, str]] = {}
    if common.element_type is not None:
        found |= {name: (size, f"--dtype {common.element_type}") for name, size in sizes(common.element_type).items()}
    if common.kv_type is not None:
        found["kv_bytes"] = cache_size(common.kv_type), f"--kv-dtype {common.kv_type}"
    for name, (size, option) in found.items():
        if name not in given:
            given[name] = (size,)
        elif tuple(given[name]) != (size,) and (name != "kv_bytes" or common.kv_type is not None):
            raise UsageError(f"{name} is set twice: to {number_text(size)} by {option} and by --set\ngive it once")
