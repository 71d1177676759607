"""Figures of lmp's own formulas for the subjects of a post.

Analyses are stored outside of the checkout: a second build takes seconds, and a check changes no file of git's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lmp.errors import PostFault, UsageError
from lmp.formula import free_variables, parse
from lmp.lab.config import SubjectRule
from lmp.lab.post import Post, confined
from lmp.lab.values import evaluated, number_in

if TYPE_CHECKING:
    from lmp.formula import Number
    from lmp.link.numbers import ModelNumbers
    from lmp.records import ModelAnalysis

QUANTITIES = ("flops", "matmul_flops", "read", "write", "compulsory", "parameters_count")
_FIGURE = re.compile(r"([a-z][a-z0-9_]*)\s*:\s*([^@]+?)\s*(?:@\s*(.*))?")

Progress = Callable[[str, str], None]


@dataclass
class Subject:
    """One class or model, analysed when a figure is first asked for."""

    name: str
    rule: SubjectRule
    posts: Path
    results: Path
    progress: Progress

    @cached_property
    def model(self) -> ModelAnalysis:
        from lmp.source.installed import engine_missing, lacking

        if lacking():
            raise engine_missing(lacking())
        from lmp.analyze.models import expand_model
        from lmp.analyze.session import Options, class_of_config
        from lmp.workload.isolation import isolated

        rule = self.rule
        config = None if rule.config is None else confined(self.posts, rule.config)
        if config is not None and not config.is_file():
            raise PostFault(f"subject {self.name}: there is no config {rule.config} in {self.posts.name}/")
        options = Options(
            results=self.results,
            config_file=config,
            model_id=rule.model,
            attention=rule.attention,
            dtype=rule.dtype,
            inputs=rule.inputs,
            init=rule.init,
            paths=(self.posts / "workloads",) if rule.inputs is not None else (),
        )
        with isolated():
            class_path = rule.class_path or class_of_config(options)
            return expand_model(class_path, options, self.progress).model

    @cached_property
    def numbers(self) -> ModelNumbers:
        from lmp.link.numbers import ModelNumbers
        from lmp.link.quantised import with_own_bytes

        return ModelNumbers(self.model if self.rule.w_bytes is not None else with_own_bytes(self.model))

    def values(self, at: str) -> dict[str, Number]:
        from lmp.link.values import exact_size, is_rational, parse_settings, values_for

        rule = self.rule
        width = 4 if rule.dtype == "float32" else 2
        given: dict[str, Number] = {"w_bytes": width, "a_bytes": width}
        fixed = {name: getattr(rule, name) for name in ("w_bytes", "a_bytes", "kv_bytes")}
        for name, value in {**rule.set, **{n: v for n, v in fixed.items() if v is not None}}.items():
            given[name] = exact_size(name, value) if is_rational(name) else int(Fraction(str(value)))
        given |= parse_settings([at]) if at else {}
        return values_for(self.numbers.model, given)

    def totals(self, at: str) -> dict[str, Number]:
        """The quantities at one point. Raises PostFault unless the formulas are verified there."""
        evaluation = self.numbers.evaluation(self.values(at))
        if evaluation.verification != "verified":
            status = f"the formulas of {evaluation.class_name} are {evaluation.verification}"
            raise PostFault(f"subject {self.name}: {status}")
        if evaluation.violated_assumptions:
            broken = evaluation.violated_assumptions[0].assumption
            raise PostFault(f"subject {self.name}: the assumption {broken} does not hold at {at or 'these values'}")
        found = {name: getattr(evaluation.totals, name) for name in QUANTITIES}
        return {name: value for name, value in found.items() if value is not None}


class Figures:
    """Figures of a post's subjects, each point evaluated once."""

    def __init__(self, post: Post, results: Path | None = None, progress: Progress | None = None) -> None:
        from lmp.source.project import scratch_results_folder

        self._post, self._known = post, dict[tuple[str, str], dict[str, "Number"]]()
        self._results = results or scratch_results_folder()
        self._progress = progress or (lambda name, stage: None)
        self._subjects: dict[str, Subject] = {}

    def value(self, text: str) -> Fraction:
        """``SUBJECT:QUANTITY@seq_len=1,cache_len=128``. Raises PostFault, or another LmpError."""
        match = _FIGURE.fullmatch(text.strip())
        if match is None:
            raise PostFault(f"{text!r} is no figure: write SUBJECT:QUANTITY@seq_len=1,cache_len=128")
        subject, expression, at = match[1], match[2], (match[3] or "").strip()
        if not free_variables(parse(expression)):
            raise PostFault(f"{text.strip()!r} reads no figure: quantities are {', '.join(QUANTITIES)}")
        totals = self._totals(subject, at)
        return evaluated(expression, lambda name: _quantity(totals, name))

    def setting(self, text: str, name: str) -> Fraction:
        """The value at which a figure is asked for: ``batch_size`` of ``model:flops@batch_size=64``."""
        match = _FIGURE.fullmatch(text.strip())
        given = dict(part.split("=", 1) for part in ((match and match[3]) or "").split(",") if "=" in part)
        found = next((value for key, value in given.items() if key.strip() == name), None)
        if found is None:
            raise PostFault(f"{name} is no setting of {text!r}: settings are {', '.join(given) or 'none'}")
        return number_in(found)

    def _totals(self, name: str, at: str) -> dict[str, Number]:
        if name not in self._subjects:
            rules = self._post.lab.subject
            if name not in rules:
                raise PostFault(f"{name} is no subject: subjects are {', '.join(rules) or 'none'}")
            self._subjects[name] = Subject(name, rules[name], self._post.posts, self._results, self._progress)
        if (name, at) not in self._known:
            self._known[name, at] = self._subjects[name].totals(at)
        return self._known[name, at]


FiguresOf = Callable[[Post], Figures]


def _quantity(totals: dict[str, Number], name: str) -> Number:
    if name not in totals:
        raise UsageError(f"{name} is no quantity: quantities are {', '.join(totals)}")
    return totals[name]
