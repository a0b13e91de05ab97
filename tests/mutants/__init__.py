"""Faults put into the code one at a time, and the tests that have to notice each: `python -m tests.mutants`."""
