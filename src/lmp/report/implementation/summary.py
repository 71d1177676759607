"""Section 1: what the model is, what it costs in prefill and decode, and its features with their places."""

from __future__ import annotations

from collections.abc import Iterator

from lmp.records import Kernel
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Bold, Bullets, Code, Inline, Line, Paragraph, Section
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, Point
from lmp.report.implementation import classes
from lmp.report.implementation.classes import Component, components
from lmp.report.implementation.drawing import pieces_of
from lmp.report.implementation.insights import LIMITS, over_cache
from lmp.report.implementation.measures import Measure, ridge
from lmp.report.implementation.naming import kind_of_layer, settings_of, shape_text
from lmp.report.implementation.reads import reads_of
from lmp.report.implementation.sources import place_near, sources_of

LAYERS = "num_hidden_layers"


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    parts = components(facts)
    sentences = [
        _what(facts, parts),
        *_cache(facts),
        *(_cost(facts, point) for point in _phases(facts)),
    ]
    blocks: list[Paragraph | Bullets] = []
    if told is not None:
        blocks.append(Paragraph(_joined(told.tldr())))
    blocks.append(Paragraph(_joined(sentences)))
    blocks += [Paragraph([Bold("Key Features:")]), Bullets(list(_features(facts, parts)), "the kernels and the config")]
    return Section("1. Executive Summary", blocks)


def _joined(lines: list[Line]) -> list[Inline]:
    found: list[Inline] = []
    for line in lines:
        found += [" "] if found else []
        found += pieces_of(line)
    return found


def _phases(facts: ModelFacts) -> list[Point]:
    found: dict[str, Point] = {}
    for point in facts.points:
        found.setdefault(point.phase, point)
    return list(found.values())


# --- sentences -------------------------------------------------------------------------------------------------------


def _what(facts: ModelFacts, parts: tuple[Component, ...]) -> Line:
    root = parts[0]
    kinds = _layers(facts, parts)
    line: list[Inline] = [Code(root.name), " (", root.pointer, ") "]
    if kinds and f"config.{LAYERS}" in facts.named:
        line += ["is a decoder of ", facts.setting(LAYERS), " layers"]
        for index, (inner, count) in enumerate(kinds.items()):
            line.append(", " if index else ": " if len(kinds) > 1 else " of ")
            line.append(f"{count} of " if len(kinds) > 1 else "")
            for place, component in enumerate(inner):
                line += [" and " if place else "", f"{component.role} (", Code(component.name), ")"]
        if "config.hidden_size" in facts.named:
            line += [", on vectors of ", facts.setting("hidden_size")]
    else:
        line += [f"is a {root.role}"]
        called = [c for c in parts if c.class_name in root.calls]
        for index, component in enumerate(called):
            line += [" of " if not index else ", ", Code(component.name)]
    return [*line, *_parameters(facts), "."]


def _layers(facts: ModelFacts, parts: tuple[Component, ...]) -> dict[tuple[Component, ...], int]:
    """What layers are made of -> how many of them are."""
    found: dict[tuple[Component, ...], int] = {}
    for layer in (path for c in parts if c.role == classes.LAYER for path in c.paths):
        inner = tuple(c for c in parts if c.role in _MAIN and any(p.rpartition(".")[0] == layer for p in c.paths))
        found[inner] = found.get(inner, 0) + facts.named.get(f"count.{layer}", 1)
    return found


_MAIN = (classes.ATTENTION, classes.MIXTURE, classes.FEED_FORWARD, classes.PLAIN_FEED_FORWARD, classes.EXPERTS)


def _parameters(facts: ModelFacts) -> Iterator[Inline]:
    if facts.inspection is not None:
        yield from (", with ", facts.number("{a}", "params", a=Term(name="parameters_count")))
        active = facts.named.get("active_parameters_count")
        if active is None:
            yield f" (how many of them a token uses is not known: {facts.inspection.totals.active_reason})"
        elif active != facts.named["parameters_count"]:
            yield from (
                " of which a token uses ",
                facts.number("{a}", "params", a=Term(name="active_parameters_count")),
            )
        else:
            yield ", all of them used for every token"
        weights = facts.number("{a}", "B", a=Term(name="weight_bytes"))
        yield from ("; they take ", weights, f" {facts.stored_in}")
    elif facts.model.totals.parameters_count is not None:
        yield from (", with ", facts.amount("parameters_count", facts.points[0]))


def _cache(facts: ModelFacts) -> Iterator[Line]:
    """What kind of attention it is, and what it keeps for each token."""
    cache = facts.inspection.cache if facts.inspection is not None else None
    if cache is None:
        return
    if not cache.segments:
        yield f"KV cache: none found (searched: a run of the model; {cache.reason})."
        return
    line: list[Inline] = list(kind_of_attention(facts)) or ["A sequence"]
    line.append(" keeps ")
    rates = [n for n in range(len(cache.segments)) if f"cache.{n}.bytes_per_token" in facts.named]
    for place, index in enumerate(rates):
        segment = cache.segments[index]
        rate = facts.number("{a}", "B", a=Term(name=f"cache.{index}.bytes_per_token"))
        line += [", then " if place else "", rate, " of KV cache a token" if not place else " a token"]
        if len(rates) > 1 and segment.to_tokens is not None:
            line.append(f" up to {segment.to_tokens:,} tokens")
    if rates:
        yield [*line, "."]


def kind_of_attention(facts: ModelFacts) -> Iterator[Inline]:
    """By the config's heads; nothing where it has none."""
    named = facts.named
    queries, keys = named.get("config.num_attention_heads"), named.get("config.num_key_value_heads")
    if not queries:
        return
    heads = facts.setting("num_attention_heads")
    if named.get("config.kv_lora_rank"):
        yield from ("Latent attention (", heads, " heads from ", facts.setting("kv_lora_rank"))
        if "config.qk_rope_head_dim" in named:
            yield from (" + ", facts.setting("qk_rope_head_dim"))
        yield " cached numbers a token and layer)"
    elif keys and keys < queries:
        ratio = facts.number(
            "{q} / {k}", "", q=Term(name="config.num_attention_heads"), k=Term(name="config.num_key_value_heads")
        )
        kind = "Multi-query" if keys == 1 else "Grouped-query"
        yield from (f"{kind} attention (", heads, " query heads on ", facts.setting("num_key_value_heads"))
        yield from (" key and value heads, ", ratio, " to 1)")
    else:
        yield from ("Multi-head attention (", heads, " heads, each with its own keys and values)")


def _cost(facts: ModelFacts, point: Point) -> Line:
    """Amounts at a point, what bounds it, and the parts with most FLOPs and most bytes."""
    whole = Measure(facts, ({},))
    moved = whole.amount("bytes", point)
    intensity = whole.intensity(point)
    line: list[Inline] = [f"{point.title[0].upper()}{point.title[1:]}: ", whole.amount("flops", point), " and ", moved]
    if intensity is not None:
        line += [", ", intensity]
        if point is facts.points[0]:
            line += [f" (matmuls on {facts.device.name} need ", ridge(facts), " to be bound by arithmetic)"]
    flops, traffic = _largest(facts, point, "flops"), _largest(facts, point, "bytes")
    if flops is not None and traffic is not None and flops[0] == traffic[0]:
        line += ["; ", flops[1], " of the FLOPs and ", traffic[1], " of the bytes are those of ", Code(flops[0])]
    else:
        for found, words in ((flops, "FLOPs"), (traffic, "bytes")):
            if found is not None:
                line += ["; ", found[1], f" of the {words} are those of ", Code(found[0])]
    total = facts.named.get(f"bound.{point.key}.total")
    if total:
        seconds = facts.number("{a} / 1000000000000", "s", a=Term(name=f"bound.{point.key}.total"))
        line += ["; operator by operator at least ", seconds, f" on {facts.device.name}"]
        limit = max(LIMITS, key=lambda name: facts.named[f"bound.{point.key}.{name}"])
        share = facts.number(
            "100 * {a} / {b}", "%", a=Term(name=f"bound.{point.key}.{limit}"), b=Term(name=f"bound.{point.key}.total")
        )
        line += [", ", share, f" of it bound by {LIMITS[limit]}"]
    return [*line, "."]


def _largest(facts: ModelFacts, point: Point, quantity: str) -> tuple[str, Number] | None:
    """The class below the layers with the largest share."""
    found = []
    for component in components(facts):
        if component.role in (*_MAIN, classes.LINEAR, classes.NORM, classes.OTHER) and _is_part(facts, component):
            share = component.measure.share(quantity, point)  # type: ignore[arg-type]
            if share is not None:
                found.append((component.name, share))
    return max(found, key=lambda entry: entry[1].value, default=None)


def _is_part(facts: ModelFacts, component: Component) -> bool:
    """Whether the model's layers, or the model, call it directly: parts that do not hold one another."""
    holders = {c.class_name for c in components(facts) if c.role in (classes.LAYER, classes.STACK, classes.MODEL)}
    callers = {c.class_name for c in components(facts) if component.class_name in c.calls}
    return bool(callers) and callers <= holders


# --- features --------------------------------------------------------------------------------------------------------


def _features(facts: ModelFacts, parts: tuple[Component, ...]) -> Iterator[Line]:
    for component in parts:
        make = _OF.get(component.role)
        if make is not None:
            yield from make(facts, component)
    yield from _beyond_active(facts)
    yield from _kinds(facts)
    yield from _cache_update(facts)
    yield from _tied(facts)


def _attention(facts: ModelFacts, component: Component) -> Iterator[Line]:
    line: list[Inline] = list(kind_of_attention(facts)) or [f"Attention in {component.name}"]
    kernel = _kernel(component, "attention", "softmax")
    if kernel is not None:
        line += [", computed by ", Code(_computed_by(kernel)), " at ", _place(facts, component, kernel)]
    yield [*line, "; ", component.pointer, "."]
    yield from _inside_attention(facts, component)
    yield from over_cache(component)


def _inside_attention(facts: ModelFacts, component: Component) -> Iterator[Line]:
    """Weights that attention itself holds, and norms that it calls."""
    calls = facts.observed.of(component.class_name)
    for weight in calls[0].weights if calls else ():
        yield [Code(component.name), " itself has a learned ", Code(weight.name), f" {shape_text(weight)}."]
    norms = [c for c in components(facts) if c.role in (classes.NORM, classes.LAYER_NORM)]
    within = [(norm, path) for norm in norms for path in norm.paths if path.rpartition(".")[0] in component.paths]
    if within:
        names = list(dict.fromkeys(path.rpartition(".")[2] for _, path in within))
        point = facts.points[0]
        share = Measure(facts, tuple({"path": path} for _, path in within)).share("bytes", point)
        line: list[Inline] = [f"{within[0][0].role} inside of attention: "]
        for index, name in enumerate(names):
            line += [", " if index else "", Code(name)]
        line += [", ", share, f" of the bytes of {point.phase}"] if share is not None else []
        yield [*line, "."]


def _computed_by(kernel: Kernel) -> str:
    return "scaled_dot_product_attention" if kernel.category == "attention" else kernel.function or "forward"


def _place(facts: ModelFacts, component: Component, kernel: Kernel) -> Inline:
    symbols = ("scaled_dot_product_attention", "softmax", "topk", "grouped_mm", "rsqrt", "cos", kernel.function)
    return place_near(facts, component.class_name, kernel.line, kernel.file, *symbols)


def _kernel(component: Component, *categories: str) -> Kernel | None:
    for category in categories:
        for kernel in component.analysis.kernels:
            if kernel.category == category and kernel.kernel_type == "basic":
                return kernel
    return None


def _constants(facts: ModelFacts, component: Component) -> Iterator[Inline]:
    """Numbers of the config that the class itself reads and that are no sizes, as limits and scales."""
    sources = sources_of(facts)
    lines, file = facts.sources[component.class_name].class_lines, component.pointer.file
    found = []
    for name, places in reads_of(facts, sources).items():
        value = settings_of(facts).get(name)
        inside = any(p.file == file and lines[0] <= p.line <= lines[1] for p in places)
        if inside and isinstance(value, float) and not any(part in name for part in _NO_SHAPING):
            found.append(f"{name} = {value}")
    for index, text in enumerate(found):
        yield from (", " if index else "; with ", Code(text))


_NO_SHAPING = ("eps", "dropout", "initializer")
"""What does not change what is computed at inference, or hardly."""


def _position(facts: ModelFacts, component: Component) -> Iterator[Line]:
    settings = settings_of(facts)
    given = {name: settings[name] for name in settings if name.startswith("rope_parameters.")}
    kind = given.get("rope_parameters.rope_type", settings.get("rope_type"))
    line: list[Inline] = ["Rotary positions"]
    shown = [f"{name.rpartition('.')[2]} {value}" for name, value in given.items() if not name.endswith("type")]
    if kind:
        line += [" of type ", Code(str(kind))]
    if shown:
        line.append(f" ({', '.join(shown)})")
    yield [*line, ", made once a call for all layers; ", component.pointer, "."]


def _norm(facts: ModelFacts, component: Component) -> Iterator[Line]:
    upcast = next((k for k in component.analysis.kernels if k.operation == "conversion to float32"), None)
    line: list[Inline] = [f"{component.role} in ", Code(component.name)]
    count = sum(k.kernel_type == "basic" and k.category != "call" for k in component.analysis.kernels)
    line.append(f": {count} operators" if count > 1 else ": one operator")
    if upcast is not None:
        line += [
            ", in float32 from ",
            place_near(facts, component.class_name, upcast.line, upcast.file, "float32", "float"),
            " on",
        ]
    yield [*line, "; ", component.pointer, "."]


def _feed_forward(facts: ModelFacts, component: Component) -> Iterator[Line]:
    line: list[Inline] = [f"{component.role[0].upper()}{component.role[1:]} in ", Code(component.name)]
    if settings_of(facts).get("hidden_act"):
        line += [" with ", Code(str(settings_of(facts)["hidden_act"]))]
    if "config.intermediate_size" in facts.named:
        line += [", ", facts.setting("intermediate_size"), " wide"]
    yield [*line, "; ", component.pointer, "."]


def _router(facts: ModelFacts, component: Component) -> Iterator[Line]:
    experts = next((n for n in _EXPERTS if f"config.{n}" in facts.named), None)
    line: list[Inline] = ["Routing in ", Code(component.name)]
    if experts is not None and "config.num_experts_per_tok" in facts.named:
        line += [": ", facts.setting("num_experts_per_tok"), " of ", facts.setting(experts), " experts a token"]
    kernels = component.analysis.kernels
    choosing = [n for n, k in enumerate(kernels) if "top-k" in k.operation]
    if choosing:
        # Where several choose, groups of experts come before experts: what is chosen last is what runs.
        line += [", chosen at ", _place(facts, component, kernels[choosing[-1]])]
    if len(choosing) > 1 and {"config.n_group", "config.topk_group"} <= facts.named.keys():
        line += [" among those of ", facts.setting("topk_group"), " of ", facts.setting("n_group"), " groups"]
    scores = [n for n, k in enumerate(kernels) if k.operation in ("softmax", "sigmoid")]
    if scores and choosing:
        whose = "of all experts, before the choice" if scores[0] < choosing[-1] else "of the chosen, after the choice"
        line.append(f"; {kernels[scores[0]].operation} {whose}")
    yield [*line, *_constants(facts, component), "; ", component.pointer, "."]


_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")


def _experts(facts: ModelFacts, component: Component) -> Iterator[Line]:
    kernel = _kernel(component, "grouped_matmul")
    line: list[Inline] = ["Experts as grouped matmuls over rows sorted by expert"]
    if kernel is not None:
        line += [" at ", _place(facts, component, kernel)]
    share = component.measure.share("bytes", facts.points[0])
    line += [", ", share, " of the bytes of prefill"] if share is not None else []
    yield [*line, *_constants(facts, component), "; ", component.pointer, "."]


def _mixture(facts: ModelFacts, component: Component) -> Iterator[Line]:
    shared = [c for c in components(facts) if c.class_name in component.calls and c.role == classes.FEED_FORWARD]
    if shared:
        yield [
            "Beside the routed experts every token goes through ",
            Code(shared[0].name),
            " as a shared expert; ",
            component.pointer,
            ".",
        ]


_OF = {
    classes.ATTENTION: _attention,
    classes.POSITION: _position,
    classes.NORM: _norm,
    classes.LAYER_NORM: _norm,
    classes.FEED_FORWARD: _feed_forward,
    classes.PLAIN_FEED_FORWARD: _feed_forward,
    classes.ROUTER: _router,
    classes.EXPERTS: _experts,
    classes.MIXTURE: _mixture,
}


def _beyond_active(facts: ModelFacts) -> Iterator[Line]:
    """Products of many more parameters than a token uses: experts that all tokens run through."""
    active = facts.named.get("active_parameters_count")
    if not active:
        return
    point = facts.points[0]
    measure = Measure(facts, ({},))
    sum_, terms = measure.sum_of("m", "matmul_flops", point)
    attention, more = Measure(facts, ({"category": "attention"},)).sum_of("a", "matmul_flops", point)
    each = facts.number(f"(({sum_}) - ({attention})) / {{tokens}}", "FLOP", **terms, **more, tokens=_tokens(point))
    if each.value < BEYOND * 2 * active:
        return
    used = facts.number("2 * {a}", "FLOP", a=Term(name="active_parameters_count"))
    yield [
        "Products of weights are of more experts than the router chose: ",
        each,
        " a token in prefill, where the parameters that a token uses need ",
        used,
        ".",
    ]


BEYOND = 2
"""How many times the products of a token's own parameters have to be done for that to be told."""


def _tokens(point: Point) -> Term:
    return Term(point=point.key, formula="{batch_size} * {seq_len}")


def _kinds(facts: ModelFacts) -> Iterator[Line]:
    """Kinds of layers, where the config lists them."""
    found: dict[str, int] = {}
    for component in components(facts):
        if component.role == classes.LAYER:
            for path in component.paths:
                kind = kind_of_layer(facts, path)
                if kind:
                    found[kind] = found.get(kind, 0) + facts.named.get(f"count.{path}", 1)
    if len(found) > 1:
        told = ", ".join(f"{count} of {kind}" for kind, count in found.items())
        line: list[Inline] = [f"Layers of {len(found)} kinds: {told}"]
        if "config.sliding_window" in facts.named:
            line += ["; the window is ", facts.setting("sliding_window"), " tokens"]
        yield [*line, "."]


def _cache_update(facts: ModelFacts) -> Iterator[Line]:
    """Where new keys and values are put beside those of earlier tokens."""
    for component in components(facts):
        kernels = [
            k
            for k in component.analysis.kernels
            if k.function == "update" and k.file is not None and k.category != "call"
        ]
        if kernels:
            longest = max(
                facts.points, key=lambda point: (point.values.get("cache_len", 0), -point.values["batch_size"])
            )
            measure = Measure(
                facts,
                tuple({"class_name": component.class_name, "line": n} for n in dict.fromkeys(k.line for k in kernels)),
            )
            share = measure.share("bytes", longest)
            line: list[Inline] = [f"The KV cache grows by {kernels[0].operation} at "]
            lines = {k.line for k in kernels}
            for index, kernel in enumerate(k for k in kernels if k.line - 1 not in lines):
                place = place_near(facts, component.class_name, kernel.line, kernel.file, "keys", "cat", "update")
                line += [" and " if index else "", place]
            if share is not None and longest.phase == "decode":
                line += [": every step writes it anew, ", share, f" of the bytes of {longest.title}"]
            yield [*line, "."]
            return


def _tied(facts: ModelFacts) -> Iterator[Line]:
    if settings_of(facts).get("tie_word_embeddings") is True:
        yield "The output projection is the embedding's table (tie_word_embeddings): its parameters count once."
