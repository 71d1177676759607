"""The command line: options in, calls down, tables out.

``main`` is the entry and answers errors, ``commands`` the commands, ``options`` what they share, ``tables`` and
``progress`` what people see, ``doctor`` what `lmp doctor` looks at. Only typer is imported before a command runs.
"""
