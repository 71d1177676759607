"""Static reconnaissance: what reading a repository's files finds, each fact with its file and line. Nothing is run."""
