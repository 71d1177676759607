"""Follows the references of an analysis to the analyses they name. Knows no engine, and where analyses come from only
as a function from class path to analysis.

``evaluation`` puts numbers in, ``point`` says which numbers, ``records`` is what comes out.
"""
