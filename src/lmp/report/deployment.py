"""How a report's model runs on its device: GPUs, the cache's format, and the serving engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lmp.dtypes import CACHE_WORDS
from lmp.errors import UsageError
from lmp.predict.rewrite.profiles import profile_named
from lmp.predict.screen.card import SERVING
from lmp.predict.shard.parallel import ONE, Parallel


@dataclass(frozen=True)
class Deployment:
    """What ``--tp``, ``--ep``, ``--kv-dtype`` and ``--engine`` say. Raises UsageError for what is not known."""

    parallel: Parallel = ONE
    kv_dtype: str | None = None
    """None: that of the activations."""
    engine: str = SERVING
    """The profile that stands beside eager mode."""

    def __post_init__(self) -> None:
        profile_named(self.engine)
        if self.kv_dtype is not None and self.kv_dtype not in CACHE_WORDS:
            raise UsageError(f"there is no dtype {self.kv_dtype[:40]!r}\nknown are {', '.join(CACHE_WORDS)}")

    @property
    def words(self) -> str:
        """As a report's head says it, and `deployment_of` reads it."""
        kv = "" if self.kv_dtype is None else f", KV cache {self.kv_dtype}"
        return f"tp {self.parallel.tp}, ep {self.parallel.ep}{kv}, engine {self.engine}"


DEFAULT = Deployment()
_WORDS = re.compile(r"tp (?P<tp>\d+), ep (?P<ep>\d+)(?:, KV cache (?P<kv>\S+))?, engine (?P<engine>\S+)")


def deployment_of(words: str) -> Deployment:
    """The deployment that a report's head says. Raises UsageError for other words."""
    found = _WORDS.fullmatch(words.strip())
    if found is None:
        raise UsageError(f"{words[:80]!r} is no deployment\nit reads as in {DEFAULT.words}")
    return Deployment(Parallel(int(found["tp"]), int(found["ep"])), found["kv"], found["engine"])
