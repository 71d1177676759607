"""Hand-written analyses compared with execution: correct ones are verified, each planted error is found at its line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lmp.errors import NotFound
from lmp.records import FindingKind, Kernel, MemoryAccess, ModuleAnalysis, Operand, Operands, Source
from lmp.verify.counter import Counter, flop_counter_total
from lmp.verify.judge import Point, judge, observe
from lmp.verify.points import PointKind
from lmp.workload.arguments import recording

LINEAR = "torch.nn.modules.linear.Linear"
SILU = "transformers.activations.SiLUActivation"
LLAMA = "transformers.models.llama.modeling_llama"

N = "{batch_size} * {seq_len} * {hidden_size}"
ROWS = "{batch_size} * {seq_len}"


def relative(file: str) -> str:
    """The path of an executed file as in analyses."""
    import torch
    import transformers

    for package, prefix in ((torch, "torch"), (transformers, "src/transformers")):
        root = Path(str(package.__file__)).parent
        if Path(file).is_relative_to(root):
            return f"{prefix}/{Path(file).relative_to(root)}"
    return Path(file).name


def kernel(line: int, flops: str, read: str, write: str, category: str = "elementwise", **more: Any) -> Kernel:
    return Kernel(
        kernel_type="basic", operation=f"line {line}", line=line, code="", analysis="", category=category,
        flops=flops, memory_access=MemoryAccess(read=read, write=write), **more,
    )  # fmt: skip


def analysis(name: str, file: str, parameters: dict[str, str], kernels: list[Kernel], **more: Any) -> ModuleAnalysis:
    source = Source(file=file, lines=(1, 2), distribution="test", version="0", sha256="0")
    return ModuleAnalysis(class_name=name, engine="hand", source=source, parameters=parameters, kernels=kernels, **more)


@pytest.fixture
def linear(line_of: Callable[..., int]) -> ModuleAnalysis:
    line = line_of(torch.nn.Linear, "return F.linear(")
    outputs = "{batch_size} * {seq_len} * {out_features}"
    return analysis(
        LINEAR,
        "torch/nn/modules/linear.py",
        {
            "batch_size": "inputs.input.shape[0]",
            "seq_len": "inputs.input.shape[1]",
            "in_features": "init.in_features",
            "out_features": "init.out_features",
            "bias": "init.bias",
        },
        [
            kernel(
                line,
                f"2 * {outputs} * {{in_features}}",
                "{in_features} * {out_features} * {w_bytes} + {batch_size} * {seq_len} * {in_features} * {a_bytes}",
                f"{outputs} * {{a_bytes}}",
                "matmul",
            ),
            kernel(line, f"{{bias}} * {outputs}", "{bias} * {out_features} * {w_bytes}", "0"),
        ],
    )


@pytest.fixture
def norm(line_of: Callable[..., int]) -> ModuleAnalysis:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    def line(text: str) -> int:
        return line_of(LlamaRMSNorm, text)

    return analysis(
        f"{LLAMA}.LlamaRMSNorm",
        "src/transformers/models/llama/modeling_llama.py",
        {
            "batch_size": "inputs.hidden_states.shape[0]",
            "seq_len": "inputs.hidden_states.shape[1]",
            "hidden_size": "self.weight.shape[0]",
        },
        [
            kernel(line("to(torch.float32)"), "0", f"{N} * {{a_bytes}}", f"4 * {N}"),
            # square, then one addition per element and one division per row
            kernel(line("pow(2)"), f"2 * {N} + {ROWS}", f"8 * {N}", f"4 * {N} + 4 * {ROWS}"),
            # add eps, rsqrt, product
            kernel(line("torch.rsqrt"), f"{N} + 2 * {ROWS}", f"4 * {N} + 12 * {ROWS}", f"4 * {N} + 8 * {ROWS}"),
            # downcast, product with the weight
            kernel(
                line("return self.weight"),
                N,
                f"4 * {N} + {N} * {{a_bytes}} + {{hidden_size}} * {{w_bytes}}",
                f"2 * {N} * {{a_bytes}}",
            ),
        ],
    )


@pytest.fixture
def silu(line_of: Callable[..., int]) -> ModuleAnalysis:
    from transformers.activations import SiLUActivation

    return analysis(
        SILU,
        "src/transformers/activations.py",
        {"batch_size": "inputs.input.shape[0]", "seq_len": "inputs.input.shape[1]", "width": "inputs.input.shape[2]"},
        [
            kernel(
                line_of(SiLUActivation, "return nn.functional.silu("),
                "4 * {batch_size} * {seq_len} * {width}",
                "{batch_size} * {seq_len} * {width} * {a_bytes}",
                "{batch_size} * {seq_len} * {width} * {a_bytes}",
            )
        ],
    )


@pytest.fixture
def mlp(line_of: Callable[..., int]) -> ModuleAnalysis:
    from transformers.models.llama.modeling_llama import LlamaMLP

    line = line_of(LlamaMLP, "self.down_proj(self.act_fn(")
    inner = f"{ROWS} * {{intermediate_size}}"

    def call(target: str, **bound: str) -> Kernel:
        given = {"batch_size": "{batch_size}", "seq_len": "{seq_len}"} | bound
        text = f"${{{{{target}}}}}({', '.join(f'{name}={value}' for name, value in given.items())})"
        return kernel(line, text, text, text, "module").model_copy(update={"kernel_type": "composite"})

    # the spelling of earlier tools
    by_position = f"${{{SILU}}}({{batch_size}}, {{seq_len}}, {{intermediate_size}})"
    up = call(LINEAR, in_features="{hidden_size}", out_features="{intermediate_size}", bias="0")
    return analysis(
        f"{LLAMA}.LlamaMLP",
        "src/transformers/models/llama/modeling_llama.py",
        {
            "batch_size": "inputs.x.shape[0]",
            "seq_len": "inputs.x.shape[1]",
            "hidden_size": "config.hidden_size",
            "intermediate_size": "config.intermediate_size",
        },
        [
            up.model_copy(update={"repeat": 2}),
            kernel(line, by_position, by_position, by_position, "module"),
            kernel(line, inner, f"2 * {inner} * {{a_bytes}}", f"{inner} * {{a_bytes}}"),
            call(LINEAR, in_features="{intermediate_size}", out_features="{hidden_size}", bias="0"),
        ],
    )


def point(module: torch.nn.Module, *shape: int) -> Point:
    """Cost of one call of the module with an input of that shape."""
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    counter = Counter(module, torch.bfloat16)

    def run(observer: Any) -> None:
        with torch.no_grad(), observer:
            module(x)

    run(counter)
    values = {"batch_size": shape[0], "seq_len": shape[1], "cache_len": 0}
    label = f"batch_size={shape[0]}, seq_len={shape[1]}"
    return Point(label, values, counter.counts, counter.calls, flop_counter=flop_counter_total(run))


def make(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    with torch.device("meta"), recording():
        return cls(*args, **kwargs).to(torch.bfloat16).eval()


def linears(bias: bool = True) -> list[Point]:
    return [point(make(torch.nn.Linear, 6, 10, bias=bias), *shape) for shape in ((2, 5, 6), (3, 1, 6))]


def norms() -> list[Point]:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return [point(make(LlamaRMSNorm, 8), *shape) for shape in ((2, 5, 8), (3, 1, 8))]


def another_norm(*shape: int) -> Point:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return point(make(LlamaRMSNorm, 8), *shape, 8)


def mlps() -> list[Point]:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    return [point(make(LlamaMLP, LlamaConfig(hidden_size=6, intermediate_size=10, num_attention_heads=2)), 2, 5, 6)]


def verify(subject: ModuleAnalysis, points: Sequence[Point], *others: ModuleAnalysis) -> Any:
    known = {other.class_name: other for other in others}

    def lookup(name: str) -> ModuleAnalysis:
        if name not in known:
            raise NotFound(f"there is no analysis of {name}")
        return known[name]

    return judge(subject, points, lookup, relative).verification


def changed(subject: ModuleAnalysis, index: int, **update: Any) -> ModuleAnalysis:
    """A copy with one kernel changed."""
    kernels = list(subject.kernels)
    kernels[index] = kernels[index].model_copy(update=update)
    return subject.model_copy(update={"kernels": kernels})


def test_a_right_analysis_is_verified(linear: ModuleAnalysis, norm: ModuleAnalysis) -> None:
    for subject, points in ((linear, linears()), (linear, linears(bias=False)), (norm, norms())):
        found = verify(subject, points)
        assert (found.status, found.points, found.findings) == ("verified", 2, [])
        assert found.checks == [
            "line by line: FLOPs, matmul FLOPs, read and write equal at batch_size=2, seq_len=5 (1 call)",
            "matmul_flops of the whole run equal torch.utils.flop_counter at batch_size=2, seq_len=5",
            "line by line: FLOPs, matmul FLOPs, read and write equal at batch_size=3, seq_len=1 (1 call)",
            "matmul_flops of the whole run equal torch.utils.flop_counter at batch_size=3, seq_len=1",
        ]


def test_references_are_followed(mlp: ModuleAnalysis, linear: ModuleAnalysis, silu: ModuleAnalysis) -> None:
    found = verify(mlp, mlps(), linear, silu)
    assert (found.status, found.points, found.findings) == ("verified", 1, [])


def test_calls_inside_a_whole_model(mlp: ModuleAnalysis, linear: ModuleAnalysis, silu: ModuleAnalysis) -> None:
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM

    from lmp.workload.model import ModelWorkload

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 101}
    workload = ModelWorkload(LlamaForCausalLM, LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes))
    values = {**workload.defaults, "num_hidden_layers": 2, "batch_size": 2, "seq_len": 5, "cache_len": 7}
    run = observe(workload, {**values, "intermediate_size": 80}, "chunked prefill")
    assert run.label == "chunked prefill: batch_size=2, seq_len=5, cache_len=7"
    assert run.flop_counter == sum(count.matmul_flops for count in run.counts) > 0
    found = verify(mlp, [run], linear, silu)
    assert (found.status, found.findings) == ("verified", [])
    assert found.checks[0].endswith("at chunked prefill: batch_size=2, seq_len=5, cache_len=7 (2 calls)")
    # each Linear of the model, also those of other sizes: 7 per layer, and the head
    everywhere = verify(linear, [run])
    assert (everywhere.status, everywhere.findings) == ("verified", [])
    assert everywhere.checks[0].endswith("(15 calls)")


def test_an_error_below_is_found_at_the_line_of_the_call(
    mlp: ModuleAnalysis, linear: ModuleAnalysis, silu: ModuleAnalysis
) -> None:
    found = verify(mlp, mlps(), linear, changed(silu, 0, flops="5 * {batch_size} * {seq_len} * {width}"))
    (finding,) = found.findings
    assert (finding.line, finding.quantity) == (mlp.kernels[0].line, "flops")
    # 3 products of 2*10*6*10 = 3600; silu 4 * 100 counted, 5 * 100 claimed; 100 for the product
    assert (finding.claimed, finding.counted) == ("4200", "4100")


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("quantity", ["flops", "read", "write"])
def test_a_planted_error_is_found_at_its_line(norm: ModuleAnalysis, index: int, quantity: str) -> None:
    right = norm.kernels[index]
    if quantity == "flops":
        wrong = changed(norm, index, flops=f"{right.flops} + {{hidden_size}}")
    else:
        text = getattr(right.memory_access, quantity)
        access = right.memory_access.model_copy(update={quantity: f"{text} + 1"})
        wrong = changed(norm, index, memory_access=access)
    found = verify(wrong, norms())
    assert (found.status, found.points) == ("failed", 0)
    (finding,) = found.findings
    assert (finding.line, finding.quantity) == (right.line, quantity)
    assert int(finding.claimed) - int(finding.counted) == (8 if quantity == "flops" else 1)
    assert finding.point == "batch_size=2, seq_len=5 (hidden_size=8, w_bytes=2, a_bytes=2, kv_bytes=2)"


def product() -> Operands:
    """The operands of Linear's matmul: ATen folds the leading dimensions, and takes the weight transposed."""
    return Operands(
        operator="mm",
        inputs=[
            Operand(name="self", shape=[ROWS, "{in_features}"], width="a", role="activation"),
            Operand(name="mat2", shape=["{in_features}", "{out_features}"], width="w", role="weight"),
        ],
        outputs=[Operand(name="0", shape=[ROWS, "{out_features}"], width="a", role="activation")],
        batch=1,
        m=ROWS,
        n="{out_features}",
        k="{in_features}",
    )


def test_right_operands_are_verified(linear: ModuleAnalysis) -> None:
    found = verify(changed(linear, 0, operands=product()), linears(bias=False))
    assert (found.status, found.findings) == ("verified", [])


def _input(index: int, **update: Any) -> Operands:
    right = product()
    inputs = [one.model_copy(update=update) if i == index else one for i, one in enumerate(right.inputs)]
    return right.model_copy(update={"inputs": inputs})


WRONG = {
    "shape": lambda: _input(0, shape=[f"{ROWS} + 1", "{in_features}"]),
    "order": lambda: _input(1, shape=["{out_features}", "{in_features}"]),
    "rank": lambda: _input(0, shape=[ROWS, "{in_features}", 1]),
    "width": lambda: _input(1, width="a"),
    "bytes": lambda: _input(1, width=2),
    "role": lambda: _input(1, role="activation"),
    "name": lambda: _input(1, name="weight"),
    "absent": lambda: _input(1, present=0),
    "operator": lambda: product().model_copy(update={"operator": "bmm"}),
    "output": lambda: product().model_copy(update={"outputs": []}),
    "product": lambda: product().model_copy(update={"n": "{out_features} + 1"}),
    "no product": lambda: product().model_copy(update={"m": None}),
    "unknown": lambda: product().model_copy(update={"m": "{rows}"}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_operands_are_found(wrong: str, linear: ModuleAnalysis) -> None:
    found = verify(changed(linear, 0, operands=WRONG[wrong]()), linears(bias=False))
    assert found.status == "failed"
    (finding,) = found.findings
    assert (finding.kind, finding.line) == (FindingKind.operands, linear.kernels[0].line)


def test_what_ran_is_said_beside_wrong_operands(linear: ModuleAnalysis) -> None:
    (finding,) = verify(changed(linear, 0, operands=WRONG["width"]()), linears(bias=False)).findings
    assert finding.claimed == "mm mat2 [6, 10] a weight, self [10, 6] a activation, output 0 [10, 10] a activation"
    assert finding.counted == "mm mat2 [6, 10] w weight, self [10, 6] a activation, output 0 [10, 10] a activation"


def test_a_matmul_under_another_category_is_found(linear: ModuleAnalysis) -> None:
    (finding,) = verify(changed(linear, 0, category="elementwise"), linears()).findings
    # 2 * 10 * 6 * 10
    assert (finding.quantity, finding.claimed, finding.counted) == ("matmul_flops", "0", "1200")


def test_weights_taken_for_activations_are_found_though_both_are_two_bytes(linear: ModuleAnalysis) -> None:
    text = linear.kernels[0].memory_access.read.replace("w_bytes", "a_bytes")
    access = linear.kernels[0].memory_access.model_copy(update={"read": text})
    (finding,) = verify(changed(linear, 0, memory_access=access), linears()).findings
    assert finding.quantity == "read"
    assert finding.point.endswith("w_bytes=3, a_bytes=5, kv_bytes=7)")
    # weight 60: at 5 bytes 300, at 3 bytes 180; bias 10 * 3, input 60 * 5
    assert (finding.claimed, finding.counted) == ("630", "510")


def test_an_error_at_one_of_two_points_leaves_the_other_held(norm: ModuleAnalysis) -> None:
    # right at seq_len 1 only
    wrong = changed(norm, 0, flops="{seq_len} - 1")
    found = verify(wrong, norms())
    assert (found.status, found.points) == ("failed", 1)
    assert [check for check in found.checks if "seq_len=5" in check] == []


def test_a_line_without_a_kernel_is_named_with_its_operators(norm: ModuleAnalysis) -> None:
    bare = norm.model_copy(update={"kernels": norm.kernels[1:]})
    (finding,) = verify(bare, norms()).findings
    assert (finding.line, finding.quantity, finding.claimed) == (
        norm.kernels[0].line, "line without a kernel", "nothing",
    )  # fmt: skip
    # 80 elements read at 2 bytes, written at 4
    assert finding.counted == "aten._to_copy.default: read 160, write 320"


def test_a_line_that_never_runs_cannot_cost_anything(norm: ModuleAnalysis) -> None:
    extra = norm.model_copy(update={"kernels": [*norm.kernels, kernel(9999, "7", "0", "0")]})
    (finding,) = verify(extra, norms()).findings
    assert (finding.line, finding.claimed, finding.counted) == (9999, "7", "0")


def test_an_operator_without_a_rule_fails(line_of: Callable[..., int]) -> None:
    class Strange(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.matrix_exp(x.float())

    line = line_of(Strange, "matrix_exp")
    module = Strange().eval()
    name = f"{Strange.__module__}.{Strange.__qualname__}"
    subject = ModuleAnalysis.model_construct(
        class_name=name,
        parameters={"n": "inputs.x.shape[0]"},
        assumptions=[],
        pinned={},
        kernels=[kernel(line, "0", "6 * {n} ** 2", "8 * {n} ** 2")],
        source=Source(file="test_judge.py", lines=(1, 2), distribution="t", version="0", sha256="0"),
    )
    (finding,) = verify(subject, [point(module, 4, 4)]).findings
    assert (finding.line, finding.quantity) == (line, "uncounted operator")
    assert (finding.kind, finding.operator) == (FindingKind.uncounted, "aten.linalg_matrix_exp.default")
    assert "aten.linalg_matrix_exp.default" in finding.counted


@pytest.mark.parametrize(
    ("flops", "message"),
    [
        ("{hiden_size}", "hiden_size has no value: did you mean hidden_size?"),
        ("{hidden_size} / 3", "not an integer"),
        ("${{a.B}}(x=1)", "there is no analysis of a.B"),
        ("1 +", "at character"),
    ],
)
def test_a_formula_without_a_value_is_a_finding(norm: ModuleAnalysis, flops: str, message: str) -> None:
    (finding,) = verify(changed(norm, 0, flops=flops), norms()).findings
    assert (finding.line, finding.claimed) == (norm.kernels[0].line, flops)
    assert message in finding.counted


def test_variables_are_lexical(mlp: ModuleAnalysis, linear: ModuleAnalysis, silu: ModuleAnalysis) -> None:
    # hidden_size is a variable of the MLP and is not bound for SiLU
    leaking = changed(silu, 0, flops="{hidden_size}")
    (finding,) = verify(mlp, mlps(), linear, leaking).findings
    assert "hidden_size has no value" in finding.counted
    wrong = mlp.kernels[0].flops.replace("in_features=", "inputs=")
    (finding,) = verify(changed(mlp, 0, flops=wrong), mlps(), linear, silu).findings
    assert finding.counted == f"a reference binds inputs, which {LINEAR} does not have"


def test_a_class_that_costs_the_same_is_not_the_class_that_is_called(
    mlp: ModuleAnalysis, linear: ModuleAnalysis, silu: ModuleAnalysis
) -> None:
    other = "torch.nn.modules.activation.SiLU"
    at = next(index for index, kernel in enumerate(mlp.kernels) if SILU in kernel.flops)
    costs = mlp.kernels[at].memory_access
    swapped = {"read": costs.read.replace(SILU, other), "write": costs.write.replace(SILU, other)}
    flops = mlp.kernels[at].flops.replace(SILU, other)
    wrong = changed(mlp, at, flops=flops, memory_access=MemoryAccess(**swapped))
    (finding,) = verify(wrong, mlps(), linear, silu.model_copy(update={"class_name": other})).findings
    assert (finding.line, finding.quantity, finding.claimed) == (mlp.kernels[at].line, "class", other)
    assert finding.counted == f"{LINEAR}, {SILU}"  # the line calls down_proj, too


def test_references_in_a_circle_are_a_finding(silu: ModuleAnalysis) -> None:
    from transformers.activations import SiLUActivation

    circular = changed(silu, 0, flops=f"${{{{{SILU}}}}}(batch_size=1, seq_len=1, width=1)")
    (finding,) = verify(circular, [point(make(SiLUActivation), 2, 3, 4)], circular).findings
    assert finding.counted.startswith("references run in a circle")


def test_a_parameter_that_leads_nowhere_is_a_finding(norm: ModuleAnalysis) -> None:
    parameters = {**norm.parameters, "seq_len": "inputs.tokens.shape[1]"}
    found = verify(norm.model_copy(update={"parameters": parameters}), norms())
    (finding,) = found.findings
    assert (finding.line, finding.quantity, finding.claimed) == (None, "parameter seq_len", "inputs.tokens.shape[1]")
    assert "this call has no input tokens" in finding.counted
    assert found.points == 0


def test_points_outside_the_assumptions_are_skipped_and_said_so(norm: ModuleAnalysis) -> None:
    assumed = norm.model_copy(update={"assumptions": ["{seq_len} <= 4"]})
    found = verify(assumed, [*norms(), another_norm(3, 4)])
    assert (found.status, found.points) == ("verified", 2)
    assert found.checks[0] == "skipped batch_size=2, seq_len=5: the assumption {seq_len} <= 4 does not hold"
    none = verify(assumed, norms()[:1])
    assert (none.status, none.points, none.reason) == ("unverified", 0, found.checks[0])


def test_points_outside_the_assumptions_of_what_is_called_are_skipped(
    mlp: ModuleAnalysis, linear: ModuleAnalysis, silu: ModuleAnalysis
) -> None:
    # The MLP calls its Linears with 6 and with 10 inputs. An analysis for fewer than 8 inputs, and wrong above, does
    # not apply to the second.
    wrong = f"where({{in_features}} < 8, {linear.kernels[0].flops}, 0)"
    beyond = changed(linear, 0, flops=wrong)
    assert verify(mlp, mlps(), beyond, silu).status == "failed"
    found = verify(mlp, mlps(), beyond.model_copy(update={"assumptions": ["{in_features} < 8"]}), silu)
    why = f"the assumption {{in_features}} < 8 of {linear.class_name} does not hold"
    assert (found.status, found.points) == ("unverified", 0)
    assert found.checks[0] == f"skipped batch_size=2, seq_len=5: {why}"
    # If its formulas are right above 8 too, nothing is skipped.
    assert verify(mlp, mlps(), linear.model_copy(update={"assumptions": ["{in_features} < 8"]}), silu).points == 1


def test_a_layer_that_only_an_invented_config_has_need_not_be_judged(norm: ModuleAnalysis) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    one = point(make(lambda: torch.nn.Sequential(LlamaRMSNorm(8))), 2, 5, 8)
    # The model has one layer; the two of another width are synthetic.
    two = point(make(lambda: torch.nn.Sequential(LlamaRMSNorm(16), LlamaRMSNorm(16))), 2, 5, 16)
    assumed = norm.model_copy(update={"assumptions": ["{hidden_size} < 9"]})
    found = verify(assumed, [one, replace(two, kind=PointKind.SYNTHETIC)])
    assert (found.status, found.points) == ("verified", 1)
    assert found.checks[-1] == "skipped batch_size=2, seq_len=5: the assumption {hidden_size} < 9 does not hold"
    own = verify(assumed, [one, two])
    assert own.status == "unverified"
    assert own.reason.startswith("1 module(s) of this class, as 1, are never judged: ")


def test_points_with_another_value_of_what_is_pinned_are_skipped(norm: ModuleAnalysis) -> None:
    found = verify(norm.model_copy(update={"pinned": {"batch_size": 3}}), [*norms(), another_norm(3, 4)])
    assert (found.status, found.points) == ("verified", 2)
    assert found.checks[0] == "skipped batch_size=2, seq_len=5: batch_size is 2, and the formulas are for 3"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"assumptions": ["{seq_len} <= 4"]}, "the assumption {seq_len} <= 4 does not hold"),
        ({"pinned": {"seq_len": 1}}, "seq_len is 5, and the formulas are for 1"),
    ],
)
def test_a_phase_that_is_left_out_altogether_is_not_verified(norm: ModuleAnalysis, limits: Any, why: str) -> None:
    found = verify(norm.model_copy(update=limits), norms())
    assert (found.status, found.points) == ("unverified", 1)
    assert found.reason == f"prefill runs, and is never judged: {why}"


# --- list arguments, and the number of parameters -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["free_lines", "not_taken_lines"])
def test_what_costs_something_is_in_no_list(norm: ModuleAnalysis, name: str) -> None:
    line = norm.kernels[0].line
    wrong = norm.model_copy(update={"kernels": norm.kernels[1:], name: [line]})
    (finding,) = verify(wrong, norms()).findings
    what = "line listed as free" if name == "free_lines" else "line listed as not taken"
    assert (finding.line, finding.quantity) == (line, what)
    # 2 * 5 * 8 numbers, read in 2 bytes, written in 4
    assert finding.counted == "aten._to_copy.default: read 160, write 320"
    assert finding.operators == ["_to_copy [2, 5, 8]: read 160, write 320"]


def test_a_line_that_calls_a_module_is_taken_though_that_costs_nothing(line_of: Callable[..., int]) -> None:
    class Passing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    line = line_of(Passing, "self.inner(x)")
    module = Passing().eval()
    name = f"{Passing.__module__}.{Passing.__qualname__}"
    subject = ModuleAnalysis.model_construct(
        class_name=name,
        parameters={},
        assumptions=[],
        pinned={},
        kernels=[],
        not_taken_lines=[line],
        source=Source(file="test_judge.py", lines=(1, 2), distribution="t", version="0", sha256="0"),
    )
    (finding,) = verify(subject, [point(module, 4, 4)]).findings
    assert (finding.line, finding.quantity, finding.counted) == (line, "line listed as not taken", "calls Identity")


def test_the_number_of_parameters_is_that_of_the_module(linear: ModuleAnalysis) -> None:
    count = "{out_features} * ({in_features} + {bias})"
    assert verify(linear.model_copy(update={"parameters_count": count}), linears()).status == "verified"
    wrong = linear.model_copy(update={"parameters_count": "{out_features} * {in_features}"})
    (finding,) = verify(wrong, linears()).findings
    # 6 * 10, and 10 for the bias
    assert (finding.quantity, finding.claimed, finding.counted) == ("parameters_count", "60", "70")


def test_a_constructors_argument_is_not_something_else(linear: ModuleAnalysis) -> None:
    parameters = {**linear.parameters, "bias": "inputs.input.shape[0]"}
    (finding,) = verify(linear.model_copy(update={"parameters": parameters}), linears()).findings
    assert finding.quantity == "parameter bias"
    assert finding.counted == "it is 2, and the constructor was given bias=1"


def test_a_statement_may_be_judged_as_one_line(norm: ModuleAnalysis) -> None:
    # As if lines 1 and 2 of forward() were one statement: the kernel of line 1 may be at line 2.
    first, second = norm.kernels[0].line, norm.kernels[1].line
    moved = changed(norm, 0, line=second)
    assert verify(moved, norms()).status == "failed"
    found = judge(
        moved, norms(), {}.__getitem__, relative, lambda file, line: first if line == second else line
    ).verification
    assert (found.status, found.findings) == ("verified", [])


def test_a_class_that_never_ran_is_unverified(linear: ModuleAnalysis) -> None:
    found = verify(linear, norms())
    assert (found.status, found.reason) == ("unverified", f"no call of {LINEAR} was executed")


def test_a_count_that_torch_does_not_share_is_a_finding(linear: ModuleAnalysis) -> None:
    (first, *_) = linears()
    other = Point(first.label, first.values, first.counts, first.calls, flop_counter=7)
    (finding,) = verify(linear, [other]).findings
    assert (finding.claimed, finding.counted) == ("1200 (lmp)", "7 (torch.utils.flop_counter)")
