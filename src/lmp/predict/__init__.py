"""Time of kernels and memory of models on named hardware, each figure with an interval and with its provenance."""
