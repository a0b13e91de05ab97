"""The read side: what pages, sockets, exports and commands show of a run. Nothing here writes."""

from runs.reading.banner import halt_banner
from runs.reading.cards import Card, card_of, pending_count, pending_for
from runs.reading.exporting import export
from runs.reading.in_flight import Unheard, unheard_of
from runs.reading.inspector import StepView, outside_effects_after, step_view
from runs.reading.looking import second_look
from runs.reading.panels import panels
from runs.reading.prompts import prompt_of
from runs.reading.rows import RowView, render_row, row_views
from runs.reading.statuses import Standing, standing

__all__ = [
    "Card",
    "RowView",
    "Standing",
    "StepView",
    "Unheard",
    "card_of",
    "export",
    "halt_banner",
    "outside_effects_after",
    "panels",
    "pending_count",
    "pending_for",
    "prompt_of",
    "render_row",
    "row_views",
    "second_look",
    "standing",
    "step_view",
    "unheard_of",
]
