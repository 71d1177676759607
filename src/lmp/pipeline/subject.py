"""A class of which somebody hands in an analysis: what the gate needs to know of it, and what executes it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.errors import LmpError, Missing, Search, TraceFailed, UsageError
from lmp.pipeline.model import ModelSession
from lmp.pipeline.module import references_of
from lmp.records import DEFAULT_CONFIG, UNIVERSAL, Kernel, ModuleAnalysis, Verification
from lmp.source.members import members_of
from lmp.store.fingerprint import handed_in_fingerprint

if TYPE_CHECKING:
    from lmp.pipeline.making import Making
    from lmp.source.trees import Tree
    from lmp.verify.judge import Point

_EXECUTING = threading.RLock()
"""PyTorch's hooks and modes, by which lmp counts, are those of the whole process: one class is executed at a time."""

OWN_POINTS = 3
"""So many of the points to verify at show which files run: without a cache, with one, with both."""


class HandInSession(ModelSession):
    """A session in which nothing is analysed on the way: what is not stored is for its caller to get."""

    def lookup(self, class_path: str) -> ModuleAnalysis:
        """The stored analysis of a class, if it is true or made by others, as are those that it refers to.

        Raises NotFound where there is no such class, Missing where there is no such analysis.
        """
        return self._looked_up(class_path, ())

    def has(self, name: str) -> bool:
        """Whether a class has an analysis that need not be made again."""
        return self.reusable(name) is not None

    def _looked_up(self, class_path: str, above: tuple[str, ...]) -> ModuleAnalysis:
        found = self.stored(class_path)
        if found is None:
            found = self.stored(self.locate(class_path).class_path)
        if found is None:
            name = self.locate(class_path).class_path
            file = str(self.store.file(name, self.names(name)))
            raise Missing(
                f"there is no analysis of {name} yet\nrun `lmp analyze-module {name}`",
                [Search(f"an analysis of {name}", file, "none that is true of the sources here")],
                (name,),
            )
        for name in references_of(found):
            if name not in above:
                self._looked_up(name, (*above, found.class_name))
        return found

    def stored(self, class_path: str) -> ModuleAnalysis | None:
        found = super().stored(class_path)
        # Another hand-in may be stored meanwhile: what was read is not kept.
        self._loaded.pop(class_path, None)
        return found


class ClassSubject:
    """The `Subject` of a real class. ``engine`` is what its analyses say they were made by.

    Raises NotFound where there is no such class.
    """

    def __init__(self, session: HandInSession, class_path: str, engine: str = "agent") -> None:
        self.session, self.engine = session, engine
        self.source = session.locate(class_path)
        self.trees = session.trees

    @cached_property
    def config_names(self) -> Collection[str]:
        return frozenset(self.session.config or ())

    def lookup(self, class_path: str) -> ModuleAnalysis:
        return self.session.lookup(class_path)

    @property
    def making(self) -> Making | None:
        """What runs the class; None where it cannot be executed here."""
        return None if isinstance(self._ready, TraceFailed) else self._ready[0]

    # -- execution ---------------------------------------------------------------------------------------------------

    @cached_property
    def _ready(self) -> tuple[Making, list[Point]] | TraceFailed:
        """What runs the class, and its points, which are kept for all that is judged; or why it cannot be run."""
        from lmp.workload.load import quiet_warnings

        try:
            with quiet_warnings():
                making = self.session.making(self.source)
                points = making.points()
        except LmpError as error:
            if isinstance(error, UsageError) and "--dtype" in str(error):
                raise
            return error if isinstance(error, TraceFailed) else TraceFailed(str(error))
        except Exception as error:  # of the class's own code, which somebody else wrote
            first = (str(error).splitlines() or [""])[0]
            return TraceFailed(f"{self.source.class_path} cannot be executed: {type(error).__name__}: {first}")
        if not any(call.class_path == self.source.class_path for point in points for call in point.calls):
            return TraceFailed(f"{self.source.class_path} is not called on the inference path of the model it is in")
        return making, points

    def judged(self, analysis: ModuleAnalysis) -> Verification:
        with _EXECUTING:
            if isinstance(self._ready, TraceFailed):
                raise self._ready
            return self._ready[0].judged(analysis)

    def points(self, analysis: ModuleAnalysis) -> list[Point]:
        """The points that an analysis is judged at; none where the class cannot be executed."""
        with _EXECUTING:
            return [] if isinstance(self._ready, TraceFailed) else self._ready[0].points_for(analysis)

    def called(self, analysis: ModuleAnalysis, kernel: Kernel) -> Collection[str]:
        """The classes that are called at a kernel's line; none where that is not known."""
        from lmp.verify.judge import called_classes

        with _EXECUTING:
            if isinstance(self._ready, TraceFailed):
                return ()
            making = self._ready[0]
            points = making.points_for(analysis)
            return called_classes(analysis, kernel, points, making.file_of, making.statement_of)

    # -- what lmp knows by itself ------------------------------------------------------------------------------------

    def completed(self, analysis: dict[str, Any]) -> ModuleAnalysis:
        with _EXECUTING:
            draft = ModuleAnalysis.model_validate(
                {**analysis, "engine": self.engine, "source": self.source.record().model_dump()}
            )
            ready = self._ready
            found = self._unexecuted(draft) if isinstance(ready, TraceFailed) else self._executed(draft, *ready)
            return ModuleAnalysis.model_validate(found.model_dump())

    def _executed(self, draft: ModuleAnalysis, making: Making, points: list[Point]) -> ModuleAnalysis:
        from lmp.pipeline.interface import interface_of

        workload, setting, name = making.workload, making.setting(), draft.class_name
        aliases = getattr(workload, "aliases", {})
        about = draft.model_copy(
            update={
                "config": setting.config,
                "attn_implementation": getattr(workload, "attention", None),
                "attn_requested": setting.attention,
                "dtype": setting.dtype,
                "fixed": dict(getattr(workload, "fixed", {})),
                "aliases": {o: n for o, n in aliases.items() if n in draft.parameters},
                "values": self._values(draft, making, points),
                "interface": interface_of(name, draft.parameters, points),
                "fingerprint": self._fingerprint,
            }
        )
        if hasattr(workload, "asked"):
            about = about.model_copy(update={"decisions": making._answered(workload, name)})  # type: ignore[arg-type]
        return about.model_copy(update=making._about(about))

    def _values(self, draft: ModuleAnalysis, making: Making, points: list[Point]) -> dict[str, int]:
        """Of the config's own names its values; of what follows from them, what one executed call has."""
        from lmp.verify.resolve import resolve_all
        from lmp.workload.base import RUNTIME

        workload = making.workload
        known = {n: v.default for n, v in workload.variables.items() if n not in workload.required}
        known |= workload.full_layers
        open_names = {*RUNTIME, *UNIVERSAL, *workload.required}
        parameters = {n: p for n, p in draft.parameters.items() if n not in open_names}
        found = {n: known[n] for n in parameters if n in known}
        rest = {n: p for n, p in parameters.items() if n not in known and not p.startswith("inputs.")}
        if workload.required:
            return found  # the sizes that it was run with are lmp's own inventions
        calls = [(p, c) for p in points[:1] for c in p.calls if c.class_path == draft.class_name]
        for point, call in calls[:1]:
            found |= resolve_all(rest, call, point.values, point.config)[0]
        return found

    @cached_property
    def _fingerprint(self) -> dict[str, str]:
        """Of the files that run, whatever the formulas are."""
        from lmp.trace.coverage import FileCoverage
        from lmp.workload.load import quiet_warnings

        assert not isinstance(self._ready, TraceFailed)
        making, points = self._ready
        coverage = FileCoverage(*making.roots())
        with quiet_warnings():
            for point in points[:OWN_POINTS]:
                making.workload.run(making.workload.build(point.values), point.values, coverage)
        return handed_in_fingerprint(making.files(coverage.files, self.source))

    # -- where nothing can be executed -------------------------------------------------------------------------------

    def _unexecuted(self, draft: ModuleAnalysis) -> ModuleAnalysis:
        session, name = self.session, draft.class_name
        update: dict[str, Any] = {
            "config": DEFAULT_CONFIG if name.startswith("torch.") else session.origin,
            "attn_requested": session.options.attention or "sdpa",
            "dtype": session.options.dtype,
            "values": dict(self._stated(draft.parameters)),
            "fingerprint": handed_in_fingerprint(self._files(draft)),
        }
        own = session.own.get(name)
        if own is not None:
            from lmp.records import Given

            update["given"] = Given(inputs=own.spec.inputs_text(), init=own.spec.init_text(), live=False)
        return draft.model_copy(update=update)

    def _stated(self, parameters: Mapping[str, str]) -> Iterator[tuple[str, int]]:
        """What the config that was given says, or else its class."""
        defaults = members_of(self.source, self.trees).config_values
        content: Mapping[str, Any] = self.session.config or {}
        for name, path in parameters.items():
            origin, _, attribute = path.partition(".")
            value = content.get(attribute, defaults.get(attribute))
            if origin == "config" and type(value) is int:
                yield name, value

    def _files(self, draft: ModuleAnalysis) -> Iterator[tuple[Tree, Path]]:
        """Files of the trees that hold the class and the lines that are named."""
        named = {kernel.file for kernel in draft.kernels if kernel.file} | draft.free_lines_elsewhere.keys()
        paths = {self.source.path, self.source.forward_path}
        paths |= {path for file in named if (path := self.trees.path_of(file)) is not None}
        for path in sorted(paths):
            tree = next((t for t in self.trees if path.is_relative_to(t.package_dir)), None)
            if tree is not None:
                yield tree, path
