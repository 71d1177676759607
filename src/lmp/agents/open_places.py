"""The references of an analysis that cannot be followed as they stand: what the reference expander decides on.

`closed` puts in what was decided, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lmp.errors import InvalidAnalysis, Missing, NotFound, UsageError
from lmp.expand.references import Lookup, References
from lmp.expand.references import Place as Where
from lmp.formula import Ref, is_open, map_references, parse, references, to_text
from lmp.records import Binding, Kernel, MemoryAccess, ModuleAnalysis
from lmp.source.quoting import escaped


@dataclass(frozen=True)
class OpenPlace:
    """One reference of one kernel, and why it is open."""

    class_name: str
    """The class whose analysis has it."""
    kernel: int
    line: int
    code: str
    written: str
    """The reference as it stands."""
    why: str
    file: str = ""
    repeat: int | str = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of the class: bindings are formulas in them."""

    def __str__(self) -> str:
        names = ", ".join(f"{name} ({path})" for name, path in self.variables.items()) or "none"
        return escaped(
            f"class_name {self.class_name}, kernel {self.kernel}\n"
            f"  {self.file} line {self.line}: {self.code}\n"
            f"  written: {self.written}, repeat {self.repeat}\n"
            f"  open because {self.why}\n"
            f"  variables of the class: {names}"
        )


def open_places(analysis: ModuleAnalysis, lookup: Lookup) -> list[OpenPlace]:
    """The open references of a module's analysis, in the order of its kernels.

    A class of which there is no analysis yet is no open place: ``lookup`` raises Missing, which is let through.
    """
    return [
        OpenPlace(
            analysis.class_name,
            index,
            kernel.line,
            kernel.code,
            str(ref),
            why,
            kernel.file or analysis.source.file,
            kernel.repeat,
            analysis.parameters,
        )
        for index, kernel in enumerate(analysis.kernels)
        for ref, why in _open(analysis, kernel, References(lookup))
    ]


def _open(analysis: ModuleAnalysis, kernel: Kernel, follow: References) -> Iterator[tuple[Ref, str]]:
    here = Where(analysis.class_name.rpartition(".")[2]).at(kernel.line)
    for ref in references(parse(kernel.flops)):
        if is_open(ref.target):
            yield ref, f"the reference does not say which class {ref.target} is"
            continue
        try:
            follow.bindings(analysis, ref, follow.target(ref.target, here), here)
        except Missing:
            raise
        except (InvalidAnalysis, NotFound, UsageError) as error:  # the last: a class without forward()
            yield ref, str(error).splitlines()[0].removeprefix(f"{here}: ")


def reached(root: ModuleAnalysis, lookup: Lookup) -> Iterator[ModuleAnalysis]:
    """The class and those that it refers to, as far as that can be followed; each once, callers first.

    Missing is let through.
    """
    waiting, seen = [root], {root.class_name}
    while waiting:
        analysis = waiting.pop(0)
        yield analysis
        for target in referred(analysis, lookup):
            if target.class_name not in seen:
                seen.add(target.class_name)
                waiting.append(target)


def referred(analysis: ModuleAnalysis, lookup: Lookup) -> Iterator[ModuleAnalysis]:
    """The analyses that it refers to; what cannot be followed is left out, as it is an open place."""
    for ref in dict.fromkeys(ref for kernel in analysis.kernels for ref in references(parse(kernel.flops))):
        if is_open(ref.target):
            continue
        try:
            yield lookup(ref.target)
        except Missing:
            raise
        except (NotFound, UsageError):
            continue


def closed(analysis: ModuleAnalysis, bindings: Mapping[int, Binding]) -> ModuleAnalysis:
    """The analysis with the bindings of its kernels put in, by their index."""
    kernels = [_bound(kernel, bindings.get(index)) for index, kernel in enumerate(analysis.kernels)]
    return analysis.model_copy(update={"kernels": kernels})


def _bound(kernel: Kernel, binding: Binding | None) -> Kernel:
    if binding is None:
        return kernel
    meant = Ref(binding.target, (), tuple((name, parse(text)) for name, text in binding.bindings.items()))

    def put_in(text: str) -> str:
        return to_text(map_references(parse(text), lambda ref: meant))

    access = MemoryAccess(read=put_in(kernel.memory_access.read), write=put_in(kernel.memory_access.write))
    repeat = kernel.repeat if binding.repeat is None else binding.repeat
    return kernel.model_copy(update={"flops": put_in(kernel.flops), "memory_access": access, "repeat": repeat})
