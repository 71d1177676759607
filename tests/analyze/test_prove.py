"""Which attempt is kept, and what callers then bind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lmp.analyze import prove as proving
from lmp.errors import TraceFailed
from lmp.records import ModuleAnalysis, Source, Verification
from lmp.verify.judge import Judgement

CLASS = "pkg.models.Block"


def analysis(*parameters: str) -> ModuleAnalysis:
    source = Source(file="models.py", lines=(1, 9), distribution="pkg", version="1", sha256="0" * 64)
    return ModuleAnalysis(
        class_name=CLASS, engine="trace", source=source, parameters={p: f"config.{p}" for p in parameters}, kernels=[]
    )


@pytest.mark.parametrize(
    ("specialised", "kept"),
    [("verified", "specialised"), ("unverified", "general"), ("failed", "general"), ("raises", "general")],
)
def test_callers_bind_the_attempt_that_is_kept(monkeypatch: pytest.MonkeyPatch, specialised: str, kept: str) -> None:
    """The specialised attempt comes last. If it is not kept, its parameters must not stay registered."""
    found = {"general": analysis("hc_mult", "hidden_size"), "specialised": analysis("hidden_size")}
    known: dict[str, ModuleAnalysis] = {}
    bound: dict[str, ModuleAnalysis] = {}
    execution: Any = SimpleNamespace(
        held_out=[1, 2, 3],
        session=SimpleNamespace(known=known),
        workload=SimpleNamespace(model_class=None, vary=False, has_tokens=False),
    )
    engine: Any = SimpleNamespace(rebind=lambda made: bound.update({made.class_name: made}))

    def run(attempt: Any) -> None:
        attempt.analysis = found["specialised" if attempt.specialised else "general"]
        attempt._take(attempt.analysis)
        engine.rebind(attempt.analysis)
        if attempt.specialised and specialised == "raises":
            raise TraceFailed("it does not run")
        status = specialised if attempt.specialised else "unverified"
        attempt.judgement = Judgement(Verification(status=status, reason="no point"))  # type: ignore[arg-type]

    monkeypatch.setattr(proving._Attempt, "run", run)
    proof = proving.prove(execution, engine, SimpleNamespace(class_path=CLASS))  # type: ignore[arg-type]
    assert proof.analysis is found[kept]
    assert known[CLASS] is bound[CLASS] is found[kept]
