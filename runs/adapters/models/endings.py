"""The servers' words for the end of a reply."""

from __future__ import annotations

from runs.engine.effects import HowEnded

WORST: tuple[HowEnded, ...] = ("stop", "length", "content_filter", "error")
"""If several choices end differently, the last of these counts."""

REASONS: dict[str, HowEnded] = {
    **dict.fromkeys(
        ("stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed"), "stop"
    ),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", "max_length"), "length"),
    "model_context_window_exceeded": "length",
    **dict.fromkeys(("content_filter", "safety", "refusal", "recitation", "blocklist"), "content_filter"),
    **dict.fromkeys(("prohibited_content", "sensitive", "spii", "image_safety"), "content_filter"),
}
"""Any other word may name a failure, and is read as an error."""


def ended_by(reason: str) -> HowEnded:
    """Return how a reply ended, given the server's reason."""
    return REASONS.get(reason.strip().lower(), "error")


def is_known(reason: str) -> bool:
    """Return True if the reason is on the list."""
    return reason.strip().lower() in REASONS
