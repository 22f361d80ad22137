"""Rules that allow hosts and networks besides the open internet."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from loom_core.errors import ConfigError
from loom_core.net import NetPolicy

pytestmark = pytest.mark.hostile("addresses")


def test_rules_are_hosts_addresses_and_networks() -> None:
    policy = NetPolicy.allowing(
        ["Wiki.Example.", "10.1.0.0/16", "192.168.1.7", "[fd00::1]", "知识.例子", " ::1 "]
    )
    assert policy.allows_host("wiki.example")
    assert policy.allows_host("xn--k7y073b.xn--fsqu00a")
    assert not policy.allows_host("other.wiki.example")
    for text in ("10.1.2.3", "192.168.1.7", "fd00::1", "::1", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"):
        assert policy.allows_address(ip_address(text)), text
    for text in ("10.2.0.1", "192.168.1.8", "fd00::2", "127.0.0.1", "8.8.8.8"):
        assert not policy.allows_address(ip_address(text)), text


def test_a_network_may_be_given_by_one_of_its_addresses() -> None:
    assert NetPolicy.allowing(["10.1.2.3/16"]).allows_address(ip_address("10.1.9.9"))


def test_metadata_services_are_in_no_network_that_is_allowed() -> None:
    policy = NetPolicy.allowing(["0.0.0.0/0", "::/0", "169.254.169.254"])
    assert policy.allows_address(ip_address("169.254.1.1"))
    for text in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "::ffff:a9fe:a9fe", "fd00:ec2::254"):
        assert not policy.allows_address(ip_address(text)), text


def test_an_address_that_stands_for_two_is_allowed_if_both_are() -> None:
    teredo = ip_address("2001:0:a00:1:0:0:80ff:fffe")  # 127.0.0.1 by way of 10.0.0.1
    assert not NetPolicy.allowing(["10.0.0.0/8"]).allows_address(teredo)
    assert NetPolicy.allowing(["10.0.0.0/8", "127.0.0.0/8"]).allows_address(teredo)


@pytest.mark.parametrize(
    "rule", ["", "https://wiki.example", "wiki.example:80", "10.0.0.0/33", "a b", "*.x", "127.1"]
)
def test_a_rule_that_is_neither_is_a_mistake_in_the_settings(rule: str) -> None:
    with pytest.raises(ConfigError, match="neither a host nor a network"):
        NetPolicy.allowing([rule])
