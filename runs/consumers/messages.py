"""The messages from a page to the site."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

Seq = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]


class Hello(BaseModel):
    """The page has all steps up to `after`."""

    type: Literal["hello"]
    after: Seq
    life: str | None = None
    """The restore epoch of the page: a restore begins another one. None from clients without one."""


class Ack(BaseModel):
    """The page has painted everything up to `seq`."""

    type: Literal["ack"]
    seq: Seq


class Ping(BaseModel):
    """Is the line alive, and is there anything new?"""

    type: Literal["ping"]


Said = Hello | Ack | Ping
SAID: TypeAdapter[Said] = TypeAdapter(Annotated[Said, Field(discriminator="type")])
