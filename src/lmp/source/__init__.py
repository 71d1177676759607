"""Source files: vendors the pinned ones, finds classes in them, and lists the lines that may compute on tensors.

``vendor`` fills the trees, ``trees`` finds and checks them. ``names`` resolves dotted names, ``locate`` maps a class
path to its lines, and ``lines`` selects the lines that compute. ``scratchpad`` reports a search that failed. No file
imports the analysed code; ``runtime`` gets a class that is imported already.
"""
