"""Where the values of a draft's parameters come from: paths that the source says can be followed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from lmp.records import UNIVERSAL, Draft, GateFinding
from lmp.source.members import Known, Members

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PATH = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*|\[-?\d+\])*)", re.ASCII)
RUNTIME = ("batch_size", "seq_len", "cache_len")
EXPECTED = "config.X, self.X, init.X or inputs.NAME.shape[I]"


def without_universal(draft: Draft) -> Draft:
    """w_bytes and a_bytes are known everywhere: a draft that declares them as well says nothing new."""
    declared = {name: path for name, path in draft.parameters.items() if name not in UNIVERSAL}
    return draft.model_copy(update={"parameters": declared})


def unresolvable(draft: Draft, members: Members, config_names: Collection[str]) -> Iterator[GateFinding]:
    """A finding for each parameter whose path leads nowhere, and for each pinned name that is none."""
    places = _places(members, config_names)
    for name, path in draft.parameters.items():
        problem = _name_problem(name) or _path_problem(name, path, places) or _meaning_problem(name, path)
        if problem is not None:
            yield GateFinding(rule="variable", message=f"parameter {name}: {problem}", claimed=path[:200])
    for name in draft.pinned:
        if name not in draft.parameters and name not in places["config"] and name not in places["init"]:
            message = f"pinned: {name} is neither a parameter, nor of the config, nor a constructor's argument"
            yield GateFinding(rule="variable", message=message)


def _meaning_problem(name: str, path: str) -> str | None:
    """The names that mean the same in every class say where they are to be found."""
    if name in RUNTIME and path != name and not path.startswith("inputs."):
        return f"{name} is a dimension of an input, and {path} is none"
    return None


def _places(members: Members, config_names: Collection[str]) -> Mapping[str, Known]:
    return {
        "config": members.config | Known(frozenset(config_names)),
        "self": members.attributes,
        # Modules that were built unseen are asked for the attribute of that name.
        "init": members.init | members.attributes,
        "inputs": members.inputs,
    }


def _name_problem(name: str) -> str | None:
    return None if _NAME.fullmatch(name) else "a name has letters, digits and underscores only"


WHAT = {
    "config": "the class's config has no {0}",
    "self": "the class assigns no self.{0}",
    "init": "the constructor has no argument {0}",
    "inputs": "forward() has no argument {0}",
}


def _path_problem(name: str, path: str, places: Mapping[str, Known]) -> str | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return f"{path!r} is no path; give {EXPECTED}"
    origin, rest = match.groups()
    if not rest:
        return None if path in RUNTIME else f"{path} names nothing; give {EXPECTED}"
    if origin not in places:
        return f"{path} starts with {origin}; give {EXPECTED}"
    first = re.match(r"\.([A-Za-z_]\w*)", rest)
    if first is None:
        return f"{path} cannot be read; give {EXPECTED}"
    # A variable that asks whether something is there may be of what is not.
    if first[1] in places[origin] or (origin == "self" and name.startswith("has_")):
        return None
    there = sorted(places[origin].known)
    if origin == "config" and not there:
        return f"{path}: the constructor takes no config; give {EXPECTED.removeprefix('config.X, ')}"
    listed = f"; there are {', '.join(there)}" if 0 < len(there) <= 12 else ""
    return f"{WHAT[origin].format(first[1])}{listed}"
