"""The lines of a function that make it play its part, and what a code base is about."""

from __future__ import annotations

from collections.abc import Callable

from by_rules import ruled_rows

from lmp.codebase.facts import Place, RepoFacts
from lmp.codebase.roles.configuration import configuration_rows
from lmp.codebase.roles.entry import entry_rows
from lmp.codebase.roles.lines import with_lines
from lmp.codebase.roles.pitfalls import pitfalls
from lmp.codebase.roles.reach import Reading, Row
from lmp.codebase.roles.spine import decode_loops
from lmp.codebase.rows import every_row

Read = Callable[..., RepoFacts]

ENGINE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.k_cache = torch.zeros(64, 8)
        self.v_cache = torch.zeros(64, 8)

    def forward(self, q, k, v, at):
        self.k_cache[at] = k
        self.v_cache[at] = v
        return attend(q, self.k_cache, self.v_cache)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()

    def forward(self, ids, at):
        x = self.embed(ids)
        x = self.attention(x, x, x, at)
        logits = self.head(x)
        return logits

def generate(
    model: Model,
    ids,
    temperature=1.0,
):
    torch.manual_seed(0)
    for at in range(64):
        logits = model(ids, at)
        logits = logits / temperature
        ids = torch.multinomial(logits.softmax(-1), 1)
    return ids

if __name__ == "__main__":
    generate(Model(), torch.zeros(1))
"""


def lines(facts: RepoFacts, section: str) -> dict[str, list[tuple[int, str]]]:
    return {row.symbol: list(row.lines) for row in every_row(Reading(facts)) if row.section == section and row.lines}


def test_rows_have_the_lines_that_do_it(read: Read) -> None:
    facts = read({"engine.py": ENGINE})
    # The draw is at line 37 of the text, the seed is set at line 33, the parameter stands at line 31.
    assert lines(facts, "sampling")["generate"] == [(37, "multinomial"), (33, "manual_seed"), (31, "temperature")]
    # `attend` is what torch's function is called there.
    assert lines(facts, "attention")["Attention.forward"] == [(15, "attend")]
    # Two writes by index.
    assert lines(facts, "kv_cache")["Attention.forward"] == [(13, "k_cache"), (14, "v_cache")]


def test_what_a_code_base_is_about_is_not_beside_its_run(read: Read) -> None:
    # `draft` and `speculative` name what lies beside a run; here all of it lies there.
    facts = read({"speculative_decoding/engine.py": ENGINE})
    reading = Reading(facts)
    assert reading.subject >= {"speculative", "decoding"}
    assert [each.name for each in decode_loops(reading)] == ["generate"]
    # Among as much other code it is beside: two copies of three files.
    others = {f"other/{name}.py": ENGINE for name in ("a", "b")}
    reading = Reading(read({"speculative/engine.py": ENGINE, **others}))
    assert all(each.file.startswith("other/") for each in decode_loops(reading))


def test_a_loop_that_is_put_into_another_packages_class(read: Read) -> None:
    files = {
        "mixin.py": """
            import torch

            class Mixin:
                def stream(self, ids):
                    while True:
                        logits = self(ids).logits
                        ids = torch.multinomial(logits.softmax(-1), 1)
                        yield ids
            """,
        "align.py": """
            class Aligner:
                def align(self, audio):
                    logits = self.model(audio).logits
                    return [logit.argmax() for logit in logits]
            """,
    }
    # `align` chooses for each position, after one call of its model.
    assert decode_loops(Reading(read(files)))[0].qualname == "Mixin.stream"


def test_a_readme_may_leave_its_imports_out(read: Read) -> None:
    files = {
        "README.md": "```python\ntts = api.Speech(half=True)\ntts.say('hello')\n```\n",
        "pack/__init__.py": "",
        "pack/api.py": """
            class Speech:
                def __init__(self, half=False):
                    self.half = half

                def say(self, text):
                    return text
            """,
    }
    rows = entry_rows(Reading(read(files)))
    assert "Speech" in {row.symbol for row in rows if row.role == "library"}


def test_settings_that_a_module_keeps_in_a_dictionary(read: Read) -> None:
    reading = Reading(read({"run.py": "CONFIG_MAP = {}\n\n\ndef run():\n    return CONFIG_MAP.get('LEVEL', 8)\n"}))
    settings = [(row.symbol, row.place.line, row.why) for row in configuration_rows(reading, [])]
    assert settings == [("CONFIG_MAP.LEVEL", 5, "8")]


def test_folders_with_dots_keep_relative_imports(read: Read) -> None:
    files = {
        "pack-1.2/pack/__init__.py": "",
        "pack-1.2/pack/model.py": ENGINE,
        "pack-1.2/pack/run.py": "from .model import generate\n\n\ndef main():\n    generate(None, None)\n",
    }
    reading = Reading(read(files))
    main = next(each for each in reading.functions if each.name == "main")
    assert [edge.callee.name for edge in reading.graph.edges[main]] == ["generate"]


def test_logits_may_come_with_the_cache(read: Read) -> None:
    text = """
        def write(model, ids):
            cache = None
            for _ in range(8):
                logits, cache = model(ids, past_kv=cache)
                ids = multinomial(logits)

        def fill(model, ids):
            for _ in range(8):
                logits = model(ids)
                ids = multinomial(logits)
        """
    reading = Reading(read({"m.py": text}))
    assert {each.name for each in reading.draws_in_loop} == {"write", "fill"}
    # The loop that hands a cache on from step to step is the decode loop, though its name is the longer one.
    assert decode_loops(reading)[0].name == "write"


def test_a_pad_of_one_sequence_makes_no_batch(read: Read) -> None:
    def pads(padded: str) -> set[str]:
        text = f"""
            import torch
            import torch.nn.functional as F

            def write(model, every):
                ids = {padded}
                for _ in range(8):
                    logits = model(ids)
                    ids = torch.multinomial(logits, 1)
                return ids
            """
        rows = ruled_rows(Reading(read({"m.py": text})))
        return {row.symbol for row in rows if row.section == "scheduler" and row.why.startswith("pads")}

    # A shift by one token, and one prompt that fills a window.
    assert pads("F.pad(every, (1, -1))") == set()
    assert pads("torch.stack([F.pad(each, (0, 8)) for each in every])") == {"write"}
    assert pads("pad_sequence(every)") == {"write"}


def test_an_argument_that_nothing_reads_bounds_nothing(read: Read) -> None:
    text = "def train(max_length=128, max_tokens=64):\n    return max_tokens\n"
    reading = Reading(read({"m.py": text}))
    rows = [
        Row("configuration", "argument", f"train.{name}", Place("m.py", 1), default)
        for name, default in (("max_length", "128"), ("max_tokens", "64"))
    ]
    assert {each.symbol for each in pitfalls(reading, rows, [])} == {"train.max_tokens"}


def test_numbers_in_the_code_of_a_draw_are_its_parameters(read: Read) -> None:
    # 0.8 is no divisor that may be zero.
    text = """import torch
def step(logits):
    temperature = 0.8
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1)
"""
    reading = Reading(read({"run.py": text}))
    (step,) = (each for each in reading.functions if each.name == "step")
    (row,) = with_lines(reading, [Row("sampling", "sample", "step", Place(*step.key))])
    assert row.lines == ((4, "multinomial"), (3, "temperature"))
    kinds = {each.kind for function in reading.functions for each in function.hazards}
    assert "divides" not in kinds
    assert "fixed" in kinds
