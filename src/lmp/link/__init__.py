"""Linker and evaluator: follows the references between analyses, and evaluates the linked model.

``link`` merges analyses into a model, with the help of ``references``. It knows no engine: a function from class path
to analysis supplies what a reference names. ``values`` reads the values of variables, ``numbers`` evaluates a model at
one point, ``sweep`` at many, and ``compare`` compares two models. ``records`` and ``difference`` hold the JSON output.
"""
