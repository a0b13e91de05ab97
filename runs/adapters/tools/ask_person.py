"""Ask a person. The call becomes a question of the run, and the answer is its result."""

from __future__ import annotations

from pydantic import Field

from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError


class AskArguments(Arguments):
    """The question."""

    question: str = Field(
        min_length=1,
        max_length=2_000,
        description="What only a person can tell. Ask one thing, in one sentence.",
    )


class NobodyAsked(ToolError):
    """A call that no gate has turned into a question."""

    def __init__(self) -> None:
        super().__init__("No person was asked. Call ask_person in a run, where a person can answer.")


def _run(arguments: AskArguments, place: Place) -> Result:
    raise NobodyAsked


TOOL = Tool(
    name="ask_person",
    description="Asks a person one question and waits for the answer, however long it takes.",
    arguments=AskArguments,
    effects="none",
    idempotent=True,
    deadline_s=5,
    run=_run,
    asks="question",
    reads="",
)
