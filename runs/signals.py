"""Signals that other code may subscribe to. The project itself listens to none of them.

A receiver that fails is logged, and changes nothing for the run. They are sent by the worker that drives the run.
"""

from django.dispatch import Signal

on_before_compaction = Signal()
"""A summary is about to be asked for: `run_id`, `first`, `last` (the rows it covers), `tokens_before`."""

on_after_compaction = Signal()
"""It is over: `run_id`, `seq` (of its row), `first`, `last`, `tokens_before`, `tokens_after`, `text`; or `error`."""
