from __future__ import annotations

import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError
from loom_core.llm.transport.protocol import Connection
from loom_core.llm.vendors import DEEPSEEK

_SECRET = "open-sesame-please"


def _connection(base_url: str = "https://api.deepseek.com", **headers: str) -> Connection:
    return Connection(spec=DEEPSEEK, model="m", base_url=base_url, headers=headers)


@pytest.mark.parametrize(
    "base_url",
    ["http://localhost:11434/v1", "https://网关.example/v1", "http://[::1]:8000/v1", "HTTPS://GPU"],
)
def test_an_address_may_be_of_any_host(base_url: str):
    assert _connection(base_url).base_url == base_url


@pytest.mark.parametrize(
    ("base_url", "why"),
    [
        ("", "there is no address"),
        ("api.deepseek.com", "is not an http"),
        ("https://", "is not an http"),
        ("https://[::1", "is not an http"),
        (f"https://user:{_SECRET}/v1", "is not an http"),
        ("https://gpu:99999/v1", "is not an http"),
        (f"https://user:{_SECRET}@gpu/v1", "the address must not contain a password"),
    ],
)
def test_an_address_that_can_be_none_is_told_without_what_it_may_hold(base_url: str, why: str):
    with pytest.raises(ConfigError, match=rf"DeepSeek cannot be asked: .*{why}") as caught:
        _connection(base_url)
    assert _SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("X Title", _SECRET, "No header can be called 'X Title'"),
        ("标题", _SECRET, "No header can be called '标题'"),
        ("X-Title", f"{_SECRET}小说", "The header X-Title holds characters that cannot be sent"),
        ("X-Title", f"{_SECRET}\nX-Other: 1", "The header X-Title holds characters that cannot be sent"),
    ],
)
def test_a_header_that_cannot_be_sent_is_named_without_its_value(name: str, value: str, why: str):
    with pytest.raises(ConfigError, match=why) as caught:
        _connection(**{name: value})
    assert _SECRET not in str(caught.value)


def test_what_is_shown_of_a_connection_holds_no_secret():
    connection = Connection(
        spec=DEEPSEEK,
        model="m",
        base_url="https://api.deepseek.com",
        api_key=SecretStr(_SECRET),
        headers={"X-Token": _SECRET},
    )
    assert _SECRET not in repr(connection)


def test_a_key_may_be_in_a_header_of_ones_own():
    assert _connection(authorization="Bearer x").has_key
    assert _connection(**{"X-Api-Key": "x"}).has_key
    assert not _connection(**{"X-Title": "x"}).has_key
