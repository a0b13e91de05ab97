"""The administrators' pages: tables, questions to decide, and compactions beside what they replace."""

from runs.admin import budgets, compactions, interrupts, tables

__all__ = ["budgets", "compactions", "interrupts", "tables"]
