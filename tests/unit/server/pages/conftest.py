"""Journals with runs whose events are written by hand, at times that are chosen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loom_core.runs.events import StreamEvent
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run, RunRequest


@pytest.fixture
def events() -> Callable[..., list[StreamEvent]]:
    """Events of `(seconds, type, payload)`, numbered from 1."""

    def make(*happened: tuple[float, Any, Mapping[str, Any]]) -> list[StreamEvent]:
        return [
            StreamEvent(type_, payload, run_id="run_a", seq=seq, at=at)
            for seq, (at, type_, payload) in enumerate(happened, start=1)
        ]

    return make


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncGenerator[Journal]:
    """A journal in a file."""
    journal = Journal(tmp_path / "runs.db")
    yield journal
    await journal.aclose()


@pytest.fixture
def written(journal: Journal) -> Callable[..., Any]:
    """Writes a run with these events, each a type and a payload; gives it as it stands then."""

    async def write(goal: str, happened: Sequence[tuple[Any, dict[str, Any]]], **request: Any) -> Run:
        run = await journal.create(RunRequest(goal=goal, **request))
        log = await journal.claim(run.id)
        assert log is not None
        async with log:
            for type_, payload in happened:
                changes = {"status": "completed"} if type_ == "agent_finish" else {}
                log.add(type_, payload, **changes)
        return await journal.get(run.id)

    return write
