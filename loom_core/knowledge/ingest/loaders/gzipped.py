"""gzip (RFC 1952): a single compressed file, such as `changelog.gz`."""

from __future__ import annotations

import zlib
from pathlib import PurePath

__all__ = ["GZIP", "inner_path", "unpack", "unpack_head"]

GZIP = b"\x1f\x8b"
_WITH_HEADER = 31  # window bits that say: a gzip member
_MAX_MEMBERS = 1_000
"""Maximum number of members: real files have few, and many empty ones only take time."""


def inner_path(path: PurePath) -> PurePath:
    """Return the name of the uncompressed file: `a.txt.gz` → `a.txt`; any other name is unchanged."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def unpack(data: bytes, *, limit: int) -> bytes:
    """Decompress a whole file, stopping soon after a limit.

    Args:
        data: the file.
        limit: limit in bytes; the result is longer than this if there is more.

    Raises:
        ValueError: it is damaged or truncated, or has too many members.
    """
    pieces: list[bytes] = []
    length = 0
    for _ in range(_MAX_MEMBERS):
        member = zlib.decompressobj(_WITH_HEADER)
        try:
            pieces.append(member.decompress(data, limit + 1 - length))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        length += len(pieces[-1])
        if length > limit:
            break
        if not member.eof:
            raise ValueError("it ends in the middle")
        data = member.unused_data.lstrip(b"\0")  # padding
        if not data.startswith(GZIP):
            break
    else:
        raise ValueError(f"it has more than {_MAX_MEMBERS:,} members")
    return b"".join(pieces)


def unpack_head(data: bytes, *, limit: int) -> bytes:
    """Decompress the beginning of a file; empty if that fails."""
    try:
        return zlib.decompressobj(_WITH_HEADER).decompress(data, limit)
    except zlib.error:
        return b""
