"""What is near passages: each thing read once, and as exactly as if all of it had been read."""

from __future__ import annotations

import pytest

from loom_core.knowledge.retrieval.graph_expansion import Neighbourhood

PASSAGES = {
    "Kraus House": ["Missouri", "Frank Wright"],
    "Meramec River": ["Missouri"],
    "Frank Wright": ["Wisconsin"],
    "Wisconsin": [],
    "静港": ["林若曦"],
    "林若曦": [],
}


def statements(record) -> list[str]:
    """The statements that are run from now on."""
    seen: list[str] = []
    with record.database.read() as db:
        db.set_trace_callback(seen.append)
    return seen


def test_the_entities_of_passages_are_those_mentioned_and_those_they_are_about(web):
    record, keys = web(PASSAGES)
    ids = record.graph.find(["kraus house", "missouri", "frank wright", "静港", "林若曦", "wisconsin"])
    near = Neighbourhood(record.graph)
    some = [keys["Kraus House"]]
    assert near.entities_in(some) == {ids["kraus house"], ids["missouri"], ids["frank wright"]}
    near.mentions_in(some)
    assert near.entities_in([*some, keys["静港"]]) >= {ids["missouri"], ids["静港"], ids["林若曦"]}
    assert near.entities_in([]) == set()
    assert {about.entity for about in near.abouts_in(some)} == {ids["kraus house"]}


def test_what_was_read_is_not_read_again(web):
    record, keys = web(PASSAGES)
    near = Neighbourhood(record.graph)

    def all_of_it():
        chunks = list(keys.values())
        entities = near.entities_in(chunks)
        return near.mentions_in(chunks), near.abouts_of(entities), near.mentions_of(entities)

    first = all_of_it()
    near.entities_in(keys.values())
    documents = dict(near.documents_of(keys.values()))
    seen = statements(record)
    assert all_of_it() == first
    assert near.documents_of(keys.values()) == documents
    assert not seen


@pytest.mark.parametrize("each", [1, 2, 3, 20])
def test_mentions_are_those_in_passages_about_something_else_each_passage_once(web, each):
    # A document that says its own name throughout, and three that mention it beside it.
    passages = {"Hub": ["Hub"] * 3, **{f"Passage{n}": ["Hub", "Hub"] for n in range(3)}}
    record, keys = web(passages)
    (hub,) = record.graph.find(["hub"]).values()
    near = Neighbourhood(record.graph, mentions_each=each, abouts_each=1)
    others = [keys[f"Passage{n}"] for n in range(3)]
    found = [chunk for chunk, _ in near.mentions_of([hub])[hub]]
    assert found == others[: (each + 1) // 2]  # as many mentions were read, two of each passage
    assert near.abouts_of([hub])[hub] == [(keys["Hub"], 1.0)]


def test_what_does_not_exist_has_nothing_near_it(web):
    record, _ = web(PASSAGES)
    near = Neighbourhood(record.graph)
    assert near.mentions_in([999]) == near.abouts_in([999]) == []
    assert near.mentions_of([999]) == near.abouts_of([999]) == {999: []}
    assert near.documents_of([999]) == {}
