"""Executes models and modules at points drawn over all that their assumptions allow, and compares lmp's formulas there.

    python scripts/audit.py [--points 200] [--seed 0] [--only TEXT] [--results DIR] [--write FILE]

The families are models of transformers at their default configs. The own modules are in benchmarks/audit_modules, with
their inputs in modules.json. Classes without an analysis are analysed first. Exits with 4 if a point differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmp.analyze.audit import audit_modules
from lmp.analyze.session import Options
from lmp.errors import LmpError

MODULES = Path(__file__).parents[1] / "benchmarks" / "audit_modules"

FAMILIES = (
    "albert.modeling_albert.AlbertModel",
    "bart.modeling_bart.BartForConditionalGeneration",
    "bert.modeling_bert.BertModel",
    "bloom.modeling_bloom.BloomForCausalLM",
    "clip.modeling_clip.CLIPTextModel",
    "cohere.modeling_cohere.CohereForCausalLM",
    "deepseek_v3.modeling_deepseek_v3.DeepseekV3ForCausalLM",
    "distilbert.modeling_distilbert.DistilBertModel",
    "electra.modeling_electra.ElectraModel",
    "falcon.modeling_falcon.FalconForCausalLM",
    "gemma.modeling_gemma.GemmaForCausalLM",
    "gemma2.modeling_gemma2.Gemma2ForCausalLM",
    "gemma3.modeling_gemma3.Gemma3ForCausalLM",
    "glm4.modeling_glm4.Glm4ForCausalLM",
    "gpt2.modeling_gpt2.GPT2LMHeadModel",
    "gpt_neo.modeling_gpt_neo.GPTNeoForCausalLM",
    "gpt_neox.modeling_gpt_neox.GPTNeoXForCausalLM",
    "gpt_oss.modeling_gpt_oss.GptOssForCausalLM",
    "gptj.modeling_gptj.GPTJForCausalLM",
    "granite.modeling_granite.GraniteForCausalLM",
    "jamba.modeling_jamba.JambaForCausalLM",
    "lfm2.modeling_lfm2.Lfm2ForCausalLM",
    "llama.modeling_llama.LlamaForCausalLM",
    "mamba.modeling_mamba.MambaForCausalLM",
    "mamba2.modeling_mamba2.Mamba2ForCausalLM",
    "mistral.modeling_mistral.MistralForCausalLM",
    "mixtral.modeling_mixtral.MixtralForCausalLM",
    "mpt.modeling_mpt.MptForCausalLM",
    "olmo2.modeling_olmo2.Olmo2ForCausalLM",
    "opt.modeling_opt.OPTForCausalLM",
    "phi.modeling_phi.PhiForCausalLM",
    "phi3.modeling_phi3.Phi3ForCausalLM",
    "qwen2.modeling_qwen2.Qwen2ForCausalLM",
    "qwen2_moe.modeling_qwen2_moe.Qwen2MoeForCausalLM",
    "qwen3.modeling_qwen3.Qwen3ForCausalLM",
    "qwen3_moe.modeling_qwen3_moe.Qwen3MoeForCausalLM",
    "roberta.modeling_roberta.RobertaModel",
    "stablelm.modeling_stablelm.StableLmForCausalLM",
    "starcoder2.modeling_starcoder2.Starcoder2ForCausalLM",
    "t5.modeling_t5.T5ForConditionalGeneration",
    "vit.modeling_vit.ViTModel",
)


TAKEN = ("arms", "pairs_of_arms")
"""Numbers of those that executed points took, and of all."""


@dataclass(frozen=True)
class Subject:
    """A class to audit. ``inputs`` and ``init`` are those of an own module."""

    class_path: str
    inputs: str | None = None
    init: str | None = None

    def options(self, results: Path) -> Options:
        if self.inputs is None:
            return Options(results=results)
        return Options(results=results, paths=(MODULES,), inputs=self.inputs, init=self.init)


def subjects() -> list[Subject]:
    """The own modules, then the families: the former are quick."""
    own = json.loads((MODULES / "modules.json").read_text())
    return [
        *(Subject(name, inputs, init) for name, (inputs, init) in own.items()),
        *(Subject(f"transformers.models.{name}") for name in FAMILIES),
    ]


def audited(chosen: Sequence[Subject], results: Path, points: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each class: its audit, or why it has no verified formulas."""
    for subject in chosen:
        began = time.process_time()
        try:
            found = next(audit_modules([subject.class_path], subject.options(results), points, seed, _quiet))
            row = found.to_data()
        except LmpError as error:
            row = {"class_name": subject.class_path, "seed": seed, "without_formulas": str(error).splitlines()[0]}
        except Exception as error:  # a crash of one class does not end the audit of the others
            row = {"class_name": subject.class_path, "seed": seed, "crashed": f"{type(error).__name__}: {error}"}
        row["core_seconds"] = round(time.process_time() - began, 1)
        yield row


def _quiet(name: str, stage: str) -> None:
    pass


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums over all rows."""
    counted = ("drawn", "executed", "equal", "refused")
    return {
        "classes": len(rows),
        "crashed": sum("crashed" in row for row in rows),
        "without_formulas": sum("without_formulas" in row for row in rows),
        **{name: sum(row.get(name, 0) for row in rows) for name in counted},
        "different": sum(len(row.get("different", ())) for row in rows),
        "positions_inside": sum(bool(row.get("positions_inside")) for row in rows),
        "with_positions": sum(row.get("positions") is not None for row in rows),
        **{name: [sum(pair) for pair in zip(*(row.get(name, (0, 0)) for row in rows), strict=True)] for name in TAKEN},
        "core_hours": round(sum(row["core_seconds"] for row in rows) / 3600, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="classes whose path holds this text")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE", help="record all rows and their sums")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        chosen = [subject for subject in subjects() if given.only in subject.class_path]
        for row in audited(chosen, given.results or Path(folder), given.points, given.seed):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if given.write is not None:
                record = {"points": given.points, "seed": given.seed, **summary(rows), "rows": rows}
                given.write.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(summary(rows)))
    return 4 if summary(rows)["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
