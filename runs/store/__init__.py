"""The only writer of steps and exchanges: loads a run, commits moves, claims and lets go, takes people's moves.

Everything a run is stands in its rows; the head on `Run` is kept beside them in the same transaction. One seat: a
write that continues a run carries the epoch it was claimed with, and one that finds another epoch does nothing.
See docs/runtime.md, "One log".
"""
