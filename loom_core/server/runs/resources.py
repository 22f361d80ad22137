"""Runs as resources: state, events and blobs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from anyio import to_thread

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.server.protocol.completions import COMPLETION_LIMIT
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry, ResourcePage

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal import PostgresPlace
    from loom_core.runs.run import Run
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["ReadableRuns", "register_run_resources"]

_RUN = "loom://runs/{id}"
_EVENTS = "loom://runs/{id}/events"
_BLOB = "loom://runs/{id}/blobs/{n}"
_JSON, _LINES = "application/json", "application/x-ndjson"
_LISTED = 100
_PAGE = 500
_TITLE = 80


class ReadableRuns(Protocol):
    """The runs of a server that the current caller may see."""

    @property
    def journal_place(self) -> Path | PostgresPlace:
        """Where the journal is; if it does not exist, there are no runs."""
        ...

    async def run(self, run_id: str) -> Run:
        """Return a run; `NotFoundError` if the caller has none with this id."""
        ...

    async def latest_runs(self, limit: int) -> Sequence[Run]:
        """Return the caller's runs, the latest first."""
        ...

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> Sequence[StreamEvent]:
        """Return the events of a run, oldest first; `NotFoundError` as for `run`."""
        ...

    async def blob(self, run_id: str, number: int) -> tuple[bytes, str]:
        """Return data too large for an event, and its media type; `NotFoundError` if there is none."""
        ...


def register_run_resources(
    server: LoomServer,
    runs: ReadableRuns,
    *,
    describe: Callable[[Run], Awaitable[str]],
    title: Callable[[Run], str],
    description: str,
) -> None:
    """Register runs as resources, with their list and the completion of ids.

    Args:
        server: the server.
        runs: the runs.
        describe: returns a run as JSON.
        title: returns the display name of a run.
        description: description of a run's JSON.
    """

    @server.resource(
        _EVENTS,
        name="events",
        title="Events of a run",
        description="All that happened in a run, a JSON object a line, oldest first.",
        mime_type=_LINES,
    )
    async def events(id: str) -> ResourceContent:  # noqa: A002
        lines: list[str] = []
        after = 0
        while found := await runs.events(id, after=after, limit=_PAGE):
            after = found[-1].seq
            lines += [json.dumps(asdict(event), ensure_ascii=False, default=str) for event in found]
        return ResourceContent("".join(f"{line}\n" for line in lines), _LINES)

    @server.resource(
        _BLOB,
        name="blob",
        title="Large output of a tool",
        description="What a tool said in a run where it was too long to show.",
    )
    async def blob(id: str, n: str) -> ResourceContent:  # noqa: A002
        if not (n.isascii() and n.isdigit() and len(n) < 10):
            raise NotFoundError(f"Run {id[:100]} has no blob {n[:100]!r}.")
        content, media_type = await runs.blob(id, int(n))
        if not media_type.startswith("text/"):
            return ResourceContent(content, media_type)
        return ResourceContent(content.decode("utf-8", "replace"), media_type)

    @server.resource(_RUN, name="run", title="Run", description=description, mime_type=_JSON)
    async def run(id: str) -> ResourceContent:  # noqa: A002
        return ResourceContent(await describe(await runs.run(id)), _JSON)

    async def list_latest(limit: int) -> Sequence[Run]:
        """List the latest runs, without creating a journal."""
        return await runs.latest_runs(limit) if await to_thread.run_sync(runs.journal_place.exists) else ()

    @server.resource_list
    async def list_runs(cursor: str | None) -> ResourcePage:
        if cursor:
            raise InvalidInputError("There is no such page.", advice="Ask for the list without a cursor.")
        entries = [
            ResourceEntry(
                _RUN.format(id=run.id),
                run.id,
                " ".join(title(run).split())[:_TITLE],
                f"{run.status}, {run.request.profile}",
                _JSON,
            )
            for run in await list_latest(_LISTED)
        ]
        return ResourcePage(entries)

    @server.completion("id", resource=_RUN)
    @server.completion("id", resource=_EVENTS)
    @server.completion("id", resource=_BLOB)
    async def ids(typed: str, _others: Mapping[str, str]) -> list[str]:
        return [run.id for run in await list_latest(COMPLETION_LIMIT) if run.id.startswith(typed)]
