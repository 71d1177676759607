"""The record of one capture, as it is stored beside its raw text."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Status = Literal["ok", "refused", "missing", "timed_out", "cut"]


class Capture(BaseModel):
    """One run of a tool, or the reason why there is none.

    Values are not stored: they are read from the raw text each time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    argv: list[str]
    """As it was run, redacted."""
    argv_template: list[str]
    """As lab.toml has it, with placeholders."""
    env: dict[str, str]
    """As lab.toml has it, with placeholders."""
    tool: str
    tool_version: str | None
    kernel: str
    cpu: str
    cpus: int
    threads: int
    memory: int
    """Bytes of main memory."""
    gpu: str | None
    date: str
    load_before: list[float]
    load_after: list[float]
    exit_code: int | None
    status: Status
    message: str
    """The refusal as the tool printed it, the package to install, or the limit that was reached; else empty."""
    seconds: float
    repeat: int
    left_out: int
    """Bytes of output that were not kept."""
    escaped: int
    """Bytes that are no text and stand as ``\\xNN``."""
    workload_sha256: dict[str, str]
    redactions: dict[str, int]
    output_sha256: str
    line_sums: str = ""
    """Four hexadecimal digits for each line of the raw text: they locate the line of an edit."""
