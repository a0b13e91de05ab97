"""What is a machine's own on the run page: its contract, its checklist, its plan, each filling up as the run goes."""

from runs.reading.machine_panels.panel import machine_panel

__all__ = ["machine_panel"]
