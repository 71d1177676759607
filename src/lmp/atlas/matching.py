"""Which entry of the atlas answers a command: one of the same class, config, options and sources; or a family's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmp.atlas.families import Unlike, at_config
from lmp.errors import LmpError
from lmp.records import short
from lmp.store.fingerprint import agrees_with_sources, derived_by, judged_by, linked_by, unsourced

if TYPE_CHECKING:
    from lmp.analyze.session import Options, Session
    from lmp.atlas.archive import Atlas, Entry
    from lmp.atlas.records import Listed
    from lmp.records import ModelAnalysis

FAMILY = "family formulas; this config itself was not executed"
"""Beginning of the reason for which a family's answer is unverified."""


@dataclass(frozen=True)
class Answer:
    """An entry that answers, and its formulas at the asked config."""

    entry: Entry
    model: ModelAnalysis
    is_family: bool
    """The formulas are of another config of the class."""
    is_older: bool
    """The entry was made by other rules than the installed ones."""
    unsourced: tuple[str, ...]
    """Distributions that are not installed: their sources are not compared."""
    asked: str = ""
    """The config that is answered for, as it was named; empty for a class's default config."""

    @property
    def sentence(self) -> str:
        """Where the answer is from, in one line."""
        listed, model = self.entry.listed, self.model
        sources = ", ".join(f"{name} {version}" for name, version in listed.distributions.items())
        of = listed.model_id or listed.name
        if self.is_family:
            said = [
                f"from lmp's atlas: family formulas of {short(model.class_name)} for {self.asked}",
                f"this config itself was not executed, the formulas are verified with {sources} (entry {listed.name})",
            ]
        else:
            said = [f"from lmp's atlas: the formulas of {of}, verified with {sources}"]
        if self.is_older:
            said.append("OLDER than the installed rules of lmp")
        if self.unsourced:
            gone = " and ".join(self.unsourced)
            said.append(f"{gone} {'is' if len(self.unsourced) == 1 else 'are'} not installed to compare sources")
        return "; ".join(said)


def has_older_rules(listed: Listed) -> bool:
    """Whether the installed rules of lmp differ from those that derived, judged or linked an entry."""
    versions = [f"{name} {version}" for name, version in listed.distributions.items()]
    linked = linked_by(*versions, listed.attention, listed.dtype, listed.origin.model_dump_json())
    now = (derived_by(), judged_by(), linked)
    return now != (listed.derived_by, listed.judged_by, listed.linked_by)


def exact_entry(atlas: Atlas, class_path: str, options: Options) -> Listed | None:
    """The entry of exactly this class, config, attention and dtype."""
    found = options.found_config
    sha256 = None if found is None else found.sha256
    asked = {"class_name": class_path, "attention": options.attention or "sdpa", "dtype": options.dtype}
    return next((entry for entry in atlas.entries(**asked) if entry.origin.sha256 == sha256), None)


def find_answer(atlas: Atlas, class_path: str, options: Options, session: Session) -> tuple[Answer | None, str | None]:
    """The answer of the atlas; or None, and the reason if the class has entries. Raises Damaged."""
    exact = exact_entry(atlas, class_path, options)
    if exact is not None:
        entry = atlas.load(exact)
        if not is_usable(entry, session):
            return None, f"the sources here are not those of its entry {exact.name}"
        return _answered(entry, entry.model, session, is_family=False), None
    closest: tuple[int, str] | None = None
    for listed in _of_family(atlas, class_path, options):
        try:
            entry = atlas.load(listed)
            if not is_usable(entry, session):
                raise Unlike("the sources here are not those of the entry")
            return _answered(entry, _of_config(entry, class_path, session), session, is_family=True), None
        except Unlike as error:
            if closest is None or error.fields < closest[0]:
                closest = error.fields, f"by the entry {listed.name}, {error}"
    return None, None if closest is None else closest[1]


def _of_family(atlas: Atlas, class_path: str, options: Options) -> Iterator[Listed]:
    """Entries of other configs of the class. A class's own default config is stated in no file."""
    if options.found_config is None:
        return
    yield from atlas.entries(class_name=class_path, attention=options.attention or "sdpa", dtype=options.dtype)


def is_usable(entry: Entry, session: Session) -> bool:
    """Whether the sources here are those of the entry; outside a project they need not be here."""
    model, trees = entry.model, session.trees
    if trees.project is not None and unsourced(model.fingerprint, trees):
        return False
    listed = entry.listed.distributions
    others = [tree for tree in trees if listed.get(tree.distribution, tree.version) != tree.version]
    return not others and agrees_with_sources(model.fingerprint, trees)


def _answered(entry: Entry, model: ModelAnalysis, session: Session, is_family: bool) -> Answer:
    gone = tuple(unsourced(entry.model.fingerprint, session.trees))
    return Answer(entry, model, is_family, has_older_rules(entry.listed), gone, _asked(session.options))


def _asked(options: Options) -> str:
    """The model's id, or the file of its config."""
    return options.model_id or str(options.config_file or "")


def _of_config(entry: Entry, class_path: str, session: Session) -> ModelAnalysis:
    """The entry's formulas with the values of the session's config. Raises Unlike."""
    try:
        values = at_config(entry.model, entry.facts, session.config or {})
    except (ArithmeticError, LmpError) as error:
        raise Unlike(str(error).splitlines()[0]) from error
    reason = f"{FAMILY}: lmp expand {_asked(session.options)}"
    verification = entry.model.verification.model_copy(
        update={"status": "unverified", "reason": reason, "points": 0, "checks": [], "arms": []}
    )
    about = {"config": session.origin, "values": values, "quantization": session.quantization(class_path)}
    return entry.model.model_copy(update={**about, "verification": verification})
