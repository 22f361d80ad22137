"""Flat arrays of the link index, mapped from files: a list of links for each entity."""

from __future__ import annotations

import json
import mmap
import zlib
from typing import TYPE_CHECKING, Any, Literal, get_args

from loom_core.errors import IndexDamagedError, StoreError
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.store.mentions import EntityLinks

__all__ = ["ArrayName", "LinkArrays", "LinkKind", "LinkWriter"]

ArrayName = Literal[
    "entities",
    "mention_ends",
    "mentions",
    "mention_confidences",
    "about_ends",
    "abouts",
    "about_confidences",
    "canonicals",
    "members",
    "chunks",
    "documents",
    "boilerplate",
]
"""Arrays, of 8 bytes a value in the byte order of the machine.

`entities` are in ascending order. The links of the entity at n end at `mention_ends[n]` of `mentions` and
`mention_confidences`, and begin where those of the one before it end; see `EntityLinks`. `members` of groups
are in the order of their canonical entities and then of their own keys, without the canonical ones;
`documents` are those of `chunks`, in ascending order.
"""

LinkKind = Literal["mentions", "abouts"]
_STATE = "state.json"
_KINDS: dict[LinkKind, tuple[ArrayName, ArrayName, ArrayName]] = {
    "mentions": ("mention_ends", "mentions", "mention_confidences"),
    "abouts": ("about_ends", "abouts", "about_confidences"),
}


class LinkArrays:
    """Arrays of a complete folder. All processes share their pages.

    Args:
        folder: where `LinkWriter` wrote them.

    Raises:
        IndexDamagedError: files are missing, or of another size.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._state: dict[str, list[int]] = json.loads((folder / _STATE).read_text(encoding="ascii"))
            self._arrays: dict[ArrayName, NDArray[Any]] = {
                name: self._map(name) for name in get_args(ArrayName)
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexDamagedError(
                f"The links at {folder} cannot be read: {error}.", advice=REBUILD_ADVICE
            ) from error

    def __getitem__(self, name: ArrayName) -> NDArray[Any]:
        """Return an array."""
        return self._arrays[name]

    def verify(self) -> None:
        """Compare the files with their checksums; reads all of them.

        Raises:
            IndexDamagedError: a file was changed.
        """
        for name, array in self._arrays.items():
            if zlib.crc32(array.data) != self._state[name][1]:
                raise IndexDamagedError(f"{self._folder / name} has changed.", advice=REBUILD_ADVICE)

    def links(
        self, entities: Sequence[int], kind: LinkKind, *, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return the first links of some entities, at most `limit` of each.

        Args:
            entities: their keys; unknown ones have no links.
            kind: mentions, or passages that are about them.
            limit: maximum number for each.

        Returns:
            Chunks and confidences of all in one, and where those of each entity end.
        """
        import numpy as np

        ends, chunks, confidences = (self._arrays[name] for name in _KINDS[kind])
        places = self.places("entities", entities)
        known = places >= 0
        first, last = np.zeros_like(places), np.zeros_like(places)
        last[known] = ends[places[known]]
        later = places > 0
        first[later] = ends[places[later] - 1]
        count = np.minimum(last - first, limit)
        stop = np.cumsum(count)
        rows: NDArray[np.int64] = np.repeat(first - (stop - count), count)
        rows += np.arange(len(rows))
        return chunks[rows], confidences[rows], stop

    def places(self, name: ArrayName, keys: Sequence[int]) -> NDArray[np.int64]:
        """Return the place of each key in an array of ascending keys, or -1."""
        import numpy as np

        array, wanted = self._arrays[name], np.array(keys, dtype=np.int64)
        if not len(array):
            return np.full(len(wanted), -1)
        at = np.minimum(np.searchsorted(array, wanted), len(array) - 1)
        return np.where(array[at] == wanted, at, -1)

    def members(self, canonicals: Sequence[int]) -> list[list[int]]:
        """Return the other members of the group of each of some canonical entities."""
        import numpy as np

        groups, members = self._arrays["canonicals"], self._arrays["members"]
        first, last = (np.searchsorted(groups, canonicals, side=side).tolist() for side in ("left", "right"))
        return [members[a:b].tolist() if a < b else [] for a, b in zip(first, last, strict=True)]

    def _map(self, name: ArrayName) -> NDArray[Any]:
        import numpy as np

        dtype = np.float64 if name.endswith("confidences") else np.int64
        size = self._state[name][0]
        with (self._folder / name).open("rb") as file:
            if file.seek(0, 2) != size:
                raise ValueError(f"{name} is not of {size} bytes")
            if not size:  # cannot be mapped
                return np.zeros(0, dtype=dtype)
            return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), dtype=dtype)


class LinkWriter:
    """Writes the arrays of a new folder, entities in the order of their keys.

    Args:
        folder: does not exist yet.

    Raises:
        StoreError: by any method: the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[ArrayName, tuple[int, int]] = dict.fromkeys(get_args(ArrayName), (0, 0))
        self._ends = dict.fromkeys(_KINDS, 0)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise self._translate(error) from error

    def add(self, entities: Sequence[int], links: Sequence[EntityLinks]) -> None:
        """Append entities with their links."""
        import numpy as np

        self.append({"entities": np.array(entities, dtype=np.int64)})
        for kind, (ends, *names) in _KINDS.items():
            counts, *columns = _columns(links, kind)
            self.append({ends: np.cumsum(counts) + self._ends[kind]})
            self.append(dict(zip(names, columns, strict=True)))
            self._ends[kind] += int(counts.sum())

    def merge(self, old: LinkArrays, changed: Mapping[int, EntityLinks]) -> None:
        """Write the entities of another folder, with the links of some replaced or added."""
        import numpy as np

        fresh = {key: changed[key] for key in sorted(changed) if any(columns[0] for columns in changed[key])}
        keep = np.flatnonzero(~np.isin(old["entities"], np.array(list(changed), dtype=np.int64)))
        keys = np.concatenate([old["entities"][keep], np.array(list(fresh), dtype=np.int64)])
        order = np.argsort(keys)
        self.append({"entities": keys[order]})
        for kind, (ends, *names) in _KINDS.items():
            counts, *columns = _columns(fresh.values(), kind)
            lengths = np.diff(old[ends], prepend=0)
            count = np.concatenate([lengths[keep], counts])[order]
            first = [(old[ends] - lengths)[keep], np.cumsum(counts) - counts + len(old[names[0]])]
            end = np.cumsum(count)
            rows: NDArray[np.int64] = np.repeat(np.concatenate(first)[order] - (end - count), count)
            rows += np.arange(len(rows))
            self.append({ends: end})
            for name, column in zip(names, columns, strict=True):
                self.append({name: np.concatenate([old[name], column])[rows]})

    def append(self, arrays: Mapping[ArrayName, NDArray[Any]]) -> None:
        """Append values to arrays."""
        for name, array in arrays.items():
            data = array.tobytes()
            size, checksum = self._written[name]
            try:
                with (self._folder / name).open("ab") as file:
                    file.write(data)
            except OSError as error:
                raise self._translate(error) from error
            self._written[name] = size + len(data), zlib.crc32(data, checksum)

    def finish(self) -> LinkArrays:
        """Complete the folder, and open it. What the disk loses in a power failure is found by checksums."""
        import numpy as np

        self.append({name: np.zeros(0, np.int64) for name in get_args(ArrayName)})  # every file is there
        fresh = self._folder / f"{_STATE}.new"
        try:
            fresh.write_text(json.dumps(self._written), encoding="ascii")
            fresh.replace(self._folder / _STATE)
        except OSError as error:
            raise self._translate(error) from error
        return LinkArrays(self._folder)

    def _translate(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self._folder}: {error.strerror}.", advice="Check that the disk has room and may be written to."
        )


def _columns(
    links: Collection[EntityLinks], kind: LinkKind
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return how many links of a kind each entity has, and the chunks and confidences of all."""
    import numpy as np

    chunks, confidences = (
        [value for each in links for value in getattr(each, kind)[column]] for column in range(2)
    )
    counts = [len(getattr(each, kind)[0]) for each in links]
    return np.array(counts, np.int64), np.array(chunks, np.int64), np.array(confidences, np.float64)
