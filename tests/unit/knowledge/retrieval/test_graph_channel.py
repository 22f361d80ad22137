"""Passages by what a question names: those about it first, then what is connected with it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.knowledge.retrieval.channels import Question
from loom_core.knowledge.retrieval.graph_expansion import Neighbourhood, WalkSettings, graph_channel, walk

FILMS = {
    "Silent Harbour": ["Mara Lindqvist", "Otto Brandt"],
    "Mara Lindqvist": ["Visby"],
    "Visby": ["Gotland"],
    "Gotland": [],
    "Otto Brandt": [],
    "Pavel Horak": ["Brno"],
    "Brno": [],
    "静港": ["林若曦"],
    "林若曦": ["厦门"],
    "厦门": [],
}


@pytest.fixture
def ask(web):
    """The names of the passages that a question finds, with their weight, best first."""
    record, keys = web(FILMS)
    names = {key: name for name, key in keys.items()}

    def asked(text: str, *, among: frozenset[str] | None = None) -> dict[str, float]:
        allowed = None if among is None else frozenset(keys[name] for name in among)
        found = graph_channel(Question.of(text, among=allowed), record.graph)
        return {names[key]: found[key] for key in sorted(found, key=lambda key: -found[key])}

    return asked


def test_a_question_finds_what_it_names_and_one_step_further(ask):
    found = ask("Who directed Silent Harbour?")
    assert next(iter(found)) == "Silent Harbour"
    assert {"Mara Lindqvist", "Otto Brandt"} <= found.keys()
    assert found.keys().isdisjoint({"Pavel Horak", "Brno", "静港", "林若曦", "厦门"})
    assert found["Silent Harbour"] > found["Mara Lindqvist"]


def test_what_names_the_entity_is_found_as_well_as_what_is_about_it(ask):
    found = ask("What of Visby?")
    assert next(iter(found)) == "Visby"
    assert "Mara Lindqvist" in found


def test_a_chinese_question_goes_by_chinese_names(ask):
    found = ask("《静港》的导演是哪里人？")
    assert list(found)[:2] == ["静港", "林若曦"]
    assert found.keys() <= {"静港", "林若曦", "厦门"}


def test_what_several_named_entities_are_connected_with_comes_before_what_one_is(web):
    record, keys = web({"Anna": ["Both", "One"], "Berta": ["Both"], "Both": [], "One": []})
    found = graph_channel(Question.of("Anna and Berta"), record.graph)
    assert found[keys["Both"]] > found[keys["One"]]


def test_filters_hold(ask):
    whole = ask("Who directed Silent Harbour?")
    some = ask("Who directed Silent Harbour?", among=frozenset({"Mara Lindqvist", "厦门"}))
    assert some == {"Mara Lindqvist": whole["Mara Lindqvist"]}
    assert ask("Silent Harbour", among=frozenset()) == {}


@pytest.mark.parametrize("question", ["", "?", "the of", "Where is it?", "它在哪里？", "Unknown Place"])
def test_a_question_that_names_nothing_finds_nothing(ask, question):
    assert ask(question) == {}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(names=st.lists(st.sampled_from(list(FILMS)), min_size=1, max_size=4))
def test_weights_lie_above_0_and_up_to_1(ask, names):
    found = ask(" ".join(names))
    assert set(names) <= found.keys() <= FILMS.keys()
    assert max(found.values()) == 1
    assert all(0 < weight <= 1 for weight in found.values())


# -- the walk itself --------------------------------------------------------------------------------


def test_a_walk_from_nowhere_leads_nowhere(web):
    record, keys = web(FILMS)
    assert walk(Neighbourhood(record.graph), {}) == {}
    assert walk(Neighbourhood(record.graph), {}, entities=[999]) == {}
    assert walk(Neighbourhood(record.graph), {999: 1.0}) == {}
    assert walk(Neighbourhood(record.graph), {keys["Brno"]: 0.0}) == {}


def test_a_walk_from_passages_and_entities_is_near_both(web):
    record, keys = web(FILMS)
    (entity,) = record.graph.find(["brno"]).values()
    found = walk(Neighbourhood(record.graph), {keys["静港"]: 1.0}, entities=[entity])
    assert {keys[name] for name in ("静港", "林若曦", "Brno", "Pavel Horak")} <= found.keys()
    assert keys["Gotland"] not in found
    alone = walk(Neighbourhood(record.graph), {keys["静港"]: 1.0})
    assert keys["Brno"] not in alone


def test_a_name_that_stands_everywhere_costs_no_more_than_any_other(web):
    record, keys = web({"Hub": [], **{f"Passage{n}": ["Hub"] for n in range(60)}})
    few = WalkSettings(mentions_each=5, targets_each=5)
    found = graph_channel(Question.of("Hub"), record.graph, settings=few)
    assert len(found) <= 1 + 5 + 5
    assert max(found, key=lambda key: found[key]) == keys["Hub"]
