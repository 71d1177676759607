"""Time of a step as an engine runs it: the rewritten list, each launch by the model of its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmp.errors import LmpError
from lmp.formula import Number
from lmp.link.quantisation import Scheme
from lmp.link.records import EvaluatedKernel
from lmp.predict.devices import Device
from lmp.predict.eager import Asked, CallTime, Reading, Timed, asked_of_call, reading, refuse_products, times_of
from lmp.predict.prediction import Prediction, Predictor
from lmp.predict.rewrite.profiles import Profile
from lmp.predict.rewrite.rewriting import Firing, Rewritten, rewritten
from lmp.predict.rewrite.rules import Launch
from lmp.predict.rows import Gemm, Moe, Row, row_of

TOO_MUCH = 0.1
"""Share of a step from which kernels that no rule took are named beside the step's time."""
SLOW_PATHS = {("vllm", "fp8")}
"""Engine and dtype whose measured mixtures took a slow path (README of the data): the reference engine stands for them.
"""


def _own(row: Row, engine: str) -> bool:
    """Whether the engine's own kernel is meant. Matrix products are the vendor's library in all of them."""
    slow = isinstance(row, Moe) and (engine, row.dtype) in SLOW_PATHS
    return not slow and not isinstance(row, Gemm)


class OfEngine(Predictor):
    """Predicts with the kernels of one engine, where they were measured."""

    def __init__(self, predictor: Predictor, engine: str | None = None) -> None:
        super().__init__(predictor.known, predictor.folder)
        self.engine = engine

    def predict(self, rows: Sequence[Row]) -> list[Prediction | LmpError]:
        engine = self.engine
        if engine is None:
            return super().predict(rows)
        return super().predict(
            [row.model_copy(update={"engine": engine}) if _own(row, engine) else row for row in rows]
        )


@dataclass(frozen=True)
class StepTime:
    """Time of one step of an engine."""

    call: CallTime
    """Its operators are launches, in their order."""
    rewritten: Rewritten
    overhead_us: float

    @property
    def us(self) -> tuple[float, float, float]:
        """With the 80 % interval; the overhead is as it was given."""
        us, low, high = self.call.whole
        return us + self.overhead_us, low + self.overhead_us, high + self.overhead_us

    @property
    def eager(self) -> list[Timed]:
        """Kernels that no rule took, the dearest first. A product with a weight needs no rule."""
        own = zip(self.rewritten.launches, self.call.operators, strict=True)
        return sorted((timed for launch, timed in own if launch.rule is None), key=lambda one: -one.us)

    @property
    def left(self) -> list[Timed]:
        """Kernels that no rule took and that an engine may not run: none of them reads a weight matrix."""
        return [one for one in self.eager if not _reads_a_matrix(one.kernel)]

    @property
    def left_share(self) -> float:
        """Part of the step's time that such kernels have."""
        return sum(one.us for one in self.left) / self.us[0] if self.us[0] else 0.0

    def as_json(self) -> dict[str, object]:
        """What the rules did, as ``lmp predict --engine vllm --json`` writes it."""
        found = self.rewritten
        return {
            "overhead_us": self.overhead_us,
            "step_us": [round(us, 3) for us in self.us],
            "matmul_flops": {
                "eager": found.matmul_flops_before,
                "launched": found.matmul_flops,
                "saved": found.saved,
            },
            "firings": [_firing(firing) for firing in found.firings],
            "left_share": round(self.left_share, 4),
            "eager_kernels": [
                {"path": one.kernel.path, "class_name": one.kernel.class_name, "line": one.kernel.line,
                 "operation": one.kernel.operation, "total_us": round(one.us, 3)}
                for one in self.eager
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What is predicted: the kernels of a call, and how it is computed."""

    kernels: Sequence[EvaluatedKernel]
    values: Mapping[str, Number]
    products: str = "bfloat16"
    scheme: Scheme | None = None


def time_of_step(step: Step, profile: Profile, predictor: Predictor, device: Device) -> StepTime:
    """The time of a step with the rules of a profile. Raises LmpError for what cannot be predicted."""
    found, asked = asked_of_step(step, profile, device)
    return StepTime(CallTime.of(times_of(asked, predictor, device)), found, profile.overhead_us)


def asked_of_step(step: Step, profile: Profile, device: Device) -> tuple[Rewritten, list[Asked]]:
    """The rewritten list, and what each of its launches is predicted from, in their order."""
    found = rewritten_step(step, profile, device)
    return found, asked_of_launches(found, step, device)


def rewritten_step(step: Step, profile: Profile, device: Device) -> Rewritten:
    """What a profile launches. Of the device it depends on the dtypes of its matrix units alone."""
    dtype = refuse_products(device, step.products)

    def read_by(kernel: EvaluatedKernel) -> Reading:
        return reading(kernel, device, dtype, step.values, step.scheme)

    return rewritten(
        step.kernels, profile.rules, step.values, dtype, lambda kernel: read_by(kernel).fields, profile.absorbed,
        lambda kernel: read_by(kernel).dtype == "fp8",
    )  # fmt: skip


def asked_of_launches(found: Rewritten, step: Step, device: Device) -> list[Asked]:
    """What each launch is predicted from, in their order."""
    dtype = refuse_products(device, step.products)
    plain = [launch.kernel for launch in found.launches if launch.row is None]
    asked = iter(asked_of_call(plain, device, step.values, step.products, step.scheme))
    return [next(asked) if one.row is None else _of_row(one, device, dtype) for one in found.launches]


def _of_row(launch: Launch, device: Device, dtype: str) -> Asked:
    return Asked(launch.kernel, (row_of({"device": device.name, **(launch.row or {})}),), dtype)


def _reads_a_matrix(kernel: EvaluatedKernel) -> bool:
    inputs = kernel.operands.inputs if kernel.operands is not None else []
    return any(operand.role == "weight" and len(operand.shape) > 1 for operand in inputs)


def _firing(firing: Firing) -> dict[str, object]:
    return {
        "rule": firing.rule,
        "path": firing.members[0].path,
        "repeat": firing.members[0].repeat,
        "lines": list(firing.lines),
        "ids": [kernel.id for kernel in firing.members],
        "becomes": [kernel.operation for kernel in firing.launches],
        "saved": firing.saved,
    }
