"""Closing a provider, at whatever moment: no connection stays open, and no request outlives it."""

from __future__ import annotations

import gc
import json
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import httpx2
import keyring
import pytest
from anyio.lowlevel import checkpoint
from keyring.backend import KeyringBackend

from loom_core.errors import LLMError
from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.vendors import ANTHROPIC, DEEPSEEK, OPENAI_COMPATIBLE, ProviderSpec
from loom_core.net.retry import RetryPolicy
from tests.fixtures.scripted_provider import FREE, KEY, QUESTION, answer_of, pieces_of, retry_policy, scripted

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer


class _Slow(KeyringBackend):
    """A keyring that is asked for a key, and has the user think about it."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def get_password(self, service: str, username: str) -> str:
        self.asked.set()
        self.may_answer.wait(10)
        return KEY

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


async def test_leaving_a_provider_closes_its_connections_and_it_can_be_used_again():
    provider, wire = scripted(answer_of(), answer_of())
    async with provider:
        await provider.chat(QUESTION)
    assert wire.closed == 1
    await provider.chat(QUESTION)
    await provider.aclose()
    await provider.aclose()
    assert wire.closed == 2


def _open_clients() -> int:
    return sum(isinstance(each, httpx2.AsyncClient) and not each.is_closed for each in gc.get_objects())


async def test_closing_while_the_key_is_looked_for_ends_the_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    before, slow = keyring.get_keyring(), _Slow()
    keyring.set_keyring(slow)
    provider = HostedProvider(DEEPSEEK, base_url="http://localhost:1/v1", retry=retry_policy(attempts=1))
    failures: list[str] = []

    async def ask(asked: Callable[[], object]) -> None:
        with pytest.raises(LLMError, match="was closed during a request to deepseek-flash") as caught:
            await asked()
        failures.append(caught.value.failure)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, lambda: provider.chat(QUESTION))
            tasks.start_soon(ask, lambda: pieces_of(provider))
            await anyio.to_thread.run_sync(slow.asked.wait, 10)
            await provider.aclose()
            slow.may_answer.set()
        assert failures == ["interrupted", "interrupted"]
        with pytest.raises(LLMError, match="The connection to DeepSeek failed"):  # it can be used again
            await provider.chat(QUESTION)
    finally:
        slow.may_answer.set()
        keyring.set_keyring(before)
        await provider.aclose()


async def test_a_request_that_waits_for_its_turn_does_not_outlive_the_closing():
    provider, wire = scripted("silence", answer_of(), limits=RateLimits(concurrency=1))
    failures: list[str] = []

    async def ask_second() -> None:
        with pytest.raises(LLMError, match="was closed during a request") as caught:
            await provider.chat(QUESTION)
        failures.append(caught.value.failure)

    async with anyio.create_task_group() as second, anyio.create_task_group() as first:
        first.start_soon(provider.chat, QUESTION)
        while not wire.open:
            await checkpoint()
        second.start_soon(ask_second)
        await anyio.wait_all_tasks_blocked()
        await provider.aclose()
        first.cancel_scope.cancel()
    assert (failures, len(wire.requests), wire.open) == (["interrupted"], 1, 0)


def _read_to_the_end(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(10)
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("spec", [OPENAI_COMPATIBLE, ANTHROPIC], ids=lambda spec: spec.wire)
async def test_closing_while_a_connection_is_new_leaves_none_and_ends_the_request(spec: ProviderSpec):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"  # which never answers
        provider = HostedProvider(spec, model="m", base_url=address, api_key="k", prices=FREE)
        failures: list[str] = []

        async def ask() -> None:
            with pytest.raises(LLMError, match=f"to {spec.title} was closed during a request to m") as caught:
                await provider.chat(QUESTION)
            failures.append(caught.value.failure)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                connection, _ = await anyio.to_thread.run_sync(server.accept)
                await provider.aclose()
            assert failures == ["interrupted"]
            await anyio.to_thread.run_sync(_read_to_the_end, connection)


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
async def test_no_client_stays_open_whenever_the_provider_is_closed(
    steps: int, local_servers: Callable[..., LocalServer]
):
    server = local_servers()
    error = json.dumps({"error": {"message": "later"}}).encode()
    server.answers("/v1/chat/completions", error, status=503, Content_Type="application/json")
    provider = HostedProvider(
        OPENAI_COMPATIBLE,
        model="m",
        base_url=server.url("/v1"),
        prices=FREE,
        retry=RetryPolicy(attempts=1_000, base=0.01),
        breaker=CircuitBreaker(failures=1_000),
    )

    async def ask() -> None:
        with pytest.raises(LLMError, match="was closed during a request"):
            await provider.chat(QUESTION)

    before = _open_clients()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await checkpoint()
        for number in range(steps):
            while len(server.asked) < number:  # between and within attempts
                await checkpoint()
        await provider.aclose()
    assert _open_clients() == before
