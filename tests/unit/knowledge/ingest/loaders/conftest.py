from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_core.knowledge.ingest.loaders import LoadLimits, load_bytes
from loom_core.knowledge.model import DocumentDraft


@pytest.fixture
def documents() -> Path:
    """The folder of committed documents."""
    return Path(__file__).parents[4] / "fixtures" / "documents"


@pytest.fixture
def load() -> Callable[..., DocumentDraft]:
    """Load a text or bytes under a file name."""

    def load(name: str, data: str | bytes, limits: LoadLimits | None = None) -> DocumentDraft:
        raw = data.encode() if isinstance(data, str) else data
        return load_bytes(raw, uri=f"text:{name}", name=name, limits=limits or LoadLimits())

    return load


@pytest.fixture
def outline() -> Callable[[DocumentDraft], list[tuple[str, str]]]:
    """A draft's blocks as (kind, text)."""
    return lambda draft: [(block.kind, draft.text[block.start : block.end]) for block in draft.blocks]
