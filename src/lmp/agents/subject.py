"""The class that a submission is about: its source for the gate, its execution, and the fields that lmp fills in."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.agents.changed import Changed
from lmp.analyze.modules import execution_of
from lmp.analyze.session import Session
from lmp.errors import LmpError, TraceFailed, UnsupportedDtype, first_line
from lmp.formula import Div, parse, rewrite, to_size
from lmp.records import DEFAULT_CONFIG, UNIVERSAL, Kernel, ModuleAnalysis, Verification
from lmp.source.members import members_of
from lmp.store.fingerprint import submission_fingerprint

if TYPE_CHECKING:
    from lmp.analyze.derivations import Derivation
    from lmp.analyze.execution import Execution
    from lmp.source.trees import Tree
    from lmp.verify.judge import Point

_EXECUTING = threading.RLock()
"""PyTorch's hooks and modes belong to the whole process: one class is executed at a time."""

OWN_POINTS = 3
"""Number of verification points that show which files run: without a cache, with one, with both."""


class ClassSubject:
    """A class as the gate needs it. ``engine`` goes into its analyses. Raises NotFound if there is no such class."""

    def __init__(self, session: Session, class_path: str, engine: str = "agent") -> None:
        self.session, self.engine = session, engine
        self.source = session.locate(class_path)
        self.trees = session.trees
        self._derivations: dict[tuple[str, ...], Derivation | str] = {}
        """References -> the trace engine's derivation with them, or why there is none."""

    @cached_property
    def config_names(self) -> Collection[str]:
        """Names that the given config states, beside those of its class."""
        return frozenset(self.session.config or ())

    def lookup(self, class_path: str) -> ModuleAnalysis:
        """The analysis of a class that is referred to. Raises NotFound, Missing."""
        return self.session.lookup(class_path)

    @property
    def execution(self) -> Execution | None:
        """What runs the class; None if it cannot be executed here."""
        return None if isinstance(self._ready, TraceFailed) else self._ready[0]

    # -- execution ---------------------------------------------------------------------------------------------------

    @cached_property
    def _ready(self) -> tuple[Execution, list[Point]] | TraceFailed:
        """What runs the class, with its points, kept for all attempts; or why it cannot be executed."""
        from lmp.workload.load import quiet_warnings

        try:
            with quiet_warnings():
                execution = execution_of(self.source.class_path, self.session)
                points = execution.points()
        except UnsupportedDtype:  # the user's mistake: no class could be executed
            raise
        except LmpError as error:
            return error if isinstance(error, TraceFailed) else TraceFailed(str(error))
        except Exception as error:  # of the class's own code, which somebody else wrote
            first = (str(error).splitlines() or [""])[0]
            return TraceFailed(f"{self.source.class_path} cannot be executed: {type(error).__name__}: {first}")
        if not any(call.class_path == self.source.class_path for point in points for call in point.calls):
            return TraceFailed(f"{self.source.class_path} is not called on the inference path of the model it is in")
        return execution, points

    def judge(self, analysis: ModuleAnalysis) -> Verification:
        """Compare with execution and with the trace engine. Raises TraceFailed if the class cannot be executed here."""
        from lmp.analyze.agreement import judged_with_derivation

        with _EXECUTING:
            if isinstance(self._ready, TraceFailed):
                raise self._ready
            return judged_with_derivation(self._ready[0], analysis, lambda: self._derived(analysis))

    def without_untaken(self, analysis: ModuleAnalysis) -> ModuleAnalysis:
        """The verified analysis with assumptions that exclude what no executable point showed."""
        with _EXECUTING:
            return analysis if isinstance(self._ready, TraceFailed) else self._ready[0].without_untaken(analysis)

    def with_operands(self, analysis: ModuleAnalysis) -> tuple[ModuleAnalysis, list[str]]:
        """A verified analysis with operands and edges from execution, and notes on them."""
        from lmp.analyze.operands import from_execution
        from lmp.workload.load import quiet_warnings

        with _EXECUTING, quiet_warnings():
            derived = self._derived(analysis)
            if isinstance(derived, str) or isinstance(self._ready, TraceFailed):
                return analysis, [f"operands are not filled: {derived}"]
            return from_execution(self._ready[0], analysis, _with_whole_sizes(derived.analysis))

    def _derived(self, analysis: ModuleAnalysis) -> Derivation | str:
        """The trace engine's derivation, made once for all attempts with the same references; or why there is none."""
        from lmp.analyze.derivations import derivation_or_reason
        from lmp.analyze.session import references_of

        if isinstance(self._ready, TraceFailed):
            return first_line(self._ready)
        key = tuple(references_of(analysis))
        if key not in self._derivations:
            self._derivations[key] = derivation_or_reason(self._ready[0], analysis)
        return self._derivations[key]

    def points(self, analysis: ModuleAnalysis) -> list[Point]:
        """The points at which an analysis is judged; none if the class cannot be executed."""
        with _EXECUTING:
            return [] if isinstance(self._ready, TraceFailed) else self._ready[0].points_for(analysis)

    def numbers(self, analysis: ModuleAnalysis) -> Verification:
        """Compare with execution alone. Raises TraceFailed if the class cannot be executed here."""
        with _EXECUTING:
            if isinstance(self._ready, TraceFailed):
                raise self._ready
            return self._ready[0].judged(analysis)

    def changed(self, analysis: ModuleAnalysis) -> list[Changed]:
        """The judged points at which switches, or sizes that the analysis names, are not the class's own."""
        if isinstance(self._ready, TraceFailed):
            return []
        from lmp.workload.base import RUNTIME

        workload, found = self._ready[0].workload, []
        for point in self.points(analysis):
            other = {
                name: (value, workload.hints[name])
                for name, value in point.values.items()
                if name in workload.hints and name not in RUNTIME and value != workload.hints[name]
            }
            switches = {name: values for name, values in other.items() if name in workload.flags}
            sizes = {n: v for n, v in other.items() if n not in switches and n in analysis.parameters}
            if switches or sizes:
                found.append(Changed(point.label, switches, sizes))
        return found

    def called(self, analysis: ModuleAnalysis, kernel: Kernel) -> Collection[str]:
        """The classes that are called at a kernel's line; none if that is not known."""
        from lmp.verify.judge import called_classes

        with _EXECUTING:
            if isinstance(self._ready, TraceFailed):
                return ()
            execution = self._ready[0]
            points = execution.points_for(analysis)
            return called_classes(analysis, kernel, points, execution.file_of, execution.statement_of)

    # -- fields that lmp fills in --------------------------------------------------------------------------------------

    def complete(self, analysis: dict[str, Any]) -> ModuleAnalysis:
        """A checked draft with the fields that lmp knows: source, config, dtype, values, fingerprint."""
        with _EXECUTING:
            draft = ModuleAnalysis.model_validate(
                {**analysis, "engine": self.engine, "source": self.source.record().model_dump()}
            )
            ready = self._ready
            found = self._unexecuted(draft) if isinstance(ready, TraceFailed) else self._executed(draft, *ready)
            return ModuleAnalysis.model_validate(found.model_dump())

    def _executed(self, draft: ModuleAnalysis, execution: Execution, points: list[Point]) -> ModuleAnalysis:
        from lmp.agents.execution import interface_of

        workload, setting, name = execution.workload, execution.setting, draft.class_name
        about = draft.model_copy(
            update={
                "config": setting.config,
                "attn_implementation": workload.attention,
                "attn_requested": setting.attention,
                "dtype": setting.dtype,
                "fixed": workload.fixed,
                "aliases": {o: n for o, n in workload.aliases.items() if n in draft.parameters},
                "values": self._values(draft, execution, points),
                "interface": interface_of(name, draft.parameters, points),
                "fingerprint": self._fingerprint,
            }
        )
        if workload.model_class is not None:
            about = about.model_copy(update={"decisions": execution.answered(name)})
        return about.model_copy(update=execution.about(about))

    def _values(self, draft: ModuleAnalysis, execution: Execution, points: list[Point]) -> dict[str, int]:
        """Values of the parameters: the config's own ones from the config, derived ones from an executed call."""
        from lmp.verify.resolve import resolve_all
        from lmp.workload.base import RUNTIME

        workload = execution.workload
        known = {n: v.default for n, v in workload.variables.items() if n not in workload.required}
        known |= workload.full_layers
        open_names = {*RUNTIME, *UNIVERSAL, *workload.required}
        parameters = {n: p for n, p in draft.parameters.items() if n not in open_names}
        found = {n: known[n] for n in parameters if n in known}
        rest = {n: p for n, p in parameters.items() if n not in known and not p.startswith("inputs.")}
        if workload.required and workload.model_class is None:
            return found  # the sizes that it was run with are synthetic
        calls = [(p, c) for p in points[:1] for c in p.calls if c.class_path == draft.class_name]
        for point, call in calls[:1]:
            found |= resolve_all(rest, call, point.values, point.config)[0]
        return found

    def without_value(self, analysis: ModuleAnalysis) -> list[str]:
        """Variables of a class in a model without a value there. Others are given for each evaluation."""
        from lmp.workload.base import RUNTIME

        if isinstance(self._ready, TraceFailed) or self._ready[0].workload.model_class is None:
            return []
        given = {*RUNTIME, *UNIVERSAL, *self._ready[0].workload.required}
        paths = analysis.parameters.items()
        return [n for n, p in paths if n not in given and n not in analysis.values and not p.startswith("inputs.")]

    @cached_property
    def _fingerprint(self) -> dict[str, str]:
        """Of the files that run, independent of the formulas."""
        from lmp.trace.coverage import FileCoverage
        from lmp.workload.load import quiet_warnings

        assert not isinstance(self._ready, TraceFailed)
        execution, points = self._ready
        coverage = FileCoverage(*execution.roots)
        with quiet_warnings():
            for point in points[:OWN_POINTS]:
                execution.workload.run(execution.workload.build(point.values), point.values, coverage)
        return submission_fingerprint(execution.files(coverage.files, self.source))

    # -- without execution -------------------------------------------------------------------------------------------

    def _unexecuted(self, draft: ModuleAnalysis) -> ModuleAnalysis:
        session, name = self.session, draft.class_name
        update: dict[str, Any] = {
            "config": DEFAULT_CONFIG if name.startswith("torch.") else session.origin,
            "attn_requested": session.options.attention or "sdpa",
            "dtype": session.options.dtype,
            "values": dict(self._stated(draft.parameters)),
            "fingerprint": submission_fingerprint(self._files(draft)),
        }
        own = session.own.get(name)
        if own is not None:
            from lmp.records import Given

            update["given"] = Given(inputs=own.spec.inputs_text(), init=own.spec.init_text(), live=False)
        return draft.model_copy(update=update)

    def _stated(self, parameters: Mapping[str, str]) -> Iterator[tuple[str, int]]:
        """Values from the given config, else the defaults of its class."""
        defaults = members_of(self.source, self.trees).config_values
        content: Mapping[str, Any] = self.session.config or {}
        for name, path in parameters.items():
            origin, _, attribute = path.partition(".")
            value = content.get(attribute, defaults.get(attribute))
            if origin == "config" and type(value) is int:
                yield name, value

    def _files(self, draft: ModuleAnalysis) -> Iterator[tuple[Tree, Path]]:
        """Files of the trees that hold the class and the lines that the draft names."""
        named = {kernel.file for kernel in draft.kernels if kernel.file} | draft.free_lines_elsewhere.keys()
        paths = {self.source.path, self.source.forward_path}
        paths |= {path for file in named if (path := self.trees.path_of(file)) is not None}
        for path in sorted(paths):
            tree = next((t for t in self.trees if path.is_relative_to(t.package_dir)), None)
            if tree is not None:
                yield tree, path


def _with_whole_sizes(derived: ModuleAnalysis) -> ModuleAnalysis:
    """The derivation with `//` in place of `/` in its operands' sizes.

    It may assume that one divides the other, and the submission need not. A shape is an integer there too.
    """
    kernels = [
        kernel
        if kernel.operands is None
        else kernel.model_copy(update={"operands": kernel.operands.with_sizes(_whole)})
        for kernel in derived.kernels
    ]
    return derived.model_copy(update={"kernels": kernels})


def _whole(size: int | str) -> int | str:
    if isinstance(size, int):
        return size
    return to_size(rewrite(parse(size), lambda node: node.left // node.right if isinstance(node, Div) else node))
