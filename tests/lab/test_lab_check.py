"""A post that holds, and planted faults: each found, and named by file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lab_posts import no_figures

from lmp.errors import PostProblem, PostRefused
from lmp.lab import checking
from lmp.lab.building import build, render
from lmp.lab.checking import check
from lmp.lab.plots import same_drawing
from lmp.lab.post import Post, all_posts, read_post
from lmp.lab.rerun import Where, run


@pytest.fixture
def built(tiny: Post) -> Post:
    build([tiny], [tiny], no_figures)
    return tiny


def problems(post: Post) -> list[PostProblem]:
    again = read_post(post.folder)  # nothing is remembered from before the edit
    return check([again], all_posts(again.posts), no_figures)[1]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1))


def line_with(file: Path, text: str) -> int:
    return next(i for i, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def test_a_post_that_was_just_built_holds(built: Post) -> None:
    assert problems(built) == []


def test_what_the_references_are(built: Post) -> None:
    text = built.markdown.read_text()
    # 0 + 1 + 4 + ... + 81 = 285; up to 39 * 39 it is 39 * 40 * 79 / 6 = 20,540; 20540 / 285 = 72.07.
    assert "Forty numbers give 20,540, which is 72.1x the sum of ten." in text
    assert "| ten | 285 |\n| forty | 20,540 |" in text
    assert "```text\n$ python workloads/sums.py\n10 numbers: 285\n[...]\n40 numbers: 20540\n```" in text
    assert "about 8 [[1]](#sources) squared [[2]](#sources), exactly [[3]](#sources)." in text
    assert "1. A. Author: [Sums of powers](<https://example.org/sums>), 2023 (academic)." in text
    assert "`sums.py`, lines 3-4:\n\n```python\nfor count in (10, 20, 40):\n" in text


def test_references_are_counted(built: Post) -> None:
    # post.md: code, cap, num, num, src, cite, cite, plot, table, env; in the table two more.
    (rendered,), _ = check([built], [built], no_figures)
    assert rendered.references == 12


# --- planted faults --------------------------------------------------------------------------------------------------


def test_a_changed_digit_in_the_rendered_post(built: Post) -> None:
    line = line_with(built.markdown, "20,540, which")
    edit(built.markdown, "20,540, which", "20,640, which")
    assert problems(built) == [PostProblem("posts/tiny.md", line, "differs from what `lmp lab build` gives")]


def test_a_changed_digit_in_a_page(built: Post) -> None:
    line = line_with(built.html, "20,540, which")
    edit(built.html, "20,540, which", "20,640, which")
    assert [(p.file, p.line) for p in problems(built)] == [("posts/html/tiny.html", line)]


def test_a_changed_plot(built: Post) -> None:
    file = built.folder / "plots" / "growth.svg"
    line = line_with(file, "</svg>")
    edit(file, "</svg>", "<g/></svg>")
    assert [(p.file, p.line) for p in problems(built)] == [("posts/tiny/plots/growth.svg", line)]


def test_a_changed_index(built: Post) -> None:
    edit(built.posts / "README.md", "How fast", "How slow")
    assert [p.file for p in problems(built)] == ["posts/README.md"]


def test_an_edited_raw_text(built: Post) -> None:
    raw = built.captures / "sums.txt"
    edit(raw, "40 numbers: 20540", "40 numbers: 20541")
    found = problems(built)
    assert (
        PostProblem(
            "posts/tiny/captures/sums.txt", 3, "the raw text is not that of sums.json: it was edited or swapped"
        )
        in found
    )
    assert ("posts/tiny.md", line_with(built.markdown, "40 numbers")) in [(p.file, p.line) for p in found]


def test_swapped_raw_texts(built: Post) -> None:
    one, other = built.captures / "sums.txt", built.captures / "hello.txt"
    first, second = one.read_text(), other.read_text()
    one.write_text(second)
    other.write_text(first)
    assert {"posts/tiny/captures/sums.txt", "posts/tiny/captures/hello.txt"} <= {p.file for p in problems(built)}


def test_swapped_captures(built: Post) -> None:
    for suffix in ("txt", "json"):
        one, other = built.captures / f"sums.{suffix}", built.captures / f"hello.{suffix}"
        first, second = one.read_text(), other.read_text()
        one.write_text(second)
        other.write_text(first)
    found = problems(built)
    said = PostProblem("posts/tiny/captures/sums.json", 2, "is the record of capture hello, not of sums")
    assert said in found


def test_a_removed_source(built: Post) -> None:
    file = built.folder / "sources.toml"
    text = file.read_text()
    file.write_text(text[text.index("[blog]") :])
    found = problems(built)
    line = line_with(built.folder / "post.md", "{{src:gauss}}")
    said = "{{src:gauss}}: gauss is no source: sources.toml has blog, vendor"
    assert PostProblem("posts/tiny/post.md", line, said) in found
    few = "cites 2 sources from 2022 on, and a post needs 3"
    assert PostProblem("posts/tiny/sources.toml", 1, few) in found
    assert "cites no academic source from 2022 on" in [p.message for p in found]


def test_a_source_without_its_sentence(built: Post) -> None:
    file = built.folder / "sources.toml"
    edit(file, "In practice the loop is what takes time.", "")
    line = line_with(file, "[blog]")
    said = "source blog has no sentence that carries the claim"
    assert PostProblem("posts/tiny/sources.toml", line, said) in problems(built)


def test_a_value_that_its_sentence_does_not_hold(built: Post) -> None:
    edit(built.folder / "sources.toml", 'value = "8"', 'value = "9"')
    said = "the value of source gauss does not occur in its sentence"
    assert PostProblem("posts/tiny/sources.toml", 1, said) in problems(built)


def test_old_sources_do_not_count(built: Post) -> None:
    edit(built.folder / "sources.toml", "year = 2023", "year = 2021")
    assert "cites no academic source from 2022 on" in [p.message for p in problems(built)]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("post.md", "It prints:", "It prints 3 lines:"),
        ("lab.toml", 'title = "Sum of squares by count"', 'title = "Sum of 40 squares"'),
        ("lab.toml", '["ten", ', '["ten (285)", '),
        ("lab.toml", 'x = "numbers"', 'x = "3 numbers"'),
    ],
)
def test_a_stray_digit(built: Post, file: str, old: str, new: str) -> None:
    edit(built.folder / file, old, new)
    found = [p for p in problems(built) if "has a digit that is in no reference" in p.message]
    assert [p.file for p in found] == [f"posts/tiny/{file}"]
    if file == "post.md":
        assert found[0].line == line_with(built.folder / file, new)


def test_another_workload(built: Post) -> None:
    edit(built.posts / "workloads" / "sums.py", "10, 20, 40", "10, 20, 80")
    said = "was taken with another sums.py: run `lmp lab run tiny --only sums --replace`"
    assert PostProblem("posts/tiny/captures/sums.json", 1, said) in problems(built)


def test_a_program_that_no_checksum_guards(built: Post) -> None:
    edit(built.folder / "lab.toml", 'workload = "sums.py"', "")
    line = line_with(built.folder / "lab.toml", "[capture.sums]")
    said = "capture sums runs sums.py, which is not in its `workload`: a change of it would not be found"
    assert PostProblem("posts/tiny/lab.toml", line, said) in problems(built)


def test_another_program_of_the_posts_own_folder(tiny: Post) -> None:
    own = tiny.folder / "own.py"
    own.write_text("print(1)\n")
    lab = tiny.folder / "lab.toml"
    rule = '\n[capture.own]\nargv = ["{python}", "{post}/own.py"]\ntool = "python"\nworkload = "own.py"\n'
    lab.write_text(lab.read_text() + rule)
    post = read_post(tiny.folder)
    run(post, Where(only=["own"], replace=True))
    build([post], [post], no_figures)
    assert problems(post) == []
    own.write_text("print(2)\n")
    said = "was taken with another own.py: run `lmp lab run tiny --only own --replace`"
    assert problems(post) == [PostProblem("posts/tiny/captures/own.json", 1, said)]


def test_another_command_line(built: Post) -> None:
    edit(built.folder / "lab.toml", '["echo", "hello"]', '["echo", "hallo"]')
    said = "was taken with another argv than lab.toml has: run `lmp lab run tiny --only hello --replace`"
    assert PostProblem("posts/tiny/captures/hello.json", 1, said) in problems(built)


def test_a_capture_of_nothing(built: Post) -> None:
    (built.captures / "left.txt").write_text("x")
    assert PostProblem("posts/tiny/captures/left.txt", 1, "belongs to no capture of lab.toml") in problems(built)


def test_a_page_of_no_post(built: Post) -> None:
    (built.posts / "other.md").write_text("42")
    assert problems(built) == [PostProblem("posts/other.md", 1, "is rendered from no post")]


def test_posts_that_are_too_large(built: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    (built.folder / "runs").mkdir()
    (built.folder / "runs" / "large").write_bytes(bytes(10_000))
    assert problems(built) == []
    size = sum(file.stat().st_size for file in built.posts.rglob("*") if file.is_file()) - 10_000
    monkeypatch.setattr(checking, "MOST_BYTES", size)
    assert problems(built) == []
    monkeypatch.setattr(checking, "MOST_BYTES", size - 1)
    (problem,) = problems(built)
    assert problem.message == f"posts have {size:,} bytes, more than {size - 1:,}; this file is the largest"


def test_a_record_that_is_none(built: Post) -> None:
    (built.captures / "hello.json").write_text("{}")
    found = problems(built)
    assert ("posts/tiny/lab.toml", line_with(built.folder / "lab.toml", "[capture.hello]")) in [
        (p.file, p.line) for p in found
    ]


def test_a_plot_of_another_matplotlib_is_held_against_its_data(built: Post) -> None:
    data = (built.folder / "plots" / "growth.svg").read_bytes()
    other = re.sub(rb"matplotlib [\d.]+ -->", b"matplotlib 0.1 -->", data.replace(b"#808890", b"#808891"))
    assert same_drawing(other, data)
    assert not same_drawing(other, re.sub(rb"data [0-9a-f]{64}", b"data " + b"0" * 64, data))
    assert not same_drawing(data.replace(b"#808890", b"#808891"), data)


# --- broken templates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{{num:sums:{ninety}}}", "{ninety} has no value: sums has ten, forty"),
        ("{{num:nothing:{ten}}}", "nothing is no capture: lab.toml has sums, hello"),
        ("{{num:sums}}", "is incomplete"),
        ("{{num:sums:64}}", "64 reads nothing of capture sums, which has ten, forty"),
        ("{{num:hello:{sums.ten} * 2}}", "reads nothing of capture hello, which has no values"),
        ("{{num:sums:{source.gauss} / 2}}", "reads nothing of capture sums, which has ten, forty"),
        ("{{num:2 * 32}}", "2 * 32 reads nothing: a number comes from a capture, a figure of lmp or a source"),
        ("{{num:sums:{ten} +}}", "expected a number"),
        ("{{num:sums:{ten} / 0}}", "division by zero"),
        ("{{num:sums:__import__('os')}}", "unknown function '__import__'"),
        ("{{num:sums:{ten}|furlongs}}", "unknown format 'furlongs'"),
        ("{{num:sums:{ten} / 2|int}}", "is no whole number"),
        ("{{lmp:what:flops}}", "what is no subject"),
        ("{{env:sums:colour}}", "colour is no field of a capture"),
        ("{{src:blog}}", "source blog has no value: cite it with {{cite:blog}}"),
        ("text {{cap:sums}} text", "stands alone on a line"),
        ("{{cap:sums:1-9}}", "capture sums has 3 lines, so 1-9 is not there"),
        ("{{code:../../../../etc/passwd}}", "leads out of workloads/"),
        ("{{code:nothing.py}}", "is in neither posts/workloads nor tiny/"),
        ("{{plot:nothing}}", "nothing is no plot"),
        ("{{table:nothing}}", "nothing is no table"),
        ("{{cite:unfinished", "is never closed"),
    ],
)
def test_a_broken_reference_is_named_by_its_line_and_nothing_is_written(tiny: Post, line: str, message: str) -> None:
    file = tiny.folder / "post.md"
    file.write_text(f"{file.read_text()}\n{line}\n")
    with pytest.raises(PostRefused) as raised:
        build([tiny], [tiny], no_figures)
    (problem,) = raised.value.problems
    assert (problem.file, problem.line) == ("posts/tiny/post.md", line_with(file, line))
    assert message in problem.message
    assert not tiny.markdown.exists()


def test_a_table_a_ratio_and_a_plot_that_read_nothing(tiny: Post) -> None:
    lab = tiny.folder / "lab.toml"
    edit(lab, '"{{num:sums:{ten}}}"', '"{{num:sums:285}}"')
    more = '\n[ratio.r]\nwhat = "r"\nmeasured = "sums:{ten}"\npredicted = "sums:285"\nratio = "sums:{ten} / 285"\n'
    more += '[plot.flat]\ntitle = "t"\ny = "y"\nseries = [{points = [[1, "5"]]}]\n'
    lab.write_text(lab.read_text() + more)
    file = tiny.folder / "post.md"
    file.write_text(f"{file.read_text()}\n{{{{plot:flat}}}}\n")
    with pytest.raises(PostRefused) as raised:
        build([read_post(tiny.folder)], [], no_figures)
    said = {(problem.file, problem.line): problem.message for problem in raised.value.problems}
    assert "285 reads nothing of capture sums" in said["posts/tiny/lab.toml", line_with(lab, "[ratio.r]")]
    assert "285 reads nothing of capture sums" in said["posts/tiny/post.md", line_with(file, "{{table:sums}}")]
    assert "5 reads nothing" in said["posts/tiny/post.md", line_with(file, "{{plot:flat}}")]
    assert len(said) == 3


def test_a_number_of_the_program_and_one_without_a_capture_of_its_own(tiny: Post) -> None:
    lab = tiny.folder / "lab.toml"
    edit(
        lab, "[capture.sums.values]\n", "[capture.sums.values]\nfirst = {from = 'sums.py', pattern = 'in \\((\\d+)'}\n"
    )
    (tiny.folder / "post.md").write_text("A{{num:sums:{first}}} B{{num:{sums.ten} / {source.gauss}|.3f}}\n")
    post = read_post(tiny.folder)
    # The program counts to (10, 20, 40); 285 / 8 = 35.625.
    assert "A10 B35.625" in render(post, no_figures(post)).markdown
    program = tiny.workloads / "sums.py"
    program.write_text(program.read_text().replace("(10, ", "(11, "))
    post = read_post(tiny.folder)
    problem = render(post, no_figures(post)).problems[0]
    assert problem.message.endswith("sums.py is not the file that the capture was taken with")


def test_a_capture_that_was_not_taken(tiny: Post) -> None:
    (tiny.captures / "sums.json").unlink()
    with pytest.raises(PostRefused, match="run `lmp lab run tiny --only sums --replace`"):
        build([tiny], [tiny], no_figures)


def test_a_refusal_can_be_quoted_and_has_no_numbers(tiny: Post) -> None:
    record = tiny.captures / "sums.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"status": "refused", "message": "Operation not permitted"}))
    with pytest.raises(PostRefused) as raised:
        build([tiny], [tiny], no_figures)
    messages = [problem.message for problem in raised.value.problems]
    assert all("has no numbers: refused: Operation not permitted" in message for message in messages)
    (tiny.folder / "post.md").write_text("{{cap:sums}}\n")
    post = read_post(tiny.folder)
    build([post], [post], no_figures)
    assert "$ python workloads/sums.py\n[Operation not permitted]\n10 numbers" in post.markdown.read_text()


def test_building_twice_gives_the_same_bytes(built: Post) -> None:
    files = [file for file in built.posts.rglob("*") if file.is_file()]
    before: dict[Path, bytes] = {file: file.read_bytes() for file in files}
    for file in (built.markdown, built.html, *(built.folder / "plots").iterdir()):
        file.unlink()
    post = read_post(built.folder)
    build([post], [post], no_figures)
    assert {file: file.read_bytes() for file in files} == before


def test_facts_of_records_and_a_capture_that_is_named_record(tiny: Post) -> None:
    (tiny.folder / "lab.toml").write_text(
        'title = "t"\nquestion = "q"\n'
        '[capture.record]\nargv = ["echo", "took 7"]\ntool = "echo"\nvalues.took = \'took (\\d+)\'\n'
        '[capture.b]\nargv = ["echo", "took 9"]\ntool = "echo"\nrepeat = 2\nvalues.took = \'took (\\d+)\'\n'
    )
    (tiny.folder / "post.md").write_text("{{num:b:{record.took} * 100 + {took} * 10 + {record.repeat}}}\n")
    run(read_post(tiny.folder), Where(replace=True))
    rendered, _ = check([read_post(tiny.folder)], [tiny], no_figures)
    # 7 of the capture `record`, 9 of b itself, 2 runs of b.
    assert "792\n" in rendered[0].markdown
