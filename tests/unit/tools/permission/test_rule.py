from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.tools.permission.rule import AddressPattern, WebAddress

_HOSTS = "a.example 例子.cn xn--fsqu00a xn-- [::1] :443 :8".split(" ")
_MARKS = "https http file : // / \\ @ ? # * . .. %2e 。 re: İ \ud800 \n".split(" ")
_TEXTS = st.lists(st.sampled_from([*_HOSTS, *_MARKS, " "]), max_size=9).map("".join)


@pytest.mark.parametrize(
    ("text", "one_form", "is_plain"),
    [
        ("https://例子.cn/a b", "https://例子.cn/a b", False),
        ("HTTPS://XN--FSQU00A.cn:443/页?q=1#x", "https://例子.cn/页?q=1", True),
        ("http://a。example．:8080", "http://a.example:8080/", True),
        ("https://user:word@a.example", "https://a.example/", False),
        ("https:\\\\a.example\\x\\..\\y", "https://a.example/y", False),
        (" https://a.exa\tmple/%2e%2e/b/ ", "https://a.example/b/", False),
        ("wss://[::1]:443/", "wss://[::1]/", True),
        ("https:a.example/x", "https://a.example/x", False),
        ("Http:/a.example", "http://a.example/", False),
    ],
)
def test_an_address_has_one_form(text: str, one_form: str, is_plain: bool) -> None:
    address = WebAddress.of(text)

    assert address is not None
    assert (address.text, address.is_plain) == (one_form, is_plain)


@pytest.mark.parametrize(
    "text", ["", "a.example/x", "mailto:a@b.example", "c:/x", "note:/a/b", "see https://a.example", "C:/x"]
)
def test_other_texts_are_no_addresses(text: str) -> None:
    assert WebAddress.of(text) is None


@pytest.mark.parametrize(
    "pattern", ["*", "*.example", "/a/*", "file:///a/*", "curl https://a.example/*", "://"]
)
def test_other_patterns_are_not_about_addresses(pattern: str) -> None:
    assert AddressPattern.of(pattern, any_form=False) is None


@given(_TEXTS.filter(lambda text: "\ud800" not in text), _TEXTS)
def test_what_surely_fits_may_fit(pattern: str, text: str) -> None:
    narrow, wide = (AddressPattern.of(pattern, any_form=wide) for wide in (False, True))
    address = WebAddress.of(text)

    assert (narrow is None) == (wide is None)
    if narrow and wide and address and narrow.surely_fits(address):
        assert wide.may_fit(address)
