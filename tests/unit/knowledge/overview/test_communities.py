"""Communities of small graphs whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from loom_core.knowledge.overview.communities import WeightedGraph, find_communities


def graph(count: int, *edges: tuple[int, int, float]) -> WeightedGraph:
    one, other, weights = zip(*edges, strict=True) if edges else ((), (), ())
    return WeightedGraph(np.array(one, np.int64), np.array(other, np.int64), np.array(weights, float), count)


def clique(first: int, size: int, weight: float = 1.0) -> list[tuple[int, int, float]]:
    nodes = range(first, first + size)
    return [(a, b, weight) for a in nodes for b in nodes if a < b]


def groups(found: np.ndarray) -> list[list[int]]:
    return sorted(np.flatnonzero(found == number).tolist() for number in np.unique(found))


def test_cliques_that_an_edge_joins_are_communities():
    edges = [*clique(0, 6), *clique(6, 6), *clique(12, 6), (5, 6, 1.0), (11, 12, 1.0)]
    assert groups(find_communities(graph(18, *edges))) == [
        list(range(6)),
        list(range(6, 12)),
        list(range(12, 18)),
    ]


def test_the_weight_of_edges_decides():
    heavy = [(0, 1, 9.0), (2, 3, 9.0), (0, 2, 1.0), (1, 3, 1.0)]
    assert groups(find_communities(graph(4, *heavy))) == [[0, 1], [2, 3]]
    turned = [(0, 1, 1.0), (2, 3, 1.0), (0, 2, 9.0), (1, 3, 9.0)]
    assert groups(find_communities(graph(4, *turned))) == [[0, 2], [1, 3]]


def test_a_node_without_edges_is_a_community_of_its_own():
    assert groups(find_communities(graph(5, *clique(0, 3)))) == [[0, 1, 2], [3], [4]]
    assert groups(find_communities(graph(2))) == [[0], [1]]
    assert find_communities(graph(0)).tolist() == []


def test_a_ring_of_cliques_is_found_at_every_size():
    for count in (4, 10, 25):
        edges = [edge for number in range(count) for edge in clique(5 * number, 5)]
        edges += [(5 * number + 4, 5 * ((number + 1) % count), 1.0) for number in range(count)]
        found = find_communities(graph(5 * count, *edges), resolution=2.0)
        assert len(np.unique(found)) == count
        assert all(len(set(found[5 * n : 5 * n + 5].tolist())) == 1 for n in range(count))


def test_a_higher_resolution_gives_more_communities():
    random = np.random.default_rng(3)
    edges = {
        tuple(sorted(pair)) for pair in random.integers(0, 300, (1500, 2)).tolist() if pair[0] != pair[1]
    }
    made = graph(300, *((a, b, 1.0) for a, b in sorted(edges)))
    counts = [len(np.unique(find_communities(made, resolution=r))) for r in (0.3, 1.0, 4.0)]
    assert counts[0] < counts[1] < counts[2]


def test_the_same_graph_has_the_same_communities():
    random = np.random.default_rng(5)
    pairs = random.integers(0, 200, (900, 2))
    made = graph(200, *((a, b, 1.0) for a, b in pairs.tolist() if a != b))
    assert find_communities(made).tolist() == find_communities(made).tolist()


def test_a_subgraph_is_numbered_in_order():
    made = graph(5, (0, 1, 1.0), (1, 2, 2.0), (2, 4, 3.0), (3, 4, 4.0))
    part = made.within(np.array([False, True, True, False, True]))
    assert (part.count, part.one.tolist(), part.other.tolist(), part.weights.tolist()) == (
        3,
        [0, 1],
        [1, 2],
        [2.0, 3.0],
    )


@pytest.mark.parametrize("count", [1, 7])
def test_communities_are_numbered_from_zero(count):
    found = find_communities(graph(count, *clique(0, count)))
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))
