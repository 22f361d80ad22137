"""Web addresses are read strictly, have one form, and are shown without their secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import NetError
from loom_core.net import canonical_url, redact_url
from loom_core.net.url import host_of, is_base_url, origin_of, parse_url

pytestmark = pytest.mark.hostile("addresses")

CANONICAL = {
    "https://Example.COM": "https://example.com",
    "HTTPS://example.com:443/a": "https://example.com/a",
    "http://example.com:80/": "http://example.com/",
    "http://example.com:8080/": "http://example.com:8080/",
    "https://example.com./a": "https://example.com/a",
    "https://example.com/a/./b/../c": "https://example.com/a/c",
    "https://example.com/a?q=1&r=2#part": "https://example.com/a?q=1&r=2",
    " https://example.com/a ": "https://example.com/a",
    "https://bücher.example/": "https://xn--bcher-kva.example/",
    "https://知识.例子/路径?问=题": "https://xn--k7y073b.xn--fsqu00a/%E8%B7%AF%E5%BE%84?%E9%97%AE=%E9%A2%98",
    "https://例子。测试/": "https://xn--fsqu00a.xn--0zwm56d/",
    "https://[2001:DB8::0:1]:8443/": "https://[2001:db8::1]:8443/",
    "http://a_b.example/": "http://a_b.example/",
    "http://192.0.2.1/x": "http://192.0.2.1/x",
}

REFUSED = [
    "", "example.com", "/etc/passwd", "file:///etc/passwd", "ftp://example.com/", "gopher://x/",
    "javascript:1",    "data:text/plain,x", "http:example.com", "http:///path", "http://", "https://?x", "http://.example.com/",
    "http://user@example.com/", "http://user:pass@example.com/", "http://example.com@127.0.0.1/",
    "http://127.0.0.1\\@example.com/", "http://example.com\\.127.0.0.1/", "http://a b/", "http://a%2eb/",
    "http://localhost%00.example.com/", "http://%31%32%37.0.0.1/", "http://*.example/", "http://-a.example/",
    "http://a..b/", "http://[::1", "http://::1/", "http://[fe80::1%25eth0]/",
    "http://2130706433/", "http://017700000001/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/",
    "http://0177.0.0.1/", "http://0x7f.0x0.0x0.0x1/", "http://example.com.0x7f/", "http://1.2.3.4.5/",
    "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1.5/",
    "http://example.com:0/", "http://example.com:65536/", "http://example.com:-1/", "http://example.com:80:80/",
    "http://example.com:８０/", "http://example.com:8_0/", "http://example.com:+80/",
    "http://example.com: 80/", "http://exa\tmple.com/", "http://example.com/\r\nHost: x",
    "http://" + "a" * 64 + ".com/", "http://" + "a." * 130 + "com/", "https://example.com/" + "a" * 5000,
    "http://example.com/\x00", "http://example.com/\ud83d", "http://\ud83d.example/",
]  # fmt: skip


@pytest.mark.parametrize("url", CANONICAL)
def test_an_address_has_one_form(url: str) -> None:
    assert canonical_url(url) == CANONICAL[url]
    assert canonical_url(CANONICAL[url]) == CANONICAL[url]


@pytest.mark.parametrize("url", REFUSED)
def test_what_programs_read_differently_is_no_address(url: str) -> None:
    with pytest.raises(NetError) as refused:
        canonical_url(url)
    assert refused.value.advice
    assert "pass" not in str(refused.value).replace("password", "").replace("/etc/passwd", "")


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"https://example.com{text}"):
        try:
            parsed = parse_url(url)
        except NetError:
            continue
        scheme, host, port = origin_of(parsed)
        assert scheme in {"http", "https"}
        assert host_of(host) == host
        assert 0 < port < 65536
        assert canonical_url(str(parsed)) == str(parsed)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("https://api.example/v1", True),
        ("http://localhost:8000", True),
        ("http://知识.例子/v1/", True),
        ("", False),
        ("api.example/v1", False),
        ("ftp://api.example/", False),
        ("https:///v1", False),
        ("https://me:secret@api.example/v1", False),
        ("https://api.example/v1?key=secret", False),
        ("https://api.example/v1#part", False),
        ("https://api.example:port/", False),
        ("https://[::1", False),
    ],
)
def test_paths_can_be_put_behind_an_address_of_a_host_without_key_and_query(text: str, is_one: bool) -> None:
    assert is_base_url(text) is is_one


def test_messages_show_neither_queries_nor_passwords() -> None:
    assert redact_url("https://example.com/a?key=secret#x") == "https://example.com/a?…"
    assert redact_url("https://example.com/a#secret") == "https://example.com/a"
    assert redact_url("https://me:secret@example.com/a") == "https://…@example.com/a"
    assert redact_url("https://example.com/@me?to=secret") == "https://example.com/@me?…"


def test_a_refusal_does_not_repeat_a_password_or_a_query() -> None:
    for url in ("http://me:secret@exa mple.com/", "http://exa mple.com/?key=secret", "ftp://x/?secret"):
        with pytest.raises(NetError) as refused:
            canonical_url(url)
        assert "secret" not in str(refused.value)
