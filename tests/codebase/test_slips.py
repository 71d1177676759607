"""What functions take and lose, or use where it may not be there: each expectation follows from reading the lines."""

from __future__ import annotations

from pathlib import Path

from lmp.codebase.facts import Place, Selection
from lmp.codebase.reading import read_repository
from lmp.codebase.roles.pitfalls import pitfalls
from lmp.codebase.roles.reach import Reading, Row


def slips(folder: Path, text: str, *kinds: str) -> set[tuple[str, int]]:
    (folder / "a.py").write_text(text)
    facts = read_repository(folder, Selection(), lambda at, of, file: None)
    every = (each for one in facts.graphs["a.py"].functions for each in one.hazards)
    return {(each.kind, each.line) for each in every if each.kind in kinds}


def told(folder: Path, **files: str) -> set[tuple[str, str, int]]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    reading = Reading(read_repository(folder, Selection(), lambda at, of, file: None))
    return {
        (one.kind, one.cause.file, one.cause.line) for each in pitfalls(reading, [], []) for one in (each, *each.more)
    }


def test_a_name_that_a_failed_import_leaves(tmp_path: Path) -> None:
    # Line 3 of the file leaves `fast` None and `slow` unset. Lines 15 and 16 use both without a test; line 20 stands in
    # a function that asks for `fast`; `quick` has another value where its import fails, and `sure` ends the import.
    text = """try:
    from kernels import fast, slow
except ImportError:
    fast = None
try:
    import quick
except ImportError:
    quick = object()
try:
    import sure
except ImportError:
    raise SystemExit

def run(x):
    x = fast(x)
    return slow.apply(x) + quick.apply(x) + sure.apply(x)

def asks(x):
    if fast is not None:
        return fast(x)
    return x
"""
    assert slips(tmp_path, text, "absent") == {("absent", 15), ("absent", 16)}


def test_arguments_that_are_taken_and_lost(tmp_path: Path) -> None:
    # `forward` never reads **kwargs nor scale; `hands` hands its own on. Of a class with a base, the interface may ask.
    text = """def forward(x, scale=1.0, **kwargs):
    return x

def hands(x, **kwargs):
    return forward(x, **kwargs)

class Layer(Base):
    def forward(self, x, scale=1.0):
        return x
"""
    found = slips(tmp_path, text, "swallowed", "unread")
    assert found == {("swallowed", 1), ("unread", 1)}


def test_settings_that_are_none_or_zero(tmp_path: Path) -> None:
    # Line 2 compares what may be None; line 7 stands behind a test of it. Line 8 takes 0 for what is not given; line 9
    # is no number, and line 10 gives zero for none.
    text = """def runs(step, most=None):
    return step > most

def asks(step, most=None, seed=None, scale=None):
    if most is None:
        return True
    end = step > most
    seed = seed or 7
    scale = scale or Identity()
    return end or (seed or 0)
"""
    found = slips(tmp_path, text, "compares none", "zero is unset")
    assert found == {("compares none", 2), ("zero is unset", 8)}


def test_a_temperature_that_is_divided_by(tmp_path: Path) -> None:
    # Line 2 divides whatever it is. Line 5 asks only whether it is 1, so that line 6 may divide by 0; line 10 does not.
    text = """def draw(logits, temperature):
    return logits / temperature

def scaled(logits, temperature):
    if temperature != 1.0:
        logits = logits / temperature
    return logits

def greedy(logits, temperature):
    return logits / temperature if temperature > 0 else logits
"""
    assert slips(tmp_path, text, "divides") == {("divides", 2), ("divides", 6)}


def test_methods_that_do_not_do_what_they_are_named(tmp_path: Path) -> None:
    # `cuda` moves nothing, `to` does. What `__enter__` of Timer returns is nothing, of File it is the object.
    text = """class Layer:
    def cuda(self, device=0):
        return self

    def to(self, device):
        self.weight = self.weight.to(device)
        return self

class Timer:
    def __enter__(self):
        self.begun = now()

class File:
    def __enter__(self):
        return self
"""
    assert slips(tmp_path, text, "does nothing", "enters none") == {("does nothing", 2), ("enters none", 10)}


def test_values_that_stand_in_the_code_of_a_call(tmp_path: Path) -> None:
    # Line 2: top_p gets top_k. Line 3: code of the repository is run. Lines 4 and 5: device and type stand there. Line
    # 6 asks whether there is CUDA. Line 7: the list holds one layer many times; line 8 makes each. Line 9: a table.
    text = """def load(model, options, count, kind):
    model.generate(top_p=options.top_k, min_p=options.min_p)
    AutoModel.from_pretrained("x", trust_remote_code=True)
    model.to("cuda")
    model.half()
    torch.empty(1, device="cuda" if torch.cuda.is_available() else "cpu")
    layers = nn.Sequential(*([Block(4)] * count))
    other = nn.Sequential(*[Block(4) for _ in range(count)])
    return ACTS[kind], layers, other
"""
    kinds = ("crossed", "remote code", "cuda", "half", "one object", "key")
    assert slips(tmp_path, text, *kinds) == {(kind, line) for kind, line in zip(kinds, (2, 3, 4, 5, 7, 9), strict=True)}


def test_calls_that_do_not_give_all(tmp_path: Path) -> None:
    # Line 8: patch needs config. Line 9: Cache needs size beside the object. Lines 10 and 11 give all that is needed.
    text = """def patch(model, config, deep=1):
    return model

class Cache:
    def __init__(self, size): self.size = size

def run(model, given):
    patch(model)
    Cache()
    patch(model, config=1)
    patch(*given)
"""
    assert {each for each in told(tmp_path, a=text) if each[0] == "lacks"} == {
        ("lacks", "a.py", 8),
        ("lacks", "a.py", 9),
    }


def test_what_a_build_needs(tmp_path: Path) -> None:
    # setup.py imports torch, which no build requirement names, and wheel, which one names.
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools", "wheel"]\n')
    found = told(
        tmp_path, setup="import os\nimport torch\nimport wheel\nfrom setuptools import setup\nsetup(name='x')\n"
    )
    assert {each for each in found if each[0] == "setup needs"} == {("setup needs", "setup.py", 2)}


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    # The package has models/base.py and no models/timm.py.
    for name, text in (("__init__", ""), ("models/__init__", ""), ("models/base", "X = 1\n")):
        at = tmp_path / "pack" / f"{name}.py"
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
    (tmp_path / "pack" / "engine.py").write_text("from .models.base import X\nfrom .models.timm.vit import Y\n")
    found = {each for each in told(tmp_path) if each[0] == "import"}
    assert found == {("import", "pack/engine.py", 2)}


def test_what_the_import_of_a_module_needs_and_does(tmp_path: Path) -> None:
    # Line 5 ends the import; line 8 sets a function of another package; line 9 opens what lies in the folder of the
    # command, but line 10 an own path. Lines 11 and 12 need a device, line 14 when the class is made. Line 15 takes 0
    # for not given. What a function does (line 18) is no matter of the import.
    text = """import torch
try:
    import fast
except ImportError:
    raise ImportError("install fast")
from tools import models

models.Layer.forward = lambda x: x
WORDS = open("words.txt").read()
OTHERS = open("/usr/share/words.txt").read()
ROWS = torch.arange(8, device="cuda")
NAME = torch.cuda.get_device_name()
class Options:
    device = field(default_factory=torch.cuda.current_device)
scale = args.scale or 2.0

def asks():
    return torch.cuda.current_device()
"""
    found = slips(tmp_path, text, "import ends", "process", "path", "cuda", "zero is unset")
    assert found == {
        *(("import ends", 5), ("process", 8), ("path", 9), ("zero is unset", 15)),
        *(("cuda", 11), ("cuda", 12), ("cuda", 14)),
    }


def test_what_a_dictionary_gives_by_its_name(tmp_path: Path) -> None:
    # As of keywords: line 3 gives min_p the value of top_p, lines 4 and 5 what no setting changes.
    text = """def asks(config):
    return send({"top_p": config.top_p,
        "min_p": config.top_p,
        "dtype": "bfloat16",
        "trust_remote_code": True})
"""
    assert slips(tmp_path, text, "crossed", "half", "remote code") == {("crossed", 3), ("half", 4), ("remote code", 5)}


def test_one_object_many_times_beside_others(tmp_path: Path) -> None:
    # Line 2 repeats one block, and has another argument beside it; line 3 makes each.
    text = """def makes(n):
    first = Sequential(*([Block()] * n), Linear())
    return first, Sequential(*[Block() for _ in range(n)], Linear())
"""
    assert slips(tmp_path, text, "one object") == {("one object", 2)}


def test_what_a_build_asks(tmp_path: Path) -> None:
    # setup.py opens words.txt, which is there, and needs.txt, which is not. Its variable is read in every build anew.
    # The program of line 6 may be missing.
    (tmp_path / "words.txt").write_text("")
    text = """import os
words = open("words.txt").read()
needs = open("needs.txt").read()
FORCE = os.getenv("FORCE")
def compiles():
    os.system("make")
"""
    assert told(tmp_path, setup=text) == {("path", "setup.py", 3), ("program", "setup.py", 6)}


def test_what_is_much_alike_comes_last(tmp_path: Path) -> None:
    # Four files refuse the same: three are told, then what one file alone has, and the fourth behind it.
    same = "def checks(x):\n    assert x.dim() == 2\n"
    (tmp_path / "z.py").write_text("def other(y):\n    assert y.size == 7\n")
    for name in "abcd":
        (tmp_path / f"{name}.py").write_text(same)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    assert [each.place.file for each in pitfalls(reading, [], [])] == ["a.py", "b.py", "c.py", "z.py", "d.py"]


def test_work_that_is_replaced_before_anything_reads_it(tmp_path: Path) -> None:
    # Both branches above line 6 are lost; the second name of 12 is lost where 13 should have added to it. What line 14
    # sets is read in 15, the first value of 17 is no work, and between 20 and 23 the loop may read or end. Lines 25 and
    # 26 leave the first item out.
    text = """def draw(logits, temperature):
    if temperature == 0:
        token = logits.argmax(-1)
    else:
        token = categorical(logits / temperature)
    token = argmax(logits)
    if token:
        return token
    return None

def ping(first, second):
    servers = set(first)
    servers = set(second)
    both = len(servers)
    both = both + 1
    print(both)
    token = None
    token = max(first)
    print(token)
    best = min(first)
    for each in second:
        print(best)
    best = max(second)
    print(best)
    one = next(first)
    one = next(first)
    return one
"""
    assert slips(tmp_path, text, "dead store") == {("dead store", 5), ("dead store", 12)}


def test_what_only_a_type_checker_imports_is_never_missing(tmp_path: Path) -> None:
    # Line 6 asks `part` for a name that it has not; lines 4 and 5 never run.
    text = (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from .part import Model\n    from .none import X\n"
    )
    text += "from .part import Engine\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "__init__.py").write_text("")
    (tmp_path / "net" / "part.py").write_text("class Other:\n    def run(self):\n        return 1\n")
    (tmp_path / "net" / "main.py").write_text(text)
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    causes = [each.cause.line for each in pitfalls(reading, [], []) if each.kind == "import"]
    assert causes == [6]


def test_a_package_that_no_file_of_the_build_names(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "net"\ndependencies = ["a", "b", "c"]\n')
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "__init__.py").write_text("")
    (tmp_path / "net" / "main.py").write_text("import einops\n\ndef run(x):\n    return einops.rearrange(x)\n")
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    run = Row("entry_points", "library", "run", Place("net/main.py", 3))
    (found,) = [each for each in pitfalls(reading, [run], []) if each.kind == "package"]
    assert found.effect == "No file of the build names the package: unless another one brings it, the import fails."


def test_what_a_readme_imports_and_the_package_has_not(tmp_path: Path) -> None:
    # Line 4 has a hyphen, `Engin` is not what `net` has, and `other` is another package's.
    readme = (
        "# net\n\n```python\nfrom net-work import Engine\nfrom net import Engin, Engine\nfrom other import X\n```\n"
    )
    (tmp_path / "README.md").write_text(readme)
    for name in ("net", "net_work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("class Engine:\n    def run(self):\n        return 1\n")
    reading = Reading(read_repository(tmp_path, Selection(), lambda at, of, file: None))
    found = [(each.cause.line, each.written) for each in pitfalls(reading, [], []) if each.kind == "import"]
    assert sorted(found) == [(4, "from net-work import Engine"), (5, "from net import Engin")]


def test_a_text_that_names_a_module_which_is_not_there(tmp_path: Path) -> None:
    # `engine.kernel.norm` is misspelled: the folder is `kernels`. The name of a logger is no module, and that of
    # another package is not known here.
    for name in ("engine", "engine/kernels"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "engine" / "kernels" / "norm.py").write_text("def norm(x):\n    return x\n")
    found = told(
        tmp_path,
        a='import logging\nlog = logging.getLogger("engine.kernel.norm")\n'
        'def patch(swap):\n    swap("engine.kernel.norm")\n    swap("engine.kernels.norm")\n    swap("torch.nn.q")\n',
    )
    assert {each for each in found if each[0] == "no module"} == {("no module", "a.py", 4)}


def test_names_that_a_module_sets_by_a_text_are_there(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("globals().update(vars(load()))\n")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "__init__.py").write_text("x = 1\n")
    found = told(tmp_path, a="from engine import Context\nfrom plain import Context\n")
    assert {each for each in found if each[0] == "import"} == {("import", "a.py", 2)}


def test_a_method_of_its_own_that_returns_and_a_constant_that_can_be_replaced(tmp_path: Path) -> None:
    # Line 7 of a.py: `extend` is the cache's own, which returns both; line 8 takes a list's, which returns None. MAX is
    # the default of an argument, TIMEOUT of none.
    found = told(
        tmp_path,
        a="""class Cache:
    def extend(self, k):
        self.k = k
        return self.k

def step(cache: Cache, k, out: list):
    k = cache.extend(k)
    out = out.extend(k)
    return k, out
""",
        b="MAX_TOKENS = 64\nTIMEOUT = 30\ndef run(tokens=MAX_TOKENS):\n    return tokens, TIMEOUT\n",
    )
    kinds = ("none used", "fixed")
    assert {each for each in found if each[0] in kinds} == {("none used", "a.py", 8), ("fixed", "b.py", 2)}


def test_of_two_ways_to_say_it_one_is_enough(tmp_path: Path) -> None:
    # `find` takes a model or a package; the call of line 5 gives the one, so that the other is not lost. Line 8 gives
    # neither.
    found = told(
        tmp_path,
        a="""def find(name, model=None, package=None):
    return (model or package)[name]

def swap(name, model, package):
    return find(name, package=package)

def lost(name, model):
    return find(name)
""",
    )
    assert {each for each in found if each[0] == "not handed on"} == {("not handed on", "a.py", 8)}
