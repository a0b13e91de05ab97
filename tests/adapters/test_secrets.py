"""A sealed secret opens with the key that sealed it, and with no other."""

from __future__ import annotations

import pytest

from runs.adapters.secrets import SecretUnreadable, seal, unseal


def test_what_was_sealed_is_unsealed() -> None:
    token = seal("sk-0123 ü", "site key")
    assert "sk-0123" not in token
    assert unseal(token, "site key") == "sk-0123 ü"
    assert seal("sk-0123 ü", "site key") != token


@pytest.mark.parametrize("damage", ["", "x", "ü"])
def test_another_key_or_a_damaged_token_says_what_to_do(damage: str) -> None:
    token = seal("secret", "site key")
    with pytest.raises(SecretUnreadable, match="Enter the secret again"):
        unseal(token, "another key")
    with pytest.raises(SecretUnreadable):
        unseal(damage + token[5:], "site key")


def test_an_empty_site_key_seals_nothing() -> None:
    with pytest.raises(ValueError, match="secret key is empty"):
        seal("secret", "")
