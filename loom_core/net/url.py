"""Web addresses: strict parsing, canonical form, and redaction for messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loom_core.errors import NetError
from loom_core.net.address import address_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["canonical_url", "host_of", "is_base_url", "origin_of", "parse_url", "redact_url"]

_MAX_URL = 4096
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")  # as the C library reads one: 127.1, 0x7f000001
_PORT = re.compile(r"[0-9]{1,5}")
_AUTHORITY = re.compile(r"[^/]*//([^/?#]*)")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def canonical_url(url: str) -> str:
    """Return the canonical form of a web address: host in lower case and ASCII, no fragment.

    Raises:
        NetError: as for `parse_url`.
    """
    return str(parse_url(url))


def parse_url(url: str) -> httpx2.URL:
    """Parse a web address strictly; refuse addresses that programs parse differently.

    The result has a canonical host (lower case, punycode, no final dot), no default port and no fragment.

    Raises:
        NetError: it is no http or https address, has a user name in it, or an invalid host or port.
    """
    import httpx2

    if len(url) > _MAX_URL:
        raise NetError(
            f"The web address has more than {_MAX_URL:,} characters.", advice="Shorten it.", failure="refused"
        )
    url = url.strip()
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeEncodeError) as error:  # the latter for lone surrogates
        raise _invalid_url(url, str(error).rstrip(".")) from error
    if parsed.scheme not in _DEFAULT_PORTS:
        raise NetError(
            f"{_display(url)} is not an http or https address.",
            advice="Give one that begins with https://.",
            failure="refused",
        )
    if parsed.userinfo:
        raise NetError(
            "The web address has a user name or password in it, which would be stored with the document.",
            advice="Leave out everything before the @.",
            failure="refused",
        )
    host = host_of(parsed.raw_host.decode("ascii"))
    if host is None:
        raise _invalid_url(url, "the host is invalid")
    _check_port(url, parsed)
    return parsed.copy_with(host=host, fragment=None)


def host_of(text: str) -> str | None:
    """Return the canonical form of a host name or address, or None if it is invalid."""
    import httpx2

    try:
        host = httpx2.URL(scheme="http", host=text.removesuffix(".")).raw_host.decode("ascii").lower()
    except httpx2.InvalidURL:
        return None
    address = address_of(host)
    if address is not None and "%" not in host:  # an interface of this machine
        return str(address)
    # `0177.0.0.1` is 127.0.0.1 to one program and 177.0.0.1 to the next.
    if len(host) > 253 or not _NAME.fullmatch(host) or _NUMBER.fullmatch(host):
        return None
    return host


def is_base_url(text: str) -> bool:
    """Return whether an address is a valid base URL of an API: http or https, a host, no key or query."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for a port that is none
    except ValueError:
        return False
    web = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.username is None
    return web and not parts.query and not parts.fragment


def origin_of(url: httpx2.URL) -> tuple[str, str, int]:
    """Return the origin: scheme, host and port; credentials belong to one origin."""
    port = _DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    return url.scheme, url.raw_host.decode("ascii"), port


def redact_url(url: httpx2.URL | str) -> str:
    """Return an address for messages and logs: without query and fragment, which may hold secrets."""
    address, query, _ = str(url).partition("?")
    address = address.partition("#")[0]
    head, at, tail = address.rpartition("@")
    if at and "/" not in head.partition("://")[2]:
        address = f"{head.partition('://')[0]}://…@{tail}"
    return f"{address}?…" if query else address


def _check_port(url: str, parsed: httpx2.URL) -> None:
    """Check that the port is in plain digits: `int` takes `８０` and `8_0` too."""
    authority = _AUTHORITY.match(url)
    written = authority[1].rpartition("]")[2].partition(":")[2] if authority else ""
    if (written and not _PORT.fullmatch(written)) or not 0 < origin_of(parsed)[2] < 65536:
        raise _invalid_url(url, "the port is invalid")


def _invalid_url(url: str, reason: str) -> NetError:
    return NetError(
        f"{_display(url)} is not a web address: {reason}.",
        advice="Check how it is written.",
        failure="refused",
    )


def _display(url: str) -> str:
    return repr(redact_url(url)[:200])
