"""Contract of graph stores, run with each of them."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
from loom_core.knowledge.indexes.engines.memory_graph import MemoryGraphStore
from loom_core.knowledge.interface import EntityEdge, EntityNode, GraphPath, GraphStore

STRANGE_NAMES = [
    "知识图谱",
    'it\'s "quoted"',
    "back\\slash\\",
    "two\nlines\r\nand\ttab",
    "😀 é ﬁ",
    "",
    " ",
    "NULL",
    ",",
    "{x: 1}) DETACH DELETE n //",
    "$id",
]


@pytest.fixture(params=["memory", "kuzu"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GraphStore]:
    opened: dict[str, Callable[[], GraphStore]] = {
        "memory": MemoryGraphStore,
        "kuzu": lambda: KuzuGraphStore(tmp_path / "graph", buffer_pool_mb=64),
    }
    store = opened[request.param]()
    yield store
    store.close()


def node(key: int, name: str = "", *, mentions: int = 1) -> EntityNode:
    return EntityNode(key, name or f"实体{key}", "thing", mentions)


def edge(
    subject: int, object_: int, predicate: str = "related to", *, support: int = 1, confidence: float = 0.5
) -> EntityEdge:
    return EntityEdge(subject, predicate, object_, support, confidence)


def filled(store: GraphStore, *edges: EntityEdge) -> GraphStore:
    keys = sorted({end for each in edges for end in (each.subject, each.object)})
    store.upsert_entities([node(key) for key in keys])
    store.upsert_relations(edges)
    return store


def keys_of(nodes: list[EntityNode] | tuple[EntityNode, ...]) -> list[int]:
    return [each.key for each in nodes]


def test_entities_come_back_as_they_were_stored(store: GraphStore) -> None:
    entities = [
        EntityNode(key, name, "" if key % 2 else "类型", key) for key, name in enumerate(STRANGE_NAMES, 1)
    ]
    store.upsert_entities(entities)
    assert store.get(range(100)) == entities
    assert store.counts() == (len(STRANGE_NAMES), 0)


def test_relations_come_back_as_they_were_stored(store: GraphStore) -> None:
    relations = [edge(1, 2, name, support=len(STRANGE_NAMES) - at) for at, name in enumerate(STRANGE_NAMES)]
    filled(store, *relations)
    nodes, edges = store.neighbours(1)
    assert keys_of(nodes) == [2]
    assert edges == relations


def test_an_upsert_overwrites_an_entity_and_keeps_its_relations(store: GraphStore) -> None:
    filled(store, edge(1, 2))
    store.upsert_entities([EntityNode(1, "新名", "person", 9)])
    assert store.get([1]) == [EntityNode(1, "新名", "person", 9)]
    assert store.counts() == (2, 1)


def test_a_relation_is_known_by_subject_predicate_and_object(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(2, 1), edge(1, 2, "part of"))
    store.upsert_relations([edge(1, 2, support=7, confidence=0.25)])
    assert store.counts() == (2, 3)
    _, edges = store.neighbours(2)
    assert edges[0] == edge(1, 2, support=7, confidence=0.25)


def test_a_relation_to_nowhere_is_refused_and_nothing_of_its_call_stays(store: GraphStore) -> None:
    store.upsert_entities([node(1), node(2)])
    with pytest.raises(InvalidInputError, match="99"):
        store.upsert_relations([edge(1, 2), edge(1, 99)])
    assert store.counts() == (2, 0)
    store.upsert_relations([edge(1, 2)])
    assert store.counts() == (2, 1)


def test_an_entity_goes_with_every_relation_that_touches_it(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(2, 3), edge(3, 3), edge(1, 3))
    store.delete_entities([2, 99])
    assert store.counts() == (2, 2)
    store.delete_entities([3])
    assert store.counts() == (1, 0)
    store.upsert_entities([node(3)])
    assert store.neighbours(3) == ([], [])


def test_relations_are_forgotten_by_identity(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(2, 1), edge(1, 2, "part of"))
    store.delete_relations([(1, "related to", 2), (1, "absent", 2), (8, "related to", 9)])
    assert store.counts() == (2, 2)
    _, edges = store.neighbours(1)
    assert edges == [edge(1, 2, "part of"), edge(2, 1)]


def test_calls_with_nothing_change_nothing(store: GraphStore) -> None:
    store.upsert_entities([])
    store.upsert_relations([])
    store.delete_entities([])
    store.delete_relations([])
    assert store.get([]) == []
    assert store.get([5]) == []
    assert store.counts() == (0, 0)


def test_neighbours_come_nearest_and_best_supported_first(store: GraphStore) -> None:
    filled(
        store,
        edge(1, 2),
        edge(3, 1, support=5),
        edge(1, 4, support=3),
        edge(4, 1, "b", support=3),
        edge(2, 5),
    )
    nodes, edges = store.neighbours(1, hops=2)
    assert keys_of(nodes) == [4, 3, 2, 5]
    assert [each.support for each in edges] == [5, 3, 3, 1, 1]


def test_edges_among_neighbours_are_part_of_the_answer(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(1, 3), edge(2, 3, "知道"), edge(3, 4), edge(2, 2, "self"))
    nodes, edges = store.neighbours(1)
    assert keys_of(nodes) == [2, 3]
    assert {(each.subject, each.object) for each in edges} == {(1, 2), (1, 3), (2, 3), (2, 2)}


def test_each_hop_is_cut_at_the_limit(store: GraphStore) -> None:
    filled(
        store,
        *(edge(1, key, support=key) for key in range(2, 12)),
        *(edge(key, 100 + key) for key in range(2, 12)),
    )
    nodes, edges = store.neighbours(1, hops=2, limit=3)
    assert keys_of(nodes) == [11, 10, 9, 109, 110, 111]
    assert len(edges) == 6
    assert store.neighbours(1, limit=0) == ([], [])


def test_neighbours_of_the_unknown_and_the_lonely_are_none(store: GraphStore) -> None:
    store.upsert_entities([node(1)])
    assert store.neighbours(1, hops=3) == ([], [])
    assert store.neighbours(77, hops=3) == ([], [])


@pytest.mark.parametrize("hops", [0, -1, 4])
def test_hops_out_of_range_are_refused(store: GraphStore, hops: int) -> None:
    with pytest.raises(InvalidInputError, match="hops"):
        store.neighbours(1, hops=hops)


def test_a_path_follows_relations_in_either_direction(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(3, 2, "弱"), edge(3, 2, "强", support=4), edge(3, 4), edge(4, 5))
    path = store.path(1, 4)
    assert path is not None
    assert keys_of(path.nodes) == [1, 2, 3, 4]
    assert path.edges == (edge(1, 2), edge(3, 2, "强", support=4), edge(3, 4))
    assert path.nodes[0] == node(1)


def test_a_path_is_bounded_by_its_hops(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(2, 3), edge(3, 4))
    assert store.path(1, 4, max_hops=2) is None
    assert store.path(1, 4, max_hops=3) is not None
    for hops in (0, 11):
        with pytest.raises(InvalidInputError):
            store.path(1, 4, max_hops=hops)


def test_there_is_no_path_between_strangers_or_to_the_unknown(store: GraphStore) -> None:
    filled(store, edge(1, 2), edge(3, 4))
    assert store.path(1, 3) is None
    assert store.path(1, 99) is None
    assert store.path(99, 1) is None
    assert store.path(99, 99) is None


def test_a_path_to_itself_is_the_entity_alone(store: GraphStore) -> None:
    filled(store, edge(1, 1), edge(1, 2))
    assert store.path(1, 1) == GraphPath((node(1),), ())


class Model:
    """The same in the plainest way."""

    def __init__(self) -> None:
        self.entities: dict[int, EntityNode] = {}
        self.relations: dict[tuple[int, str, int], EntityEdge] = {}

    def around(self, key: int) -> dict[int, int]:
        support: defaultdict[int, int] = defaultdict(int)
        for each in self.relations.values():
            if key in (each.subject, each.object):
                support[each.object if each.subject == key else each.subject] += each.support
        return support

    def rings(self, key: int, *, hops: int, limit: int) -> list[int]:
        met, ring = [key], [key]
        for _ in range(hops):
            support: defaultdict[int, int] = defaultdict(int)
            for member in ring:
                for other, count in self.around(member).items():
                    if other not in met:
                        support[other] += count
            ring = sorted(support, key=lambda other: (-support[other], other))[:limit]
            met += ring
        return met[1:]

    def distance(self, start: int, end: int) -> int | None:
        ring, met = {start}, {start}
        for steps in range(20):
            if end in ring:
                return steps
            ring = {other for member in ring for other in self.around(member)} - met
            met |= ring
        return None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_sequence_of_changes_agrees_with_dictionaries(store: GraphStore, seed: int) -> None:
    dice = random.Random(seed)
    model = Model()
    predicates = ["related to", "属于", "", "it's"]
    for _ in range(25):
        match dice.randint(1, 6):
            case 1 | 2:
                nodes = [
                    EntityNode(
                        dice.randint(1, 25),
                        dice.choice(STRANGE_NAMES),
                        dice.choice(["", "类"]),
                        dice.randint(0, 9),
                    )
                    for _ in range(dice.randint(1, 8))
                ]
                store.upsert_entities(nodes)
                model.entities |= {each.key: each for each in nodes}
            case 3 | 4 if model.entities:
                known = list(model.entities)
                edges = [
                    edge(
                        dice.choice(known),
                        dice.choice(known),
                        dice.choice(predicates),
                        support=dice.randint(1, 9),
                        confidence=dice.random(),
                    )
                    for _ in range(dice.randint(1, 12))
                ]
                store.upsert_relations(edges)
                model.relations |= {(each.subject, each.predicate, each.object): each for each in edges}
            case 5:
                gone = [dice.randint(1, 30) for _ in range(2)]
                store.delete_entities(gone)
                model.entities = {key: each for key, each in model.entities.items() if key not in gone}
                model.relations = {
                    identity: each
                    for identity, each in model.relations.items()
                    if identity[0] not in gone and identity[2] not in gone
                }
            case _ if model.relations:
                lost = dice.choices(list(model.relations), k=2)
                store.delete_relations(lost)
                for identity in lost:
                    model.relations.pop(identity, None)
            case _:
                pass
        assert store.counts() == (len(model.entities), len(model.relations))
        one, other = dice.randint(1, 25), dice.randint(1, 25)
        assert store.get([one, other, 1000]) == [
            model.entities[key] for key in sorted({one, other}) if key in model.entities
        ]
        hops, limit = dice.randint(1, 3), dice.randint(1, 6)
        nodes_found, edges_found = store.neighbours(one, hops=hops, limit=limit)
        members = model.rings(one, hops=hops, limit=limit) if one in model.entities else []
        assert nodes_found == [model.entities[key] for key in members]
        assert sorted(edges_found, key=repr) == sorted(
            (each for each in model.relations.values() if {each.subject, each.object} <= {one, *members}),
            key=repr,
        )
        path = store.path(one, other, max_hops=6)
        distance = model.distance(one, other) if one in model.entities and other in model.entities else None
        if distance is None or distance > 6:
            assert path is None
        else:
            assert path is not None
            assert len(path.edges) == distance
            for (before, after), step in zip(
                zip(path.nodes, path.nodes[1:], strict=False), path.edges, strict=True
            ):
                assert {before.key, after.key} == {step.subject, step.object}
                assert model.relations[step.subject, step.predicate, step.object] == step


def test_the_relations_that_touch_entities_are_found_from_either_end(store: GraphStore) -> None:
    store.upsert_entities([node(1), node(2), node(3), node(4)])
    store.upsert_relations([edge(1, 2), edge(2, 3), edge(3, 4), edge(1, 1)])
    assert sorted(map(identity, store.touching([1, 2]))) == [(1, 1), (1, 2), (2, 3)]
    assert sorted(map(identity, store.touching([4, 99]))) == [(3, 4)]
    assert store.touching([]) == []


def identity(found: EntityEdge) -> tuple[int, int]:
    return found.subject, found.object
