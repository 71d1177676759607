"""Small analyses with round numbers, shared by the tests of the store, of evaluation and of the command line."""

from __future__ import annotations

from typing import Any

from lmp.records import ConfigOrigin, Kernel, MemoryAccess, ModuleAnalysis, Source, Verification

LINEAR = "torch.nn.modules.linear.Linear"
MLP = "transformers.models.llama.modeling_llama.LlamaMLP"
LAYER = "transformers.models.llama.modeling_llama.LlamaDecoderLayer"

TOKENS = "{batch_size} * {seq_len}"


def kernel(line: int, flops: str, read: str, write: str, **more: Any) -> Kernel:
    fields = {
        "operation": f"kernel of line {line}",
        "code": f"x = f(x)  # {line}",
        "analysis": "",
        "category": "elementwise",
    }
    access = MemoryAccess(read=read, write=write)
    return Kernel(**{"kernel_type": "basic", **fields, "line": line, "flops": flops, "memory_access": access, **more})


def call(line: int, reference: str, **more: Any) -> Kernel:
    return kernel(line, reference, reference, reference, **{"kernel_type": "composite", "category": "module", **more})


def analysis(name: str, kernels: list[Kernel], parameters: dict[str, str], **more: Any) -> ModuleAnalysis:
    source = Source(
        file="src/transformers/models/llama/modeling_llama.py",
        lines=(160, 176),
        distribution="transformers",
        version="5.23.0",
        sha256="0" * 64,
    )
    verified = Verification(status="verified", points=5, checks=["matmul_flops equal FlopCounterMode"])
    fields: dict[str, Any] = {"class_name": name, "kernels": kernels, "parameters": parameters, "engine": "trace"}
    return ModuleAnalysis(**{**fields, "source": source, "verification": verified, **more})


def linear(**more: Any) -> ModuleAnalysis:
    """y = x W^T, no bias: 2 FLOPs a multiply-add; reads x and W, writes y."""
    rows = f"{TOKENS} * {{in_features}}"
    product = kernel(
        134,
        f"2 * {rows} * {{out_features}}",
        f"{rows} * {{a_bytes}} + {{in_features}} * {{out_features}} * {{w_bytes}}",
        f"{TOKENS} * {{out_features}} * {{a_bytes}}",
        category="matmul",
        operation="matrix product",
    )
    return analysis(
        LINEAR,
        more.pop("kernels", [product]),
        {
            "batch_size": "inputs.input.shape[0]",
            "seq_len": "inputs.input.shape[1]",
            "in_features": "init.in_features",
            "out_features": "init.out_features",
        },
        parameters_count="{in_features} * {out_features}",
        **more,
    )


def linear_call(line: int, inside: str, outside: str, **more: Any) -> Kernel:
    bindings = f"batch_size={{batch_size}}, seq_len={{seq_len}}, in_features={{{inside}}}, out_features={{{outside}}}"
    return call(line, f"${{{{{LINEAR}}}}}({bindings})", **more)


def mlp(**more: Any) -> ModuleAnalysis:
    """Three Linears, an activation of 4 FLOPs an element and a product of 1; hidden 8, intermediate 32."""
    inner = f"{TOKENS} * {{intermediate_size}}"
    outer = f"{TOKENS} * {{hidden_size}} * {{a_bytes}}"
    code = "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))"
    kernels = [
        linear_call(175, "hidden_size", "intermediate_size", path="gate_proj", code=code),
        kernel(175, f"4 * {inner}", f"{inner} * {{a_bytes}}", f"{inner} * {{a_bytes}}", code=code),
        linear_call(175, "hidden_size", "intermediate_size", path="up_proj", code=code),
        kernel(175, inner, f"2 * {inner} * {{a_bytes}}", f"{inner} * {{a_bytes}}", code=code),
        linear_call(175, "intermediate_size", "hidden_size", path="down_proj", code=code),
    ]
    fields: dict[str, Any] = {
        "values": {"hidden_size": 8, "intermediate_size": 32},
        "compulsory": MemoryAccess(
            read=f"{outer} + 3 * {{hidden_size}} * {{intermediate_size}} * {{w_bytes}}",
            write=outer,
        ),
        "parameters_count": "3 * {hidden_size} * {intermediate_size}",
        "config": ConfigOrigin(name="default", origin="LlamaConfig()"),
        "free_lines": [176],
    }
    parameters = {
        "batch_size": "inputs.x.shape[0]",
        "seq_len": "inputs.x.shape[1]",
        "hidden_size": "config.hidden_size",
        "intermediate_size": "config.intermediate_size",
    }
    return analysis(MLP, more.pop("kernels", kernels), parameters, **{**fields, **more})


def layer(**more: Any) -> ModuleAnalysis:
    """An add and an MLP, three times over."""
    bindings = ", ".join(f"{n}={{{n}}}" for n in ("batch_size", "seq_len", "hidden_size", "intermediate_size"))
    size = f"{TOKENS} * {{hidden_size}}"
    kernels = [
        kernel(320, size, f"2 * {size} * {{a_bytes}}", f"{size} * {{a_bytes}}", category="elementwise"),
        call(324, f"${{{{{MLP}}}}}({bindings})", path="mlp", repeat=3),
    ]
    parameters = {
        "batch_size": "inputs.x.shape[0]",
        "seq_len": "inputs.x.shape[1]",
        "hidden_size": "config.hidden_size",
        "intermediate_size": "config.intermediate_size",
    }
    values = {"hidden_size": 8, "intermediate_size": 32}
    return analysis(LAYER, kernels, parameters, **{"values": values, **more})
