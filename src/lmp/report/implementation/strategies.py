"""The ways to spread a model over devices that its plans have, and the styles that they name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lmp.records import short
from lmp.report.document.parts import Block, Bold, Bullets, Code, Inline, Line, Pointer, Table
from lmp.report.facts import ModelFacts
from lmp.report.implementation.named_modules import has_parameter, modules_of
from lmp.report.implementation.operators import joined, pointer_at
from lmp.report.implementation.plans import Plans, Rule
from lmp.report.implementation.reads import marked
from lmp.report.implementation.split_weights import split_weights
from lmp.report.implementation.styles import FOLDER, Style


def strategy_blocks(facts: ModelFacts, plans: Plans) -> list[Block]:
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
    line += split_weights(facts, plans)
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
    if facts.inspection is None or modules_of(facts, pattern):
        return [Code(pattern)]
    if not has_parameter(facts, parent, name):
        return [Code(pattern), " (names nothing in this model)"]
    return [Code(pattern), " (a parameter: it is split, and sends nothing)" if sends else " (a parameter)"]


def _sends(style: Style) -> Line:
    if style.implementations:
        ways = [
            f"{i.name}: {', '.join(dict.fromkeys(c.primitive for c in i.collectives)) or 'what it chooses'}"
            for i in style.implementations
        ]
        return f"by ep_implementation ({'; '.join(ways)})"
    return ", ".join(dict.fromkeys(c.primitive for c in style.collectives)) or "nothing"
