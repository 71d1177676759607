"""Building and running the modules that are analysed, alike for the engine (with symbolic sizes) and the judge.

Nothing here counts anything: a workload builds a module on the meta device and runs it once under an observer.
"""
