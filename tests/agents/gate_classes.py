"""The classes whose right analyses the gate's tests start from."""

from __future__ import annotations

LLAMA = "transformers.models.llama.modeling_llama"
MLP, NORM = f"{LLAMA}.LlamaMLP", f"{LLAMA}.LlamaRMSNorm"
LINEAR = "torch.nn.modules.linear.Linear"
LAYER_NORM = "torch.nn.modules.normalization.LayerNorm"
CLASSES = (LINEAR, LAYER_NORM, NORM, MLP)
