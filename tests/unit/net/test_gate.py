"""Hosts are held against the policy by name, by port and by all their addresses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loom_core.errors import NetError
from loom_core.net import NetPolicy
from loom_core.net.ssrf_guard import SsrfGuard, resolve
from loom_core.net.url import parse_url

pytestmark = pytest.mark.hostile("addresses")


def gate(*addresses: str, rules: Sequence[str] = ()) -> SsrfGuard:
    async def known(host: str, port: int) -> list[str]:
        return list(addresses)

    return SsrfGuard(NetPolicy.allowing(rules), known)


@pytest.mark.parametrize(
    "url",
    ["http://localhost/", "http://LOCALHOST:8080/", "http://a.localhost/", "http://printer.local/",
     "http://x.svc.cluster.local/", "http://wiki.corp/", "http://nas.lan/", "http://nas.home.arpa/",
     "http://127.0.0.1/", "http://[::1]/", "http://169.254.1.1/", "http://10.0.0.1:8080/",
     "http://[::ffff:127.0.0.1]/", "http://[fd00::1]/", "http://0.0.0.0/", "http://[::]/",
     "http://100.64.0.1/", "http://[64:ff9b::7f00:1]/"],
)  # fmt: skip
def test_a_private_place_is_refused_by_its_name_alone(url: str) -> None:
    with pytest.raises(NetError, match="is not allowed") as refused:
        gate("8.8.8.8").check(parse_url(url))
    assert "--allow-net" in refused.value.advice


@pytest.mark.parametrize(
    "url",
    ["http://metadata.google.internal/", "http://metadata/", "http://instance-data/latest",
     "http://METADATA.goog./", "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/",
     "http://[::ffff:169.254.169.254]/", "http://[2002:a9fe:a9fe::1]/", "http://[fd12::5efe:a9fe:a9fe]/",
     "http://[fd12::a9fe:a9fe]/", "http://100.100.100.200/", "http://[fe80::a9fe:a9fe]/"],
)  # fmt: skip
def test_a_metadata_service_is_refused_whatever_is_allowed(url: str) -> None:
    everything = [
        "0.0.0.0/0",
        "::/0",
        "metadata",
        "metadata.goog",
        "instance-data",
        "metadata.google.internal",
    ]
    with pytest.raises(NetError, match="is the metadata service of a cloud") as refused:
        gate("8.8.8.8", rules=everything).check(parse_url(url))
    assert refused.value.failure == "refused"
    assert "This cannot be allowed" in refused.value.advice


async def test_a_name_that_is_allowed_may_not_be_one_of_a_metadata_service() -> None:
    for address in ("169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"):
        with pytest.raises(NetError, match="is the metadata service of a cloud"):
            await gate("10.0.0.7", address, rules=["wiki.example"]).addresses("wiki.example", 80)


@pytest.mark.parametrize("port", [1, 21, 22, 23, 25, 53, 110, 139, 445, 587, 993, 1023])
def test_ports_of_other_services_are_refused(port: int) -> None:
    with pytest.raises(NetError, match="not a port of web servers"):
        gate("8.8.8.8").check(parse_url(f"http://example.com:{port}/"))


@pytest.mark.parametrize(
    "url", ["http://example.com/", "https://example.com:8443/", "http://8.8.8.8/", "https://x.test/"]
)
def test_a_public_place_passes(url: str) -> None:
    gate("8.8.8.8").check(parse_url(url))


def test_a_rule_opens_a_private_place_on_any_port() -> None:
    gate(rules=["wiki.corp"]).check(parse_url("http://wiki.corp:25/"))
    gate(rules=["127.0.0.0/8"]).check(parse_url("http://127.0.0.1:25/"))
    with pytest.raises(NetError):
        gate(rules=["127.0.0.0/8"]).check(parse_url("http://localhost/"))


def test_where_some_hosts_are_named_no_others_pass() -> None:
    named = SsrfGuard(NetPolicy(only_hosts=frozenset({"api.example.com", "*.example.org"})), resolve)

    for url in ("https://api.example.com/", "https://a.b.example.org/"):
        named.check(parse_url(url))
    for url in (
        "https://example.com/",
        "https://example.org/",
        "https://notexample.org/",
        "https://8.8.8.8/",
    ):
        with pytest.raises(NetError, match="only certain hosts are") as refused:
            named.check(parse_url(url))
        assert refused.value.advice == "Ask one of: *.example.org, api.example.com."


def test_a_host_that_is_named_is_not_allowed_to_be_a_private_place() -> None:
    with pytest.raises(NetError, match="this machine itself"):
        SsrfGuard(NetPolicy(only_hosts=frozenset({"127.0.0.1"})), resolve).check(
            parse_url("http://127.0.0.1/")
        )


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(NetError, match=r"example.com \(10.0.0.7\) is not allowed: it is a private address"):
        await gate("8.8.8.8", "2606:4700::1111", "10.0.0.7").addresses("example.com", 80)
    many = [f"8.8.{i}.8" for i in range(50)]
    with pytest.raises(NetError, match=r"127\.0\.0\.1"):
        await gate(*many, "127.0.0.1").addresses("example.com", 80)


async def test_all_addresses_of_a_public_host_are_given_once() -> None:
    found = await gate("8.8.8.8", "8.8.8.8", "2606:4700::1111").addresses("example.com", 443)
    assert [str(address) for address in found] == ["8.8.8.8", "2606:4700::1111"]


async def test_an_allowed_host_may_have_any_address_and_an_allowed_network_any_name() -> None:
    assert await gate("10.0.0.7", rules=["wiki.example"]).addresses("wiki.example", 80)
    assert await gate("10.0.0.7", rules=["10.0.0.0/8"]).addresses("anything.example", 80)
    with pytest.raises(NetError):
        await gate("10.0.0.7", "192.168.0.1", rules=["10.0.0.0/8"]).addresses("anything.example", 80)


async def test_an_address_is_not_looked_up() -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    (found,) = await SsrfGuard(NetPolicy(), never).addresses("8.8.8.8", 80)
    assert str(found) == "8.8.8.8"


async def test_a_host_without_an_address_is_said_to_have_none() -> None:
    with pytest.raises(NetError, match=r"There is no address for nothing\.example"):
        await gate().addresses("nothing.example", 80)
    with pytest.raises(NetError, match="There is no address for"):
        await SsrfGuard(NetPolicy(), resolve).addresses("x" * 64 + ".invalid", 80)


async def test_the_system_resolves_names() -> None:
    assert set(await resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
