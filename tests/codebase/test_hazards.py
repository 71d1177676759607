"""What single lines of a function may cost: each expectation follows from reading the few lines here."""

from __future__ import annotations

from pathlib import Path

from lmp.codebase.facts import Selection
from lmp.codebase.reading import read_repository


def hazards(folder: Path, text: str) -> set[tuple[str, int]]:
    (folder / "a.py").write_text(text)
    facts = read_repository(folder, Selection(), lambda at, of, file: None)
    return {(each.kind, each.line) for one in facts.graphs["a.py"].functions for each in one.hazards}


def test_a_tensor_of_the_cpu_is_no_wait(tmp_path: Path) -> None:
    # Line 6 reads what line 2 made on the CPU and line 4 sorts there. Line 7 reads a parameter, whose place is not
    # known, and the test needs it. Line 12 reads the name of the loop, and nothing in the loop depends on the value.
    text = """def beam(probs):
    order = torch.tensor([3, 1, 2])
    others = order
    order, _ = order.sort()
    for i in range(3):
        kept.append(order[i].item())
        if probs[i].item() > 0.5: break


def drain(tokens):
    for token in tokens:
        token = token.item()
        out.append(token)
"""
    assert {each for each in hazards(tmp_path, text) if "sync" in each[0]} == {("sync decides", 7), ("sync", 12)}


def test_what_no_branch_of_a_chain_names(tmp_path: Path) -> None:
    # Line 2: neither branch sets `opt` for a third name, and line 6 reads it. Line 8: the last branch is a path of the
    # value's own. Line 14: the last branch takes any other name without reading it.
    text = """def optimizer(kind):
    if kind == "adam":
        opt = adam()
    elif kind == "sgd":
        opt = sgd()
    opt = wrap(opt)
def restore(source):
    if source == "latest":
        path = latest()
    elif source == "fresh":
        path = fresh()
    else:
        path = join("checkpoints", source)
    if source == "a":
        n = 1
    elif source == "b":
        n = 2
    else:
        n = 3
    return path, n
"""
    found = {each for each in hazards(tmp_path, text) if "branch" in each[0] or "value" in each[0]}
    assert found == {("no branch", 2), ("other value", 14)}


def test_a_check_behind_the_use_never_speaks(tmp_path: Path) -> None:
    # Line 4 reads the list at the new index, so that an IndexError comes before line 5 is reached. In the other
    # function the check stands before the use.
    text = """def fill(sizes, need):
    while need > 0:
        index += 1
        need -= sizes[index]
        if index >= len(sizes): raise ValueError("too large")
def take(sizes, index):
    if index >= len(sizes): raise ValueError("too large")
    return sizes[index]
"""
    found = {each for each in hazards(tmp_path, text) if each[0] in ("late check", "raise")}
    assert found == {("late check", 4), ("raise", 7)}


def test_a_loop_that_computes_waits_for_nothing(tmp_path: Path) -> None:
    # Line 2 ends when its sum is large enough; line 7 asks a queue for what another thread puts there.
    text = """def nucleus(probs, least):
    while True:
        total += probs[n]
        if total > least: break
        n += 1
def serve(inbox):
    while True:
        handle(inbox.get())
"""
    assert {each for each in hazards(tmp_path, text) if each[0] == "waits"} == {("waits", 7)}


def test_a_path_that_is_given_is_no_earlier_run(tmp_path: Path) -> None:
    # Line 2 tells a folder from a name. Line 6 keeps a file from being made, and line 11 takes a file that an earlier
    # run may have left.
    text = """def load(model):
    if os.path.isdir(model):
        path = model
    else:
        path = find(model)
    if os.path.exists(model + ".lock"):
        return path
    save(path)
def settings():
    local = Path("settings.yaml")
    if local.exists():
        path = local
"""
    assert {each for each in hazards(tmp_path, text) if each[0] == "kept"} == {("kept", 6), ("kept", 11)}


def test_a_cut_that_a_message_tells_and_an_item_that_is_worked_on(tmp_path: Path) -> None:
    # The cut in line 4 is told in line 3, that in line 6 by nobody. Line 9 only goes on; line 11 has done its work.
    text = """def run(ids, max_length):
    if len(ids) > max_length:
        logger.warning("the text was truncated, ignoring the rest")
        ids = ids[:max_length]
def other(ids, max_length):
    return ids[:max_length]
def drain(items):
    for item in items:
        if item.done:
            continue
        if item.ready:
            item.run()
            continue
        hand_over(item)
"""
    found = {each for each in hazards(tmp_path, text) if each[0] in ("cut", "skipped")}
    assert found == {("cut", 6), ("skipped", 9)}


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    # Line 3 is in a try, so that nobody meets its error; line 5 deletes what is there. Line 6 ends with an error. The
    # folder of line 7 is the function's own, and line 9 makes one that is not there.
    text = """def run(folder, other, tmp_dir):
    try:
        os.mkdir(folder)
    except FileExistsError:
        shutil.rmtree(folder)
    os.mkdir(other)
    shutil.rmtree(tmp_dir)
    if not os.path.exists("kept"):
        os.mkdir("kept")
"""
    found = {each for each in hazards(tmp_path, text) if each[0] in ("existing", "deletes")}
    assert found == {("deletes", 5), ("existing", 6)}


def test_what_a_function_sets_of_its_module(tmp_path: Path) -> None:
    # `keep` sets LAST for all; `add` and `clear` set nothing that the next call finds, and `look` only reads.
    text = """LAST, ALL = None, []
def keep(x):
    global LAST
    LAST = x
def add(x):
    global ALL
    ALL.append(x)
def clear():
    global ALL, LAST
    ALL, LAST = [], None
    ALL = []
def look():
    global LAST
    return LAST
"""
    assert {each for each in hazards(tmp_path, text) if each[0] == "process"} == {("process", 3)}


def test_names_that_an_object_tells_itself(tmp_path: Path) -> None:
    # Line 2 sets whatever it is given; line 5 what the object has. Line 7 steps through a text, line 9 through parts.
    text = """def put(x, name, value):
    setattr(x, name, value)
def move(x, value):
    for name, _ in x.named_parameters():
        setattr(x, name, value)
def steps(ids, state):
    for at in range(len(ids)):
        at += 1
    for at in range(len(state)):
        at += 1
"""
    found = {each for each in hazards(tmp_path, text) if each[0] in ("by text", "step by step")}
    assert found == {("by text", 2), ("step by step", 7)}


def test_what_is_no_wait_no_switch_and_no_state_of_the_process(tmp_path: Path) -> None:
    # A path is joined and a dictionary gives in the loop of line 6; that of line 12 asks a queue. Line 16 sets what is
    # missing, for the whole process; line 18 is a switch. The generator of line 21 is its own, line 22 seeds the
    # process. The data of line 23 lie on the disk. Line 27 tells what went well, and the function gives the state that
    # was asked for.
    text = """import os, random, torch
from datasets import load_dataset
log = print
def evict(folder, kept, sizes):
    at = 0
    while True:
        path = os.path.join(folder, kept[at])
        at += sizes.get(path, 1)
        if at > 9:
            break
def serve(queue):
    while True:
        queue.get_nowait()
        queue.get()
def setup():
    if not os.environ.get("ADDRESS"):
        os.environ["ADDRESS"] = "here"
    if os.environ.get("FAST"):
        setup()
def seed(g, path):
    g.manual_seed(1)
    torch.manual_seed(1)
    load_dataset("json", data_files=path)
    load_dataset("squad")
def resume(log, state):
    if state.found:
        log.info("resumed from the last step")
        return state
    if state.bad:
        log.error("the state is bad")
        return None
"""
    kinds = ("waits", "any value", "process", "download", "leaves")
    assert {each for each in hazards(tmp_path, text) if each[0] in kinds} == {
        ("waits", 12),
        ("waits", 14),
        ("process", 17),
        ("any value", 18),
        ("process", 22),
        ("download", 24),
        ("leaves", 30),
    }


def test_what_is_made_when_it_is_first_asked_for(tmp_path: Path) -> None:
    # `model` and `bank` are made once, and `table` is filled by its keys; `last` is set anew by each call.
    text = """def load(path, size):
    global model, table
    if model is None:
        model = read(path)
    table[size] = make(size)
    return model
def other(path):
    global bank
    if not bank:
        bank = read(path)
def remember(x):
    global last
    last = x
"""
    assert {each for each in hazards(tmp_path, text) if each[0] == "process"} == {("process", 12)}


def test_largest_values_that_bound_nothing_and_items_left_out_by_chance(tmp_path: Path) -> None:
    text = """def embed(x, max_timescale=10000, max_period=100, max_items=10):
    return x
def train(items):
    for each in items:
        if random.random() < 0.1:
            continue
        if each.bad:
            continue
        step(each)
"""
    kinds = ("limit", "skipped")
    found = {each for each in hazards(tmp_path, text) if each[0] in kinds}
    assert found == {("limit", 1), ("skipped", 7)}
    facts = read_repository(tmp_path, Selection(), lambda at, of, file: None)
    (limit,) = (each for one in facts.graphs["a.py"].functions for each in one.hazards if each.kind == "limit")
    assert limit.text == "max_items = 10"


def test_a_value_that_is_read_in_one_step_alone(tmp_path: Path) -> None:
    text = """def run(model, x):
    for i in range(100):
        y = model(x)
        if i == 0:
            first = y.item()
    return first
def every(model, x):
    for i in range(100):
        y = model(x)
        if i > 0:
            last = y.item()
    return last
"""
    assert {each for each in hazards(tmp_path, text) if each[0].startswith("sync")} == {("sync", 11)}


def test_a_loop_that_ends_itself_an_error_that_is_answered_and_no_limit(tmp_path: Path) -> None:
    # Line 2 awaits its own step, lines 6 and 7 a queue that may stay empty. Line 11 makes the error its answer; line 16
    # drops it. A limit of 0 is none. Line 20 bounds positions, line 21 activations of a layer.
    text = """async def run(step):
    while True:
        if await step():
            break
async def serve(queue):
    while True:
        await queue.get()
def answer(tool, max_tokens=0):
    try:
        return tool()
    except Exception as e:
        return f"failed: {e}"
def quiet(tool, max_tokens=64):
    try:
        tool()
    except Exception as e:
        print(e)
def place(pos, x, limit):
    breakpoint()
    pos = pos.clamp(max=limit)
    x = x.clamp(max=limit)
    return pos, x
"""
    kinds = ("waits", "silent", "limit", "cut", "debugger")
    found = {each for each in hazards(tmp_path, text) if each[0] in kinds}
    assert found == {("waits", 6), ("waits", 7), ("silent", 16), ("limit", 13), ("cut", 20), ("debugger", 19)}


def test_a_variable_of_the_environment_is_read_where_the_code_reads_it(tmp_path: Path) -> None:
    text = 'import os\nKEY = field(doc="the environment variable KEY")\nLEVEL = os.environ.get("LEVEL", "1")\n'
    (tmp_path / "a.py").write_text(text)
    body = read_repository(tmp_path, Selection(), lambda at, of, file: None).graphs["a.py"].body
    assert body is not None
    assert [each.line for each in body.hazards if each.kind == "read once"] == [3]


def test_a_message_at_the_end_of_the_work_is_no_trouble(tmp_path: Path) -> None:
    # Line 3 tells that all is well, line 6 that something went wrong.
    text = """def train(step, last, log):
    if step == last:
        log.info("training is done")
        return True
    if step < 0:
        log.error("no such step")
        return False
    return step
"""
    assert {each for each in hazards(tmp_path, text) if each[0] == "leaves"} == {("leaves", 6)}
