"""Numbers in the text format of Prometheus, as its own parser reads them."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from loom_core.observability.registry import OTHER, Metric, Registry

CALLS = Metric("loom_calls_total", "counter", "Calls\nof \\ tools.", ("tool", "status"))
TURNS = Metric("loom_turns_total", "counter", "Turns.")
ACTIVE = Metric("loom_active", "gauge", "Active.")
STATE = Metric("loom_state", "gauge", "States.", ("target",))
TOOK = Metric("loom_took_seconds", "histogram", "How long.", ("tool",), bounds=(0.1, 1.0))
ALL = (CALLS, TURNS, ACTIVE, STATE, TOOK)


def read(registry: Registry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Everything that the text says, by name and labels."""
    families = list(text_string_to_metric_families(registry.text()))
    assert [family.name for family in families] == sorted(each.name.removesuffix("_total") for each in ALL)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_counters_are_told_by_their_labels():
    registry = Registry(ALL)
    registry.add(CALLS, ("搜索", "success"))
    registry.add(CALLS, ("搜索", "success"), 2.5)
    registry.add(CALLS, ("look", "error"))
    told = read(registry)
    assert told[of("loom_calls_total", tool="搜索", status="success")] == 3.5
    assert told[of("loom_calls_total", tool="look", status="error")] == 1


def test_a_number_without_labels_is_told_from_the_beginning():
    told = read(Registry(ALL))
    assert told == {of("loom_turns_total"): 0, of("loom_active"): 0}


def test_a_histogram_counts_what_is_not_larger_than_each_bound():
    registry = Registry(ALL)
    for seconds in (0.05, 0.1, 0.5, 7.0):
        registry.observe(TOOK, seconds, ("look",))
    told = read(registry)
    buckets = {le: told[of("loom_took_seconds_bucket", tool="look", le=le)] for le in ("0.1", "1", "+Inf")}
    assert buckets == {"0.1": 2, "1": 3, "+Inf": 4}
    assert told[of("loom_took_seconds_count", tool="look")] == 4
    assert told[of("loom_took_seconds_sum", tool="look")] == pytest.approx(7.65)
    assert registry.samples(TOOK) == {("look",): 4}
    assert registry.sums(TOOK) == {("look",): pytest.approx(7.65)}


@given(tool=st.text(max_size=80), status=st.text(max_size=80))
def test_whatever_is_a_label_can_be_read_again(tool, status):
    registry = Registry(ALL)
    registry.add(CALLS, (tool, status))
    lines = [line for line in registry.text().split("\n") if line.startswith("loom_calls_total")]
    assert len(lines) == 1, "a label cannot begin a line of its own"
    if "\r" in tool + status or any(mark in tool + status for mark in "\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        return  # the parser of the test takes these for ends of lines
    wanted = {name: value for name, value in (("tool", tool), ("status", status)) if value}
    (family,) = text_string_to_metric_families(f"# TYPE loom_calls_total counter\n{lines[0]}\n")
    assert family.samples[0].labels == wanted


def test_a_label_has_only_so_many_values():
    registry = Registry(ALL, most_values=3)
    for number in range(10):
        registry.add(CALLS, (f"tool {number}", "success"))
    registry.add(CALLS, ("tool 1", "error"))
    counted = registry.samples(CALLS)
    assert counted["tool 1", "success"] == counted["tool 1", "error"] == 1
    assert counted[OTHER, "success"] == 7
    assert len(counted) == 5
    assert sum(counted.values()) == 11
    registry.watch(STATE, lambda: [((f"host {number}",), number) for number in range(10)])
    assert registry.samples(STATE) == {("host 0",): 0, ("host 1",): 1, ("host 2",): 2, (OTHER,): 9}


def test_a_metric_has_only_so_many_numbers_whatever_its_labels_make_together():
    registry = Registry(ALL, most_series=10)
    for tool in range(5):
        for status in range(5):
            registry.add(CALLS, (f"tool {tool}", f"status {status}", "研究员"))
    registry.add(CALLS, ("tool 0", "status 0", "研究员"))
    counted = registry.samples(CALLS)
    assert len(counted) == 11
    assert counted[OTHER, OTHER, OTHER] == 15
    assert counted["tool 0", "status 0", "研究员"] == 2
    for number in range(20):
        registry.observe(TOOK, 0.5, (f"tool {number}",))
    assert registry.samples(TOOK)[(OTHER,)] == 10


@pytest.mark.hostile("answers of models")
def test_half_a_character_in_a_label_can_be_written_down():
    registry = Registry(ALL)
    registry.add(CALLS, ("m\ud800", "success"))
    registry.watch(STATE, lambda: [(("host\udfff",), 1.0)])
    assert 'tool="m?"' in registry.text().encode().decode()


def test_a_long_value_is_cut():
    registry = Registry(ALL)
    registry.add(CALLS, ("灯" * 1000, "success"))
    assert registry.samples(CALLS) == {("灯" * 80, "success"): 1}


def test_a_gauge_is_read_when_it_is_asked_for_and_the_highest_of_several_counts():
    states = [(("deepseek",), 0.0), (("deepseek",), 2.0), (("qwen",), 0.0)]
    registry = Registry(ALL)
    registry.watch(STATE, lambda: states)
    assert registry.samples(STATE) == {("deepseek",): 2.0, ("qwen",): 0.0}
    states.pop()
    assert registry.samples(STATE) == {("deepseek",): 2.0}


def test_labels_that_a_metric_does_not_have_are_a_mistake():
    registry = Registry(ALL)
    with pytest.raises(TypeError, match="loom_calls_total has the labels"):
        registry.add(CALLS, ("look",))
    with pytest.raises(TypeError, match="loom_turns_total"):
        registry.add(TURNS, ("agent-1", "more"))


def test_all_numbers_may_get_a_label_in_common():
    registry = Registry(ALL)
    registry.add(CALLS, ("look", "success"))
    registry.observe(TOOK, 0.5, ("look",))
    lines = registry.text({"loom_server": 'a "server"'}).splitlines()
    assert all('loom_server="a \\"server\\""' in line for line in lines if not line.startswith("#"))


def test_threads_count_together():
    registry = Registry(ALL)

    def count() -> None:
        for _ in range(2000):
            registry.add(TURNS)
            registry.observe(TOOK, 0.5, ("look",))

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.samples(TURNS) == {(): 8000}
    assert registry.samples(TOOK) == {("look",): 8000}
