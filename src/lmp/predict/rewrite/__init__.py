"""What an engine launches in place of a model's eager kernels: rewrites of the list, by pattern and condition."""
