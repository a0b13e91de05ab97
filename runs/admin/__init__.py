"""The administrators' pages: tables to read and edit, questions to decide, and compactions."""

from runs.admin import budgets, compactions, hosts, interrupts, model_profiles, tables

__all__ = ["budgets", "compactions", "hosts", "interrupts", "model_profiles", "tables"]
