"""Undoing the compression of an answer piece by piece, never much at once."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from loom_core.errors import NetError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ACCEPTED", "Unpacking"]

ACCEPTED = "gzip, deflate"
"""What is asked for. Every server speaks these, and both are in the standard library."""

_UNPACKED = frozenset({"gzip", "x-gzip", "deflate"})
_PIECE = 256 << 10
_GZIP = zlib.MAX_WBITS | 16
_GZIP_MARK = b"\x1f"


class Unpacking:
    """Unpacks one answer.

    Args:
        coding: the `Content-Encoding`; empty for none.
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding.strip().lower()
        self._head = b""
        self._inflating: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What the next bytes unpack to, in pieces of bounded size.

        Raises:
            NetError: they are packed as was not asked for (also as several codings on top of each other), or
                not as the answer says.
        """
        if self._coding in {"", "identity"}:
            yield data
            return
        if self._coding not in _UNPACKED:
            raise NetError(
                f"The answer is packed as {self._coding[:40]!r}, which was not asked for.",
                advice="Download it with a browser and add the file.",
                failure="unusable",
            )
        if self._inflating is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._inflating = self._head, zlib.decompressobj(self._bits())
        more = False
        while data or more:
            if self._inflating.eof:
                if self._coding == "deflate" or not data.startswith(_GZIP_MARK):
                    return  # padding after the end
                self._inflating = zlib.decompressobj(_GZIP)  # a further member of the same answer
            try:
                piece = self._inflating.decompress(data, _PIECE)
            except zlib.error as error:
                raise _broken(str(error)) from error
            if piece:
                yield piece
            more = len(piece) == _PIECE  # there may be more inside, also without further bytes
            data = self._inflating.unused_data if self._inflating.eof else self._inflating.unconsumed_tail

    def finish(self) -> None:
        """Say that no more comes.

        Raises:
            NetError: the end is missing.
        """
        if self._head and (self._inflating is None or not self._inflating.eof):
            raise _broken("its end is missing")

    def _bits(self) -> int:
        """How to read what begins so: some servers leave out what the standard has around `deflate`."""
        if self._coding != "deflate":
            return _GZIP
        wrapped = self._head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(self._head[:2]) % 31 == 0
        return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS


def _broken(reason: str) -> NetError:
    return NetError(
        f"The answer cannot be unpacked: {reason}.", advice="Try again later.", failure="unusable"
    )
