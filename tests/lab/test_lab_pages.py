"""HTML of posts: self-contained, escaped; a reader's run beside the original; lmp's own figures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import datetime, tzinfo
from html.parser import HTMLParser
from pathlib import Path

import pytest
from lab_posts import no_figures
from typer.testing import CliRunner, Result

from lmp.cli.main import app
from lmp.errors import PostFault
from lmp.lab import rerun
from lmp.lab.building import build, render
from lmp.lab.config import CaptureRule
from lmp.lab.flame import flame_svg
from lmp.lab.html import post_page
from lmp.lab.post import Post, load, read_post, save, sha256
from lmp.lab.quoting import command
from lmp.lab.rerun import Where, run
from lmp.source.project import scratch_results_folder
from shared_results import PROJECT

HOSTILE = (
    "# t\n\n<script>alert(1)</script> <img src=x onerror=alert(1)>\n\n[a](javascript:alert(1)) ![b](https://x/y.png)\n"
)


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_markup_of_a_post_is_escaped() -> None:
    tags = Tags(post_page("<b>", HOSTILE, {})).found
    assert not [tag for tag, _ in tags if tag in ("script", "b")]
    assert [attributes.get("href") for tag, attributes in tags if tag == "a"] == []
    assert not [attributes for _, attributes in tags if any(name.startswith("on") for name in attributes)]


def test_a_page_asks_nobody() -> None:
    tags = Tags(post_page("t", HOSTILE, {})).found
    policy = next(attributes["content"] for tag, attributes in tags if tag == "meta" and "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def test_a_page_has_its_plots_and_both_grounds(tiny: Post) -> None:
    build([tiny], [tiny], no_figures)
    page = tiny.html.read_text()
    (image,) = [attributes for tag, attributes in Tags(page).found if tag == "img"]
    assert str(image["src"]).startswith("data:image/svg+xml;base64,")
    assert "prefers-color-scheme: dark" in page
    assert '<h2 id="sources">Sources</h2>' in page


def test_a_flame_graph_is_part_of_its_page() -> None:
    svg = flame_svg({("<script>", "b"): 3}, "t", "samples", 0)
    page = post_page("t", "![t](a/plots/f.svg)\n", {"a/plots/f.svg": svg})
    tags = [tag for tag, _ in Tags(page).found]
    assert tags.count("svg") == 1
    assert "script" not in tags
    assert "img" not in tags
    assert "<title>b: 3 samples, 100.0 %</title>" in page


def test_the_index_leads_to_the_posts(tiny: Post) -> None:
    build([tiny], [tiny], no_figures)
    assert "| [Sums of squares](tiny.md) | How fast" in (tiny.posts / "README.md").read_text()
    assert '<a href="tiny.html">Sums of squares</a>' in (tiny.posts / "html" / "index.html").read_text()


def test_markup_in_a_raw_text_cannot_end_its_block(tiny: Post) -> None:
    stored = load(tiny.captures, "sums")
    assert stored is not None
    text = "```\n<script>alert(1)</script>\n````\n10 numbers: 1\n40 numbers: 2\n"
    save(tiny.captures, stored.record.model_copy(update={"output_sha256": sha256(text)}), text)
    (tiny.folder / "post.md").write_text("{{cap:sums}}\n")
    post = read_post(tiny.folder)
    page = next(data for file, data in render(post, no_figures(post)).files().items() if file.suffix == ".html")
    assert "script" not in [tag for tag, _ in Tags(page.decode()).found]
    assert b"````\n10 numbers" in page


@pytest.mark.parametrize(
    ("address", "leads_to"),
    [
        ("other.md", "other.html"),
        ("../docs/bytes.md", "../../docs/bytes.md"),
        ("workloads/sums.py", "../workloads/sums.py"),
        ("#sources", "#sources"),
        ("https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_of_a_page(address: str, leads_to: str) -> None:
    assert f'href="{leads_to}"' in post_page("t", f"[a]({address})\n", {})


# --- a reader's run --------------------------------------------------------------------------------------------------


def test_a_reader_sees_both_numbers(tiny: Post) -> None:
    program = tiny.posts / "workloads" / "sums.py"
    program.write_text(program.read_text().replace("10, 20, 40", "10, 20, 41"))
    edited = tiny.folder / "lab.toml"
    edited.write_text(edited.read_text().replace("^40 numbers", "^4[01] numbers"))
    result = run(read_post(tiny.folder), Where())
    assert result.rendered is not None
    text = (result.folder / "tiny.md").read_text()
    # 20,540 + 40 * 40 = 22,140; 22140 / 285 = 77.68.
    assert "Forty numbers give 22,140 (original: 20,540), which is 77.7x (original: 72.1x)" in text
    assert "| forty | 22,140 (original: 20,540) |" in text
    assert "(plots/growth.svg)" in text
    assert result.folder.parent == tiny.folder / "runs"
    assert (result.folder / "tiny.html").is_file()
    assert (result.folder / "plots" / "growth.svg").is_file()


def test_what_was_asked_for_has_no_original_beside_it(tiny: Post) -> None:
    lab = tiny.folder / "lab.toml"
    first = "first = {from = 'sums.py', pattern = 'in \\((\\d+)'}\n"
    lab.write_text(lab.read_text().replace("[capture.sums.values]\n", f"[capture.sums.values]\n{first}"))
    file = tiny.folder / "post.md"
    file.write_text(f"{file.read_text()}\nIt counts to {{{{num:sums:{{first}}}}}} at first.\n")
    result = run(read_post(tiny.folder), Where())
    text = (result.folder / "tiny.md").read_text()
    assert "It counts to 10 at first." in text
    assert "Forty numbers give 20,540 (original: 20,540)" in text


def test_where_a_tool_is_missing_the_original_is_shown_with_the_reason(tiny: Post, tmp_path: Path) -> None:
    file = tiny.folder / "lab.toml"
    file.write_text(file.read_text().replace('["{python}", "{workloads}/sums.py"]', '["no-such-tool"]'))
    result = run(read_post(tiny.folder), Where(out=tmp_path / "out"))
    text = (result.folder / "tiny.md").read_text()
    assert "Forty numbers give 20,540 (original; missing here), which is 72.1x (original; missing here)" in text
    assert "missing: no-such-tool is not installed" in text
    assert "*Missing here: no-such-tool is not installed. The original:*\n\n```text\n$ no-such-tool\n10 numbers" in text
    assert [capture.status for capture in result.captures] == ["missing", "ok"]


def test_what_a_reader_did_not_take_is_the_originals(tiny: Post) -> None:
    result = run(tiny, Where(only=["hello"]))
    text = (result.folder / "tiny.md").read_text()
    assert "Forty numbers give 20,540 (original), which is 72.1x (original) the sum of ten." in text
    assert "*Not taken here. The original:*" in text
    assert "| sums | | not taken | | |" in text


def test_a_post_without_captures_shows_the_readers_alone(tiny: Post) -> None:
    shutil.rmtree(tiny.captures)
    result = run(read_post(tiny.folder), Where())
    assert "Forty numbers give 20,540, which is 72.1x" in (result.folder / "tiny.md").read_text()


# --- commands --------------------------------------------------------------------------------------------------------


def lmp(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lab", *arguments])


def test_build_and_check_on_the_command_line(tiny: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.root)
    assert lmp("build").stdout == "posts/tiny.md: 12 references\n"
    done = lmp("check", "tiny", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"references": {"tiny": 12}, "problems": []})
    tiny.markdown.write_text(tiny.markdown.read_text().replace("72.1x", "73.1x"))
    done = lmp("check")
    assert done.exit_code == 4
    assert re.fullmatch(
        r"posts/tiny\.md:\d+: differs from what `lmp lab build` gives\n"
        r"error: 1 problem; correct them, then run `lmp lab build`\n",
        done.stderr,
    )
    done = lmp("check", "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert (problem["file"], done.exit_code) == ("posts/tiny.md", 4)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run"], 2, "one post is run at a time"),
        (["run", "tiny", "tiny"], 2, "one post is run at a time"),
        (["run", "tiny", "--replace", "--out", "x"], 2, "leave out --out"),
        (["run", "tiny", "--only", "nothing"], 2, "nothing is no capture of tiny"),
        (["build", "--replace"], 2, "are for `lmp lab run`"),
        (["check", "nothing"], 3, "nothing is no post"),
        (["fly"], 2, "'fly' is not one of"),
    ],
)
def test_bad_input(tiny: Post, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str) -> None:
    monkeypatch.chdir(tiny.root)
    done = lmp(*arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_no_posts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = lmp("check")
    assert (done.exit_code, "there are no posts" in done.stderr) == (3, True)


def test_run_names_its_captures(tiny: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.root)
    done = lmp("run", "tiny", "--out", "mine", "--json", "--quiet")
    found = json.loads(done.stdout)
    assert found["captures"] == [{"id": name, "status": "ok", "message": ""} for name in ("sums", "hello")]
    assert (tiny.root / "mine" / "captures" / "sums.json").is_file()


def test_a_run_keeps_its_captures_where_the_post_cannot_be_rendered(
    tiny: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.root)
    (tiny.folder / "post.md").write_text("{{num:sums:{nothing}}}\n")
    done = lmp("run", "tiny", "--out", "mine", "--quiet")
    assert done.exit_code == 4
    first, second = done.stderr.splitlines()
    assert first.startswith("posts/tiny/post.md:1: {{num:sums:{nothing}}}: {nothing} has no value")
    assert second == f"error: 1 problem; the captures are in {tiny.root / 'mine'}, the post is not rendered"
    assert (tiny.root / "mine" / "captures" / "sums.json").is_file()
    assert not (tiny.root / "mine" / "tiny.md").exists()


def test_ctrl_c_on_the_command_line(process: None, tiny: Post, tmp_path: Path) -> None:
    (tiny.folder / "lab.toml").write_text(
        'title = "t"\nquestion = "q"\n[capture.a]\nargv = ["echo", "x"]\ntool = "echo"\n'
        '[capture.b]\nargv = ["sleep", "600"]\ntool = "sleep"\n'
    )
    out = tmp_path / "out"
    started = subprocess.Popen(
        [sys.executable, "-m", "lmp", "lab", "run", "tiny", "--out", str(out)],
        cwd=tiny.root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        # What a shell runs in the background ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert started.stderr is not None
    for line in started.stderr:
        if line == "b: running, 120 s at most\n":
            break
    started.send_signal(signal.SIGINT)
    said = started.stderr.read()
    assert started.wait(60) == 130
    assert "interrupted in b: 1 of 2 captures are whole" in said
    assert f"--only b --out {out}" in said
    assert sorted(file.name for file in (out / "captures").iterdir()) == ["a.json", "a.txt"]
    assert load(out / "captures", "a") is not None


def test_posts_that_cannot_be_written(tiny: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.root)
    (tiny.posts / "html").write_text("a file, where a folder should be")
    done = lmp("build", "tiny")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"make {tiny.posts / 'html'} a folder that you can write to"
    done = lmp("run", "tiny", "--out", str(tiny.markdown / "x"))
    assert (done.exit_code, "with `--out`" in done.stderr) == (2, True)


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(
    tiny: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 11, 24, 1, 2, 3, tzinfo=tz)

    monkeypatch.setattr(rerun, "datetime", Clock)
    assert [run(tiny, Where()).folder.name for _ in range(2)] == ["2026-11-24T010203Z", "2026-11-24T010203Z-2"]
    # A run that replaces captures removes its scratch folder, and no other's.
    run(tiny, Where(replace=True))
    assert sorted(file.name for file in (tiny.folder / "runs").iterdir()) == [
        "2026-11-24T010203Z",
        "2026-11-24T010203Z-2",
    ]


def test_a_printed_command_line_has_plain_names_in_its_settings_too() -> None:
    rule = CaptureRule(argv=["{python}", "{workloads}/x.py"], tool="x", env={"CACHE": "{build}/cache", "N": "a b"})
    assert command(rule.argv, rule.env) == "CACHE=build/cache N='a b' python workloads/x.py"


def test_the_posts_of_the_folder_where_one_stands(tiny: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.folder)
    assert read_post(".").folder == tiny.folder


# --- figures of lmp --------------------------------------------------------------------------------------------------


def test_figures_of_a_subject(derivation: None, posts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(posts.parent)
    arguments = ("--results", str(tmp_path / "results"), "--quiet")
    assert lmp("build", "costs", *arguments).exit_code == 0
    text = (posts / "costs.md").read_text()
    # 2 rows, 8 inputs, 4 outputs: 2 * 2 * 8 * 4 = 128 operations. Half a second: 256 a second.
    # Elements of 2 bytes: weight 32, input 16, output 8: 112 bytes.
    assert "It has 128 operations" in text
    assert "256 a second, and 112 B of traffic." in text
    # 500 ms measured, 128 / 1000 s predicted: 3.906.
    assert "| a linear layer | 500.0 ms | 128.0 ms | 3.91x |" in text
    assert (
        "| [A linear layer](costs.md) | a linear layer | 500.0 ms | 128.0 ms | 3.91x |"
        in (posts / "README.md").read_text()
    )
    done = lmp("check", "costs", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")


def test_an_assumption_that_does_not_hold_is_refused(
    derivation: None, posts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(posts.parent)
    file = posts / "costs" / "post.md"
    file.write_text("{{lmp:linear:flops@batch_size=1}}\n{{lmp:linear:flips@batch_size=1,seq_len=2}}\n")
    done = lmp("build", "costs", "--results", str(tmp_path / "results"), "--quiet")
    assert done.exit_code == 4
    first, second, _ = done.stderr.splitlines()
    assert first.startswith("posts/costs/post.md:1: {{lmp:linear:flops@batch_size=1}}: seq_len has no value")
    assert "flips is no quantity" in second


def test_a_project_stays_as_it_is(
    derivation: None, posts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = PROJECT / "analysis_results"
    before = {file: file.read_bytes() for file in stored.glob("torch.nn.modules.linear.Linear*/*")}
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for action in ("build", "check"):
        assert lmp(action, str(posts / "costs"), "--quiet").exit_code == 0
    assert {file: file.read_bytes() for file in stored.glob("torch.nn.modules.linear.Linear*/*")} == before
    assert list((tmp_path / "cache").rglob("model_analysis.json")) != []


def test_a_results_folder_that_was_named_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("LMP_RESULTS", str(tmp_path))
    assert scratch_results_folder() == tmp_path


def test_the_settings_of_a_figure_and_a_figure_of_none(posts: Path) -> None:
    figures = no_figures(read_post(posts / "costs"))
    assert figures.setting("linear:flops@batch_size=64,seq_len=2", "batch_size") == 64
    with pytest.raises(PostFault, match="cache_len is no setting of 'linear:flops@seq_len=2': settings are seq_len"):
        figures.setting("linear:flops@seq_len=2", "cache_len")
    with pytest.raises(PostFault, match="'linear:64' reads no figure"):
        figures.value("linear:64")
