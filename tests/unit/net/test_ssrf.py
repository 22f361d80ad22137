"""Ways of having a server ask what it should not, and that none of them works.

Each attempt is made with the client itself: it has to be refused before anybody is asked, which is what the
failure `refused` says.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_address

import pytest

from loom_core.errors import NetError
from loom_core.net import GuardedClient, NetPolicy

pytestmark = pytest.mark.hostile("addresses")

PRIVATE = ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0"]
METADATA = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"]


def ipv6_forms(text: str) -> list[str]:
    """An IPv4 address inside IPv6 addresses."""
    high, low = divmod(int(IPv4Address(text)), 1 << 16)
    inverted = int(IPv4Address(text)) ^ 0xFFFF_FFFF
    return [
        f"::ffff:{text}",
        f"::ffff:{high:x}:{low:x}",
        f"0:0:0:0:0:FFFF:{high:04X}:{low:04X}",
        f"::{text}",  # IPv4-compatible
        f"::ffff:0:{text}",  # translated (SIIT)
        f"64:ff9b::{text}",  # NAT64
        f"64:ff9b:1::{text}",
        f"2002:{high:x}:{low:x}::1",  # 6to4
        str(ip_address((0x20010000 << 96) | (0x08080808 << 64) | inverted)),  # Teredo
        f"2a00:1450::5efe:{text}",  # ISATAP
        f"2a00:1450::200:5efe:{text}",
        f"fe80::5efe:{text}",
    ]


def ipv4_forms(text: str) -> list[str]:
    """Other ways of writing an IPv4 address that some program reads."""
    a, b, c, d = (int(part) for part in text.split("."))
    number = int(IPv4Address(text))
    return [
        text,
        f"{text}.",
        f"{number}",
        f"0x{number:x}",
        f"0X{number:08X}",
        f"0{number:o}",
        f"00000{number:o}",
        f"{a}.{(b << 16) + (c << 8) + d}",
        f"{a}.{b}.{(c << 8) + d}",
        f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a:04}.{b:04}.{c:04}.{d:04}",
        f"0x{a:x}.{b}.0{c:o}.{d}",
        f"0x{a:x}.{(b << 16) + (c << 8) + d}",
        f"{a + 256}.{b}.{c}.{d}",
        f"{number + (1 << 32)}",
        "".join(chr(ord(each) + 0xFEE0) if each.isdigit() else each for each in text),  # full width
        text.replace(".", "。"),
        text.replace(".", "．"),
        text.replace(".", "%2e"),
        f"%{ord(text[0]):x}{text[1:]}",
    ]


def disguises(text: str) -> list[str]:
    """An address behind or before something harmless, and addresses that break what reads them."""
    return [
        f"http://example.com@{text}/",
        f"http://example.com:80@{text}/",
        f"http://{text}@example.com/",
        f"http://example.com%40{text}/",
        f"http://{text}\\@example.com/",
        f"http://example.com\\{text}/",
        f"http://{text}%00.example.com/",
        f"http://{text}\x00.example.com/",
        f"http://{text} .example.com/",
        f"http://\t{text}/",
        f"http://{text}:80:80/",
        f"http://{text}\r\nHost: example.com/",
        f"http:/{text}/",
        f"http:{text}/",
        f"//{text}/",
        f"http:///{text}/",
        f"ftp://{text}/",
        f"gopher://{text}:6379/_x",
        f"file://{text}/etc/passwd",
        f"dict://{text}:11211/stat",
        f"jar:http://{text}!/",
        f"url:http://{text}/",
    ]


NAMES = [
    "localhost", "LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain", "ｌｏｃａｌｈｏｓｔ",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "loca\u00adlhost", "broadcasthost", "kubernetes", "kubernetes.default.svc.cluster.local",
    "wiki.corp", "nas.lan", "printer.local", "nas.home.arpa", "db.internal", "x.private", "x.intranet",
    "metadata", "metadata.google.internal", "METADATA.GOOGLE.INTERNAL.", "metadata.goog", "instance-data",
    "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
    "metadata。google。internal", "ｍetadata.google.internal", "rancher-metadata",
]  # fmt: skip
IPV6 = [
    "::1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:0000:0000:0001", "::", "::0.0.0.1", "::127.0.0.1",
    "fe80::1", "fe80::1%25eth0", "fe80::1%eth0", "febf::1", "fc00::1", "fd00::1", "fdff::1", "fec0::1",
    "ff02::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe", "100::1",
    "2001:db8::1", "3fff::1", "5f00::1", "2001::1", "4000::1", "::2",
]  # fmt: skip
PORTS = [1, 22, 23, 25, 53, 110, 111, 135, 139, 389, 445, 465, 512, 587, 636, 873, 993]
LITERALS = [
    *(f"http://{form}/" for text in (*PRIVATE, *METADATA) for form in ipv4_forms(text)),
    *(f"http://[{form}]/" for text in (*PRIVATE, *METADATA) for form in ipv6_forms(text)),
    *(url for text in (*PRIVATE, *METADATA) for url in disguises(text)),
    *(f"http://[{form}]:8080/" for form in IPV6),
    *(f"https://{name}/latest/meta-data/" for name in NAMES),
    *(f"http://example.com:{port}/" for port in PORTS),
]
"""What is refused by what it says, whatever names lead to."""

ADDRESSES = [
    *PRIVATE,
    *METADATA,
    *IPV6,
    *(form for text in (*PRIVATE, *METADATA) for form in ipv6_forms(text)),
]
"""What a name that looks harmless leads to."""

OF_CLOUDS = [
    *(f"http://{text}/" for text in METADATA),
    *(f"http://[{form}]/" for text in METADATA for form in ipv6_forms(text)),
    *(f"http://[{form}]/" for form in IPV6 if form.endswith(("ec2::254", "ec2::23", "ce::254", ":42::42"))),
    *(f"http://{name}/" for name in NAMES if "etadata" in name or name.startswith("instance-data")),
]
EVERYTHING = ["0.0.0.0/0", "::/0", *(name for name in NAMES if name.isascii())]


async def refused(client: GuardedClient, url: str) -> bool:
    try:
        await client.request("GET", url)
    except NetError as error:
        return error.failure == "refused" and bool(error.advice)
    return False


def leading_to(*addresses: str, policy: NetPolicy | None = None) -> GuardedClient:
    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return GuardedClient(policy, resolve=resolve)


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(set(LITERALS)) >= 650
    assert len(set(ADDRESSES)) >= 150
    assert len(set(OF_CLOUDS)) >= 65


@pytest.mark.parametrize("policy", [NetPolicy(), NetPolicy.allowing(["10.9.0.0/16", "flow-api.corp"])])
async def test_no_way_of_writing_a_private_place_is_asked(policy: NetPolicy) -> None:
    client = leading_to("127.0.0.1", policy=policy)
    assert [url for url in LITERALS if not await refused(client, url)] == []


async def test_no_name_of_a_private_place_is_asked() -> None:
    found = [
        (*others, address.replace("%25", "%"))
        for address in ADDRESSES
        for others in ((), ("8.8.8.8",), ("2606:4700::1111", "8.8.8.8"))
    ]
    assert [each for each in found if not await refused(leading_to(*each), "https://harmless.example/")] == []


async def test_no_metadata_service_is_asked_although_everything_is_allowed() -> None:
    everything = NetPolicy.allowing(EVERYTHING)
    client = leading_to("169.254.169.254", policy=everything)
    assert [url for url in OF_CLOUDS if not await refused(client, url)] == []
    named = NetPolicy.allowing(["harmless.example", *EVERYTHING])
    for text in METADATA:
        for form in (text, *ipv6_forms(text)):
            assert await refused(leading_to("10.0.0.1", form, policy=named), "http://harmless.example/"), form


@pytest.mark.slow
async def test_no_redirect_leads_there(server) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    client = GuardedClient(NetPolicy.allowing(["start.example"]), resolve=resolve)
    start = server.url("/", host="start.example")
    # Without a host behind two slashes it is a path of the same host.
    places = [url for url in LITERALS if url.isprintable() and re.match(r"[a-z:]*//[^/]", url)]
    passed: list[str] = []
    for place in places[::2]:
        server.answers("/", status=302, Location=place)
        server.asked.clear()
        if not await refused(client, start) or len(server.asked) != 1:
            passed.append(place)
    assert passed == []


async def test_a_name_is_looked_up_once_for_a_connection_and_again_for_the_next(server) -> None:
    policy = NetPolicy.allowing(["127.0.0.1"])  # plays the public address
    told: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        told.append(host)
        return ["127.0.0.1"] if len(told) == 1 else ["169.254.169.254"]

    url = server.answers("/", b"public").replace("127.0.0.1", "rebinding.example")
    client = GuardedClient(policy, resolve=rebinding)
    assert (await client.request("GET", url)).body == b"public"
    assert len(told) == 1, "what was checked is what was connected"
    assert await refused(client, url)
    assert len(server.asked) == 1
