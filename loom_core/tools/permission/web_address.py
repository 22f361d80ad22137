"""Web addresses in arguments, and patterns of them that cannot be fitted by another host.

In a pattern for whole texts, the `*` of `https://*.example.com/*` would fit
`https://evil.example/?.example.com/` as well. So the parts of a pattern are held against those of an address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import normpath
from typing import Self
from unicodedata import normalize
from urllib.parse import unquote

from loom_core.tools.patterns import Matcher, matcher

__all__ = ["AddressPattern", "WebAddress"]

_PATTERN = re.compile(r"([A-Za-z*?][A-Za-z0-9+.*?-]*)://([^/?#\s]*)(\S*)", re.DOTALL)
# Browsers do without the slashes in the addresses that they know.
_ADDRESS = re.compile(
    r"((?i:https?|wss?|ftp)(?=:)|[A-Za-z][A-Za-z0-9+.-]*(?=:[/\\]{2})):[/\\]*([^/\\?#]*)([^#]*)", re.DOTALL
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/\\?#@]+(?:[/?#][^\s\\]*)?")
_DROPPED = re.compile(r"[\t\r\n]")  # browsers pass over these wherever they stand
_PORT = re.compile(r":(\d*)\Z")
_DEFAULT_PORTS = {"ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}


@dataclass(frozen=True, slots=True)
class WebAddress:
    """An address in its parts, as a browser reads it.

    Attributes:
        scheme: in small letters.
        host: in small letters, without user, final dot and port.
        port: empty for the usual one.
        rest: path and query as they are written.
        clean: the same with a path that is decoded and does not climb.
        is_plain: whether all programs read it alike: there is no user name, backslash or white space in it.
    """

    scheme: str
    host: str
    port: str
    rest: str
    clean: str
    is_plain: bool

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Read an address; None where the text is none."""
        stripped = _DROPPED.sub("", text.strip())
        match = _ADDRESS.fullmatch(stripped.partition("#")[0])
        if match is None:
            return None
        scheme, authority, rest = match[1].lower(), match[2].rpartition("@")[2], match[3]
        host = _one_form(unquote(authority))
        port = _PORT.search(host)
        number = port[1] if port and port[1] != _DEFAULT_PORTS.get(scheme) else ""
        host = _readable(_PORT.sub("", host).removesuffix("."))
        path, mark, query = rest.partition("?")
        clean = normpath("/" + unquote(path).replace("\\", "/").lstrip("/"))
        clean += "/" if path.endswith(("/", "\\")) and clean != "/" else ""
        plain = _PLAIN.fullmatch(text) is not None and host.isprintable()
        return cls(scheme, host, number, rest, f"{clean}{mark}{query}", plain)

    @property
    def place(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def text(self) -> str:
        """The address in one form."""
        return f"{self.scheme}://{self.place}{self.clean}"


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """A pattern such as `https://*.example.com/v1/*`: `*` in the host does not reach into the path.

    Attributes:
        scheme: fits the scheme.
        host: fits host and port.
        rest: fits path and query.
    """

    scheme: Matcher
    host: Matcher
    rest: Matcher

    @classmethod
    def of(cls, pattern: str, *, any_form: bool) -> Self | None:
        """Read a pattern; None where it is for other texts.

        Args:
            pattern: see `loom_core.tools.patterns`.
            any_form: as in `matcher`.
        """
        match = _PATTERN.fullmatch(pattern)
        if match is None or match[1].lower() == "file":
            return None
        host, rest = match[2], match[3]
        if not rest and host != "*" and host.endswith("*"):  # it means whatever is on that host
            host, rest = host.rstrip("*"), "*"
        if not rest.startswith(("/", "*")):
            rest = f"/{rest}"
        default = _DEFAULT_PORTS.get(match[1].lower(), "")
        host = _readable(_one_form(host).removesuffix(f":{default}" if default else "").removesuffix("."))
        if not host:
            return None
        return cls(
            matcher(match[1].lower()), matcher(host, any_form=any_form), matcher(rest, any_form=any_form)
        )

    def may_fit(self, address: WebAddress) -> bool:
        """Whether it fits in any reading, and on whatever port."""
        return (
            self.scheme(address.scheme)
            and (self.host(address.place) or self.host(address.host))
            and (self.rest(address.clean) or self.rest(address.rest or "/"))
        )

    def surely_fits(self, address: WebAddress) -> bool:
        """Whether it fits in every reading."""
        return (
            address.is_plain
            and self.scheme(address.scheme)
            and self.host(address.place)
            and self.rest(address.clean)
            and self.rest(address.rest or "/")
        )


def _one_form(host: str) -> str:
    return normalize("NFKC", host).lower().replace("\u3002", ".")  # the full stop of Chinese parts names, too


def _readable(host: str) -> str:
    """A name in other scripts as people write it, not as `xn--…`."""
    if "xn--" in host:
        try:
            return host.encode("ascii").decode("idna")
        except UnicodeError:
            return host
    return host
