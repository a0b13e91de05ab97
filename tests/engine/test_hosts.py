"""Hosts: one spelling for each, as it is connected to, and patterns that match no more than they say."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from runs.engine.hosts import MOST_HOSTS, host_of, is_named, pattern_of
from runs.engine.settings import Settings


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://example.com/a?b#c", "example.com"),
        ("https://EXAMPLE.com./", "example.com"),
        ("http://example.com:80/", "example.com"),
        ("https://example.com:443/", "example.com"),
        ("http://example.com:443/", "example.com:443"),
        ("https://example.com:8443/", "example.com:8443"),
        ("https://good.test@evil.test/", "evil.test"),
        ("https://good.test:443@evil.test/", "evil.test"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("https://ｅｘａｍｐｌｅ。com/", "example.com"),
        ("https://еxample.com/", "xn--xample-2of.com"),  # the first letter is Cyrillic
        ("http://93.184.216.34/", "93.184.216.34"),
        ("http://1572395042/", "93.184.216.34"),
        ("http://0x5db8d822/", "93.184.216.34"),
        ("http://0135.0270.0330.042/", "93.184.216.34"),
        ("http://93.12113954/", "93.184.216.34"),
        ("http://[2606:2800:0220:0001::0]/", "[2606:2800:220:1::]"),
        ("http://[2606:2800:220:1::]:8080/", "[2606:2800:220:1::]:8080"),
        ("example.com", "example.com"),
        ("example.com:8443", "example.com:8443"),
        ("wss://example.com/", "example.com"),
    ],
)
def test_a_host_has_one_spelling(address: str, host: str) -> None:
    assert host_of(address) == host


@pytest.mark.parametrize(
    "address",
    [
        "",
        None,
        7,
        ["https://example.com"],
        "https://",
        "https://good.test\\@evil.test/",
        "https://good.test /",
        "https://good.test\t.evil.test/",
        "https://exa%6dple.com/",
        "https://example.com:99999/",
        "https://example.com:port/",
        "https://example..com/",
        "https://example.com../",
        "http://300.1.1.1/",
        "http://1.2.3.4.5.6:x/",
        "http://[::1%25eth0]/",
        "http://[fe80::1/",
        "https://-a.test/",
        "https://" + "ü" * 80 + ".test/",
    ],
)
def test_what_leads_to_no_host_that_can_be_told_is_empty(address: object) -> None:
    assert host_of(address) == ""


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("example.com", "example.com", True),
        ("example.com", "www.example.com", False),
        ("example.com", "example.com.evil.test", False),
        ("example.com", "evilexample.com", False),
        ("example.com", "example.com:8443", False),
        ("example.com:8443", "example.com:8443", True),
        ("example.com:8443", "example.com", False),
        ("*.example.com", "www.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", ".example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("*.example.com", "www.example.com.evil.test", False),
        ("*", "anything.test", True),
        ("*", "", True),
        ("example.com", "", False),
    ],
)
def test_a_pattern_matches_what_it_says_and_no_more(pattern: str, host: str, *, matches: bool) -> None:
    assert is_named(host, [pattern_of(pattern)]) is matches


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (" Example.COM. ", "example.com"),
        ("*.BÜCHER.example", "*.xn--bcher-kva.example"),
        ("0x5db8d822", "93.184.216.34"),
        ("[2606:2800:0220:1::]", "[2606:2800:220:1::]"),
    ],
)
def test_a_pattern_is_kept_in_the_spelling_that_is_compared(text: str, pattern: str) -> None:
    assert pattern_of(text) == pattern


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "https://example.com/",
            "example.com/path",
            "user@example.com",
            "a*.example.com",
            "*example.com",
        ),
        *("**", "*.", "*.*.example.com", "*.10.0.0.1", "*.[::1]", "exa mple.com", "a" * 300 + ".com"),
    ],
)
def test_what_is_no_host_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValidationError, match=r"is not a host. Write a host like example.com"):
        Settings(hosts=(text,))


def test_hosts_are_named_once_and_not_without_end() -> None:
    assert Settings(hosts=("a.test", "A.TEST.", "*")).hosts == ("a.test", "*")
    with pytest.raises(
        ValidationError, match=f"{MOST_HOSTS + 1} hosts are named; {MOST_HOSTS} may be at most"
    ):
        Settings(hosts=tuple(f"h{number}.test" for number in range(MOST_HOSTS + 1)))
