"""The driver's needs of the world, as protocols; `runs/adapters` fulfils them.

A port turns the exceptions of its own world into `Failed`; nothing else crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from runs.engine.effects import ContextOverflowed, Failed, ModelReplied, Role, ToolCall, ToolReturned
from runs.engine.tools import ToolSpec
from runs.engine.values import Value


class Message(Value):
    """One message of a prompt. Text of tools and people is untrusted, and never part of a system message."""

    author: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(Value):
    """A prompt as it is sent. `nth` counts this run's attempts at the role from 1 (a script plays by it)."""

    role: Role
    nth: int
    messages: tuple[Message, ...]
    reply_schema: dict[str, Any] | None
    """JSON schema of the reply, or None for text."""
    reply_name: str = "reply"
    reply_tokens: int = 0
    """The longest reply, in tokens, if a limit of the run allows less than the model gives; else 0."""
    passing: int | None = None
    """Characters at the end of the last message that the next prompt of the run does not repeat; None if no prompt
    begins as this one does."""
    room: int = 1
    """Factor on the reply's usual length, as far as the model allows: 2 after a reply that was cut off."""
    temperature: float = 0.0


Watch = Callable[[Callable[[], str]], bool]
"""Given a way to read the text so far, tells whether the call is still wanted; False cuts it.

Each reading costs as much as the text is long: a watcher reads only to show the text, not at each check.
"""


class ModelPort(Protocol):
    """A model. Every call has a deadline."""

    def ask(self, request: ModelRequest, watch: Watch) -> ModelReplied | ContextOverflowed | Failed:
        """Return the reply; every fault is a `Failed`."""

    def price(self, input_tokens: int) -> float:
        """Return the largest cost of a call with so many input tokens, in USD; 0 if unknown."""


class ToolPort(Protocol):
    """The tools of one run."""

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """Return every registered tool by name; `permitted` tells whether this run may call it."""

    def call(self, call: ToolCall, nth: int, key: str) -> ToolReturned | Failed:
        """Run the tool. `nth` counts this run's attempts at the tool from 1; `key` is the idempotency key."""
