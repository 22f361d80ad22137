"""Network policy: which requests are allowed, and how much of a reply is read."""

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
    """Settings of the HTTP client. By default the open internet may be asked, and nothing else.

    The metadata services of clouds are never asked, whatever is allowed: who can ask them has the machine's
    credentials.

    Attributes:
        allowed_hosts: names that may be asked whatever other addresses they have, in canonical form.
        allowed_networks: networks that may be asked although they are not on the open internet.
        only_hosts: names that may be asked, and no others; `*.example.org` for all below one. Empty for all.
        proxy: URL of a proxy through which everything goes, or empty. The proxy resolves names, so that
            the addresses of a name cannot be checked here; proxies of the environment are never used.
        max_redirects: how many redirects are followed.
        max_bytes: size of an answer, as it is sent and unpacked.
        max_header_bytes: size of its header.
        connect_seconds: time for a connection, with the look-up of the name.
        total_seconds: time for everything together, redirects included.
        setting: what people allow more with, for the advice of errors.
        smaller: what to do about an answer that is too large, in a sentence.
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
        """The policy that also allows some hosts and networks.

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
        """Whether a host is named by a rule."""
        return host in self.allowed_hosts

    def names_host(self, host: str) -> bool:
        """Whether a host is one of `only_hosts`, or there are none."""
        return not self.only_hosts or matches_any_host(self.only_hosts, host)

    def allows_address(self, address: Address) -> bool:
        """Whether an address is in a network that is allowed by a rule, or all IPv4 addresses inside it are.

        Those of metadata services are not.
        """
        if is_metadata(address):
            return False
        _, *inner = forms_of(address)
        return self._holds(address) or (bool(inner) and all(map(self._holds, inner)))

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self.allowed_networks)


def matches_any_host(hosts: Collection[str], host: str) -> bool:
    """Whether a host is one of some, of which `*.example.org` is all below one. All in canonical form."""
    return host in hosts or any(each.startswith("*.") and host.endswith(each[1:]) for each in hosts)
