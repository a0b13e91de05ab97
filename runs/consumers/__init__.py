"""The sockets: the right to watch, the steps of each viewer, and the bounds of a slow one.

A viewer tells its last step (`hello`), gets every later step in order, once, and acknowledges the painted ones. The
content comes from a feed, shared by all viewers of a run.
"""

from runs.consumers.inbox import InboxConsumer
from runs.consumers.run import RunConsumer
from runs.consumers.socket import nowhere

__all__ = ["InboxConsumer", "RunConsumer", "nowhere"]
