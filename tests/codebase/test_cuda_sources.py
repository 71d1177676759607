"""CUDA and C++: kernels, launches, sizes, definitions, reads of the environment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmp.codebase.cpp import definitions
from lmp.codebase.facts import RepoFacts
from lmp.codebase.graph.graph import CallGraph

Read = Callable[..., RepoFacts]


@pytest.fixture
def cuda(read: Read) -> Callable[[str], RepoFacts]:
    return lambda text: read({"a.cu": text})


def test_kernels_and_what_is_none(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        // __global__ void in_a_comment(int n) {}
        const char* text = "__global__ void in_a_string(int n) {}";
        __global__ void only_declared(int n);
        template <typename T, int N, bool kFast = true>
        __global__ void __launch_bounds__(256, 2)
            scale(const T* __restrict__ x, T* out, int sizes[4]) {
          if (N) { out[0] = x[0]; }
        }
        template __global__ void scale<float, 4, true>(const float*, float*, int*);
        extern "C" static __global__ void plain() {}
        """
    )
    kernels = [(kernel.name, kernel.place.line, kernel.end, kernel.launch_bounds) for kernel in facts.kernels]
    assert kernels == [("scale", 7, 9, "256, 2"), ("plain", 11, 11, "")]
    assert facts.kernels[0].parameters == ("x", "out", "sizes")
    assert facts.kernels[0].constexprs == ("N", "kFast")


def test_a_macro_that_stands_for_global(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        #define KERNEL __global__ __launch_bounds__(128, 4)
        #define OTHER(name) __global__ void name() {}
        KERNEL void one(int n) { }
        KERNEL void declared(int n);
        #undef KERNEL
        """
    )
    assert [(kernel.name, kernel.place.line, kernel.launch_bounds) for kernel in facts.kernels] == [
        ("one", 4, "128, 4")
    ]


def test_a_launch_bound_in_a_comment_binds_nothing(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        __global__ void // __launch_bounds__(256)
        one(int n) { }
        """
    )
    assert [(kernel.name, kernel.launch_bounds) for kernel in facts.kernels] == [("one", "")]


def test_two_signatures_of_one_body(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda("#ifdef A\n__global__ void f(int a)\n#else\n__global__ void f(long a)\n#endif\n{ }\n")
    assert [kernel.name for kernel in facts.kernels] == ["f"]


def test_launches(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        template <int N> __global__ void k(int* x) {}
        __global__ void l(int* x) {}
        namespace n {
        void run(int* x) {
          k<4><<<dim3(8, 1), 256, sizeof(int) * 2, stream>>>(x);
          auto kernel = &n::l;
          kernel<<<1, kThreads>>>(x);
          cudaLaunchKernelEx(&config, k<8>, x);
          cudaLaunchKernel((void*)l, grid, block, args, 0, stream);
          a << 3 << b;
        }
        }
        """
    )
    found = [(each.kernel, each.place.line, each.inside, each.grid, dict(each.values)) for each in facts.launches]
    assert found == [
        ("k", 6, "run", "dim3(8, 1)", {"block": "256", "shared": "sizeof(int) * 2"}),
        ("l", 8, "run", "1", {"block": "kThreads"}),
        ("k", 9, "run", "", {}),
        ("l", 10, "run", "grid", {"block": "block"}),
    ]


def test_sizes(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        #pragma once
        #define GUARD_H
        #define BLOCK 128
        #define TILE (BLOCK * 2)  // two blocks
        #define NAME "text"
        #define SAME BLOCK
        #define MAX(a, b) ((a) > (b) ? (a) : (b))
        constexpr int kWarps = 8;
        static constexpr uint32_t kBytes{kWarps * 32};
        constexpr int kCalled = of(8, "x");
        int plain = 7;
        """
    )
    assert [(name, value, place.line) for name, value, place in facts.macros] == [
        ("BLOCK", "128", 4),
        ("TILE", "(BLOCK * 2)", 5),
        ("kWarps", "8", 9),
        ("kBytes", "kWarps * 32", 10),
    ]


def test_definitions_and_environment(read: Read) -> None:
    facts = read(
        {
            "a.cpp": """
            #include <cstdlib>
            namespace cache {
            struct Block : public Base, private Other {
              void free() { }
              int used;
            };
            int Pool::take(const char* name) {
              return std::getenv("POOL_SIZE") || getenv(name);
            }
            }
            """
        }
    )
    found = [(each.kind, each.qualname, each.place.line, each.end) for each in facts.definitions]
    assert found == [("class", "Block", 4, 7), ("method", "Block.free", 5, 5), ("method", "Pool.take", 8, 10)]
    assert facts.definitions[0].bases == ("Base", "Other")
    assert facts.definitions[0].methods == ("free",)
    assert [(each.name, each.place.line, each.resolved) for each in facts.env] == [
        ("POOL_SIZE", 9, True),
        ("name", 9, False),
    ]


def test_what_a_grammar_cannot_read_is_said_and_kernels_are_found(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda("__global__ void k(int n) {\n  MACRO(if, {)\n}\n)))} template <<\n__global__ void l(int n) { }\n")
    assert "l" in [kernel.name for kernel in facts.kernels]
    assert [each.file for each in facts.skipped] == ["a.cu"]


def test_the_sizes_of_a_launch_are_what_its_local_names_are_made_of(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        #define TILE 64
        __global__ void k(int n) {}
        void made(int n) { int blocks = n / TILE; dim3 t(TILE, 2); k<<<blocks, t>>>(n); }
        void changed(int n) { int threads = 64; if (n > 9) threads = 128; k<<<n, threads>>>(n); }
        void other(int n, dim3 t) { k<<<n, t>>>(n); }
        """
    )
    launches = [(launch.inside, launch.grid, launch.values["block"]) for launch in facts.launches]
    # A name that is set twice, and one that the caller hands in, stay as they are.
    assert launches == [("made", "n / 64", "(64, 2)"), ("changed", "n", "threads"), ("other", "n", "t")]


def test_a_kernel_in_a_string_whose_first_line_end_is_escaped(read: Read) -> None:
    text = "\n\nCODE = '''\\\n\n__global__ void k(int n) {\n}\n'''\n"
    # The name stands on line 5, the bracket that closes it on line 6.
    assert [(each.name, each.place.line, each.end) for each in read({"a.py": text}).kernels] == [("k", 5, 6)]


def test_a_specialization_is_named_without_its_arguments() -> None:
    # The arguments run over two lines; the name stands on line 2.
    text = "template <class T>\nstruct Op<Kind<T,\n  4>> {\n  void run() {}\n};\n"
    text += "struct std::hash<Op> { int f() { return 1; } };\n"
    found, _ = definitions("a.h", text, cuda=False)
    assert [(each.qualname, each.place.line) for each in found] == [
        ("Op", 2), ("Op.run", 4), ("hash", 6), ("hash.f", 6),
    ]  # fmt: skip


def test_a_method_of_a_template_has_its_class_without_arguments() -> None:
    # The blank between two arguments ends no name.
    text = "template <class A, class B>\nvoid Layer<A, B>::run(int n) {\n}\nint Plain<A::T>::size() {\n  return 1;\n}\n"
    assert [each.qualname for each in definitions("a.cpp", text, False)[0]] == ["Layer.run", "Plain.size"]


def test_a_metal_kernel_whose_name_is_put_together_has_its_first_piece(read: Read) -> None:
    text = 'import mlx.core as mx\ndef make(n):\n    return mx.fast.metal_kernel(name="rows" if n else f"rows_{n}")\n'
    assert [(each.name, each.place.line) for each in read({"a.py": text}).kernels] == [("rows", 3)]
    # All pieces of one string begin where the string does, and its first piece goes on in the next string.
    text = text.replace('"rows" if n else f"rows_{n}"', '(f"rows_"\n f"of{n}_a{n}")')
    assert [each.name for each in read({"a.py": text}).kernels] == ["rows_"]


def test_a_kernel_that_a_function_chooses_and_constants_of_the_file(cuda: Callable[[str], RepoFacts]) -> None:
    facts = cuda(
        """
        const int THREADS = 32;
        template <bool fast> __global__ void scale(float* x) {}
        __global__ void copy(float* x) {}
        typedef void (*picked)(float*);
        picked pick(bool fast, bool plain) {
          if (plain) return copy;
          if (fast) return scale<true>;
          return &scale<false>;
        }
        void run(float* x) {
          const int rows = 2;
          dim3 threads(THREADS, 4, 1);
          picked kernel = pick(true, false);
          kernel<<<rows, threads>>>(x);
        }
        """
    )
    # Line 15 starts what `pick` returns; `rows` is a value of one call, which is no size of the file.
    started = sorted((launch.kernel, launch.place.line, launch.values["block"]) for launch in facts.launches)
    assert started == [("copy", 15, "(32, 4, 1)"), ("scale", 15, "(32, 4, 1)")]
    assert [(name, value) for name, value, _ in facts.macros] == [("THREADS", "32")]


def test_a_kernel_that_a_macro_starts(cuda: Callable[[str], RepoFacts]) -> None:
    # The launch of `scale` begins in line 8 of the text, and `run` uses its macro in lines 15 and 16 through another
    # one. `copy` is started by a name that the macro of line 11 sets; of its two bodies one has nothing in it.
    facts = cuda(
        """
        #if __CUDA_ARCH__ < 800
        __global__ void copy(float* x) {}
        #else
        __global__ void copy(float* x) { x[0] = 1; }
        #endif
        template <int N> __global__ void scale(float* x) { x[0] = N; }
        #define START(N) scale<N>   \\
            <<<grid, 32>>>(x);
        #define EACH(N) if (n == N) { START(N) }
        #define COPY                \\
            auto kernel = copy;     \\
            kernel<<<1, 64>>>(x);
        void run(float* x, int n, int grid) {
          EACH(1);
          EACH(2);
          COPY;
        }
        """
    )
    started = sorted((each.kernel, each.place.line, each.inside, each.values["block"]) for each in facts.launches)
    assert started == [("copy", 13, "run", "64"), ("scale", 8, "run", "32")]
    assert [(each.name, each.place.line) for each in facts.kernels] == [("copy", 5), ("scale", 7)]
    graph = CallGraph(facts.graphs)
    (run,) = (each for each in graph.functions if each.name == "run")
    found = {(edge.line, edge.callee.name) for edge in graph.edges[run]}
    assert found == {(15, "scale"), (16, "scale"), (17, "copy")}
