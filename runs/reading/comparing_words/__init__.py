"""A comparison for readers: a few sentences first, then numbers, terms, answers, and the places that differ."""

from runs.reading.comparing_words.document import as_json
from runs.reading.comparing_words.numbers import TotalView, amount, path_views, signed, total_views
from runs.reading.comparing_words.places import PLACES, FoldView, PlaceView, StepView, place_views
from runs.reading.comparing_words.sentences import ORIGINS, Sentence, relation_of, summary_of
from runs.reading.comparing_words.values import CHARACTERS, ValueView, text_pieces, value_view

__all__ = [
    "CHARACTERS",
    "ORIGINS",
    "PLACES",
    "FoldView",
    "PlaceView",
    "Sentence",
    "StepView",
    "TotalView",
    "ValueView",
    "amount",
    "as_json",
    "path_views",
    "place_views",
    "relation_of",
    "signed",
    "summary_of",
    "text_pieces",
    "total_views",
    "value_view",
]
