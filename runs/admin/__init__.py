"""The administrators' pages: tables to look at and edit, questions to decide, and compactions beside what they replace."""

from runs.admin import budgets, compactions, interrupts, tables

from runs.admin import budgets, compactions, hosts, interrupts, model_profiles, tables

__all__ = ["budgets", "compactions", "hosts", "interrupts", "model_profiles", "tables"]
