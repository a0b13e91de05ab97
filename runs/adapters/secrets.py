"""Seal a secret (a model's key) for the database with the site's own secret key."""

from __future__ import annotations

import base64

_PURPOSE = b"agentsite: keys of model servers, version 1"


class SecretUnreadable(Exception):
    """A sealed secret that this site's secret key does not open."""

    def __init__(self) -> None:
        super().__init__(
            "The stored secret can't be opened: the site's secret key has changed since it was saved, or the "
            "record is damaged. Enter the secret again, or bring the old secret key back."
        )


def seal(text: str, secret_key: str) -> str:
    """Return `text` as a token that only the same `secret_key` opens."""
    from cryptography.fernet import Fernet

    return Fernet(_derived(secret_key)).encrypt(text.encode()).decode("ascii")


def unseal(token: str, secret_key: str) -> str:
    """Return the text inside `token`; raises `SecretUnreadable`."""
    from cryptography.fernet import Fernet, InvalidToken

    try:
        return Fernet(_derived(secret_key)).decrypt(token.encode()).decode()
    except (InvalidToken, UnicodeError):
        raise SecretUnreadable from None


def _derived(secret_key: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if not secret_key:
        raise ValueError("The site's secret key is empty; set it before secrets are stored.")
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret_key.encode())
    return base64.urlsafe_b64encode(key)
