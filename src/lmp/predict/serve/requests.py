"""Requests on setups: checked, grouped by setup, and predicted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from lmp.errors import LmpError, UsageError
from lmp.predict.serve.compose import Served
from lmp.predict.serve.replica import of_replica
from lmp.predict.serve.setup import Room, Servers, Setup
from lmp.predict.serve.workload import Workload


@dataclass(frozen=True)
class Request:
    """A setup, what arrives, and whether to predict what does not fit."""

    setup: Setup
    workload: Workload
    id: object = None
    force: bool = False

    @property
    def tokens(self) -> int:
        """Of one request at its end."""
        return self.workload.isl + self.workload.osl


@dataclass(frozen=True)
class Answer:
    """What requests get, and what limits them."""

    request: Request
    served: Served
    room: Room

    @property
    def fits(self) -> bool | None:
        """Whether one request fits; None if it is not known."""
        return None if self.room.problem is not None else self.room.requests(self.request.tokens) >= 1


def request_of(data: Mapping[str, Any]) -> Request:
    """The checked request. Raises UsageError that names the field."""
    known = {*Setup.model_fields, *Workload.model_fields, "id", "force"}
    unknown = next((name for name in data if name not in known), None)
    if unknown is not None:
        raise UsageError(f"there is no field {str(unknown)[:40]!r}\nfields are {', '.join(sorted(known))}")
    force = data.get("force", False)
    if not isinstance(force, bool):
        raise UsageError("force: true or false is wanted\nleave it out to refuse what does not fit")
    parts = []
    for record in (Setup, Workload):
        # A field without a value is one that is not given.
        own = {name: data[name] for name in record.model_fields if data.get(name) is not None}
        try:
            parts.append(record.model_validate(own))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part)[:40] for part in first["loc"]) or "row"
            told = str(first["msg"]).removeprefix("Value error, ")
            raise UsageError(f"{place}: {told}\nfields are {', '.join(sorted(known))}") from error
    setup, workload = parts
    assert isinstance(setup, Setup)
    assert isinstance(workload, Workload)
    return Request(setup, workload, data.get("id"), force)


def predicted(requests: Sequence[Request], servers: Servers) -> list[Answer | LmpError]:
    """The answer of each request, in their order. Requests of one setup are predicted together."""
    found: dict[int, Answer | LmpError] = {}
    groups: dict[Setup, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(request.setup, []).append(number)
    for setup, numbers in groups.items():
        try:
            found.update(_of_one_setup(setup, {number: requests[number] for number in numbers}, servers))
        except LmpError as error:
            found.update(dict.fromkeys(numbers, error))
    return [found[number] for number in range(len(requests))]


def _of_one_setup(setup: Setup, requests: dict[int, Request], servers: Servers) -> dict[int, Answer | LmpError]:
    found: dict[int, Answer | LmpError] = {}
    stepper = servers.stepper(setup)
    rooms = {}
    for chunk in {one.workload.max_num_batched_tokens for one in requests.values()}:
        longest = max(one.tokens for one in requests.values() if one.workload.max_num_batched_tokens == chunk)
        rooms[chunk] = servers.room(setup, longest, chunk)
    left = {}
    for number, one in requests.items():
        room = rooms[one.workload.max_num_batched_tokens]
        try:
            if not one.force:
                room.refuse(setup, one.tokens)
            left[number] = one, room
        except LmpError as error:
            found[number] = error
    held = [max(1.0, room.requests(one.tokens)) for one, room in left.values()]
    made = of_replica(stepper, [one.workload for one, _ in left.values()], held)
    for (number, (one, room)), result in zip(left.items(), made, strict=True):
        found[number] = Answer(one, result, room)
    return found
