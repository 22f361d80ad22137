"""The sample server, as an object and as a command; clients of both eras, tokens, and a server of tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from loom_core.server.auth.tokens import TokenFile
from tests.fixtures.fork_server import starts_quickly
from tests.unit.server.sample import sample_server

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

    from loom_core.server.protocol.factory import LoomServer
    from tests.fixtures.kitchen import Kitchen

_SAMPLE = Path(__file__).parent / "sample.py"


class Answer(BaseModel):  # without a docstring, which the schema would tell to clients
    text: str


def text(result: CallToolResult) -> str:
    """The one text of a result."""
    (content,) = result.content
    return content.text


@pytest.fixture
def sample() -> LoomServer:
    return sample_server()


@pytest.fixture(scope="session")
def sample_command() -> list[str]:
    return [sys.executable, starts_quickly(_SAMPLE)]


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both eras, one after the other."""
    return request.param


@pytest.fixture
def connect(mode: str) -> Callable[..., Client]:
    """Connects to a server in memory, in both eras."""
    from mcp import Client

    def connected(server: LoomServer, **options: Any) -> Client:
        return Client(server.protocol, mode=mode, **options)

    return connected


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    """A file of tokens, which is not there yet."""
    return TokenFile(tmp_path / "tokens" / "sample.json")


@pytest.fixture
def make(tokens: TokenFile) -> Callable[..., dict[str, str]]:
    """Makes a token and gives the header that shows it: `make("name", "read", "write")`."""

    def create(name: str, *scopes: str, **further: Any) -> dict[str, str]:
        _, secret = tokens.create(name, scopes=scopes or ["read"], **further)
        return {"Authorization": f"Bearer {secret.get_secret_value()}"}

    return create


@pytest.fixture
async def kitchen() -> Kitchen:
    """A server of tasks, see tests/fixtures/kitchen.py."""
    from tests.fixtures.kitchen import Kitchen

    return Kitchen()
