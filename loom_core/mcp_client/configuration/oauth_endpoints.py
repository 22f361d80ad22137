"""Where tokens, secrets and people may be sent."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["is_safe_place", "origin_of"]

_PORTS = {"https": 443, "http": 80}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a web address, comparable: in lower case, with the port that is meant.

    Raises:
        ValueError: its port is none.
    """
    place = urlsplit(url)
    return place.scheme, place.hostname or "", place.port or _PORTS.get(place.scheme)


def is_safe_place(url: str, *, beside: str = "") -> bool:
    """Whether a secret may be sent to an address.

    It may over https; over http on this machine; and over http to the origin of `beside`, where the user has
    chosen to speak without encryption already.

    Args:
        url: where it would be sent.
        beside: the MCP server that led there, or empty where the user names the address.
    """
    try:
        scheme, host, _ = origin = origin_of(url)
        if scheme == "https":
            return bool(host)
        if beside and origin == origin_of(beside):
            return True
        # A server elsewhere has no business with what listens on this machine.
        return scheme == "http" and host in _LOOPBACK and (not beside or origin_of(beside)[1] in _LOOPBACK)
    except ValueError:
        return False
