"""Classes of the user's own: how they are constructed and called, and which stored analyses are of that call."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmp.errors import UsageError
from lmp.records import ModelAnalysis, ModuleAnalysis
from lmp.workload.spec import Spec, parse_init, parse_inputs

if TYPE_CHECKING:
    from lmp.workload.questions import Decisions


@dataclass(frozen=True)
class OwnCall:
    """Construction and call of a class. ``module``: an existing instance, else None."""

    spec: Spec
    module: Any = None
    decisions: Decisions | None = None
    """Decisions of the module that calls it: the class is analysed on that module's path."""

    @property
    def name(self) -> str:
        """Name of the call in the results folder, for classes that have results without one."""
        about = [self.spec.inputs_text(), self.spec.init_text(), self.module is not None]
        return f"call-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]}"


def asked_for(inputs: str | None, init: str | None) -> OwnCall | None:
    """The call that ``--inputs`` and ``--init`` describe; None if neither is given."""
    if inputs is None and init is None:
        return None
    if inputs is None:
        raise UsageError(
            "--init is given without --inputs\ngive the inputs of forward(), as in "
            '--inputs "x: float[batch_size, seq_len, 256]"'
        )
    return OwnCall(Spec(parse_inputs(inputs), parse_init(init or "")))


def stored_call(analysis: ModuleAnalysis) -> OwnCall:
    """The call of a stored analysis."""
    assert analysis.given is not None
    return OwnCall(Spec(parse_inputs(analysis.given.inputs), parse_init(analysis.given.init)))


def is_of(analysis: ModuleAnalysis | ModelAnalysis, call: OwnCall) -> bool:
    """True if a stored analysis is of this call."""
    given = analysis.given
    if given is None or given.live or call.module is not None:
        return False
    return (given.inputs, given.init) == (call.spec.inputs_text(), call.spec.init_text())


def identity(analysis: ModuleAnalysis) -> str:
    """Hash of the fields that a reference relies on: equal for analyses that can replace one another."""
    about = [
        dict(sorted(analysis.fixed.items())),
        dict(sorted(analysis.parameters.items())),
        analysis.interface,
        analysis.assumptions,
        [k.model_dump(include={"flops", "memory_access", "repeat"}) for k in analysis.kernels],
        [d.model_dump() for d in analysis.decisions],
        analysis.given is not None and analysis.given.live,
    ]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
