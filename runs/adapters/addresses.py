"""Check which network addresses a tool may reach for untrusted input: public ones only.

The rule checks addresses, never names: however a host is spelled, its resolved address is judged.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's own service under a public number
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # Teredo and other special use
        "2001:db8::/32",
        "2002::/16",  # 6to4 holds an IPv4 address
        "3fff::/20",
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_public(text: str) -> bool:
    """Return True if `text`, as getaddrinfo writes an address, is a host of the public network."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return _is_public_4(address) if isinstance(address, IPv4Address) else _is_public_6(address)


def _is_public_4(address: IPv4Address) -> bool:
    return address.is_global and not any(address in block for block in _NOT_PUBLIC_4)


def _is_public_6(address: IPv6Address) -> bool:
    """Return True for public IPv6: NAT64, IPv4-compatible, unique local, link-local and multicast lie outside
    2000::/3."""
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return False
    return address.is_global and address in _PUBLIC_6 and not any(address in block for block in _NOT_PUBLIC_6)
