"""The fixtures of `agents_bench`, for every test here. Other folders' tests take them by the same line."""

from agents_bench import bench, no_process_left, nothing_real, service

__all__ = ["bench", "no_process_left", "nothing_real", "service"]
