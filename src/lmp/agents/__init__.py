"""The Claude engine: what an agent is told, what it may use, and the gate that its answers have to pass.

Nothing here knows the pipeline: what is executed, stored or made first comes in through the Protocols of `base`.
"""
