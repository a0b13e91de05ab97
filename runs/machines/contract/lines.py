"""How `contract` reads for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runs.engine.presentation import EXITS as COMMON_EXITS
from runs.engine.presentation import Beside, Call, Data, Reads, Said, spoken

EXITS = {
    "incomplete_contract": "ended with empty slots",
    "clarify": "needs an answer to its questions",
    "max_iterations": "all rounds used",
    "context_reads_exhausted": "all context reads used",
    "decision_no_progress": "asked to read again without naming anything",
    "decision_reruns_exhausted": "all reruns used",
    "wrapup_no_decision_rerun": "asked for another round in the wrap-up",
    "exploit_overdraft_blocked": "the overdraft is for exploit calls only",
}


def exit_words(reason: Any) -> str:
    """Return why the run ends, as the rest of a sentence."""
    return {**COMMON_EXITS, **EXITS}.get(reason or "", spoken(reason or ""))


def _call(fact: Data) -> Call | None:
    call = fact.get("tool_call") or {}
    tool, args = call.get("tool_id"), call.get("params")
    return Call(tool, args if isinstance(args, dict) else {}) if isinstance(tool, str) and tool else None


def _decision(fact: Data) -> Said:
    if not fact.get("action"):
        return Said("Reply unreadable", icon="alert", tone="warn")
    said = fact.get("completion_summary") or fact.get("notes") or " ".join(fact.get("questions") or ())
    title, tag = spoken(fact["action"]).capitalize(), fact.get("strategy") or ""
    return Said(title, said, "thought", "think", "turn", tag, call=_call(fact))


def _set(fact: Data) -> Said:
    slots = ", ".join(f"{slot['id']} ({slot['type']})" for slot in fact["slots"])
    return Said("Contract", slots or "no slots", "list", "think", "turn")


def _wrap_up(fact: Data) -> Said:
    why = f"one round to fill what is open; {exit_words(fact['reason'])}"
    return Said("Wrap-up", why, "list", "warn", "turn")


def _mapped(fact: Data) -> Said:
    as_draft = " as a draft" if fact["draft"] else ""
    return Said("Slot filled", f"{fact['slot']} by {fact['artifact']}{as_draft}", "check", "good")


def _fills(facts: Sequence[Data]) -> Beside:
    return Beside(f"fills {' and '.join(fact['slot'] for fact in facts)}")


def _judged(fact: Data) -> Said:
    filled, unfilled = fact["filled"], fact["unfilled"]
    if not filled and not unfilled:
        return Said("Ended", icon="flag", level="all")
    text = f"{len(filled)} of {len(filled) + len(unfilled)} slots filled"
    text += f"; open: {', '.join(unfilled)}" if unfilled else ""
    return Said("Contract", text, "flag", "warn" if unfilled else "good", "turn")


def violation(code: str) -> str:
    """Return a notice's violation in words; empty if it names none."""
    return spoken(code) if code == "decision_invalid_strategy" else ""


LINES: dict[str, Reads] = {
    "react.decision": Reads(_decision, reply=True, said="notes", call=_call),
    "contract.decision.unread": Reads(
        lambda fact: Said("Reply unreadable", fact["message"], "alert", "warn", "turn")
    ),
    "contract.set": Reads(_set, at_ask="told"),
    "contract.wrapup.began": Reads(_wrap_up, beside=lambda facts: Beside("wrap-up begins", alone=True)),
    "contract.overdraft.granted": Reads(
        lambda fact: Said("Overdraft", f"round {fact['number']} of {fact['total']}", "gauge", "warn"),
        at_ask="told",
    ),
    "contract.slot.mapped": Reads(_mapped, beside=_fills),
    "contract.shown": Reads(
        lambda fact: Said("Shows", ", ".join([*fact["artifacts"], *fact["skills"]]), "eye")
    ),
    "contract.artifact.made": Reads(
        lambda fact: Said("Kept", f"{fact['name']} ({fact['artifact_kind']})", level="all")
    ),
    "contract.rerun.taken": Reads(lambda fact: Said("Decides again", level="all")),
    "contract.exit.intended": Reads(
        lambda fact: Said("Wants to end", exit_words(fact["reason"]), level="all")
    ),
    "contract.judged": Reads(_judged),
}
