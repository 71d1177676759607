"""Who calls whom, in the real nesting: loops, branches and calls of a function, each with its place."""
