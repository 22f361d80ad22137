"""What a server has done, counted, as Prometheus and its like collect it.

A small writer of our own: three kinds of numbers and one text format are all that is needed. Labels are of
closed sets (names of tools, outcomes, reasons), so that nothing of users' ever becomes one. All numbers are
of this process alone.

Source: Prometheus, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

__all__ = ["CONTENT_TYPE", "Metrics", "Outcome", "Refused"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Outcome = Literal["ok", "error", "refused", "cancelled"]
"""How a call ended: `error` was told to the model, `refused` is an error of the protocol."""

Refused = Literal[
    "host",
    "origin",
    "no_token",
    "bad_token",
    "expired_token",
    "scope",
    "rate",
    "running",
    "streams",
    "sessions",
    "no_session",
    "body_size",
    "body_time",
    "head_time",
    "issuer",
    "ending",
]
"""Why a request was refused before the protocol saw it; `expired_token` and `ending` also end what runs."""

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Metrics:
    """The numbers of one server."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, Outcome], int] = {}
        self._durations: dict[str, _Histogram] = {}
        self._refused: dict[Refused, int] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def called(self, tool: str, outcome: Outcome, seconds: float) -> None:
        """Count a call.

        Args:
            tool: a tool that exists; the name that somebody asked for is none of ours.
            outcome: how it ended.
            seconds: how long it took.
        """
        self._calls[tool, outcome] = self._calls.get((tool, outcome), 0) + 1
        self._durations.setdefault(tool, _Histogram()).observe(seconds)

    def refused(self, reason: Refused) -> None:
        """Count a request that was refused."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Show a number that goes up and down, asked for when it is collected."""
        self._gauges[name] = (description, value)

    def text(self) -> str:
        """All numbers in the text format."""
        lines = _head("loom_tool_calls_total", "counter", "Calls of tools by how they ended.")
        for (tool, outcome), count in sorted(self._calls.items()):
            lines.append(f'loom_tool_calls_total{{tool="{tool}",outcome="{outcome}"}} {count}')
        lines += _head("loom_tool_seconds", "histogram", "How long calls of tools took.")
        for tool, histogram in sorted(self._durations.items()):
            lines += histogram.lines("loom_tool_seconds", f'tool="{tool}"')
        lines += _head("loom_http_refused_total", "counter", "Requests refused before they reached a tool.")
        for reason, count in sorted(self._refused.items()):
            lines.append(f'loom_http_refused_total{{reason="{reason}"}} {count}')
        for name, (description, value) in sorted(self._gauges.items()):
            lines += [*_head(name, "gauge", description), f"{name} {value():g}"]
        return "\n".join(lines) + "\n"


class _Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(_BOUNDS, value)] += 1
        self._sum += value

    def lines(self, name: str, label: str) -> list[str]:
        told: list[str] = []
        below = 0
        for bound, count in zip((*_BOUNDS, float("inf")), self._counts, strict=True):
            below += count
            limit = "+Inf" if bound == float("inf") else f"{bound:g}"
            told.append(f'{name}_bucket{{{label},le="{limit}"}} {below}')
        return [*told, f"{name}_sum{{{label}}} {self._sum!r}", f"{name}_count{{{label}}} {below}"]


def _head(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
