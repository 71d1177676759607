"""Which function calls which, in small code bases written here. Expected edges are read off the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmp.codebase.facts import Selection
from lmp.codebase.graph.graph import CallGraph
from lmp.codebase.graph.values import Evaluator
from lmp.codebase.reading import read_repository


def edges(tmp_path: Path, **files: str) -> set[tuple[str, str]]:
    """``(caller, callee)`` by qualname; a file ``a__b`` is ``a/b.py``."""
    for name, text in files.items():
        path = tmp_path / (name.replace("__", "/") + (".cu" if name.endswith("_cu") else ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    facts = read_repository(tmp_path, Selection(), lambda at, of, file: None)
    graph = CallGraph(facts.graphs)
    return {(edge.caller.qualname, edge.callee.qualname) for found in graph.edges.values() for edge in found}


A = "class A:\n    def run(self):\n        pass\n\n    def other(self):\n        return 1\n"


@pytest.mark.parametrize(
    ("body", "callee"),
    [
        ("A().run()", "A.run"),
        ("a = A()\n    a.run()", "A.run"),
        ("a = [A() for _ in range(3)]\n    a[0].run()", "A.run"),
        ("for at, a in enumerate([A()]):\n        a.run()", "A.run"),
        ("table = {'a': A}\n    table['a']().run()", "A.run"),
        ("kind = A if flag else None\n    kind().run()", "A.run"),
        ("getattr(A(), 'run')()", "A.run"),
        ("getattr(A(), 'ru' + flag)()", "A.run"),
        ("functools.partial(A().run)()", "A.run"),
        ("a = A.remote(flag)\n    a.run.remote()", "A.run"),
        ("a = A.options(num_gpus=1).remote()\n    a.run.remote()", "A.run"),
        ("worker = A()\n    worker.call('run')", "A.run"),
        ("threading.Thread(target=A().run).start()", "A.run"),
        ("one, a = 1, A()\n    a.run()", "A.run"),
        ("made = types.SimpleNamespace(go=A().run)\n    made.go()", "A.run"),
        ("torch.compile(helper)()", "helper"),
        ("args = parser.parse_args()\n    parser.set_defaults(func=A().run)\n    args.func(args)", "A.run"),
    ],
)
def test_ways_to_call(tmp_path: Path, body: str, callee: str) -> None:
    helper = "def helper():\n    return 1\n"
    text = f"import functools, threading, torch, types\n{A}\n{helper}\ndef caller(flag):\n    {body}\n"
    assert ("caller", callee) in edges(tmp_path, m=text)


def test_a_place_of_a_tuple_is_kept_apart(tmp_path: Path) -> None:
    text = f"{A}\nclass B:\n    def run(self):\n        return 2\n\ndef pair():\n    return A(), B()\n"
    found = edges(tmp_path, m=text + "\ndef caller():\n    a, b = pair()\n    b.run()\n")
    assert ("caller", "B.run") in found
    assert ("caller", "A.run") not in found


def test_a_parameter_is_what_its_calls_give(tmp_path: Path) -> None:
    text = f"{A}\nclass Holder:\n    def __init__(self, a):\n        self.a = a\n"
    text += "\n    def go(self):\n        self.a.run()\n"
    assert ("Holder.go", "A.run") in edges(tmp_path, m=text + "\ndef main():\n    Holder(A()).go()\n")


def test_a_parameter_is_what_partial_gives(tmp_path: Path) -> None:
    text = f"import functools\n{A}\ndef go(x, a=None, b=None):\n    a.run()\n    b.other()\n"
    found = edges(tmp_path, m=text + "\ndef main():\n    return functools.partial(go, 1, A(), b=A())\n")
    assert {("go", "A.run"), ("go", "A.other")} <= found


def test_an_annotation_means_the_classes_below_too(tmp_path: Path) -> None:
    # What is made on the spot is of its very class.
    below = "class B(A):\n    def other(self):\n        return 2\n"
    text = f"{A}\n{below}\nclass Told:\n    a: A\n\n    def go(self):\n        self.a.other()\n"
    text += "\nclass Makes:\n    def __init__(self):\n        self.a = A()\n"
    text += "\n    def go(self):\n        self.a.other()\n"
    found = edges(tmp_path, m=text)
    assert ("Told.go", "B.other") in found
    assert ("Makes.go", "B.other") not in found


def test_a_call_on_an_interface_leads_to_what_declares_it_too(tmp_path: Path) -> None:
    text = f"{A}\nclass B(A):\n    def run(self):\n        return 2\n"
    found = edges(tmp_path, m=text + "\ndef go(a: A):\n    a.run()\n")
    assert {("go", "A.run"), ("go", "B.run")} <= found


def test_an_override_is_reached_through_its_base(tmp_path: Path) -> None:
    text = (
        "class Base:\n    def run(self):\n        self.step()\n"
        "\n    def step(self):\n        raise NotImplementedError\n"
        "\nclass Below(Base):\n    def step(self):\n        return 1\n\n    def up(self):\n        super().run()\n"
    )
    found = edges(tmp_path, m=text)
    assert ("Base.run", "Below.step") in found
    assert ("Base.run", "Base.step") not in found
    assert ("Below.up", "Base.run") in found


def test_a_config_builds_the_class_around_it(tmp_path: Path) -> None:
    text = (
        "class Part:\n    class Config:\n        def build(self):\n            return self._owner(self)\n"
        "\nclass Norm(Part):\n    class Config(Part.Config):\n        size: int = 1\n"
        "\n    def forward(self):\n        return 1\n"
        "\nclass Block:\n    class Config:\n        norm: Norm.Config\n\n    def __init__(self, config: Config):\n"
        "        self.norm = config.norm.build()\n\n    def forward(self):\n        return self.norm()\n"
    )
    assert ("Block.forward", "Norm.forward") in edges(tmp_path, m=text)


def test_an_overload_is_no_function(tmp_path: Path) -> None:
    """It tells a type checker how the function that follows may be called."""
    text = (
        "import typing\nfrom typing import overload\n\n\n@overload\ndef load(x: int) -> int: ...\n"
        "\n\n@typing.overload\ndef load(x: str) -> str: ...\n\n\ndef load(x):\n    return x\n"
        "\n\ndef main():\n    load(1)\n"
    )
    (tmp_path / "m.py").write_text(text)
    graph = CallGraph(read_repository(tmp_path, Selection(), lambda at, of, file: None).graphs)
    assert [(each.name, each.line) for each in graph.functions if each.qualname] == [("load", 13), ("main", 17)]


def test_what_is_sent_here_is_read_there(tmp_path: Path) -> None:
    front = (
        "class Front:\n    def __init__(self, port):\n        self.out = context.socket(1)\n"
        "        self.out.connect(f'tcp://{port}')\n\n    def ask(self, x):\n        self.out.send_pyobj(x)\n"
    )
    back = (
        "class Back:\n    def __init__(self, port):\n        self.inn = context.socket(2)\n"
        "        self.inn.bind(f'tcp://{port}')\n\n    def loop(self):\n        return self.inn.recv_pyobj()\n"
    )
    assert ("Front.ask", "Back.loop") in edges(tmp_path, front=front, back=back)


REGISTRY = """
TABLE, KINDS, PAIRS = {}, {}, {}


def register(name, one):
    TABLE[name] = one


def kind(name):
    def keep(one):
        KINDS[name] = one
        return one

    return keep


def pair(name, store, compute):
    PAIRS[name] = {"store": store, "compute": compute}


def get(name):
    return PAIRS[name]


def timed(one):
    def around():
        return one()

    return around


@kind("a")
class Kept:
    def run(self):
        pass


@timed
def measured():
    pass


def put():
    pass


def work():
    pass


register("helper", put)
pair("plain", put, work)


def from_table(name):
    TABLE[name]()


def from_kinds(name):
    KINDS.get(name)().run()


def by_key(name):
    get(name)["compute"]()
"""


def test_a_registry_is_filled_by_calls_and_decorators(tmp_path: Path) -> None:
    """Each of the last three functions takes one thing out of what the calls and the decorator above put in."""
    found = edges(tmp_path, m=REGISTRY)
    assert {("from_table", "put"), ("from_kinds", "Kept.run"), ("by_key", "work")} <= found
    # A key of a dictionary is kept apart from the others; what a decorator calls is no registry.
    assert not {("by_key", "put"), ("from_table", "work"), ("timed.around", "measured")} & found


def test_a_list_is_no_class_of_the_code_base(tmp_path: Path) -> None:
    text = "class Notes:\n    def append(self, x):\n        return x\n\ndef caller(items):\n    items.append(1)\n"
    assert ("caller", "Notes.append") not in edges(tmp_path, m=text)


def test_python_calls_what_cpp_binds(tmp_path: Path) -> None:
    cuda = (
        "__global__ void scale_kernel(float* x) {\n  x[0] = 2;\n}\n"
        "void ScaleRun(float* x) {\n  scale_kernel<<<1, 1>>>(x);\n}\n"
        'PYBIND11_MODULE(ops, m) {\n  m.def("scale_run", &ScaleRun);\n}\n'
    )
    python = "def scale(x):\n    module = load()\n    module.scale_run(x)\n"
    found = edges(tmp_path, lib__ops_cu=cuda, lib__scale=python)
    assert {("scale", "ScaleRun"), ("ScaleRun", "scale_kernel")} <= found


def test_a_method_that_python_has_not_is_the_c_function_of_its_name(tmp_path: Path) -> None:
    # ``self.toy_lm_eval`` is handed on by ``__getattr__`` to the library that ctypes loads; ``eval`` says too little.
    native = "int toy_lm_eval(int n) {\n  return n;\n}\nint eval(int n) {\n  return n;\n}\n"
    python = (
        "import ctypes\n\nclass Model:\n    def __init__(self):\n        self.lib = ctypes.CDLL('toy.so')\n"
        "\n    def __getattr__(self, name):\n        return getattr(self.lib, name)\n"
        "\n    def run(self, n):\n        self.eval(n)\n        return self.toy_lm_eval(n)\n"
    )
    found = edges(tmp_path, toy_cu=native, model=python)
    assert {callee for caller, callee in found if caller == "Model.run"} == {"toy_lm_eval"}


def test_a_virtual_method_of_cpp_leads_to_what_overrides_it(tmp_path: Path) -> None:
    text = (
        "struct Memory {\n  virtual int find(int n) = 0;\n};\nstruct Ring : public Memory {\n  int find(int n) {\n"
        "    return n;\n  }\n};\nint decode(Memory * memory) {\n  return memory->find(1);\n}\n"
    )
    assert ("decode", "Ring.find") in edges(tmp_path, m_cu=text)


def test_a_class_that_is_handed_on_makes_its_objects_and_those_of_classes_below(tmp_path: Path) -> None:
    text = (
        "class Base:\n    def run(self):\n        raise NotImplementedError\n"
        "\nclass Below(Base):\n    def run(self):\n        return 1\n"
        "\ndef caller(kind: type[Base]):\n    kind().run()\n"
    )
    assert ("caller", "Below.run") in edges(tmp_path, m=text)


def test_a_parameter_that_no_call_gives_is_its_default(tmp_path: Path) -> None:
    text = f"{A}\nclass Holder:\n    def __init__(self, *, kind=A):\n        self.a = kind()\n"
    text += "\n    def go(self):\n        self.a.other()\n"
    assert ("Holder.go", "A.other") in edges(tmp_path, m=text)


def test_what_a_package_hands_out_counts_before_its_module_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from pkg.fill import fill\n")
    use = "from pkg import fill\n\ndef caller():\n    fill()\n"
    assert ("caller", "fill") in edges(tmp_path, pkg__fill="def fill():\n    return 1\n", use=use)


def test_a_method_is_called_elsewhere_by_its_literal_name(tmp_path: Path) -> None:
    text = (
        "class Worker:\n    def execute_model(self):\n        return 1\n"
        "\nclass Executor:\n    def step(self):\n        self.collective_rpc('execute_model')\n"
    )
    assert ("Executor.step", "Worker.execute_model") in edges(tmp_path, m=text)


def test_an_unknown_layer_is_the_module_of_the_file_that_has_its_name(tmp_path: Path) -> None:
    text = (
        "class ToyLayer:\n    def forward(self, x):\n        return x\n"
        "\nclass ToyNorm:\n    def forward(self, x):\n        return x\n"
        "\nclass ToyModel:\n    def forward(self, x):\n        for layer in self.found():\n            x = layer(x)\n"
    )
    found = edges(tmp_path, m=text)
    assert ("ToyModel.forward", "ToyLayer.forward") in found
    assert ("ToyModel.forward", "ToyNorm.forward") not in found


def test_what_compiles_a_function_does_not_run_it(tmp_path: Path) -> None:
    text = "import torch\n\ndef step():\n    return 1\n\ndef setup():\n    torch.compile(step)\n"
    assert ("setup", "step") not in edges(tmp_path, m=text)


def test_an_extension_of_the_code_base_is_called_through_its_module(tmp_path: Path) -> None:
    # The built module is no file of the code base: only the name that is bound tells what is called. The bracket of a
    # call may stand on the next line.
    native = """struct Attn { void run(int x); };
void Attn::run(int x) { int y = x; }
void attn_forward(long handle, int x)
{
    Attn* attn = reinterpret_cast<Attn*> (handle);
    attn->run
    (
        x
    );
}
PYBIND11_MODULE(ext, m) { m.def("attn_forward", &attn_forward, "attention"); }
"""
    python = "import fast_ext as ext\n\ndef forward(handle, x):\n    return ext.attn_forward(handle, x)\n"
    found = edges(tmp_path, m=python, ext_cu=native)
    assert {("forward", "attn_forward"), ("attn_forward", "Attn.run")} <= found


def test_a_queue_is_found_through_a_property_of_another_object(tmp_path: Path) -> None:
    text = """import queue

class Manager:
    def __init__(self):
        self.requests = queue.Queue()

    def take(self):
        return self.requests.get()

class Sender:
    def __init__(self, manager: Manager):
        self.manager = manager

    @property
    def outbox(self):
        return self.manager.requests

    def hand_over(self, request):
        self.outbox.put(request)
"""
    assert ("Sender.hand_over", "Manager.take") in edges(tmp_path, m=text)


def test_what_a_class_keeps_itself(tmp_path: Path) -> None:
    engine = """from parts import First, Second

class Hub:
    part = None

def build(kind):
    return First() if kind else Second()

def begin(kind):
    Hub.part = build(kind)
"""
    parts = "class First:\n    def step(self):\n        pass\n\nclass Second:\n    def step(self):\n        pass\n"
    use = """from engine import Hub as H
from jobs import Jobs as J

def run(job):
    J.add(job)
    H.part.step()
"""
    jobs = "class Jobs:\n    kept = []\n\n    def add(job):\n        Jobs.kept.append(job)\n"
    found = edges(tmp_path, engine=engine, parts=parts, use=use, jobs=jobs)
    # The names ``H`` and ``J`` say nothing: a call through them leads where the class does, or what was set on it.
    assert {to for caller, to in found if caller == "run"} == {"Jobs.add", "First.step", "Second.step"}


def test_a_module_that_imports_its_own_name_means_another_package(tmp_path: Path) -> None:
    torch = "import torch\n\ndef load():\n    return torch.load('x')\n\ndef zeros():\n    return 0\n"
    use = "import torch\n\ndef caller():\n    torch.zeros()\n"
    assert edges(tmp_path, pkg__torch=torch, pkg__use=use) == set()


def test_a_queue_that_is_handed_to_two_processes_under_two_names_leads_from_one_to_the_other(tmp_path: Path) -> None:
    main = (
        "import multiprocessing as mp\nfrom runs import manager, worker, other\n\ndef start():\n"
        "    to_worker = mp.Queue()\n    back = mp.Queue()\n"
        "    mp.Process(target=manager, kwargs={'out': to_worker})\n"
        "    mp.Process(target=worker, kwargs={'given': to_worker})\n"
        "    mp.Process(target=other, kwargs={'back': back})\n"
    )
    runs = (
        "def manager(out):\n    out.put(1)\n\ndef worker(given):\n    def step():\n        return given.get()\n"
        "    return step()\n\ndef other(back):\n    return back.get()\n"
    )
    found = edges(tmp_path, main=main, runs=runs)
    # What the inner function takes is work of the one around it; ``back`` is another queue.
    assert {callee for caller, callee in found if caller == "manager"} == {"worker", "worker.step"}


def test_names_that_lead_in_circles_are_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten names that each may be any other: a way through all of them visits one of 10 * 9 * 8 * ... orders.

    What is kept while the names around it are open leaves one visit for each name and set of open names: 10 * 2 ** 9
    at most, each of the chains `self` and `self.n`, and three times that with the constructor's and the call's own.
    """
    looked = 0
    plain = Evaluator._chain

    def counted(self: Evaluator, *arguments: Any) -> Any:
        nonlocal looked
        looked += 1
        return plain(self, *arguments)

    monkeypatch.setattr(Evaluator, "_chain", counted)
    names = [f"n{number}" for number in range(10)]
    kept = [f"        self.{one} = {' or '.join(f'self.{each}' for each in names if each != one)}" for one in names]
    made = "\n".join(["    def __init__(self):", "        self.n0 = A()", *kept])
    text = f"{A}\nclass Net:\n{made}\n\n    def go(self):\n        self.n9.run()\n"
    assert ("Net.go", "A.run") in edges(tmp_path, net=text)
    assert looked < 10 * 2**9 * 3


def test_a_function_that_takes_less_than_a_call_gives_is_not_called(tmp_path: Path) -> None:
    text = (
        "import torch\n\nclass Own:\n    def step(self):\n        pass\n\n"
        "class Wide:\n    def step(self, loss, *rest, scale=1):\n        pass\n\n"
        "def train(flag, loss, options):\n"
        "    one = torch.optim.SGD(loss) if flag else Own()\n    one.step(loss)\n"
        "    other = Wide()\n    other.step(loss, 1, 2, scale=2, **options)\n    Own.step(other)\n"
    )
    # `Own.step` has no place for the loss; called on its class, it is given its object.
    assert edges(tmp_path, net=text) == {("train", "Wide.step"), ("train", "Own.step")}
    assert ("train", "Own.step") not in edges(tmp_path, net=text.replace("    Own.step(other)\n", ""))


def test_a_method_of_a_class_makes_it_by_cls(tmp_path: Path) -> None:
    text = (
        f"{A}\nclass Holder:\n    @classmethod\n    def made(cls, thing):\n        return cls(thing)\n\n"
        "    def __init__(self, thing):\n        self.thing = thing\n\n"
        "    def go(self):\n        self.thing.run()\n\ndef main():\n    Holder.made(A())\n"
    )
    assert ("Holder.go", "A.run") in edges(tmp_path, net=text)


def test_what_is_only_looked_at_is_not_run(tmp_path: Path) -> None:
    text = (
        f"import inspect\n\n{A}\n"
        "def takes(function, name):\n    return name in inspect.signature(function).parameters\n\n"
        "def checked(function, name):\n    called(function)\n    return takes(function, name)\n\n"
        "def called(function):\n    return getattr(function, '__name__', 'none')\n\n"
        "def run(function):\n    return function()\n\n"
        "def main():\n    checked(A().run, 'x')\n    run(A().other)\n"
    )
    found = edges(tmp_path, net=text)
    assert not {edge for edge in found if edge[1] == "A.run"}
    assert {("main", "A.other"), ("run", "A.other")} <= found


def test_what_a_mapping_gives_back_is_no_function(tmp_path: Path) -> None:
    # `rows.map(tokenize)` gives rows: only that call runs the function, not `len(done)`, `keep(done)`, `keep(rows)`.
    text = (
        "import datasets\n\ndef tokenize(row):\n    return row\n\ndef keep(rows):\n    return print(rows)\n\n"
        "def prepare(path):\n    rows = datasets.load(path)\n"
        "    done = rows.map(tokenize)\n    keep(done)\n    len(done)\n"
    )
    assert edges(tmp_path, m=text) == {("prepare", "tokenize"), ("prepare", "keep")}


def test_an_own_record_calls_nothing_of_what_it_is_given(tmp_path: Path) -> None:
    # A dataclass keeps the class; only an object of another package, or a class that builds on one, calls its methods.
    text = (
        "import torch\nfrom dataclasses import dataclass\n\nclass Linear(torch.nn.Module):\n    def extra(self):\n"
        "        return 1\n\n@dataclass\nclass Parts:\n    up: type\n\nclass Made(torch.nn.Module):\n    pass\n\n"
        "def spec():\n    return Parts(up=Linear)\n\ndef model():\n    return Made(Linear)\n"
    )
    assert edges(tmp_path, m=text) == {("model", "Linear.extra")}


def test_a_parameter_called_cls_is_not_the_class_around(tmp_path: Path) -> None:
    # Only the first parameter of a method is its object or class, and of a static method none.
    text = (
        f"{A}\nclass Maker:\n    def __init__(self, cls: type[A]):\n        self.cls = cls\n\n"
        "    def go(self):\n        self.cls().run()\n        self.make(A, 1)\n\n"
        "    @staticmethod\n    def make(cls, size):\n        return cls().other()\n"
    )
    found = edges(tmp_path, m=text)
    assert found == {("Maker.go", "A.run"), ("Maker.go", "Maker.make"), ("Maker.make", "A.other")}


def test_a_method_is_looked_for_in_what_is_mixed_in_beside_the_class(tmp_path: Path) -> None:
    text = (
        "class Base:\n    def go(self):\n        self.patch()\n        self.size.bit()\n\n"
        "class Mixin:\n    def patch(self):\n        return 1\n\n"
        "    @property\n    def size(self):\n        return Size()\n\n"
        "class Size:\n    def bit(self):\n        return 2\n\nclass Both(Mixin, Base):\n    pass\n"
    )
    assert edges(tmp_path, m=text) == {("Base.go", "Mixin.patch"), ("Base.go", "Size.bit")}


def test_a_call_by_name_is_neither_the_caller_nor_a_bound_function(tmp_path: Path) -> None:
    # `self.inner.fold_up()` is of whatever it wraps. `layer.unpack()` is a method that a class of Python has; the
    # extension's function of that name is called on the extension, and a parameter is no name of it.
    python = (
        "import ext\n\nclass Wrap:\n    def fold_up(self):\n        return self.inner.fold_up()\n\n"
        "class Layer:\n    def unpack(self):\n        return ext.unpack(1)\n\n"
        "def one(layer, unpack):\n    layer.unpack()\n    unpack()\n"
    )
    native = 'int unpack(int a) { return a; }\nPYBIND11_MODULE(ext, m) { m.def("unpack", &unpack, "unpack"); }\n'
    assert edges(tmp_path, m=python, ext_cu=native) == {("one", "Layer.unpack"), ("Layer.unpack", "unpack")}


def test_a_factory_makes_an_object_of_the_class_that_it_is_given(tmp_path: Path) -> None:
    # A function is given back as it is, of a class an object is made: calling that runs `forward`, and makes nothing.
    text = (
        "import types\n\nclass Up:\n    def __init__(self):\n        pass\n\n"
        "    def forward(self, x):\n        return x\n\n"
        "def act(x):\n    return x\n\ndef build(kind, *rest):\n    if isinstance(kind, types.FunctionType):\n"
        "        return kind\n    if isinstance(kind, type):\n        module = kind\n    return module(*rest)\n\n"
        "def run(x):\n    up = build(Up)\n    down = build(act)\n    return down(up(x))\n"
    )
    found = {edge for edge in edges(tmp_path, m=text) if edge[0] == "run"}
    assert found == {("run", "build"), ("run", "act"), ("run", "Up.forward")}


def test_what_is_run_under_a_checkpoint_is_not_given_back(tmp_path: Path) -> None:
    # `checkpoint` of torch runs the function and gives its result, that of jax wraps it.
    text = (
        f"import jax\nfrom torch.utils.checkpoint import checkpoint\n\n{A}\ndef make(x):\n    return A()\n\n"
        "def again(x):\n    made = checkpoint(make, x)\n    print(made)\n    made.run()\n\n"
        "def wrapped(x):\n    function = jax.checkpoint(make)\n    function(x).other()\n"
    )
    found = edges(tmp_path, m=text)
    assert found == {("again", "make"), ("again", "A.run"), ("wrapped", "make"), ("wrapped", "A.other")}


def test_what_a_known_class_lacks_is_not_looked_for_by_name(tmp_path: Path) -> None:
    # `trainer` is a Tuner, whose `train_model` is that of the package it builds on; `other` may be any object. What
    # every module of torch has (`state_dict`) and what `type(x)` makes names no class.
    text = (
        "from trainers import Trainer\n\nclass Tuner(Trainer):\n    def tune(self):\n        pass\n\n"
        "class Other:\n    def train_model(self):\n        pass\n\n    def state_dict(self):\n        pass\n\n"
        "    def type(self):\n        pass\n\n"
        "def main(other, size):\n    trainer = Tuner()\n    trainer.train_model()\n    size.state_dict()\n"
        "    type(size)(1)\n\ndef rest(other):\n    other.train_model()\n"
    )
    assert edges(tmp_path, m=text) == {("rest", "Other.train_model")}


def test_an_attribute_that_others_set_is_what_the_object_calls(tmp_path: Path) -> None:
    # `net.cache` is set from outside; `layer` and the `self` of a function that is put in place are not known, and mean
    # what some object is given under the name. `forward` says nothing; of `Other` nothing is set.
    text = (
        f"import types\n\n{A}\nclass Net:\n    def step(self):\n        self.cache.run()\n\n"
        "class Other:\n    def step(self):\n        self.cache.run()\n\n"
        "def patched(self):\n    self.apply_all(1)\n\ndef every(self, x):\n    return x\n\n"
        "def patch(layers):\n    net = Net()\n    net.cache = A()\n    for layer in layers:\n"
        "        layer.apply_all = every.__get__(layer)\n        layer.forward = types.MethodType(every, layer)\n\n"
        "def use(layer):\n    layer.forward(1)\n"
    )
    found = edges(tmp_path, m=text)
    assert {("Net.step", "A.run"), ("patched", "every")} <= found
    assert not {edge for edge in found if edge[0] in ("Other.step", "use")}


def test_calling_the_class_above_a_module_runs_its_own_forward(tmp_path: Path) -> None:
    text = (
        "import torch\n\nclass Norm(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n"
        "class Layer(torch.nn.Module):\n    def __init__(self):\n        self.norm = Norm()\n\n"
        "    def forward(self, x):\n        return x\n\n"
        "    def __call__(self, x):\n        return super().__call__(x)\n"
    )
    assert ("Layer.__call__", "Layer.forward") in edges(tmp_path, m=text)
    assert ("Layer.__call__", "Norm.forward") not in edges(tmp_path, m=text)


@pytest.mark.parametrize(
    "body",
    [
        # What `with` gives is what the object's `__enter__` returns, or what a generator yields.
        "with Entered() as a:\n        a.run()",
        "with entered() as a:\n        a.run()",
        "for a in every():\n        a.run()",
        "next(iter([A()])).run()",
        "max([A()], key=len).run()",
        "if isinstance(flag, A):\n        flag.run()",
    ],
)
def test_what_is_entered_yielded_taken_out_and_tested(tmp_path: Path, body: str) -> None:
    text = (
        f"import contextlib\n\n{A}\nclass Other:\n    def run(self):\n        pass\n\n"
        "class Entered:\n    def __enter__(self):\n        return A()\n\n"
        "@contextlib.contextmanager\ndef entered():\n    yield A()\n\ndef every():\n    yield A()\n\n"
        f"def caller(flag):\n    {body}\n"
    )
    found = edges(tmp_path, m=text)
    assert ("caller", "A.run") in found
    assert ("caller", "Other.run") not in found


def test_a_constructor_is_given_what_a_class_below_hands_on(tmp_path: Path) -> None:
    # `kind` has a plain choice of its own: what a class below hands on in its place is a matter of that class.
    text = (
        f"{A}\nclass B:\n    def run(self):\n        pass\n\nclass Base:\n    def __init__(self, part, kind=A):\n"
        "        self.part = part\n        self.kind = kind\n\n    def go(self):\n        self.part.run()\n"
        "        self.kind().run()\n\nclass Below(Base):\n    def __init__(self):\n        super().__init__(A(), B)\n"
    )
    found = {callee for caller, callee in edges(tmp_path, m=text) if caller == "Base.go"}
    assert found == {"A.run"}


def test_an_object_that_builds_on_nothing_else_is_not_of_another_packages_class(tmp_path: Path) -> None:
    # `optimizer` is wrapped under its own name: the inner one is that of torch, as the annotation says.
    text = (
        "import torch\n\nclass Scaled:\n    def __init__(self, optimizer: torch.optim.Optimizer):\n"
        "        self.optimizer = optimizer\n\n    def advance(self):\n        self.optimizer.advance()\n\n"
        "def build(flag):\n    optimizer = torch.optim.Adam()\n    optimizer = Scaled(optimizer)\n"
        "    optimizer = Scaled(optimizer)\n    return optimizer.advance()\n"
    )
    assert edges(tmp_path, m=text) == {("build", "Scaled.__init__"), ("build", "Scaled.advance")}


def test_of_several_what_says_nothing_is_not_called(tmp_path: Path) -> None:
    # `Nothing` stands in for a cache that is not there; alone it would be what the call means.
    text = (
        "class Real:\n    def fill(self):\n        return 1\n\nclass Nothing:\n    def fill(self):\n        pass\n\n"
        "def many(flag):\n    cache = Real() if flag else Nothing()\n    cache.fill()\n\n"
        "def one():\n    Nothing().fill()\n"
    )
    assert edges(tmp_path, m=text) == {("many", "Real.fill"), ("one", "Nothing.fill")}


@pytest.mark.parametrize("name", ["__init__", "__post_init__", "__new__"])
def test_making_an_object_runs_what_sets_it_up(tmp_path: Path, name: str) -> None:
    text = f"class Made:\n    def {name}(self):\n        return 1\n\ndef make():\n    return Made()\n"
    assert edges(tmp_path, m=text) == {("make", f"Made.{name}")}


@pytest.mark.parametrize(
    ("written", "called"),
    [
        ('import_module("net.tools.first")', {"first_run"}),
        ('import_module(f".{name}", "net.tools")', {"first_run", "second_run"}),
        ('import_module(".tools." + name, package=__package__)', {"first_run", "second_run"}),
        ('import_module(f"net.tools.sec{name}")', {"second_run"}),
        # Nothing of the name is known, or it is of another package.
        ("import_module(name)", set()),
        ('import_module(f"elsewhere.{name}")', set()),
        ('import_module(f"..{name}", "net.tools")', set()),
    ],
)
def test_a_module_that_is_imported_by_its_name(tmp_path: Path, written: str, called: set[str]) -> None:
    text = f"from importlib import import_module\n\ndef main(name):\n    part = {written}\n"
    text += "    part.run(1)\n"
    parts = {
        f"net__tools__{name}": f"def run(x):\n    {name}_run(x)\n\ndef {name}_run(x):\n    return x\n"
        for name in ("first", "second")
    }
    parts["net__other__third"] = "def run(x):\n    third_run(x)\n\ndef third_run(x):\n    return x\n"
    found = edges(tmp_path, net__main=text, **parts)
    runs = {callee for caller, callee in found if caller == "main"}
    assert runs == ({"run"} if called else set())
    graph = CallGraph(read_repository(tmp_path, Selection(), lambda at, of, file: None).graphs)
    files = {edge.callee.file for each in graph.edges.values() for edge in each if edge.caller.name == "main"}
    assert files == {f"net/tools/{name.removesuffix('_run')}.py" for name in called}


def test_functions_of_a_module_that_begin_alike(tmp_path: Path) -> None:
    text = "from net import part\n\ndef main(kind):\n    getattr(part, f'run_{kind}')(1)\n"
    part = "def run_a(x):\n    return x\n\ndef run_b(x):\n    return x\n\ndef other(x):\n    return x\n"
    assert edges(tmp_path, net__main=text, net__part=part) == {("main", "run_a"), ("main", "run_b")}


@pytest.mark.parametrize(
    ("annotation", "body", "callee"),
    [
        ("Dict[str, A]", "self.parts[key].run()", "A.run"),
        ("OrderedDict[Tuple[int, int], A]", "self.parts[key].run()", "A.run"),
        ("Dict[str, List[A]]", "self.parts[key][0].run()", "A.run"),
        ("Dict[A, int]", "self.parts[key].run()", ""),
        # It says nothing of its elements, and ends no report.
        ("Dict[()]", "self.parts[key].run()", ""),
        ("Tuple[int, A]", "self.parts[1].run()", "A.run"),
        ("Tuple[int, A]", "self.parts[0].run()", ""),
        ("tuple[A, ...]", "self.parts[3].run()", "A.run"),
    ],
)
def test_what_an_annotation_says_of_elements(tmp_path: Path, annotation: str, body: str, callee: str) -> None:
    # `B` has a method of the same name, so that the name alone tells nothing.
    other = "class B:\n    def run(self):\n        return 2\n"
    holder = f"class C:\n    def __init__(self):\n        self.parts: {annotation} = {{}}\n\n    def go(self, key):\n"
    found = {to for by, to in edges(tmp_path, m=f"{A}\n{other}\n{holder}        {body}\n") if by == "C.go"}
    assert found == ({callee} if callee else set())


@pytest.mark.parametrize("kind", ["'ray.actor.ActorHandle'", "Any"])
def test_a_handle_of_an_actor_is_known_by_what_is_called(tmp_path: Path, kind: str) -> None:
    worker = "class Worker:\n    def load_part_of_state(self, name):\n        return name\n"
    other = "class Other:\n    def remote(self):\n        return 1\n"
    text = f"import ray\nfrom typing import Any\n\n{worker}\n{other}\ndef go(handle: {kind}):\n"
    text += "    handle.load_part_of_state.remote('a')\n"
    assert edges(tmp_path, m=text) == {("go", "Worker.load_part_of_state")}


def test_an_object_of_another_packages_class_calls_nothing_of_a_like_name(tmp_path: Path) -> None:
    # `Model` here is a module of the code base's own; what is called is that of transformers.
    own = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    text = (
        f"{own}\nfrom transformers import LlamaModel\n\nclass Backend(torch.nn.Module):\n"
        "    def __init__(self, model: LlamaModel):\n        self.model = model\n\n"
        "    def forward(self, x):\n        return self.model(x)\n"
    )
    assert ("Backend.forward", "Model.forward") not in edges(tmp_path, m=text)
    assert ("Backend.forward", "Model.forward") in edges(tmp_path, m=text.replace(": LlamaModel", ""))


def test_an_operator_of_torch_runs_what_is_registered_for_it(tmp_path: Path) -> None:
    # Each full name has implementations of its own; `fake` only tells shapes, and `other.scale` is never called.
    text = (
        "import torch\n\ntorch.library.define('net::scale', '(Tensor x) -> Tensor')\n\n"
        "@torch.library.impl('net::scale', 'default')\ndef scale_plain(x):\n    return x\n\n"
        "@torch.library.impl('net::scale', 'CUDA')\ndef scale_cuda(x):\n    return x\n\n"
        "@torch.library.impl('other::scale', 'CPU')\ndef scale_other(x):\n    return x\n\n"
        "@torch.library.custom_op('net::shift', mutates_args=())\ndef shift_all(x):\n    return x\n\n"
        "@torch.library.register_fake('net::shift')\ndef fake(x):\n    return x\n\n"
        "def masked(x):\n    return x\n\nregister_custom_op(op_name='masked', op_func=masked)\n\n"
        "def run(x):\n    x = torch.ops.net.scale(x)\n    x = torch.ops.net.shift.default(x)\n"
        "    return torch.ops.net.masked(x)\n"
    )
    found = {callee for caller, callee in edges(tmp_path, m=text) if caller == "run"}
    assert found == {"scale_plain", "scale_cuda", "shift_all", "masked"}
