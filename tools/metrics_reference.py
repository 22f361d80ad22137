"""Writes docs/reference/metrics.md: every metric of Loom.

    python -m tools.reference metrics

The page is made from loom_core/observability/families.py; a test compares it with the file.
"""

from __future__ import annotations

from pathlib import Path

from loom_core.observability.families import FAMILIES
from loom_core.observability.registry import Metric
from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"

_HEAD = """\
# Metrics

Made by `python -m tools.reference` from the code; do not edit. How to collect them:
[observability.md](../observability.md#metrics).

Every server exports every metric, even before its first observation. All values belong to one process and
start at 0 with it. A label has at most 100 values; further ones are merged into `other`. Metrics that a
program records for an agent (`LoomMetrics(agent_id=…)`) have the additional label `agent_id`, those in files
(`--metrics-file`) the label `loom_server`, and `pid` if it is part of the file's name.

A histogram `NAME` is exported as `NAME_bucket` (with the label `le`), `NAME_sum` and `NAME_count`. Durations
are in seconds.
"""

_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Agents and runs", ("loom_active", "loom_iteration", "loom_run", "loom_approvals", "loom_compaction")),
    ("Tools", ("loom_tool_",)),
    ("Language models", ("loom_llm_",)),
    ("Others that are asked", ("loom_breaker_", "loom_mcp_server_")),
    ("Knowledge", ("loom_knowledge_", "loom_ingest_")),
    ("Flows", ("loom_flow_",)),
    ("The server itself", ("loom_build_", "loom_mcp_call", "loom_http_")),
)


_TITLES = ("Name", "Kind", "Labels", "What")


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, prefixes in _SECTIONS:
        rows = [_row(each) for each in FAMILIES if each.name.startswith(prefixes)]
        parts += [f"## {title}", table([_TITLES, *rows])]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _row(metric: Metric) -> tuple[str, ...]:
    labels = "; ".join(_label(metric, each) for each in metric.labels)
    return (f"`{metric.name}`", metric.kind, labels, _what(metric))


def _label(metric: Metric, label: str) -> str:
    values = (metric.values or {}).get(label, ())
    told = ", ".join(f"`{value}`" for value in values)
    return f"`{label}`: {told}" if told else f"`{label}`"


def _what(metric: Metric) -> str:
    if not metric.bounds:
        return metric.description
    return f"{metric.description} Buckets up to {', '.join(f'{bound:g}' for bound in metric.bounds)}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
