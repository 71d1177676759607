"""Classes that cannot be run with symbolic sizes, and calls that an analysis does not apply to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lmp.errors import Indistinct, TraceFailed
from lmp.formula import evaluate, free_variables, num, to_text, var
from lmp.trace.counts import stacked
from lmp.trace.derive import Callee, Deriver
from lmp.trace.fit import Point, Sample
from lmp.trace.recording import Recorder
from lmp.trace.runs import ALL_SIZES, CALL_SIZES, NO_SIZES, Runs
from lmp.workload.arguments import holds_given_modules, recording
from lmp.workload.base import RUNTIME
from lmp.workload.model import ModelWorkload
from lmp.workload.standalone import StandaloneWorkload

ATTENTION = "transformers.models.ctrl.modeling_ctrl.MultiHeadAttention"


@pytest.fixture(scope="module")
def root(transformers_tree: Path) -> str:
    return f"{transformers_tree.resolve()}/"


@pytest.fixture(scope="module")
def workload(root: str) -> ModelWorkload:
    from transformers import CTRLConfig, CTRLLMHeadModel

    config = CTRLConfig(n_embd=16, n_layer=2, n_head=2, dff=24, vocab_size=64, n_positions=64)
    return ModelWorkload(CTRLLMHeadModel, config)


def test_with_the_call_alone_symbolic_the_config_is_pinned(workload: ModelWorkload, root: str) -> None:
    deriver = Deriver(workload, root)
    deriver.runs.specialisation = CALL_SIZES  # the case of a config whose sizes cannot be symbolic
    deriver.runs.start(ATTENTION)
    assert deriver.runs.symbolic[0].specialisation == CALL_SIZES
    derived = deriver.derive(ATTENTION)
    assert derived.parameters.keys() <= set(RUNTIME)
    assert derived.pinned["hidden_size"] == 16
    attention = next(f for i, f in derived.items if i.key.name == "scaled_dot_product_attention")
    # Two products of 2 heads of 8: 2 * 2 * heads * queries * keys * 8, for each of 3 sequences.
    point = {"batch_size": 3, "seq_len": 11, "cache_len": 4, "w_bytes": 2, "a_bytes": 2}
    assert evaluate(attention["matmul"], point) == 3 * 2 * 2 * 2 * 11 * 15 * 8


def test_numbers_alone_give_the_same_formulas(workload: ModelWorkload, root: str) -> None:
    deriver = Deriver(workload, root)
    deriver.runs.specialisation = NO_SIZES
    deriver.runs.start(ATTENTION)
    assert deriver.runs.symbolic[0].sizes is None
    derived = deriver.derive(ATTENTION)
    attention = next(f for i, f in derived.items if i.key.name == "scaled_dot_product_attention")
    point = {"batch_size": 3, "seq_len": 11, "cache_len": 4, "w_bytes": 2, "a_bytes": 2}
    assert evaluate(attention["matmul"], point) == 3 * 2 * 2 * 2 * 11 * 15 * 8


def test_a_module_alone_is_for_any_sizes_or_none() -> None:
    assert Runs(StandaloneWorkload(torch.nn.Linear), "").most_specialised == ALL_SIZES


def test_a_container_of_given_modules_has_nothing_of_its_own() -> None:
    assert holds_given_modules(torch.nn.Sequential)
    assert not holds_given_modules(torch.nn.Linear)


class Norm(torch.nn.Module):
    """Without weights, it accepts inputs of any width, whatever the constructor's argument."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_an_input_of_another_width_than_the_module_was_told_does_not_fit(workload: ModelWorkload) -> None:
    deriver = Deriver(workload, "")
    parameters = {"batch_size": "inputs.x.shape[0]", "width": "init.width"}
    norm = Callee(parameters, alone=True, shapes={"x": ["{batch_size}", "{seq_len}", "{width}"]})
    with recording():
        module = Norm(8)

    def call(*shape: int) -> Any:
        x = torch.empty(shape, device="meta")
        return SimpleNamespace(module=module, class_path="Norm", args=(x,), kwargs={})

    assert not deriver._misfits(norm, call(2, 5, 8))
    assert not deriver._misfits(norm, call(10, 8))
    assert deriver._misfits(norm, call(2, 5, 6))


def test_an_argument_that_nobody_saw_has_no_value_whatever_is_called_so(workload: ModelWorkload) -> None:
    deriver = Deriver(workload, "")
    deriver.callees["Norm"] = Callee({"width": "init.width"})
    run: Any = SimpleNamespace(recording=None, values={"batch_size": 2}, size=int)

    def call(module: torch.nn.Module) -> Any:
        return SimpleNamespace(module=module, class_path="Norm", args=(), kwargs={})

    with recording():
        seen = Norm(8)
    unseen = Norm(8)
    assert seen.width == unseen.width == 8
    assert not deriver._unbound(call(seen), run)
    assert deriver._unbound(call(unseen), run)


def test_a_run_that_cannot_be_made_is_made_with_fewer_symbolic_sizes(
    workload: ModelWorkload, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, made = Runs(workload, root), Runs.run

    def refusing(self: Runs, numbers: dict[str, int], *, symbolic: bool, specialisation: int = ALL_SIZES) -> Any:
        if symbolic and specialisation == ALL_SIZES:
            raise TraceFailed("not with these")
        return made(self, numbers, symbolic=symbolic, specialisation=specialisation)

    monkeypatch.setattr(Runs, "run", refusing)
    run = runs.symbolic_run(runs.start_point())
    assert run.specialisation == CALL_SIZES
    assert run.values["hidden_size"] == 16  # a plain number, not a symbol


LITE = "transformers.models.glm4_moe_lite.modeling_glm4_moe_lite.Glm4MoeLite"


@pytest.fixture
def lite(root: str) -> Deriver:
    """A model of four layers: the first without experts, the others with one group of eight."""
    from transformers import Glm4MoeLiteConfig, Glm4MoeLiteModel

    config = Glm4MoeLiteConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, n_routed_experts=8, kv_lora_rank=8, q_lora_rank=12,
        qk_rope_head_dim=4, v_head_dim=8, qk_nope_head_dim=4, num_experts_per_tok=2,
    )  # fmt: skip
    assert (config.n_group, config.topk_group) == (1, 1)
    deriver = Deriver(ModelWorkload(Glm4MoeLiteModel, config), root)
    deriver.runs.start(f"{LITE}Model")
    return deriver


def test_a_number_of_layers_is_in_no_size_that_no_run_changed(lite: Deriver) -> None:
    # topk_group and the number of dense layers are both 1; topk_group cannot be 2 with one group.
    lite.runs.explore_layers()
    called = {call.class_path for call in lite.runs.symbolic[0].recording.calls}
    lite.callees |= {class_path: Callee({}) for class_path in called}  # this test ignores their formulas
    lite.callees[f"{LITE}DecoderLayer"] = Callee({"has_experts": "self.mlp.experts"})
    derived = lite.derive(f"{LITE}Model")
    counts = [f["count"] for i, f in derived.items if i.child and i.child.class_path == f"{LITE}DecoderLayer"]
    assert {n for count in counts for n in free_variables(count)} == {"num_hidden_layers"}
    # Of nine layers, only the first has no experts.
    assert sorted(evaluate(count, {"num_hidden_layers": 9}) for count in counts) == [1, 8]


def test_one_group_of_experts_is_looked_at_as_more_than_one(lite: Deriver) -> None:
    derived = lite.derive(f"{LITE}TopkRouter")
    copied = next(f for i, f in derived.items if i.key.name == "clone")
    point = {"batch_size": 3, "seq_len": 5, "num_local_experts": 8, "w_bytes": 2, "a_bytes": 2}
    # With one group, the mask is a view: its one column stands for all experts. Four groups of two experts are copied:
    # 15 * 4 numbers of 4 bytes are read, 15 * 8 are written.
    read, written = ([evaluate(copied[n], {**point, "n_group": g}) for g in (1, 4)] for n in ("read:", "write:"))
    assert (read, written) == ([0, 240], [0, 480])


def test_attention_on_shapes_that_pytorch_refuses_does_not_run() -> None:
    Shape = tuple[int, ...]

    def attend(
        q: Shape, k: Shape, v: Shape, mask: Shape | None = None, grouped: bool = False, device: str = "meta"
    ) -> torch.Size:
        query, key, value = (torch.zeros(shape, device=device) for shape in (q, k, v))
        seen = None if mask is None else torch.zeros(mask, device=device)
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(query, key, value, attn_mask=seen, enable_gqa=grouped).shape

    q, k = (2, 4, 5, 8), (2, 4, 7, 8)
    wide = (2, 4, 7, 6)
    fitting: list[Any] = [
        (q, k, k), (q, k, wide), (q, (2, 1, 7, 8), (2, 1, 7, 8)), (q[1:], k[1:], k[1:]),
        (q, k, k, (2, 1, 5, 7)), (q, k, k, (5, 7)), (q, k, k, (2, 4, 1, 1)),
        (q, (2, 2, 7, 8), (2, 2, 7, 8), None, True),
    ]  # fmt: skip
    others: list[Any] = [
        (q, (2, 8, 7, 8), (2, 8, 7, 8)), (q, (2, 2, 7, 8), (2, 2, 7, 8)), (q, wide, wide), (q, k, (2, 4, 6, 8)),
        (q, k, k, (2, 1, 5, 6)), (q, (2, 3, 7, 8), (2, 3, 7, 8), None, True),
        ((2, 4, 1, 8), k, k, (2, 1, 5, 7)), ((1, 4, 5, 8), (1, 4, 7, 8), (1, 4, 7, 8), (2, 1, 5, 7)),
    ]  # fmt: skip
    for given in fitting:
        shape = attend(*given)
        with Recorder(torch.nn.Identity(), torch.float32):
            assert attend(*given) == shape
    for given in others:
        # The reference is PyTorch: with data it checks the mask, without data the length of the values.
        with pytest.raises(RuntimeError):
            [attend(*given, device=device) for device in ("cpu", "meta")]
        with pytest.raises(RuntimeError), Recorder(torch.nn.Identity(), torch.float32):
            attend(*given)


def test_layers_alike_in_stacks_of_which_one_does_not_grow() -> None:
    def found(*counts: tuple[int, int]) -> list[str]:
        return [to_text(e) for e in stacked("n", [Sample(Point({"n": n}), count) for n, count in counts])]

    assert found((1, 3), (2, 4), (6, 8)) == ["{n} + 2"]
    assert found((1, 4), (2, 6), (5, 12)) == ["2 * {n} + 2"]  # two stacks of n layers, and two more layers
    assert found((1, 3), (2, 4), (6, 7)) == []  # not on a line
    assert found((1, 3), (2, 4)) == []  # two points: they always lie on a line
    assert found((2, 4), (2, 4)) == []  # nothing grows
    assert found((1, 2), (3, 3)) == []  # half a layer per layer


def test_what_a_call_assumes_is_asked_of_a_module_for_any_sizes() -> None:
    pool = StandaloneWorkload(torch.nn.AdaptiveAvgPool2d)
    deriver = Deriver(pool, "/")
    child = SimpleNamespace(class_path="a.Pad")
    deriver.callees["a.Pad"] = Callee({}, assumptions=["{dilation} > 1", "{stride} > 1", "{other} > 1"])
    derived = SimpleNamespace(items=[(SimpleNamespace(child=child), {"dilation": var("steps") + 1, "stride": num(2)})])
    # A condition that holds for numbers is dropped, as is one with an unbound variable.
    assert [to_text(c) for c in deriver._inherited(derived)] == ["{steps} + 1 > 1"]  # type: ignore[arg-type]


def test_what_filling_a_cache_made_of_weights_are_weights(workload: ModelWorkload, root: str) -> None:
    # CTRL's first call converts its table of positions. In later calls the converted table is a weight.
    point = {**workload.hints, "batch_size": 2, "seq_len": 1}
    for cached, unit in ((0, "a_bytes"), (7, "w_bytes")):
        recording = Runs(workload, root).run({**point, "cache_len": cached}, symbolic=False).recording
        (index,) = (e.operator for e in recording.operators if e.operator.name == "index")
        assert index.inputs[0].unit == unit


def test_what_one_phase_alone_runs_is_counted_by_layers_too(
    workload: ModelWorkload, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.ctrl import modeling_ctrl

    # An operator that each layer runs for one sequence only. No file is read: the name gives the code its place.
    text = "def forward(self, v, *a, **k):\n    return original(self, v.sin() if len(v) == 1 else v, *a, **k)\n"
    names: dict[str, Any] = {"original": modeling_ctrl.MultiHeadAttention.forward}
    exec(compile(text, f"{root}models/ctrl/made_up.py", "exec"), names)
    monkeypatch.setattr(modeling_ctrl.MultiHeadAttention, "forward", names["forward"])
    deriver = Deriver(workload, root)
    model = "transformers.models.ctrl.modeling_ctrl.CTRLModel"
    deriver.runs.start(model)
    deriver.runs.explore_layers()
    for class_path in {call.class_path for call in deriver.runs.symbolic[0].recording.calls} - {model}:
        deriver.inline(class_path, "the test counts the model's own operators")
    count = next(f["count"] for i, f in deriver.derive(model).items if i.key.name == "sin")
    # The config has 2 alike layers, and symbolic runs have one of them: 7 layers run it 7 times.
    for phase in ({"seq_len": 5, "cache_len": 0}, {"seq_len": 1, "cache_len": 9}):
        assert evaluate(count, {"batch_size": 1, "num_hidden_layers": 7, **phase}) == 7


def test_a_part_that_a_module_has_not_is_a_refusal_and_one_that_lmp_has_not_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs(StandaloneWorkload(torch.nn.Linear), "/")
    monkeypatch.setattr(runs, "run", lambda numbers, symbolic: torch.nn.Linear(2, 2).head)
    assert runs.at({"seq_len": 3}) is None
    nothing: Any = None
    monkeypatch.setattr(runs, "run", lambda numbers, symbolic: Recorder(nothing, torch.float32))
    with pytest.raises(AttributeError, match="named_modules"):
        runs.at({"seq_len": 4})


def test_calls_that_differ_in_no_variable_are_refused_without_further_runs(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Gemma4TextConfig, Gemma4TextModel

    # Its rotary embedding is called twice for the same tokens, for heads of 12 and of 20.
    config = Gemma4TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=12,
        num_key_value_heads=2, global_head_dim=20, sliding_window=9, vocab_size_per_layer_input=64,
        hidden_size_per_layer_input=8, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    deriver = Deriver(ModelWorkload(Gemma4TextModel, config), root)
    rotary = "transformers.models.gemma4.modeling_gemma4.Gemma4TextRotaryEmbedding"
    deriver.runs.start(rotary)
    monkeypatch.setattr(deriver.runs, "explore", lambda points: pytest.fail("another run explains nothing"))
    with pytest.raises(Indistinct, match=r"Rotary\w+: .* has several values that no condition tells apart"):
        deriver.derive(rotary)
