from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator

import keyring
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked
from pydantic import SecretStr

from loom_core.errors import ConfigError
from loom_core.keys import (
    check_key,
    check_reference,
    check_variable,
    find_key,
    own_key,
    redact,
    resolve,
)

_NAME = "LOOM_TEST_KEY"


class Entries(KeyringBackend):
    """A keyring that answers by a function."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self, answer: Callable[[str, str], str | None]) -> None:
        super().__init__()
        self.answer = answer

    def get_password(self, service: str, username: str) -> str | None:
        return self.answer(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


@pytest.fixture
def use_keyring(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[str, str], str | None]], None]]:
    """Sets the keyring of this process; the environment has no key."""
    monkeypatch.delenv(_NAME, raising=False)
    before = keyring.get_keyring()
    yield lambda answer: keyring.set_keyring(Entries(answer))
    keyring.set_keyring(before)


def _value(key: SecretStr | None) -> str | None:
    return None if key is None else key.get_secret_value()


def test_the_environment_comes_first_and_white_space_goes(use_keyring, monkeypatch: pytest.MonkeyPatch):
    use_keyring(lambda *_: "from-keyring")
    monkeypatch.setenv(_NAME, "  from-environment\n")
    assert _value(find_key(_NAME)) == "from-environment"


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_an_empty_variable_counts_as_none(use_keyring, monkeypatch: pytest.MonkeyPatch, empty: str):
    use_keyring(lambda service, name: f"{service}-{name}")
    monkeypatch.setenv(_NAME, empty)
    assert _value(find_key(_NAME)) == f"loom-{_NAME}"
    assert _value(find_key(_NAME, keyring_service="mine")) == f"mine-{_NAME}"


def test_the_keyring_is_left_alone_where_the_environment_is_to_do(
    use_keyring, monkeypatch: pytest.MonkeyPatch
):
    asked: list[tuple[str, ...]] = []
    use_keyring(lambda *entry: asked.append(entry))
    assert find_key(_NAME, keyring=False) is None
    monkeypatch.setenv(_NAME, "from-environment")
    assert _value(find_key(_NAME, keyring=False)) == "from-environment"
    assert asked == []


def _locked(*_: str) -> str:
    raise KeyringLocked("secret-detail")


def _broken(*_: str) -> str:
    raise RuntimeError("secret-detail")


@pytest.mark.parametrize("answer", [lambda *_: None, lambda *_: " ", _locked, _broken])
def test_a_keyring_that_has_nothing_or_fails_counts_as_empty(
    use_keyring, caplog: pytest.LogCaptureFixture, answer: Callable[[str, str], str | None]
):
    use_keyring(answer)
    with caplog.at_level(logging.DEBUG, logger="loom_core"):
        assert find_key(_NAME) is None
    assert "secret-detail" not in caplog.text


def test_a_keyring_that_waits_for_ever_is_not_waited_for(use_keyring, caplog: pytest.LogCaptureFixture):
    done = threading.Event()
    use_keyring(lambda *_: str(done.wait(30)))
    try:
        assert find_key(_NAME, keyring_seconds=0.05) is None
        assert "did not answer within 0.05 seconds" in caplog.text
    finally:
        done.set()


def test_keys_are_found_without_the_package_keyring(use_keyring, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keyring", None)  # as if it were not installed
    assert find_key(_NAME) is None


class Keeping(Entries):
    """A keyring that keeps what it is given."""

    priority = -2

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        super().__init__(lambda service, name: self.kept.get((service, name)))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password


def test_a_key_of_its_own_is_made_once(use_keyring):
    use_keyring(lambda *_: None)
    keyring.set_keyring(Keeping())
    made = iter(["first", "second"])
    assert [_value(own_key("logins", make=lambda: next(made))) for _ in range(2)] == ["first", "first"]


@pytest.mark.parametrize("answer", [lambda *_: None, _locked])
def test_without_a_keyring_that_keeps_it_there_is_no_key_of_its_own(use_keyring, answer):
    use_keyring(answer)
    assert own_key("logins", make=lambda: "made") is None


def test_references_lead_to_their_secrets(use_keyring, monkeypatch: pytest.MonkeyPatch):
    use_keyring(lambda _, name: "from-keyring" if name == "deepseek" else None)
    monkeypatch.setenv(_NAME, "from-environment")
    assert _value(resolve(f"env:{_NAME}")) == "from-environment"
    assert _value(resolve("keyring:deepseek")) == "from-keyring"


def test_a_reference_to_nothing_says_where_it_looked(use_keyring):
    use_keyring(lambda *_: None)
    with pytest.raises(ConfigError, match=f"environment variable {_NAME} is not set"):
        resolve(f"env:{_NAME}")
    with pytest.raises(ConfigError, match="keyring set loom deepseek"):
        resolve("keyring:deepseek")


_MISPLACED = (
    "sk-live-123",
    "sk-proj-4fQz81LmN0pRs7TuVw92",
    "gsk_4fQz81LmN0pRs7TuVw92",
    "d41d8cd98f00b204e9800998ecf8427e",
    "1f0c2b3a-77aa-4c1d-9e2f-0a1b2c3d4e5f",
)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "sk-live-123",
            "env:",
            "keyring:",
            "ENV:X",
            "env:a b",
            "env:a\nb",
            "env:密钥",
            "env:a-b",
            "env:9X",
            "",
        ),
        *(f"{place}:{key}" for place in ("env", "keyring") for key in _MISPLACED),
    ],
)
def test_what_may_be_a_key_is_refused_and_not_repeated(text: str):
    for read in (check_reference, resolve):
        with pytest.raises(ConfigError) as caught:
            read(text)
        assert "env:NAME" in caught.value.advice
        assert not text or text not in caught.value.message
        name = text.partition(":")[2]
        assert not name or name not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "_k",
        "team2_openai_embedding_key",
        "AKEYOFTHEGATEWAY2026",
        "myopenaiapikeyforloom",
    ],
)
def test_ordinary_names_of_variables_and_entries_are_taken(name: str):
    assert check_variable(name, setting="api_key_env", advice="") == name
    assert check_reference(f"env:{name}") == f"env:{name}"
    assert check_reference(f"keyring:{name}") == f"keyring:{name}"


@pytest.mark.parametrize("entry", ["deepseek", "gateway-token", "知识库", "me@example.com"])
def test_an_entry_of_the_keyring_may_be_called_as_one_likes(entry: str):
    assert check_reference(f"keyring:{entry}") == f"keyring:{entry}"


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize("key", ["", " ", "two words", "密钥", "line\nbreak", "tab\tbed"])
def test_what_cannot_be_a_header_is_no_key(key: str):
    for given_key in (key, SecretStr(key)):
        with pytest.raises(ConfigError) as caught:
            check_key(given_key, source="the test")
        assert "The key from the test" in str(caught.value)
        assert not key.strip() or key not in str(caught.value)


def test_a_broken_key_in_the_environment_is_said_to_be_one(use_keyring, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(_NAME, "sk-“quoted”")
    with pytest.raises(ConfigError, match=f"The key from the environment variable {_NAME} holds") as caught:
        find_key(_NAME)
    assert "quoted" not in str(caught.value)


@pytest.mark.hostile("secrets")
def test_secrets_are_taken_out_of_texts():
    secrets = [
        SecretStr("sk-1234"),
        SecretStr("sk-1234-longer"),
        SecretStr("p/w+d"),
        SecretStr("x"),
        SecretStr(""),
    ]
    text = "键 sk-1234-longer, sk-1234; https://h/?k=p%2Fw%2Bd x"
    assert redact(text, secrets) == "键 [secret], [secret]; https://h/?k=[secret] x"


@pytest.mark.slow
@pytest.mark.hostile("secrets")
@given(
    st.text(max_size=20),
    st.lists(st.text("abc/+ 密", min_size=4, max_size=8), max_size=4),
    st.text(max_size=20),
)
def test_no_secret_is_left_in_a_text(before: str, values: list[str], after: str):
    text = before + " | ".join(values) + after
    left = redact(text, [SecretStr(value) for value in values])
    assert not any(value in left.replace("[secret]", "\0") for value in values)
