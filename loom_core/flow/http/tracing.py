"""What operators are told of a request of a flow file: its span, and what is counted."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from loom_core.errors import NetError
from loom_core.observability.families import FLOW_REQUEST_SECONDS, FLOW_REQUESTS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import FLOW_REQUEST
from loom_core.observability.tracing import AttributeValue, failed, span

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import Span

    from loom_core.flow.http.request import FilledRequest

__all__ = ["RequestSpan", "request_span"]

_ERRORS = 400  # from this status on


class RequestSpan:
    """What the span of a request is told.

    Attributes:
        status: what came of it, for its count; `cancelled` as long as nothing has.
    """

    def __init__(self, started: Span) -> None:
        self.status = "cancelled"
        self._span = started

    def ended(self, outcome: NetError | int, *, attempts: int) -> None:
        """Note what came of it in the end.

        Args:
            outcome: the status of the last answer, or why there is none.
            attempts: how often it was sent.
        """
        if attempts > 1:
            self._span.set_attribute("http.request.resend_count", attempts - 1)
        if isinstance(outcome, NetError):
            self.status = outcome.failure
            failed(self._span, outcome.failure)
            return
        self.status = f"{outcome // 100}xx" if outcome < 600 else "other"
        self._span.set_attribute("http.response.status_code", outcome)
        if outcome >= _ERRORS:
            failed(self._span, str(outcome))


@contextmanager
def request_span(request: FilledRequest, *, run_id: str) -> Generator[RequestSpan]:
    """The span of a request with all of its attempts; where it goes is told as host and port, and no more.

    Args:
        request: what is sent.
        run_id: the run that it belongs to; empty for none.
    """
    host, _, port = request.place.rpartition(":")
    attributes: dict[str, AttributeValue | None] = {
        "http.request.method": request.method,
        "server.address": host,
        "server.port": int(port),
        "loom.run.id": run_id or None,
    }
    began = perf_counter()
    with span(FLOW_REQUEST, attributes) as started:
        told = RequestSpan(started)
        try:
            yield told
        finally:
            process_metrics.add(FLOW_REQUESTS, request.method, told.status)
            process_metrics.observe(FLOW_REQUEST_SECONDS, perf_counter() - began, request.method)
