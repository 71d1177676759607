"""Building and running the analysed modules, in the same way for the engine (symbolic sizes) and the judge.

Nothing is counted here: a workload builds a module on the meta device and runs it once under an observer.
"""
