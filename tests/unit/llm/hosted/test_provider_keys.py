"""Where the key of a provider is looked for, and what is said of one that is missing or can be none."""

from __future__ import annotations

from dataclasses import replace

import keyring
import pytest
from keyring.backend import KeyringBackend

from loom_core.errors import LLMError
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.vendors import ANTHROPIC, DEEPSEEK, OPENAI_COMPATIBLE
from tests.fixtures.scripted_provider import KEY, QUESTION
from tests.fixtures.scripted_wire import ScriptedWire
from tests.fixtures.vendors import FakeVendors, Turn


class _Noting(KeyringBackend):
    """A keyring that has nothing, and notes what it is asked for."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get_password(self, service: str, username: str) -> None:
        self.asked.append(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


async def test_a_missing_key_is_said_at_the_first_request_with_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    with pytest.raises(
        LLMError, match=r"no key for Anthropic\. Set the environment variable ANTHROPIC_API_KEY"
    ) as no:
        await HostedProvider(ANTHROPIC).chat(QUESTION)
    assert (no.value.failure, no.value.provider) == ("authentication", "anthropic")


async def test_a_key_in_a_header_of_ones_own_is_enough(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    fake = FakeVendors([Turn(text="好。")])
    async with fake.http_client() as http_client:
        provider = HostedProvider(
            DEEPSEEK,
            base_url=fake.base_url("deepseek"),
            headers={"Authorization": f"Bearer {fake.key}"},
            http_client=http_client,
        )
        assert provider.problem() == ""
        assert (await provider.chat(QUESTION)).content == "好。"


@pytest.mark.parametrize(("needs_key", "asked"), [(False, []), (True, ["LOOM_TEST_KEY"])])
def test_the_keyring_is_asked_only_where_there_has_to_be_a_key(
    needs_key: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("LOOM_TEST_KEY", raising=False)
    spec = replace(OPENAI_COMPATIBLE, key_variable="LOOM_TEST_KEY", needs_key=needs_key)
    provider = HostedProvider(spec, model="m", base_url="http://localhost:1/v1")
    before, noting = keyring.get_keyring(), _Noting()
    keyring.set_keyring(noting)
    try:
        assert bool(provider.problem()) is needs_key
    finally:
        keyring.set_keyring(before)
    assert noting.asked == asked


async def test_a_key_that_can_be_none_is_said_without_the_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-with a blank")
    with pytest.raises(LLMError, match="DEEPSEEK_API_KEY holds characters") as caught:
        await HostedProvider(DEEPSEEK).chat(QUESTION)
    assert caught.value.failure == "authentication"
    assert "blank" not in str(caught.value)


async def test_a_vendor_of_ones_own_that_needs_a_key_is_given_it_by_argument():
    spec = replace(OPENAI_COMPATIBLE, needs_key=True)
    with pytest.raises(LLMError, match="Give it as `api_key`"):
        await HostedProvider(spec, model="m", base_url="http://localhost:1/v1").chat(QUESTION)


def test_a_missing_key_is_known_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    problem = HostedProvider(DEEPSEEK).problem()
    assert "There is no key" in problem
    assert "DEEPSEEK_API_KEY" in problem
    assert HostedProvider(DEEPSEEK, api_key=KEY).problem() == ""
    assert HostedProvider(ANTHROPIC, api_key=KEY).problem() == ""
    assert HostedProvider(DEEPSEEK, wire=ScriptedWire()).problem() == ""
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    assert HostedProvider(DEEPSEEK).problem() == ""
