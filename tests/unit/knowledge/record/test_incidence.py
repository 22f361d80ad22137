"""Many entities are asked about in a few statements, with the answers of one statement for each."""

from __future__ import annotations

import random

import pytest

from loom_core.knowledge.record import Record

CHUNKS = 60
ENTITIES = 40
HUB = 1  # mentioned in every chunk
OLD_MENTIONS = (
    "SELECT chunk, entity, start, end, name, method, confidence FROM mentions AS m WHERE entity = ? AND NOT "
    "EXISTS (SELECT 1 FROM abouts WHERE chunk = m.chunk AND entity = m.entity) ORDER BY chunk, start LIMIT ?"
)
OLD_ABOUTS = (
    "SELECT a.chunk, a.entity, c.document, a.source, a.name, a.confidence FROM abouts AS a "
    "JOIN chunks AS c ON c.key = a.chunk WHERE a.entity = ? "
    "ORDER BY a.confidence DESC, a.chunk, a.source LIMIT ?"
)


@pytest.fixture
def graph(record: Record, prepare) -> Record:
    """Mentions and subjects at random: few of most entities, many of some, and of one everywhere."""
    dice = random.Random(7)
    for n in range(CHUNKS):
        record.documents.put(prepare(f"text {n}", uri=f"text:{n}"))
    chunks = record.documents.chunk_keys()
    with record.database.write() as db:
        for table in ("mentions", "abouts", "names", "relations", "entities"):
            db.execute(f"DELETE FROM {table}")
        db.executemany("INSERT INTO entities VALUES (?, ?)", [(n, f"e{n}") for n in range(1, ENTITIES + 1)])
        for chunk in chunks:
            for entity in {HUB, *(int(dice.paretovariate(0.5)) % ENTITIES + 1 for _ in range(12))}:
                for start in range(dice.choice((1, 1, 3))):
                    row = (chunk, entity, start, start + 2, f"n{entity}", "thing", "rule", dice.random())
                    db.execute("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            for entity in dice.sample(range(1, ENTITIES + 1), 3):
                for source in dice.sample(("title", "heading", "definition"), dice.choice((1, 2))):
                    row = (chunk, entity, source, f"n{entity}", dice.choice((0.5, 0.8, 1.0)))
                    db.execute("INSERT INTO abouts VALUES (?, ?, ?, ?, ?)", row)
    return record


def one_by_one(record: Record, sql: str, entities: list[int], limit: int) -> list[tuple[object, ...]]:
    return [tuple(row) for entity in entities for row in record.database.rows(sql, (entity, limit))]


@pytest.mark.parametrize("limit", [1, 3, 12, 1000])
def test_many_entities_are_answered_as_each_on_its_own(graph: Record, limit: int):
    entities = random.Random(limit).sample(range(1, ENTITIES + 5), ENTITIES)  # some do not exist
    mentions = graph.graph.mentions_of(entities, limit=limit)
    assert mentions == one_by_one(graph, OLD_MENTIONS, entities, limit)
    assert graph.graph.abouts_of(entities, limit=limit) == one_by_one(graph, OLD_ABOUTS, entities, limit)
    edges = graph.graph.mention_edges_of(entities, limit=limit)
    assert edges == [(m.chunk, m.entity, m.confidence) for m in mentions]


def test_one_entity_or_none_is_a_list_like_any_other(graph: Record):
    assert graph.graph.mentions_of([HUB], limit=5) == one_by_one(graph, OLD_MENTIONS, [HUB], 5)
    assert graph.graph.abouts_of([HUB], limit=5) == one_by_one(graph, OLD_ABOUTS, [HUB], 5)
    assert graph.graph.mentions_of([], limit=5) == []
    assert graph.graph.entities_in([]) == set()


def test_lists_longer_than_a_statement_takes_are_cut(graph: Record):
    entities = [*range(ENTITIES, 0, -1), *range(1000, 4000)]
    assert graph.graph.mentions_of(entities, limit=3) == one_by_one(graph, OLD_MENTIONS, entities, 3)


def test_the_entities_of_chunks_are_those_mentioned_and_those_they_are_about(graph: Record):
    chunks = graph.documents.chunk_keys()[5:25]
    mentioned = {mention.entity for mention in graph.graph.mentions_in(chunks)}
    about = {about.entity for about in graph.graph.abouts_in(chunks)}
    assert graph.graph.entities_in(chunks) == mentioned | about
    assert mentioned != mentioned | about


def test_an_entity_that_stands_everywhere_costs_no_more_than_the_limit(graph: Record):
    def steps() -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        with graph.database.read() as db:
            db.set_progress_handler(tick, 10)
            graph.graph.mentions_of(list(range(1, ENTITIES + 1)), limit=24)
            graph.graph.mention_edges_of(list(range(1, ENTITIES + 1)), limit=24)
            db.set_progress_handler(None, 0)
        return count

    before = steps()
    (last,) = graph.documents.chunk_keys()[-1:]
    with graph.database.write() as db:
        rows = [(last, HUB, start, start + 2, "n1", "thing", "rule", 1.0) for start in range(10, 20_010)]
        db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    assert steps() <= before + 2
