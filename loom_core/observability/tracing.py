"""Spans of Loom's own work, for whichever OpenTelemetry SDK the program around it has set up.

Without one a span costs some microseconds and goes nowhere.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from opentelemetry.trace import Span, Tracer

__all__ = ["AttributeValue", "span"]

AttributeValue = str | bool | int | float
"""What an attribute may be."""


@contextmanager
def span(
    name: str,
    *,
    scope: str,
    tracer: Tracer | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Generator[Span]:
    """A span around a block, the current one while the block runs.

    An exception that leaves the block is recorded and sets the span's status; it is not caught. A block
    that is cancelled ends without a status: nothing went wrong in it.

    Args:
        name: what is done.
        scope: which part of Loom does it, as a module's name; for the program's own tracer provider.
        tracer: makes the span instead of that provider's tracer, where given.
        attributes: what is known before the work begins.
    """
    from opentelemetry.trace import get_tracer

    chosen = tracer or get_tracer(scope)
    with chosen.start_as_current_span(name, attributes=attributes) as started:
        yield started
