"""A connection on which rings are published. Loads the server's client: most commands never ring."""

from __future__ import annotations

from collections.abc import Sequence

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from runs.live.messages import SOCKET_SECONDS


class Unreachable(Exception):
    """The server did not take the messages in time."""


class Publisher:
    """Publishes on one channel.

    On a bare connection: the client's own `publish` costs a busy writer twice as much.
    """

    def __init__(self, url: str, channel: str) -> None:
        self._channel = channel
        pool = redis.ConnectionPool.from_url(
            url,
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=SOCKET_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._line = pool.make_connection()

    def publish(self, messages: Sequence[str]) -> bool:
        """Publish all in one round trip. Return whether any process heard them; `Unreachable` where none could."""
        try:
            try:
                return self._publish(messages)
            except redis.exceptions.ConnectionError:  # cut by a restart; a silent server is not asked again
                return self._publish(messages)
        except (RedisError, OSError) as why:
            raise Unreachable(str(why)) from why

    def _publish(self, messages: Sequence[str]) -> bool:
        commands = [("PUBLISH", self._channel, message) for message in messages]
        self._line.send_packed_command(self._line.pack_commands(commands))
        heard = [self._line.read_response() for _ in messages]  # each, or the next would be taken for it
        return any(heard)

    def close(self) -> None:
        """Close the connection."""
        self._line.disconnect()
