"""How often an agent's drafts are right: at the first draft, after findings, in how many rounds, with how many tokens.

    python scripts/agent_rate.py --command 'my-agent --json' torch.nn.Linear transformers.models.gpt2...GPT2MLP
    python scripts/agent_rate.py --command 'my-agent --json' --classes classes.txt --write rates.json

The command is any agent that can be called. It reads a prompt on standard input, as `lmp prompt` prints it, and writes
a draft as JSON on standard output. After a refusal it is called again, with its draft and the findings below the
prompt.
LMP_CLASS and LMP_ROUND are in its environment. Nothing that it answers is stored as a result.

    LMP_LIVE_TEST=1 LMP_LIVE_TEST_KEY=... python scripts/agent_rate.py --live --max-usd 5 CLASS...

does the same with lmp's own agent and the live service. It costs money, up to the cap (by the client's estimate, which
one answer may pass). No other credential than LMP_LIVE_TEST_KEY is used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmp.agents.attempts import findings_text
from lmp.agents.prompts import prompt_of_class, tokens
from lmp.agents.submission import analyse_missing, check_with_callees
from lmp.agents.unwritten import unwritten
from lmp.analyze.session import Options, Session
from lmp.errors import LmpError, UsageError
from lmp.records import GateFinding

ROUNDS = 5
KEY, SWITCH = "LMP_LIVE_TEST_KEY", "LMP_LIVE_TEST"
NO_DRAFT = "no draft"
"""Kind of an answer that holds no JSON object."""


@dataclass
class Measured:
    """One class: the kinds of the findings of each draft, none for an accepted one."""

    class_name: str
    rounds: list[list[str]] = field(default_factory=list)
    status: str = "refused"
    """verified, unverified or refused; failed if the agent could not be asked."""
    why: str = ""
    """The last finding, or the error."""
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    seconds: float = 0.0

    @property
    def accepted(self) -> bool:
        return self.status in ("verified", "unverified")

    @property
    def at_first(self) -> bool:
        return self.accepted and len(self.rounds) == 1


# --- any command -----------------------------------------------------------------------------------------------------


class Study:
    """Asks a command for drafts of classes, and checks them like `lmp submit`."""

    def __init__(self, command: str, options: Options, rounds: int = ROUNDS, timeout: float = 1800.0) -> None:
        self.command, self.options, self.rounds, self.timeout = command, options, rounds, timeout

    def of(self, class_path: str) -> Measured:
        found, began = Measured(class_path), time.monotonic()
        try:
            self._converse(found)
        except (LmpError, subprocess.SubprocessError, OSError) as error:
            found.status, found.why = "failed", (str(error).splitlines() or [""])[0]
        found.seconds = round(time.monotonic() - began, 1)
        return found

    def _converse(self, found: Measured) -> None:
        from lmp.agents.gate import Gate
        from lmp.agents.subject import ClassSubject

        name = found.class_name
        session = unwritten(self._session())
        prompt = prompt_of_class(session, name)
        first = f"{prompt.system}\n\n{prompt.message}"
        subject = ClassSubject(self._session(), name, engine="submitted")
        gate, asked = Gate(subject), first
        while len(found.rounds) < self.rounds:
            said = self._ask(asked, found)
            draft = json_in(said)
            if draft is None:
                found.rounds.append([NO_DRAFT])
                found.why = "the answer holds no JSON object"
                asked = f"{first}\n\nYour answer held no JSON object. Answer with the draft alone, as one JSON object."
                continue
            verdict, _ = check_with_callees(gate, draft, self._make)
            found.rounds.append([finding.rule for finding in verdict.findings])
            if verdict.analysis is not None:
                found.status, found.why = verdict.analysis.verification.status, ""
                return
            found.why = one_line(verdict.findings[0])
            left = self.rounds - len(found.rounds)
            asked = f"{first}\n\n# Your last draft\n\n{said.strip()}\n\n{findings_text(verdict.findings, left)}"

    def _session(self) -> Session:
        return Session(self.options, _silent, takes_foreign=True)

    def _make(self, class_path: str) -> None:
        analyse_missing(class_path, self.options, _silent)

    def _ask(self, text: str, found: Measured) -> str:
        environment = {**os.environ, "LMP_CLASS": found.class_name, "LMP_ROUND": str(len(found.rounds) + 1)}
        done = subprocess.run(
            self.command, shell=True, input=text, capture_output=True, text=True, env=environment, timeout=self.timeout
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
            raise UsageError(f"the command ended with {done.returncode}: {last}\ncorrect it, or give another command")
        found.tokens_in += tokens(text)
        found.tokens_out += tokens(done.stdout)
        return done.stdout


def _silent(name: str, stage: str) -> None: ...


def json_in(text: str) -> Any:
    """The largest JSON object in an answer, which may have words around it; None if there is none."""
    decoder, found, at = json.JSONDecoder(), None, 0
    longest = 0
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        if end - at > longest:
            found, longest = value, end - at
        at = end
    return found


def one_line(finding: GateFinding) -> str:
    return f"{finding.rule}: {finding.message.splitlines()[0]}"[:200]


# --- lmp's own agent, live -------------------------------------------------------------------------------------------


def check_live() -> None:
    """Leave no credential in the environment but the one for this. Raises UsageError without it."""
    from lmp.agents.environment import CREDENTIALS

    key = os.environ.get(KEY)
    if os.environ.get(SWITCH) != "1" or not key:
        raise UsageError(f"--live asks the live service and costs money\nset {SWITCH}=1 and {KEY}")
    for name in CREDENTIALS:
        os.environ.pop(name, None)
    os.environ["ANTHROPIC_API_KEY"] = key


def live(classes: Sequence[str], options: Options, usd: float, rounds: int, model: str | None) -> Iterator[Measured]:
    """lmp's own agent on each class, all within a cap in dollars. A class for which nothing is left is failed."""
    from lmp.agents.claude import ClaudeAgent
    from lmp.agents.commands import carry_out, start
    from lmp.agents.run import Limits, Run

    check_live()
    left = usd
    for name in classes:
        found, began = Measured(name), time.monotonic()
        given = {"model": model} if model else {}
        events: list[dict[str, Any]] = []
        run: Run | None = None
        try:
            if left < 0.01:
                raise UsageError(f"the cap of ${usd:.2f} is reached\ngive a higher --max-usd")
            run = start("analyze-module", [name], options, Limits(max_budget_usd=left, max_rounds=rounds, **given))
            run.on_event = events.append
            done = carry_out(
                run,
                options,
                _silent,
                lambda r: ClaudeAgent(r.client_folder, model=r.state.limits.model, effort=r.state.limits.effort),
            )
            found.status = next(o.analysis.verification.status for o in done.outcomes if o.requested)
        except LmpError as error:
            found.why = str(error).splitlines()[0]
            found.status = "failed"
        if run is not None:
            found.usd = round(run.ledger.spent, 6)
            left -= run.ledger.spent + sum(most or 0.0 for _, most in run.ledger.unknown)
        own = [event for event in events if str(event.get("class", "")).endswith(name.rpartition(".")[2])]
        for event in own:
            if event.get("event") == "handed in" and not str(event.get("outcome", "")).startswith("refers to"):
                found.rounds.append([each["rule"] for each in event["findings"]])
            if event.get("event") == "result":
                usage = event.get("usage") or {}
                found.tokens_in += sum(n for kind, n in usage.items() if "input" in kind)
                found.tokens_out += usage.get("output_tokens", 0)
        if found.status == "failed" and found.rounds:
            found.status = "refused"
        found.seconds = round(time.monotonic() - began, 1)
        yield found


# --- the report ------------------------------------------------------------------------------------------------------


def report(measured: Sequence[Measured]) -> str:
    """A line for each class, the rates, and the findings by kind."""
    rows = [
        f"{m.class_name.rpartition('.')[2]:<32} {m.status:<10} {count(len(m.rounds), 'round'):<9} "
        f"{m.tokens_in:>8,} in {m.tokens_out:>7,} out  {'' if m.usd is None else f'${m.usd:.4f}  '}{m.why}".rstrip()
        for m in measured
    ]
    whole = len(measured)
    first, final = sum(m.at_first for m in measured), sum(m.accepted for m in measured)
    rounds = [len(m.rounds) for m in measured if m.accepted]
    mean = f"{sum(rounds) / len(rounds):.2f}" if rounds else "none"
    lines = [
        *rows,
        "",
        f"first draft accepted   {first} of {whole}, {100 * first / max(1, whole):.0f} %",
        f"accepted in the end    {final} of {whole}, {100 * final / max(1, whole):.0f} %",
        f"rounds, where accepted {mean} on average",
        f"tokens                 {sum(m.tokens_in for m in measured):,} in, "
        f"{sum(m.tokens_out for m in measured):,} out",
    ]
    spent = [m.usd for m in measured if m.usd is not None]
    lines += [f"dollars                ${sum(spent):.4f}"] if spent else []
    kinds = Counter(kind for m in measured for kinds in m.rounds for kind in kinds)
    firsts = Counter(kind for m in measured for kind in (m.rounds[0] if m.rounds else ()))
    classes = Counter(kind for m in measured for kind in {kind for kinds in m.rounds for kind in kinds})
    lines += ["", "findings by kind       in all drafts · in first drafts · classes"] if kinds else []
    lines += [f"  {kind:<20} {n} · {firsts[kind]} · {classes[kind]}" for kind, n in kinds.most_common()]
    return "\n".join(lines)


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def named(given: Sequence[str], file: Path | None) -> list[str]:
    """The classes of the arguments, and of a file with one a line; `#` begins a remark."""
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    return list(dict.fromkeys([*given, *(text for line in lines if (text := line.partition("#")[0].strip()))]))


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("class_path", nargs="*", help="classes to be analysed")
    parser.add_argument("--classes", type=Path, metavar="FILE", help="more classes, one a line")
    parser.add_argument("--command", help="the agent: it reads the prompt and writes the draft")
    parser.add_argument("--live", action="store_true", help="lmp's own agent and the live service; costs money")
    parser.add_argument("--max-usd", type=float, default=1.0, help="with --live: cap in dollars [1]")
    parser.add_argument("--model", help="with --live: the model [lmp's own choice]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"drafts of a class [{ROUNDS}]")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds of one call of the command [1800]")
    parser.add_argument("--results", type=Path, metavar="DIR", help="analyses of called classes [a temporary folder]")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the measurements as JSON")
    given = parser.parse_args(arguments)
    classes = named(given.class_path, given.classes)
    if not classes or (given.command is None) != given.live:
        parser.error("give classes, and either --command or --live")
    with tempfile.TemporaryDirectory() as folder:
        options = Options(results=given.results or Path(folder), engine="agent" if given.live else "trace")
        if given.live:
            found = live(classes, options, given.max_usd, given.rounds, given.model)
        else:
            study = Study(given.command, options, given.rounds, given.timeout)
            found = (study.of(name) for name in classes)
        measured = []
        try:
            for each in found:
                measured.append(each)
                print(f"{len(measured)} of {len(classes)}: {each.class_name} {each.status}", file=sys.stderr)
        except UsageError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    say(report(measured))
    if given.write is not None:
        given.write.write_text(json.dumps([asdict(each) for each in measured], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
