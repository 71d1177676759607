"""Follows the references of an analysis to the analyses they name. Knows no engine, and where analyses come from only
as a function from class path to analysis.

``link`` puts analyses together to a model, ``evaluation`` puts numbers in; ``references`` is what the two have in
common. ``point`` says which numbers, ``records`` is what comes out.
"""
