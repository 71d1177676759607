"""The references of a draft: each class exists, has an analysis, and gets a value for each of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lmp.agents.base import Subject
from lmp.agents.gate.formulas import Slot
from lmp.errors import LmpError, Missing, NotFound
from lmp.expand.point import ALIASES
from lmp.expand.references import short
from lmp.formula import Expr, Node, Ref, is_open, map_references, references
from lmp.records import UNIVERSAL, GateFinding, ModuleAnalysis
from lmp.source.members import Members


@dataclass
class Referring:
    """Reads the references of one draft."""

    subject: Subject
    members: Members
    findings: list[GateFinding] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)
    """Classes that have no analysis yet."""
    open: dict[str, Slot] = field(default_factory=dict)
    """References that name an attribute, with the first place of each."""

    def __post_init__(self) -> None:
        self._known: dict[str, ModuleAnalysis | str | None] = {}
        self._said: set[tuple[int | None, str]] = set()

    def slots(self, slots: Sequence[Slot]) -> list[Slot]:
        """The formulas with their references in lmp's spelling; what is wrong is in ``findings`` then."""
        return [self._slot(slot) for slot in slots]

    def _slot(self, slot: Slot) -> Slot:
        if not references(slot.node):
            return slot

        def spelled(ref: Ref) -> Expr:
            nested = [r for value in (*ref.arguments, *(v for _, v in ref.bindings)) for r in references(value)]
            if nested:
                self._find(slot, f"the reference to {short(ref.target)} binds a reference, which is no number")
            if is_open(ref.target):
                return self._open(slot, ref)
            target = self._target(slot, ref.target)
            return ref if target is None else self._bound(slot, ref, target)

        node: Node = map_references(slot.node, spelled)
        return replace(slot, node=node)

    def _open(self, slot: Slot, ref: Ref) -> Ref:
        attribute = ref.target.removeprefix("self.").split(".")[0]
        if attribute not in self.members.attributes:
            due = "" if "." in ref.target else "; a class is named by its full path"
            self._find(slot, f"the reference names {ref.target}, and the class assigns no self.{attribute}{due}")
        elif ref.arguments:
            self._find(slot, f"the reference to {ref.target} gives values by position; give them by name")
        else:
            self.open.setdefault(ref.target, slot)
        return ref

    def _target(self, slot: Slot, name: str) -> ModuleAnalysis | None:
        """The analysis of a class that is referred to; None where there is none, which is noted."""
        if name not in self._known:
            try:
                self._known[name] = self.subject.lookup(name)
            except Missing as error:
                self.missing.update(dict.fromkeys(error.classes or (name,)))
                self._known[name] = None
            except NotFound as error:
                self._known[name] = "; ".join(str(error).splitlines())
            except LmpError as error:  # a plain class, or a stored analysis that cannot be read
                self._known[name] = "; ".join(str(error).splitlines())
        found = self._known[name]
        if isinstance(found, str):
            self._find(slot, f"the reference names {name}: {found}")
            return None
        if found is not None and found.class_name == self.subject.source.class_path:
            self._find(slot, f"{short(name)} refers to itself")
            return None
        return found

    def _bound(self, slot: Slot, ref: Ref, target: ModuleAnalysis) -> Ref:
        """The reference under the class's defining path, every value by name."""
        to, names = short(target.class_name), list(target.parameters)
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        if len(ref.arguments) > len(names):
            self._find(slot, f"the reference to {to} gives {len(ref.arguments)} values by position; {takes}")
            return ref
        bound = dict(zip(names, ref.arguments, strict=False))
        for name, value in ref.bindings:
            known = ALIASES.get(name, name) if name not in names else name
            if known not in names and known not in UNIVERSAL:
                self._find(slot, f"the reference to {to} binds {name}, which it does not have; {takes}")
            elif known in bound:
                self._find(slot, f"the reference to {to} binds {name} twice; {takes}")
            bound[known] = value
        absent = [name for name in names if name not in bound and name not in UNIVERSAL]
        if absent:
            self._find(slot, f"the reference to {to} does not bind {', '.join(absent)}; {takes}")
        return Ref(target.class_name, (), tuple(bound.items()))

    def _find(self, slot: Slot, message: str) -> None:
        """Once a kernel: flops, read and write mostly have the same reference."""
        if (slot.kernel, message) not in self._said:
            self._said.add((slot.kernel, message))
            self.findings.append(slot.finding("reference", f"{slot.quantity}: {message}"))
