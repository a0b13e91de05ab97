"""What an answer to a call means, the same in every machine."""

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
        case ChildFinished(answer=str(text), status="succeeded" | "stopped"):
            return ToolReported(tool=tool, value=text)
        case ChildFinished(status=status):
            return ToolReported(tool=tool, error=f"The child run ended {status}, without an answer.")
        case Failed(message=why, ran=ran):
            return ToolReported(tool=tool, error=why, ran=ran)
