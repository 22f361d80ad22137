"""The dashboard and the alerts ask only for what is counted."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from loom_core.observability.families import FAMILIES
from loom_core.observability.registry import Metric

_ROOT = Path(__file__).parents[3]
_TOOL = _ROOT / "tools" / "grafana_dashboard.py"
_PROMETHEUS = _ROOT / "deploy" / "prometheus"
_OF_PROMETHEUS = {"job", "instance", "le", "agent_id"}
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
_TOLD = {f"{each.name}{suffix}": each for each in FAMILIES for suffix in _SUFFIXES[each.kind]}


def dashboard() -> dict[str, Any]:
    return json.loads((_ROOT / "deploy" / "grafana" / "loom.json").read_text(encoding="utf-8"))


def drawings() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((_PROMETHEUS / "loom-alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in read["groups"] for rule in group["rules"]]


def selected(expression: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The metrics that a query reads, with what it says of their labels."""
    # As Grafana writes it out before it asks.
    written = expression.replace("$__rate_interval", "1m").replace("$__range", "6h")
    pending = [promql_parser.parse(written.replace("$job", ".*").replace("$instance", ".*"))]
    while pending:
        node = pending.pop()
        if isinstance(node, promql_parser.VectorSelector):
            yield node.name, [(each.name, each.value) for each in node.matchers.matchers]
        elif isinstance(node, promql_parser.MatrixSelector):
            pending.append(node.vector_selector)
        elif isinstance(node, promql_parser.BinaryExpr):
            pending += [node.lhs, node.rhs]
        elif isinstance(node, promql_parser.Call):
            pending += node.args
        elif isinstance(node, promql_parser.AggregateExpr | promql_parser.ParenExpr):
            pending.append(node.expr)
        else:
            assert isinstance(node, promql_parser.NumberLiteral), type(node)


def grouped(expression: str) -> set[str]:
    """The labels that a query keeps."""
    kept = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label.strip() for labels in kept for label in labels.split(",")}


def check(expression: str) -> list[Metric]:
    """See that a query reads what there is; gives the metrics."""
    read: list[Metric] = []
    for name, matchers in selected(expression):
        if name == "up":
            continue
        metric = _TOLD.get(name)
        assert metric is not None, f"nothing is counted as {name}"
        read.append(metric)
        for label, value in matchers:
            assert label in {*metric.labels, *_OF_PROMETHEUS}, f"{name} has no label {label}"
            known = (metric.values or {}).get(label)
            assert known is None or set(value.split("|")) <= set(known), f"{label} is never {value}"
        assert grouped(expression) <= {*metric.labels, *_OF_PROMETHEUS}, expression
    return read


def test_the_dashboard_is_what_its_table_says():
    tool = runpy.run_path(str(_TOOL), run_name="tool")
    assert tool["DASHBOARD"].read_text(encoding="utf-8") == tool["text"](), (
        "run: python -m tools.grafana_dashboard"
    )


@pytest.mark.parametrize("panel", drawings(), ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_is_counted(panel):
    assert panel["targets"]
    for target in panel["targets"]:
        read = check(target["expr"])
        assert read
        assert target["expr"].count('job=~"$job", instance=~"$instance"') == len(read), (
            "of the chosen servers"
        )
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= grouped(target["expr"]), "the legend names what the query keeps"


def test_every_number_is_in_a_panel():
    read = {metric for panel in drawings() for target in panel["targets"] for metric in check(target["expr"])}
    assert read == set(FAMILIES)


def test_the_dashboard_is_one_that_grafana_takes():
    board = dashboard()
    assert board["schemaVersion"] == 42
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", board["uid"])
    assert "id" not in board, "it would be that of another one"
    source, job, instance = board["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for variable in (job, instance):
        name, label = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", variable["query"]["query"]).groups()
        assert name in _TOLD
        assert label == variable["name"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in drawings():
        assert panel["type"] in {"timeseries", "stat"}
        asked = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in asked)
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_no_panel_lies_on_another_or_beyond_the_edge():
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["y"] >= 0
        assert 0 < place["w"] <= 24 - place["x"]
        assert place["h"] > 0
    for one, other in combinations(places, 2):
        side_by_side = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert side_by_side or below, (one, other)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_is_counted_and_says_what_to_do(rule):
    check(rule["expr"])
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    told = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    assert told <= (grouped(rule["expr"]) or {"job", "instance"}), (
        "an annotation can say what the query keeps"
    )


def test_prometheus_is_told_where_servers_and_alerts_are():
    read = yaml.safe_load((_PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    assert all((_PROMETHEUS / name).is_file() for name in read["rule_files"])
    jobs = {each["job_name"]: each for each in read["scrape_configs"]}
    assert jobs["loom"]["metrics_path"] == "/metrics"
    assert {rule["alert"] for rule in rules()} >= {"LoomServerDown", "LoomLeftAlone", "LoomMcpServerDown"}
