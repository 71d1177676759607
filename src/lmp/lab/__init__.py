"""The lab: captures of real tools, and posts whose every number is worked out from them.

docs/lab.md is the format. `post.read_post` is where a reader of the code starts.
"""
