"""Many model families, each expanded and verified in a process of its own, on this machine or on a cluster."""
