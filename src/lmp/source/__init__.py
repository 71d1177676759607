"""Reads source files: vendors the pinned ones, finds classes in them, and names the lines that may do tensor work.

``vendor`` fills the trees, ``trees`` finds and checks them, ``locate`` goes from a class path to its lines, ``lines``
says which of those compute, ``scratchpad`` writes down a search that failed. Nothing here imports the analysed code.
"""
