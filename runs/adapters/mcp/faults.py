"""What can go wrong with an MCP server, as the toolbox understands it: sent or not, definite or not."""

from __future__ import annotations

from collections.abc import Iterator

from runs.adapters.tool import ToolError

LAST_WORDS = 2_000
"""Characters of a server's stderr that administrators read."""


class NotReached(ConnectionRefusedError):
    """Nothing was sent: the server did not start, or does not listen."""

    def __init__(self, server: str, why: str, last_words: str = "") -> None:
        self.last_words = last_words
        super().__init__(f"The server {server} can't be reached: {why}")


class CutOff(ConnectionError):
    """The connection ended during a call, which may have happened."""

    def __init__(self, server: str, why: str = "", last_words: str = "") -> None:
        self.last_words = last_words
        super().__init__(f"The server {server} ended the connection during the call{why and f': {why}'}.")


class TooMuch(CutOff):
    """The server sent more than is taken, and was ended for it."""


class TooSlow(TimeoutError):
    """The server did not answer in time."""

    last_words = ""

    def __init__(self, server: str, seconds: float) -> None:
        super().__init__(f"The server {server} did not answer within {seconds:g} s.")


class Misconfigured(ToolError):
    """An administrator has something to put right first; nothing was called."""

    ran = False


class ServerRefused(ToolError):
    """The server answered that it does not do this."""


class TooLarge(ToolError):
    """A result of a call that changes nothing was larger than is taken."""


def sentence_of(fault: BaseException) -> str:
    """Return one sentence for a fault; of a group the first one inside."""
    first = next(_inside(fault), fault)
    said = " ".join(str(first).split())[:300]
    return said or type(first).__name__


def _inside(fault: BaseException) -> Iterator[BaseException]:
    if isinstance(fault, BaseExceptionGroup):
        for one in fault.exceptions:
            yield from _inside(one)
    else:
        yield fault
