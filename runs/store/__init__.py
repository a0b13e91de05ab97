"""The only writer of steps and exchanges: loads a run, commits moves, claims and releases runs, records people's moves.

A run is fully described by its steps; the head on `Run` is updated in the same transaction. A write that continues a
run carries the epoch of its claim; if the run has another epoch by then, it does nothing. See docs/runtime.md, "One
log".
"""
