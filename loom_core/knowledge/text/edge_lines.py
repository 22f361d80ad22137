"""Lines at the edges of a document, as hashes by which documents that begin or end alike find each other."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = ["EdgeLine", "edge_lines", "is_boilerplate", "is_repeated"]

_EDGE = 20  # lines at the beginning of a document, and as many at its end
_SAMPLE = 16  # lines between them
_SAMPLED = 12  # characters; shorter lines, such as `else:`, are in any document
_BYTES = 6  # of a hash
_MOSTLY = 0.75  # share of a passage's characters; up to here the rest is content in manuals and source code
_COPIED = 0.5  # share of a document's characters


class EdgeLine(NamedTuple):
    """A line of a document.

    Attributes:
        line: its hash.
        length: its length in characters.
        edge: whether it is at the beginning or the end; else it is in the sample of the lines between them.
    """

    line: int
    length: int
    edge: bool


def edge_lines(text: str) -> list[EdgeLine]:
    """Return the different lines at the edges of a text, and a sample of the others.

    Case and spaces make no difference, and lines without a letter or digit do not count. Documents that share
    lines between their edges have the same of these lines in their samples (bottom-k sketch).
    """
    lines = text.split("\n")
    first, above = _read_some(lines)
    last, below = _read_some(reversed(lines))
    between = {line.strip() for line in lines[above : len(lines) - below]}
    ranked = sorted(
        (crc32(line.encode("utf-8", "replace")), line) for line in between if len(line) >= _SAMPLED
    )
    sample = [line for _, line in ranked[:_SAMPLE]]
    found = {_hash(line): EdgeLine(_hash(line), len(line), edge=False) for line in _normalise_all(sample)}
    found |= {_hash(line): EdgeLine(_hash(line), len(line), edge=True) for line in (*first, *last)}
    return list(found.values())


def is_repeated(lines: Collection[EdgeLine], repeated: Collection[int]) -> bool:
    """Whether a document itself is repeated, such as in versions of a manual, and not only its edges."""
    shared = sum(line.length for line in lines if line.line in repeated)
    return shared > _COPIED * sum(line.length for line in lines)


def is_boilerplate(passage: str, repeated: Collection[int]) -> bool:
    """Whether at least three quarters of a passage's text are in repeated lines, given by their hashes."""
    shared, own, most = 0, 0, (1 - _MOSTLY) * len(passage)
    for line in _normalise_all(passage.split("\n")):
        if _hash(line) in repeated:
            shared += len(line)
        elif (own := own + len(line)) > most:
            return False
    return shared > 0 and shared >= _MOSTLY * (shared + own)


def _read_some(lines: Iterable[str]) -> tuple[list[str], int]:
    """Return the first lines that count, normalised, and how many lines were read for them."""
    found: list[str] = []
    read = 0
    for line in lines:
        if len(found) == _EDGE:
            break
        read += 1
        found += _normalise_all([line])
    return found, read


def _normalise_all(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that count, without differences of case and spaces."""
    return (" ".join(line.casefold().split()) for line in lines if any(map(str.isalnum, line)))


def _hash(line: str) -> int:
    return int.from_bytes(blake2b(line.encode("utf-8", "replace"), digest_size=_BYTES).digest())
