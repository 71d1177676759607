"""Follows the references of an analysis to the analyses they name. Knows no engine, and where analyses come from only
as a function from class path to analysis.

``link`` puts analyses together to a model, with the help of ``references``; ``numbers`` puts numbers in at one point,
``sweep`` at many, and ``evaluation`` does both steps. ``point`` says which numbers, ``records`` is what comes out.
"""
