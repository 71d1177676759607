"""Records the figures of lmp for many models and classes, and compares them with an earlier record.

    .venv/bin/python scripts/compare_figures.py --record FILE [--only GROUP[:TEXT]] [--time-limit S] [--results DIR]
    .venv/bin/python scripts/compare_figures.py --check FILE [--only GROUP[:TEXT]] [--quick]

`--record` computes the figures of each item and writes them to FILE after every item. It skips items that FILE has.
`--check` computes them again and prints each difference. Its exit code is 1 if there is any difference, and 2 if
nothing could be compared. It writes nothing to FILE.

Groups: `families` (whole models at their default config), `configs` (public config.json files), `classes` (single
modules), and `reports` (the four reports in git). `--only classes:Attention` selects the items with that text.
`--quick` selects a dozen items of different kinds, which otherwise run first. `--jobs N` runs N items at a time.

Each item runs `lmp` in separate processes, in a fresh results folder, so that no item depends on another. An item that
exceeds the time limit is recorded as stopped, and a check skips it.

Recorded fields of an item, and the meaning of a difference:

    exit, message      the exit code, and the first line of an error
    status, points     the status of the verification, and its number of points
    totals             at six points: FLOPs, matmul FLOPs, bytes read, bytes written, compulsory bytes, parameters
    broken             points that violate assumptions, and their number
    assumptions, pinned, uncounted, given (the sizes that no config has)
    formulas           for each class a hash of its kernels' lines, operations, categories, formulas and repeats
    texts              a hash of the whole result, except fingerprints
    markdown, lines    for a report its hash, and the numbers in each of its lines

The script uses only the command line and the public names of `import lmp`. It runs on earlier and later code alike.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIG_FILES = ROOT.parent / "shared" / "data" / "model_configs"
GROUPS = ("families", "configs", "classes", "reports")
TIME_LIMIT = 300
"""Seconds of CPU time that a process of an item may take; of wall time, ten times as many."""

POINTS = ((1, 128, 0), (3, 37, 0), (1, 1, 512), (8, 1, 4096), (2, 16, 100), (5, 7, 333))
"""Batch size, new tokens, cached tokens: prefill twice, decode twice, a prefill in chunks, and an odd one."""

FIGURES = ("flops", "matmul_flops", "read", "write", "compulsory", "parameters_count")
NOT_COMPARED = {"fingerprint", "provenance", "refers_to", "sha256", "inlined", "open"}
"""Keys of a result that hold hashes (of rules, files, other results), or that later versions added: see CHANGELOG."""

SIZES = {"bias": 1, "kernel_size": 3, "stride": 1, "padding": 1, "dilation": 1, "groups": 1, "num_groups": 4}
SIZES |= {"num_heads": 4, "encoder_seq_len": 19}
OTHER_SIZE = 32
"""The value of a size that neither the config nor `SIZES` says."""

# --- what is taken ---------------------------------------------------------------------------------------------------
# Each list begins with what is cheap. Items of all groups are taken in turns, each list at an even pace.


def _names(text: str) -> list[str]:
    return text.split()


FAMILIES = _names("""
gpt2.GPT2LMHeadModel distilbert.DistilBertModel electra.ElectraForCausalLM bert.BertForMaskedLM vit.ViTModel
detr.DetrModel openai.OpenAIGPTLMHeadModel dinov2.Dinov2Model vit_mae.ViTMAEModel longformer.LongformerModel
timesformer.TimesformerModel opt.OPTForCausalLM falcon.FalconForCausalLM patchtst.PatchTSTModel
wav2vec2.Wav2Vec2Model llama.LlamaForCausalLM mobilenet_v2.MobileNetV2Model convnext.ConvNextModel
bloom.BloomForCausalLM xlnet.XLNetLMHeadModel gptj.GPTJForCausalLM cohere.CohereForCausalLM
siglip2.Siglip2VisionModel qwen3.Qwen3ForCausalLM deberta_v2.DebertaV2Model fnet.FNetModel
time_series_transformer.TimeSeriesTransformerModel segformer.SegformerModel mamba.MambaForCausalLM
mistral.MistralForCausalLM modernbert.ModernBertModel bart.BartModel lfm2.Lfm2ForCausalLM
whisper.WhisperForConditionalGeneration mixtral.MixtralForCausalLM olmoe.OlmoeForCausalLM clip.CLIPModel
qwen2_vl.Qwen2VLModel llava.LlavaModel qwen3_moe.Qwen3MoeForCausalLM jetmoe.JetMoeForCausalLM
t5.T5ForConditionalGeneration deepseek_v2.DeepseekV2ForCausalLM sam2.Sam2VisionModel mamba2.Mamba2ForCausalLM
gpt_oss.GptOssForCausalLM deepseek_v3.DeepseekV3ForCausalLM phi3.Phi3ForCausalLM gemma2.Gemma2ForCausalLM
bamba.BambaForCausalLM minimax.MiniMaxForCausalLM
""")
"""What README.md and docs/ name, and models of other kinds: state spaces, encoders, vision, audio, time series."""

ZOO = ("openai-gpt causal-lm", "gemma3n causal-lm", "layoutlmv2 base", "vit_msn base", "blt causal-lm")
"""A family and its task, as `lmp zoo` runs it: verified ones, two that lack a package, one that lmp cannot take."""

CONFIGS = _names("""
Qwen--Qwen3-0.6B meta-llama--Meta-Llama-3.1-8B Qwen--Qwen3-8B mistralai--Mixtral-8x7B-v0.1 Qwen--Qwen3-30B-A3B
meta-llama--Meta-Llama-3.1-70B openai--gpt-oss-20b deepseek-ai--DeepSeek-V3 Qwen--Qwen3-32B
MiniMaxAI--MiniMax-M2.5 Qwen--Qwen3-235B-A22B meta-llama--Meta-Llama-3.1-405B openai--gpt-oss-120b
moonshotai--Kimi-K2-Instruct deepseek-ai--DeepSeek-V3.2 google--gemma-4-26B-A4B XiaomiMiMo--MiMo-V2-Flash
meta-llama--Llama-4-Scout-17B-16E-Instruct nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 zai-org--GLM-5
Qwen--Qwen3.5-27B Qwen--Qwen3.5-35B-A3B Qwen--Qwen3.5-397B-A17B deepseek-ai--DeepSeek-V4-Flash
""")

TORCH_CLASSES = _names("""
Linear Bilinear Embedding LayerNorm RMSNorm GroupNorm BatchNorm2d Conv1d Conv2d ConvTranspose1d MaxPool2d
AdaptiveAvgPool2d GELU Softmax MultiheadAttention Upsample TransformerEncoderLayer LSTM
""")

MODEL_CLASSES = _names("""
llama.LlamaRMSNorm llama.LlamaRotaryEmbedding llama.LlamaMLP llama.LlamaAttention bert.BertSelfAttention
bert.BertEmbeddings gpt2.GPT2Attention gpt2.GPT2Block mistral.MistralAttention qwen3.Qwen3Attention
cohere.CohereLayerNorm bloom.BloomAttention falcon.FalconAttention vit.ViTPatchEmbeddings
convnext.ConvNextLayer swin.SwinAttention clip.CLIPVisionEmbeddings
wav2vec2.Wav2Vec2PositionalConvEmbedding wav2vec2.Wav2Vec2FeatureEncoder t5.T5LayerNorm t5.T5Attention t5.T5Stack
whisper.WhisperEncoder mixtral.MixtralTopKRouter mixtral.MixtralSparseMoeBlock qwen3_moe.Qwen3MoeExperts
deepseek_v3.DeepseekV3TopkRouter deepseek_v3.DeepseekV3Attention deepseek_v3.DeepseekV3MoE
deepseek_v2.DeepseekV2RotaryEmbedding gpt_oss.GptOssExperts gpt_oss.GptOssAttention gemma2.Gemma2Attention
gemma3.Gemma3RMSNorm deberta_v2.DisentangledSelfAttention modernbert.ModernBertRotaryEmbedding lfm2.Lfm2ShortConv
mamba.MambaMixer mamba2.Mamba2Mixer minimax.MiniMaxLightningAttention qwen2_vl.VisionAttention llama4.Llama4TextMoe
""")

OWN_SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, dim, hidden, bias=False):
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.num_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, s, d))


class Block(nn.Module):
    def __init__(self, dim, num_heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads)
        self.mlp = MLP(dim, 4 * dim)

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(self.norm(x))


class Loud(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        return torch.softmax(x @ x.transpose(1, 2), dim=-1)
"""
"""Modules of a user's own. They stand here, so that the tests' modules may change."""

OWN_CLASSES = {"MLP": "dim=12, hidden=40", "Block": "dim=32, num_heads=4", "Loud": ""}
OWN_INPUTS = "x: float[batch_size, seq_len, dim]"
PYTHON_CALLS = {
    "live": 'lmp.analyze(figures_own.Block(64).eval(), inputs="x: float[batch_size, seq_len, 64]")',
    "float32": 'lmp.expand("transformers.models.llama.modeling_llama.LlamaDecoderLayer", dtype="float32")',
}
"""What `import lmp` is called with; `figures_own` is the module above."""

REPORTS = _names("""
meta-llama/Meta-Llama-3.1-8B Qwen/Qwen3-30B-A3B openai/gpt-oss-20b deepseek-ai/DeepSeek-V3
""")

QUICK = {
    "families/gpt2.GPT2LMHeadModel", "families/bert.BertForMaskedLM", "families/detr.DetrModel",
    "families/mixtral.MixtralForCausalLM", "families/zoo vit_msn base", "configs/Qwen--Qwen3-0.6B",
    "classes/torch.nn.Conv2d", "classes/llama.LlamaAttention eager", "classes/own.Block", "classes/python live",
    "classes/mamba.MambaMixer", "classes/own.Loud", "reports/meta-llama/Meta-Llama-3.1-8B",
}  # fmt: skip

# --- how an item is taken --------------------------------------------------------------------------------------------

Taken = dict[str, Any]

EVALUATE = """
import contextlib, io, json, runpy, sys
for arguments in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["lmp", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module("lmp", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""Runs several commands of lmp in one process: each line of the output is a code, stdout and stderr."""

PYTHON_CALL = """
import json, lmp, figures_own
analysis = {call}
totals = {{}}
for at in {points}:
    try:
        found = analysis.evaluate(*at)
        totals[",".join(map(str, at))] = [getattr(found.totals, name) for name in {figures}]
    except lmp.LmpError as error:
        totals[",".join(map(str, at))] = str(error).splitlines()[0]
print(json.dumps([json.loads(analysis.to_json()), totals]))
"""


class Stopped(Exception):
    """A process passed the limit of time."""


@dataclass(frozen=True)
class Workplace:
    """Where an item runs: a folder of its own, and a limit of time."""

    folder: Path
    limit: int

    @property
    def results(self) -> list[str]:
        return ["--results", str(self.folder / "results")]

    def lmp(self, *arguments: str) -> tuple[int, str, str]:
        """The exit code, stdout and stderr of a command of lmp."""
        return self.run([sys.executable, "-m", "lmp", *arguments])

    def run(self, command: list[str]) -> tuple[int, str, str]:
        out, err = self.folder / "stdout", self.folder / "stderr"
        with out.open("wb") as o, err.open("wb") as e:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=o, stderr=e, cwd=ROOT, env=self._environment(),
                start_new_session=True, preexec_fn=self._limited,
            )  # fmt: skip
            try:
                code = process.wait(timeout=10 * self.limit)
            except subprocess.TimeoutExpired as late:
                raise Stopped from late
            finally:
                _end_group(process)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            raise Stopped
        return code, self._without_folders(out.read_text()), self._without_folders(err.read_text())

    def _environment(self) -> dict[str, str]:
        """No settings, no credentials, no cache of the hub, and the code of this checkout."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("ANTHROPIC_", "CLAUDE_", "HF_", "LMP_"))}
        paths = os.pathsep.join([str(ROOT / "src"), str(self.folder / "own")])
        own = {"PYTHONPATH": paths, "LMP_SETTINGS": os.devnull, "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
        folders = {"HF_HOME": str(self.folder / "hub"), "LMP_RESULTS": str(self.folder / "python")}
        return {**kept, **own, **folders, "OMP_NUM_THREADS": "1"}

    def _limited(self) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit + 5))

    def _without_folders(self, text: str) -> str:
        for folder, name in ((self.folder, "FOLDER"), (CONFIG_FILES, "CONFIGS"), (ROOT, "ROOT")):
            text = text.replace(str(folder), name)
        return text


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what a process has started and left behind, and the process itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def expanded(*target: str) -> Callable[[Workplace], Taken]:
    return lambda place: _analysed(place, ["expand", *target], list(target))


def analysed(*target: str) -> Callable[[Workplace], Taken]:
    return lambda place: _analysed(place, ["analyze-module", *target], list(target))


def own_analysed(name: str) -> Callable[[Workplace], Taken]:
    def take(place: Workplace) -> Taken:
        target = [f"figures_own.{name}", "--path", str(_own_module(place))]
        asked = ["--inputs", OWN_INPUTS, "--init", OWN_CLASSES[name]] if OWN_CLASSES[name] else []
        asked = asked or ["--inputs", OWN_INPUTS.replace("dim", "width")]
        return _analysed(place, ["analyze-module", *target, *asked], [*target, *asked])

    return take


def called(name: str) -> Callable[[Workplace], Taken]:
    def take(place: Workplace) -> Taken:
        _own_module(place)
        text = PYTHON_CALL.format(call=PYTHON_CALLS[name], points=POINTS, figures=FIGURES)
        code, out, err = place.run([sys.executable, "-c", text])
        if code:
            return {"exit": code, "message": (err.strip().splitlines() or [""])[-1]}
        record, totals = json.loads(out)
        return {"exit": code, **_told([record]), "totals": totals}

    return take


def family_run(family: str, task: str) -> Callable[[Workplace], Taken]:
    def take(place: Workplace) -> Taken:
        reports = ["--reports", str(place.folder / "reports"), "--memory-limit", "8", "--time-limit", str(place.limit)]
        code, out, err = place.lmp(
            "zoo", family, "--task", task, "--jobs", "1", "--json", "--quiet", *reports, *place.results
        )
        taken: Taken = {"exit": code}
        if not out.strip():
            return {**taken, "message": _message(err)}
        varying = {"seconds", "cpu_seconds", "peak_bytes", "stored_bytes", "fingerprint"}
        entries = [
            {n: v for n, v in e.items() if n not in varying} for summary in json.loads(out) for e in summary["entries"]
        ]
        if any(entry["status"] == "stopped" for entry in entries):
            raise Stopped
        return {**taken, "entries": entries}

    return take


def reported(model_id: str) -> Callable[[Workplace], Taken]:
    def take(place: Workplace) -> Taken:
        reports = place.folder / "reports"
        code, _, err = place.lmp("report", "--model-id", model_id, "--quiet", "--reports", str(reports), *place.results)
        name = model_id.replace("/", "--")
        file = reports / "implementations" / f"{name}-analysis.md"
        if not file.is_file():
            return {"exit": code, "message": _message(err)}
        text = file.read_text(encoding="utf-8")
        kept = ROOT / "reports" / "implementations" / file.name
        return {
            "exit": code,
            "markdown": _sha(text),
            "as_in_git": kept.is_file() and kept.read_text(encoding="utf-8") == text,
            "assets": {f.name: _sha(f.read_bytes()) for f in sorted((reports / "assets").iterdir())},
            "lines": [" ".join(found) for line in text.splitlines() if (found := _NUMBER.findall(line))],
        }

    return take


_NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d")


def _own_module(place: Workplace) -> Path:
    folder = place.folder / "own"
    folder.mkdir(exist_ok=True)
    (folder / "figures_own.py").write_text(OWN_SOURCE.lstrip())
    return folder


def _analysed(place: Workplace, command: list[str], target: list[str]) -> Taken:
    code, out, err = place.lmp(*command, "--json", "--quiet", *place.results)
    taken: Taken = {"exit": code}
    if code:
        taken["message"] = _message(err)
    try:
        found = json.loads(out)
    except ValueError:
        return taken
    records = found if isinstance(found, list) else [found]
    taken |= _told(records)
    universal = {"batch_size", "seq_len", "cache_len", "w_bytes", "a_bytes", "kv_bytes", *records[0]["values"]}
    given = {n: SIZES.get(n, OTHER_SIZE) for n in records[0]["parameters"] if n not in universal}
    return {**taken, **({"given": given} if given else {}), **_evaluated(place, target, given)}


def _told(records: list[Any]) -> Taken:
    """What the results say without numbers put in. The first one is what was asked for."""
    main, formulas = records[0], dict[str, list[str]]()
    for record in records:
        for class_name, kernel in _kernels(record["kernels"], record["class_name"]):
            memory = kernel["memory_access"] if kernel.get("memory_access") else {"read": None, "write": None}
            said = [kernel.get(name) for name in ("line", "operation", "category", "repeat", "flops")]
            formulas.setdefault(class_name, []).append(json.dumps([*said, memory["read"], memory["write"]]))
    parts = [part["status"] for part in main.get("parts", {}).values()]
    return {
        "class_name": main["class_name"],
        "status": main["verification"]["status"],
        "points": main["verification"]["points"],
        **({"parts": {status: parts.count(status) for status in sorted(set(parts))}} if parts else {}),
        "assumptions": main["assumptions"],
        **{name: main[name] for name in ("pinned", "uncounted") if main[name]},
        "formulas": {name: _sha("\n".join(sorted(kernels)))[:16] for name, kernels in sorted(formulas.items())},
        "texts": _sha(json.dumps(_comparable(records), sort_keys=True))[:16],
    }


def _kernels(kernels: list[Any], class_name: str) -> Iterator[tuple[str, Any]]:
    for kernel in kernels:
        yield class_name, kernel
        yield from _kernels(kernel.get("kernels") or [], kernel.get("class_name") or class_name)


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(inner) for name, inner in value.items() if name not in NOT_COMPARED}
    return [_comparable(inner) for inner in value] if isinstance(value, list) else value


def _evaluated(place: Workplace, target: list[str], given: dict[str, int]) -> Taken:
    """The totals at each point, or the first line of why there are none."""
    settings = [argument for name, value in given.items() for argument in ("--set", f"{name}={value}")]
    commands = []
    for batch, new, cached in POINTS:
        at = ["--batch-size", str(batch), "--seq-len", str(new), "--cache-len", str(cached)]
        commands.append(["evaluate", *target, *at, *settings, "--json", "--quiet", *place.results])
    _, out, err = place.run([sys.executable, "-c", EVALUATE, json.dumps(commands)])
    totals: Taken = {}
    broken: Taken = {}
    answers = [json.loads(line) for line in out.splitlines()]
    if len(answers) != len(POINTS):
        return {"totals": (err.strip().splitlines() or ["no answer"])[-1]}
    for at_point, (code, said, errors) in zip(POINTS, answers, strict=True):
        name = ",".join(map(str, at_point))
        if not said.strip():
            totals[name] = f"{code}: {_message(errors)}"
            continue
        evaluation = json.loads(said)
        totals[name] = [evaluation["totals"][figure] for figure in FIGURES]
        if evaluation["violated_assumptions"]:
            broken[name] = len(evaluation["violated_assumptions"])
    return {"totals": totals, **({"broken": broken} if broken else {})}


def _message(err: str) -> str:
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error")), lines[0] if lines else "")


def _sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# --- the items -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    key: str
    take: Callable[[Workplace], Taken]

    @property
    def group(self) -> str:
        return self.key.partition("/")[0]


def items() -> list[Item]:
    """All items, each group's list at an even pace: what is cheap, of all groups, comes first."""
    zoo = [Item(f"families/zoo {text}", family_run(*text.split())) for text in ZOO]
    families = [Item(f"families/{name}", expanded(class_path(name))) for name in FAMILIES]
    own = [Item(f"classes/own.{name}", own_analysed(name)) for name in OWN_CLASSES]
    python = [Item(f"classes/python {name}", called(name)) for name in PYTHON_CALLS]
    eager = [
        Item(f"classes/{name} eager", analysed(class_path(name), "--attn", "eager"))
        for name in ("llama.LlamaAttention", "vit.ViTAttention")
    ]
    classes = [
        *_mixed(
            [Item(f"classes/torch.nn.{name}", analysed(f"torch.nn.{name}")) for name in TORCH_CLASSES],
            [*eager, *[Item(f"classes/{name}", analysed(class_path(name))) for name in MODEL_CLASSES]],
            [*own, *python],
        )
    ]
    configs = [Item(f"configs/{name}", expanded("--config", str(CONFIG_FILES / f"{name}.json"))) for name in CONFIGS]
    if not CONFIG_FILES.is_dir():
        print(f"configs are left out: there is no folder {CONFIG_FILES}")
        configs = []
    reports = [Item(f"reports/{name}", reported(name)) for name in REPORTS]
    return _mixed(_mixed(zoo, families), configs, classes, reports)


def _mixed(*lists: list[Item]) -> list[Item]:
    placed = [((index + 0.5) / len(some), item) for some in lists for index, item in enumerate(some)]
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def class_path(name: str) -> str:
    family, _, class_name = name.partition(".")
    return f"transformers.models.{family}.modeling_{family}.{class_name}"


def chosen(only: str | None, quick: bool) -> list[Item]:
    group, _, text = (only or "").partition(":")
    if group and group not in GROUPS:
        sys.exit(f"there is no group {group!r}: the groups are {', '.join(GROUPS)}")
    found = [i for i in items() if (not group or i.group == group) and text in i.key]
    found.sort(key=lambda item: item.key not in QUICK)
    found = [i for i in found if i.key in QUICK] if quick else found
    return found or sys.exit("no item is called so")


def take(item: Item, results: Path | None, limit: int) -> Taken:
    """The figures of an item. Its folder stays where `--results` names a place, and else goes."""
    name = re.sub(r"\W+", "-", item.key)
    if results is not None:
        shutil.rmtree(results / name, ignore_errors=True)
        (results / name).mkdir(parents=True)
    folder = results / name if results is not None else Path(tempfile.mkdtemp(prefix="lmp-figures-"))
    before = _children_cpu()
    try:
        taken = item.take(Workplace(folder.resolve(), limit))
    except Stopped:
        taken = {"stopped": limit}
    except Exception as error:  # a result of another form must not end the run
        taken = {"exit": None, "message": f"{type(error).__name__}: {error}"}
    finally:
        if results is None:
            shutil.rmtree(folder, ignore_errors=True)
    return {**taken, "seconds": round(_children_cpu() - before, 1)}


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def each(wanted: list[Item], results: Path | None, limit: int, jobs: int) -> Iterator[tuple[Item, Taken]]:
    """Items and their figures, as they come. With several jobs the seconds of items run into each other."""
    if jobs == 1:
        yield from ((item, take(item, results, limit)) for item in wanted)
        return
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(take, item, results, limit): item for item in wanted}
        yield from ((running[done], done.result()) for done in as_completed(running))


# --- the file --------------------------------------------------------------------------------------------------------


def about() -> dict[str, str]:
    """What the figures are of."""
    said = subprocess.run(
        [sys.executable, "-c", "import importlib.metadata as m; print(m.version('torch'), m.version('transformers'))"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return {
        "commit": _git("rev-parse", "HEAD"),
        "source": _git("rev-parse", "HEAD:src") + (" and changes" if _git("status", "--short", "src") else ""),
        "torch": said[0].partition("+")[0],
        "transformers": said[1],
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def write(file: Path, record: dict[str, Any]) -> None:
    """The whole file or nothing: one line an item, in the order of their names."""
    lines = [f"{json.dumps(key)}: {_compact(record['items'][key])}" for key in sorted(record["items"])]
    text = f'{{\n"about": {json.dumps(record["about"])},\n"items": {{\n' + ",\n".join(lines) + "\n}\n}\n"
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(file)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- the two commands ------------------------------------------------------------------------------------------------


def record(file: Path, wanted: list[Item], results: Path | None, limit: int, jobs: int) -> int:
    now = about()
    kept = read(file) if file.is_file() else {"about": {**now, "time_limit": limit}, "items": {}}
    differing = [name for name in ("source", "torch", "transformers") if kept["about"][name] != now[name]]
    if differing:
        sys.exit(f"{file} holds the figures of another {' and '.join(differing)}: record to another file")
    missing = [item for item in wanted if item.key not in kept["items"]]
    print(f"{len(wanted) - len(missing)} items are in {file}, {len(missing)} are missing", flush=True)
    for number, (item, taken) in enumerate(each(missing, results, limit, jobs), 1):
        kept["items"][item.key] = taken
        write(file, kept)
        print(f"{number}/{len(missing)}  {taken['seconds']:7.1f} s  {item.key}  {_summary(taken)}", flush=True)
    return 0


def check(file: Path, wanted: list[Item], results: Path | None, limit: int | None, jobs: int) -> int:
    kept = read(file)
    now = about()
    for name in ("torch", "transformers"):
        if kept["about"][name] != now[name]:
            print(f"{name} is {now[name]}, and was {kept['about'][name]}: differences may come from it")
    absent = [item.key for item in wanted if item.key not in kept["items"]]
    stopped = [item.key for item in wanted if "stopped" in kept["items"].get(item.key, {})]
    left = [item for item in wanted if item.key not in {*absent, *stopped}]
    limit = limit or 2 * kept["about"]["time_limit"]
    different = []
    for number, (item, taken) in enumerate(each(left, results, limit, jobs), 1):
        found = differences(kept["items"][item.key], taken)
        said = f"{len(found)} differences" if found else "equal"
        print(f"{number}/{len(left)}  {taken['seconds']:7.1f} s  {item.key}  {said}", flush=True)
        for line in found:
            print(f"    {line}", flush=True)
        if found:
            different.append(item.key)
    for keys, why in ((absent, "not in the file"), (stopped, "stopped at the limit when recorded")):
        if keys:
            print(f"{len(keys)} items were not compared, {why}: {', '.join(keys)}")
    if not left:
        print("nothing was compared")
        return 2
    print(f"{len(left) - len(different)} of {len(left)} items are equal")
    for key in different:
        print(f"different: {key}")
    return 1 if different else 0


def _summary(taken: Taken) -> str:
    if "stopped" in taken:
        return "stopped"
    points = taken.get("totals")
    numbers = sum(isinstance(v, list) for v in points.values()) if isinstance(points, dict) else 0
    said = [str(taken[name]) for name in ("status", "as_in_git", "message") if name in taken]
    said += [entry["status"] for entry in taken.get("entries", ())]
    return f"exit {taken['exit']}, {', '.join(said)}" + (f", {numbers} of {len(POINTS)} points" if points else "")


def differences(before: Taken, now: Taken) -> list[str]:
    """One line a difference. Where `texts` alone differs, figures and formulas are equal and words have changed."""
    if "stopped" in now:
        return [f"it is stopped now, after {now['stopped']} s of CPU time; it took {before['seconds']} s"]
    found = []
    for name in sorted({*before, *now} - {"seconds"}):
        found += _unequal(name, before.get(name), now.get(name))
    return found


def _unequal(name: str, before: Any, now: Any) -> list[str]:
    if before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(key for key in now if key not in before)]
        return [line for key in keys for line in _unequal(f"{name} {key}", before.get(key), now.get(key))]
    if isinstance(before, list) and isinstance(now, list):
        if len(before) == len(now) == len(FIGURES) and name.startswith("totals"):
            pairs = zip(FIGURES, before, now, strict=True)
            return [f"{name} {figure}: {b} -> {n}" for figure, b, n in pairs if b != n]
        lines = difflib.unified_diff([_line(v) for v in before], [_line(v) for v in now], lineterm="", n=0)
        return [f"{name}: {line}" for line in lines if not line.startswith(("---", "+++"))]
    return [f"{name}: {_line(before)} -> {_line(now)}"]


def _line(value: Any) -> str:
    return value if isinstance(value, str) else _compact(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="take the figures, and write them to FILE")
    parser.add_argument("--check", type=Path, metavar="FILE", help="take them again, and print each difference")
    parser.add_argument("--only", metavar="GROUP[:TEXT]", help="one group, or those of its items that have the text")
    parser.add_argument("--quick", action="store_true", help="a dozen items of different kinds")
    parser.add_argument("--time-limit", type=int, metavar="S", help="seconds of CPU time of one process of an item")
    parser.add_argument("--results", type=Path, metavar="DIR", help="keep each item's folder in DIR")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="items at a time")
    parser.add_argument("--list", action="store_true", help="print the items, and take none")
    given = parser.parse_args()
    wanted = chosen(given.only, given.quick)
    if given.list:
        print("\n".join(item.key for item in wanted))
        return 0
    if (given.record is None) == (given.check is None):
        parser.error("give --record FILE or --check FILE")
    if given.record is not None:
        return record(given.record, wanted, given.results, given.time_limit or TIME_LIMIT, given.jobs)
    return check(given.check, wanted, given.results, given.time_limit, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
