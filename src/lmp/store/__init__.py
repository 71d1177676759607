"""Keeps results: which folder an analysis belongs in, reading and writing it whole, and whether it is still current.

``results`` is the folder of all of them, ``files`` the writing itself, ``schemas`` what every file is held against,
``fingerprint`` what a result was made from.
"""
