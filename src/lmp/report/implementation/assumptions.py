"""What the bounds of section 8 count and suppose: masked products, widths of operands, experts, logits."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.link.numbers import KernelNumbers
from lmp.report.bounds import is_wide
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Code, Inline, Line, Paragraph, Pointer, Table
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.kept import kept_line
from lmp.report.implementation.operators import joined, pointer_at


def assumed(facts: ModelFacts) -> Iterator[Line]:
    """Each as a sentence with its places and numbers."""
    masked = masked_line(facts)
    if masked is not None:
        yield masked
    wide = _wide(facts)
    if wide:
        yield [
            "products of float32 operands take the rate of the vector units, as PyTorch does not round them to TF32 "
            "unless ",
            Code("torch.backends.cuda.matmul.allow_tf32"),
            " is set: ",
            *joined(wide),
        ]
    if facts.bounds.is_routed:
        yield "products over experts read the weights of as many experts as there can be: no two tokens share one (8.1)"
    kept = kept_line(facts)
    if kept is not None:
        yield kept


# --- causal attention ------------------------------------------------------------------------------------------------


def _causal(facts: ModelFacts, point: Point) -> list[KernelNumbers]:
    """Attention at the lines where a call of this phase was told to be causal."""
    flow = facts.flows.phases.get(point.phase)
    lines = {line.line for op in (flow.ops if flow else ()) if op.causal for line in op.frames[0].lines[:1]}
    return [k for k in facts.kernels(point) if k.kernel.category == "attention" and k.kernel.line in lines]


def masked_line(facts: ModelFacts) -> list[Inline] | None:
    """That masked products of causal attention are counted, and how many they are."""
    shown: list[Inline] = []
    for point in facts.points:
        found = _masked(facts, point)
        if found is not None:
            share, fused = found
            shown += ["; " if shown else "", f"{point.title}: ", share, " of all matrix products"]
            shown += [", without them fully fused at least ", fused] if fused is not None else []
    if not shown:
        return None
    return [
        "causal attention is counted in full, products that the mask hides included; a kernel that skips them takes "
        "less than the figures below, ",
        Code("Lower bound, fully fused"),
        " among them. Masked are, ",
        *shown,
    ]


def _masked(facts: ModelFacts, point: Point) -> tuple[Number, Number | None] | None:
    """The share of masked products in all, and the fused bound without them."""
    seq, cached = point.values["seq_len"], point.values["cache_len"]
    kernels = _causal(facts, point)
    if seq < 2 or not kernels:
        return None
    terms = {
        f"a{number}": Term(point=point.key, quantity="flops", class_name=name, category="attention", line=line)
        for number, (name, line) in enumerate(dict.fromkeys((k.class_name, k.kernel.line) for k in kernels))
    }
    # Of the n * (n + c) pairs of n queries with n + c keys, those with a later key are n * (n - 1) / 2.
    terms |= {"n": Term(constant=seq, source="new tokens"), "c": Term(constant=cached, source="cached tokens")}
    hidden = f"({' + '.join(f'{{{name}}}' for name in terms if name[0] == 'a')}) * ({{n}} - 1) / (2 * ({{n}} + {{c}}))"
    terms["m"] = Term(point=point.key, quantity="matmul_flops")
    share = facts.number(f"100 * ({hidden}) / {{m}}", "%", **terms)
    if facts.model.compulsory is None:
        return share, None
    source = facts.device.source
    fused = facts.number(
        f"max(({{m}} - ({hidden})) / {{p}}, {{k}} / {{b}})", "s", **terms,
        p=Term(constant=facts.device.matmul_flops, source=source), k=Term(point=point.key, quantity="compulsory"),
        b=Term(constant=facts.device.bandwidth, source=source),
    )  # fmt: skip
    return share, fused


# --- widths ----------------------------------------------------------------------------------------------------------


def _wide(facts: ModelFacts) -> list[Pointer]:
    """Lines with products of operands that are wider than the model's."""
    places: dict[tuple[str, int], None] = {}
    for name, analysis in facts.analyses.items():
        for kernel in facts.kernels(facts.points[0]) if facts.points else ():
            if kernel.class_name == name and is_wide(kernel.kernel):
                places[kernel.kernel.file or analysis.source.file, kernel.kernel.line] = None
    return [pointer_at(facts, file, line) for file, line in places]


# --- experts ---------------------------------------------------------------------------------------------------------

WAYS = ("most", "uniform", "least")


def read_experts(facts: ModelFacts) -> list[Block]:
    """How many experts' weights a call reads, and what it reads then."""
    if not facts.bounds.is_routed:
        return []
    rows: list[list[Line]] = []
    for point in facts.points:
        for number in range(len(facts.bounds.routings[point.key].choices)):
            experts = [_experts(facts, point, way, number) for way in WAYS]
            read = [facts.number("{a}", "B", a=Term(name=f"routed.{point.key}.{way}.read")) for way in WAYS[1:]]
            rows.append([point.title, *experts, facts.amount("read", point), *read])
    columns = (
        "Point",
        "Experts of a layer, no two tokens share one",
        "Uniform routing",
        "All choose the same",
        "Read by the call, no two share",
        "Uniform routing",
        "All choose the same",
    )
    return [
        Paragraph(
            "Every figure of this report that has the weights of experts in it is as if no two tokens shared an "
            "expert: formulas read as many experts as there can be. Real routing reads fewer. Under uniform routing "
            "(each token chooses its experts evenly and independently of the others) an expert of E is read with the "
            "chance 1 - (1 - k / E) ** tokens where a token chooses k:"
        ),
        Table(columns, rows, right=frozenset(range(1, 7))),
    ]


def _experts(facts: ModelFacts, point: Point, way: str, number: int) -> Number:
    name = f"routed.{point.key}.{way}.experts.{number}"
    return facts.number("{a} / 10 ** 6", "", a=Term(name=name))
