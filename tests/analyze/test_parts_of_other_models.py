"""A model that is part of another one, which calls it with embeddings, and that runs standalone on token ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lmp.analyze.models import ModelOutcome, expand_model
from lmp.analyze.modules import verify_module
from lmp.analyze.session import Options, Session
from lmp.formula import evaluate
from lmp.store.results import Store

MODELS = "transformers.models"
MASKFORMER = "maskformer.modeling_maskformer"
FUYU = "transformers.models.fuyu.modeling_fuyu.FuyuForCausalLM"
PERSIMMON = "transformers.models.persimmon.modeling_persimmon.PersimmonForCausalLM"
TEXT = "transformers.models.persimmon.modeling_persimmon.PersimmonModel"
LAYER = "transformers.models.persimmon.modeling_persimmon.PersimmonDecoderLayer"


def expand(class_path: str, options: Options) -> ModelOutcome:
    return expand_model(class_path, options, lambda name, stage: None)


def inputs(options: Options) -> set[str]:
    found = Store(options.results).load(TEXT, "default")
    assert found is not None
    return {"input_ids", "inputs_embeds"} & found.interface.keys()


def totals(outcome: ModelOutcome) -> list[int]:
    """Values at prefill, decode and chunked prefill: equal formulas may have two forms."""
    model = outcome.model
    found = []
    for batch, new, cached in ((2, 7, 0), (3, 1, 9), (2, 4, 9)):
        values = {**model.values, "batch_size": batch, "seq_len": new, "cache_len": cached}
        values |= {"w_bytes": 2, "a_bytes": 2, "kv_bytes": 2}
        found += [evaluate(getattr(model.totals, name), values) for name in ("flops", "read", "write")]
    return found


@pytest.mark.parametrize(
    ("model", "part", "otherwise"),
    [
        # MaskFormerConfig's backbone is Swin-B at 384 x 384, MaskFormerSwinConfig is Swin-T at 224 x 224.
        (f"{MASKFORMER}.MaskFormerModel", f"{MASKFORMER}_swin.MaskFormerSwinModel", True),
        (f"{MASKFORMER}.MaskFormerModel", f"{MASKFORMER}_swin.MaskFormerSwinLayer", True),
        ("clip.modeling_clip.CLIPModel", "clip.modeling_clip.CLIPVisionModel", False),
        ("llama.modeling_llama.LlamaForCausalLM", "llama.modeling_llama.LlamaModel", False),
    ],
)
def test_a_backbone_of_another_config_is_not_the_model_that_runs_by_itself(
    model: str, part: str, otherwise: bool, shared_options: Options
) -> None:
    from lmp.analyze.execution import Execution
    from lmp.workload.load import load_class

    session = Session(shared_options, lambda name, stage: None)
    execution = Execution(session, session.locate(f"{MODELS}.{model}"))
    assert execution.is_configured_otherwise(load_class(f"{MODELS}.{part}")) is otherwise


@pytest.mark.long
def test_no_model_is_linked_from_what_another_one_called_otherwise(
    default_family: None, shared_options: Options, tmp_path: Path
) -> None:
    options = replace(shared_options, results=tmp_path / "results")

    outer = expand(FUYU, options)
    assert inputs(options) == {"inputs_embeds"}
    # Standalone it would be called with token ids: it is judged in the model in which it was run.
    judged = verify_module(TEXT, options).analysis
    assert (judged.verification.status, judged.within, judged.as_a_part) == ("verified", FUYU, True)

    alone = expand(PERSIMMON, options)
    assert inputs(options) == {"input_ids"}
    assert {TEXT, PERSIMMON} <= set(alone.made)
    # Its layers are calls of one class; their operators are not inlined.
    assert LAYER in alone.model.parts
    assert alone.model.verification.status == "verified"

    again = expand(FUYU, options)
    assert inputs(options) == {"inputs_embeds"}
    assert totals(again) == totals(outer)

    # The requested text model is the standalone one.
    assert expand(TEXT, options).model.verification.status == "verified"
    assert inputs(options) == {"input_ids"}
