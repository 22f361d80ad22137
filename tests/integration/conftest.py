"""Servers written by others, for the tests that speak with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing

import pytest

from tests.fixtures.peers import Peer, peer_script


@pytest.fixture(scope="module")
def mock_ai_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where the two servers of mock-ai-api are: `openai` and `anthropic`.

    The end of the model's name says how they answer, as in `gpt-4.1:mock-503`.
    """
    script, folder = peer_script("uvicorn"), tmp_path_factory.mktemp("mock_ai_api")
    with ExitStack() as servers:

        def start(interface: str) -> str:
            peer = Peer(script, f"app.{interface}_app:app", "--port", "0", folder=folder)
            return servers.enter_context(closing(peer)).url

        yield {interface: start(interface) for interface in ("openai", "anthropic")}


@pytest.fixture(scope="module")
def llm_katan(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., AbstractContextManager[Peer]]:
    """Starts llm-katan, which says back what it is told, with its options: `llm_katan("--error-rate", "1")`.

    It has both interfaces, and checks keys: `llm-katan-openai-key` and `llm-katan-anthropic-key`.
    """
    script = peer_script("llm-katan")
    options = ["--model", "katan", "--backend", "echo", "--providers", "openai,anthropic", "--validate-keys"]
    options += ["--host", "127.0.0.1", "--port", "0", "--disable-dashboard", "--max-concurrent", "100"]
    home = tmp_path_factory.mktemp("llm_katan")
    return lambda *more: closing(Peer(script, *options, *more, folder=home))


@pytest.fixture(scope="module")
def katan(llm_katan: Callable[..., AbstractContextManager[Peer]]) -> Iterator[Peer]:
    """One that does not fail."""
    with llm_katan() as peer:
        yield peer


@pytest.fixture
def start_katan(llm_katan: Callable[..., AbstractContextManager[Peer]]) -> Iterator[Callable[..., Peer]]:
    """Starts one of its own, which ends with the test: `start_katan("--error-rate", "1")`."""
    with ExitStack() as servers:
        yield lambda *options: servers.enter_context(llm_katan(*options))
