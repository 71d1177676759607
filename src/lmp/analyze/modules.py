"""Makes a proven analysis from a class: source -> workload -> engine -> judge -> store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lmp.analyze.judging import save_judged, up_to_date
from lmp.analyze.session import Options, Outcome, Progress, Session, only_trace, references_of
from lmp.errors import NotFound, Search, VerificationFailed
from lmp.records import HANDED_IN, ModuleAnalysis, Verification
from lmp.workload.gc_tuning import gc_paused, gc_seldom

if TYPE_CHECKING:
    from lmp.analyze.execution import Execution


def analyze_modules(class_paths: Sequence[str], options: Options, progress: Progress) -> list[Outcome]:
    """Analyse and verify classes, or take valid stored analyses of them.

    Raises NotFound if a class or its source is missing, and TraceFailed if it cannot be executed. Raises StorageError
    if the result cannot be written.
    """
    only_trace(options)
    session = Session(options, progress)
    session.ask(class_paths)
    found: dict[str, Outcome] = {}
    for class_path in class_paths:
        for outcome in analyze(class_path, session):
            name = outcome.analysis.class_name
            if name not in found or outcome.requested:
                found[name] = outcome
    return list(found.values())


def verify_modules(class_paths: Sequence[str], options: Options, progress: Progress) -> Iterator[Outcome]:
    """Compare the stored analyses with execution again, one by one, and store the results.

    Raises NotFound for a class that is not there before any is executed.
    """
    session = Session(options, progress)
    session.ask(class_paths)
    for class_path in dict.fromkeys(session.locate(class_path).class_path for class_path in class_paths):
        progress(class_path, "verifying")
        yield verify_module(class_path, options)
        progress(class_path, "stored")


def verify_module(class_path: str, options: Options) -> Outcome:
    """Compare the stored analysis with execution again, and store the result."""
    session = Session(options, lambda name, stage: None)
    session.ask([class_path])
    source = session.locate(class_path)
    stored = session.load(source.class_path)
    if stored is None or options.fresh or session.standing(stored) == "derive again":
        return requested(analyze(class_path, session))
    make_references(stored, session)
    judged = save_judged(stored, _judged(stored, session), session)
    file = session.store.file(judged.class_name, judged.config.name)
    return Outcome(judged, file, reused=False, requested=True)


def _judged(stored: ModuleAnalysis, session: Session) -> Verification:
    """The new verdict on a stored analysis. One that was handed in is compared with lmp's own formulas too."""
    from lmp.analyze.agreement import judged_with_derivation

    execution = execution_of(stored.class_name, session, stored)
    return judged_with_derivation(execution, stored) if stored.engine in HANDED_IN else execution.judged(stored)


def load_for_evaluation(
    class_path: str, options: Options, progress: Progress
) -> tuple[ModuleAnalysis, Callable[[str], ModuleAnalysis]]:
    """The analysis of a class, and a look-up of its references. Missing analyses are made first."""
    session = Session(options, progress)
    session.ask([class_path])
    analysis = requested(analyze(class_path, session)).analysis
    make_references(analysis, session)
    return analysis, session.lookup


def analyze(class_path: str, session: Session) -> list[Outcome]:
    """A class and its callees, callees first: valid stored analyses, others made now.

    An analysis stored as part of another model is not used for the class itself.
    """
    session.progress(class_path, "reading")
    source = session.locate(class_path)
    name = source.class_path
    stored = up_to_date(name, session, functools.partial(analysis_of, session=session))
    if stored is not None and stored.as_a_part:
        stored = None
    if stored is None and session.is_own(name) and name not in session.own:
        stored = session.of_an_instance(name)
    if stored is not None:
        return [Outcome(stored, session.store.file(name, session.names(name)), reused=True, requested=True)]
    with gc_paused():
        from lmp.analyze.job import run_job
    with gc_seldom():
        return run_job(source, session, functools.partial(analyze, session=session))


def requested(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of the requested class, among those of its callees."""
    return next(outcome for outcome in outcomes if outcome.requested)


def make_references(analysis: ModuleAnalysis, session: Session) -> list[ModuleAnalysis]:
    """Make missing analyses of references at any depth, so that look-ups find them. Returns all, each once."""
    waiting, seen = references_of(analysis), {analysis.class_name: analysis}
    while waiting:
        class_path = waiting.pop()
        if class_path not in seen:
            seen[class_path] = analysis_of(class_path, session)
            waiting += references_of(seen[class_path])
    return [one for name, one in seen.items() if one is not analysis]


def analysis_of(class_path: str, session: Session, as_a_part: bool = True) -> ModuleAnalysis:
    """The analysis of a class, made now if no valid one exists.

    Without ``as_a_part``, an analysis of a model as called by another one, with other inputs, is not used.
    """
    make = functools.partial(analysis_of, session=session)
    found = session.known.get(class_path) or up_to_date(class_path, session, make)
    if found is not None and found.as_a_part and not as_a_part:
        found = None
    if found is None:
        found = _made(class_path, session)
    session.known[class_path] = session.known[found.class_name] = found
    return found


def _made(class_path: str, session: Session) -> ModuleAnalysis:
    try:
        return requested(analyze(class_path, session)).analysis
    except NotFound as error:
        file = session.store.file(class_path, session.names(class_path))
        error.searched.insert(0, Search(f"an analysis of {class_path}", str(file), "no such file"))
        raise
    except VerificationFailed as error:
        others = session.foreign()
        if not others:
            raise
        first = str(error).splitlines()[0]
        told = VerificationFailed(f"{first}\ncheck the analyses by others that it may refer to: {', '.join(others)}")
        told.place = error.place
        raise told from error


def execution_of(class_path: str, session: Session, stored: ModuleAnalysis | None = None) -> Execution:
    """A class in its workload, ready to execute. ``stored``: an analysis to judge again.

    Raises NotFound if there is no such class, TraceFailed if no workload runs it.
    """
    with gc_paused():
        from lmp.analyze.execution import Execution
    return Execution(session, session.locate(class_path), stored)
