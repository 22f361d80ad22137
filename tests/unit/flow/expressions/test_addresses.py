from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError, UnreadableTextError
from loom_core.flow.expressions import ExpressionValues, check_url, fill_header, fill_url

_VALUES = ExpressionValues(
    inputs={"id": "单/1 号?", "n": 3, "yes": True, "none": None, "empty": "", "list": [1]}
)


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("https://a.example/o/{$inputs.id}", "https://a.example/o/%E5%8D%95%2F1%20%E5%8F%B7%3F"),
        ("https://a.example:8443/o?n={$inputs.n}&y={$inputs.yes}", "https://a.example:8443/o?n=3&y=true"),
        ("http://[::1]/o/{$inputs.n}.json", "http://[::1]/o/3.json"),
        ("/leave/{$inputs.n}", "/leave/3"),
        ("?n={$inputs.n}", "?n=3"),
        ("", ""),
        ("https://a.example", "https://a.example"),
    ],
)
def test_what_a_placeholder_brings_is_percent_encoded(template: str, url: str) -> None:
    check_url(template)
    assert fill_url(template, _VALUES) == url


@pytest.mark.hostile("addresses")
@pytest.mark.parametrize(
    "template",
    [
        "{$inputs.id}",
        "{$inputs.id}/x",
        "https://{$inputs.id}/x",
        "https://a.{$inputs.id}.example/",
        "https://a.example{$inputs.id}/",
        "https://a.example:{$inputs.n}/",
        "https://me:{$inputs.id}@a.example/",
        "https://me@a.example/",
        "https:/a.example/{$inputs.id}",
        "//a.example/{$inputs.id}",
        "/\\a.example/{$inputs.id}",
        "ftp://a.example/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "$inputs.id",
        "orders/{$inputs.id}",
        "/a b",
        "/a\nb",
        "/a\\b",
        "/a/../b",
        "/a/%2e%2E/b",
        "/{$inputs.id",
    ],
)
def test_a_placeholder_never_chooses_the_host(template: str) -> None:
    with pytest.raises(UnreadableTextError):
        check_url(template)
    with pytest.raises(UnreadableTextError):
        fill_url(template, _VALUES)


@pytest.mark.parametrize("name", ["none", "nothing", "empty", "list"])
def test_an_address_without_its_value_is_not_asked(name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"\$inputs\.{name}"):
        fill_url(f"/orders/{{$inputs.{name}}}/cancel", _VALUES)


@pytest.mark.parametrize(("before", "value"), [("", ".."), ("", "."), (".", "."), ("%2e", ".")])
def test_dots_do_not_lead_to_another_folder(before: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match="another folder"):
        fill_url(
            f"https://a.example/orders/{before}{{$inputs.x}}/items", ExpressionValues(inputs={"x": value})
        )
    assert fill_url("/o?x={$inputs.x}", ExpressionValues(inputs={"x": ".."})) == "/o?x=.."


@pytest.mark.hostile("addresses")
@given(st.text(min_size=1))
def test_any_value_stays_in_its_place(value: str) -> None:
    try:
        url = fill_url(
            "https://a.example/x/{$inputs.v}/y?q={$inputs.v}#f", ExpressionValues(inputs={"v": value})
        )
    except InvalidInputError:
        assert value in {".", ".."} or any("\ud800" <= char <= "\udfff" for char in value)
        return
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "a.example", "f")
    _, first, middle, last = parts.path.split("/")
    assert (first, unquote(middle), last) == ("x", value, "y")
    assert parts.query == f"q={middle}"


def test_a_header_is_filled_and_left_out_without_a_value() -> None:
    assert fill_header("n-{$inputs.n}", _VALUES) == "n-3"
    assert fill_header("{$inputs.n}", _VALUES) == "3"
    assert fill_header("{$inputs.none}", _VALUES) is None
    assert fill_header("{$inputs.nothing}", _VALUES) is None
    assert fill_header("plain", _VALUES) == "plain"


@pytest.mark.hostile("addresses")
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7f", "\ud800"])
def test_a_header_never_gets_a_second_line(value: str) -> None:
    with pytest.raises(InvalidInputError, match="line break"):
        fill_header("x {$inputs.v}", ExpressionValues(inputs={"v": value}))
