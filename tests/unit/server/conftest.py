"""The sample server, as an object and as a command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from loom_core.server.factory import LoomServer

_SAMPLE = Path(__file__).parent / "sample.py"


@pytest.fixture
def sample_server(load: Callable[[Path], ModuleType]) -> Callable[..., LoomServer]:
    """Makes the server of sample.py; takes the list that its lifespan writes to."""
    return load(_SAMPLE).sample_server


@pytest.fixture
def sample(sample_server: Callable[..., LoomServer]) -> LoomServer:
    return sample_server()


@pytest.fixture(scope="session")
def sample_command() -> list[str]:
    return [sys.executable, str(_SAMPLE)]
