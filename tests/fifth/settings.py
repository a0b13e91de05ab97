"""What a poll may be told at its launch."""

from typing import Literal

from pydantic import Field

from runs.engine.settings import Settings


class PollSettings(Settings):
    """The settings of a `poll` run."""

    votes: int = Field(default=3, ge=1, le=50)
    lookups: int = Field(default=2, ge=0, le=50)
    tie: Literal["first", "nobody"] = "first"
