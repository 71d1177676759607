"""How much of a model's weights the rules of tensor parallelism divide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lmp.observe.inspection import Module
from lmp.records import short
from lmp.report.document.amounts import Term
from lmp.report.document.parts import Inline
from lmp.report.facts import ModelFacts
from lmp.report.implementation.plans import Plans


def split_weights(facts: ModelFacts, plans: Plans) -> list[Inline]:
    """How much of the weights the rules divide; what they do not is on every device."""
    terms = _split_terms(facts, plans)
    if not terms:
        return []
    every = Term(name="parameters_count")
    share = facts.number(f"100 * ({_split_sum(terms)}) / {{all}}", "%", **terms, all=every)
    others = facts.number(f"{{all}} - ({_split_sum(terms)})", "params", **terms, all=every)
    if not others.value:
        return [". Rules name modules with all of the parameters"]
    return [". Rules name modules with ", share, " of the parameters; every device has all of the other ", others]


def weights_each(facts: ModelFacts, plans: Plans, degree: int) -> list[Inline]:
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
        parent, _, name = rule.pattern.rpartition(".")
        here = modules_of(facts, rule.pattern)
        if not here and facts.inspection is not None and has_parameter(facts, parent, name):
            here = modules_of(facts, parent)  # the rule is for a parameter of this module
        paths |= dict.fromkeys(path for path, _ in here)
    inner = [p for p in paths if not any(p.startswith(f"{other}.") for other in paths)]
    terms: dict[str, Term] = {}
    for number, path in enumerate(inner):
        terms[f"p{number}"] = Term(name=f"parameters.{path}")
        terms[f"n{number}"] = Term(name=f"count.{path}")
    known = all(term.name in facts.named for term in terms.values())
    return terms if known else {}


# --- modules that a pattern names ------------------------------------------------------------------------------------


def modules_of(facts: ModelFacts, pattern: str) -> list[tuple[str, int]]:
    """Modules that a rule's pattern names, alike ones once with their number. Parameters are none."""
    if facts.inspection is None:
        return []
    base = next((m.path for m, _ in modules_in(facts.inspection.tree, 1) if _is_base(m)), "")
    names = [pattern, f"{base}.{pattern}"] if base else [pattern]
    found = []
    for module, times in modules_in(facts.inspection.tree, 1):
        wild = re.sub(r"\.\d+(?=\.|$)", ".*", module.path)
        if wild in names and module.path:
            found.append((module.path, times))
    return found


def _is_base(module: Module) -> bool:
    return bool(module.path) and short(module.class_name).endswith("Model")


def modules_in(module: Module, times: int) -> Iterator[tuple[Module, int]]:
    yield module, times * module.repeat
    for inner in module.modules:
        yield from modules_in(inner, times * module.repeat)


def has_parameter(facts: ModelFacts, pattern: str, name: str) -> bool:
    assert facts.inspection is not None
    paths = {path for path, _ in modules_of(facts, pattern)}
    return any(
        m.path in paths and any(w.name == name for w in m.weights) for m, _ in modules_in(facts.inspection.tree, 1)
    )
