"""Many entities are asked about in a few statements, with the answers of one statement for each."""

from __future__ import annotations

import random

import pytest

from loom_core.knowledge.store import KnowledgeStore

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("store", ["memory"], indirect=True)]

CHUNKS = 60
ENTITIES = 40
HUB = 1  # mentioned in every chunk
LOOKED_AT = 50
MENTIONS = (
    "SELECT chunk, confidence FROM mentions AS m WHERE entity = ? AND confidence > 0 {} "
    "ORDER BY chunk, start LIMIT ?"
)
ASIDES = MENTIONS.format("AND NOT EXISTS (SELECT 1 FROM abouts WHERE chunk = m.chunk AND entity = m.entity)")
ABOUTS = "SELECT chunk, confidence FROM abouts WHERE entity = ? ORDER BY confidence DESC, chunk LIMIT ?"


@pytest.fixture
def graph(store: KnowledgeStore, prepare) -> KnowledgeStore:
    """Mentions and subjects at random: few of most entities, many of some, and of one everywhere."""
    dice = random.Random(7)
    for n in range(CHUNKS):
        store.documents.upsert(prepare(f"text {n}", uri=f"text:{n}"))
    chunks = store.documents.chunk_keys()
    with store.database.write() as db:
        for table in ("mentions", "abouts", "names", "relations", "entities"):
            db.execute(f"DELETE FROM {table}")
        db.executemany(
            "INSERT INTO entities (key, id) VALUES (?, ?)", [(n, f"e{n}") for n in range(1, ENTITIES + 1)]
        )
        mentions, abouts = [], []
        for chunk in chunks:
            for entity in {HUB, *(int(dice.paretovariate(0.5)) % ENTITIES + 1 for _ in range(12))}:
                for start in range(dice.choice((1, 1, 3))):
                    row = (
                        chunk,
                        entity,
                        start,
                        start + 2,
                        f"n{entity}",
                        "thing",
                        "rule",
                        dice.randrange(100) / 100,
                    )
                    mentions.append(row)
            for entity in dice.sample(range(1, ENTITIES + 1), 3):
                for source in dice.sample(("title", "heading", "definition"), dice.choice((1, 2))):
                    row = (chunk, entity, source, f"n{entity}", dice.choice((0.5, 0.8, 1.0)))
                    abouts.append(row)
        db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", mentions)
        db.executemany("INSERT INTO abouts VALUES (?, ?, ?, ?, ?)", abouts)
    return store


def one_by_one(store: KnowledgeStore, sql: str, entities: list[int], limit: int) -> dict[int, list[object]]:
    return {entity: [tuple(row) for row in store.database.rows(sql, (entity, limit))] for entity in entities}


@pytest.mark.parametrize("limit", [1, 3, 12, 50])
def test_many_entities_are_answered_as_each_on_its_own(graph: KnowledgeStore, limit: int):
    entities = random.Random(limit).sample(range(1, ENTITIES + 5), ENTITIES)  # some do not exist
    mentions = graph.graph.mentions_of(entities, limit=limit)
    assert list(mentions) == entities
    assert mentions == one_by_one(graph, MENTIONS.format(""), entities, limit)
    assert graph.graph.abouts_of(entities, limit=limit) == one_by_one(graph, ABOUTS, entities, limit)
    counts = dict(graph.database.rows("SELECT entity, COUNT(*) FROM mentions GROUP BY entity"))
    rare = [entity for entity in entities if counts.get(entity, 0) <= LOOKED_AT]
    assert len(rare) > ENTITIES / 2
    assert graph.graph.passing_mentions_of(rare, limit=limit) == one_by_one(graph, ASIDES, rare, limit)


def test_of_an_entity_mentioned_throughout_only_the_first_mentions_are_looked_at(graph: KnowledgeStore):
    first, second, *_ = graph.documents.chunk_keys()
    with graph.database.write() as db:
        db.execute("DELETE FROM mentions WHERE entity = ?", (HUB,))
        db.execute("DELETE FROM abouts WHERE entity = ?", (HUB,))
        db.execute("INSERT INTO abouts VALUES (?, ?, 'title', 'n1', 1.0)", (first, HUB))
        places = [(first, start) for start in range(LOOKED_AT)] + [(second, 0)]
        rows = [(chunk, HUB, start, start + 2, "n1", "thing", "rule", 0.5) for chunk, start in places]
        db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    assert graph.graph.passing_mentions_of([HUB], limit=5) == {HUB: []}
    with graph.database.write() as db:
        db.execute("DELETE FROM mentions WHERE entity = ? AND start = 1", (HUB,))
    assert graph.graph.passing_mentions_of([HUB], limit=5) == {HUB: [(second, 0.5)]}


def test_no_entity_and_no_chunk_is_a_list_like_any_other(graph: KnowledgeStore):
    assert graph.graph.mentions_of([], limit=5) == graph.graph.abouts_of([], limit=5) == {}
    assert graph.graph.entities_in([]) == set()
    assert graph.graph.mentions_in([]) == []
    assert graph.graph.documents_of([]) == {}


def test_a_list_may_be_longer_than_a_statement_takes_parameters(graph: KnowledgeStore):
    entities = [*range(ENTITIES, 0, -1), *range(1000, 40_000)]
    expected = one_by_one(graph, MENTIONS.format(""), entities[: ENTITIES + 10], 3)
    found = graph.graph.mentions_of(entities, limit=3)
    assert {entity: found[entity] for entity in expected} == expected
    assert len(found) == len(entities)


def test_mentions_and_subjects_come_whole_and_in_the_order_of_the_chunks(graph: KnowledgeStore):
    first, second = graph.documents.chunk_keys()[7:3:-3]
    with graph.database.write() as db:
        db.execute("UPDATE mentions SET name = ? WHERE chunk = ?", ('"东\\京"\n', first))
    sql = 'SELECT chunk, entity, start, "end", name, confidence FROM mentions WHERE chunk = ? ORDER BY 2, 3'
    rows = [tuple(row) for chunk in (first, second) for row in graph.database.rows(sql, (chunk,))]
    assert graph.graph.mentions_in([first, second]) == rows
    sql = (
        "SELECT chunk, entity, document, source, a.name, confidence FROM abouts AS a, chunks WHERE chunk = ? "
    )
    sql += "AND key = chunk ORDER BY 2, 4"
    rows = [tuple(row) for chunk in (first, second) for row in graph.database.rows(sql, (chunk,))]
    assert graph.graph.abouts_in([first, second]) == rows
    assert graph.graph.documents_of([first, second]) == {row[0]: row[2] for row in rows}


def test_the_entities_of_chunks_are_those_mentioned_and_those_they_are_about(graph: KnowledgeStore):
    chunks = graph.documents.chunk_keys()[5:25]
    mentioned = {mention.entity for mention in graph.graph.mentions_in(chunks)}
    about = {about.entity for about in graph.graph.abouts_in(chunks)}
    assert graph.graph.entities_in(chunks) == mentioned | about
    assert mentioned != mentioned | about


def test_an_entity_that_stands_everywhere_costs_no_more_than_the_limit(graph: KnowledgeStore, steps):
    def cost() -> int:
        with steps(graph) as count:
            graph.graph.mentions_of(list(range(1, ENTITIES + 1)), limit=24)
            graph.graph.passing_mentions_of(list(range(1, ENTITIES + 1)), limit=24)
            graph.graph.abouts_of(list(range(1, ENTITIES + 1)), limit=24)
        return count[0]

    before = cost()
    (last,) = graph.documents.chunk_keys()[-1:]
    with graph.database.write() as db:
        rows = [(last, HUB, start, start + 2, "n1", "thing", "rule", 1.0) for start in range(10, 20_010)]
        db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    assert cost() <= before + 2
