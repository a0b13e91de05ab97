"""The meaning of an answer to a call, the same in every machine."""

from __future__ import annotations

from runs.engine.effects import ChildFinished, Failed, ToolReturned
from runs.engine.facts import ToolReported


def reported(tool: str, answer: ToolReturned | ChildFinished | Failed) -> ToolReported:
    """Return the call's result, or its error; an exit code other than 0 is an error."""
    match answer:
        case ToolReturned(exit_code=code):
            return ToolReported(
                tool=tool,
                value=answer.value,
                error=f"Exited with code {code}." if code else None,
                exit_code=code,
                stderr=answer.stderr,
                cached_from=answer.cached_from,
                ran=answer.ran,
                files=tuple(file.name for file in answer.files),
            )
        case ChildFinished() if answer.gave_result:
            return ToolReported(tool=tool, value=answer.answer)
        case ChildFinished():
            return ToolReported(tool=tool, error=_child_error(answer))
        case Failed(message=why, ran=ran):
            return ToolReported(tool=tool, error=why, ran=ran)


ENDED = {"failed": "failed", "cancelled": "was cancelled", "stopped": "stopped without an answer"}


def _child_error(child: ChildFinished) -> str:
    """Return which child run gave no result, and why."""
    if not child.exit_reason:  # recorded before the reason was stored: a replay must give the same words
        return f"The child run ended {child.status}, without an answer."
    ended = ENDED.get(child.status, "ended without an answer")
    said = f": {child.message}" if child.message else "."
    return f"Child run {child.run} {ended} ({child.exit_reason}){said}"
