"""The site's sessions. A made-up key is recognised without the database; the sockets of an ended one are closed."""

from __future__ import annotations

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import VALID_KEY_CHARS
from django.utils.crypto import constant_time_compare, get_random_string, salted_hmac

from runs import live

RANDOM_CHARACTERS = 24
"""124 random bits; the rest of a key's 40 characters is its mark."""


def is_genuine(key: str) -> bool:
    """Return True if this site has made the key, for a session that may have ended since."""
    return constant_time_compare(key, _marked(key[:RANDOM_CHARACTERS]))


def _marked(chance: str) -> str:
    return chance + salted_hmac("agentsite.sessions", chance).hexdigest()[: 40 - RANDOM_CHARACTERS]


class SessionStore(db.SessionStore):
    """A session in the database."""

    def _get_new_session_key(self) -> str:
        while self.exists(key := _marked(get_random_string(RANDOM_CHARACTERS, VALID_KEY_CHARS))):
            pass
        return key

    def _validate_session_key(self, key: str | None) -> bool:
        return bool(key) and is_genuine(str(key))

    def flush(self) -> None:
        """End the session, and have its person's sockets recheck."""
        person = self.get(SESSION_KEY)
        super().flush()
        if person is not None:
            live.ring_person(int(person))
