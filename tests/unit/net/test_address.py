"""Which addresses are on the open internet."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.net.address import address_of, forms_of, refusal_of

pytestmark = pytest.mark.hostile("addresses")

REFUSED = {
    "0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "10.0.0.1": "private", "10.255.255.255": "private",
    "100.64.0.1": "provider", "100.127.255.254": "provider", "100.100.100.200": "metadata",
    "127.0.0.1": "this machine", "127.255.0.3": "this machine", "168.63.129.16": "metadata",
    "169.254.169.254": "metadata", "169.254.170.2": "metadata", "169.254.1.1": "link-local",
    "172.16.0.1": "private", "172.31.255.255": "private", "192.0.0.8": "reserved", "192.0.0.192": "metadata",
    "192.0.2.1": "documentation", "192.88.99.1": "reserved", "192.168.1.1": "private",
    "198.18.0.1": "benchmarks", "198.19.255.255": "benchmarks", "198.51.100.7": "documentation",
    "203.0.113.9": "documentation", "224.0.0.1": "multicast", "239.255.255.250": "multicast",
    "240.0.0.1": "reserved", "255.255.255.255": "reserved",
    "::": "unspecified", "::1": "this machine", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
    "febf::1": "link-local", "fc00::1": "private", "fd12:3456::1": "private", "fd00:ec2::254": "metadata",
    "fd20:ce::254": "metadata", "fec0::1": "private", "ff02::1": "multicast", "ff0e::1": "multicast",
    "100::1": "reserved", "2001:db8::1": "documentation", "3fff::1": "documentation", "2001:2::1": "reserved",
    "2001:10::1": "reserved", "5f00::1": "reserved", "4000::1": "reserved", "::7f00:1": "reserved",
    "::10.0.0.1": "reserved", "64:ff9b:1::1": "private",
    "::ffff:127.0.0.1": "this machine", "::ffff:7f00:1": "this machine", "::ffff:10.1.2.3": "private",
    "::ffff:169.254.169.254": "metadata", "::ffff:0.0.0.0": "unspecified",
    "64:ff9b::10.0.0.1": "private", "64:ff9b::7f00:1": "this machine", "64:ff9b::a9fe:a9fe": "metadata",
    "2002:7f00:1::1": "this machine", "2002:a00:1::": "private", "2002:a9fe:a9fe::": "metadata",
    "2001:0:808:808:0:0:f5ff:fffe": "private",  # Teredo: 10.0.0.1 by way of 8.8.8.8
    "2001:0:a00:1:0:0:f7f7:f7f7": "private",  # and 8.8.8.8 by way of 10.0.0.1
    "2a00::5efe:127.0.0.1": "this machine", "2a00::200:5efe:10.0.0.1": "private",  # ISATAP
    "2a00::5efe:169.254.169.254": "metadata", "2a00:64::169.254.169.254": "metadata",  # NAT64 of one's own
    "100.96.0.96": "metadata", "169.254.0.23": "metadata", "fd00:42::42": "metadata",
}  # fmt: skip
OPEN = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.1", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.1.1", "192.169.1.1",
    "223.255.255.1", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1", "2400:cb00::1", "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8", "2002:808:808::1", "2a00::5efe:8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_an_address_that_is_not_on_the_open_internet_is_named(text: str) -> None:
    assert REFUSED[text] in refusal_of(ip_address(text))


@pytest.mark.parametrize("text", OPEN)
def test_an_address_on_the_open_internet_may_be_asked(text: str) -> None:
    assert refusal_of(ip_address(text)) == ""


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_same_in_every_ipv6_form(address) -> None:
    what = refusal_of(address)
    mapped = ip_address(f"::ffff:{address}")
    nat64 = ip_address(f"64:ff9b::{address}")
    six_to_four = ip_address((0x2002 << 112) | (int(address) << 80) | 1)
    assert [refusal_of(form) for form in (mapped, nat64, six_to_four)] == [what] * 3
    assert all(address in forms_of(form) for form in (mapped, nat64, six_to_four))


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_asked(address) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        inner = forms_of(address)[1:]
        assert refusal_of(address) or (inner and not any(map(refusal_of, inner)))


def test_a_text_is_an_address_only_in_the_forms_that_everybody_reads_alike() -> None:
    assert str(address_of("127.0.0.1")) == "127.0.0.1"
    assert str(address_of("[::1]")) == "::1"
    for text in (
        "2130706433",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "127.1",
        "localhost",
        "",
        "１２７.0.0.1",
        "1.2.3.4 ",
    ):
        assert address_of(text) is None
