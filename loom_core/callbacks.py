"""Observers of the runs of an agent: `Agent(callbacks=[…])`."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.observability import families
from loom_core.observability.metrics import LoomMetrics, new_registry
from loom_core.runs.run_meter import RunMeter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.observability.registry import Metric, Registry
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.run import Run

__all__ = ["Callback", "LoggingCallback", "MetricsCallback", "MetricsSummary", "ToolSummary"]


class Callback:
    """Callback for every event of the runs that an agent executes in this process. The base does nothing.

    To change what happens, derive from `Hooks` instead; to observe from another process, or to miss nothing
    after a crash, follow the journal.
    """

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Handle an event. It is not in the journal's file yet: after a crash it may be repeated.

        This is called in the event loop, and must not block; errors are logged, and the run continues.

        Args:
            event: the event.
            run: the run after the event.
        """

    def on_detach(self, run: Run) -> None:
        """Handle the release of a run: it has ended, waits for a person, or was detached.

        The rules of `on_event` apply.

        Args:
            run: the run.
        """


_PIECES: frozenset[EventType] = frozenset({"text_delta", "reasoning_delta", "tool_progress"})
_PROBLEMS: frozenset[EventType] = frozenset(
    {"error", "aborted", "model_retry", "tool_retry", "loop_detected"}
)

# Fields of an event that may be logged: no text of users, models or tools.
_LOGGED_FIELDS: dict[EventType, tuple[str, ...]] = {
    "request_start": ("profile", "model"),
    "knowledge": ("outcome",),
    "model_start": ("iteration", "model"),
    "model_retry": ("attempt", "wait"),
    "tool_start": ("call_id", "tool"),
    "tool_retry": ("call_id", "tool", "status", "attempt", "wait"),
    "approval_decided": ("call_id", "action", "by"),
    "tool_result": ("call_id", "tool", "status", "seconds"),
    "loop_detected": ("tool", "times", "action"),
    "answer_reviewed": ("hook", "action"),
    "compression_warning": ("used", "window"),
    "compression_applied": ("before", "after"),
    "usage": ("input_tokens", "output_tokens", "cost"),
    "paused": ("by",),
    "resumed": ("by", "from_status"),
    "error": ("failure",),
    "aborted": ("by",),
}


class LoggingCallback(Callback):
    """Logs a line for each event: run, type and figures; no text of people, models or tools.

    The fields are also in `extra`, for handlers that write JSON: `run_id`, `event`, `seq`, and the fields of
    the event under `facts`.

    Args:
        logger: the logger; by default `loom_core.callbacks`.
        level: level of normal events; problems are warnings.
        pieces: whether to log text deltas and progress too.
    """

    def __init__(
        self, logger: logging.Logger | None = None, *, level: int = logging.INFO, pieces: bool = False
    ) -> None:
        self._logger = logger or logging.getLogger("loom_core.callbacks")
        self._level = level
        self._pieces = pieces

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Log the event."""
        if event.type in _PIECES and not self._pieces:
            return
        level = max(self._level, logging.WARNING) if event.type in _PROBLEMS else self._level
        if not self._logger.isEnabledFor(level):
            return
        facts = {
            name: event.payload[name] for name in _LOGGED_FIELDS.get(event.type, ()) if name in event.payload
        }
        told = "".join(f" {name}={value}" for name, value in facts.items() if value not in (None, ""))
        extra = {"run_id": event.run_id, "event": event.type, "seq": event.seq, "facts": facts}
        self._logger.log(level, "%s #%d %s%s", event.run_id, event.seq, event.type, told, extra=extra)


class MetricsCallback(Callback):
    """Counts the runs of an agent in its own metrics; those of the whole process are `LoomMetrics()`.

        watched = MetricsCallback()
        agent = Agent("deepseek", tools=[search], callbacks=[watched])
        …
        print(watched.summary().tools["search"].success_rate)

    Several agents may share one.

    Args:
        agent_id: label in `metrics.text()`; empty for none.

    Attributes:
        metrics: the metrics.
    """

    def __init__(self, *, agent_id: str = "") -> None:
        self.metrics = LoomMetrics(agent_id=agent_id, registry=new_registry())
        self._runs: dict[str, RunMeter] = {}
        self._most_active = 0

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Count the event."""
        meter = self._runs.get(run.id)
        if meter is None:
            meter = self._runs[run.id] = RunMeter(self.metrics, calls=True)
        meter.on_event(event, run)
        self._most_active = max(self._most_active, sum(each.active for each in self._runs.values()))

    def on_detach(self, run: Run) -> None:
        """Count the run as inactive."""
        if (meter := self._runs.pop(run.id, None)) is not None:
            meter.on_detach(run)

    def summary(self) -> MetricsSummary:
        """Return a summary of the metrics so far."""
        return MetricsSummary.of(self.metrics.registry, most_active=self._most_active)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSummary:
    """Summary of the calls of one tool.

    Attributes:
        calls: number of calls.
        statuses: number of calls by status, see `CallStatus`.
        mean_seconds: mean duration of the calls that ran; 0 if none did.
    """

    calls: int
    statuses: Mapping[str, int]
    mean_seconds: float

    @property
    def success_rate(self) -> float:
        """The share of successful calls, 0 to 1."""
        return self.statuses.get("success", 0) / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSummary:
    """Summary of an agent's metrics. Means are 0 without data.

    Attributes:
        iterations: turns of the model.
        iteration_seconds: total duration of the turns, with their calls.
        mean_iteration_seconds: mean duration of a turn.
        llm_calls: requests to the model, including failed ones.
        mean_llm_seconds: mean duration of a request.
        input_tokens: input tokens of all answers.
        output_tokens: output tokens of all answers.
        cost: US dollars, as far as prices are known.
        tools: summaries by tool name.
        compactions: number of compactions.
        mean_compaction_ratio: mean ratio of tokens after and before, 0 to 1.
        most_active: maximum number of concurrent runs.
        runs: number of ended runs by status.
        failures: number of failed runs by reason.
    """

    iterations: int
    iteration_seconds: float
    mean_iteration_seconds: float
    llm_calls: int
    mean_llm_seconds: float
    input_tokens: int
    output_tokens: int
    cost: float
    tools: Mapping[str, ToolSummary]
    compactions: int
    mean_compaction_ratio: float
    most_active: int
    runs: Mapping[str, int]
    failures: Mapping[str, int]

    @property
    def tool_calls(self) -> int:
        """Number of calls of all tools."""
        return sum(tool.calls for tool in self.tools.values())

    @property
    def error_rate(self) -> float:
        """The share of the ended runs that failed, 0 to 1."""
        ended = sum(self.runs.values())
        return self.runs.get("failed", 0) / ended if ended else 0.0

    @classmethod
    def of(cls, registry: Registry, *, most_active: int) -> MetricsSummary:
        """Summarize the metrics of a registry.

        Args:
            registry: the metrics of one agent.
            most_active: see above.
        """
        tokens = _by(registry, families.LLM_TOKENS, "kind")
        sides = _by(registry, families.COMPACTION_TOKENS, "side")
        timed = sum(registry.samples(families.ITERATION_SECONDS).values())
        iteration_seconds = sum(registry.sums(families.ITERATION_SECONDS).values())
        llm_calls = _total(registry, families.LLM_CALLS)
        return cls(
            iterations=_total(registry, families.ITERATIONS),
            iteration_seconds=iteration_seconds,
            mean_iteration_seconds=iteration_seconds / timed if timed else 0.0,
            llm_calls=llm_calls,
            mean_llm_seconds=sum(registry.sums(families.LLM_SECONDS).values()) / llm_calls
            if llm_calls
            else 0.0,
            input_tokens=tokens["input"],
            output_tokens=tokens["output"],
            cost=sum(registry.samples(families.LLM_COST).values(), 0.0),
            tools=_tools(registry),
            compactions=_total(registry, families.COMPACTIONS),
            mean_compaction_ratio=sides["after"] / sides["before"] if sides["before"] else 0.0,
            most_active=most_active,
            runs=_by(registry, families.RUNS, "status"),
            failures=_by(registry, families.RUN_FAILURES, "failure"),
        )


def _total(registry: Registry, metric: Metric) -> int:
    return int(sum(registry.samples(metric).values()))


def _by(registry: Registry, metric: Metric, label: str) -> Counter[str]:
    """Return the values of a metric by one of its labels."""
    place = metric.labels.index(label)
    told = Counter[str]()
    for labels, number in registry.samples(metric).items():
        told[labels[place]] += int(number)
    return told


def _tools(registry: Registry) -> dict[str, ToolSummary]:
    statuses: dict[str, Counter[str]] = {}
    for (tool, status, *_), number in registry.samples(families.TOOL_CALLS).items():
        statuses.setdefault(tool, Counter())[status] += int(number)
    timed = {tool: number for (tool, *_), number in registry.samples(families.TOOL_SECONDS).items()}
    seconds = {tool: total for (tool, *_), total in registry.sums(families.TOOL_SECONDS).items()}
    return {
        tool: ToolSummary(
            calls=sum(counted.values()),
            statuses=counted,
            mean_seconds=seconds[tool] / timed[tool] if tool in timed else 0.0,
        )
        for tool, counted in sorted(statuses.items())
    }
