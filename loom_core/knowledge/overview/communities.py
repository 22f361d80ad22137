"""Communities of a weighted graph, by the Louvain method (Blondel et al., 2008) in numpy.

A random half of the nodes moves at a time, in place of one node after the other, so that a step is a few
sorts of all edges. The random numbers have a fixed seed: the same graph has the same communities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["WeightedGraph", "find_communities"]

_STEPS = 40  # at most, of moving nodes between communities
_SETTLED = 0.01  # share of the nodes that want to move, below which a step is calm
_CALM = 3  # calm steps in a row end the steps: each looks at half of the nodes
_SEED = 11


@dataclass(frozen=True, slots=True)
class WeightedGraph:
    """An undirected graph.

    Attributes:
        one: numbers of the first ends of the edges, shape (edges,); each edge is there once.
        other: those of the other ends.
        weights: of the edges, above 0.
        count: how many nodes there are, numbered from 0.
    """

    one: NDArray[np.int64]
    other: NDArray[np.int64]
    weights: NDArray[np.float64]
    count: int

    def within(self, nodes: NDArray[np.bool_]) -> WeightedGraph:
        """Return the subgraph of some nodes, which are numbered by their order."""
        import numpy as np

        kept = nodes[self.one] & nodes[self.other]
        number = np.cumsum(nodes) - 1
        return WeightedGraph(
            number[self.one[kept]], number[self.other[kept]], self.weights[kept], int(nodes.sum())
        )


def find_communities(graph: WeightedGraph, *, resolution: float = 1.0) -> NDArray[np.int64]:
    """Return the community of each node, numbered from 0; a node without edges is a community of its own.

    Args:
        graph: the graph.
        resolution: above 1 for more and smaller communities, below 1 for fewer
            (Reichardt and Bornholdt, 2006).
    """
    import numpy as np

    random = np.random.default_rng(_SEED)
    communities = np.arange(graph.count)
    # Both directions, so that the edges of a node are those that begin at it.
    one = np.concatenate([graph.one, graph.other]).astype(np.int64)
    other = np.concatenate([graph.other, graph.one]).astype(np.int64)
    weights = np.concatenate([graph.weights, graph.weights])
    count = graph.count
    while True:
        moved = _move_nodes(one, other, weights, count, resolution, random)
        found = int(moved.max()) + 1 if count else 0
        communities = moved[communities]
        if found == count:
            return communities
        # Each community becomes a node, and its inner edges a loop.
        pairs, place = np.unique(moved[one] * found + moved[other], return_inverse=True)
        weights = np.bincount(place, weights).astype(np.float64)
        one, other, count = pairs // found, pairs % found, found


def _move_nodes(
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    weights: NDArray[np.float64],
    count: int,
    resolution: float,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Move nodes to the neighbouring community that raises modularity most, until few want to move."""
    import numpy as np

    degree = np.bincount(one, weights, count).astype(np.float64)
    share = resolution / max(float(degree.sum()), 1e-12)
    beyond = one != other  # a loop moves with its node
    one, other, weights = one[beyond], other[beyond], weights[beyond]
    community = np.arange(count)
    calm = 0
    for _ in range(_STEPS):
        awake = random.random(count) < 0.5
        edges = awake[one]
        if not edges.any():
            continue
        towards = one[edges] * count + community[other[edges]]
        order = np.argsort(towards)
        first = _first_of_runs(towards[order])
        node, target = np.divmod(towards[order[first]], count)
        total = np.bincount(community, degree, count)
        stays = community[node] == target
        gain = np.add.reduceat(weights[edges][order], first)
        gain -= share * degree[node] * (total[target] - np.where(stays, degree[node], 0.0))
        now = -share * degree * (total[community] - degree)  # where none of its neighbours is
        now[node[stays]] = gain[stays]
        of_node = _first_of_runs(node)
        most = np.repeat(np.maximum.reduceat(gain, of_node), np.diff(of_node, append=len(node)))
        best = np.flatnonzero(gain == most)
        best = best[_first_of_runs(node[best])]
        best = best[gain[best] > now[node[best]] + 1e-12]
        community[node[best]] = target[best]
        calm = calm + 1 if len(best) <= _SETTLED * count / 2 else 0
        if calm == _CALM:
            break
    return np.unique(community, return_inverse=True)[1]


def _first_of_runs(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each run of equal values begins."""
    import numpy as np

    return np.flatnonzero(np.diff(values, prepend=values[0] - 1))
