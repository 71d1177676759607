"""Places of Python code that may cost a user time: each by its form, none by what a comment says."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TypeGuard

from lmp.codebase.graph.records import Function, Hazard, HazardKind
from lmp.codebase.source import LEAVES, Source, children, walk

WARNS = frozenset(["warning", "warn", "warning_once", "warn_once"])
FALLS_BACK = re.compile(
    r"(?i)fall(?:s|ing)? ?back|ignor|instead|not supported|unsupported|disabl|assum|"
    r"default(?:s|ing)? to|overrid|unknown"
)
TELLS = frozenset(["info", "error", "log", "print", "cprint"])
"""They tell also what is no trouble, so that their message has to say that it is."""
TROUBLE = re.compile(r"(?i)^\W*f?\W*(?:warning|ignor)|unknown|ignored|unsupported")
IN_PLACE = ("append", "extend")
"""Methods of lists that change their object and return nothing."""
LONGEST = 160
SEARCHED = 400
"""Letters of a call in which its form is looked for."""
SET = re.compile(
    r"(?:\w+_)?(?:port|host|seed|batch_size|timeout|temperature|do_sample|top_[kp]|min_p|threads|workers)"
    r"|max_(?:\w+_)?(?:tokens?|len|length|seqlen|workers)"
)
"""Names that a user expects to set, whatever the code base."""
ADDRESS = re.compile(r"(?:\w+://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::\]|::)(?::\d+)?/?$|(?:gs|s3)://\w")
"""Where a service or a file is, as nobody else has it."""
DECLARES = re.compile(
    r"add_argument|DEFINE_|(?:^|\.)(?:field|Field|Option|Argument|ArgumentParser|partial)$|(?:Config|Args)$"
)
"""Calls whose arguments are settings themselves, or a preset of them."""
LIMITS = re.compile(
    r"max_(?:\w+_)?(?:tokens?|len|length|seqlen)|max_batch_size|n_ctx|(?:\w+_)?context_(?:len|length|size)"
)
"""Names of what ends a text or bounds a cache."""
LIMITED = re.compile(r"max_|.*(?:_max|limit|timeout|retries)$|(?:n_ctx|context_(?:len|length|size))$")
NO_LIMIT = re.compile(
    r"(?:^|_)(?:timescale|period|wavelength|distance|grad|norm|scale|freqs?|exp|noise|val|value|lr)(?:_|$)"
)
"""Words of the largest value of a formula, as the wavelength of an embedding: it bounds nothing that is taken."""
LOCAL = re.compile(
    r"^[frb]?[\"'](?:\./|\.\./|~/|/tmp/|/home/|/mnt/|/data|tests/|[a-z_]+/[\w./-]+\.(?:json|ya?ml|txt|model|bin))"
)
"""Paths as a user's machine may not have them."""
ENVIRON = re.compile(r"\benviron\b|\bgetenv\(")
FOLDER = re.compile(r"\bPath\(|os\.path\.")
CONSTANT = re.compile(
    r"(?i)batch_size|timeout|port|host|max_|_max|limit|workers|threads|seed|window|n_ctx|retries|interval"
)
SIZES = re.compile(r"\b(?:(?:max_)?batch_size|max_\w+|cache_(?:size|len\w*)|num_(?:blocks|pages))\b")
MAKES = ("zeros", "ones", "empty", "full")
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Variables that a launcher such as torchrun sets."""
GROUP = ("rank", "world_size", "init_method", "store", None)
"""Arguments that say who else is there."""
TEXTS = re.compile(r"(?:^|_)(?:ids?|tokens?|prompts?|inputs?|labels?|texts?)$")
PLACES = re.compile(r"(?i)ids?$|tokens?$|pos|len|index|indices|offset|step|size")
"""Names of places and lengths: to clamp activations is the mathematics of a model."""
BOUND = re.compile(r"(?i)max|limit|ctx|context|window|trunc|budget|capacity")
WHOLE = ("manual_seed", "set_start_method", "set_default_dtype", "set_default_tensor_type")
"""What sets something for the whole process."""
FETCHES = ("hf_hub_download", "snapshot_download", "urlretrieve", "urlopen", "load_dataset", "get_encoding")
FORMS: dict[HazardKind, re.Pattern[str]] = {
    "waits": re.compile(r"timeout ?= ?None|\.(?:wait|join|result|acquire|recv)\(\)$|(?:queue|conn)\w*\.get\(\)$"),
    "existing": re.compile(r"\.(?:makedirs|mkdir)\((?!.*exist_ok)"),
}
"""Calls by how they are written."""
LAST: dict[str, HazardKind] = {
    **dict.fromkeys(FETCHES, "download"),
    **dict.fromkeys(WHOLE, "process"),
}
"""Calls by their last name."""
PROGRAMS = ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output")
STOPS = ("breakpoint", "pdb.set_trace", "ipdb.set_trace")
QUEUES = ("queue.Queue", "asyncio.Queue", "multiprocessing.Queue")


def _add(inside: Function, kind: HazardKind, node: ast.AST, text: str) -> None:
    inside.hazards.append(Hazard(kind, getattr(node, "lineno", inside.line), " ".join(text.split())[:LONGEST]))


def of_assert(source: Source, node: ast.Assert, inside: Function) -> None:
    # What must not be reached says nothing of what leads there.
    unreached = isinstance(node.test, ast.Constant) and not node.test.value and node.msg is None
    if not unreached and not (isinstance(node.test, ast.Call) and "isinstance" in source.written(node.test)):
        _add(inside, "assert", node, source.written(node.test))


RANDOM = re.compile(r"\brandom\b|\brand\w*\(|bernoulli")
"""Tests of a number that is drawn, as in training."""
READY = re.compile(r"self\.\w+(?: is not None)?")
THERE = re.compile(r"\.exists\(|\bis_?(?:file|dir)\(")
"""Tests of whether something was made before."""
EXITS = ("sys.exit", "exit", "quit", "os._exit")
KILLS = ("os.kill", "os.killpg", "os.abort")


def of_if(source: Source, node: ast.If, inside: Function) -> None:
    """A refusal of a value, a value that is changed, and a variable of the environment of which any value counts."""
    of_choice(source, node, inside)
    tested = source.written(node.test)
    _of_branch(source, node, node.body, tested, inside)
    if node.orelse and not isinstance(node.orelse[0], ast.If):
        _of_branch(source, node, node.orelse, f"not ({tested})", inside)
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    asks = isinstance(test, ast.Call) and source.dotted(test.func) in ("os.environ.get", "os.getenv")
    # What is set where it is missing is no switch.
    if asks and not any(_sets_environment(source, each) for each in walk(node)):
        _add(inside, "any value", node, source.written(test))
    leaves = node.body[-1]
    told = (each for each in node.body[:-1] if not _is_quiet(source, each))
    if isinstance(leaves, ast.Continue) and not any(told) and not RANDOM.search(tested):
        _add(inside, "skipped", node, tested)
    ready = isinstance(leaves, ast.Return) and leaves.value is None and READY.fullmatch(tested)
    if ready or (THERE.search(tested) and not _tells_inputs_apart(source, node, inside)):
        _add(inside, "kept", node, tested)


MAKES_FILE = re.compile(
    r"save|dump|write|mkdir|makedirs|download|create|copy|rmtree|remove|unlink|rename|touch|load_state|restore"
)


def _tells_inputs_apart(source: Source, node: ast.If, inside: Function) -> bool:
    """Whether a path that is given is tested only for what kind of input it is.

    Nothing is made or left undone for it: that decides nothing for a later run.
    """
    given = any(isinstance(one, ast.Name) and one.id in inside.params for one in walk(node.test))
    if not given or isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
        return isinstance(node.body[-1], ast.Raise)
    every = (one for stmt in (*node.body, *node.orelse) for one in walk(stmt))
    return not any(isinstance(one, ast.Call) and MAKES_FILE.search(source.written(one.func)) for one in every)


def of_choice(source: Source, node: ast.If, inside: Function) -> None:
    """Of texts that a value is compared with one after the other, what no branch names takes the last one silently. A
    last branch that reads the value is for any other: a path beside the names."""
    subject, branches, rest = _compared(source, node)
    every = [one for stmt in rest for one in walk(stmt)]
    ends = any(isinstance(one, ast.Raise | ast.Assert) for one in every)
    reads = any(isinstance(one, ast.Name | ast.Attribute) and source.written(one) == subject for one in every)
    said = any(each.kind == "other value" and each.text == subject for each in inside.hazards)
    if rest and len(branches) > 1 and not (ends or reads or said) and inside.qualname:
        _add(inside, "other value", node, subject)


def _compared(source: Source, node: ast.If) -> tuple[str, list[list[ast.stmt]], list[ast.stmt]]:
    """What is compared with texts in each test of a chain, the bodies of its branches, and what stands in its else."""
    subjects: list[str] = []
    branches: list[list[ast.stmt]] = []
    each: ast.If | None = node
    rest: list[ast.stmt] = []
    while each is not None:
        test = each.test
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.In)):
            return "", [], []
        equal = isinstance(test.ops[0], ast.Eq)
        texts, of = (test.comparators[0], test.left)
        if not equal and isinstance(test.left, ast.Constant):
            texts, of = test.left, test.comparators[0]
        listed = texts.elts if isinstance(texts, ast.List | ast.Tuple | ast.Set) else [texts]
        if not all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in listed):
            return "", [], []
        subjects.append(source.written(of))
        branches.append(each.body)
        rest = each.orelse
        each = rest[0] if len(rest) == 1 and isinstance(rest[0], ast.If) else None
    return (subjects[0], branches, rest) if len(set(subjects)) == 1 else ("", [], [])


def of_no_branch(source: Source, inside: list[ast.AST], made: Function) -> None:
    """Names that only the branches of such a chain set, which has no last one, and that are read behind it."""
    ifs = [each for each in inside if isinstance(each, ast.If)]
    chains = [(each, *_compared(source, each)) for each in ifs]
    chains = [chain for chain in chains if len(chain[2]) > 1 and not chain[3]]
    names = [each for each in inside if isinstance(each, ast.Name)] if chains else []
    # What is assigned is there behind the whole statement.
    assigned = [each for each in inside if isinstance(each, ast.Assign)] if chains else []
    sets_at = {one: each.end_lineno or 0 for each in assigned for target in each.targets for one in walk(target)}
    known: set[ast.AST] = set()
    for each, subject, branches, _ in chains:
        if each in known:
            continue
        known.update(walk(each))
        end = each.end_lineno or each.lineno
        sets = [{one.id for one in names if isinstance(one.ctx, ast.Store) and _in(one, body)} for body in branches]
        stored = [one for one in names if isinstance(one.ctx, ast.Store)]
        before = {one.id for one in stored if one.lineno < each.lineno}
        asked = [one for one in ifs if subject in source.written(one.test)]
        named = isinstance(each.test, ast.Compare) and not isinstance(each.test.left, ast.Constant)
        if not named or any(one.lineno < each.lineno for one in asked):
            # Other values may have left before.
            continue
        read = {
            one.id
            for one in names
            if one.lineno > end
            and isinstance(one.ctx, ast.Load)
            and not any(_in(one, if_.body) for if_ in asked)
            and not any(other.id == one.id and end < sets_at.get(other, other.lineno) < one.lineno for other in stored)
        }
        if set.intersection(*sets) & read - before - made.params.keys():
            _add(made, "no branch", each, subject)


def _in(node: ast.expr, body: list[ast.stmt]) -> bool:
    return body[0].lineno <= node.lineno <= (body[-1].end_lineno or node.lineno)


def of_late_check(source: Source, inside: list[ast.AST], made: Function) -> None:
    """A check of an index that stands behind its use in the same block: the use ends with an error of its own."""
    blocks = (getattr(each, "body", None) for each in inside)
    for block in (each for each in blocks if isinstance(each, list)):
        for number, each in enumerate(block):
            test = each.test if isinstance(each, ast.If) and isinstance(each.body[0], ast.Raise) else None
            if not isinstance(test, ast.Compare):
                continue
            limit = test.comparators[0]
            if not (isinstance(limit, ast.Call) and source.dotted(limit.func) == "len" and limit.args):
                continue
            use = f"{source.written(limit.args[0])}[{source.written(test.left)}]"
            for before in reversed(block[:number]):
                targets = [before.target] if isinstance(before, ast.AugAssign) else getattr(before, "targets", [])
                if any(isinstance(one, ast.Subscript) and source.written(one) == use for one in walk(before)):
                    made.hazards = [one for one in made.hazards if one.line != each.body[0].lineno]
                    _add(made, "late check", before, use)
                    break
                if source.written(test.left) in map(source.written, targets):
                    break


def _of_branch(source: Source, node: ast.If, body: list[ast.stmt], test: str, inside: Function) -> None:
    called = [each.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    for each in body:
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call):
            if source.written(each.exc.func).endswith(("Error", "Exception")):
                _add(inside, "raise", each, test)
            return
    if any(source.dotted(call.func) in EXITS for call in called):
        _add(inside, "exits", body[-1], test)
        return
    assigned = [each for each in body if isinstance(each, ast.Assign)]
    leaves = isinstance(body[-1], ast.Return)
    tells = (*WARNS, *TELLS) if leaves else WARNS
    warned = next((call for call in called if source.written(call.func).rpartition(".")[2] in tells), None)
    # What gives a value, or says that all is well, ends its work.
    last = body[-1].value if isinstance(body[-1], ast.Return) else None
    gives = last is not None and not (isinstance(last, ast.Constant) and not last.value)
    if warned is not None and warned.args and (assigned or leaves) and (_is_trouble(source, warned) or not gives):
        kind: HazardKind = "leaves" if leaves else "falls back"
        _add(inside, kind, warned, source.written(warned.args[0]))
    elif assigned and len(assigned) == len(body) and not test.endswith(" is None") and body is node.body:
        # A default for what was not given replaces nothing.
        listed = isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.NotIn)
        kept = listed or all(isinstance(each.value, ast.Constant) and each.value.value is not None for each in assigned)
        given = [
            target
            for each in assigned
            for target in each.targets
            if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and target.id in inside.params)
        ]
        if kept and given:
            _add(inside, "replaced", assigned[0], f"{source.written(given[0])} if {test}")


def _is_trouble(source: Source, told: ast.Call) -> bool:
    """A warning or an error; of what is only told, a message of something that went wrong."""
    name = source.written(told.func).rpartition(".")[2]
    return name not in TELLS or name == "error" or TROUBLE.search(source.written(told.args[0])) is not None


def of_handler(source: Source, tried: list[ast.stmt], node: ast.ExceptHandler, inside: Function) -> None:
    """An error that ends the whole process, and one that nobody hears of."""
    kind = source.written(node.type) if node.type is not None else ""
    every = [each for one in node.body for each in walk(one)]
    if any(isinstance(each, ast.Call) and source.dotted(each.func) in (*EXITS, *KILLS) for each in every):
        _add(inside, "exits", node, f"except {kind}".strip())
        return
    broad = kind in ("", "Exception", "BaseException") or all(_is_quiet(source, each) for each in node.body)
    broad = broad and not _hands_on(source, node)
    # What is tried to see whether it works loses nothing.
    tries = len(tried) == 1 and isinstance(tried[0], ast.Return)
    if broad and not tries and not any(isinstance(each, ast.Raise) for each in every):
        _add(inside, "silent", node, f"except {kind}".strip())


def _hands_on(source: Source, node: ast.ExceptHandler) -> bool:
    """Whether the error becomes a value that the function keeps, gives or hands on: an answer that tells of it."""
    for each in node.body:
        tells = isinstance(each, ast.Expr) and _is_quiet(source, each)
        if not tells and any(isinstance(one, ast.Name) and one.id == node.name for one in walk(each)):
            return True
    return False


def _is_quiet(source: Source, node: ast.stmt) -> bool:
    """It goes on with nothing, or with a value that stands there."""
    if isinstance(node, ast.Assign | ast.Return):
        return node.value is None or isinstance(node.value, ast.Constant | ast.Name | ast.List | ast.Dict)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return source.written(node.value.func).rpartition(".")[2] in (*WARNS, *TELLS, "debug", "exception")
    return isinstance(node, ast.Pass | ast.Continue | ast.Break)


def of_function(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef, made: Function) -> None:
    """Of its parameters those that are overwritten before they are read, and small limits."""
    reads = _Names()
    for name, line, default in () if made.abstract else made.arguments:
        if (at := _overwritten(node.body, name, reads)) is not None:
            _add(made, "overwritten", at, name)
        number = re.fullmatch(r"-?[\d._e]+", default)
        # Nothing, or less, stands for no limit.
        bounds = number and default[0] not in "-0"
        kinds: dict[HazardKind, object] = {
            "limit": bounds and LIMITED.match(name) and not NO_LIMIT.search(name),
            "default": number and SET.fullmatch(name),
            "path": LOCAL.match(default),
        }
        made.hazards += [
            Hazard(kind, line, f"{name} = {default}") for kind, counts in kinds.items() if default and counts
        ]


MANY = re.compile(r"(?:^|_)(?:prompts|messages|requests|texts|images|queries)$")
"""Names of what a user gives more than one of."""


def of_memory(source: Source, node: ast.Attribute, inside: Function) -> None:
    _add(inside, "total memory", node, source.written(node))


def of_subscript(source: Source, node: ast.Subscript, inside: Function) -> None:
    """Of many the first, and what is cut at a limit."""
    of, place = node.value, node.slice
    if isinstance(place, ast.Slice) and inside.qualname and isinstance(node.ctx, ast.Load):
        # The last of them, or the first: what is left of a split counts from a place that was found.
        last = isinstance(place.lower, ast.UnaryOp) and place.upper is None
        end = place.lower if last else place.upper if place.lower is None else None
        if end is not None and BOUND.search(source.written(end)):
            _add(inside, "cut", node, source.written(node))
    if not isinstance(place, ast.Constant) or not isinstance(node.ctx, ast.Load):
        return
    if isinstance(of, ast.Name) and place.value == 0 and MANY.search(of.id):
        _add(inside, "first only", node, f"{of.id}[0]")
    elif isinstance(of, ast.Attribute) and of.attr == "environ" and place.value in LAUNCHED:
        _add(inside, "launcher", node, f"environ[{place.value!r}]")


def _sets_environment(source: Source, node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(each, ast.Subscript) and source.dotted(each.value) == "os.environ" for each in node.targets
    )


def of_while(source: Source, node: ast.While, inside: Function) -> None:
    """A loop without a limit, and one whose first error ends it."""
    if not (isinstance(node.test, ast.Constant) and node.test.value):
        return
    # One that goes on until it is done waits for nothing.
    every = own_nodes(node)
    calls = [one for one in every if isinstance(one, ast.Call)]
    named = [(one.func.attr if isinstance(one.func, ast.Attribute) else source.written(one.func), one) for one in calls]
    # A text joins, and a dictionary gives, what they are given.
    called = {name for name, one in named if not (one.args and name in ("get", "join"))}
    if not called.isdisjoint(WAITING):
        _add(inside, "waits", node, f"while {source.written(node.test)}")
    if not any(isinstance(each, ast.Try) for each in walk(node)):
        _add(inside, "unguarded", node, f"while {source.written(node.test)}")


WAITING = frozenset(
    (
        *("accept", "acquire", "empty", "get", "get_nowait", "is_alive", "is_set", "join", "poll", "post", "read"),
        *("readline", "recv", "recv_multipart", "recv_pyobj", "recv_string", "request", "result", "select", "sleep"),
        "wait",
    )
)
"""Methods of what another thread, process or machine has to bring about."""
STEPS = re.compile(r"range\(.*(?:seq|tokens|shape|_len|len\(\w*(?:ids|prompt|text|input))")
"""Ranges over the places of a sequence; other lists are short."""


def of_loop(source: Source, node: ast.For | ast.AsyncFor, inside: Function) -> None:
    over = source.written(node.iter)
    if STEPS.match(over):
        _add(inside, "step by step", node, f"for {source.written(node.target)} in {over}")


def of_global(source: Source, own: list[ast.AST], made: Function) -> None:
    """Names of the module that a function sets. One that is only read, filled by a key, emptied, or set where it is not
    there yet, keeps nothing of the last call that differs from others."""
    once = _set_once(source, own) if any(isinstance(each, ast.Global) for each in own) else set()
    for node in (each for each in own if isinstance(each, ast.Global)):
        set_here: set[str] = set()
        for each in own:
            targets = each.targets if isinstance(each, ast.Assign) else []
            if isinstance(each, ast.AugAssign) or (isinstance(each, ast.AnnAssign) and each.value is not None):
                targets = [each.target]
            if targets and not _is_empty(getattr(each, "value", None)):
                whole = (each for target in targets for each in _targets(target))
                set_here |= {one.id for one in whole if isinstance(one, ast.Name)}
        if names := [name for name in node.names if name in set_here - once]:
            _add(made, "process", node, f"global {', '.join(names)}")


def _set_once(source: Source, own: list[ast.AST]) -> set[str]:
    """Names that a function sets only where they are none, or not there: what is made when it is first asked for."""
    found: set[str] = set()
    for each in own:
        if isinstance(each, ast.If):
            tested = re.fullmatch(r"(\w+) is None|not (\w+)", source.written(each.test))
            found |= {tested[1] or tested[2]} if tested else set()
    return found


def _targets(target: ast.expr) -> list[ast.expr]:
    """What an assignment sets itself: of an element of a collection, nothing."""
    if isinstance(target, ast.Tuple | ast.List):
        return [one for each in target.elts for one in _targets(each)]
    return [target]


def _is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_empty, value.elts))
    if isinstance(value, ast.List | ast.Set):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Constant) and value.value is None


def of_for(every: list[ast.AST], made: Function) -> None:
    """Names that a loop alone sets, and that are read behind it: where the loop is empty there are none."""
    loops = [each for each in every if isinstance(each, ast.For) and not each.orelse]
    names = [each for each in every if isinstance(each, ast.Name)] if loops else []
    given = {"_", *(each.arg for each in every if isinstance(each, ast.arg))}
    for loop in loops:
        if isinstance(loop.iter, ast.Tuple | ast.List):
            continue
        end = loop.end_lineno or loop.lineno
        sets = {each.id for each in walk(loop) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        sets -= given
        for each in names:
            out = not loop.lineno <= each.lineno <= end
            if out and (isinstance(each.ctx, ast.Store) or each.lineno < loop.lineno):
                sets.discard(each.id)
        read = next((each for each in names if each.id in sets and each.lineno > end), None)
        if read is not None:
            _add(made, "unbound", read, read.id)


MAKES_TENSOR = re.compile(
    r"(?:torch\.)?(?:[A-Z][a-z]*)?[Tt]ensor$|torch\.(?:zeros|ones|full|arange|empty|randint)$|(?:np|numpy)\."
)
ON_DEVICE = re.compile(r"device|cuda")


class _Host:
    """Which names of a function hold what was made on the CPU, and did not leave it."""

    def __init__(self, source: Source, node: ast.AST) -> None:
        self._source = source
        self._values: dict[str, list[ast.expr]] = {}
        # Of what comes from outside, or from a loop, it is not known.
        every = walk(node)
        loops = [one for each in every if isinstance(each, ast.For) for one in walk(each.target)]
        given = [each.arg for each in every if isinstance(each, ast.arg)]
        self._known = dict.fromkeys([*given, *(one.id for one in loops if isinstance(one, ast.Name))], False)
        for each in every:
            if isinstance(each, ast.Assign):
                for target in each.targets:
                    several = target.elts if isinstance(target, ast.Tuple) else [target]
                    for one in several:
                        if isinstance(one, ast.Name):
                            self._values.setdefault(one.id, []).append(each.value)
            elif isinstance(each, ast.Call) and source.written(each.func).endswith(".append") and each.args:
                self._values.setdefault(source.written(each.func).removesuffix(".append"), []).append(each.args[0])

    def __call__(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            if node.id not in self._known:
                # What is made of itself is where it was before.
                self._known[node.id] = node.id in self._values
                self._known[node.id] = node.id in self._values and all(map(self, self._values[node.id]))
            return self._known[node.id]
        if isinstance(node, ast.Subscript | ast.Attribute):
            return self(node.value)
        if isinstance(node, ast.List):
            return all(map(self, node.elts))
        if not isinstance(node, ast.Call) or ON_DEVICE.search(self._source.written(node)):
            return False
        name = self._source.dotted(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "numpy"):
            return True
        if name in ("torch.cat", "torch.stack") and node.args:
            return self(node.args[0])
        return bool(MAKES_TENSOR.match(name)) or (isinstance(node.func, ast.Attribute) and self(node.func.value))


def of_read_back(source: Source, inside: list[ast.AST], made: Function) -> None:
    """The first value that a loop reads from a tensor, where it is not known to be on the CPU; and whether the way of
    the loop depends on it."""
    host = None
    for loop in inside if made.loops else ():
        if not isinstance(loop, ast.For | ast.While):
            continue
        # What a loop runs over is read once.
        test = [loop.test] if isinstance(loop, ast.While) else []
        for each in (one for part in (*test, *loop.body) for one in own_nodes(part)):
            if not (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)):
                continue
            if each.func.attr not in ("item", "tolist") or each.args:
                continue
            host = host or _Host(source, inside[0])
            if not host(each.func.value) and not _is_once(source, loop, each):
                tests = (one.test for one in own_nodes(loop) if isinstance(one, ast.If | ast.While | ast.Assert))
                decides = any(each in walk(test) for test in tests)
                _add(made, "sync decides" if decides else "sync", each, source.written(each))
                return


def _is_once(source: Source, loop: ast.For | ast.While, of: ast.AST) -> bool:
    """Whether it stands in a branch of the loop that one value of its counter takes: ``if i == 0``."""
    counters = (
        {each.id for each in walk(loop.target) if isinstance(each, ast.Name)} if isinstance(loop, ast.For) else set()
    )
    for each in own_nodes(loop):
        test = each.test if isinstance(each, ast.If) and any(of in walk(one) for one in each.body) else None
        for one in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
            if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq) and source.written(one.left) in counters:
                return isinstance(one.comparators[0], ast.Constant)
    return False


DEFINES = frozenset([ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef])


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """A function, loop or statement and what stands in it, without the functions and classes that it defines."""
    found = [node]
    waiting = children(node)[::-1]
    while waiting:
        each = waiting.pop()
        if type(each) in LEAVES:
            found.append(each)
        elif type(each) not in DEFINES:
            found.append(each)
            waiting += reversed(children(each))
    return found


def settled(node: ast.FunctionDef | ast.AsyncFunctionDef, made: Function) -> list[Hazard]:
    """Those that the whole of the function bears out: no guard stands around the loop, and nothing takes the others of
    what came in from outside."""
    if not made.reads.isdisjoint(ASKS):
        # A name that the object itself tells is not misspelled.
        made.hazards = [each for each in made.hazards if each.kind != "by text"]
    every = [each for each in made.hazards if each.kind in ("first only", "unguarded", "cut", "existing")]
    inside = walk(node) if every or made.loops else []
    if made.loops:
        of_for(inside, made)
    if not every:
        return made.hazards
    tries = [each for each in inside if isinstance(each, ast.Try)]
    names = Counter(each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    taken = Counter(each.text for each in every)
    # Of a cut that a message beside it tells, the caller hears.
    says = [each.line for each in made.hazards if each.kind in ("falls back", "leaves") and CUT.search(each.text)]
    for each in every:
        if each.kind == "cut":
            if any(abs(line - each.line) <= BESIDE for line in says):
                made.hazards.remove(each)
            continue
        if each.kind == "existing":
            path = each.text.partition("(")[2].rstrip(")")
            # It was asked for, or deleted, right before.
            gone = [one.text for one in made.hazards if one.kind in GONE and 0 < each.line - one.line <= NEXT]
            tried = any(one.body[0].lineno <= each.line < one.handlers[0].lineno for one in tries if one.handlers)
            if tried or any(path and path in text for text in gone):
                made.hazards.remove(each)
            continue
        name = each.text.partition("[")[0]
        guarded = any(one.lineno <= each.line <= (one.end_lineno or 0) for one in tries)
        others = names[name] > taken[each.text] or not (name in made.params or _is_unpacked(name, inside))
        if guarded if each.kind == "unguarded" else others:
            made.hazards.remove(each)
    return made.hazards


def _is_unpacked(name: str, inside: list[ast.AST]) -> bool:
    """One of several values that a call gives."""
    return any(
        isinstance(each, ast.Tuple) and any(isinstance(one, ast.Name) and one.id == name for one in each.elts)
        for assign in inside
        if isinstance(assign, ast.Assign) and isinstance(assign.value, ast.Call)
        for each in assign.targets
    )


ASKS = frozenset(
    (
        "hasattr",
        "fields",
        "named_parameters",
        "named_buffers",
        "named_modules",
        "named_children",
        "__dict__",
        "dir",
        "vars",
    )
)
"""How the names of what an object has are asked for."""
GONE, NEXT = ("kept", "deletes"), 2
BESIDE = 5
"""Lines between a message and what it tells of."""
CUT = re.compile(r"(?i)truncat|(?<!exe)\bcut\b|exceed|longer than|clip")


class _Names:
    """The names that each statement reads. A statement is walked once, however many names are asked for."""

    def __init__(self) -> None:
        self._known: dict[ast.AST, frozenset[str]] = {}

    def __call__(self, node: ast.AST) -> frozenset[str]:
        if node not in self._known:
            every = (each for each in walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
            self._known[node] = frozenset(each.id for each in every)
        return self._known[node]


def _overwritten(body: list[ast.stmt], name: str, reads: _Names) -> ast.stmt | None:
    """The first statement that gives a parameter another value on every way, where nothing reads it before."""
    for each in body:
        if isinstance(each, ast.Assign) and name not in reads(each.value):
            if any(isinstance(target, ast.Name) and target.id == name for target in each.targets):
                return each
        elif isinstance(each, ast.If) and each.orelse and name not in reads(each.test):
            ways = [_overwritten(each.body, name, reads), _overwritten(each.orelse, name, reads)]
            if all(way is not None for way in ways):
                return ways[0]
        if name in reads(each):
            return None
    return None


def of_value(source: Source, value: ast.expr, inside: Function) -> None:
    """A value that is put in the place of a user's, and what returns nothing."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in IN_PLACE:
        receiver = value.func.value
        # A function of a module is no method of a list.
        if isinstance(receiver, ast.Attribute) or (
            isinstance(receiver, ast.Name) and receiver.id not in source.aliases
        ):
            _add(inside, "none used", value, source.written(value))
    for each in walk(value) if inside.qualname else ():
        if isinstance(each, ast.Dict):
            for key, one in zip(each.keys, each.values, strict=True):
                fixed = _number(one) or source.written(one) in ("True", "False")
                if fixed and isinstance(key, ast.Constant) and isinstance(key.value, str) and SET.fullmatch(key.value):
                    _add(inside, "fixed", one, f"{key.value} = {source.written(one)}")


def of_assign(source: Source, target: ast.expr, value: ast.expr, inside: Function) -> None:
    """What is cut to a limit in its own place, and a number in the place of a setting."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and ADDRESS.match(value.value):
        _add(inside, "address", value, f"{source.written(target)} = {source.written(value)}")
    name, written = source.written(target), source.written(value)
    if not inside.qualname:
        _of_constant(source, name, value, inside)
        return
    own = isinstance(value, ast.Subscript) and source.written(value.value) == name
    called = source.dotted(value.func) if isinstance(value, ast.Call) else ""
    clamps = called.endswith("clamp") and "max" in written
    root = name.partition(".")[0]
    sets = isinstance(target, ast.Subscript) and source.dotted(target.value) == "os.environ"
    if sets or ("." in name and root in source.aliases and root not in (*inside.params, "self")):
        _add(inside, "process", value, f"{name} = {written}")
    if own and isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Tuple):
        # The columns of a batch of texts.
        bounds = [one for each in value.slice.elts if isinstance(each, ast.Slice) for one in (each.lower, each.upper)]
        if TEXTS.search(name) and any(_names(each) for each in bounds):
            _add(inside, "cut", value, written)
    elif BOUND.search(written) and (called == "min" or (clamps and PLACES.search(name))):
        # The least of what was seen is no limit.
        if _has_word(name.rpartition(".")[2], written):
            _add(inside, "cut", value, f"{name} = {written}")
    elif isinstance(value, ast.Call) and source.dotted(value.func) in QUEUES and not value.args and not value.keywords:
        if any(each in source.text for each in ("queue.Full", "QueueFull")):
            _add(inside, "unbounded", value, f"{name} = {source.written(value)}")
    elif SET.fullmatch(name.removeprefix("self.")) and _number(value) and value.value not in (0, 1, -1):
        _add(inside, "fixed", value, f"{name} = {source.written(value)}")


def _has_word(name: str, written: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", written) is not None


def _of_constant(source: Source, name: str, value: ast.expr, inside: Function) -> None:
    """What a module or class sets once, when it is imported."""
    written = source.written(value)
    if _number(value) and CONSTANT.search(name):
        # A field has another value where an argument gives it.
        _add(inside, "fixed" if name.isupper() else "default", value, f"{name} = {written}")
    elif (isinstance(value, ast.Constant) and LOCAL.match(written)) or (name.isupper() and FOLDER.search(written)):
        _add(inside, "path", value, f"{name} = {written}")
    elif ENVIRON.search(written):
        _add(inside, "read once", value, f"{name} = {written}")


def _names(node: ast.expr | None) -> bool:
    return node is not None and any(isinstance(each, ast.Name) for each in walk(node))


def _number(value: ast.expr) -> TypeGuard[ast.Constant]:
    return (
        isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)
    )


def of_call(source: Source, node: ast.Call, inside: Function) -> None:
    """A warning, a number in the place of a setting, another program, a device by the rank of the whole run."""
    name = source.dotted(node.func)
    if name.startswith("torch.utils.cpp_extension.load"):
        _add(inside, "compiles", node, name)
    if not inside.qualname:
        return
    last = name.rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
    written = source.written(node)
    kinds = [kind for kind, form in FORMS.items() if form.search(written[:SEARCHED])]
    if name in (*PROGRAMS, "subprocess.Popen"):
        kinds.append("program")
    elif name in STOPS:
        kinds.append("debugger")
    elif name == "shutil.rmtree" and not re.search("(?i)te?mp", written):
        kinds.append("deletes")
    elif name == "torch.load" and "weights_only" not in written:
        kinds.append("pickle")
    elif name == "torch.multinomial" and "generator" not in written:
        kinds.append("draw")
    elif name == "signal.signal":
        kinds.append("process")
    elif last == "setattr":
        kinds += ["by text"] if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant) else []
    elif last in LAST and "enerator" not in written:
        # A generator of its own is no state of the process, and what lies in files of the user is not fetched.
        of_module = source.written(node.func).partition(".")[0] in source.aliases
        if of_module and not any(each.arg == "data_files" for each in node.keywords):
            kinds.append(LAST[last])
    for kind in kinds:
        _add(inside, kind, node, written)
    message = source.written(node.args[0]) if node.args and last in (*WARNS, *TELLS) else ""
    if (FALLS_BACK if last in WARNS else TROUBLE).search(message) and "deprecat" not in message.lower():
        _add(inside, "falls back", node, message)
    elif last == "set_device" and node.args:
        device = node.args[0]
        called = source.dotted(device.func) if isinstance(device, ast.Call) else source.written(device)
        if called.rpartition(".")[2] in ("get_rank", "rank", "global_rank"):
            _add(inside, "rank", node, source.written(node))
    elif last == "init_process_group" and not any(each.arg in GROUP for each in node.keywords):
        _add(inside, "launcher", node, source.written(node))
    elif last == "import_module" and node.args and not isinstance(node.args[0], ast.Constant):
        _add(inside, "by name", node, source.written(node))
    elif last in MAKES and inside.name == "__init__" and len(set(SIZES.findall(source.written(node)))) > 1:
        _add(inside, "full size", node, source.written(node))
    elif not DECLARES.search(name or last):
        for each in node.keywords:
            if each.arg and SET.fullmatch(each.arg) and (_number(each.value) or source.written(each.value) == "True"):
                _add(inside, "fixed", each.value, f"{each.arg} = {source.written(each.value)}")
