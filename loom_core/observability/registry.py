"""Metrics registry with the Prometheus text format; and weak registries of instances, for its gauges.

It is a custom implementation after measurements: importing prometheus_client takes some 100 ms at every start
of a stdio server, and OpenTelemetry's meters take ten times as long per count. It also limits cardinality,
which neither does: the number of values of a label, and of series of a metric.

Source: Prometheus, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar
from weakref import WeakSet

__all__ = ["CONTENT_TYPE", "OTHER", "Metric", "Reader", "Registry", "Sample", "WeakRegistry"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
"""Label value that replaces values beyond the limit."""

_MOST_VALUES = 100
_MOST_SERIES = 1000  # of a metric: few values per label may still be many combinations
_LONGEST_VALUE = 80

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""A sample: label values, and the number."""

Reader: TypeAlias = Callable[[], Iterable[Sample]]
"""Returns the current samples of a gauge; of several with the same labels the highest counts. It may be
called in any thread."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric family.

    Attributes:
        name: such as `loom_tool_calls_total`.
        kind: `counter`, `gauge` or `histogram`.
        description: help text, in a sentence.
        labels: label names.
        values: all values of labels with few values, for the reference.
        bounds: upper bounds of a histogram's buckets, ascending, without infinity.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] | None = None
    bounds: tuple[float, ...] = ()


class Registry:
    """Metrics registry: samples by metric and labels. Thread-safe.

    Args:
        metrics: all metrics.
        most_values: maximum values of a label; further ones are `other`.
        most_series: maximum series of a metric; further ones have `other` for all labels.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        *,
        most_values: int = _MOST_VALUES,
        most_series: int = _MOST_SERIES,
    ) -> None:
        self._most_series = most_series
        self._most_values = most_values
        self._lock = threading.Lock()
        self._numbers: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._buckets: dict[Metric, dict[tuple[str, ...], _Buckets]] = {}
        self._seen: dict[tuple[Metric, int], set[str]] = {}
        self._readers: dict[Metric, Reader] = {}
        for metric in sorted(metrics, key=lambda each: each.name):
            self._numbers[metric] = {}
            self._buckets[metric] = {}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics, by name."""
        return tuple(self._numbers)

    def add(self, metric: Metric, labels: tuple[str, ...] = (), by: float = 1.0) -> None:
        """Add to a counter or a gauge.

        Args:
            metric: the metric.
            labels: a value for each of its labels; one more may follow, for `agent_id`.
            by: the amount.
        """
        with self._lock:
            numbers = self._numbers[metric]
            if labels not in numbers:
                labels = self._limit_labels(metric, labels, numbers)
            numbers[labels] = numbers.get(labels, 0.0) + by

    def observe(self, metric: Metric, value: float, labels: tuple[str, ...] = ()) -> None:
        """Observe a value of a histogram.

        Args:
            metric: the metric.
            value: the value, in the unit of the metric's name.
            labels: as for `add`.
        """
        with self._lock:
            series = self._buckets[metric]
            if labels not in series:
                labels = self._limit_labels(metric, labels, series)
            buckets = series.get(labels)
            if buckets is None:
                buckets = series[labels] = _Buckets(metric.bounds)
            buckets.observe(value)

    def watch(self, metric: Metric, read: Reader) -> None:
        """Read a gauge by a callback at collection; it replaces the earlier one."""
        self._readers[metric] = read

    def samples(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """Return the samples of a metric by labels; of a histogram the counts."""
        if (read := self._readers.get(metric)) is not None:
            told: dict[tuple[str, ...], float] = {}
            for given, value in read():
                labels = tuple(map(_writable, given))
                if labels not in told and len(told) >= self._most_values:
                    labels = (OTHER,) * len(metric.labels)
                told[labels] = max(value, told.get(labels, value))
            return told
        with self._lock:
            if metric.kind == "histogram":
                return {labels: float(each.count) for labels, each in self._buckets[metric].items()}
            return dict(self._numbers[metric])

    def sums(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """Return the sums of a histogram's values by labels."""
        with self._lock:
            return {labels: each.sum for labels, each in self._buckets[metric].items()}

    def text(self, common: Mapping[str, str] | None = None) -> str:
        """Return all metrics in the text format.

        Args:
            common: additional labels of all samples.
        """
        lines: list[str] = []
        more = [f'{name}="{_quote(value)}"' for name, value in (common or {}).items()]
        for metric in self._numbers:
            lines.append(f"# HELP {metric.name} {_escape(metric.description)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            if metric.kind == "histogram":
                with self._lock:
                    for labels, buckets in sorted(self._buckets[metric].items()):
                        lines += buckets.lines(metric.name, _pairs(metric, labels) + more)
                continue
            samples = self.samples(metric) or ({} if metric.labels else {(): 0.0})
            for labels, value in sorted(samples.items()):
                lines.append(f"{metric.name}{_format_labels(_pairs(metric, labels) + more)} {_number(value)}")
        return "\n".join(lines) + "\n"

    def _limit_labels(
        self, metric: Metric, labels: tuple[str, ...], there: Mapping[tuple[str, ...], object]
    ) -> tuple[str, ...]:
        """Return the labels of a new series; beyond a limit replace values by `other`."""
        wanted = len(metric.labels)
        if not wanted <= len(labels) <= wanted + 1:
            raise TypeError(f"{metric.name} has the labels {metric.labels}, not {labels}")
        known = tuple(self._limit_value(metric, place, value) for place, value in enumerate(labels))
        return known if known in there or len(there) < self._most_series else (OTHER,) * len(known)

    def _limit_value(self, metric: Metric, place: int, value: str) -> str:
        value = _writable(value[:_LONGEST_VALUE])
        seen = self._seen.setdefault((metric, place), set())
        if value not in seen:
            if len(seen) >= self._most_values:
                return OTHER
            seen.add(value)
        return value


class _Buckets:
    """One series of a histogram."""

    __slots__ = ("_bounds", "_counts", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.count += 1
        self.sum += value

    def lines(self, name: str, pairs: list[str]) -> list[str]:
        told: list[str] = []
        below = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            below += count
            limit = "+Inf" if bound is None else f"{bound:g}"
            labels = _format_labels([*pairs, f'le="{limit}"'])
            told.append(f"{name}_bucket{labels} {below}")
        labels = _format_labels(pairs)
        return [*told, f"{name}_sum{labels} {_number(self.sum)}", f"{name}_count{labels} {self.count}"]


def _pairs(metric: Metric, labels: tuple[str, ...]) -> list[str]:
    """Return label pairs as text; empty labels are left out."""
    names = (*metric.labels, "agent_id")
    return [f'{name}="{_quote(value)}"' for name, value in zip(names, labels, strict=False) if value]


def _writable(value: str) -> str:
    """Return an encodable value: a lone surrogate becomes `?`."""
    return value.encode("utf-8", "replace").decode()


def _format_labels(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote(value: str) -> str:
    return _escape(value).replace('"', '\\"')


def _number(value: float) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


_T = TypeVar("_T")


class WeakRegistry(Generic[_T]):
    """Weak registry of instances: it keeps no object alive. Thread-safe."""

    def __init__(self) -> None:
        self._objects: WeakSet[_T] = WeakSet()
        self._lock = threading.Lock()

    def add(self, one: _T) -> None:
        """Add an instance."""
        with self._lock:
            self._objects.add(one)

    def all(self) -> list[_T]:
        """Return all live instances."""
        with self._lock:
            return list(self._objects)
