"""Profiles of engines, as data: which rules, in which order, the cache's elements, and the overhead of a step."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmp.errors import UsageError, did_you_mean
from lmp.predict.rewrite.rewriting import RULES

SHIPPED = Path(__file__).with_name("profiles.toml")
LARGEST_FILE = 1 << 16
"""Bytes of the largest file of a user."""


Microseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Profile(BaseModel):
    """What an engine does with a model's kernels."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: list[str]
    kernels: Literal["vllm", "sglang", "trtllm"] | None = None
    """The library whose kernels stand for its own, where they were measured; None: the reference."""
    cache_bytes: Literal[1, 2, 4] | None = None
    fp8_cache: bool = False
    """Whether the cache of a model in fp8 is fp8 too, unless its dtype is given."""
    absorbed: Literal["bfloat16"] | None = None
    """Dtype of the products that latent attention absorbs; None: that of the other products."""
    schedule: Literal["mixed", "prefill_first"] = "mixed"
    """Whether prompts are computed beside decodes, or all that wait before the next decode."""
    overhead_us: Microseconds = 0.0
    launch_us: tuple[Microseconds, Microseconds, Microseconds] = (0.0, 0.0, 0.0)
    """Host time of one launch that no graph hides, with the ends of its interval; 0 where graphs hide it."""


def profile_named(name: str) -> Profile:
    """A shipped profile by its name; or that of a TOML file, as ``my_engine.toml``, which has one.

    Raises UsageError for a name, a file or a rule that is not known.
    """
    if name.endswith(".toml"):
        found = _read(_text(Path(name)), name)
        if len(found) != 1:
            raise UsageError(f"{name} has {len(found)} profiles\ngive a file with one table")
        return next(iter(found.values()))
    known = profiles()
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        told = did_you_mean(close, f"known are {', '.join(known)}, or a TOML file of your own")
        raise UsageError(f"there is no profile of the engine {name[:40]!r}\n{told}")
    return known[name]


@functools.cache
def profiles() -> Mapping[str, Profile]:
    """The shipped profiles."""
    return _read(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name)


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise UsageError(f"{file} has more than {LARGEST_FILE:,} bytes\na profile is one short table")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}\ngive a TOML file, or the name of a profile") from error


def _read(text: str, origin: str) -> dict[str, Profile]:
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{origin} is no TOML: {error}\na profile is a table with rules = [...]") from error
    return {name: _profile(name, table, origin) for name, table in tables.items()}


def _profile(name: str, table: object, origin: str) -> Profile:
    try:
        found = Profile.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in (name, *first["loc"]))
        raise UsageError(f"{origin}: {place}: {first['msg']}\nfields are {', '.join(Profile.model_fields)}") from error
    unknown = next((rule for rule in found.rules if rule not in RULES), None)
    if unknown is not None:
        raise UsageError(f"{origin}: {name} names the unknown rule {unknown[:40]!r}\nknown are {', '.join(RULES)}")
    return found
