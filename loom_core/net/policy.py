"""Network policy: allowed requests, and limits of responses."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.net.address import forms_of, is_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from loom_core.net.address import Address, Network

__all__ = ["NetPolicy", "matches_any_host"]


@dataclass(frozen=True, slots=True)
class NetPolicy:
    """Policy of the HTTP client. By default only the open internet is allowed.

    The metadata services of clouds are never allowed: they give access to the machine's credentials.

    Attributes:
        allowed_hosts: names that are allowed whatever their addresses, in canonical form.
        allowed_networks: networks that are allowed although they are not on the open internet.
        only_hosts: the only allowed names; `*.example.org` for all subdomains. Empty for all.
        proxy: URL of a proxy through which everything goes, or empty. The proxy resolves names, so that
            the addresses of a name cannot be checked here; proxies of the environment are never used.
        max_redirects: maximum number of redirects.
        max_bytes: maximum size of a response, compressed and decompressed.
        max_header_bytes: maximum size of its header.
        connect_seconds: timeout of a connection, with name resolution.
        total_seconds: total timeout, redirects included.
        setting: the setting that allows more hosts, for the advice of errors.
        smaller: advice for a response that is too large, in a sentence.
    """

    allowed_hosts: frozenset[str] = frozenset()
    allowed_networks: tuple[Network, ...] = ()
    only_hosts: frozenset[str] = frozenset()
    proxy: str = ""
    max_redirects: int = 5
    max_bytes: int = 64 << 20
    max_header_bytes: int = 64 << 10
    connect_seconds: float = 10.0
    total_seconds: float = 120.0
    setting: str = "--allow-net (allowed_hosts)"
    smaller: str = "Download it and add a part of it as a file."

    @classmethod
    def allowing(cls, rules: Iterable[str], *, proxy: str = "") -> NetPolicy:
        """Create a policy that also allows some hosts and networks.

        Args:
            rules: host names (`wiki.example`), addresses, and networks as CIDR (`10.1.0.0/16`).
            proxy: as the attribute.

        Raises:
            ConfigError: a rule is none of these.
        """
        from loom_core.net.url import host_of

        hosts: set[str] = set()
        networks: list[Network] = []
        for rule in rules:
            try:
                networks.append(ip_network(rule.strip().removeprefix("[").removesuffix("]"), strict=False))
            except ValueError:
                host = host_of(rule.strip())
                if host is None:
                    raise ConfigError(
                        f"{rule!r} is neither a host nor a network.",
                        advice="Write a name (wiki.example), an address, or a network (10.1.0.0/16).",
                    ) from None
                hosts.add(host)
        return cls(frozenset(hosts), tuple(networks), proxy=proxy)

    def allows_host(self, host: str) -> bool:
        """Return whether a rule allows a host by name."""
        return host in self.allowed_hosts

    def names_host(self, host: str) -> bool:
        """Return whether a host is one of `only_hosts`, or there are none."""
        return not self.only_hosts or matches_any_host(self.only_hosts, host)

    def allows_address(self, address: Address) -> bool:
        """Return whether an address, or every IPv4 address embedded in it, is in an allowed network.

        Addresses of metadata services never are.
        """
        if is_metadata(address):
            return False
        _, *inner = forms_of(address)
        return self._holds(address) or (bool(inner) and all(map(self._holds, inner)))

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self.allowed_networks)


def matches_any_host(hosts: Collection[str], host: str) -> bool:
    """Return whether a host matches one of some; `*.example.org` matches subdomains; all canonical."""
    return host in hosts or any(each.startswith("*.") and host.endswith(each[1:]) for each in hosts)
