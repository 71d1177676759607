"""Open places: references of an analysis that nothing can be linked to as they stand.

``${{self.act_fn}}(...)`` names an attribute, whose class only reading can tell; another reference may not bind what its
class takes. The reference expander says what is meant; here its bindings are put in, and nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lmp.errors import Missing, NotFound
from lmp.expand.point import canonical
from lmp.formula import Ref, map_references, parse, references, to_text
from lmp.records import UNIVERSAL, Binding, Kernel, MemoryAccess, ModuleAnalysis

Lookup = Callable[[str], ModuleAnalysis]
ATTRIBUTE = "self."
"""A reference that begins so names an attribute of the class, not a class."""


@dataclass(frozen=True)
class OpenPlace:
    """A kernel whose reference cannot be followed, and why."""

    class_name: str
    kernel: int
    line: int
    code: str
    file: str
    target: str
    """As it is written."""
    why: str
    variables: tuple[str, ...]
    """What bindings may use there."""

    @property
    def key(self) -> tuple[str, int]:
        return self.class_name, self.kernel


def is_open(target: str) -> bool:
    """Whether a reference names an attribute instead of a class."""
    return target.startswith(ATTRIBUTE)


def open_places(root: ModuleAnalysis, lookup: Lookup) -> list[OpenPlace]:
    """The open places of a class and of everything that it refers to, callers first.

    Raises Missing for a class that is referred to and not analysed yet.
    """
    return [place for analysis in reached(root, lookup) for place in places_of(analysis, lookup)]


def reached(root: ModuleAnalysis, lookup: Lookup) -> Iterator[ModuleAnalysis]:
    """The class and those that it refers to as far as that can be followed, each once, callers first."""
    waiting, seen = [root], {root.class_name}
    while waiting:
        analysis = waiting.pop(0)
        yield analysis
        for kernel in analysis.kernels:
            for ref in references_in(kernel):
                if is_open(ref.target):
                    continue
                try:
                    target = lookup(ref.target)
                except Missing:
                    raise
                except NotFound:  # an open place, told by places_of
                    continue
                if target.class_name not in seen:
                    seen.add(target.class_name)
                    waiting.append(target)


def places_of(analysis: ModuleAnalysis, lookup: Lookup) -> Iterator[OpenPlace]:
    for index, kernel in enumerate(analysis.kernels):
        for ref in references_in(kernel):
            why = _why_open(ref, lookup)
            if why:
                file = kernel.file or analysis.source.file
                names = (*analysis.parameters, *UNIVERSAL)
                yield OpenPlace(analysis.class_name, index, kernel.line, kernel.code, file, ref.target, why, names)
                break  # one answer a kernel


def references_in(kernel: Kernel) -> tuple[Ref, ...]:
    texts = (kernel.flops, kernel.memory_access.read, kernel.memory_access.write)
    return tuple(dict.fromkeys(ref for text in texts for ref in references(parse(text))))


def _why_open(ref: Ref, lookup: Lookup) -> str:
    if is_open(ref.target):
        return "it names an attribute: which class that is, and what it is called with, is to be read"
    try:
        target = lookup(ref.target)
    except Missing:
        raise
    except NotFound as error:
        return str(error).splitlines()[0]
    return unbound(target, [name for name, _ in ref.bindings], len(ref.arguments))


def unbound(target: ModuleAnalysis, names: Iterable[str], positional: int = 0) -> str:
    """What is wrong with the names that a reference binds; empty if they are those that the target takes."""
    takes = [name for name in target.parameters if name not in UNIVERSAL]
    given = [*list(target.parameters)[:positional], *(n if n in target.parameters else canonical(n) for n in names)]
    missing = [name for name in takes if name not in given]
    surplus = [name for name in given if name not in target.parameters and name not in UNIVERSAL]
    twice = sorted({name for name in given if given.count(name) > 1})
    said = [
        f"{what} {', '.join(which)}"
        for what, which in (("does not bind", missing), ("binds what it does not take:", surplus), ("twice:", twice))
        if which
    ]
    if positional > len(target.parameters):
        said.append(f"gives {positional} values")
    return f"{'; '.join(said)} (it takes {', '.join(takes) or 'nothing'})" if said else ""


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
    changed = {"flops": put_in(kernel.flops), "memory_access": access, "repeat": repeat}
    return kernel.model_copy(update={**changed, "kernel_type": "composite"})
