"""What models of transformers are called with. Shapes are worked out from the small configs beside them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from lmp.errors import TraceFailed
from lmp.workload.calls import CallTracker
from lmp.workload.load import load_class
from lmp.workload.model import ModelWorkload, _as_loaded, _leave_no_data
from lmp.workload.parent_models import find_parent_model
from lmp.workload.shapes import Sizes, shape_of

pytestmark = pytest.mark.usefixtures("transformers_tree")

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 2}
VISION = {**SMALL, "image_size": 16, "patch_size": 4, "num_channels": 3}
TEXT = {**SMALL, "vocab_size": 50, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}


def workload_of(path: str, config: str, **options: Any) -> ModelWorkload:
    import transformers

    cls = load_class(f"transformers.models.{path}")
    return find_parent_model(cls, getattr(transformers, config)(**options))


def first_call(workload: ModelWorkload, batch: int, new: int = 5) -> dict[str, tuple[int, ...]]:
    """Shapes of what the model's own forward() is called with."""
    values = {**workload.defaults, "batch_size": batch, "seq_len": new, "cache_len": 0}
    model = workload.build(values)
    tracker = CallTracker(model)
    workload.run(model, values, tracker)
    return {n: tuple(t.shape) for n, t in tracker.calls[0].kwargs.items() if hasattr(t, "shape")}


def test_a_vision_tower_sees_pictures() -> None:
    workload = workload_of("vit.modeling_vit.ViTModel", "ViTConfig", **VISION)
    assert workload.called_with == {"pixel_values": "[{batch_size}, {num_channels}, {image_size}, {image_size}]"}
    assert not workload.has_tokens
    assert not workload.has_cache
    assert first_call(workload, 3)["pixel_values"] == (3, 3, 16, 16)


def test_a_text_and_picture_model_is_given_both() -> None:
    workload = workload_of(
        "clip.modeling_clip.CLIPModel", "CLIPConfig", text_config=TEXT, vision_config=VISION, projection_dim=8
    )
    assert workload.called_with.keys() == {"input_ids", "pixel_values"}
    assert workload.has_tokens
    shapes = first_call(workload, 2)
    assert (shapes["input_ids"], shapes["pixel_values"]) == ((2, 5), (2, 3, 16, 16))


def test_a_text_model_is_given_token_ids_alone() -> None:
    workload = workload_of("bert.modeling_bert.BertModel", "BertConfig", **TEXT)
    assert workload.called_with == {}
    assert workload.has_tokens


def test_a_tower_is_given_the_values_of_its_grid() -> None:
    small = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 16}
    workload = workload_of(
        "qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel",
        "Qwen2_5_VLVisionConfig",
        **small,
        patch_size=4,
        fullatt_block_indexes=[0],
    )
    # Two pictures of 8 x 8 patches; a patch is 3 channels x 2 frames x 4 x 4 pixels.
    shapes = first_call(workload, 2)
    assert (shapes["hidden_states"], shapes["grid_thw"]) == ((128, 96), (2, 3))


def test_what_the_encoder_made_is_handed_on_by_name_where_the_model_wants_that() -> None:
    workload = workload_of(
        "moonshine.modeling_moonshine.MoonshineModel",
        "MoonshineConfig",
        hidden_size=32,
        intermediate_size=48,
        encoder_num_hidden_layers=1,
        decoder_num_hidden_layers=1,
        encoder_num_attention_heads=2,
        decoder_num_attention_heads=2,
        vocab_size=50,
    )
    assert workload.has_cache
    assert workload.inputs.by_name
    values = {**workload.defaults, "batch_size": 2, "seq_len": 1, "cache_len": 4}
    workload.run(workload.build(values), values, contextlib.nullcontext())


def test_rows_are_as_wide_as_an_operator_asks_for() -> None:
    # Four spectra of 6 bins are stacked before they come here: 24 are no size of the config.
    workload = workload_of(
        "granite_speech5.modeling_granite_speech5.GraniteSpeech5Encoder",
        "GraniteSpeech5EncoderConfig",
        **{n: v for n, v in SMALL.items() if n != "intermediate_size"},
        num_mel_bins=6,
        context_size=16,
    )
    assert workload.called_with["input_features"].endswith(", 24]")
    assert first_call(workload, 2)["input_features"][-1] == 24


def test_a_number_in_a_tensor_keeps_its_value() -> None:
    class Strided(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stride = torch.nn.Buffer(torch.tensor(3), persistent=False)
            self.scale = torch.nn.Parameter(torch.tensor(0.5))

    with torch.device("meta"), _as_loaded():
        made = Strided()
    assert made.stride.item() == 3
    assert made.scale.is_meta  # a weight: what it is does not matter


def test_annotations_read_while_a_model_is_built_are_of_classes() -> None:
    with torch.device("meta"), _as_loaded():
        assert torch.FloatTensor | None  # as `x: torch.FloatTensor | None` in a module that is imported only then
        weights = torch.FloatTensor(2, 3)
    assert (weights.is_meta, weights.shape) == (True, (2, 3))


def test_weights_of_the_constructor_that_knows_no_default_device_are_shapes_alone() -> None:
    class Scale(torch.nn.Module):
        def __init__(self, weight: torch.nn.Parameter | None = None) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.Tensor(2, 3)) if weight is None else weight

    with torch.device("meta"):
        first = Scale()
        model = torch.nn.Sequential(first, Scale(first.weight))
    assert not first.weight.is_meta  # else there is nothing to mend
    _leave_no_data(model)
    assert (first.weight.is_meta, first.weight.shape) == (True, (2, 3))
    assert len(list(model.parameters())) == 1  # shared as before


def test_a_model_that_does_not_run_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    from lmp.workload import parent_models as module

    tries: list[Any] = []

    class Refusing(ModelWorkload):
        def __init__(self, model_class: Any, *args: Any, **options: Any) -> None:
            tries.append(model_class)
            raise ValueError("it does not run")

    monkeypatch.setattr(module, "ModelWorkload", Refusing)
    cls, config = load_class("transformers.models.bert.modeling_bert.BertLayer"), transformers.BertConfig(**TEXT)
    unfit: dict[Any, Exception] = {}
    for _ in range(2):
        with pytest.raises(TraceFailed, match="it does not run"):
            find_parent_model(cls, config, unfit)
    assert len(tries) == len(set(tries)) == len(unfit)


def test_an_argument_without_a_rule_is_named() -> None:
    with pytest.raises(TraceFailed, match="no rule for the shape of strange_things"):
        shape_of("strange_things", 0, Sizes({"batch_size": 1, "seq_len": 1}, object()))


def test_stages_are_no_layers_to_be_repeated() -> None:
    workload = workload_of(
        "convnext.modeling_convnext.ConvNextModel",
        "ConvNextConfig",
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        image_size=64,
    )
    assert workload.full_layers == {}


def test_a_model_of_pictures_is_derived_and_proven(tmp_path: Path) -> None:
    """The whole way: a tower whose classes have other sizes in each of its stages."""
    import json

    from lmp.analyze.models import expand_model
    from lmp.analyze.session import Options

    config = tmp_path / "config.json"
    stages = {"embedding_size": 8, "hidden_sizes": [8, 16, 24], "depths": [1, 1, 1], "layer_type": "basic"}
    config.write_text(json.dumps({"model_type": "resnet", "num_channels": 3, **stages}))
    outcome = expand_model(
        "transformers.models.resnet.modeling_resnet.ResNetModel",
        Options(results=tmp_path / "results", config_file=config),
        lambda name, stage: None,
    )
    model = outcome.model
    assert model.verification.status == "verified"
    assert model.called_with == {"pixel_values": "[{batch_size}, {num_channels}, 224, 224]"}
