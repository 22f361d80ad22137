"""Classification of IP addresses for the SSRF guard: the open internet, and special ranges."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

__all__ = ["Address", "Network", "address_of", "forms_of", "is_metadata", "refusal_of"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Our own table, as `is_private` and `is_global` differ between versions of Python.
# IANA IPv4 and IPv6 Special-Purpose Address Registries; the first that holds an address names it.
_METADATA = "the metadata service of a cloud"
_METADATA_SERVICES = (
    "169.254.169.254/32",
    "169.254.170.0/24",  # credentials of containers
    "169.254.0.23/32",
    "169.254.42.42/32",
    "100.100.100.200/32",
    "100.96.0.96/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    "fd00:ec2::/32",
    "fd00:42::42/128",
    "fd20:ce::254/128",
)
_SPECIAL: tuple[tuple[str, str], ...] = (
    *((network, _METADATA) for network in _METADATA_SERVICES),
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
_METADATA_NETWORKS = tuple(map(ip_network, _METADATA_SERVICES))
_GLOBAL = IPv6Network("2000::/3")
"""All of IPv6 that is allocated for the open internet."""

_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Bits before the IPv4 address in the last half of an ISATAP address, whatever its first half."""


def refusal_of(address: Address) -> str:
    """SSRF guard: name the kind of an address that is not on the open internet, or return an empty text.

    An IPv6 address with embedded IPv4 addresses (mapped, 6to4, NAT64, Teredo) is classified by these. One
    that a tunnel may read as an IPv4 address (ISATAP) is classified by both.
    """
    if is_metadata(address):
        return _METADATA
    inner = _extract_ipv4(address)
    for form in inner or (address, *_extract_tunnel_ipv4(address)):
        for network, what in _NAMED:
            if form in network:
                return what
    if inner or isinstance(address, IPv4Address) or address in _GLOBAL:
        return ""
    return "a reserved address"


def is_metadata(address: Address) -> bool:
    """Return whether an address is a cloud's metadata service, which gives machines their credentials.

    An IPv6 address that ends in such an IPv4 address is one, too: gateways have private prefixes for IPv4
    addresses.
    """
    ends = () if isinstance(address, IPv4Address) else (_last_four(address),)
    return any(form in network for form in (*forms_of(address), *ends) for network in _METADATA_NETWORKS)


def forms_of(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 addresses embedded in it."""
    return address, *_extract_ipv4(address)


def address_of(text: str) -> Address | None:
    """Parse a text as an address; IPv6 may be in brackets; None if it is none."""
    try:
        return ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def _extract_ipv4(address: Address) -> tuple[IPv4Address, ...]:
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64:
        return (_last_four(address),)
    return ()


def _extract_tunnel_ipv4(address: Address) -> tuple[IPv4Address, ...]:
    if isinstance(address, IPv4Address) or int(address) >> 32 & 0xFFFF_FFFF not in _ISATAP:
        return ()
    return (_last_four(address),)


def _last_four(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
