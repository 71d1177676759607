"""The atlas: verified analyses of known models that ship with lmp, so that a fresh install answers without torch.

``archive`` reads and writes its files. ``models`` and ``holding`` answer commands: own results first, then the atlas,
then an analysis. ``matching`` decides whether an entry answers, and evaluates a family's formulas at another config.
``making`` builds entries and makes them again to compare; ``facts`` says what of a config decides the formulas.
"""
