"""Triton's kernels, what they are autotuned over, and where they are started."""

from __future__ import annotations

from collections.abc import Callable

from lmp.codebase.facts import Kernel, KernelConfig, RepoFacts

One = Callable[[str], RepoFacts]
HEAD = "import triton\nimport triton.language as tl\n"


def tuned(one: One, configs: str, before: str = "") -> tuple[KernelConfig, ...]:
    """Of a kernel that is autotuned over an expression."""
    facts = one(f"{HEAD}{before}\n@triton.autotune(configs={configs}, key=['N'])\n@triton.jit\ndef k(x): pass\n")
    return facts.kernels[0].configs


def values(configs: tuple[KernelConfig, ...]) -> list[dict[str, int | str]]:
    return [dict(config.values) for config in configs]


def test_a_kernel_with_its_parameters(one: One) -> None:
    facts = one(
        """
        import triton
        from triton import language as tl
        @triton.heuristics({"EVEN": lambda args: True})
        @triton.autotune([triton.Config({"BLOCK": 64}, num_warps=4)], key=["M", "N"])
        @triton.jit(do_not_specialize=["N"])
        def add(x, y, N,
                BLOCK: tl.constexpr, EVEN: "tl.constexpr"):
            pass
        """
    )
    (kernel,) = facts.kernels
    assert (kernel.language, kernel.name, kernel.place.line, kernel.end) == ("triton", "add", 7, 9)
    assert kernel.parameters == ("x", "y", "N", "BLOCK", "EVEN")
    assert kernel.constexprs == ("BLOCK", "EVEN")
    assert kernel.autotuned is not None
    assert (kernel.autotuned.line, kernel.key) == (5, ("M", "N"))
    assert values(kernel.configs) == [{"BLOCK": 64, "num_warps": 4}]


def test_other_names_for_jit(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "a.py": "from triton import jit\n@jit\ndef a(): pass\n",
            "b.py": "import triton as t\n@t.jit\ndef b(): pass\n",
            "c.py": "from triton.experimental import gluon\n@gluon.jit\ndef c(): pass\n",
            "d.py": "import triton\ndef body(x): pass\nd = triton.jit(body)\nd2 = triton.jit(debug=True)(body)\n",
            "e.py": "import torch, numba, jax\n@torch.jit.script\ndef e(): pass\n@numba.jit\ndef f(): pass\n"
            "@jax.jit\ndef g(): pass\n",
            "f.py": "import triton\nclass K:\n    @triton.jit\n    def inside(): pass\n"
            "def make():\n    @triton.jit\n    def made(): pass\n",
        }
    )
    assert [kernel.name for kernel in facts.kernels] == ["a", "b", "c", "d", "d2", "inside", "made"]


def test_a_literal_list(one: One) -> None:
    assert values(tuned(one, "[triton.Config({'M': 64, 'N': 2 * 16}, 4, 3), triton.Config({}, num_warps=8)]")) == [
        {"M": 64, "N": 32, "num_warps": 4, "num_stages": 3},
        {"num_warps": 8},
    ]


def test_a_comprehension_with_constants_of_the_module(one: One) -> None:
    configs = tuned(
        one,
        "[triton.Config({'B': b}, num_warps=w) for b in BLOCKS for w in [2, 4] if b * w <= LIMIT]",
        "BLOCKS = [32, 64]\nLIMIT = 32 * 4",
    )
    # 32*2, 32*4 and 64*2 are at most 128; 64*4 is not.
    assert values(configs) == [{"B": 32, "num_warps": 2}, {"B": 32, "num_warps": 4}, {"B": 64, "num_warps": 2}]


def test_constants_of_an_imported_module(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "pkg/__init__.py": "from .sizes import WARPS",
            "pkg/sizes.py": "WARPS = [4, 8]\ndef listed():\n    import triton\n    return [triton.Config({'B': 16})]\n",
            "pkg/a.py": f"{HEAD}from pkg import WARPS\n@triton.autotune("
            "[triton.Config({}, num_warps=w) for w in WARPS])\n@triton.jit\ndef a(): pass\n",
            "pkg/b.py": f"{HEAD}from .sizes import listed\n@triton.autotune(listed())\n@triton.jit\ndef b(): pass\n",
        }
    )
    assert [values(kernel.configs) for kernel in facts.kernels] == [[{"num_warps": 4}, {"num_warps": 8}], [{"B": 16}]]
    assert facts.kernels[1].configs[0].place.file == "pkg/sizes.py"


def test_functions_that_build_the_list(one: One) -> None:
    before = """
def listed(stages=(2, 3)):
    \"\"\"Configurations.\"\"\"
    configs = []
    for m in (64, 128):
        for s in stages:
            if m == 128 and s == 3:
                continue
            warps = 4 if m < 100 else 8
            configs.append(triton.Config({"M": m}, num_warps=warps, num_stages=s))
    configs += [triton.Config({"M": 16})]
    return configs
"""
    assert values(tuned(one, "listed()", before)) == [
        {"M": 64, "num_warps": 4, "num_stages": 2},
        {"M": 64, "num_warps": 4, "num_stages": 3},
        {"M": 128, "num_warps": 8, "num_stages": 2},
        {"M": 16},
    ]


def test_what_hangs_on_the_machine_is_given_as_written(one: One) -> None:
    configs = tuned(
        one,
        "[triton.Config({}, num_warps=w)\n for w in WARPS]",
        "WARPS = [2, 4] if torch.version.hip else [4, 8]",
    )
    (config,) = configs
    assert config.expression == "[triton.Config({}, num_warps=w) for w in WARPS]"
    assert config.stopped == "WARPS = [2, 4] if torch.version.hip else [4, 8]"
    assert config.stopped_at is not None
    assert config.stopped_at.line == 3
    assert not config.values


def test_one_unknown_element_hides_no_other(one: One) -> None:
    configs = tuned(one, "[triton.Config({'M': 64}), triton.Config({'M': SIZE}), *more()] + [triton.Config({'M': 8})]")
    assert [config.values.get("M", config.expression) for config in configs] == [64, "SIZE", "more()", 8]


def test_a_name_that_is_set_twice_is_not_known(one: One) -> None:
    (config,) = tuned(one, "LIST", "if fast:\n    LIST = [triton.Config({})]\nelse:\n    LIST = []")
    assert config.expression == "LIST"


def test_no_end_and_no_great_number_is_worked_out(one: One) -> None:
    (endless,) = tuned(one, "f()", "def f():\n    return f()")
    (great,) = tuned(one, "[triton.Config({'B': 2 ** b}) for b in range(10 ** 9)]")
    (itself,) = tuned(one, "LIST", "LIST = [*LIST]")
    (steps,) = tuned(one, "[triton.Config({}) for a in R for b in R for c in R]", "R = range(5000)")
    (long,) = tuned(one, "[triton.Config({}) for a in 'x' * 10 ** 12]")
    (wide,) = tuned(one, "[triton.Config({}) for a in '%1000000000000d' % 3]")
    assert all(config.expression for config in (endless, great, itself, steps, long, wide))


def test_autotuning_by_a_wrapper_and_by_a_call(one: One) -> None:
    facts = one(
        f"""{HEAD}
from caching import cached_autotune
@cached_autotune(configs=[triton.Config({{"B": 8}})], key=["T"])
@triton.jit
def a(): pass
@triton.jit
def b(): pass
tuned = triton.autotune([triton.Config({{"B": 9}})], ["T"])(b)
def run():
    tuned[(1,)]()
"""
    )
    assert [(kernel.name, values(kernel.configs), kernel.key) for kernel in facts.kernels] == [
        ("a", [{"B": 8}], ("T",)),
        ("b", [{"B": 9}], ("T",)),
    ]
    assert [(launch.kernel, launch.inside) for launch in facts.launches] == [("b", "run")]


def test_launches_with_what_configures_them(read: Callable[..., RepoFacts]) -> None:
    facts = read(
        {
            "k.py": f"{HEAD}@triton.jit\ndef k(x, n, BLOCK: tl.constexpr): pass\n@triton.jit\ndef other(x): pass\n",
            "use.py": """
            from k import k, other
            class Layer:
                def forward(self, x):
                    grid = (1,)
                    k[grid](x, n=3, BLOCK=128, num_warps=4)
                    kernel = k if x else other
                    kernel[lambda m: (m, 1)](
                        x,
                    )
                    self.table[0](x)
                    foreign[grid](x, num_stages=2)
            """,
        }
    )
    found = [(each.kernel, each.place.line, each.inside, each.grid, dict(each.values)) for each in facts.launches]
    assert found == [
        ("k", 6, "Layer.forward", "grid", {"BLOCK": "128", "num_warps": "4"}),
        ("k", 8, "Layer.forward", "lambda m: (m, 1)", {}),
        ("other", 8, "Layer.forward", "lambda m: (m, 1)", {}),
        ("foreign", 12, "Layer.forward", "grid", {"num_stages": "2"}),
    ]


def test_the_other_languages_of_python(one: One) -> None:
    facts = one(
        '''
        import cutlass.cute as cute
        import cuda.tile as ct
        import tilelang, numba
        import tilelang.language as T
        import mlx.core as mx
        from numba import cuda
        from jax.experimental import pallas as pl
        import functools
        class Gemm:
            @cute.kernel
            def kernel(self, a: cute.Tensor): pass
            @cute.jit
            def host(self): pass
        @ct.kernel(occupancy=2)
        def tile(x, N: ct.Constant): pass
        @tilelang.jit
        def make(M):
            @T.prim_func
            def main(A):
                with T.Kernel(M, threads=128) as bx:
                    pass
            return main
        @cuda.jit
        def of_numba(x): pass
        def of_pallas(ref, *, size): pass
        pl.pallas_call(functools.partial(of_pallas, size=3), grid=(1,))
        kernel = mx.fast.metal_kernel(
            name="rms",
            input_names=["x", "w"],
            source="x[0] = 1;",
        )
        CUDA = r"""
        extern "C" __global__ void inner(float* x, int n) {
            x[0] = n;
        }
        """
        '''
    )
    assert [(kernel.language, kernel.name, kernel.place.line) for kernel in facts.kernels] == [
        ("cute", "Gemm.kernel", 12),
        ("cutile", "tile", 16),
        ("tilelang", "make.main", 20),
        ("numba", "of_numba", 25),
        ("pallas", "of_pallas", 26),
        ("metal", "rms", 29),
        ("cuda", "inner", 34),
    ]
    by_name: dict[str, Kernel] = {kernel.name: kernel for kernel in facts.kernels}
    assert by_name["rms"].parameters == ("x", "w")
    assert by_name["tile"].constexprs == ("N",)
    assert by_name["inner"].parameters == ("x", "n")
