"""Only hosts of the public network may be reached on a stranger's word."""

from __future__ import annotations

import pytest

from runs.adapters.addresses import is_public

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2606:4700::5efe:7f00:1",
    "2606:4700::200:5efe:a00:1",
]
PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "8.8.8.8",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_or_special_address_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_ordinary_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f000001", "1.1.1.1/8", "[::1]"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)
