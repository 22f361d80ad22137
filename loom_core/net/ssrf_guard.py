"""SSRF guard: check hosts by name, by port, and by every address of the name."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import NetError
from loom_core.net.address import address_of, is_metadata, refusal_of
from loom_core.net.url import origin_of

if TYPE_CHECKING:
    import httpx2

    from loom_core.net.address import Address
    from loom_core.net.policy import NetPolicy

__all__ = ["Resolver", "SsrfGuard", "resolve"]

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolver: returns the addresses of a host for a port; raises `OSError` if there are none."""

_PRIVATE_SUFFIXES = (
    ".local", ".localhost", ".localdomain", ".internal", ".intranet", ".private", ".corp", ".home", ".lan",
    ".home.arpa",
)  # fmt: skip
_PRIVATE_NAMES = frozenset({"localhost", "localdomain", "broadcasthost", "kubernetes"})
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.goog", "metadata.google.internal", "metadata.azure.internal", "instance-data",
     "instance-data.ec2.internal", "metadata.tencentyun.com", "rancher-metadata"}
)  # fmt: skip
_WEB_PORTS = frozenset({80, 443})
_PRIVILEGED = 1024
_MAX_ADDRESSES = 8


class SsrfGuard:
    """SSRF guard: checks hosts against a policy.

    Args:
        policy: the policy.
        resolve: the resolver of host names; by default the system's.
    """

    def __init__(self, policy: NetPolicy, resolve: Resolver) -> None:
        self._policy = policy
        self._resolve = resolve

    def check(self, url: httpx2.URL) -> None:
        """Refuse a URL that is visibly not on the open internet, without resolving its name.

        Raises:
            NetError: a private name, an address that is not allowed, or a port of another service.
        """
        _, host, port = origin_of(url)
        if not self._policy.names_host(host):
            raise NetError(
                f"{host} is not allowed: only certain hosts are.",
                advice=f"Ask one of: {', '.join(sorted(self._policy.only_hosts))}.",
                failure="refused",
            )
        if host in _METADATA_NAMES:
            raise _never(host)
        address = address_of(host)
        if self._policy.allows_host(host) or (address is not None and self._policy.allows_address(address)):
            return
        if address is not None:
            self._check_address(host, address)
        elif host in _PRIVATE_NAMES or f".{host}".endswith(_PRIVATE_SUFFIXES):
            raise self._refusal(f"{host} is not allowed: it is a name inside a private network.")
        if port < _PRIVILEGED and port not in _WEB_PORTS:
            raise NetError(
                f"Port {port} of {host} is not allowed: it is not a port of web servers.",
                advice=f"Use port 80, 443 or one from 1024, or allow the host with {self._policy.setting}.",
                failure="refused",
            )

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Resolve a host, and check all of its addresses.

        Raises:
            NetError: the name is unknown, or one of its addresses is not allowed.
        """
        literal = address_of(host)
        found = [literal] if literal is not None else await self._look_up(host, port)
        named = self._policy.allows_host(host)
        for address in found:
            if is_metadata(address) or not (named or self._policy.allows_address(address)):
                self._check_address(host, address)
        return found

    async def _look_up(self, host: str, port: int) -> list[Address]:
        try:
            texts = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise NetError(
                f"There is no address for {host}.",
                advice="Check the name and the connection.",
                failure="connection",
            ) from error
        found = [address for text in dict.fromkeys(texts) if (address := address_of(text)) is not None]
        if not found:
            raise NetError(f"There is no address for {host}.", advice="Check the name.", failure="connection")
        return found[:_MAX_ADDRESSES] if self._policy.allows_host(host) else found

    def _check_address(self, host: str, address: Address) -> None:
        which = host if str(address) == host else f"{host} ({address})"
        if is_metadata(address):
            raise _never(which)
        if what := refusal_of(address):
            raise self._refusal(f"{which} is not allowed: it is {what}.")

    def _refusal(self, message: str) -> NetError:
        setting = self._policy.setting
        return NetError(
            message,
            advice=f"If it is meant to be read, allow its host or network with {setting}.",
            failure="refused",
        )


def _never(which: str) -> NetError:
    return NetError(
        f"{which} is not allowed: it is the metadata service of a cloud.",
        advice="This cannot be allowed, as it would expose the credentials of the machine.",
        failure="refused",
    )


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a host with the system's resolver."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
