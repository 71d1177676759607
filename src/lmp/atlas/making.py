"""Makes entries of the atlas: models of the catalogue and verified families, each with what a fresh install needs.

Imports torch when something is made.
"""

from __future__ import annotations

import functools
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lmp.analyze.models import expand_model
from lmp.analyze.session import Options, class_of_config
from lmp.atlas.archive import FACTS, HELD, MODEL, MODULES, Atlas, Damaged, Entry
from lmp.atlas.holding import held_by, record_of
from lmp.atlas.matching import has_older_rules
from lmp.atlas.records import Facts, HeldRecord, Listed
from lmp.errors import InvalidAnalysis, LmpError, UsageError, first_line
from lmp.records import ModelAnalysis, ModuleAnalysis, ZooEntry
from lmp.source.auto import Family, families
from lmp.source.catalogue import entries
from lmp.source.configs import resolve_config
from lmp.source.trees import find_trees
from lmp.store.fingerprint import DERIVED_BY, JUDGED_BY, LINKED_BY
from lmp.store.results import DEFAULT, Store, config_name, to_data, to_text
from lmp.store.schemas import problem
from lmp.zoo.local import LocalProcesses
from lmp.zoo.requests import FOLDER, Limits, Request
from lmp.zoo.run import ZooOptions, run_zoo

TASK = "causal-lm"
"""Task whose families the atlas has."""
LIMITS = Limits(seconds=900)
"""Of one family. A slower one is left out."""
GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of a tensor-parallel group for which peaks of memory are stored."""
INNER_SIZES = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
"""Config values that a group divides."""

Say = Callable[[str, str], None]
"""Called with a target's name and what became of it."""


@dataclass(frozen=True)
class Target:
    """What an entry is of: a model of the catalogue, or a family at its default config."""

    name: str
    model_id: str | None = None
    family: Family | None = None

    @property
    def shown(self) -> str:
        return self.model_id or self.name


@dataclass(frozen=True)
class Made:
    """The parts of an entry."""

    model: ModelAnalysis
    modules: dict[str, ModuleAnalysis]
    facts: Facts
    held: HeldRecord | None


class LeftOut(Exception):
    """Why a target has no entry, in words."""


def targets(only: Sequence[str] = ()) -> list[Target]:
    """The targets with these names, model ids or families; without names all. Raises UsageError for an unknown one."""
    every = [Target(config_name(model_id=entry.id), model_id=entry.id) for entry in entries()]
    every += [Target(f"{TASK}.{family.name}", family=family) for family in families(find_trees(), TASK)]
    found: dict[str, Target] = {}
    for name in only:
        named = [one for one in every if name.lower() in _names(one)]
        if not named:
            raise UsageError(f"there is no {name} in the catalogue, nor such a family\nsee lmp catalogue and lmp zoo")
        found |= {one.name: one for one in named}
    return list(found.values()) if only else every


def _names(target: Target) -> set[str]:
    own = {target.name.lower(), target.shown.lower()}
    return own if target.family is None else {*own, target.family.name.lower()}


# --- building --------------------------------------------------------------------------------------------------------


def build(atlas: Atlas, wanted: Sequence[Target], options: Options, jobs: int, say: Say) -> None:
    """Make the entries that are missing or not current. Results are kept in the options' folder, for the next build."""
    waiting = []
    for target in wanted:
        if is_current(atlas, target):
            say(target.shown, "current")
        else:
            waiting.append(target)
    _restore(atlas, waiting, options)
    for target, made in _made(waiting, options, jobs):
        if isinstance(made, str):
            atlas.leave_out(target.name, target.shown, made)
            say(target.shown, f"left out: {made}")
        else:
            atlas.write(listed(target, made), parts(made))
            say(target.shown, "made")


def is_current(atlas: Atlas, target: Target) -> bool:
    """Whether the atlas has an entry that the installed rules and sources would make again."""
    found = next(atlas.entries(name=target.name), None)
    if found is None or found.held_by != held_by():
        return False
    versions = {tree.distribution: tree.version for tree in find_trees()}
    try:
        return found.distributions == versions and not has_older_rules(found) and bool(atlas.load(found))
    except Damaged:
        return False


def _restore(atlas: Atlas, wanted: Sequence[Target], options: Options) -> None:
    """Put analyses of entries into the results folder where it has none: those still valid are only linked again."""
    store = Store(options.results)
    for target in wanted:
        found = next(atlas.entries(name=target.name), None)
        try:
            modules = {} if found is None else atlas.load(found).modules
        except Damaged:
            continue
        for analysis in modules.values():
            if not store.file(analysis.class_name, analysis.config.name).exists():
                store.save(analysis)


def _made(wanted: Sequence[Target], options: Options, jobs: int) -> Iterator[tuple[Target, Made | str]]:
    """Each target with its parts, or with the reason for which it has none."""
    for target in wanted:
        if target.model_id is not None:
            yield target, _or_reason(functools.partial(make_model, target, options))
    by_family = {target.family.name: target for target in wanted if target.family is not None}
    if not by_family:
        return
    zoo = ZooOptions(options.results, retry=True)
    chosen = [target.family for target in by_family.values() if target.family is not None]
    watch = _Watch()
    summary = run_zoo(chosen, zoo, LocalProcesses(jobs, LIMITS), watch)[0]
    for entry in summary.entries:
        if entry.family in by_family:
            yield by_family[entry.family], _or_reason(functools.partial(make_family, entry, options))


class _Watch:
    """Says nothing: an entry is told of when it is made."""

    def known(self, entries: object, to_do: int) -> None: ...

    def started(self, request: Request) -> None: ...

    def ended(self, entry: object) -> None: ...


def _or_reason(make: Callable[[], Made]) -> Made | str:
    try:
        return make()
    except LeftOut as error:
        return str(error)
    except LmpError as error:
        return first_line(error)


def make_model(target: Target, options: Options) -> Made:
    """The parts of an entry of the catalogue."""
    own = replace(options, model_id=target.model_id)
    model = expand_model(class_of_config(own), own, _silent).model
    return _with_facts(model, own)


def make_family(entry: ZooEntry, options: Options) -> Made:
    """The parts of an entry of a family that the zoo expanded."""
    if entry.status != "verified" or entry.class_name is None:
        raise LeftOut(entry.reason or entry.status)
    own = options
    if entry.config != DEFAULT:
        file = options.results / FOLDER / "configs" / TASK / f"{entry.family}.json"
        own = replace(options, config_file=file)
    model = Store(options.results).load_model(entry.class_name, entry.config)
    if model is None:
        raise InvalidAnalysis(f"the model of {entry.family} is gone from {options.results}")
    return _with_facts(model, own)


def _silent(class_path: str, stage: str) -> None:
    """Progress of a model that is told of as a whole."""


def _with_facts(model: ModelAnalysis, options: Options) -> Made:
    """A model with its modules and with what running it shows. Raises LeftOut if it is not verified."""
    if model.verification.status != "verified":
        raise LeftOut(f"{model.verification.status}: {model.verification.reason or 'no reason given'}")
    if model.dtype != options.dtype:
        raise LeftOut(f"it runs in {model.dtype} alone")
    from lmp.atlas.facts import facts_of, reads
    from lmp.observe.holding import hold
    from lmp.observe.inspecting import class_to_build
    from lmp.workload.isolation import isolated

    with isolated(), _no_warnings_of_transformers():
        _, cls = class_to_build(model.class_name, options, "so it has no entry")
        # transformers changes the content that it makes a config of: it is read again.
        found = resolve_config(options.config_file, options.model_id)
        with reads() as read:
            held = hold(model.class_name, options)
            peak = held.live(1, {})
        if held.reason is not None and isinstance(peak, str):
            raise LeftOut(f"what of its config it reads is not seen: {peak}")
        facts = facts_of(cls, None if found is None else found.content, read, model)
        record = record_of(held, list(_divided(held.config)))
    record = HeldRecord.model_validate_json(json.dumps(record.model_dump(mode="json"), default=str))
    store = Store(options.results)
    modules = {}
    for name in model.parts:
        part = store.load(name, DEFAULT if name.startswith("torch.") else model.config.name)
        if part is None:
            raise InvalidAnalysis(f"the analysis of {name} is gone from {options.results}")
        modules[name] = part
    return Made(model, modules, facts, record)


@contextmanager
def _no_warnings_of_transformers() -> Iterator[None]:
    """While active, transformers says nothing of configs that are changed to see what follows from what."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _divided(config: Any) -> Iterator[dict[str, int]]:
    """The inner sizes of one GPU of a group, for each group that divides the heads."""
    sizes = {name: config[name] for name in INNER_SIZES if isinstance(config.get(name), int) and config[name]}
    heads = config.get("num_attention_heads")
    for group in GROUP_SIZES:
        if group == 1:
            yield {}
        elif not (isinstance(heads, int) and heads % group):
            yield {name: max(1, size // group) for name, size in sizes.items()}


def listed(target: Target, made: Made) -> Listed:
    """The line of the index; the sha256 of its file is not known yet."""
    model = made.model
    return Listed(
        name=target.name,
        model_id=target.model_id,
        family=_family(target, made),
        class_name=model.class_name,
        attention=model.attn_requested,
        dtype=model.dtype,
        status="verified",
        points=model.verification.points,
        distributions={tree.distribution: tree.version for tree in find_trees()},
        derived_by=model.fingerprint[DERIVED_BY],
        judged_by=model.fingerprint[JUDGED_BY],
        linked_by=model.fingerprint[LINKED_BY],
        origin=model.config,
        held_by=held_by(),
        sha256="",
    )


def _family(target: Target, made: Made) -> str:
    stated = made.facts.stated.get("model_type")
    return str(stated) if stated is not None or target.family is None else target.family.name


def parts(made: Made) -> dict[str, bytes]:
    """The files inside of an entry's file. Raises InvalidAnalysis for a record that is not valid."""
    wrong = problem(ModelAnalysis, to_data(made.model))
    if wrong is not None:
        raise InvalidAnalysis(f"the model analysis of {made.model.class_name} is not valid: {wrong}")
    found = {
        MODEL: to_text(made.model),
        MODULES: json.dumps({name: to_data(one) for name, one in made.modules.items()}, ensure_ascii=False),
        FACTS: made.facts.model_dump_json(),
    }
    if made.held is not None:
        found[HELD] = made.held.model_dump_json()
    return {name: text.encode() for name, text in found.items()}


# --- checking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """An entry beside the same one made again."""

    name: str
    differs: str | None
    """What differs first; None: nothing."""


def drawn(atlas: Atlas, number: int, seed: int) -> list[Target]:
    """As many entries, drawn by the seed; all of them if there are not more."""
    known = {target.name: target for target in targets()}
    names = [entry.name for entry in atlas.index.entries if entry.name in known]
    return [known[name] for name in sorted(random.Random(seed).sample(names, min(number, len(names))))]


def check(atlas: Atlas, wanted: Sequence[Target], options: Options, jobs: int) -> Iterator[Compared]:
    """Make entries again in an empty results folder, and compare them with those of the atlas."""
    if any(Path(options.results).glob("*")):
        raise UsageError(f"{options.results} is not empty\ngive a new folder: entries are made without former results")
    for target, made in _made(wanted, options, jobs):
        found = next(atlas.entries(name=target.name), None)
        if found is None:
            yield Compared(target.shown, "the atlas has no such entry")
            continue
        try:
            entry = atlas.load(found)
            differs = made if isinstance(made, str) else _first_difference(entry, made)
        except Damaged as error:
            differs = first_line(error)
        yield Compared(target.shown, differs)


def _first_difference(entry: Entry, made: Made) -> str | None:
    """The first field of an entry that is not as it is made now. Hashes of lmp's own files are not compared."""
    pairs: list[tuple[str, Any, Any]] = [("model", _formulas(entry.model), _formulas(made.model))]
    pairs += [(name, _formulas(one), _formulas(made.modules.get(name))) for name, one in entry.modules.items()]
    pairs.append(("facts", entry.facts.model_dump(), made.facts.model_dump()))
    ours, theirs = (None if one is None else one.model_dump() for one in (entry.held, made.held))
    pairs.append(("held", ours, theirs))
    return next((f"{what}: {place}" for what, ours, theirs in pairs if (place := _place(ours, theirs))), None)


def _formulas(analysis: ModelAnalysis | ModuleAnalysis | None) -> Any:
    data = {} if analysis is None else to_data(analysis)
    hashes = ("fingerprint", "refers_to")
    found = {name: value for name, value in data.items() if name not in hashes}
    for part in found.get("parts", {}).values():
        part.pop("sha256")
    return found


def _place(ours: Any, theirs: Any, path: str = "") -> str | None:
    """The path of the first difference between two JSON values; None if they are equal."""
    if ours == theirs:
        return None
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*ours, *theirs]:
            found = _place(ours.get(name), theirs.get(name), f"{path}.{name}" if path else str(name))
            if found is not None:
                return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            found = _place(one, other, f"{path}[{index}]")
            if found is not None:
                return found
    return f"{path or 'the whole'} is {ours!r:.60}, and {theirs!r:.60} made again"
