"""The span of a job: from its first piece of work here to its end, in the trace of whoever submitted it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.observability.propagation import parent_of
from loom_core.observability.spans import KNOWLEDGE_INGEST
from loom_core.observability.tracing import AttributeValue, failed, start_span

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import Span

    from loom_core.knowledge.store import Job, Record

__all__ = ["TRACE", "JobTrace"]

TRACE = "trace"
"""Where the request of a job says which trace it was submitted in (`traceparent`)."""


class JobTrace:
    """Keeps the span of the job that is under way.

    Args:
        record: where jobs are read.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._job: Job | None = None
        self._span: Span | None = None

    async def follow(self, job: Job | None) -> None:
        """This job is next: the span of another one ends, and one for it begins."""
        if self._job is not None and (job is None or job.key != self._job.key):
            await to_thread.run_sync(self._end)
        if job is not None and self._job is None:
            attributes: dict[str, AttributeValue | None] = {"loom.job.id": job.id, "loom.job.kind": job.kind}
            parent = parent_of(job.request.get(TRACE))
            self._job, self._span = job, start_span(KNOWLEDGE_INGEST, attributes, parent=parent)

    @contextmanager
    def piece(self) -> Generator[None]:
        """What the block does is work on the job."""
        if self._span is None:
            yield
            return
        from opentelemetry.trace import use_span

        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def interrupted(self) -> None:
        """Another process may go on with it."""
        self._end(interrupted=True)

    def _end(self, *, interrupted: bool = False) -> None:
        job, span = self._job, self._span
        self._job = self._span = None
        if job is None or span is None:
            return
        now = self._record.jobs.get(job.id) if span.is_recording() else None
        if now is not None:
            state = "interrupted" if interrupted and not now.finished else now.state
            span.set_attributes(
                {
                    "loom.job.state": state,
                    "loom.job.documents": now.processed,
                    "loom.job.failed": now.counts.get("failed", 0),
                    "loom.job.chunks": now.chunks,
                }
            )
            if now.state == "failed":
                failed(span, "job_failed")
        span.end()
