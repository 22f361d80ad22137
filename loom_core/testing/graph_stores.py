"""Contract of the graph stores of a knowledge base, as pytest classes for those who write one.

    from loom_core.testing import RemoteGraphStoreContract

    class TestMyGraph(RemoteGraphStoreContract):
        url = "my-engine+http://localhost:1234"

The engine is found by its registration (see `loom_core.plugins`). Each test makes graphs of its own, named
`contract_…`, and deletes them.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from loom_core.errors import IndexDamagedError, InvalidInputError, StoreUnavailableError
from loom_core.knowledge.interface import EntityEdge, EntityNode
from loom_core.testing.stores import assert_raises, temporary_name

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager

    from pydantic import SecretStr

    from loom_core.knowledge.interface import GraphStore, RemoteGraphStore

__all__ = ["GraphStoreContract", "RemoteGraphStoreContract"]

_STRANGE_NAMES = [
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
    "\\u0041\\n",
    "\0one\0two\0",
    "\u24000 \u24001\u2400",
]
_LARGE_KEY = 2**62 + 1  # of the kind that a float cannot hold


class GraphStoreContract:
    """Contract of `GraphStore`: a subclass opens an empty one in `graph`, and pytest runs the rest."""

    def graph(self) -> AbstractContextManager[GraphStore]:
        """Open a new, empty graph store, and delete it at the end."""
        raise NotImplementedError

    def test_entities_come_back_as_they_were_stored(self) -> None:
        with self.graph() as graph:
            entities = [
                EntityNode(key, name, "" if key % 2 else "类型", key)
                for key, name in enumerate(_STRANGE_NAMES, 1)
            ]
            entities.append(EntityNode(_LARGE_KEY, "large", "thing", 1))
            graph.upsert_entities(entities)
            assert graph.get([*range(100), _LARGE_KEY]) == entities
            assert graph.counts() == (len(entities), 0)

    def test_relations_come_back_as_they_were_stored(self) -> None:
        with self.graph() as graph:
            most = len(_STRANGE_NAMES)
            relations = [_edge(1, 2, name, support=most - at) for at, name in enumerate(_STRANGE_NAMES)]
            _fill(graph, *relations)
            nodes, edges = graph.neighbours(1)
            assert _keys(nodes) == [2]
            assert edges == relations

    def test_confidences_come_back_to_the_last_bit(self) -> None:
        with self.graph() as graph:
            confidences = [0.0, 1.0, 0.1, 1 / 3, 0.1 + 0.2, 1e-7 / 3, 1 - 2**-53]
            relations = [
                _edge(1, 2, f"relation {at}", confidence=value) for at, value in enumerate(confidences)
            ]
            _fill(graph, *relations)
            found = sorted(graph.touching([1]), key=lambda edge: edge.predicate)
            assert found == relations

    def test_an_upsert_overwrites_an_entity_and_keeps_its_relations(self) -> None:
        with self.graph() as graph:
            _fill(graph, _edge(1, 2))
            graph.upsert_entities([EntityNode(1, "旧名", "", 1), EntityNode(1, "新名", "person", 9)])
            assert graph.get([1]) == [EntityNode(1, "新名", "person", 9)]
            assert graph.counts() == (2, 1)

    def test_a_relation_is_known_by_subject_predicate_and_object(self) -> None:
        with self.graph() as graph:
            _fill(graph, _edge(1, 2), _edge(2, 1), _edge(1, 2, "part of"))
            graph.upsert_relations([_edge(1, 2, support=3), _edge(1, 2, support=7, confidence=0.25)])
            assert graph.counts() == (2, 3)
            _, edges = graph.neighbours(2)
            assert edges[0] == _edge(1, 2, support=7, confidence=0.25)

    def test_the_same_changes_again_change_nothing(self) -> None:
        with self.graph() as graph:
            edges = [_edge(1, 2), _edge(2, 3), _edge(3, 3)]
            for _ in range(2):
                _fill(graph, *edges)
                graph.delete_relations([(2, "related to", 3)])
                graph.delete_entities([4])
            assert graph.counts() == (3, 2)
            assert sorted(graph.touching([1, 2, 3]), key=repr) == [edges[0], edges[2]]

    def test_a_relation_to_nowhere_is_refused_and_nothing_of_its_call_stays(self) -> None:
        with self.graph() as graph:
            graph.upsert_entities([_node(1), _node(2)])
            error = assert_raises(
                InvalidInputError, lambda: graph.upsert_relations([_edge(1, 2), _edge(1, 99)])
            )
            assert "99" in str(error)
            assert graph.counts() == (2, 0)
            graph.upsert_relations([_edge(1, 2)])
            assert graph.counts() == (2, 1)

    def test_an_entity_goes_with_every_relation_that_touches_it(self) -> None:
        with self.graph() as graph:
            _fill(graph, _edge(1, 2), _edge(2, 3), _edge(3, 3), _edge(1, 3))
            graph.delete_entities([2, 99])
            assert graph.counts() == (2, 2)
            graph.delete_entities([3])
            assert graph.counts() == (1, 0)
            graph.upsert_entities([_node(3)])
            assert graph.neighbours(3) == ([], [])

    def test_relations_are_forgotten_by_identity(self) -> None:
        with self.graph() as graph:
            _fill(graph, _edge(1, 2), _edge(2, 1), _edge(1, 2, "part of"))
            graph.delete_relations([(1, "related to", 2), (1, "absent", 2), (8, "related to", 9)])
            assert graph.counts() == (2, 2)
            _, edges = graph.neighbours(1)
            assert edges == [_edge(1, 2, "part of"), _edge(2, 1)]

    def test_calls_with_nothing_change_nothing(self) -> None:
        with self.graph() as graph:
            graph.upsert_entities([])
            graph.upsert_relations([])
            graph.delete_entities([])
            graph.delete_relations([])
            assert graph.get([]) == []
            assert graph.get([5]) == []
            assert graph.touching([]) == []
            assert graph.counts() == (0, 0)

    def test_neighbours_come_nearest_and_best_supported_first(self) -> None:
        with self.graph() as graph:
            _fill(
                graph,
                _edge(1, 2),
                _edge(3, 1, support=5),
                _edge(1, 4, support=3),
                _edge(4, 1, "b", support=3),
                _edge(2, 5),
            )
            nodes, edges = graph.neighbours(1, hops=2)
            assert _keys(nodes) == [4, 3, 2, 5]
            assert [each.support for each in edges] == [5, 3, 3, 1, 1]

    def test_edges_among_neighbours_are_part_of_the_answer(self) -> None:
        with self.graph() as graph:
            _fill(graph, _edge(1, 2), _edge(1, 3), _edge(2, 3, "知道"), _edge(3, 4), _edge(2, 2, "self"))
            nodes, edges = graph.neighbours(1)
            assert _keys(nodes) == [2, 3]
            assert {(each.subject, each.object) for each in edges} == {(1, 2), (1, 3), (2, 3), (2, 2)}

    def test_each_hop_is_cut_at_the_limit(self) -> None:
        with self.graph() as graph:
            _fill(
                graph,
                *(_edge(1, key, support=key) for key in range(2, 12)),
                *(_edge(key, 100 + key) for key in range(2, 12)),
            )
            nodes, edges = graph.neighbours(1, hops=2, limit=3)
            assert _keys(nodes) == [11, 10, 9, 109, 110, 111]
            assert len(edges) == 6
            assert graph.neighbours(1, limit=0) == ([], [])

    def test_neighbours_of_the_unknown_and_the_lonely_are_none(self) -> None:
        with self.graph() as graph:
            graph.upsert_entities([_node(1)])
            assert graph.neighbours(1, hops=3) == ([], [])
            assert graph.neighbours(77, hops=3) == ([], [])

    def test_hops_out_of_range_are_refused(self) -> None:
        with self.graph() as graph:
            for hops in (0, -1, 4):
                error = assert_raises(InvalidInputError, lambda hops=hops: graph.neighbours(1, hops=hops))
                assert "hops" in str(error)

    def test_the_relations_that_touch_entities_are_found_from_either_end(self) -> None:
        with self.graph() as graph:
            edges = [_edge(1, 2), _edge(2, 3), _edge(3, 4), _edge(1, 1)]
            _fill(graph, *edges)
            assert sorted(graph.touching([1, 2]), key=repr) == sorted(
                (edges[0], edges[1], edges[3]), key=repr
            )
            assert graph.touching([4, 99]) == [edges[2]]

    def test_relations_are_found_by_a_range_of_their_subjects(self) -> None:
        with self.graph() as graph:
            edges = [_edge(1, 2), _edge(2, 1), _edge(3, 1), _edge(4, 1)]
            _fill(graph, *edges)
            assert sorted(graph.relations(2, 3), key=repr) == edges[1:3]
            assert graph.relations(5, 9) == []

    def test_any_sequence_of_changes_agrees_with_dictionaries(self) -> None:
        for seed in (1, 2, 3):
            with self.graph() as graph:
                dice, model = random.Random(seed), _Model()
                for _ in range(25):
                    _change(graph, model, dice)
                    model.compare(graph, dice)


class RemoteGraphStoreContract(GraphStoreContract):
    """Contract of `RemoteGraphStore`: a subclass sets `url`, and pytest runs the rest.

    Attributes:
        url: the setting that chooses the engine and its server, without a password.
        secret: password of the server.
        unreachable: the same engine at an address where none answers; empty skips that test.
    """

    url: ClassVar[str]
    secret: ClassVar[SecretStr | None] = None
    unreachable: ClassVar[str] = ""

    def open_graph(self, name: str, *, url: str = "") -> RemoteGraphStore:
        """Open a graph of the server, which need not exist."""
        from loom_core.knowledge.indexes.engines.servers import open_graph_store

        return open_graph_store(url or self.url, secret=self.secret, graph=name)

    def name(self) -> AbstractContextManager[str]:
        """Name a new graph, and delete it at the end."""
        return temporary_name(self.open_graph)

    @contextmanager
    def graph(self) -> Generator[RemoteGraphStore]:
        """Open a new, empty graph, and delete it at the end."""
        with self.name() as name:
            graph = self.open_graph(name)
            graph.create()
            try:
                yield graph
            finally:
                graph.close()

    def test_thousands_are_written_and_deleted_in_one_call(self) -> None:
        with self.graph() as graph:
            number = 3000
            graph.upsert_entities([_node(key) for key in range(1, number + 1)])
            graph.upsert_relations([_edge(1, key, support=key) for key in range(2, number + 1)])
            assert graph.counts() == (number, number - 1)
            assert len(graph.touching(range(1, number + 1))) == number - 1
            assert len(graph.relations(1, number)) == number - 1
            nodes, edges = graph.neighbours(1, limit=5)
            assert _keys(nodes) == [*range(number, number - 5, -1)]
            assert len(edges) == 5
            graph.delete_relations([(1, "related to", key) for key in range(2, number - 99)])
            assert graph.counts() == (number, 100)
            graph.delete_entities(range(2, number + 1))
            assert graph.counts() == (1, 0)

    def test_values_that_no_store_can_hold_are_refused(self) -> None:
        with self.graph() as graph:
            for entity in (EntityNode(1 << 63, "x", "", 1), EntityNode(1, "\ud800", "", 1)):
                assert_raises(InvalidInputError, lambda entity=entity: graph.upsert_entities([entity]))
            assert graph.counts() == (0, 0)

    def test_graphs_know_nothing_of_each_other(self) -> None:
        with self.graph() as one, self.graph() as other:
            _fill(one, _edge(1, 2))
            assert other.counts() == (0, 0)
            other.delete_entities([1])
            assert one.counts() == (2, 1)

    def test_a_reopened_graph_is_the_same_until_it_is_created_again(self) -> None:
        with self.name() as name:
            graph = self.open_graph(name)
            graph.create()
            _fill(graph, _edge(1, 2))
            graph.close()
            graph = self.open_graph(name)
            assert graph.counts() == (2, 1)
            graph.create()
            assert graph.counts() == (0, 0)
            graph.drop()
            graph.drop()
            graph.close()

    def test_the_version_grows_with_every_change_and_is_kept_with_the_graph(self) -> None:
        with self.name() as name:
            graph = self.open_graph(name)
            graph.create()
            versions = [graph.version()]
            for change in (
                lambda: graph.upsert_entities([_node(1), _node(2)]),
                lambda: graph.upsert_relations([_edge(1, 2)]),
                lambda: graph.delete_relations([(1, "related to", 2)]),
                lambda: graph.delete_entities([2]),
            ):
                change()
                versions.append(graph.version())
            assert versions == sorted(set(versions))
            graph.get([1])
            graph.neighbours(1)
            graph.close()
            graph = self.open_graph(name)
            assert graph.version() == versions[-1]
            graph.close()

    def test_a_graph_that_is_gone_is_damage_and_is_not_made_by_writing(self) -> None:
        with self.graph() as graph:
            _fill(graph, _edge(1, 2))
            graph.drop()
            for act in (
                graph.version,
                graph.counts,
                lambda: graph.get([1]),
                lambda: graph.neighbours(1),
                lambda: graph.touching([1]),
                lambda: graph.relations(1, 2),
                lambda: graph.upsert_entities([_node(1)]),
                lambda: graph.upsert_relations([_edge(1, 2)]),
                lambda: graph.delete_relations([(1, "related to", 2)]),
                lambda: graph.delete_entities([1]),
                graph.version,
            ):
                assert_raises(IndexDamagedError, act)

    def test_a_server_that_is_away_is_no_damage(self) -> None:
        if not self.unreachable:
            return
        graph = self.open_graph("contract_nowhere", url=self.unreachable)
        error = assert_raises(StoreUnavailableError, graph.counts)
        assert error.advice, "An error says what to do next."
        assert_raises(StoreUnavailableError, lambda: graph.neighbours(1))
        assert_raises(StoreUnavailableError, lambda: graph.upsert_entities([_node(1)]))
        graph.close()

    def test_questions_are_answered_while_the_graph_is_written(self) -> None:
        with self.graph() as graph:
            _fill(graph, *(_edge(1, key) for key in range(2, 50)))
            failures: list[BaseException] = []

            def ask() -> None:
                try:
                    for _ in range(20):
                        assert len(graph.neighbours(1, limit=10)[0]) == 10
                except BaseException as error:  # noqa: BLE001 - asserted below, in the test's own thread
                    failures.append(error)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for start in range(50, 250, 50):
                _fill(graph, *(_edge(1, key) for key in range(start, start + 50)))
            for thread in threads:
                thread.join()
            assert failures == []
            assert graph.counts() == (249, 248)


class _Model:
    """The same in the plainest way."""

    def __init__(self) -> None:
        self.entities: dict[int, EntityNode] = {}
        self.relations: dict[tuple[int, str, int], EntityEdge] = {}

    def compare(self, graph: GraphStore, dice: random.Random) -> None:
        """Assert that a graph holds the same, at some places."""
        assert graph.counts() == (len(self.entities), len(self.relations))
        one, other = dice.randint(1, 25), dice.randint(1, 25)
        known = [self.entities[key] for key in sorted({one, other}) if key in self.entities]
        assert graph.get([one, other, 1000]) == known
        hops, limit = dice.randint(1, 3), dice.randint(1, 6)
        nodes, edges = graph.neighbours(one, hops=hops, limit=limit)
        members = self._rings(one, hops=hops, limit=limit) if one in self.entities else []
        assert nodes == [self.entities[key] for key in members]
        among = [each for each in self.relations.values() if {each.subject, each.object} <= {one, *members}]
        assert edges == sorted(among, key=_strength)
        ends = {one, other}
        touching = [each for each in self.relations.values() if ends & {each.subject, each.object}]
        assert sorted(graph.touching(ends), key=repr) == sorted(touching, key=repr)

    def _rings(self, key: int, *, hops: int, limit: int) -> list[int]:
        met, ring = [key], [key]
        for _ in range(hops):
            support: defaultdict[int, int] = defaultdict(int)
            for member in ring:
                for other, count in self._around(member).items():
                    if other not in met:
                        support[other] += count
            ring = sorted(support, key=lambda other: (-support[other], other))[:limit]
            met += ring
        return met[1:]

    def _around(self, key: int) -> dict[int, int]:
        support: defaultdict[int, int] = defaultdict(int)
        for each in self.relations.values():
            if key in (each.subject, each.object):
                support[each.object if each.subject == key else each.subject] += each.support
        return support


def _change(graph: GraphStore, model: _Model, dice: random.Random) -> None:
    """Make a change at random, in both."""
    match dice.randint(1, 6):
        case 1 | 2:
            nodes = [
                EntityNode(
                    dice.randint(1, 25),
                    dice.choice(_STRANGE_NAMES),
                    dice.choice(["", "类"]),
                    dice.randint(0, 9),
                )
                for _ in range(dice.randint(1, 8))
            ]
            graph.upsert_entities(nodes)
            model.entities |= {each.key: each for each in nodes}
        case 3 | 4 if model.entities:
            known = list(model.entities)
            edges = [
                _edge(
                    dice.choice(known),
                    dice.choice(known),
                    dice.choice(["related to", "属于", "", "it's"]),
                    support=dice.randint(1, 9),
                    confidence=dice.random(),
                )
                for _ in range(dice.randint(1, 12))
            ]
            graph.upsert_relations(edges)
            model.relations |= {_identity(each): each for each in edges}
        case 5:
            gone = [dice.randint(1, 30) for _ in range(2)]
            graph.delete_entities(gone)
            model.entities = {key: each for key, each in model.entities.items() if key not in gone}
            model.relations = {
                identity: each
                for identity, each in model.relations.items()
                if identity[0] not in gone and identity[2] not in gone
            }
        case _ if model.relations:
            lost = dice.choices(list(model.relations), k=2)
            graph.delete_relations(lost)
            for identity in lost:
                model.relations.pop(identity, None)
        case _:
            pass


def _node(key: int) -> EntityNode:
    return EntityNode(key, f"实体{key}", "thing", 1)


def _edge(
    subject: int, object_: int, predicate: str = "related to", *, support: int = 1, confidence: float = 0.5
) -> EntityEdge:
    return EntityEdge(subject, predicate, object_, support, confidence)


def _fill(graph: GraphStore, *edges: EntityEdge) -> None:
    keys = sorted({end for each in edges for end in (each.subject, each.object)})
    graph.upsert_entities([_node(key) for key in keys])
    graph.upsert_relations(edges)


def _keys(nodes: Sequence[EntityNode]) -> list[int]:
    return [each.key for each in nodes]


def _identity(edge: EntityEdge) -> tuple[int, str, int]:
    return edge.subject, edge.predicate, edge.object


def _strength(edge: EntityEdge) -> tuple[float, float, int, int, str]:
    return -edge.support, -edge.confidence, edge.subject, edge.object, edge.predicate
