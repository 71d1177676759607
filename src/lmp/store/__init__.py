"""Stores results.

``results`` reads and writes the results folder. ``files`` writes a file whole or not at all. ``schemas`` validates.
``fingerprint`` decides whether a stored result is used, judged again or derived again.
"""
