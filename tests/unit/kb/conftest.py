"""Passages and jobs to write about, and a service over a home of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from loom_kb.models import JobInfo, Passage
from loom_kb.service import KnowledgeService
from loom_kb.settings import Settings


@pytest.fixture
def passage() -> Callable[..., Passage]:
    """Makes a passage; what a test does not name is a small English one."""

    def make(**fields: Any) -> Passage:
        defaults: dict[str, Any] = {
            "number": 1,
            "id": "d1.a",
            "source": "notes",
            "document_id": "d1",
            "title": "Handbook",
            "heading_path": ["Fees"],
            "uri": "note:handbook",
            "start": 10,
            "end": 30,
            "page": None,
            "text": "Small boats are free.",
            "relevance": 1.0,
            "scores": {"bm25": 2.5},
            "why": ["shares words with the question"],
        }
        return Passage(**{**defaults, **fields})

    return make


@pytest.fixture
def job() -> Callable[..., JobInfo]:
    """Makes a job; what a test does not name is a finished one of two documents."""

    def make(**fields: Any) -> JobInfo:
        defaults: dict[str, Any] = {
            "id": "job-1",
            "source": "notes",
            "state": "done",
            "total": 2,
            "processed": 2,
            "counts": {"added": 2},
            "passages": 5,
            "problems": [],
        }
        return JobInfo(**{**defaults, **fields})

    return make


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[KnowledgeService]:
    """A service whose server may read the folder `allowed`; it works only when a test lets it."""
    (tmp_path / "allowed").mkdir()
    service = KnowledgeService(
        Settings(home=tmp_path / "home", roots=(tmp_path / "allowed",), embedder="hashing", version="1")
    )
    yield service
    service.library.close()
