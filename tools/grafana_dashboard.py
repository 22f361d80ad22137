"""Writes deploy/grafana/loom.json: a dashboard of all metrics of Loom's servers.

    python -m tools.grafana_dashboard

The panels are the table below; a test reads every query and compares its names and labels with those
that there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "loom.json"

_SCHEMA_VERSION = 42  # of Grafana 12.2 and 13; older ones read what they know of it
_WIDTH, _HEIGHT = 24, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HERE = 'job=~"$job", instance=~"$instance"'
_COLUMNS = 3


@dataclass(frozen=True)
class Query:
    """A panel's query: `$here` stands for the chosen servers, `{{label}}` in the legend for a value."""

    expression: str
    legend: str

    @property
    def written(self) -> str:
        """The PromQL of it."""
        return self.expression.replace("$here", _HERE)


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    description: str = ""
    kind: Literal["timeseries", "stat", "state"] = "timeseries"
    stacked: bool = False
    highest: float | None = None


def rate(metric: str, *by: str, where: str = "", legend: str = "", per: str = "") -> Query:
    """Build a query for the rate of a counter, by labels."""
    chosen = f"{where}, $here" if where else "$here"
    inner = f"rate({metric}{{{chosen}}}[$__rate_interval])"
    names = f" by ({', '.join(by)})" if by else ""
    told = legend or " ".join(f"{{{{{label}}}}}" for label in by) or metric
    return Query(f"sum{names} ({inner}){per}", told)


def quantile(share: float, metric: str, *by: str) -> Query:
    """Build a query for a quantile of durations."""
    inner = f"sum by ({', '.join(('le', *by))}) (rate({metric}_bucket{{$here}}[$__rate_interval]))"
    told = " ".join([f"p{share * 100:g}", *(f"{{{{{label}}}}}" for label in by)])
    return Query(f"histogram_quantile({share:g}, {inner})", told)


def share(part: Query, whole: Query, legend: str) -> Query:
    """Build a query for one rate as a share of another; 0 if there is no data for the part."""
    of_all = part.expression if " by (" in part.expression else f"({part.expression} or vector(0))"
    return Query(f"{of_all} / {whole.expression}", legend)


def gauge(metric: str, *by: str, how: str = "sum", legend: str = "") -> Query:
    """Build a query for a gauge."""
    names = f" by ({', '.join(by)})" if by else ""
    told = legend or " ".join(f"{{{{{label}}}}}" for label in by) or metric
    return Query(f"{how}{names} ({metric}{{$here}})", told)


_TOOLS = "loom_tool_calls_total"
_LLM_FAILED, _LLM = "loom_llm_failures_total", "loom_llm_calls_total"
_RUNS = "loom_runs_total"

ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        Panel("Active agents", (gauge("loom_active_agents", legend="active"),), kind="stat"),
        Panel(
            "Runs that fail",
            (share(rate(_RUNS, where='status="failed"'), rate(_RUNS), "failed"),),
            unit="percentunit",
            description="Of all runs that came to their end, the share that failed.",
            kind="stat",
            highest=1,
        ),
        Panel(
            "Tool calls that succeed",
            (share(rate(_TOOLS, where='status="success"'), rate(_TOOLS), "success"),),
            unit="percentunit",
            kind="stat",
            highest=1,
        ),
        Panel(
            "Cost",
            (
                Query(
                    "sum (increase(loom_llm_cost_dollars_total{$here}[$__range]))",
                    "in the time that is shown",
                ),
            ),
            unit="currencyUSD",
            kind="stat",
        ),
        Panel(
            "MCP servers that are not connected",
            (Query("count (loom_mcp_server_up{$here} == 0) or vector(0)", "not connected"),),
            kind="stat",
        ),
        Panel(
            "Circuit breakers",
            (Query("count (loom_breaker_state{$here} == 2) or vector(0)", "models and hosts"),),
            kind="stat",
        ),
    ),
    "Agents": (
        Panel(
            "Active agents and turns",
            (
                gauge("loom_active_agents", legend="active"),
                rate("loom_iterations_total", legend="turns a second"),
            ),
        ),
        Panel(
            "How long a turn takes",
            (
                quantile(0.5, "loom_iteration_duration_seconds"),
                quantile(0.95, "loom_iteration_duration_seconds"),
            ),
            unit="s",
        ),
        Panel("Runs by how they ended", (rate(_RUNS, "kind", "status"),), unit="ops", stacked=True),
        Panel(
            "Why runs fail", (rate("loom_run_failures_total", "kind", "failure"),), unit="ops", stacked=True
        ),
        Panel("Decisions of people", (rate("loom_approvals_total", "action"),), unit="ops"),
        Panel(
            "Compactions",
            (
                rate("loom_compactions_total", legend="a second"),
                share(
                    rate("loom_compaction_tokens_total", where='side="after"'),
                    rate("loom_compaction_tokens_total", where='side="before"'),
                    "what is left, of 1",
                ),
            ),
        ),
    ),
    "Tools": (
        Panel("Calls by tool", (rate(_TOOLS, "tool_name"),), unit="ops", stacked=True),
        Panel("Calls by how they ended", (rate(_TOOLS, "status"),), unit="ops", stacked=True),
        Panel(
            "How long calls take",
            (quantile(0.95, "loom_tool_execution_duration_seconds", "tool_name"),),
            unit="s",
        ),
        Panel(
            "Calls under way",
            (
                gauge("loom_tool_calls_running", legend="running"),
                gauge("loom_tool_calls_waiting", legend="waiting"),
                gauge("loom_tool_calls_running_peak", how="max", legend="peak"),
            ),
        ),
    ),
    "Language models": (
        Panel(
            "Requests",
            (rate(_LLM, legend="all"), rate(_LLM_FAILED, "provider", "model", "failure")),
            unit="ops",
        ),
        Panel(
            "How long requests take",
            (
                quantile(0.5, "loom_llm_call_duration_seconds", "provider", "model"),
                quantile(0.95, "loom_llm_call_duration_seconds", "provider", "model"),
            ),
            unit="s",
        ),
        Panel(
            "Tokens",
            (rate("loom_llm_tokens_total", "provider", "model", "kind", where='kind=~"input|output"'),),
            stacked=True,
        ),
        Panel(
            "Read from the vendor's cache",
            (
                share(
                    rate("loom_llm_tokens_total", "model", where='kind="cache_read"'),
                    rate("loom_llm_tokens_total", "model", where='kind="input"'),
                    "{{model}}",
                ),
            ),
            unit="percentunit",
            highest=1,
        ),
        Panel(
            "Cost an hour",
            (rate("loom_llm_cost_dollars_total", "provider", "model", per=" * 3600"),),
            unit="currencyUSD",
            stacked=True,
        ),
        Panel(
            "Circuit breakers",
            (gauge("loom_breaker_state", "target", how="max"),),
            description="0: closed; 1: half-open; 2: open.",
            kind="state",
        ),
    ),
    "Knowledge": (
        Panel(
            "How long questions take",
            (
                quantile(0.5, "loom_knowledge_search_duration_seconds", "strategy"),
                quantile(0.95, "loom_knowledge_search_duration_seconds", "strategy"),
            ),
            unit="s",
        ),
        Panel(
            "How long channels take",
            (quantile(0.95, "loom_knowledge_channel_duration_seconds", "channel"),),
            unit="s",
        ),
        Panel(
            "Taken in",
            (
                rate("loom_ingest_documents_total", "outcome", legend="documents {{outcome}}"),
                rate("loom_ingest_chunks_total", legend="chunks"),
            ),
            unit="ops",
        ),
    ),
    "Flows": (
        Panel("Messages by what decided", (rate("loom_flow_routes_total", "action", "how"),), unit="ops"),
        Panel(
            "Steps by how they ended", (rate("loom_flow_steps_total", "status"),), unit="ops", stacked=True
        ),
        Panel("How long steps take", (quantile(0.95, "loom_flow_step_duration_seconds"),), unit="s"),
        Panel(
            "How long messages take",
            (quantile(0.95, "loom_flow_message_duration_seconds", "part"),),
            unit="s",
        ),
        Panel(
            "HTTP requests by what came of them",
            (rate("loom_flow_requests_total", "method", "status"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "How long requests take",
            (quantile(0.95, "loom_flow_request_duration_seconds", "method"),),
            unit="s",
        ),
        Panel(
            "Questions to knowledge",
            (rate("loom_flow_knowledge_total", "outcome"),),
            unit="ops",
            stacked=True,
        ),
        Panel("How long these take", (quantile(0.95, "loom_flow_knowledge_duration_seconds"),), unit="s"),
    ),
    "Servers": (
        Panel("Calls of clients", (rate("loom_mcp_calls_total", "tool_name", "status"),), unit="ops"),
        Panel(
            "How long they take",
            (quantile(0.95, "loom_mcp_call_duration_seconds", "tool_name"),),
            unit="s",
        ),
        Panel(
            "Refused requests, and those for other nodes",
            (
                rate("loom_http_refused_total", "reason"),
                rate("loom_http_relayed_total", legend="passed on to another node"),
            ),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Open over HTTP",
            (
                gauge("loom_http_sessions", legend="sessions"),
                gauge("loom_http_calls", legend="calls"),
                gauge("loom_http_streams", legend="streams"),
            ),
        ),
        Panel(
            "Other MCP servers",
            (gauge("loom_mcp_server_up", "server", how="min"),),
            description="1: connected; 0: not.",
            kind="state",
        ),
        Panel(
            "Versions",
            (gauge("loom_build_info", "server", "version", how="count"),),
            description="How many processes of each server run.",
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "loom-servers",
        "title": "Loom",
        "description": "Agents, tools, language models, knowledge, flows and servers of Loom.",
        "tags": ["loom", "mcp"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source_variable(), _variable("job"), _variable("instance")]},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_place()),
    }


def _place() -> Iterator[dict[str, Any]]:
    """Yield rows and panels with their positions; overviews are six in a line and half as high."""
    number = y = 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
        }
        y += 1
        small = all(panel.kind == "stat" for panel in panels)
        in_line, height = (2 * _COLUMNS, _HEIGHT // 2) if small else (_COLUMNS, _HEIGHT)
        width = _WIDTH // in_line
        for place, panel in enumerate(panels):
            number += 1
            x, line = place % in_line * width, place // in_line
            position = {"x": x, "y": y + line * height, "w": width, "h": height}
            yield {"id": number, "gridPos": position, **_draw(panel)}
        y += -(-len(panels) // in_line) * height


def _draw(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
    if panel.stacked:
        custom |= {"fillOpacity": 30, "stacking": {"mode": "normal", "group": "A"}}
    if panel.kind == "state":
        custom |= {"lineInterpolation": "stepAfter"}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.highest is not None:
        defaults["max"] = panel.highest
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.kind == "stat":
        options = {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "value",
        }
    else:
        defaults["custom"] = custom
    return {
        "type": "stat" if panel.kind == "stat" else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.written,
                "legendFormat": query.legend,
                "range": True,
            }
            for place, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def _variable(label: str) -> dict[str, Any]:
    among = "" if label == "job" else '{job=~"$job"}'
    query = f"label_values(loom_build_info{among}, {label})"
    return {
        "name": label,
        "label": label.title(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def text() -> str:
    """Return the dashboard as JSON text."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(parents=True, exist_ok=True)
    DASHBOARD.write_text(text(), encoding="utf-8")
