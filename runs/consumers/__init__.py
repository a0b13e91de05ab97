"""The sockets: who may watch, what each viewer has already, and how much a slow one is sent.

A viewer tells its last step (`hello`), gets every later step in order, once, and acknowledges the painted ones. The
content comes from a feed, which all viewers of a run share.
"""

from runs.consumers.inbox import InboxConsumer
from runs.consumers.run import RunConsumer
from runs.consumers.socket import nowhere

__all__ = ["InboxConsumer", "RunConsumer", "nowhere"]
