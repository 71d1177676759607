"""What the numbers say of one component: its shares, what bounds it, what changes from prefill to decode, what fusion
could save. Sentences are left out where their number says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

from lmp.formula import add, to_text
from lmp.link.numbers import KernelNumbers
from lmp.observe.flow import Op
from lmp.records import short
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Code, Inline, Line
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation.classes import EXPERTS, Component, components
from lmp.report.implementation.compulsory import Placed, placed
from lmp.report.implementation.expanding import counted_at
from lmp.report.implementation.measures import Measure
from lmp.report.implementation.ran import instance_of
from lmp.report.implementation.sources import place_near

LITTLE = Fraction(1, 10)
"""Per cent of the model below which a component is told in one sentence."""

LIMITS = {
    "compute": "the matmul rate",
    "vector": "the rate of other FLOPs",
    "memory": "the memory bandwidth",
}
WIDE = 4
"""How many times a batch has to raise the intensity for the batch to be what helps."""

NARROW = Fraction(3, 2)
SAME = Fraction(11, 10)
NOTHING_TO_SAVE = Fraction(101, 100)
MOST_PARTS = 3
WORTH = 100
"""The part of the model's bound, as 1 in so many, from which on what fusion saves is told as a time."""

ALMOST_ALL = 99
MOSTLY = 50
SHOWN = Fraction(1, 20)
"""Per cent that is not 0.0 when it is written."""

OWN = "its own lines"


def insights(component: Component, compulsory: Mapping[str, str]) -> list[Line]:
    facts = component.facts
    points = {point.key: point for point in facts.points}
    found: list[Line] = []
    prefill = next(iter(facts.points))
    decode = next((p for p in facts.points if p.phase == "decode"), None)
    stated = [point for point in (prefill, decode) if point is not None]
    if all(_is_little(component, point) for point in stated):
        return [_little(component, stated)]
    found += [_shares(component, point) for point in stated]
    found += _hot_line(component, prefill)
    found += _largest_parts(component, [p for p in (prefill, _longest(facts, decode)) if p is not None])
    if decode is not None:
        found += _between(component, prefill, decode, points)
        found += _longer(component, decode, points)
        found += over_cache(component)
    found += _fusion(component, compulsory, stated)
    return found


def _is_little(component: Component, point: Point) -> bool:
    shares = [component.measure.share(quantity, point) for quantity in ("flops", "bytes")]
    return all(share is None or share.value < LITTLE for share in shares)


def _little(component: Component, points: Sequence[Point]) -> Line:
    """One sentence on what hardly matters."""
    line: list[Inline] = ["Less than a thousandth of the model's FLOPs and bytes: "]
    for index, point in enumerate(points):
        moved = component.measure.amount("bytes", point)
        where = component.facts.called(point.phase) if index else point.title
        line += ["; " if index else "", moved, f" in {where}"]
        line += _at_least(component, point)
    return [*line, "."]


def _at_least(component: Component, point: Point) -> Iterator[Inline]:
    name = f"bound.{point.key}.class.{component.class_name}.total"
    if component.facts.named.get(name, 0):
        seconds = component.facts.number("{a} / 1000000000000", "s", a=Term(name=name))
        yield from (", at least ", seconds, f" on {component.facts.device.name}")


def _shares(component: Component, point: Point) -> Line:
    """Amounts of all its calls, shares, intensity and the bound at one point; and what one call is of that."""
    facts, measure = component.facts, component.measure
    title = point.title[0].upper() + point.title[1:]
    flops, moved = measure.amount("flops", point), measure.amount("bytes", point)
    calls = calls_of(component, point)
    together: list[Inline] = [", ", calls, " calls together"] if calls is not None and calls.value > 1 else []
    line: list[Inline] = [f"{title}", *together, ": ", flops]
    if component.class_name == facts.model.class_name:
        line += [" and ", moved]
    else:
        for amount, quantity, name in ((None, "flops", "FLOPs"), (moved, "bytes", "bytes")):
            share = measure.share(quantity, point)  # type: ignore[arg-type]
            line += [", ", amount] if amount is not None else []
            line += [" (", share, f" of the model's {name})"] if share is not None else []
    intensity = measure.intensity(point)
    if intensity is None:
        return [*line, "; nothing moves."]
    line += [", ", intensity]
    return [*line, *_bound(component, point), *(_one_call(component, point) if together else ()), "."]


def calls_of(component: Component, point: Point) -> Number | None:
    """How often it runs in one call of the model."""
    return _runs(component, point, [c for c in placed(component.facts) if c.class_name == component.class_name])


def _runs(component: Component, point: Point, calls: Sequence[Placed]) -> Number | None:
    if not calls:
        return None
    return component.facts.of_formula(to_text(add(*(call.runs for call in calls))), point, "")


def _one_call(component: Component, point: Point) -> Iterator[Inline]:
    """Of one call of the instance that the pseudocode shows."""
    facts, path = component.facts, instance_of(component)
    here = [c for c in placed(facts) if (c.class_name, c.path) == (component.class_name, path)]
    runs = _runs(component, point, here)
    if runs is None or not runs.value:  # an instance that this phase leaves out
        return
    term = Term(point=point.key, formula=to_text(add(*(call.runs for call in here))))
    of = Measure(facts, ({"path": path},))
    yield from ("; one call of ", Code(path), " is ", of.each("flops", point, term), " and ")
    yield of.each("bytes", point, term)


def _bound(component: Component, point: Point) -> Iterator[Inline]:
    """The least time on the device, and what most of it is bound by."""
    facts = component.facts
    base = f"bound.{point.key}.class.{component.class_name}"
    total = facts.named.get(f"{base}.total", 0)
    if not total:
        return
    limit = max(LIMITS, key=lambda name: facts.named[f"{base}.{name}"])
    seconds = facts.number("{a} / 1000000000000", "s", a=Term(name=f"{base}.total"))
    yield from ("; at least ", seconds, f" on {facts.device.name}, ")
    if facts.named[f"{base}.{limit}"] == total:
        yield f"all of it bound by {LIMITS[limit]}"
        return
    share = facts.number("100 * {a} / {b}", "%", a=Term(name=f"{base}.{limit}"), b=Term(name=f"{base}.total"))
    yield from (share, f" of it bound by {LIMITS[limit]}")


# --- inside ----------------------------------------------------------------------------------------------------------


def _hot_line(component: Component, point: Point) -> Iterator[Line]:
    """The line of the component's own code that moves most of its bytes."""
    facts = component.facts
    kernels = [k for k in facts.kernels(point) if k.class_name == component.class_name and k.kernel.category != "call"]
    by_line: dict[int, list[KernelNumbers]] = {}
    for kernel in kernels:
        by_line.setdefault(kernel.kernel.line, []).append(kernel)
    # A line number names one place only where no other file of the class has a kernel at it.
    single = {n: ks for n, ks in by_line.items() if len({k.kernel.file for k in ks}) == 1}
    if len(single) < 2:
        return
    line, here = max(single.items(), key=lambda item: sum(k.total.bytes for k in item[1]))
    measure = Measure(facts, ({"class_name": component.class_name, "line": line},))
    share = measure.share("bytes", point, component.measure)
    if share is None or share.value < 5:
        return
    first = here[0].kernel
    words = ", ".join(dict.fromkeys(k.kernel.operation for k in here if k.once.bytes))
    yield [
        f"Most bytes of a single line of its own, {point.title}: {words} at ",
        place_near(facts, component.class_name, line, first.file, *_symbols(first.operation), first.function),
        ", ",
        measure.amount("bytes", point),
        " (",
        share,
        " of its bytes).",
    ]


def _symbols(operation: str) -> tuple[str, ...]:
    return (operation.split(" ")[0],)


# --- between the points ----------------------------------------------------------------------------------------------


def _between(component: Component, prefill: Point, decode: Point, points: Mapping[str, Point]) -> Iterator[Line]:
    """How the intensity falls from prefill to decode, and what a batch changes."""
    measure = component.measure
    one, other = measure.intensity(prefill), measure.intensity(decode)
    batched = next((p for p in points.values() if p.phase == "decode" and _batch(p) > _batch(decode)), None)
    if one is None or other is None or batched is None or not other.value:
        return
    many = measure.intensity(batched)
    assert many is not None
    factor = many.value / other.value
    if factor <= SAME and one.value <= other.value * NARROW:
        return  # the same everywhere: the lines above say it
    line: list[Inline] = ["From ", one, " in prefill to ", other, " in decode"]
    if factor <= SAME:
        line += [f"; {_batch(batched)} sequences at once leave it at ", many, ": its bytes grow with the batch."]
        yield line
        return
    line += [f"; {_batch(batched)} sequences at once raise that to ", many]
    if _is_mostly_experts(component, batched):
        line += [
            ": more tokens reach more experts, and the weights of each that is reached are read. Counted is the most ",
            "that routing can ask for: no two tokens share an expert until all experts are read.",
        ]
    elif factor >= WIDE:
        line += [": what is read of weights is read once for all of them."]
    else:
        line += [": part of its bytes grows with the batch."]
    yield line


def _is_mostly_experts(component: Component, point: Point) -> bool:
    """Whether routed experts move most of its bytes."""
    experts = [c for c in components(component.facts) if c.role == EXPERTS]
    inside = tuple(
        {"path": path}
        for expert in experts
        for path in expert.paths
        if expert is component or any(path.startswith(f"{owner}." if owner else "") for owner in component.paths)
    )
    share = Measure(component.facts, inside).share("bytes", point, component.measure)
    return share is not None and share.value >= MOSTLY


def _batch(point: Point) -> int:
    return point.values["batch_size"]


def _longer(component: Component, decode: Point, points: Mapping[str, Point]) -> Iterator[Line]:
    """What a longer cache costs."""
    facts = component.facts
    longer = next(
        (p for p in points.values() if p.phase == "decode" and _batch(p) == _batch(decode) and p is not decode), None
    )
    if longer is None:
        return
    measure = component.measure
    before, after = measure.amount("bytes", decode), measure.amount("bytes", longer)
    if not before.value or after.value < before.value * NARROW:
        return
    yield [
        "With ",
        _tokens(facts, longer),
        " cached tokens in place of ",
        _tokens(facts, decode),
        " a decode step moves ",
        after,
        " in place of ",
        before,
        ".",
    ]
    yield from _hot_line(component, longer)


def over_cache(component: Component) -> Iterator[Line]:
    """Modules that it calls whose products in a decode step are over all cached tokens, not over the new one."""
    facts, owner = component.facts, component.paths[0]
    flow = facts.flows.phases.get("decode")
    points = [point for point in facts.points if point.phase == "decode"]
    if flow is None or not points:
        return
    longest = max(points, key=lambda point: (point.values["cache_len"], -_batch(point)))
    called = {op.frames[0].path: op for op in flow.ops if op.frames and op.product is not None and _grows(op)}
    for inner, op in called.items():
        if inner == owner or not _parent(inner, owner):
            continue
        line: list[Inline] = [Code(inner.rpartition(".")[2]), " runs over all tokens of the cache in every decode step"]
        choices = [counted_at(facts, longest, op, partial(_beside, owner, path)) for path in component.paths]
        known = tuple(choice for choice in choices if choice is not None)
        share = Measure(facts, known).share("flops", longest) if len(known) == len(choices) else None
        line += [": ", share, f" of the model's FLOPs in {longest.title}"] if share is not None else []
        yield [*line, "."]


def _beside(owner: str, other: str, path: str) -> str | None:
    """Of a path within ``owner`` the same one within ``other``."""
    if not owner:
        return path
    return other + path.removeprefix(owner) if path == owner or path.startswith(f"{owner}.") else None


def _grows(op: Op) -> bool:
    """Whether rows of a product that weights are in are as many as the cache has tokens."""
    return op.category != "attention" and op.shape is not None and any("cache_len" in size for size in op.shape[:-1])


def _tokens(facts: ModelFacts, point: Point) -> Number:
    return facts.of_formula("{cache_len}", point, "")


def _fusion(component: Component, compulsory: Mapping[str, str], points: list[Point]) -> Iterator[Line]:
    """Eager traffic against what must move: the most that fusion inside of the component could save."""
    facts = component.facts
    formula = compulsory.get(component.class_name)
    if formula is None:
        yield (
            f"Fusion: none found (searched: compulsory bytes in the analysis of {short(component.class_name)}): "
            "what it could save is not known."
        )
        return
    found = []
    for point in points:
        least = facts.of_formula(formula, point, "B")
        if least.value:
            times = component.measure.over("bytes", point, Term(point=point.key, formula=formula))
            found.append((facts.called(point.phase), least, times))
    saves = any(times.value >= NOTHING_TO_SAVE for _, _, times in found)
    line: list[Inline] = []
    for phase, least, times in found:
        line += [" and " if line else "", least, f" in {phase}"]
        line += [" (eager: ", times, " that)"] if saves else []
    if saves:
        saved = _saved(component, points[0], formula)
        yield ["What no fusion inside of it can save, inputs, weights, cache and outputs once, is ", *line, *saved, "."]
    elif line:
        yield ["Fusion inside of it saves nothing: inputs, weights and outputs move once, ", *line, "."]


def _saved(component: Component, point: Point, compulsory: str) -> Iterator[Inline]:
    """By how much the bound of the whole model falls at most, where the component moves its compulsory bytes alone.

    What stays is the longest of three: these bytes, its products at the matmul rate, and the time of its operators that
    arithmetic bounds.
    """
    facts, device = component.facts, component.facts.device
    name, whole = f"bound.{point.key}.class.{component.class_name}", f"bound.{point.key}.total"
    products, more = component.measure.sum_of("m", "matmul_flops", point)
    stays: tuple[tuple[str, dict[str, Term]], ...] = (
        ("{b} / {rate}", {"b": Term(point=point.key, formula=compulsory), "rate": _rate(facts, device.bandwidth)}),
        (f"({products}) / {{rate}}", {**more, "rate": _rate(facts, device.matmul_flops)}),
        ("({c} + {v}) / 1000000000000", {"c": Term(name=f"{name}.compute"), "v": Term(name=f"{name}.vector")}),
    )
    if not facts.named.get(f"{name}.total"):
        return
    text, terms = max(stays, key=lambda stay: facts.number(stay[0], "s", **stay[1]).value)
    saved = facts.number(f"{{eager}} / 1000000000000 - {text}", "s", eager=Term(name=f"{name}.total"), **terms)
    model = facts.number("{a} / 1000000000000", "s", a=Term(name=whole))
    if saved.value * WORTH >= model.value:
        yield from (f"; moved so, the bound of {facts.called(point.phase)} falls by at most ", saved)
        yield from (" of the model's ", model)


def _rate(facts: ModelFacts, rate: int) -> Term:
    return Term(constant=rate, source=facts.device.source)


def _longest(facts: ModelFacts, decode: Point | None) -> Point | None:
    """Decode of one sequence on the longest cache."""
    found = [p for p in facts.points if decode is not None and p.phase == "decode" and _batch(p) == _batch(decode)]
    return max(found, key=lambda p: p.values["cache_len"], default=None)


def _largest_parts(component: Component, points: list[Point]) -> Iterator[Line]:
    """Which of the modules that it calls has most of it; of a class that calls none, which of its places."""
    parts = _parts(component)
    if len(parts) < 2:
        return
    told: set[str] = set()
    for point in points:
        whole = component.measure
        shares = [(name, m.share("flops", point, whole), m.share("bytes", point, whole)) for name, m in parts.items()]
        known = [entry for entry in shares if any(share is not None and share.value >= 1 for share in entry[1:])]
        known.sort(key=lambda entry: -(entry[2].value if entry[2] is not None else 0))
        if not known or (not component.calls and _are_alike(component, point)):
            continue
        if len(known) == 1 and known[0][0] != OWN and known[0][2] is not None and known[0][2].value >= ALMOST_ALL:
            yield [
                f"Nearly all of it in {point.phase} is ",
                Code(known[0][0]),
                " ",
                *_times(component, known[0][0], point),
                "(",
                known[0][2],
                " of its bytes).",
            ]
            return
        if known[0][0] == OWN and known[0][2] is not None and known[0][2].value > 100 - SHOWN:
            continue
        text = ";".join(f"{name} {moved.text}" for name, _, moved in known[:MOST_PARTS] if moved is not None)
        if text in told:
            continue
        told.add(text)
        line: list[Inline] = [f"Largest parts, {point.title}: "]
        for index, (name, flops, moved) in enumerate(known[:MOST_PARTS]):
            line += ["; " if index else "", name if name == OWN else Code(name), " "]
            line += [*_operators_told(component, point)] if name == OWN else [*_times(component, name, point)]
            told_shares = [(share, w) for share, w in ((flops, "FLOPs"), (moved, "bytes")) if _is_told(share)]
            for place, (share, words) in enumerate(told_shares):
                line += [", " if place else "", share or "", f" of the {words}"]
        yield [*line, "."]


def _is_told(share: Number | None) -> bool:
    return share is not None and share.value >= SHOWN


def _operators_told(component: Component, point: Point) -> Iterator[Inline]:
    own = Measure(component.facts, ({"class_name": component.class_name},))
    yield from ("(", own.amount("launches", point), " operators) ")


def _are_alike(component: Component, point: Point) -> bool:
    """Whether every place of the class moves the same in one call: their shares say how often each runs, no more."""
    once: dict[str, int | Fraction] = {}
    for k in component.facts.kernels(point):
        if k.class_name == component.class_name:
            once[k.path] = once.get(k.path, 0) + k.once.bytes
    return len(set(once.values())) == 1


def _parts(component: Component) -> dict[str, Measure]:
    """By name: modules that it calls, the same one of all its places together; or the places of a class without any."""
    facts = component.facts
    found: dict[str, list[dict[str, str]]] = {}
    for place in components(facts):
        for path in place.paths:
            if not component.calls:
                if place.class_name == component.class_name:
                    found.setdefault(_without_numbers(path), []).append({"path": path})
                continue
            owner = next((p for p in component.paths if _parent(path, p)), None)
            if owner is not None:
                local = path.removeprefix(f"{owner}.") if owner else path
                found.setdefault(_without_numbers(local), []).append({"path": path})
    parts = {name: Measure(facts, tuple(choices)) for name, choices in found.items()}
    if component.calls and any(k.kernel.category != "call" for k in _own_kernels(component)):
        parts[OWN] = Measure(facts, ({"class_name": component.class_name},))
    return parts


def _own_kernels(component: Component) -> list[KernelNumbers]:
    point = component.facts.points[0]
    return [k for k in component.facts.kernels(point) if k.class_name == component.class_name]


def _times(component: Component, name: str, point: Point) -> Iterator[Inline]:
    """``×32 `` of a part that runs several times in one call of the component."""
    facts = component.facts
    owner = next((p for p in component.paths if any(c.path == f"{p}.{name}" for c in placed(facts))), None)
    outer = [c for c in placed(facts) if c.path == owner]
    inner = [c for c in placed(facts) if c.path == f"{owner}.{name}"] if owner else []
    runs, each = _runs(component, point, inner), _runs(component, point, outer)
    if runs is None or each is None or runs.value <= each.value:
        return
    terms = {
        name: Term(point=point.key, formula=to_text(add(*(c.runs for c in calls))))
        for name, calls in (("a", inner), ("b", outer))
    }
    yield from ("×", facts.number("{a} / {b}", "", **terms), " ")


def _parent(path: str, owner: str) -> bool:
    """Whether a module is held by another one directly, lists of modules between them aside."""
    local = path.removeprefix(f"{owner}.") if owner else path
    if not path or (local == path and owner):
        return False
    return sum(not part.isdigit() for part in local.split(".")) == 1


def _without_numbers(path: str) -> str:
    """``layers.self_attn.q_proj``, without the names of what stands around layers."""
    parts = path.split(".")
    last = max((n for n, part in enumerate(parts) if part.isdigit()), default=-1)
    if last == len(parts) - 1:
        return path
    return ".".join(parts[last + 1 :])
