"""In place of the real pipeline: one that does what a test tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from typer.testing import Result

from lmp.analyze import session as pipeline
from lmp.analyze.models import ModelOutcome
from lmp.link.link import link
from lmp.records import ModuleAnalysis, Quantization

Lmp = Callable[..., Result]


@dataclass
class FakePipeline:
    """Knows its analyses, does what it is told, and remembers how it was called."""

    analyses: dict[str, ModuleAnalysis]
    raises: BaseException | None = None
    reused: bool = False
    quantization: Quantization | None = None
    options: pipeline.Options | None = None
    asked: list[str] = field(default_factory=list)

    def _outcome(self, class_path: str, options: pipeline.Options, requested: bool = True) -> pipeline.Outcome:
        if self.raises is not None:
            raise self.raises
        file = options.results / class_path / "module_analysis.json"
        return pipeline.Outcome(self.analyses[class_path], file, self.reused, requested)

    def analyze_modules(self, class_paths, options, progress):  # type: ignore[no-untyped-def]
        self.options, self.asked = options, list(class_paths)
        outcomes = []
        for class_path in class_paths:
            for stage in ("reading", "tracing", "verifying", "stored"):
                progress(class_path, stage)
            outcomes.append(self._outcome(class_path, options))
        others = [name for name in self.analyses if name not in class_paths]
        return outcomes + [self._outcome(name, options, requested=False) for name in others]

    def verify_modules(self, class_paths, options, progress):  # type: ignore[no-untyped-def]
        self.options, self.asked = options, list(class_paths)
        for class_path in class_paths:
            progress(class_path, "verifying")
            yield self._outcome(class_path, options)

    def expand_model(self, class_path, options, progress, keep=True):  # type: ignore[no-untyped-def]
        self.options, self.asked = options, [class_path]
        found = self._outcome(class_path, options)
        model = link(found.analysis, self.analyses.__getitem__).model_copy(update={"quantization": self.quantization})
        file = found.file.with_name("model_analysis.json")
        return ModelOutcome(model, file, self.reused, (), self.analyses.__getitem__)
