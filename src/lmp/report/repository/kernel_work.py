"""What a kernel's own text does: loads and stores by level of memory, products, barriers. Nothing is run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmp.codebase.cpp_text import Code
from lmp.codebase.facts import Definition, Kernel, Place
from lmp.report.document.parts import Block, Fence, Inline
from lmp.report.repository.code_base import CodeBase

LOAD, STORE, SHARED = "loads from global memory", "stores to global memory", "uses of shared memory"
PRODUCT, EXCHANGE, BARRIER = "products on tensor cores", "exchanges between registers of a warp", "barriers"
ATOMIC, SUMS = "atomic updates", "running sums"
_SUM = (
    r"(?<![\w.])(?!\w*(?:ptr|off|idx|stride))(?P<sum>\w+)(?:\[\])* *"
    r"(?:\+=|=(?!=)(?=[^;\n]*(?<![\w.])(?P=sum)\b)(?=[^;\n]*\+))(?![^;\n]*stride)[^;\n]*\*"
)
"""``acc += a * b`` and ``acc = d * acc + a``, where subscripts and loads are emptied; a pointer moves by strides."""
_FMA = r"(?P<to>\w+(?:\[\])*)\s*=\s*(?:__)?h?fma\w*\([^;]*,\s*(?P=to)\s*\)"
"""``acc = fma(a, b, acc)``: what is not fed back sums nothing."""
_EXACT = r"[^\n]*(?:allow_tf32\s*=\s*False|input_precision\s*=\s*[\"']ieee)"
"""Arguments of a product in full float32, which tensor cores do not have."""
LANGUAGES = {
    "triton": {
        LOAD: r"\btl\.load\(|\.load\(",
        STORE: r"\btl\.store\(|\.store\(",
        ATOMIC: r"\btl\.atomic_\w+\(",
        PRODUCT: rf"\btl\.dot(?:_scaled)?\((?!{_EXACT})",
        SUMS: rf"\btl\.sum\([^\n]*\*|\btl\.dot\({_EXACT}|{_SUM}",
        BARRIER: r"\btl\.debug_barrier\(",
    },
    "cuda": {
        LOAD: r"\b__ldg\(|\bcp_async\w*|\bcp\.async\w*|\.(?:cast_)?[lL]oad\(|\btma_load\w*",
        STORE: r"\.(?:cast_)?[sS]tore\(|\btma_store\w*",
        ATOMIC: r"\batomic\w+\(",
        SUMS: rf"{_FMA}|{_SUM}",
        SHARED: r"\b__shared__\b|\bldmatrix\w*",
        PRODUCT: r"\bmma_\w+|\bwmma\b|\bwgmma\w*|\bmma\.sync\b|\bmma\(",
        EXCHANGE: r"\b__shfl\w*\(|\bwarp_reduce\w*",
        BARRIER: r"\b__syncthreads\b|\b__syncwarp\b|\bcp_async_wait\w*|\bbar\.sync\b",
    },
    "metal": {
        SHARED: r"\bthreadgroup\b",
        ATOMIC: r"\batomic_fetch_\w+\(",
        PRODUCT: r"\bsimdgroup_multiply\w*\(",
        SUMS: rf"{_FMA}|{_SUM}",
        EXCHANGE: r"\bsimd_\w+",
        BARRIER: r"\bthreadgroup_barrier\b",
    },
    "cute": {
        LOAD: r"\bcute\.copy\(|\bcp_async\w*|\btma_load\w*|\.load\(",
        STORE: r"\btma_store\w*|\.store\(|\bcute\.autovec_copy\(",
        SHARED: r"\bsmem\.allocate\w*|\ballocate_tensor\(|\bget_dyn_smem\(|\bSmemAllocator\(",
        PRODUCT: r"\bcute\.gemm\(|\btcgen05\.mma\w*|\bmma_\w+\(",
        EXCHANGE: r"\bshuffle_sync\w*|\bwarp_reduc\w+",
        BARRIER: r"\bsync_threads\(|\bbarrier\w*\(|\bcp_async_wait\w*|\.arrive_and_wait\(",
    },
    "cutile": {
        LOAD: r"\bct\.(?:load|gather)\(",
        STORE: r"\bct\.(?:store|scatter)\(",
        ATOMIC: r"\bct\.atomic_\w+\(",
        PRODUCT: r"\bct\.mma\(",
    },
    "pallas": {
        LOAD: r"\bpl\.load\(|\bmake_async_copy\(|\b\w+_ref\[[^\]]*\](?!\s*=[^=])",
        STORE: r"\bpl\.store\(|\b\w+_ref\[[^\]]*\]\s*=[^=]",
        PRODUCT: r"\b(?:jnp\.dot|lax\.dot_general|jnp\.matmul|jnp\.einsum)\(",
        BARRIER: r"\bsemaphore_wait\(|\.wait\(",
    },
}  # fmt: skip
"""Language -> what is counted, and the calls that do it. In CUDA and Metal ``accesses`` counts subscripts as well."""
TILED = frozenset(["triton", "tilelang", "cutile", "pallas"])
"""Languages whose compiler places tiles in shared memory itself."""
SEARCHED = {"cuda": "subscripts of pointers, calls that load or store", "metal": "subscripts of pointers"}
_DECLARED = re.compile(r"(?:\*|\bauto\b)[\w\s]*?\b(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>[^;{}]*);")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;{}()]{0,200}>)?\s*\(")
MOST_CALLED = 60
"""Functions that are looked into for one kernel."""
_UPDATE = re.compile(r"\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)")


@dataclass(frozen=True)
class Work:
    counts: dict[str, int]
    """How often each stands in the kernel's lines."""
    called: frozenset[str] = frozenset()
    """What stands in the functions that it calls."""
    hands_on: bool = False
    """It gives pointers to global memory to objects, whose methods load and store too."""

    @property
    def does(self) -> set[str]:
        return self.counts.keys() | self.called


def work_of(base: CodeBase, kernel: Kernel) -> Work:
    """Counted on the kernel's own lines; of what it calls it is only told what is done there."""
    text = _bare(base, kernel, kernel.place, kernel.end)
    found = _counted(kernel, text)
    hands_on = False
    if kernel.language in SEARCHED:
        counted, hands_on = accesses(text)
        found.update(counted)
    order = dict.fromkeys([LOAD, STORE, *LANGUAGES.get(kernel.language, ())])
    called = [each for each in _called(base, kernel, text) if each.place != kernel.place]
    done = [_counted(kernel, _bare(base, kernel, each.place, each.end)) for each in called]
    return Work(
        {name: found[name] for name in order if found[name]}, frozenset(n for each in done for n in +each), hands_on
    )


_SOFTMAX = (re.compile(r"\bexp2?f?\(|\b__expf\("), re.compile(r"\b(?:f?max(?:imum|f)?)\("))
"""What a softmax of one kernel calls: the exponential of the distance to the largest value so far."""


def is_attention(base: CodeBase, kernel: Kernel) -> bool:
    """Whether a kernel computes a softmax between sums of products: attention in one kernel."""
    text = _bare(base, kernel, kernel.place, kernel.end)
    if not all(each.search(text) for each in _SOFTMAX):
        return False
    counted = _counted(kernel, text)
    return counted[PRODUCT] + counted[SUMS] > 1


def _bare(base: CodeBase, kernel: Kernel, place: Place, end: int) -> str:
    lines = base.lines(place.file)[place.line - 1 : end]
    if kernel.language in SEARCHED:
        return Code("\n".join(lines)).bare
    return "\n".join(re.sub(r"#.*", "", line) for line in lines)


def _counted(kernel: Kernel, text: str) -> Counter[str]:
    patterns = LANGUAGES.get(kernel.language, {})
    found = Counter({name: len(re.findall(pattern, text)) for name, pattern in patterns.items()})
    emptied = re.sub(r"\[[^\[\]]*\]|(?<=load)\([^()]*\)", "[]", text)
    found[SUMS] = len(list(re.finditer(patterns[SUMS], emptied))) if SUMS in patterns else 0
    return found


def _called(base: CodeBase, kernel: Kernel, text: str) -> Iterator[Definition]:
    """The functions of the code base that a kernel's text calls, and those that these call.

    They are found by their names: those of its own file first, others where one file alone has the name.
    """
    seen: set[str] = {kernel.name}
    waiting = [text]
    while waiting and len(seen) < MOST_CALLED:
        for name in dict.fromkeys(_CALL.findall(waiting.pop())):
            named = [each for each in base.by_name.get(name, ()) if each.kind != "class"]
            here = [each for each in named if each.place.file == kernel.place.file] or named
            if name in seen or len({each.place.file for each in here}) != 1:
                continue
            seen.add(name)
            yield from here
            waiting += [_bare(base, kernel, each.place, each.end) for each in here]


def accesses(text: str) -> tuple[Counter[str], bool]:
    """Loads and stores of global memory, and whether objects are made of its pointers, whose methods load and store.

    Counted are subscripts and dereferences of a parameter that is a pointer, or of a local pointer made of one.

    ``text`` begins on the line of the kernel's name and has no comments.
    """
    code = Code(text)
    opening = text.find("(")
    closing = code.closing(opening) if opening >= 0 else -1
    if closing < 0:
        return Counter(), False
    every = code.arguments(opening + 1, closing)
    given = [each for each in every if re.search(r"\*|\[\]|Accessor", each)]
    handed = {match[1] for each in every if (match := _NAMED.search(each))}
    names = {match[1] for each in given if "threadgroup" not in each and (match := _NAMED.search(each))}
    body = text[closing + 1 :]
    views = {
        made[1]
        for made in _OBJECT.finditer(body)
        if any(re.search(rf"(?<![\w.]){name}\b(?!\s*\[)", made[2]) for name in names)
    }
    for local in _DECLARED.finditer(body):
        made = any(re.search(rf"\b{name}\b(?!\s*\[)|&\s*{name}\s*\[", local["value"]) for name in names | views)
        # Parameters may be handed in as one object.
        member = _MEMBER.search(local["value"])
        if made or (member is not None and member[1] in handed):
            names.add(local["name"])
    found: Counter[str] = Counter()
    inner = Code(body)
    name = rf"(?:{'|'.join(sorted(names))})\b" if names else r"(?!)"
    for match in re.finditer(rf"(?<![\w.>]){name}\s*\[", body):
        end = inner.closing(match.end() - 1)
        # An accessor and a pointer to pointers have more than one subscript: it is one access.
        while end > 0 and body[end + 1 : end + 2] == "[":
            end = inner.closing(end + 1)
        if end > 0 and not _is_prefix(body, match.start(), "&"):
            found.update(_access(body, end + 1))
    for match in re.finditer(rf"\*\s*{_CAST}?\(?\s*(?P<address>&\s*)?{name}(?P<subscript>\s*\[)?", body):
        if bool(match["address"]) == bool(match["subscript"]) and _is_prefix(body, match.start() + 1, "*"):
            bracket = body.find("(", match.start(), match.end())
            end = inner.closing(bracket) if bracket > 0 else match.end() - 1
            # In *p++ the pointer moves, and not what it points to.
            moves = re.match(r"\s*(?:\+\+|--)", body[end + 1 :]) if bracket < 0 else None
            found.update(_access(body, end + 1 + (moves.end() if moves else 0)))
    return found, bool(views)


_MEMBER = re.compile(r"\b(?:reinterpret|static)_cast\s*<[^;()]*\*[^;()]*>\s*\(\s*(\w+)(?:\.|->)\w+")
"""A member of an object, as a pointer."""
_OBJECT = re.compile(r"\b[A-Za-z_]\w*(?:<[^;(){}]*>)?\s+([A-Za-z_]\w*)\s*[({]([^;(){}]*)[)}]\s*;")
"""``View view(pointer, rows, columns);``"""


_CAST = r"(?:reinterpret_cast\s*<[^;()]*>\s*|\(\s*(?:const\s+)?[\w:]+(?:\s+const)?\s*\*\s*\)\s*)"


def _is_prefix(body: str, at: int, operator: str) -> bool:
    """Whether the operator stands right before a place, and before it nothing that it could join two values of."""
    before = body[:at].rstrip()
    if not before.endswith(operator) or before.endswith("&&"):
        return False
    if re.search(r"\*\s*\)$", before[:-1].rstrip()):
        # Behind a cast to a pointer.
        return True
    return re.search(r"(?<!\breturn)(?<=[\w)\]])$", before[:-1].rstrip()) is None


def _access(body: str, after: int) -> list[str]:
    """What is done to the place that was named just before: ``=`` stores, ``+=`` and ``++`` do both."""
    update = _UPDATE.match(body, after)
    if update is None:
        return [LOAD]
    return [STORE] if update[0].strip() == "=" else [LOAD, STORE]


_NAMED = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$")
"""The last name of a parameter as it is written."""


def hierarchy(worked: Sequence[tuple[Kernel, Work]]) -> Block:
    """The levels of memory, with how many kernels move data between them, by what stands in their own lines."""
    kernels: Counter[str] = Counter(name for _, work in worked for name in work.counts)
    below: Counter[str] = Counter(name for _, work in worked for name in work.called)
    calls: Counter[str] = Counter()
    for _, work in worked:
        calls.update(work.counts)
    languages = sorted({kernel.language for kernel, _ in worked})
    searched = ", ".join(dict.fromkeys(SEARCHED.get(name, "calls that load or store") for name in languages))

    def moved(name: str, otherwise: str) -> str:
        if kernels[name]:
            return f"{calls[name]} {name} in {kernels[name]} of {len(worked)} kernels"
        return f"{name} in what {below[name]} of {len(worked)} kernels call" if below[name] else otherwise

    unused, alone = "no use of it was found", "no exchange between lanes was found"
    if TILED.issuperset(languages):
        unused += "; the compilers of these languages place tiles in it"
        alone += "; the compilers of these languages place those of reductions"
    lines = [
        "Global memory (HBM)",
        f"       | load:    {moved(LOAD, f'none found in own lines (searched: {searched})')}",
        f"Shared memory (SRAM): {moved(SHARED, unused)}",
        "       |",
        f"Registers: {moved(EXCHANGE, alone)}",
        f"       | compute: {moved(PRODUCT, 'no product on tensor cores was found')}",
        *([f"       |          {moved(SUMS, '')}"] if kernels[SUMS] else []),
        f"       | wait:    {moved(BARRIER, 'no barrier was found')}",
        f"       | store:   {moved(STORE, f'none found in own lines (searched: {searched})')}",
        *([f"       | atomic:  {moved(ATOMIC, '')}, which read, change and write"] if kernels[ATOMIC] else []),
        "Global memory (HBM)",
    ]
    pieces: list[Inline] = ["\n".join(lines) + "\n"]
    return Fence(pieces, "text")
