from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from loom_core.tools.redaction import arguments_digest, redact_arguments

pytestmark = pytest.mark.hostile("secrets")


@pytest.mark.parametrize(
    "name",
    (
        "password passwd PASSWORD pwd db_password api_key apiKey API-KEY token accessToken auth_token secret "
        "refresh_token clientSecret Authorization cookie private_key credentials passphrase 密码 令牌"
    ).split(),
)
def test_what_is_called_a_secret_is_not_written(name: str) -> None:
    assert redact_arguments({name: "x"}) == {name: "[secret]"}
    assert redact_arguments({"a": [{name: ["x", {"y": "z"}]}]}) == {
        "a": [{name: ["[secret]", {"y": "[secret]"}]}]
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "笔记/密码学.md"},
        {"max_tokens": 5, "tokenizer": "bpe", "tokens": "a b"},
        {"monkey": "x", "keyboard": "y", "author": "李白", "compass": "n"},
        {"token": 5, "password": None, "secret": True, "port": 65_000},
    ],
)
def test_what_is_no_secret_is_written_as_it_is(arguments: dict[str, Any]) -> None:
    assert redact_arguments(arguments) == arguments


def test_headers_and_options_in_lists_are_not_written() -> None:
    arguments = {
        "headers": [["X-Api-Key", "k-1"], ["Cookie", "sid=7"], ["Accept", "text/html"]],
        "more": [{"name": "Cookie", "value": "sid"}, {"key": "页", "value": "12"}],
        "argv": ["curl", "--password", "geheim", "-o", "笔记.md"],
        "fields": ["token", "name"],
    }

    assert redact_arguments(arguments) == {
        "headers": [["X-Api-Key", "[secret]"], ["Cookie", "[secret]"], ["Accept", "text/html"]],
        "more": [{"name": "Cookie", "value": "[secret]"}, {"key": "页", "value": "12"}],
        "argv": ["curl", "--password", "[secret]", "-o", "笔记.md"],
        "fields": ["token", "name"],
    }
    assert arguments_digest(arguments) == arguments_digest(
        {**arguments, "argv": ["curl", "--password", "x", "-o", "笔记.md"]}
    )


def test_a_code_of_figures_is_a_secret_and_its_digest_does_not_tell_it() -> None:
    one, other = {"验证码": 837261, "to": "王"}, {"验证码": 112233, "to": "王"}

    assert redact_arguments(one) == {"验证码": "[secret]", "to": "王"}
    assert arguments_digest(one) == arguments_digest(other) != arguments_digest({**one, "to": "李"})
    assert arguments_digest({"text": "hunter2"}, [SecretStr("hunter2")]) == arguments_digest(
        {"text": "[secret]"}
    )


def test_a_known_secret_is_not_written_wherever_it_stands() -> None:
    secrets = [SecretStr("hunter2/秘"), SecretStr("x")]

    written = redact_arguments(
        {"text": "use hunter2/秘 now", "list": ["?k=hunter2%2F%E7%A7%98"], "map": {"hunter2/秘": 1}}, secrets
    )

    assert written == {"text": "use [secret] now", "list": ["?k=[secret]"], "map": {"[secret]": 1}}


@pytest.mark.slow
def test_long_texts_are_cut_and_deep_ones_end() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]

    written = redact_arguments({"text": "长" * 5000, "deep": deep})

    assert written["text"].endswith("长… [5,000 characters]")
    assert len(json.dumps(written)) < 10_000
    assert len(json.dumps(redact_arguments({"many": ["长"] * 100_000}), ensure_ascii=False)) < 50_000
    assert arguments_digest({"text": "长" * 5000}) != arguments_digest({"text": "长" * 5001})


@given(st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3)), max_size=4))
def test_the_digest_is_the_same_for_the_same_arguments_in_any_order(arguments: dict[str, Any]) -> None:
    turned = dict(reversed(arguments.items()))

    assert arguments_digest(arguments) == arguments_digest(turned)
    assert arguments_digest(arguments) != arguments_digest({**arguments, "另一个": 1})


def test_what_is_wanted_whole_is_not_cut():
    long = "长" * 5000
    assert redact_arguments({"text": long, "token": "x"}, whole=True) == {"text": long, "token": "[secret]"}
