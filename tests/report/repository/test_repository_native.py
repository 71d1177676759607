"""A code base in CUDA and C++ alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_repository import Reported, line_of, reported, written

FILES = {
    "kernels/attention.cuh": """#pragma once
#define BLOCK_M 64
__global__ void __launch_bounds__(256) attention_forward_kernel(float* out, const float* q, int T) {
  out[blockIdx.x] = q[blockIdx.x];
}
inline void attention_forward(float* out, const float* q, int T) {
  attention_forward_kernel<<<T, 256>>>(out, q, T);
}
""",
    "src/main.cu": """#include "../kernels/attention.cuh"

struct KVCache {
  float* k;
  void append(float* x, int t) { k[t] = x[t]; }
  void free_slots() {}
};

void gpt2_forward(float* out, float* q, int T, KVCache& cache) {
  for (int l = 0; l < 12; l++) {
    attention_forward(out, q, T);
    cache.append(out, l);
  }
}

int sample_softmax(const float* logits, int n, float coin) {
  return coin > 0.5f ? 1 : 0;
}

void generate(float* out, float* q, int steps) {
  KVCache cache;
  if (steps > 1) {
    gpt2_forward(out, q, 64, cache);
  }
  while (steps-- > 0) {
    gpt2_forward(out, q, 1, cache);
    int next = sample_softmax(out, 10, 0.1f);
  }
}

int main(int argc, char** argv) {
  generate(nullptr, nullptr, 3);
  return 0;
}
""",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("native") / "tinyllm", FILES)


@pytest.fixture(scope="module")
def report(root: Path) -> Reported:
    return reported(root)


def test_the_review_finds_nothing(report: Reported) -> None:
    assert [finding.message for finding in report.review.findings] == []


def test_the_loop_leads_to_the_launch(report: Reported, root: Path) -> None:
    fence = report.section("Prefill vs decode loop (real nesting)").split("```")[1].split("\n")
    indents = []
    for text, file, source in (
        ("if (steps > 1) {", "src/main.cu", "if (steps > 1)"),
        ("gpt2_forward(out, q, 64, cache)", "src/main.cu", "q, 64, cache"),
        ("for (int l = 0; l < 12; l++) {", "src/main.cu", "for (int l"),
        ("attention_forward(out, q, T)", "src/main.cu", "attention_forward(out, q, T);"),
        ("attention_forward_kernel<<<T, 256>>>", "kernels/attention.cuh", "<<<T, 256>>>"),
    ):
        line = next(line for line in fence if line.strip().startswith(text))
        assert f"{file}:{line_of(root, file, source)}" in line
        indents.append(len(line) - len(line.lstrip()))
    assert indents == sorted(set(indents))


def test_kernels_macros_and_parts(report: Reported, root: Path) -> None:
    kernels = report.section("Appendix D: kernels")
    launch = line_of(root, "kernels/attention.cuh", "<<<T, 256>>>")
    assert f"launched at `kernels/attention.cuh:{launch}`; launch bounds `256`" in kernels
    assert "| `BLOCK_M` | `64` | `kernels/attention.cuh:2` (`BLOCK_M`) |" in report.text
    components = report.section("Key components (with code locations)")
    assert f"| KV cache | `src/main.cu:{line_of(root, 'src/main.cu', 'struct KVCache')}` (`KVCache`)" in components
    assert f"| sampling | `src/main.cu:{line_of(root, 'src/main.cu', 'int sample_softmax')}`" in components


def test_an_include_is_an_arrow(report: Reported) -> None:
    assert 'n1 -->|"1"| n0' in report.section("Architecture map (one diagram)")
