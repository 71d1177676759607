"""The records of the atlas's files."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lmp.records import ClassPath, ConfigOrigin, Record


class Listed(Record):
    """A line of the index: which model an entry is of, and what it was made from."""

    name: str = Field(description="of the entry's file, without its suffix")
    model_id: str | None = Field(default=None, description="of the catalogue")
    family: str = Field(description="model_type of the config")
    class_name: ClassPath
    attention: str
    dtype: str
    status: Literal["verified"]
    points: int = Field(description="executed points")
    distributions: dict[str, str] = Field(description="distribution -> version of the sources")
    derived_by: str
    judged_by: str
    linked_by: str
    origin: ConfigOrigin = Field(description="of the config, as the link's hash has it")
    held_by: str = Field(description="sha256 over the parts of lmp that say what a model holds in memory")
    sha256: str = Field(description="of the entry's file")


class Index(Record):
    """``index.json``: all entries, and the models that were left out, each with the reason."""

    schema_version: Literal[1] = 1
    entries: list[Listed] = Field(default=[])
    left_out: dict[str, str] = Field(default={}, description="model id or entry -> why it has none")


class Follow(Record):
    """What a field of a config is where a file does not state it."""

    kind: Literal["value", "same", "quotient", "product", "sum", "repeated", "unknown", "required"] = Field(
        description="same, quotient, product, sum: of other fields; repeated: one element, as often as a field says"
    )
    value: Any = None
    of: list[str] = Field(default=[], description="the fields that it follows from")


class Facts(Record):
    """What of a model's config decides its formulas. A path is the name of a field, with its sections before it."""

    stated: dict[str, Any] = Field(description="the config as it was given: path -> value")
    resolved: dict[str, Any] = Field(description="every field that is read, with its value: path -> value")
    sections: list[str] = Field(description="paths of nested configs, each ending in a dot; empty: the whole")
    aliases: dict[str, dict[str, str]] = Field(description="section -> other name of a field -> its own name")
    unread: list[str] = Field(description="fields that neither the config's class nor the model reads")
    sizes: list[str] = Field(description="integers that the analysis varies, and that may be stated differently")
    follows: dict[str, Follow] = Field(description="path -> what it is where it is not stated, if not as in `resolved`")
    parameters: dict[str, str] = Field(description="variable of the formulas -> path of its field")


class HeldKept(Record):
    """A kind of layers and what they keep; see `lmp.observe.held.KeptLayer`."""

    indices: list[int]
    heads: int
    elements: int
    window: int | None
    other_bytes: int
    state_bytes: int


class HeldPeak(Record):
    """The peak of live activations of a call of so many tokens."""

    tokens: int
    bytes: int
    operator: str
    largest: list[tuple[str, int]]


class HeldPeaks(Record):
    """Peaks by tokens, where ``sizes`` replace values of the config."""

    sizes: dict[str, int]
    peaks: list[HeldPeak]


class HeldRecord(Record):
    """What a model holds in memory; see `lmp.observe.held.Held`."""

    class_name: str
    dtype: str
    element_size: int
    quantised: str | None
    weights: list[tuple[str, str, str, list[int], int, str, bool]] = Field(
        description="path, name, class, shape, bytes of an element, bytes as stored, whether quantising replaces it"
    )
    kept: list[HeldKept]
    reason: str | None
    part: str
    plan: dict[str, str]
    config: dict[str, Any]
    vision: dict[str, Any] | None
    warnings: list[str]
    live: list[HeldPeaks]
    not_live: str | None = Field(default=None, description="why no peak is known")
