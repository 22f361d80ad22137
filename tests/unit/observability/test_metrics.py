"""Metrics: names that dashboards rely on, and where they are counted."""

from __future__ import annotations

import gc
import runpy
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from loom_core.errors import NetFailure
from loom_core.flow.config.models_endpoint import Method
from loom_core.flow.executor.state import StepStatus
from loom_core.flow.responses.reply import RouteAction, RouteHow
from loom_core.knowledge.retrieval.config import Strategy
from loom_core.knowledge.store.jobs import ItemState
from loom_core.observability import LoomMetrics, families
from loom_core.observability.families import ACTIVE_AGENTS, FAMILIES, ITERATIONS, TOOL_CALLS, TOOL_SECONDS
from loom_core.observability.metrics import new_registry, process_metrics
from loom_core.observability.registry import WeakRegistry
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.server.middleware.authorization import Outcome
from loom_core.tools.calls import CallStatus

_TOOL = Path(__file__).parents[3] / "tools" / "metrics_reference.py"


def test_the_names_of_the_specification_are_there_with_their_labels():
    labels = {each.name: each.labels for each in FAMILIES}
    assert labels["loom_iterations_total"] == ()
    assert labels["loom_tool_calls_total"] == ("tool_name", "status")
    assert labels["loom_llm_calls_total"] == ()
    assert labels["loom_iteration_duration_seconds"] == ()
    assert labels["loom_tool_execution_duration_seconds"] == ("tool_name",)
    assert labels["loom_active_agents"] == ()


def test_names_keep_the_conventions_of_prometheus():
    assert len({each.name for each in FAMILIES}) == len(FAMILIES)
    for each in FAMILIES:
        assert each.name.startswith("loom_")
        assert each.name.endswith("_total") == (each.kind == "counter"), each.name
        assert (each.kind == "histogram") == bool(each.bounds) == each.name.endswith("_duration_seconds")
        assert list(each.bounds) == sorted(each.bounds)
        assert each.description.endswith(".")
        assert set(each.values or ()) <= set(each.labels)


@pytest.mark.parametrize(
    ("metric", "label", "values"),
    [
        (families.TOOL_CALLS, "status", get_args(CallStatus)),
        (families.SERVED_CALLS, "status", get_args(Outcome)),
        (families.SEARCH_SECONDS, "strategy", get_args(Strategy)),
        (families.RUNS, "status", FINAL_STATUSES),
        (families.FLOW_ROUTES, "action", get_args(RouteAction)),
        (families.FLOW_ROUTES, "how", get_args(RouteHow)),
        (families.FLOW_STEPS, "status", set(get_args(StepStatus)) - {"running"}),
        (
            families.FLOW_KNOWLEDGE,
            "outcome",
            {"cached", "shared", "retrieved", "nothing", "failed", "late", "dropped"},
        ),
        (families.FLOW_REQUESTS, "method", get_args(Method)),
        (
            families.FLOW_REQUESTS,
            "status",
            {f"{first}xx" for first in range(1, 6)} | {*get_args(NetFailure), "cancelled"},
        ),
        (families.INGESTED_DOCUMENTS, "outcome", set(get_args(ItemState)) - {"pending", "leaving"}),
    ],
    ids=lambda value: getattr(value, "name", value if isinstance(value, str) else ""),
)
def test_the_values_of_labels_are_those_of_the_code(metric, label, values):
    assert metric.values is not None
    assert set(metric.values[label]) == set(values)


def test_the_reference_is_what_the_code_says():
    tool = runpy.run_path(str(_TOOL))
    written = tool["PAGE"].read_text(encoding="utf-8")
    assert written == tool["page"](), "run: python -m tools.metrics_reference"
    assert all(f"`{each.name}`" in written for each in FAMILIES)


def test_the_numbers_of_an_agent_have_its_name_and_are_in_the_one_registry(counted):
    LoomMetrics().add(TOOL_CALLS, "look", "success")
    LoomMetrics(agent_id="研究员").add(TOOL_CALLS, "look", "success")
    LoomMetrics(agent_id="研究员").observe(TOOL_SECONDS, 0.2, "look")
    assert counted.samples(TOOL_CALLS) == {("look", "success"): 1, ("look", "success", "研究员"): 1}
    text = process_metrics.text()
    assert 'loom_tool_calls_total{tool_name="look",status="success",agent_id="研究员"} 1\n' in text
    assert 'loom_tool_execution_duration_seconds_count{tool_name="look",agent_id="研究员"} 1\n' in text


def test_metrics_of_ones_own_count_from_the_start_and_what_has_none_does_not(counted, monkeypatch):
    monkeypatch.setattr(process_metrics, "enabled", False)
    process_metrics.add(TOOL_CALLS, "look", "success")
    LoomMetrics(agent_id="agent-1").add(TOOL_CALLS, "look", "success")
    assert counted.samples(TOOL_CALLS) == {("look", "success", "agent-1"): 1}
    assert "agent-1" in LoomMetrics().text()


def test_nothing_is_counted_before_it_is_wanted():
    registry = new_registry()
    metrics = LoomMetrics(registry=registry, enabled=False)
    metrics.add(ITERATIONS)
    assert registry.samples(ITERATIONS) == {}
    metrics.enable()
    assert metrics.enabled
    metrics.add(ITERATIONS)
    metrics.add(ACTIVE_AGENTS)
    metrics.enable(False)
    metrics.add(ITERATIONS)
    metrics.observe(TOOL_SECONDS, 1.0, "look")
    metrics.add(ACTIVE_AGENTS, by=-1)  # what went up goes down again
    assert registry.samples(ITERATIONS) == {(): 1}
    assert registry.samples(TOOL_SECONDS) == {}
    assert registry.samples(ACTIVE_AGENTS) == {(): 0}


def test_a_process_counts_nothing_by_itself_and_loads_no_library_for_it():
    program = (
        "import sys\n"
        "from loom_core.observability.metrics import process_metrics\n"
        "assert not process_metrics.enabled\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'opentelemetry', 'prometheus_client'}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_objects_are_known_as_long_as_someone_holds_them():
    class Thing:
        pass

    living = WeakRegistry[Thing]()
    first, second = Thing(), Thing()
    living.add(first)
    living.add(second)
    assert set(living.all()) == {first, second}
    del second
    gc.collect()
    assert living.all() == [first]
