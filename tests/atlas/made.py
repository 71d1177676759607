"""A small atlas, written by hand: one model of two lines, with facts of a config of four fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmp.atlas.archive import Atlas
from lmp.atlas.making import Made, parts
from lmp.atlas.records import Facts, Follow, HeldPeak, HeldPeaks, HeldRecord, Listed
from lmp.records import ConfigOrigin, MemoryAccess, ModelAnalysis, ModelKernel, Part, Source, Totals, Verification
from lmp.store.fingerprint import derived_by, judged_by, linked_by

CLASS = "transformers.models.tiny.modeling_tiny.TinyForCausalLM"
SHA256 = "c" * 64
SOURCE = Source(file="src/transformers/models/tiny/modeling_tiny.py", lines=(1, 9), distribution="transformers",
                version="5.23.0", sha256="0" * 64)  # fmt: skip
ORIGIN = ConfigOrigin(name="org--Tiny", origin="a test", sha256=SHA256)

FACTS = Facts(
    stated={"width": 8, "layers": 2, "act": "silu", "model_type": "tiny"},
    resolved={
        "width": 8,
        "layers": 2,
        "heads": 2,
        "act": "silu",
        "kinds": ["full", "full"],
        "scale": 1.0,
        "tied": True,
    },
    sections=[],
    aliases={"": {"hidden_size": "width"}},
    unread=["model_type", "made_by"],
    sizes=["width", "layers", "heads", "unused"],
    follows={
        "heads": Follow(kind="quotient", of=["width", "layers"]),
        "kinds": Follow(kind="repeated", value="full", of=["layers"]),
        "width": Follow(kind="value", value=64),
        "act": Follow(kind="required"),
    },
    parameters={"hidden_size": "width", "num_hidden_layers": "layers"},
)
"""`heads` is width / layers and `kinds` one word for each layer, where they are not stated."""


def model(**more: Any) -> ModelAnalysis:
    """Each layer: 2 * batch * hidden FLOPs; it reads hidden * w_bytes and writes batch * a_bytes."""
    kernel = ModelKernel(
        kernel_type="basic", operation="product", line=3, code="y = x @ w", analysis="", category="matmul",
        repeat="{num_hidden_layers}", flops="2 * {batch_size} * {hidden_size}",
        memory_access=MemoryAccess(read="{hidden_size} * {w_bytes}", write="{batch_size} * {a_bytes}"),
    )  # fmt: skip
    n = "{num_hidden_layers}"
    flops = f"{n} * 2 * {{batch_size}} * {{hidden_size}}"
    totals = Totals(
        flops=flops, matmul_flops=flops, read=f"{n} * {{hidden_size}} * {{w_bytes}}",
        write=f"{n} * {{batch_size}} * {{a_bytes}}", parameters_count=f"{n} * {{hidden_size}}",
    )  # fmt: skip
    fields: dict[str, Any] = {
        "class_name": CLASS,
        "engine": "trace",
        "source": SOURCE,
        "config": ORIGIN,
        "parameters": {
            "batch_size": "inputs.input_ids.shape[0]",
            "seq_len": "inputs.input_ids.shape[1]",
            "hidden_size": "config.hidden_size",
            "num_hidden_layers": "config.num_hidden_layers",
        },
        "values": {"hidden_size": 8, "num_hidden_layers": 2},
        "assumptions": ["{hidden_size} % 4 == 0", "{seq_len} <= 64"],
        "kernels": [kernel],
        "totals": totals,
        "parts": {CLASS: Part(status="verified", sha256="0" * 64)},
        "verification": Verification(status="verified", points=7),
        "fingerprint": {"derived_by": derived_by(), "judged_by": judged_by(), "linked_by": linked()},
    }
    return ModelAnalysis(**{**fields, **more})


def linked() -> str:
    return linked_by("transformers 5.23.0", "torch 2.13.0", "sdpa", "bfloat16", ORIGIN.model_dump_json())


def line(**more: Any) -> Listed:
    fields: dict[str, Any] = {
        "name": "org--Tiny", "model_id": "org/Tiny", "family": "tiny", "class_name": CLASS, "attention": "sdpa",
        "dtype": "bfloat16", "status": "verified", "points": 7,
        "distributions": {"transformers": "5.23.0", "torch": "2.13.0"}, "derived_by": derived_by(),
        "judged_by": judged_by(), "linked_by": linked(), "origin": ORIGIN, "held_by": "", "sha256": "",
    }  # fmt: skip
    return Listed(**{**fields, **more})


def held() -> HeldRecord:
    """Peaks: 100 bytes a token up to 4 tokens, then 300 a token."""
    peaks = [
        HeldPeak(tokens=n, bytes=b, operator="mm", largest=[]) for n, b in ((1, 100), (2, 200), (4, 400), (8, 1600))
    ]
    return HeldRecord(
        class_name=CLASS, dtype="bfloat16", element_size=2, quantised=None,
        weights=[("layers.0", "weight", "torch.nn.modules.linear.Linear", [8, 8], 2, "128", True)], kept=[],
        reason=None, part="", plan={}, config={}, vision=None, warnings=[], live=[HeldPeaks(sizes={}, peaks=peaks)],
    )  # fmt: skip


def atlas(folder: Path, **more: Any) -> Atlas:
    """An atlas with this one entry."""
    found, listed = Atlas(folder, is_new=True), line(**more)
    found.write(listed, parts(Made(model(class_name=listed.class_name, config=listed.origin), {}, FACTS, held())))
    return found
