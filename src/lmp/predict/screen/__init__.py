"""One prediction as a user reads it: the step, its dearest kernels, memory, and what would help most next."""
