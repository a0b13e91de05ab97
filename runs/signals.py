"""Signals for other code. The project itself listens to none of them.

A receiver's failure is logged, and changes nothing for the run. The run's worker sends them.
"""

from django.dispatch import Signal

on_before_compaction = Signal()
"""Before a summary is requested: `run_id`, `first`, `last` (the covered steps), `tokens_before`."""

on_after_compaction = Signal()
"""After it: `run_id`, `seq` (of its step), `first`, `last`, `tokens_before`, `tokens_after`, `text`; or `error`."""
