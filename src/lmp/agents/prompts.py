"""The prompts: the templates of ``prompts/``, filled with the rules and with the facts of one task.

Templates are plain text with named variables, ``<<name>>``, filled strictly. No formula (``{x}``, ``${{Class}}``) has
that delimiter. Values are not scanned again: a ``<<name>>`` in quoted source stays as it is.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from lmp.agents.facts import (
    CalledClass,
    Executed,
    Facts,
    called_classes,
    callees_text,
    constructor_text,
    execution_text,
    read_facts,
    source_text,
    statements_text,
)
from lmp.agents.gate.bindings import OpenReference, open_references, open_references_text, reachable
from lmp.analyze.modules import analysis_of, execution_of
from lmp.errors import LmpError, UsageError
from lmp.flops import FREE, GELU_TANH, TABLE, ScalarOps, pow_operations
from lmp.records import CATEGORIES, MATMUL_CATEGORIES, Lookup, ModuleAnalysis
from lmp.source.locate import locate
from lmp.source.quoting import escaped
from lmp.source.trees import Trees
from lmp.trace.rules import definitions

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution
    from lmp.analyze.session import Session
    from lmp.source.locate import ClassSource

ANALYZE, EXPAND = "analyze_module_forward", "expand_module_references"
_MOST_VALUES, _LONGEST = 120, 200
_VARIABLE = re.compile(r"<<([a-z][a-z0-9_]*)>>")
_HALF = re.compile(r"<<|>>")


@dataclass(frozen=True)
class Prompt:
    """What an agent is sent first: the system prompt and the first message."""

    system: str
    message: str

    @property
    def tokens(self) -> int:
        return tokens(self.system) + tokens(self.message)

    @property
    def sha256(self) -> str:
        return prompt_sha256(self.system, self.message)


_TOKEN = re.compile(r"[A-Za-z]{1,7}|\d{1,3}|\n\s*|[^\w\s]{1,3}|_|\w")


def tokens(text: str) -> int:
    """About how many tokens a text has: words of up to 7 letters, numbers of up to 3 digits, marks and new lines.

    On lmp's prompts this is within 2 % of a published tokenizer's count; each model has its own.
    """
    return len(_TOKEN.findall(text))


def prompt_sha256(system: str, message: str) -> str:
    """The hash of system prompt and first message, for provenance."""
    return hashlib.sha256(f"{system}\0{message}".encode()).hexdigest()


# --- of a class, of a model ------------------------------------------------------------------------------------------


def prompt_of_class(session: Session, class_path: str, lookup: Lookup | None = None) -> Prompt:
    """The module analyzer's prompt. Called classes without an analysis are analysed first."""
    session.ask([class_path])
    source = session.locate(class_path)
    return analyzer_prompt(facts_of(session, source, lookup or _made_if_missing(session)), session.trees)


def prompt_of_model(session: Session, class_path: str, lookup: Lookup | None = None) -> Prompt:
    """The reference expander's prompt. Classes without an analysis are analysed first.

    Raises UsageError if no reference is open.
    """
    session.ask([class_path])
    lookup = lookup or _made_if_missing(session)
    name = session.locate(class_path).class_path
    prompt, count = _prompt_of_open(session, lookup(name), lookup)
    if not count:
        raise UsageError(f"nothing is open in {name} or below it, so there is nothing to ask\nrun `lmp expand {name}`")
    return prompt


def _made_if_missing(session: Session) -> Lookup:
    """Look-up that analyses a class without a stored analysis."""
    return functools.partial(analysis_of, session=session)


def prompt_of_open(session: Session, root: ModuleAnalysis, lookup: Lookup) -> Prompt:
    """The reference expander's prompt for an analysis. Raises Missing if one below it is missing."""
    return _prompt_of_open(session, root, lookup)[0]


def _prompt_of_open(session: Session, root: ModuleAnalysis, lookup: Lookup) -> tuple[Prompt, int]:
    """With the number of open references."""
    parts = list(reachable(root, lookup))
    opened = [reference for part in parts for reference in open_references(part, lookup)]
    callees = [CalledClass.of(part) for part in parts if part.class_name != root.class_name]
    config = config_of(session, root.class_name) if opened else {}
    return expander_prompt(root.class_name, opened, config, callees, session.trees), len(opened)


# --- the facts of a class --------------------------------------------------------------------------------------------


def facts_of(session: Session, source: ClassSource, lookup: Lookup, execution: Execution | None = None) -> Facts:
    """The facts of a class, executed where that is possible.

    ``lookup`` returns the analyses of called classes; an LmpError from it becomes `CalledClass.missing`. ``execution``
    runs the class; None makes a new one.
    """
    executed, why_not, config = _execute(session, source, execution)
    options = session.options
    names = called_classes(source, session.trees, executed)
    # The shortest first: a long class that takes all the time of a prompt does not take it from a Linear.
    made = {name: _callee(name, lookup) for name in sorted(names, key=lambda name: _length(name, session.trees))}
    return read_facts(
        source,
        session.trees,
        executed,
        config=config or dict(session.config or {}),
        origin=session.origin.origin,
        setting=f"in {options.dtype}, attention {config.get('_attn_implementation') or options.attention or 'sdpa'}",
        why_not=why_not,
        callees=tuple(made[name] for name in names),
    )


def config_of(session: Session, class_path: str) -> dict[str, Any]:
    """The plain values of the config at which a class is analysed; those of the given config if it cannot be built."""
    try:
        execution = execution_of(class_path, session)
        from lmp.agents.execution import plain_config

        return plain_config(execution) or dict(session.config or {})
    except (LmpError, ImportError):
        return dict(session.config or {})


def _execute(
    session: Session, source: ClassSource, execution: Execution | None
) -> tuple[Executed | None, str, dict[str, Any]]:
    """What execution shows, or why the class does not run; and the plain values of its config."""
    config: dict[str, Any] = {}
    try:
        execution = execution or execution_of(source.class_path, session)
        from lmp.agents.execution import execute, plain_config

        config = plain_config(execution)
        return execute(execution), "", config
    except LmpError as error:
        return None, str(error).splitlines()[0], config
    except ImportError as error:
        return None, f"it cannot be imported: {error}", config


def _length(class_path: str, trees: Trees) -> int:
    try:
        first, last = locate(class_path, trees).class_lines
    except LmpError:
        return 0  # the look-up says why there is no such class
    return last - first


def _callee(class_path: str, lookup: Lookup) -> CalledClass:
    try:
        return CalledClass.of(lookup(class_path))
    except LmpError as error:
        why = str(error).splitlines()[0]
        return CalledClass(class_path, {}, missing=f"no analysis of it: {why}")


# --- filled templates ------------------------------------------------------------------------------------------------


def analyzer_prompt(facts: Facts, trees: Trees) -> Prompt:
    """The module analyzer's prompt, from the facts of a class."""
    source, sets = facts.source, facts.sets
    system = fill(
        f"{ANALYZE}.system",
        {
            "free_operators": free_operators(),
            "powers": powers(),
            "gelu": gelu(),
            "categories": categories(),
            "matmul_categories": matmul_categories(),
        },
    )
    message = fill(
        ANALYZE,
        {
            "flop_table": flop_table(facts.executed.operators if facts.executed is not None else None),
            "class_name": source.class_path,
            "qualname": source.forward_qualname,
            "file": source.forward_file,
            "first": str(source.lines[0]),
            "last": str(source.lines[1]),
            "distribution": source.forward_tree.distribution,
            "version": source.forward_tree.version,
            "source": source_text(facts),
            "constructor": constructor_text(facts),
            # In this order: the sets of points that the first ones name are listed by the last one.
            "statements": statements_text(facts, sets),
            "callees": callees_text(facts.callees, facts, sets),
            "execution": execution_text(facts, sets),
            "roots": _roots(trees),
        },
    )
    return Prompt(system, message)


def expander_prompt(
    class_name: str,
    opened: Sequence[OpenReference],
    config: Mapping[str, Any],
    callees: Sequence[CalledClass],
    trees: Trees,
) -> Prompt:
    """The reference expander's prompt, from the open references below a class."""
    message = fill(
        EXPAND,
        {
            "class_name": class_name,
            "count": str(len(opened)),
            "places": open_references_text(opened),
            "config": _values(config),
            "callees": callees_text(callees),
            "roots": _roots(trees),
        },
    )
    return Prompt(fill(f"{EXPAND}.system", {}), message)


def _roots(trees: Trees) -> str:
    """The folders of the sources, each once."""
    of: dict[str, list[str]] = {}
    for tree in trees:
        of.setdefault(str(tree.root), []).append(tree.import_name)
    shown = [f"{root} ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" for root, names in of.items()]
    return escaped(", ".join(shown)) or "no folder: nothing is vendored"


def _values(config: Mapping[str, Any]) -> str:
    lines = [f"- config.{name} = {_cut(escaped(repr(value)))}" for name, value in config.items()]
    more = [f"- and {len(lines) - _MOST_VALUES} more"] if len(lines) > _MOST_VALUES else []
    return "\n".join([*lines[:_MOST_VALUES], *more]) or "Nothing is known of it."


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# --- templates -------------------------------------------------------------------------------------------------------


class PromptError(UsageError):
    """A template is missing, or its variables are not those of the values."""


def load(name: str) -> str:
    """The text of ``prompts/<name>.md``. Raises PromptError."""
    try:
        return resources.files("lmp").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    except OSError as error:
        raise PromptError(f"there is no prompt {name}.md\ninstall lmp again: its prompts come with it") from error


def variables(template: str) -> frozenset[str]:
    """The variables of a template."""
    return frozenset(_VARIABLE.findall(template))


def fill(name: str, values: Mapping[str, str]) -> str:
    """``prompts/<name>.md`` with every variable replaced by its value.

    Raises PromptError for a variable without a value, a value without a variable, and half a delimiter.
    """
    return fill_text(load(name), values, f"{name}.md")


def fill_text(template: str, values: Mapping[str, str], name: str = "the prompt") -> str:
    """As ``fill``, for a text."""
    asked = variables(template)
    missing, unknown = sorted(asked - values.keys()), sorted(values.keys() - asked)
    if missing:
        raise PromptError(f"{name} asks for {', '.join(missing)}, which nothing is given for\ncorrect its <<names>>")
    if unknown:
        raise PromptError(f"{name} does not ask for {', '.join(unknown)}\nput <<{unknown[0]}>> where it belongs")
    half = _HALF.search(_VARIABLE.sub("", template))
    if half is not None:
        raise PromptError(f"{name} has a {half[0]} that is not a variable\na variable is <<name>>, in small letters")
    return _VARIABLE.sub(lambda match: values[match[1]], template)


# --- rules, from what lmp itself counts by: a prompt cannot differ from it -------------------------------------------


_PLAIN = ("1 an output", "1 an input")
"""Costs of operators whose name tells what is counted, unless the definition says more."""


def flop_table(ran: Collection[str] | None = None) -> str:
    """Operators with FLOPs, by what they cost; the definition beside those whose name does not tell it.

    ``ran``: names of operators. Others that need a definition are left out then. None: all are in it.
    """
    rows: dict[str, dict[str, list[str]]] = {}
    for name, entry in definitions().items():
        said = _said(entry)
        if entry != FREE and (not said or ran is None or any(operator.startswith(name) for operator in ran)):
            rows.setdefault(_number(entry), {}).setdefault(said, []).append(name)
    return "\n".join(
        f"- {cost}: " + "; ".join(f"{', '.join(names)}{f' ({said})' if said else ''}" for said, names in row.items())
        for cost, row in rows.items()
    )


def _said(entry: ScalarOps) -> str:
    says_more = any(word in entry.definition for word in ("more", "bound", ";"))
    return entry.definition if says_more or _number(entry) not in _PLAIN else ""


def free_operators() -> str:
    """Names of the operators without FLOPs."""
    return ", ".join(sorted(name for name, entry in TABLE.items() if entry == FREE))


def powers() -> str:
    """What ``x ** e`` costs an element, by the exponent."""
    known = {
        "2": 2, "3": 3, "4": 4, "0.5": 0.5, "-0.5": -0.5, "-1": -1, "0 or 1": 1,
    }  # fmt: skip
    counted = ", ".join(f"{pow_operations(e)} for e = {name}" for name, e in known.items())
    return f"{counted}, {pow_operations(5)} for any other exponent"


def gelu() -> str:
    return f"{TABLE['gelu'].per_output}, in its tanh form {GELU_TANH}"


def categories() -> str:
    return ", ".join(CATEGORIES)


def matmul_categories() -> str:
    return ", ".join(name for name in CATEGORIES if name in MATMUL_CATEGORIES)


def _number(entry: ScalarOps) -> str:
    parts = [(entry.per_input, "an input"), (entry.per_output, "an output"), (entry.per_row, "a row")]
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "depends"
