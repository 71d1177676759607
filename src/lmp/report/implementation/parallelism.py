"""Section 7: how the model may be spread over devices, and what its devices send to one another then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lmp.formula import to_text
from lmp.pipeline.inspection import Module
from lmp.report.document.amounts import Number, Term
from lmp.report.document.parts import Block, Bold, Bullets, Code, Inline, Line, Paragraph, Pointer, Section, Table
from lmp.report.document.told import Told
from lmp.report.facts import ModelFacts, Point, short
from lmp.report.implementation.operators import further, joined, plain, pointer_at
from lmp.report.implementation.plans import FOLDER, Collective, Plans, Rule, Style, Wait
from lmp.report.implementation.reads import marked

COLUMNS = ("Operation", "Primitive", "When", "Data Size")


def section(facts: ModelFacts, told: Told | None = None) -> Section:
    """From the plans of the model's and the config's classes, and the styles that transformers registers."""
    plans = Plans(facts)
    sent = list(_sent(facts, plans))
    return Section(
        "7. Parallelism & Distribution",
        sections=[
            _titled("7.1 Parallelism Strategy", _strategy(facts, plans), told),
            _titled("7.2 Communication Patterns", _patterns(facts, plans, sent), told),
            _titled("7.3 Compute-Communication Overlap", _overlap(facts, plans, sent), told),
        ],
    )


def _titled(title: str, blocks: list[Block], told: Told | None) -> Section:
    return Section(title, [*blocks, *further(told, title)])


def degree_of(facts: ModelFacts, plans: Plans) -> int:
    """Devices that figures are stated for: at most eight, as many as the heads of keys and values can be split over."""
    heads = facts.named.get("config.num_key_value_heads")
    split = any(rule.pattern.endswith("k_proj") and rule.style == "colwise" for rule in plans.rules["tensor"])
    return next(n for n in (8, 4, 2, 1) if not (split and heads) or heads % n == 0)


# --- 7.1 -------------------------------------------------------------------------------------------------------------


def _strategy(facts: ModelFacts, plans: Plans) -> list[Block]:
    items: list[Line] = [
        [Bold("Data Parallelism:"), " ", *_data(facts, plans)],
        [Bold("Tensor Parallelism:"), " ", *_tensor(facts, plans)],
        [Bold("Pipeline Parallelism:"), " ", *_pipeline(facts, plans)],
        [Bold("Sequence Parallelism:"), " ", *_sequence(facts, plans)],
    ]
    if plans.rules["expert"]:
        items.append([Bold("Expert Parallelism:"), " ", *_expert(facts, plans)])
    rules = [rule for kind in ("tensor", "expert") for rule in plans.rules[kind]]
    if plans.implied is not None:
        rules.append(plans.implied)
    return [Bullets(items), *_styles(facts, plans, rules)]


def _searched(facts: ModelFacts, *names: str) -> str:
    config = short(facts.config_class) if facts.config_class else "no config class"
    return f"none found (searched: {', '.join(names)} of {short(facts.model.class_name)}, {config} and their bases)"


def _rule_pointers(facts: ModelFacts, rules: Sequence[Rule]) -> list[Inline]:
    """Where the plan of each class begins."""
    first: dict[str, Rule] = {}
    for rule in rules:
        first.setdefault(rule.holder, rule)
    return joined([_rule_pointer(facts, rule) for rule in first.values()])


def _rule_pointer(facts: ModelFacts, rule: Rule) -> Pointer:
    return pointer_at(facts, rule.file, rule.line, re.findall(r"\w+", rule.pattern)[-1] if rule.pattern else "")


def _data(facts: ModelFacts, plans: Plans) -> list[Inline]:
    rules = plans.rules["data"]
    if not rules:
        return ["No: ", _searched(facts, "_fsdp_plan", "base_model_fsdp_plan")]
    named = joined([Code(f"{rule.pattern}: {rule.style}") for rule in rules])
    return [
        "Yes, as fully sharded data parallelism: the plan names ",
        *named,
        " (",
        *_rule_pointers(facts, rules),
        "); each device keeps a shard of the weights and gathers a module's before it runs",
        *_place(facts, "fsdp.py", "apply_fully_sharded_data_parallelism", " by "),
        ". Nothing in the forward pass itself splits a batch",
    ]


def _tensor(facts: ModelFacts, plans: Plans) -> list[Inline]:
    rules = plans.rules["tensor"]
    if not rules:
        return ["No: ", _searched(facts, "_tp_plan", "base_model_tp_plan")]
    line: list[Inline] = [
        f"Yes: {_counted(len(rules), 'rule')}, at ",
        *_rule_pointers(facts, rules),
        *_place(facts, "tensor_parallel.py", "apply_tensor_parallelism", ", applied by "),
    ]
    if plans.implied is not None:
        line += ["; ", Code(plans.implied.pattern), " is added at ", _rule_pointer(facts, plans.implied)]
    heads = next((rule for rule in rules if rule.pattern.endswith("k_proj") and rule.style == "colwise"), None)
    if heads is not None and "config.num_key_value_heads" in facts.named:
        line += [
            ". Keys and values are split by heads, as attention views what it gets in heads of the same size",
            *_viewed(facts),
            ": the degree must divide ",
            Code("num_key_value_heads"),
            " = ",
            facts.setting("num_key_value_heads"),
        ]
    line += _split_weights(facts, plans)
    if not any(re.search(r"attn|attention", rule.pattern) for rule in rules):
        line.append(". No rule names attention: every device computes it whole, with all of its weights and cache")
    return line


def _viewed(facts: ModelFacts) -> list[Inline]:
    """Where the output of the projection to keys is made."""
    for flow in facts.flows.phases.values():
        for op in flow.ops:
            if op.frames[0].path.endswith(".k_proj") and len(op.frames) > 1:
                line = op.frames[1].lines[0]
                return [" (", pointer_at(facts, line.file, line.line, "k_proj"), ")"]
    return []


def _split_weights(facts: ModelFacts, plans: Plans) -> list[Inline]:
    """How much of the weights the rules divide; what they do not is on every device."""
    terms = _split_terms(facts, plans)
    if not terms:
        return []
    share = facts.number(f"100 * ({_split_sum(terms)}) / {{all}}", "%", **terms, all=Term(name="parameters_count"))
    return [". Rules name modules with ", share, " of the parameters; every device has all of the others"]


def _weights_each(facts: ModelFacts, plans: Plans, degree: int) -> list[Inline]:
    """What each device holds of the weights, and whether it can."""
    terms = _split_terms(facts, plans)
    if not terms:
        return []
    each = facts.number(
        f"{{w}} * (1 - ({_split_sum(terms)}) * ({{tp}} - 1) / ({{all}} * {{tp}}))", "B", **terms,
        w=Term(name="weight_bytes"), all=Term(name="parameters_count"),
        tp=Term(constant=degree, source="devices, chosen for the report"),
    )  # fmt: skip
    room = facts.number("{m}", "B", m=Term(constant=facts.device.memory, source=facts.device.source))
    line: list[Inline] = [", where each holds ", each, " of the weights"]
    if each.value > room.value:
        line += [f", more than one {facts.device.name} has room for (", room, "): it takes more devices"]
    return line


def _split_sum(terms: Mapping[str, Term]) -> str:
    return " + ".join(f"{{p{n}}} * {{n{n}}}" for n in range(len(terms) // 2))


def _split_terms(facts: ModelFacts, plans: Plans) -> dict[str, Term]:
    """Parameters of the modules that rules of tensor parallelism name, and how many there are of each."""
    named = [rule for rule in plans.rules["tensor"] if "replicat" not in rule.style]
    named += [plans.implied] if plans.implied is not None else []
    paths: dict[str, None] = {}
    for rule in named:
        for path, _ in _modules(facts, rule.pattern) or _modules(facts, rule.pattern.rpartition(".")[0]):
            paths.setdefault(path)
    inner = [p for p in paths if not any(p.startswith(f"{other}.") for other in paths)]
    terms: dict[str, Term] = {}
    for number, path in enumerate(inner):
        terms[f"p{number}"] = Term(name=f"parameters.{path}")
        terms[f"n{number}"] = Term(name=f"count.{path}")
    known = all(term.name in facts.named for term in terms.values())
    return terms if known else {}


def _pipeline(facts: ModelFacts, plans: Plans) -> list[Inline]:
    rules = plans.rules["pipeline"]
    if not rules:
        return ["No: ", _searched(facts, "_pp_plan", "base_model_pp_plan")]
    flow = joined([Code(f"{rule.pattern}: {rule.style}") for rule in rules])
    return [
        "Yes: ",
        *_rule_pointers(facts, rules),
        " name what goes into each part and comes out (",
        *flow,
        "). Layers are split in order, as many to each stage, and what is left over to the last",
        *_place(facts, "pipeline_parallel.py", "layer_range_for_rank", " (", ")"),
        ", and one batch passes the stages one after another",
        *_place(facts, "pipeline_parallel.py", "pipeline_parallel_naive_forward", " (", ")"),
    ]


def _sequence(facts: ModelFacts, plans: Plans) -> list[Inline]:
    rules = [rule for rule in plans.rules["tensor"] if rule.style == "sequence_parallel"]
    if rules:
        return ["Yes: ", *joined([Code(rule.pattern) for rule in rules]), " at ", *_rule_pointers(facts, rules)]
    return [
        "No: the style ",
        Code("sequence_parallel"),
        *_place(facts, "tensor_parallel.py", "SequenceParallel", " (", ")"),
        " is in none of the model's rules; ",
        _searched(facts, "_tp_plan", "base_model_tp_plan"),
    ]


def _expert(facts: ModelFacts, plans: Plans) -> list[Inline]:
    rules = plans.rules["expert"]
    line: list[Inline] = [
        f"Yes: {_counted(len(rules), 'rule')}, at ",
        *_rule_pointers(facts, rules),
        *_place(facts, "expert_parallel.py", "apply_expert_parallelism", ", applied by "),
    ]
    ways = [way for rule in rules if rule.style in plans.styles for way in plans.styles[rule.style].implementations]
    if ways:
        line.append("; how tokens reach their experts is chosen by name: ")
        for index, way in enumerate(ways):
            line += [", " if index else "", Code(way.name), " ", facts.place(way.file, way.line, way.class_name)]
        for way in ways:
            line += [". Of ", Code(way.name), " its class says: ", *marked(way.said.rstrip("."))] if way.said else []
    return line


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _place(facts: ModelFacts, file: str, name: str, before: str, after: str = "") -> list[Inline]:
    """Where a function or class of transformers' parallelism begins; nothing where it is not there."""
    relative = f"{FOLDER}/{file}"
    path = facts.trees.path_of(relative)
    if path is None or not path.is_file():
        return []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf"\s*(?:def|class) {name}\b", text):
            return (
                [before, facts.place(relative, number, name), after]
                if after
                else [before, facts.place(relative, number, name)]
            )
    return []


def _styles(facts: ModelFacts, plans: Plans, rules: Sequence[Rule]) -> list[Block]:
    """What each style of the plans does, with the modules that have it."""
    if not rules:
        return []
    rows: list[list[Line]] = []
    for name in dict.fromkeys(rule.style for rule in rules):
        style = plans.styles.get(name)
        sends = style is not None and bool(style.collectives or style.implementations)
        patterns: list[Inline] = []
        for rule in rules:
            if rule.style == name:
                patterns += [", " if patterns else "", *_named(facts, rule.pattern, sends)]
        if style is None:
            rows.append([Code(name), patterns, f"none found (searched: styles registered in {FOLDER})", "unknown"])
            continue
        where: list[Inline] = [
            facts.place(style.file, style.line, style.class_name),
            ", registered at ",
            facts.place(style.registered[0], style.registered[1], name),
        ]
        rows.append([Code(name), patterns, where, _sends(style)])
    return [Table(("Style", "Modules and parameters", "Class", "Sends in forward"), rows)]


def _named(facts: ModelFacts, pattern: str, sends: bool) -> list[Inline]:
    """A rule's pattern, with a word on one that names nothing in this model, or a parameter, which sends nothing."""
    parent, _, name = pattern.rpartition(".")
    if facts.inspection is None or _modules(facts, pattern):
        return [Code(pattern)]
    if not _has_parameter(facts, parent, name):
        return [Code(pattern), " (names nothing in this model)"]
    return [Code(pattern), " (a parameter: it is split, and sends nothing)" if sends else " (a parameter)"]


def _has_parameter(facts: ModelFacts, pattern: str, name: str) -> bool:
    assert facts.inspection is not None
    paths = {path for path, _ in _modules(facts, pattern)}
    return any(m.path in paths and any(w.name == name for w in m.weights) for m, _ in _tree(facts.inspection.tree, 1))


def _sends(style: Style) -> Line:
    if style.implementations:
        ways = [
            f"{i.name}: {', '.join(dict.fromkeys(c.primitive for c in i.collectives)) or 'what it chooses'}"
            for i in style.implementations
        ]
        return f"by ep_implementation ({'; '.join(ways)})"
    return ", ".join(dict.fromkeys(c.primitive for c in style.collectives)) or "nothing"


# --- 7.2 -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A collective of one rule's modules in a forward pass."""

    kind: str
    rule: Rule
    style: Style
    collective: Collective
    path: str
    """Of the first module."""
    count: int
    """Modules that have it."""
    formula: str | None
    """Bytes of the tensor, in the model's variables."""
    way: str = ""


def _sent(facts: ModelFacts, plans: Plans) -> Iterator[Sent]:
    for kind in ("tensor", "expert"):
        rules = list(plans.rules[kind])
        if kind == "tensor" and plans.implied is not None:
            rules.insert(0, plans.implied)
        for rule in rules:
            style = plans.styles.get(rule.style)
            modules = _modules(facts, rule.pattern)
            if style is None or not modules:
                continue
            path, count = modules[0][0], sum(n for _, n in modules)
            formula = _bytes(facts, path)
            for collective in style.collectives:
                yield Sent(kind, rule, style, collective, path, count, formula)
            for way in style.implementations:
                for collective in way.collectives:
                    size = _exchanged(facts, path, collective) if collective.primitive == "all_to_all" else formula
                    yield Sent(kind, rule, style, collective, path, count, size, way.name)


def _modules(facts: ModelFacts, pattern: str) -> list[tuple[str, int]]:
    """Modules that a rule's pattern names, alike ones once with their number. Parameters are none."""
    if facts.inspection is None:
        return []
    base = next((m.path for m, _ in _tree(facts.inspection.tree, 1) if _is_base(m)), "")
    names = [pattern, f"{base}.{pattern}"] if base else [pattern]
    found = []
    for module, times in _tree(facts.inspection.tree, 1):
        wild = re.sub(r"\.\d+(?=\.|$)", ".*", module.path)
        if wild in names and module.path:
            found.append((module.path, times))
    return found


def _is_base(module: Module) -> bool:
    return bool(module.path) and short(module.class_name).endswith("Model")


def _tree(module: Module, times: int) -> Iterator[tuple[Module, int]]:
    yield module, times * module.repeat
    for inner in module.modules:
        yield from _tree(inner, times * module.repeat)


def _bytes(facts: ModelFacts, path: str) -> str | None:
    """Bytes of what a module returns, in prefill's formula; the whole tensor, before it is split."""
    shape = _output(facts, path)
    if shape is None:
        return None
    return " * ".join([*(f"({s})" if re.search(r"[-+/]", s) else s for s in shape if s != "1"), "{a_bytes}"])


def _output(facts: ModelFacts, path: str) -> Sequence[str] | None:
    """Shape of what a module returns, in prefill's formulas."""
    flow = facts.flows.phases.get("prefill")
    wild = re.sub(r"\.\d+(?=\.|$)", ".*", path)
    for other, shape in flow.outputs.items() if flow is not None else ():
        if re.sub(r"\.\d+(?=\.|$)", ".*", other) == wild:
            return shape
    return None


def _exchanged(facts: ModelFacts, path: str, collective: Collective) -> str | None:
    """Bytes of an exchange of rows between experts: counts of each expert, or rows as wide as the module's output."""
    choice = next((c for routing in facts.bounds.routings.values() for c in routing.choices), None)
    if choice is None:
        return None
    if collective.counts is not None:
        # The experts of every device, on every device.
        whole = "num_local_experts" in collective.counts and "ep_size" in collective.counts
        return f"8 * {to_text(choice.experts)}" if whole else None
    row = _output(facts, path)
    return f"{to_text(choice.rows)} * {row[-1]} * {{a_bytes}}" if row else None


def _patterns(facts: ModelFacts, plans: Plans, sent: Sequence[Sent]) -> list[Block]:
    degree, kept = degree_of(facts, plans), bool(facts.flows.kept)
    rows = [_sent_row(facts, one) for one in sent]
    rows += list(_stage_rows(facts, plans))
    searched = f"collectives in the forward hooks of the styles that the plans name, {FOLDER}"
    blocks: list[Block] = [
        Paragraph(
            f"Sizes are of the whole tensor, in one forward pass; tp devices ({degree} where a figure is given). In a "
            "ring each device sends 2 (tp - 1) / tp of it for an all_reduce, and (tp - 1) / tp for an all_gather or a "
            "reduce_scatter."
            + (" Logits are those of all positions; of the last one alone they are as in decode." if kept else "")
        ),
        Table(COLUMNS, rows, searched=searched),
    ]
    alternatives = _alternatives(sent)
    blocks += [Paragraph(alternatives)] if alternatives else []
    tensor = [one for one in sent if one.kind == "tensor" and one.formula is not None]
    if tensor:
        blocks += [
            Paragraph(
                [
                    f"Sent by each device in a forward pass, with tensor parallelism over {degree}",
                    *_weights_each(facts, plans, degree),
                    ":",
                ]
            ),
            _totals(facts, tensor, degree),
        ]
    return blocks


def _alternatives(sent: Sequence[Sent]) -> list[Inline]:
    """Which rows of the table never happen in the same call."""
    line: list[Inline] = []
    for name, style in {one.rule.style: one.style for one in sent if one.way}.items():
        ways = [Code(way.name) for way in style.implementations if way.collectives]
        mine = next(one.rule.pattern for one in sent if one.rule.style == name)
        others = sorted({one.rule.style for one in sent if one.rule.pattern == mine and one.rule.style != name})
        line += [" " if line else "", "The rows of ", Code(name), f" are {len(ways)} alternatives"]
        line += [": a call has those of one (", *joined(ways), ")."]
        if others:
            line += [" They take the place of ", *joined([Code(other) for other in others])]
            line += [" for ", Code(mine), ": a plan has one of them."]
    return line


def _sent_row(facts: ModelFacts, one: Sent) -> list[Line]:
    operation: list[Inline] = [
        "output of ",
        Code(one.rule.pattern),
        f" ({one.rule.style}",
        f", {one.way})" if one.way else ")",
    ]
    times = facts.number("{n}", "", n=Term(constant=one.count, source="modules that the rule names"))
    moment = "after" if one.collective.primitive != "all_to_all" else "around"
    when: list[Inline] = [
        f"{moment} the module's forward(): ",
        facts.place(one.collective.file, one.collective.line, one.collective.symbol),
        "; modules in a forward pass: ",
        times,
    ]
    return [operation, one.collective.primitive, when, _size(facts, one)]


def _size(facts: ModelFacts, one: Sent) -> Line:
    if one.formula is None and one.collective.counts is not None:
        return [Code(one.collective.counts), " numbers of int64: how many rows go where"]
    if one.formula is None:
        return "none found (searched: the module's output, and products over experts, in an executed call)"
    cell: list[Inline] = [plain(one.formula), " each"]
    if one.collective.primitive == "all_to_all" and one.collective.counts is not None:
        cell.append(": how many rows each expert gets, whatever they are")
    elif one.collective.primitive == "all_to_all":
        cell.append(
            ": a row for every token and expert that it chooses, of all devices together, rows that stay included; "
            "only how they divide over pairs of devices depends on the routing"
        )
    for point in _chosen(facts):
        cell += [f"; {point.title}: ", facts.of_formula(one.formula, point, "B"), ", together "]
        cell.append(facts.number("{n} * {a}", "B", **_terms(one, point)))
    return cell


def _terms(one: Sent, point: Point) -> dict[str, Term]:
    assert one.formula is not None
    return {
        "n": Term(constant=one.count, source="modules that the rule names"),
        "a": Term(point=point.key, formula=one.formula),
    }


def _chosen(facts: ModelFacts) -> list[Point]:
    """One point of each phase: batch 1, the shorter cache."""
    found: dict[str, Point] = {}
    for point in facts.points:
        found.setdefault(point.phase, point)
    return list(found.values())


SHARE = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Primitive -> how often (tp - 1) / tp of the tensor leaves each device of a ring."""


def _totals(facts: ModelFacts, sent: Sequence[Sent], degree: int) -> Table:
    rows: list[list[Line]] = []
    for point in facts.points:
        size = _ring(facts, sent, point, degree, "B")
        time = _ring(facts, sent, point, degree, "s")
        rows.append([point.title, size, time])
    columns = ("Point", "Bytes sent by a device", f"At {facts.device.name}'s link bandwidth, at least")
    return Table(columns, rows, right=frozenset({1, 2}))


def _ring(facts: ModelFacts, sent: Sequence[Sent], point: Point, degree: int, unit: str) -> Number:
    terms: dict[str, Term] = {"tp": Term(constant=degree, source="devices, chosen for the report")}
    parts = []
    for number, one in enumerate(sent):
        share = SHARE.get(one.collective.primitive)
        if share is None or one.formula is None:
            continue
        terms[f"n{number}"] = Term(constant=share * one.count, source="modules that the rule names")
        terms[f"a{number}"] = Term(point=point.key, formula=one.formula)
        parts.append(f"{{n{number}}} * {{a{number}}}")
    whole = f"({' + '.join(parts)}) * ({{tp}} - 1) / {{tp}}"
    if unit == "s":
        terms["l"] = Term(constant=facts.device.link_bandwidth, source=facts.device.source)
        whole = f"({whole}) / {{l}}"
    return facts.number(whole, unit, **terms)


def _stage_rows(facts: ModelFacts, plans: Plans) -> Iterator[list[Line]]:
    flow = facts.flows.phases.get("prefill")
    if not plans.stages or flow is None or facts.inspection is None:
        return
    hidden = "{batch_size} * {seq_len} * {hidden_size} * {a_bytes}"
    logits = "{batch_size} * {seq_len} * {vocab_size} * {a_bytes}"
    known = facts.model.values
    for one in plans.stages:
        formula = logits if one.primitive == "broadcast" else hidden
        if not {"hidden_size", "vocab_size"} <= set(known):
            continue
        what = (
            "logits, from the last stage to all" if one.primitive == "broadcast" else "hidden states, to the next stage"
        )
        cell: list[Inline] = [plain(formula)]
        for point in _chosen(facts):
            cell += [f"; {point.title}: ", facts.of_formula(formula, point, "B")]
        when: list[Inline] = ["between stages of a pipeline: ", facts.place(one.file, one.line, one.symbol)]
        yield [what, one.primitive, when, cell]


# --- 7.3 -------------------------------------------------------------------------------------------------------------


def _overlap(facts: ModelFacts, plans: Plans, sent: Sequence[Sent]) -> list[Block]:
    calls = list(dict.fromkeys(one.collective for one in sent))
    late = [c for c in calls if c.asynchronous]
    functional = [c for c in calls if c.symbol.endswith("_autograd")]
    direct = [c for c in calls if not c.asynchronous and c.symbol != "redistribute" and c not in functional]
    moved = [c for c in calls if c.symbol == "redistribute"]
    items: list[Line] = []
    if late:
        items.append(["asynchronous, so that other work may run meanwhile: ", *_pointers(facts, late)])
    else:
        items.append(f"async_op=True: none found (searched: {len(calls)} collectives of the model's styles, {FOLDER})")
    if direct:
        items.append(
            [
                "called without async_op, in the hook after the module's forward(): what follows on the stream waits "
                "for them: ",
                *_pointers(facts, direct),
            ]
        )
    if moved:
        items.append(
            [
                "by a redistribution of a DTensor whose result is turned into a local tensor in the same hook, which "
                "waits for it: ",
                *_pointers(facts, moved),
            ]
        )
    if functional:
        items.append(
            [
                "functional collectives, which start at once; the first use of their result waits: ",
                *_pointers(facts, functional),
            ]
        )
    waits = host_waits(plans)
    if waits:
        line: list[Inline] = ["the host waits for the device, which no CUDA graph can hold: "]
        for number, (way, wait) in enumerate(waits):
            where = facts.place(wait.file, wait.line, wait.symbol)
            line += ["; " if number else "", Code(f".{wait.symbol}()"), " of ", Code(way), " at ", where]
        items.append(line)
    if plans.stages:
        items.append(["pipeline stages wait for each message before they go on: ", *_pointers(facts, plans.stages)])
    if not calls and not plans.stages:
        items = []
    return [Bullets(items, searched=f"collectives in the forward hooks of the model's styles, {FOLDER}")]


def host_waits(plans: Plans) -> list[tuple[str, Wait]]:
    """Where ways to spread experts make the host wait for the device."""
    ways = [way for rule in plans.rules["expert"] if rule.style in plans.styles
            for way in plans.styles[rule.style].implementations]  # fmt: skip
    return list(dict.fromkeys((way.name, wait) for way in ways for wait in way.waits))


def _pointers(facts: ModelFacts, calls: Sequence[Collective]) -> list[Inline]:
    return joined([facts.place(c.file, c.line, c.symbol) for c in calls])
