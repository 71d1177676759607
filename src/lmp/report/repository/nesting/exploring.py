"""Goes from a loop down into what it calls, always into the call that says most, until the page is full."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lmp.codebase.facts import Definition, Place
from lmp.report.repository.nesting.callee import Callee
from lmp.report.repository.nesting.steps import Step

DEEPEST = 9
"""Calls inside of calls."""
SIDE = re.compile(
    r"dllm|hisparse|disagg|lora|mamba|pdmux|ngram|spec_|speculat|draft|beam|embedding|grammar|hicache|mlp_sync|dp_attn|dp_"
    r"|abort|pause|idle|error|retry|prebuilt|split_prefill|multimodal|mm_|vision|audio|image|warmup|storage|metric|trace"
    r"|scripted|hook|sampling_mask|hidden_states|logprob|unified_memory|isolation|folded|deprecated|verify|relay|auxiliary|routed|checkpoint|session|elastic|fpm|quantiz|bench|_cp\b|cp_|pp_|npu|xpu|hip|cpu_only|encoder|pooling|mrope",
    re.IGNORECASE,
)
"""What most runs of a model do without: shown after the rest."""
_ONE_RANK = re.compile(r"(?<!not )[\w.]*\bis_(?:first|last)_rank\b")
"""True of a run on one rank, which has no stages of a pipeline."""
AFTER = re.compile(r"process_batch_result|process_output|postprocess|stream_output|detoken")
"""What comes when a step is done."""


class Language(Protocol):
    """What a language's walk can do."""

    def body(self, definition: Definition) -> list[Step]:
        """The steps of one function, calls not followed."""

    def callee(self, step: Step) -> Callee | None:
        """What a call calls; None where that is not of the repository."""

    def runs_a_model(self, step: Step) -> bool:
        """Whether a call that cannot be followed is shown all the same."""


@dataclass
class Nest:
    """A function with what it calls, as far as it is shown."""

    root: Definition
    steps: list[Step]
    left_out: int = 0
    """Calls of the functions on show that are not shown."""
    open_calls: list[tuple[str, Place, str]] = field(default_factory=list)
    """Calls that could not be told from the code alone, with how they were taken."""
    names: set[str] = field(default_factory=set)
    """Qualnames of the functions on show."""

    def every(self) -> Iterator[Step]:
        for step in self.steps:
            yield from (each for each in step.everything() if each.shown)


def explore(root: Definition, language: Language, most: int, first: Callable[[Step], float] | None = None) -> Nest:
    """At most ``most`` lines of a function and of what it calls."""
    return _Exploration(root, language, most, first).run()


class _Exploration:
    def __init__(self, root: Definition, language: Language, most: int, first: Callable[[Step], float] | None) -> None:
        self._language, self._most, self._extra = language, most, first
        self._nest = Nest(root, language.body(root))
        self._waiting: list[tuple[float, int, Step]] = []
        self._expanded = {(root.place.file, root.place.line)}
        self._called: Counter[str] = Counter()
        self._lines = self._number = 0

    def run(self) -> Nest:
        self._add(self._nest.steps, 0)
        while self._waiting and self._lines < self._most:
            _, _, step = heapq.heappop(self._waiting)
            self._take(step)
        nest = self._nest
        nest.left_out = len(self._waiting)
        nest.names = {nest.root.qualname, *(step.name for step in nest.every() if step.name)}
        return nest

    def _add(self, steps: list[Step], depth: int) -> None:
        for step in steps:
            for each in step.everything():
                if each.is_call and each.weight > 0:
                    self._number += 1
                    heapq.heappush(self._waiting, (-self._rank(each, depth), self._number, each))

    def _rank(self, step: Step, depth: int) -> float:
        around = _ONE_RANK.sub("", " ".join(each.text for each in step.above))
        called = step.text.partition("(")[0].rpartition(" = ")[2].removeprefix("return ")
        aside = 4.4 if SIDE.search(called) else 3.2 if SIDE.search(around) else 1.6 if AFTER.search(around) else 0
        again = self._called[called]
        self._called[called] += 1
        return step.weight * 2.2 - depth * 0.8 - aside - min(again, 3) * 1.2 + (self._extra(step) if self._extra else 0)

    def _take(self, step: Step) -> None:
        callee = self._language.callee(step) if step.kind == "call" else None
        if step.kind == "call" and callee is None:
            if not self._language.runs_a_model(step):
                return
            step.remark = "given at run time"
            self._nest.open_calls.append((step.text, step.place, step.remark))
        needed = [step, *(each for each in step.above if not each.shown)]
        if self._lines + len(needed) > self._most:
            return
        for each in needed:
            each.shown = True
        self._lines += len(needed)
        if callee is not None:
            self._follow(step, callee)

    def _follow(self, step: Step, callee: Callee) -> None:
        step.name, step.remark = callee.name, callee.remark
        if callee.remark:
            self._nest.open_calls.append((step.text, step.place, callee.remark))
        definition = callee.definition
        if definition is None:
            return
        step.target = definition.place
        key = (definition.place.file, definition.place.line)
        depth = sum(each.kind == "call" for each in step.above) + 1
        if key in self._expanded or depth >= DEEPEST:
            return
        self._expanded.add(key)
        step.inside = self._language.body(definition)
        for each in step.inside:
            each.parent = step
        self._add(step.inside, depth)
