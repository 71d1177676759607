"""Which kernel a launch starts where several have its name, Metal's launches, and what a default's name stands for."""

from __future__ import annotations

from collections.abc import Callable

from lmp.codebase.facts import Launch, RepoFacts

Read = Callable[..., RepoFacts]
KERNEL = "import triton\n@triton.jit\ndef fwd_kernel(x, BLOCK: 'tl.constexpr'): pass\n"


def started(facts: RepoFacts) -> dict[tuple[str, int], tuple[str, int] | None]:
    """Place of each launch -> place of its kernel."""
    return {(each.place.file, each.place.line): _at(each) for each in facts.launches}


def _at(launch: Launch) -> tuple[str, int] | None:
    return (launch.of.file, launch.of.line) if launch.of is not None else None


def test_of_kernels_of_one_name_the_one_of_the_file_or_of_the_import(read: Read) -> None:
    facts = read(
        {
            "ops/a.py": KERNEL + "def run(x):\n    fwd_kernel[(1,)](x, BLOCK=16)\n",
            "ops/b.py": KERNEL,
            "ops/__init__.py": "from ops.b import fwd_kernel\n",
            "lib/c.py": "from ops import fwd_kernel\ndef run(x):\n    fwd_kernel[(1,)](x, BLOCK=32)\n",
            "lib/d.py": "def run(x, fwd_kernel):\n    fwd_kernel[(1,)](x, num_warps=4)\n",
        }
    )
    assert started(facts) == {
        ("ops/a.py", 5): ("ops/a.py", 3),
        ("lib/c.py", 3): ("ops/b.py", 3),
        # Two have the name, and the parameter may be either.
        ("lib/d.py", 2): None,
    }


def test_a_block_size_may_be_given_by_its_place(read: Read) -> None:
    # The second parameter is a constexpr. What a list gives item by item may be any of them.
    facts = read(
        {
            "a.py": KERNEL
            + "def run(x):\n    fwd_kernel[(1,)](x, 64)\n"
            + "def other(x, sizes):\n    fwd_kernel[(1,)](*sizes, 32)\n"
        }
    )
    assert [dict(launch.values) for launch in facts.launches] == [{"BLOCK": "64"}, {}]


def test_a_method_is_of_its_own_class(read: Read) -> None:
    one = (
        "    @cute.kernel\n    def kernel(self, x): pass\n"
        "    def __call__(self, x):\n        self.kernel(x).launch(grid=[1, 1, 1], block=[{block}, 1, 1])\n"
    )
    facts = read(
        {
            "a.py": "import cutlass.cute as cute\nclass A:\n"
            + one.format(block=64)
            + "class B:\n"
            + one.format(block=128),
            "b.py": "class C:\n    def run(self, x):\n        self.kernel(x).launch(grid=[1, 1, 1])\n",
        }
    )
    assert started(facts) == {("a.py", 6): ("a.py", 4), ("a.py", 11): ("a.py", 9), ("b.py", 3): None}
    assert [launch.values.get("block") for launch in facts.launches] == ["[64, 1, 1]", "[128, 1, 1]", None]


def test_a_variable_is_what_it_is_set_to(read: Read) -> None:
    facts = read(
        {
            "a.py": "import triton\n@triton.jit\ndef kernel(x): pass\n",
            "b.py": """
                import triton
                @triton.jit
                def slow(x): pass
                @triton.jit
                def fast(x): pass
                def run(x, quick):
                    kernel = fast if quick else slow
                    kernel[(1,)](x)
                """,
        }
    )
    assert sorted((each.kernel, _at(each)) for each in facts.launches) == [("fast", ("b.py", 6)), ("slow", ("b.py", 4))]


def test_metal_kernels_are_started_with_a_grid_and_a_threadgroup(read: Read) -> None:
    facts = read(
        {
            "k.py": """
                import mlx.core as mx

                THREADS = 512
                plain = mx.fast.metal_kernel(name="plain", input_names=["x"], output_names=["y"], source="")


                def make(masked):
                    if not mx.metal.is_available():
                        return None
                    return mx.fast.metal_kernel(name="made", input_names=["q", "k"], output_names=["y"], source="")


                made = make(False)
                made_masked = make(True)


                def run(x, mask):
                    kernel = made
                    group = (32, 4, 1)
                    if mask is not None:
                        kernel = made_masked
                        group = (32, 2, 1)
                    filled = [("D", 64), ("N", THREADS)]
                    y = plain(inputs=[x], template=filled, grid=(THREADS, 1, 1), threadgroup=(256, 1, 1))
                    return kernel(inputs=[x], template=[("T", x.dtype)], grid=(32, 1, 1), threadgroup=group)
                """,
        }
    )
    assert [(each.name, each.constexprs) for each in facts.kernels] == [("plain", ("D", "N")), ("made", ("T",))]
    assert [(each.kernel, each.inside, dict(each.values)) for each in facts.launches] == [
        ("plain", "run", {"D": "64", "N": "512", "threadgroup": "(256, 1, 1)"}),
        ("made", "run", {"threadgroup": "(32, 4, 1) or (32, 2, 1)"}),
    ]
    assert started(facts) == {("k.py", 25): ("k.py", 5), ("k.py", 26): ("k.py", 11)}


def test_a_default_by_name_has_its_value(read: Read) -> None:
    facts = read(
        {
            "pkg/__init__.py": "",
            "pkg/sizes.py": "STEP = 2048\nLOW = -1\nMADE = 2 * STEP\n",
            "pkg/cli.py": """
                import os
                from pkg.sizes import LOW, MADE, STEP
                TEMP = 0.0
                def flags(parser):
                    parser.add_argument("--temp", default=TEMP)
                    parser.add_argument("--step", default=STEP)
                    parser.add_argument("--low", default=LOW)
                    parser.add_argument("--made", default=MADE)
                    parser.add_argument("--plain", default=5)
                    return os.environ.get("PKG_STEP", STEP)
                """,
        }
    )
    assert [(each.names[0], each.default, each.value) for each in facts.flags] == [
        ("--temp", "TEMP", "0.0"),
        ("--step", "STEP", "2048"),
        ("--low", "LOW", "-1"),
        # What is worked out stays as it is written.
        ("--made", "MADE", ""),
        ("--plain", "5", ""),
    ]
    assert [(each.name, each.default, each.value) for each in facts.env] == [("PKG_STEP", "STEP", "2048")]


def test_a_pointer_to_one_of_two_kernels(read: Read) -> None:
    # The condition chooses: the launch may start either, so that no kernel is without one.
    text = """template <bool kRing> __global__ void ring(P p) { p.x[0] = 1; }
template <bool kRing> __global__ void flat(P p) { p.x[0] = 2; }
void run(P p) {
  auto kernel = p.length == nullptr ? &ns::ring<true> : &ns::flat<false>;
  kernel<<<1, 32>>>(p);
}
"""
    launches = read({"a.cu": text}).launches
    assert {(each.kernel, each.of.line if each.of else 0) for each in launches} == {("ring", 1), ("flat", 2)}
