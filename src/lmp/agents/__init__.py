"""The agent engine: prompts, tools, confinement, the gate for submissions, runs that can be resumed.

Start at `base` (the seams), then `stage` (one conversation's loop) and `engine` (all classes of a command).
"""
