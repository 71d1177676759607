"""Analysing a class of the user's own, in the workload that ``--init`` and ``--inputs`` say.

The classes that it calls are analysed by themselves: PyTorch's on inputs of their own, the user's own with the
arguments and shapes that they are called with here. What cannot be, and what is called otherwise than its analysis
holds for, is written out at the call.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from lmp.errors import LmpError, TraceFailed, VerificationFailed
from lmp.formula import Expr, Var
from lmp.pipeline.making import Making
from lmp.pipeline.own import OwnCall
from lmp.pipeline.points import held_out_points
from lmp.records import Decision, Given, ModuleAnalysis, Verification
from lmp.source.locate import ClassSource
from lmp.trace.engine import Setting, TraceEngine
from lmp.trace.observe import differs, forward_arguments
from lmp.trace.runs import Run
from lmp.verify.judge import named
from lmp.workload.arguments import constructor_arguments
from lmp.workload.base import RUNTIME, refusal
from lmp.workload.calls import Call, folder_of
from lmp.workload.decisions import Decisions, UndecidedError
from lmp.workload.inputs import InputsWorkload
from lmp.workload.live import LiveWorkload, dtype_of, kind
from lmp.workload.load import load_class, load_own, quiet_warnings
from lmp.workload.spec import Construct, Dim, Input, Spec, TensorInput, TupleInput, is_plain, tensors
from lmp.workload.standalone import StandaloneWorkload

if TYPE_CHECKING:
    from lmp.pipeline.module import Outcome, Session

DTYPE_NAMES = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int64",
    torch.int32: "int32", torch.bool: "bool",
}  # fmt: skip

FEWEST_POINTS = 3
"""Points at which a module must run to be judged."""


class OwnMaking(Making):
    """Analyses one class of the user's own. ``stored`` is the analysis that is only to be judged again."""

    def __init__(
        self, session: Session, source: ClassSource, call: OwnCall, stored: ModuleAnalysis | None = None
    ) -> None:
        super().__init__(session, source)
        self.call = call
        self._decisions = call.decisions or Decisions()
        for decision in stored.decisions if stored is not None else ():
            file = self._executed(decision.file)
            self._decisions.learn((file, decision.line), decision.taken)
        self._specs: dict[str, Spec | None] = {}

    def _executed(self, file: str) -> str:
        """The path under which Python runs a file that an analysis names."""
        for tree in self.session.trees:
            path = tree.root / file
            if path.is_relative_to(tree.package_dir):
                return str(path)
        return file

    @cached_property
    def cls(self) -> type[Any]:
        if self.call.module is not None:
            return type(self.call.module)
        handed = self.session.classes.get(self.source.class_path)
        if handed is not None:
            return handed
        if self.source.tree in self.session.trees.extra:
            return load_own(self.source.class_path, self.source.tree)
        return load_class(self.source.class_path)

    @cached_property
    def workload(self) -> InputsWorkload:
        with quiet_warnings():
            if self.call.module is not None:
                return LiveWorkload(self.call.module, self.call.spec, self._decisions)
            return InputsWorkload(self.cls, self.call.spec, self._dtype, self._decisions)

    @property
    def _dtype(self) -> torch.dtype:
        return super()._dtype if self.call.module is None else dtype_of(self.call.module)

    def roots(self) -> tuple[str, ...]:
        folder = folder_of(self.cls) if not self.cls.__module__.startswith("torch.") else f"{self.torch_dir}/nn/"
        roots = [folder, f"{self.torch_dir}/nn/"]
        if self.session.trees.transformers is not None:
            roots.append(f"{self.session.trees.transformers.package_dir.resolve()}/")
        return tuple(dict.fromkeys(roots))

    def setting(self) -> Setting:
        dtype = str(self.workload.dtype).removeprefix("torch.")
        return Setting(self.session.origin, "sdpa", dtype, self.roots(), self.file_of)

    def engine(self) -> TraceEngine:
        folder = self.roots()[0]
        self.workload.source_modules = [
            name
            for name, module in list(sys.modules.items())
            if str(getattr(module, "__file__", None) or "").startswith(folder) and not name.startswith("torch")
        ]
        return super().engine()

    # -- analysing ---------------------------------------------------------------------------------------------------

    def outcomes(self) -> list[Outcome]:
        """With all arguments as variables; else without those that the code turns into plain numbers, and so on."""
        self.session.progress(self.source.class_path, "tracing")
        tried: set[frozenset[str]] = set()
        first: LmpError | None = None
        with quiet_warnings():
            for fixed in self._attempts():
                if fixed in tried:
                    continue
                tried.add(fixed)
                for made in ("workload", "_labelled"):
                    self.__dict__.pop(made, None)
                self._points.clear()
                self.held = set()
                for name in fixed:
                    self.workload.fix(name)
                try:
                    return self._made()
                except (TraceFailed, VerificationFailed) as error:
                    first = first or error
        assert first is not None
        raise first

    def _attempts(self) -> Iterator[frozenset[str]]:
        """Which arguments to take out of the variables; each is tried when the one before has failed."""
        yield frozenset()
        yield frozenset(self._pinned)
        yield frozenset(self.workload.flags)
        yield frozenset(self.workload.flags) | frozenset(self._pinned)
        for name in list(self.workload._all_leaves):
            yield frozenset((name,))
        yield frozenset(self.workload._all_leaves)

    _pinned: frozenset[str] = frozenset()

    def _made(self) -> list[Outcome]:
        engine = self.engine()
        engine.prepare(self.source.class_path)
        self._pinned = frozenset(engine.pinned()) & frozenset(self.workload.leaves)
        found = self._called(engine)
        return [*found, self._here(engine, self.source.class_path)]

    def _about(self, analysis: ModuleAnalysis) -> dict[str, Any]:
        spec = self.call.spec
        live = self.call.module is not None
        given = Given(inputs=spec.inputs_text(), init=spec.init_text(), live=live)
        return {"given": given, "decisions": self._decisions_of(analysis)}

    def _decisions_of(self, analysis: ModuleAnalysis) -> list[Decision]:
        found = []
        for place in self._decisions.answers:
            code, taken = self._decisions.described(place)
            found.append(Decision(file=self.file_of(place[0]), line=place[1], code=code, taken=taken))
        return found

    def _verified(self, engine: TraceEngine, source: ClassSource) -> ModuleAnalysis:
        if len(self._labelled) < FEWEST_POINTS:
            raise TraceFailed(
                f"{self.source.class_path} runs at {len(self._labelled)} of the sizes to verify at only\n"
                "give it inputs that it takes in any batch and length"
            )
        return super()._verified(engine, source)

    @cached_property
    def _labelled(self) -> list[tuple[str, dict[str, int]]]:
        """The points at which the module runs: one's own code may refuse sizes. The others are told."""
        held = held_out_points(self.workload, self.held)
        ends_with = [(each, refusal(self.workload, each[1])) for each in held]
        self._refused = [
            f"skipped {named(*each)}: "
            + (str(error) if isinstance(error, UndecidedError) else "the module does not run there")
            for each, error in ends_with
            if error is not None
        ]
        return [each for each, error in ends_with if error is None]

    # -- what it calls -----------------------------------------------------------------------------------------------

    def _called(self, engine: TraceEngine) -> list[Outcome]:
        """Analyse the classes that are called directly, or in calls that are written out; make them known."""
        found: list[Outcome] = []
        decided: dict[str, bool] = {}
        deriver = engine.deriver
        runs = (*deriver.runs.symbolic, *deriver.runs.concrete)
        for run in runs:
            open_calls = {c.index for c in run.calls_of(self.source.class_path)}
            for call in run.recording.calls:
                if call.parent is None or call.parent.index not in open_calls:
                    continue
                name = call.class_path
                if name not in decided:
                    made = self._analysed(engine, call, run)
                    decided[name] = made is not None
                    found += made or []
                    if made is None:
                        deriver.alone[name] = frozenset()
                        deriver.unlike[name] = lambda call: True
                if not decided[name] or deriver.unlike[name](call) or differs(call, run.recording):
                    open_calls.add(call.index)
        return found

    def _analysed(self, engine: TraceEngine, call: Call, run: Run) -> list[Outcome] | None:
        """A called class's analysis, made known to the engine; None where it can only be written out."""
        name = call.class_path
        if name == self.source.class_path or "<locals>" in name:
            return None
        try:
            if self.session.is_own(name) or (self.call.module is not None and not name.startswith("torch.")):
                return self._own(engine, call, run)
            if not self._stands_alone(name):
                return None
            found = self._known(engine, name)
        except LmpError:
            return None
        analysis = self.session.lookup(name)
        engine.deriver.unlike[name] = lambda c: not (_binds(analysis, c, exact=False) and _called_alike(analysis, c))
        return found

    def _stands_alone(self, name: str) -> bool:
        """Whether a class of PyTorch or transformers is analysed on inputs of its own."""
        cls = load_class(name)
        if any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(cls.__init__).parameters.values()):
            return False  # nn.Sequential is what it holds
        if self.session.reusable(name) is not None:
            return True
        if not name.startswith("torch."):
            return self._is_by_itself(name)
        StandaloneWorkload(cls, self._dtype)
        return True

    def _own(self, engine: TraceEngine, call: Call, run: Run) -> list[Outcome] | None:
        """A class of the user's own: what is stored of it where that holds for this call, else made from the call."""
        session, name = self.session, call.class_path
        self.session.classes.setdefault(name, type(call.module))
        source = session.locate(name)
        known = session.reusable(name)
        outcomes: list[Outcome] = []
        if known is None:
            own = self._call_as_spec(call, run)
            if own is None:
                return None
            session.own[source.class_path] = own
            outcomes = self._known(engine, name)
            known = session.lookup(name)
        elif not self._fits(known, call):
            return None
        else:
            outcomes = self._known(engine, name)
        engine.deriver.unlike[name] = lambda c: not self._fits(known, c)
        return outcomes

    def _call_as_spec(self, call: Call, run: Run) -> OwnCall | None:
        """Constructor's arguments and shapes of a call, as ``--init`` and ``--inputs`` would say them."""
        if run.sizes is None:
            return None
        live = self.call.module is not None
        arguments = {} if live else constructor_arguments(call.module)
        init = {n: _plain_argument(v) for n, v in arguments.items()}
        if not all(map(is_plain, init.values())):
            return None
        names = {run.size(v): n for n, v in reversed(list(_sizes(arguments)))}
        inputs: dict[str, Any] = {}
        for name, value in forward_arguments(call).items():
            if value is None:
                continue
            found = self._as_input(name, value, run, names)
            if found is None:
                return None
            inputs[name] = found
        module = self.workload.module.get_submodule(call.path) if isinstance(self.workload, LiveWorkload) else None
        return OwnCall(Spec(inputs, init), module, self._decisions)

    def _as_input(self, name: str, value: Any, run: Run, names: dict[Any, str]) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = "float" if value.dtype == self.workload.dtype else DTYPE_NAMES.get(value.dtype)
            if dtype is None:
                return None
            dims = [self._as_dim(f"{name}_{i}", run.size(s), names) for i, s in enumerate(value.shape)]
            return TensorInput(dtype, tuple(dims))
        if isinstance(value, (tuple, list)) and value and all(isinstance(v, torch.Tensor) for v in value):
            parts = [self._as_input(f"{name}_{i}", v, run, names) for i, v in enumerate(value)]
            return None if None in parts else TupleInput(tuple(parts))
        return value if is_plain(value) else None

    def _as_dim(self, name: str, size: Any, names: dict[Any, str]) -> Dim:
        """A size that is a number, the call's, or a constructor's argument; any other gets a name of its own."""
        if not isinstance(size, Expr):
            return Dim(int(size))
        if size not in names:
            names[size] = size.name if isinstance(size, Var) and size.name in RUNTIME else name
        return Dim(names[size])

    def _fits(self, analysis: ModuleAnalysis, call: Call) -> bool:
        """Whether an analysis of one's own class holds for a call: arguments, shapes and kind of instance."""
        if analysis.given is None:
            return _binds(analysis, call, exact=True)
        own = self.session.own.get(analysis.class_name)
        if analysis.given.live:
            return own is not None and kind(own.module) == kind(call.module) and _takes(own.spec, call, {})
        spec = self._spec_of(analysis)
        if spec is None or not _binds(analysis, call, exact=True):
            return False
        return _takes(spec, call, dict(_sizes(constructor_arguments(call.module))), self.workload.dtype)

    def _spec_of(self, analysis: ModuleAnalysis) -> Spec | None:
        from lmp.pipeline.own import stored_call

        name = analysis.class_name
        if name not in self._specs:
            self._specs[name] = stored_call(analysis).spec
        return self._specs[name]

    # -- files -------------------------------------------------------------------------------------------------------

    def judged(self, analysis: ModuleAnalysis) -> Verification:
        if analysis.fixed:
            for name in [n for n in self.workload.leaves if ".".join(self.workload.leaves[n]) in analysis.fixed]:
                self.workload.fix(name)
        return super().judged(analysis)


def _plain_argument(value: Any) -> Any:
    """A constructor's argument of a run as it would be written: a symbolic size as its number."""
    if isinstance(value, torch.SymInt):
        return int(value.node._hint if value.node._hint is not None else value.node.shape_env._value(value.node.expr))
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain_argument, value))
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        made = {n: _plain_argument(getattr(value, n)) for n, f in fields.items() if f.init}
        return Construct(f"{type(value).__module__}.{type(value).__qualname__}", made)
    return value


def _sizes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The whole numbers among constructor's arguments, by the names that variables have."""
    for name, value in arguments.items():
        if isinstance(value, torch.SymInt) or (type(value) is int and value > 0):
            yield name, value
        fields = getattr(type(value), "__dataclass_fields__", None)
        if fields is not None:
            yield from _sizes({n: getattr(value, n) for n, f in fields.items() if f.init})


def _binds(analysis: ModuleAnalysis, call: Call, *, exact: bool) -> bool:
    """Whether the instance was constructed as the analysis says. ``exact`` compares floating numbers as well.

    PyTorch's own (an epsilon, a probability) decide on no path.
    """
    arguments = constructor_arguments(call.module)
    for path in analysis.parameters.values():
        root, _, rest = path.partition(".")
        if root == "init" and not _is_size(_inside(arguments, rest)):
            return False
    for name, text in analysis.fixed.items():
        first = name.split(".")[0]
        if first not in arguments:
            if exact and name in inspect.signature(type(call.module).__init__).parameters:
                return False
            continue
        value = _plain_argument(_inside(arguments, name))
        if isinstance(value, float) and not exact:
            continue
        if repr(value) != text:
            return False
    return True


def _called_alike(analysis: ModuleAnalysis, call: Call) -> bool:
    """Whether a call is like the one that a class was analysed on by itself: tensors only, equal shapes where equal."""
    parameters = inspect.signature(type(call.module).forward).parameters
    shapes: dict[str, torch.Size] = {}
    for name, value in forward_arguments(call).items():
        flat = dict(_flat(name, value))
        if not flat and name in parameters and value != parameters[name].default:
            return False
        shapes |= {n: t.shape for n, t in flat.items()}
    if set(shapes) != set(analysis.interface):
        return False
    return all(shapes[a] == shapes[b] for a in shapes for b in shapes if analysis.interface[a] == analysis.interface[b])


def _inside(arguments: Mapping[str, Any], path: str) -> Any:
    first, *rest = path.split(".")
    value = arguments.get(first.split("[")[0], _MISSING)
    for step in rest:
        value = getattr(value, step, _MISSING)
    return value


class _Missing:
    """Stands for an argument that is not known."""


_MISSING = _Missing()


def _is_size(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(v, (int, torch.SymInt)) and v == value[0] for v in value)
    return value is None or isinstance(value, (bool, int, torch.SymInt, torch.nn.Module, torch.Tensor))


def _takes(spec: Spec, call: Call, sizes: Mapping[str, Any], dtype: torch.dtype | None = None) -> bool:
    """Whether a call's inputs are those of a spec: the same arguments, dtypes, ranks, and sizes where it ties them."""
    given = {n: v for n, v in forward_arguments(call).items() if v is not None}
    if set(given) != set(spec.inputs):
        return False
    values = dict(sizes)
    for name, wanted in spec.inputs.items():
        if not isinstance(wanted, Input):
            if given[name] != wanted:
                return False
            continue
        flat = list(_flat(name, given[name]))
        expected = list(tensors({name: wanted}))
        if [n for n, _ in flat] != [n for n, _ in expected]:
            return False
        for (_, tensor), (_, shape) in zip(flat, expected, strict=True):
            if tensor.dim() != len(shape.dims) or not _same_dtype(shape.dtype, tensor.dtype, dtype):
                return False
            for dim, size in zip(shape.dims, tensor.shape, strict=True):
                if isinstance(dim.value, str) and not dim.operation and dim.value not in values:
                    values[dim.value] = size
    return all(
        dim.size(values) == size
        for name, wanted in spec.inputs.items()
        if isinstance(wanted, Input)
        for (_, tensor), (_, shape) in zip(_flat(name, given[name]), tensors({name: wanted}), strict=True)
        for dim, size in zip(shape.dims, tensor.shape, strict=True)
    )


def _same_dtype(written: str, found: torch.dtype, own: torch.dtype | None) -> bool:
    if written == "float":
        return found == own if own is not None else found.is_floating_point
    return {"int": "int64", "long": "int64"}.get(written, written) == str(found).removeprefix("torch.")


def _flat(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            yield from _flat(f"{name}[{index}]", part)
