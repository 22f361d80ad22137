"""A set of chunks, such as those that filters allow."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ChunkKeys"]


class ChunkKeys(AbstractSet[int]):
    """Keys of chunks in ascending order, 8 bytes each: there may be a million of them.

    It is a set for lookups of single keys, and an array for comparisons of all of them at once.

    Args:
        keys: the keys, in any order; duplicates are dropped.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._keys = array("q", sorted(set(keys)))

    @property
    def array(self) -> NDArray[np.int64]:
        """The keys as a read-only array."""
        import numpy as np

        return np.frombuffer(self._keys, dtype=np.int64)

    def first(self, count: int) -> list[int]:
        """Return the lowest of them, at most `count`."""
        return self._keys[:count].tolist()

    def places(self, keys: Sequence[int]) -> list[int]:
        """Return the positions in a list of the keys that are in this set; much faster than one by one."""
        import numpy as np

        mine, asked = self.array, np.array(keys, dtype=np.int64)
        if not len(mine):
            return []
        at = np.minimum(np.searchsorted(mine, asked), len(mine) - 1)
        return np.flatnonzero(mine[at] == asked).tolist()

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, int):
            return False
        place = bisect_left(self._keys, key)
        return place < len(self._keys) and self._keys[place] == key

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"ChunkKeys({self.first(10)}{'…' if len(self) > 10 else ''})"
