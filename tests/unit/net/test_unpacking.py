"""Compressed answers come out whole, in small pieces, or not at all."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import NetError
from loom_core.net.client import Unpacking

pytestmark = pytest.mark.hostile("HTTP answers")


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = {
    "": lambda data: data,
    "identity": lambda data: data,
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "deflate ": raw_deflate,
}


def unpack(coding: str, data: bytes, *, step: int = 1 << 20) -> bytes:
    unpacking = Unpacking(coding)
    pieces = [piece for i in range(0, len(data), step) for piece in unpacking.feed(data[i : i + step])]
    unpacking.finish()
    return b"".join(pieces)


@given(st.binary(max_size=300), st.sampled_from(sorted(PACKED)), st.integers(1, 50), st.integers(1, 3000))
def test_what_was_packed_comes_out_however_it_is_cut(data: bytes, coding: str, step: int, times: int) -> None:
    assert unpack(coding, PACKED[coding](data * times), step=step) == data * times


def test_several_members_and_padding_are_one_answer() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0" * 100
    for step in (1, 7, 1000):
        assert unpack("gzip", packed, step=step) == b"one two"
    assert unpack("deflate", zlib.compress(b"one") + b"junk") == b"one"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "deflate "])
def test_a_bomb_comes_out_in_small_pieces(coding: str) -> None:
    bomb = PACKED[coding](bytes(20 << 20))
    assert len(bomb) < 30_000
    pieces = list(Unpacking(coding).feed(bomb))
    assert max(map(len, pieces)) <= 256 << 10
    assert sum(map(len, pieces)) == 20 << 20


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip,deflate", "x" * 500])
def test_codings_that_were_not_asked_for_are_refused(coding: str) -> None:
    with pytest.raises(NetError, match="was not asked for"):
        unpack(coding, gzip.compress(gzip.compress(b"x")))
    assert unpack(coding, b"") == b""


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_broken_or_cut_answer_is_refused(coding: str) -> None:
    packed = PACKED[coding](b"The harbour is old. " * 50)
    for cut in (1, 5, len(packed) - 1):
        with pytest.raises(NetError, match="cannot be unpacked"):
            unpack(coding, packed[:cut])
    with pytest.raises(NetError, match="cannot be unpacked"):
        unpack(coding, packed[:2] + b"\xff" * 40)
