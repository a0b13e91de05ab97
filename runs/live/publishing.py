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
    """Publishes on one channel."""

    def __init__(self, url: str, channel: str) -> None:
        self._channel = channel
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=SOCKET_SECONDS,
            # a connection that a restart has cut is opened anew, once; a silent server is not asked again
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,)),
        )

    def publish(self, messages: Sequence[str]) -> bool:
        """Publish all in one round trip. Return whether any process heard them; `Unreachable` where none could."""
        try:
            with self._client.pipeline(transaction=False) as line:
                for message in messages:
                    line.publish(self._channel, message)
                return any(line.execute())
        except (RedisError, OSError) as why:
            raise Unreachable(str(why)) from why

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
