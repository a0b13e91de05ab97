"""A server process's reads for its viewers: every step and every panel once, however many watch.

A feed belongs to one run and one event loop, and lives while it has viewers. Rings, pings and a look every few seconds
all end in the same reading of the database. Feeds know no sockets.
"""

from runs.feeds.feed import Audience, Feed, Viewer, feed_of
from runs.feeds.inbox import Inbox, Told, shared_inbox
from runs.feeds.reads import DATABASE_AWAY, Gone, Moment, Person, read

__all__ = [
    "DATABASE_AWAY",
    "Audience",
    "Feed",
    "Gone",
    "Inbox",
    "Moment",
    "Person",
    "Told",
    "Viewer",
    "feed_of",
    "read",
    "shared_inbox",
]
