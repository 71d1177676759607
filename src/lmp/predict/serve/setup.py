"""What is served, on what, by what: one record, and the step model that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lmp.errors import LmpError, UsageError, first_line
from lmp.observe.held import Held
from lmp.predict.cache_blocks import blocks_of
from lmp.predict.engines import Settings
from lmp.predict.memory import Asked, Memory, memory
from lmp.predict.prediction import Predictor
from lmp.predict.rewrite.profiles import Profile, profile_named
from lmp.predict.rows import SAME
from lmp.predict.serve.served_model import CACHE, ServedModel
from lmp.predict.serve.stepper import ROUTING, Routing, Stepper
from lmp.predict.shard.parallel import Parallel
from lmp.records import ModelAnalysis

Count = Annotated[int, Field(ge=1, le=1024)]
Name = Annotated[str, Field(min_length=1, max_length=1024)]


class Setup(BaseModel):
    """One replica: a model on GPUs of one kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Name
    """Id on the hub, or a config.json."""
    device: Name
    engine: Name = "vllm"
    """A profile by its name, or a TOML file with one."""
    dtype: str | None = None
    """`bfloat16` or `fp8`; None: as the checkpoint stores its weights."""
    kv_dtype: str | None = None
    """`bfloat16` or `fp8`; None: the engine's choice."""
    tp: Count = 1
    ep: Count = 1
    pp: Count = 1
    routing: Routing = ROUTING
    """How tokens choose experts."""
    overhead_us: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Host time of a step; None: the profile's."""

    @field_validator("dtype", "kv_dtype", mode="before")
    @classmethod
    def usual_dtypes(cls, value: Any) -> Any:
        return SAME.get(value, value) if isinstance(value, str) else value

    dp_attention: bool = False
    """Each GPU of a group computes attention of its part of the requests, with whole weights."""

    @property
    def parallel(self) -> Parallel:
        """How GPUs share the model. Experts on ``ep`` GPUs beside a ``tp`` of 1: each attends to its own requests.

        Raises UsageError for numbers that contradict each other.
        """
        if self.tp == 1 and self.ep > 1:
            return Parallel(self.ep, self.ep, self.pp, True)
        return Parallel(self.tp, self.ep, self.pp, self.dp_attention)

    @property
    def gpus(self) -> int:
        return self.parallel.gpus


@dataclass(frozen=True)
class Sources:
    """Where models come from: each function is called with a model's name, as a setup has it."""

    expanded: Callable[[str], ModelAnalysis]
    held: Callable[[str], Held]


@dataclass
class Servers:
    """Step models and memory of setups. Each model is expanded once, each step model is made once."""

    sources: Sources
    predictor: Predictor
    _models: dict[tuple[object, ...], ServedModel] = field(default_factory=dict)
    _steppers: dict[Setup, Stepper] = field(default_factory=dict)
    _memory: dict[tuple[object, ...], Memory | str] = field(default_factory=dict)

    def stepper(self, setup: Setup) -> Stepper:
        """The step model of a setup. Raises LmpError for a model, a device or an engine that cannot be used."""
        if setup not in self._steppers:
            profile = self.profile(setup)
            device = self.predictor.device(setup.device)
            if any(profile.launch_us):
                raise UsageError(
                    f"{setup.engine} launches kernels one by one, which a served step has no time for\n"
                    "give vllm, sglang, trtllm, or a profile without launch_us"
                )
            if setup.dtype == "fp8":
                device.peak("fp8")
            self._steppers[setup] = Stepper(
                self._served(setup, profile), profile, device, self.predictor, setup.routing
            )
        return self._steppers[setup]

    def profile(self, setup: Setup) -> Profile:
        profile = profile_named(setup.engine)
        return profile if setup.overhead_us is None else profile.model_copy(update={"overhead_us": setup.overhead_us})

    def _served(self, setup: Setup, profile: Profile) -> ServedModel:
        kv_dtype = kv_dtype_of(setup, profile)
        key = (setup.model, setup.dtype, kv_dtype)
        if key not in self._models:
            self._models[key] = ServedModel(self.sources.expanded(setup.model), setup.dtype, kv_dtype)
        return self._models[key].on(setup.parallel)

    def room(self, setup: Setup, tokens: int, chunk: int) -> Room:
        """What the setup has room for. ``tokens``: of the longest request; ``chunk``: most new tokens of a step."""
        profile = self.profile(setup)
        shared = setup.parallel
        key = (setup.model, setup.device, setup.dtype, kv_dtype_of(setup, profile), shared, tokens, chunk)
        if key not in self._memory:
            self._memory[key] = self._worked_out(setup, profile, tokens, chunk)
        return Room(self._memory[key], chunk)

    def _worked_out(self, setup: Setup, profile: Profile, tokens: int, chunk: int) -> Memory | str:
        try:
            held = self.sources.held(setup.model)
            quantization = "fp8" if setup.dtype == "fp8" and held.quantised is None else None
            settings = Settings(max_model_len=tokens, max_num_batched_tokens=chunk, quantization=quantization)
            width = Fraction(CACHE[kv_dtype_of(setup, profile) or "bfloat16"])
            asked = Asked(setup.parallel.tp, setup.parallel.pp, kv_bytes=width, chunk=chunk, engine=settings)
            return memory(held, self.predictor.device(setup.device), asked)
        except LmpError as error:
            return first_line(error)


def kv_dtype_of(setup: Setup, profile: Profile) -> str | None:
    """The dtype of the cache: as it is asked for, else the engine's choice; None: 16 bits."""
    if setup.kv_dtype is not None:
        return setup.kv_dtype
    if profile.cache_bytes is not None:
        return next((word for word, width in CACHE.items() if width == profile.cache_bytes), None)
    return "fp8" if profile.fp8_cache and setup.dtype == "fp8" else None


@dataclass(frozen=True)
class Room:
    """How many requests the cache holds at once."""

    found: Memory | str
    """Or why it is not known."""
    chunk: int

    @property
    def problem(self) -> str | None:
        """Why it is not known; None if it is."""
        return self.found if isinstance(self.found, str) else None

    def requests(self, tokens: int) -> float:
        """Requests of so many tokens that the cache holds at once; infinite where it is not known or does not grow."""
        if isinstance(self.found, str):
            return float("inf")
        counts = []
        for stage in self.found.stages:
            own = blocks_of(stage.kinds, tokens, self.chunk)
            if stage.available < 0:
                return 0.0
            if stage.blocks is not None and own is not None:
                counts.append(stage.blocks.count(stage.available) / own.request)
        return min(counts, default=float("inf"))

    def refuse(self, setup: Setup, tokens: int) -> None:
        """Raise UsageError if not one request of so many tokens fits."""
        if isinstance(self.found, str) or self.requests(tokens) >= 1:
            return
        weights = float(max(stage.weight_bytes for stage in self.found.stages)) / 2**30
        total = float(self.found.total) / 2**30
        least = self.found.smallest_tp
        hint = f"it fits with tp {least}" if least is not None and least > setup.parallel.tp else "fewer tokens may fit"
        raise UsageError(
            f"{setup.model} with a request of {tokens:,} tokens does not fit on {setup.gpus} x {setup.device}: "
            f"{weights:.1f} GiB of weights on a GPU of {total:.1f} GiB\n{hint}; force predicts it all the same"
        )
