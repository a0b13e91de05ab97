"""Say how a model's cut-off reply ended: to the model, and to people."""

from __future__ import annotations

from runs.engine.effects import ModelReplied, Summarised


def unended(answer: ModelReplied | Summarised) -> str:
    """Return how a cut-off reply ended."""
    match answer.ended:
        case "length":
            used = answer.usage.output_tokens
            only = " It held only reasoning." if not answer.text.strip() and answer.reasoning else ""
            return f"The reply was cut off at its limit{f' of {used} tokens' if used else ''}.{only}"
        case "content_filter":
            return "The provider's content filter stopped the reply."
    return "The provider ended the reply with an error."


def unended_told(replied: ModelReplied) -> str:
    """Return the same for the model, which is asked again."""
    cure = "Reply again, and shorter." if replied.ended == "length" else "Reply again, in other words."
    return f"{unended(replied)} Nothing of it was read. {cure}"


def unended_for_good(replied: ModelReplied, *, limited: bool) -> str:
    """Return the same at the end of a run, with a remedy. `limited`: a limit of the run cut the reply short."""
    match replied.ended:
        case "length" if limited:
            cure = "Raise the run's limits on cost and tokens, then run it again."
        case "length":
            cure = "Raise max output tokens in the model's profile, or ask for less at once."
        case "content_filter":
            cure = "Change the goal or the model."
        case _:
            cure = "Try again later, or choose another model."
    times = "Three times in a row." if replied.ended == "error" else "Twice in a row."
    return f"{unended(replied)} {times} {cure}"
