"""The sockets: who may watch, what each viewer has already, and how much a slow one is sent.

A viewer says what it has (`hello`), gets every later row in order, once, and acknowledges what it has
painted. What there is to send comes from a feed, which all viewers of a run share.
"""

from runs.consumers.inbox import InboxConsumer
from runs.consumers.run import RunConsumer
from runs.consumers.socket import nowhere

__all__ = ["InboxConsumer", "RunConsumer", "nowhere"]
