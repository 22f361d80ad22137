"""Where the entities of a graph are drawn: near those they are related to, apart from all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["laid_out"]

_STEPS = 220
_CELLS = 192  # at the most, of the grid on which nodes push each other, in each direction
_PUSH, _GRAVITY = 2.0, 1.2  # away from all others, towards the middle, beside 1 for what an edge pulls
_PACE = 0.7  # how far a node follows what moves it in a step
_REACH = 0.1  # of the whole, how far it goes at the most in the first step
_SPACE = 26.0  # between a node and the next one, at the median
_SIZE = 15.0  # between any two at the least, where there is room
_ROUNDS = 30  # of making that room
_SEED = 11


def laid_out(count: int, edges: Sequence[tuple[int, int, float]]) -> NDArray[np.float32]:
    """Positions of nodes, the same for the same graph: 2 s for 5,000 nodes and 20,000 edges.

    Edges draw their ends together; each node pushes the others away, the more, the more edges it has
    (Jacomy et al., ForceAtlas2, 2014). What pushes is taken from a grid, by a Fourier transform, so that a
    step costs no more for pairs than for nodes. Nodes without edges stand around the others.

    Args:
        count: how many nodes there are.
        edges: numbers of two nodes, and a weight above 0.
    """
    import numpy as np

    positions = np.zeros((count, 2), np.float32)
    if count == 0:
        return positions
    ends = np.array([(a, b) for a, b, _ in edges], np.int64).reshape(-1, 2)
    weights = np.array([weight for _, _, weight in edges], np.float32)
    degree = np.bincount(ends.ravel(), minlength=count)
    joined = np.flatnonzero(degree)
    if len(joined):
        index = np.cumsum(degree > 0) - 1
        positions[joined] = _moved(index[ends], weights, degree[joined])
    alone = np.flatnonzero(degree == 0)
    radius = float(np.abs(positions).max()) + 2 * _SPACE if len(joined) else 0.0
    # In turns of a spiral that keeps its distance, as the seeds of a sunflower.
    turn = np.arange(len(alone), dtype=np.float32)
    distance = np.sqrt(radius**2 + turn * _SPACE**2 * 0.9)
    positions[alone, 0] = distance * np.cos(turn * 2.39996)
    positions[alone, 1] = distance * np.sin(turn * 2.39996)
    return positions


def _moved(
    ends: NDArray[np.int64], weights: NDArray[np.float32], degree: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Positions of nodes that all have edges."""
    import numpy as np

    count = len(degree)
    mass = (degree + 1).astype(np.float32)
    side = float(np.sqrt(count)) + 1  # about how far out the nodes come to stand
    positions = np.random.default_rng(_SEED).uniform(-side, side, (count, 2)).astype(np.float32)
    pushing = _Pushing(count)
    one, other = ends[:, 0], ends[:, 1]
    for step in range(_STEPS):
        speed = (_PUSH * side / float(mass.sum())) * pushing.on(positions, mass)
        speed -= _GRAVITY / side * positions
        apart = positions[other] - positions[one]
        length = np.sqrt((apart**2).sum(1)) + 1e-6
        # Logarithmic, so that clusters stay together and hubs do not swallow what is around them.
        pull = apart * (weights * np.log1p(length) / length)[:, None]
        for axis in (0, 1):
            speed[:, axis] += np.bincount(one, pull[:, axis], count) / mass
            speed[:, axis] -= np.bincount(other, pull[:, axis], count) / mass
        reach = _REACH * side * (1 - step / _STEPS) ** 1.5 + 0.01
        length = np.sqrt((speed**2).sum(1, keepdims=True)) + 1e-6
        positions += speed * np.minimum(_PACE, reach / length)
    return _apart(positions - np.median(positions, axis=0))


class _Pushing:
    """How nodes push each other away: by the mass of the other over the distance."""

    def __init__(self, count: int) -> None:
        import numpy as np

        self._cells = min(max(round(3 * count**0.5), 96), _CELLS)
        size = 2 * self._cells  # twice as wide: what leaves it on one side comes back on the other
        across = (np.arange(size, dtype=np.float64) + self._cells) % size - self._cells
        x, y = across[:, None], across[None, :]
        law = 1 / (x * x + y * y + 0.35)
        self._laws = np.fft.rfft2(x * law), np.fft.rfft2(y * law)

    def on(self, positions: NDArray[np.float32], mass: NDArray[np.float32]) -> NDArray[np.float32]:
        """What pushes each node."""
        import numpy as np

        cells = self._cells
        low, high = positions.min(0), positions.max(0)
        cell = float((high - low).max()) / (cells - 3) + 1e-6
        place = (positions - low) / cell + 1
        corner = place.astype(np.int64)
        part = (place - corner).astype(np.float32)
        # Each node is shared among the four corners of its cell, and gets its force from them likewise.
        shares = [
            (
                (corner[:, 0] + dx) * cells + corner[:, 1] + dy,
                np.abs(1 - dx - part[:, 0]) * np.abs(1 - dy - part[:, 1]),
            )
            for dx in (0, 1)
            for dy in (0, 1)
        ]
        density = np.zeros(cells * cells)
        for corner_, share in shares:
            density += np.bincount(corner_, mass * share, cells * cells)
        size = 2 * cells
        spread = np.fft.rfft2(density.reshape(cells, cells), (size, size))
        force = np.zeros_like(positions)
        for axis, law in enumerate(self._laws):
            field = np.fft.irfft2(spread * law, (size, size))[:cells, :cells].ravel() / cell
            for corner_, share in shares:
                force[:, axis] += share * field[corner_]
        return force


def _apart(positions: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same, with room for every node: none covers another."""
    import numpy as np

    count = len(positions)
    sample = positions[:: max(1, count // 200)]
    gaps = np.sqrt(((sample[:, None] - positions[None]) ** 2).sum(2))
    gaps[gaps < 1e-6] = np.inf  # itself
    positions = positions * (_SPACE / float(np.median(gaps.min(1))))
    for _ in range(_ROUNDS):
        one, other = _near(positions, _SIZE)
        between = positions[other] - positions[one]
        length = np.sqrt((between**2).sum(1)) + 1e-3
        close = length < _SIZE
        if not close.any():
            break
        one, other = one[close], other[close]
        push = between[close] * ((_SIZE - length[close]) / 2 / length[close])[:, None]
        for axis in (0, 1):
            positions[:, axis] -= np.bincount(one, push[:, axis], count)
            positions[:, axis] += np.bincount(other, push[:, axis], count)
    return positions


def _near(positions: NDArray[np.float32], reach: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of nodes that may be closer to each other than this, each once."""
    import numpy as np

    cells = np.floor((positions - positions.min(0)) / reach).astype(np.int64) + 1
    width = int(cells[:, 1].max()) + 2
    key = cells[:, 0] * width + cells[:, 1]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    nodes = np.arange(len(key))
    for step in (0, 1, width - 1, width, width + 1):  # half of the cells around; the others meet this one
        first = ordered.searchsorted(key + step, "left")
        last = ordered.searchsorted(key + step, "right")
        for ahead in range(int(np.max(last - first))):
            met = first + ahead < last
            one, other = nodes[met], order[(first + ahead)[met]]
            if step == 0:
                once = one < other
                one, other = one[once], other[once]
            pairs.append((one, other))
    return np.concatenate([one for one, _ in pairs]), np.concatenate([other for _, other in pairs])
