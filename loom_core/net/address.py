"""Which IP addresses are places on the open internet, and what the others are."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

__all__ = ["Address", "Network", "address_of", "forms_of", "refusal_of"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Our own table, as `is_private` and `is_global` differ between versions of Python.
# IANA IPv4 and IPv6 Special-Purpose Address Registries; the first that holds an address names it.
_SPECIAL: tuple[tuple[str, str], ...] = (
    ("169.254.169.254/32", "the metadata service of a cloud"),
    ("169.254.170.0/24", "the metadata service of a cloud"),
    ("100.100.100.200/32", "the metadata service of a cloud"),
    ("168.63.129.16/32", "the metadata service of a cloud"),
    ("192.0.0.192/32", "the metadata service of a cloud"),
    ("fd00:ec2::/32", "the metadata service of a cloud"),
    ("fd20:ce::254/128", "the metadata service of a cloud"),
    ("0.0.0.0/8", "an unspecified address"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "an address inside a provider's network"),
    ("127.0.0.0/8", "this machine itself"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "a reserved address"),
    ("192.0.2.0/24", "an address for documentation"),
    ("192.88.99.0/24", "a reserved address"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "an address for benchmarks"),
    ("198.51.100.0/24", "an address for documentation"),
    ("203.0.113.0/24", "an address for documentation"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", "a reserved address"),
    ("::/128", "an unspecified address"),
    ("::1/128", "this machine itself"),
    ("64:ff9b:1::/48", "a private address"),
    ("2001::/23", "a reserved address"),
    ("2001:db8::/32", "an address for documentation"),
    ("3fff::/20", "an address for documentation"),
    ("fc00::/7", "a private address"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a private address"),
    ("ff00::/8", "a multicast address"),
)
_NAMED = tuple((ip_network(network), what) for network, what in _SPECIAL)
_GLOBAL = IPv6Network("2000::/3")
"""All of IPv6 that is given out for the open internet."""

_NAT64 = IPv6Network("64:ff9b::/96")


def refusal_of(address: Address) -> str:
    """What an address is if it is no place on the open internet, or empty.

    An IPv6 address that stands for IPv4 addresses (mapped, 6to4, NAT64, Teredo) is what they are.
    """
    inner = _embedded(address)
    for form in inner or (address,):
        for network, what in _NAMED:
            if form in network:
                return what
    if inner or isinstance(address, IPv4Address) or address in _GLOBAL:
        return ""
    return "a reserved address"


def forms_of(address: Address) -> tuple[Address, ...]:
    """An address, and the IPv4 addresses inside it."""
    return address, *_embedded(address)


def address_of(text: str) -> Address | None:
    """The address that a text is, if it is one; IPv6 may stand in brackets."""
    try:
        return ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()
