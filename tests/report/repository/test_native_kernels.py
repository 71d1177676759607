"""What a kernel of CUDA C++ does with memory, how it is started, and what an implementation report says of that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_repository import Reported, implementation, written

from lmp.report.repository.kernel_work import LANGUAGES, LOAD, PRODUCT, STORE, SUMS, accesses

FILES = {
    "ops/scale.cu": """#define TILE 1024
#define SPLIT 24

template <typename T>
__global__ void add_kernel(const T* __restrict__ x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[n];
}

__global__ void mv_kernel(const float* w, const float* x, float* y, int n) {
  float sum = 0;
  for (int j = 0; j < n; ++j) {
    sum += w[j] * x[j];
  }
  atomicAdd(&y[0], sum);
}

template <typename T>
void run(T* x, T* y, int n);

template <>
void run<float>(float* x, float* y, int n) {
  dim3 threads(1, 128);
  add_kernel<float><<<n, threads>>>(x, y, n);
}

template <>
void run<double>(double* x, double* y, int n) {
  dim3 threads(1, TILE);
  dim3 grid(SPLIT, n / threads.y);
  mv_kernel<<<grid, threads>>>(x, x, y, n);
}
""",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return implementation(written(tmp_path_factory.mktemp("scaling") / "scaling", FILES))


def test_accesses_are_subscripts_of_pointers_to_global_memory() -> None:
    # Loads, counted by hand: the cast of x + 4, that of &x[n], x[0], y[n] += and y[2]++, x[n] ==, y[0], *x, p[0][1].
    # Stores: the cast of y + n, *local, y[n] +=, y[2]++, and end[0]. An address, n * x and shared memory are none.
    found, _ = accesses(
        """vec(const float* __restrict__ x, float *y, int n, float* const* p) {
  __shared__ float tile[32];
  const float4 v = *reinterpret_cast<const float4*>(x + 4);
  float4 u = *reinterpret_cast<const float4*>(&x[n]);
  *reinterpret_cast<float4*>(y + n) = v;
  float s = n * x[0];
  tile[0] = s;
  float *local = y + 3;
  *local = s;
  y[n] += s;
  y[2]++;
  if (x[n] == 1 && y[0]) s = *x;
  float *end = &y[4];
  end[0] = p[0][1];
}"""
    )
    assert found == {LOAD: 9, STORE: 5}


def test_a_kernel_that_hands_its_pointers_on_accesses_nothing_itself() -> None:
    assert accesses("outer(const float* x, float* y) { inner(x, y); }") == ({}, False)
    assert accesses("none(int n) { int y[2]; y[0] = n; }") == ({}, False)


def test_a_pointer_that_moves_is_read_once() -> None:
    # The casts of addresses access nothing; *a++ reads, *b++ = stores, and *c reads. The view's own methods may too.
    found = accesses(
        """norm(half* x, half* w, half* out) {
  half2* a = (half2*) &x[4];
  half2* b = (half2*) &out[4];
  View view(w, 4, 4);
  half* c = view.item_ptr(0, 0);
  half2 m = *a++;
  *b++ = m;
  half n = *c; c += 4;
}"""
    )
    assert found == ({LOAD: 2, STORE: 1}, True)


def test_a_product_that_is_not_fed_back_sums_nothing() -> None:
    # x is another x in threadIdx.x; l is not what the second fma is added to.
    sums = re.compile(LANGUAGES["cuda"][SUMS])
    assert sums.search("acc = fma(m, m, acc);")
    assert not sums.search("l = __hfma2(l, c, ls);")
    assert not sums.search("int x = (blockIdx.x * 32 + threadIdx.x) * 2;")


def test_memory_by_kernel(report: Reported) -> None:
    text = report.section("8.1 Memory Access Pattern")
    # x[i], x[n], and w[j], x[j]; y[i]; the atomic one is no plain store.
    assert "load:    4 loads from global memory in 2 of 2 kernels" in text
    assert "store:   1 stores to global memory in 1 of 2 kernels" in text
    assert "atomic:  1 atomic updates in 1 of 2 kernels" in text
    assert "compilers" not in text


def test_what_may_bound_a_kernel(report: Reported) -> None:
    text = report.section("8.3 Bottleneck Analysis")
    assert "take no sums of products: `ops/scale.cu:5` (`add_kernel`)." in text
    assert "they sum, without tensor cores: `ops/scale.cu:10` (`mv_kernel`)." in text


def test_a_launch_by_a_specialisation_with_its_sizes(report: Reported) -> None:
    catalog = report.section("5. Task/Operator Catalog")
    assert "| `block = (1, 128)` | started by `run` at `ops/scale.cu:24` with the grid `n` |" in catalog
    assert (
        "| `block = (1, 1024)` | started by `run` at `ops/scale.cu:31` with the grid `(24, n / threads.y)` |" in catalog
    )
    sizes = report.section("3.2 Kernel Configuration")
    # 1 * 128 / 32 and 1 * 1024 / 32 threads of a warp.
    assert "| `NUM_WARPS: threads / 32` | `4, 32` | at 2 places, as `ops/scale.cu:24` |" in sizes
    assert "| `block` | `(1, 128), (1, 1024)` | at 2 places, as `ops/scale.cu:24` |" in sizes


def test_the_review_finds_nothing(report: Reported) -> None:
    assert [finding.message for finding in report.review.findings] == []


def test_a_kernel_is_judged_by_what_it_calls_too(tmp_path: Path) -> None:
    text = """__device__ float product(const float* w, const float* x, int n) {
  float sum = 0;
  for (int j = 0; j < n; ++j) sum += w[j] * x[j];
  return sum;
}

__global__ void mv_kernel(const float* w, const float* x, float* y, int n) {
  y[blockIdx.x] = product(w, x, n);
}

void run(
    // shape (n, n)
    const float* w,
    const float* x, float* y, int n) {
  mv_kernel<<<n, 1>>>(w, x, y, n);
}
"""
    found = implementation(written(tmp_path / "mv", {"mv.cu": text})).text
    assert "Either, by the sizes:** they sum, without tensor cores: `mv.cu:7` (`mv_kernel`)." in found
    assert "take no sums of products" in found
    assert "take no sums of products: `mv.cu:7`" not in found


def test_pointers_of_an_object_of_parameters_and_loads_by_classes() -> None:
    # Loads, counted by hand: x[0] and x[1], and the block's. Stores: out[0], and the block's. `smem` is no parameter.
    body = """conv_kernel(Params params) {
  input_t *x = reinterpret_cast<input_t *>(params.x_ptr) + blockIdx.x;
  input_t *out = reinterpret_cast<input_t *>(params.out_ptr);
  float *tile = reinterpret_cast<float *>(smem.tile);
  tile[0] = tile[1];
  BlockLoad(smem).Load(x, values, params.n);
  out[0] = x[0] + x[1];
  BlockStore(smem).Store(out, values, params.n);
}"""
    assert accesses(body)[0] == {LOAD: 2, STORE: 1}
    counted = {name: len(re.findall(LANGUAGES["cuda"][name], body)) for name in (LOAD, STORE)}
    assert counted == {LOAD: 1, STORE: 1}


def test_a_product_in_full_float32_runs_on_no_tensor_core() -> None:
    exact = ("acc = tl.dot(p, v, acc, allow_tf32=False)", 'acc = tl.dot(p, v, input_precision="ieee")')
    product, sums = (re.compile(LANGUAGES["triton"][name]) for name in (PRODUCT, SUMS))
    assert product.search("qk = tl.dot(q, k)")
    assert not sums.search("qk = tl.dot(q, k)")
    assert all(sums.search(each) and not product.search(each) for each in exact)


def test_a_sum_of_lanes_is_no_parallelism_of_processes_and_a_branch_stands_for_itself(tmp_path: Path) -> None:
    files = {
        "ops/reduce.cu": """struct Allreduce {
  static __device__ float run(float x) { return x + __shfl_xor_sync(~0u, x, 1); }
};
__global__ void wide_kernel(float* y) {
  y[0] = Allreduce::run(y[1]);
}
__global__ void narrow_kernel(float* y) {
  y[0] = y[1];
}
void run(float* y, int n) {
  if (n > 1024) {
    wide_kernel<<<n, 128>>>(y);
  } else {
    narrow_kernel<<<n, 32>>>(y);
  }
}
""",
    }
    found = implementation(written(tmp_path / "reduce", files))
    assert found.review.findings == []
    assert "**Tensor Parallelism:** none found" in found.section("7.1 Parallelism Strategy")
    # One kernel calls what exchanges values of lanes.
    assert "in what 1 of 2 kernels call" in found.section("8.1 Memory Access Pattern")


def test_attention_in_one_kernel_is_fused(tmp_path: Path) -> None:
    # Two products around the exponential and the largest value; the second kernel has one product and no softmax.
    text = """import triton
import triton.language as tl


@triton.jit
def whole(Q, K, V, O, n, BLOCK: tl.constexpr):
    q = tl.load(Q)
    for at in range(0, n, BLOCK):
        s = tl.dot(q, tl.load(K + at))
        most = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - most)
        acc = tl.dot(p, tl.load(V + at), acc)
    tl.store(O, acc)


@triton.jit
def product(Q, K, O):
    tl.store(O, tl.dot(tl.load(Q), tl.load(K)))
"""
    answer = implementation(written(tmp_path / "kit", {"kit.py": text})).section("Q: What operations are fused?")
    assert "in one kernel: `kit.py:6` (`whole`)." in answer
    assert "`product`" not in answer
