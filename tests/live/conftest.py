"""What the tests of live delivery share: a message layer, people, and a run that grows."""

from collections.abc import Iterator
from typing import Any

import pytest

from runs import live
from tests.live.valkey import Valkey


@pytest.fixture
def valkey(settings: Any) -> Iterator[Valkey]:
    """A running message layer, and the site set to it."""
    server = Valkey()
    server.start()
    settings.REDIS_URL, settings.HINTS = server.url, True
    yield server
    live.flush(5)
    server.remove()


@pytest.fixture
def no_message_layer(settings: Any) -> None:
    """Hints are suppressed: nobody is told anything."""
    settings.REDIS_URL, settings.HINTS = "", False
