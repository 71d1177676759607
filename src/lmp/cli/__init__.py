"""The command line: options in, calls down, tables out.

``main`` has the table of commands and answers errors. ``options`` has what commands share: the options and their
record. ``output`` and ``progress`` write. A command is in the file that the table names, its tables are in a file of
their own, because rich is imported only to print one. Only typer is imported before a command runs.
"""
