"""The structure of a document's text as the record and archives keep it."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, cast, get_args

from loom_core.knowledge.model import Block, BlockKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["block_rows", "blocks_of_rows", "decode_blocks", "encode_blocks"]

_KINDS = frozenset[str](get_args(BlockKind))


def block_rows(blocks: Iterable[Block]) -> list[list[object]]:
    """Blocks as JSON has them: kind, start, length, path, level, and where it has them page and name.

    A start counts from the end of the block before, which keeps numbers small.
    """
    rows: list[list[object]] = []
    position = 0
    for block in blocks:
        row: list[object] = [
            block.kind,
            block.start - position,
            block.end - block.start,
            list(block.path),
            block.level,
        ]
        rows.append([*row, block.page, block.name] if block.name or block.page is not None else row)
        position = block.end
    return rows


def blocks_of_rows(rows: object, *, length: int) -> tuple[Block, ...]:
    """Blocks from their rows.

    Args:
        rows: what `block_rows` gave.
        length: of the text, in code points.

    Raises:
        ValueError: they are no such rows, or do not lie one after the other in the text.
    """
    blocks: list[Block] = []
    position = 0
    try:
        for kind, gap, size, path, level, *rest in cast("Iterable[list[object]]", rows):
            page, name = rest or (None, "")
            if kind not in _KINDS or not (isinstance(gap, int) and isinstance(size, int)):
                raise ValueError(f"{kind!r} at {gap!r} is no block")
            if gap < 0 or size < 1 or position + gap + size > length:
                raise ValueError("a block lies outside of its text")
            if not (isinstance(path, list) and isinstance(level, int) and isinstance(name, str)):
                raise ValueError("a block is not described as it should be")
            if not (page is None or isinstance(page, int)):
                raise ValueError(f"{page!r} is no page")
            names = tuple(map(str, cast("list[object]", path)))
            start, position = position + gap, position + gap + size
            blocks.append(Block(cast("BlockKind", kind), start, position, names, level, page, name))
    except TypeError as error:
        raise ValueError(f"these are no blocks: {error}") from error
    return tuple(blocks)


def encode_blocks(blocks: Sequence[Block]) -> bytes:
    """Pack blocks: their rows as deflated JSON, a few bytes a block."""
    rows = block_rows(blocks)
    return zlib.compress(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode(), 1)


def decode_blocks(packed: bytes, *, length: int) -> tuple[Block, ...]:
    """Unpack blocks of a text of so many code points.

    Raises:
        ValueError: `encode_blocks` did not pack them, or not for this text.
    """
    try:
        return blocks_of_rows(json.loads(zlib.decompress(packed)), length=length)
    except zlib.error as error:
        raise ValueError(f"the structure of a text does not unpack: {error}") from error
