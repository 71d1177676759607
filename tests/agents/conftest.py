"""The fixtures of `agents_bench` and of `gate_right`, for every test here. Other folders' tests take them by the same
lines."""

from agents_bench import bench, no_process_left, nothing_real, service
from agents_command import lmp
from gate_right import draft, drafts, gates, options, session

__all__ = [
    "bench",
    "draft",
    "drafts",
    "gates",
    "lmp",
    "no_process_left",
    "nothing_real",
    "options",
    "service",
    "session",
]
