"""Wire protocol of parent and children: frames of JSON, which hold data only.

A child that a hostile file has taken over can send anything, but the worst it can do is to falsify that
file's document, as the parent executes nothing that it reads.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic_core import from_json, to_json

from loom_core.knowledge.model import Chunk
from loom_core.knowledge.store.prepared_documents import (
    AboutColumns,
    AliasColumns,
    ExtractionColumns,
    ItemOutcome,
    JobItem,
    MentionColumns,
    PreparedChunk,
    PreparedDocument,
    RelationColumns,
)

if TYPE_CHECKING:
    from io import BufferedReader

    from loom_core.knowledge.store.prepared_documents import Prepared


__all__ = [
    "FrameReader",
    "decode_item",
    "decode_prepared",
    "encode_item",
    "encode_prepared",
    "json_frame",
    "read_frame",
    "write_frame",
]

_LENGTH = struct.Struct(">I")
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_PIPE = 64 << 10  # usual capacity of a pipe
# Prefix of the frame of a document. Such a frame is valid UTF-8, and so large that it is parsed by Pydantic's
# JSON parser, several times as fast; reasons of failures may hold file names that are not UTF-8.
_DOCUMENT = b'["document",'


class FrameReader:
    """Reads all available frames at a time, as each wait costs a context switch."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self._held = bytearray()

    def read(self) -> list[bytes]:
        """Read at least one frame; waits for it.

        Raises:
            EOFError: the other side is gone.
        """
        while not (frames := self._whole()):
            data = self._stream.read1(_PIPE)
            if not data:
                raise EOFError
            self._held += data
        return frames

    def _whole(self) -> list[bytes]:
        """Take the complete frames out of the buffer."""
        frames: list[bytes] = []
        start = 0
        with memoryview(self._held) as held:
            while len(held) - start >= _LENGTH.size:
                end = start + _LENGTH.size + _LENGTH.unpack_from(held, start)[0]
                if end > len(held):
                    break
                frames.append(bytes(held[start + _LENGTH.size : end]))
                start = end
        del self._held[:start]
        return frames


def write_frame(stream: BinaryIO, *parts: bytes) -> None:
    """Write byte strings as frames: each with its length before it.

    Raises:
        OSError: the other side is gone.
    """
    stream.write(b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part)))
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes:
    """Read one frame.

    Raises:
        EOFError: the other side is gone.
    """
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(length)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def json_frame(value: object) -> bytes:
    """Encode a value as JSON."""
    return _as_json(value).encode("utf-8", "surrogatepass")


def encode_item(item: JobItem) -> tuple[bytes, bytes]:
    """Encode an item as two frames."""
    described = [
        item.uri,
        item.metadata,
        item.known.hex(),
        item.payload is not None,
        list(map(str, item.roots)),
    ]
    return json_frame(described), item.payload or b""


def decode_item(described: bytes, payload: bytes) -> JobItem:
    """Decode an item from its two frames."""
    uri, metadata, known, is_given, roots = json.loads(described.decode("utf-8", "surrogatepass"))
    given = payload if is_given else None
    return JobItem(uri, given, metadata, bytes.fromhex(known), roots=tuple(map(Path, roots)))


def encode_prepared(made: Prepared) -> bytes:
    """Encode the result of a preparation as a frame."""
    if isinstance(made, ItemOutcome):
        told = [made.hash.hex()] if made.state == "unchanged" else [made.reason, made.by_content]
        return json_frame([made.state, *told])
    head = [
        made.id,
        made.uri,
        made.title,
        made.title_source,
        made.mime,
        made.language,
        made.metadata,
        made.hash.hex(),
        made.length,
        b64encode(made.text).decode(),
        b64encode(made.blocks).decode(),
        made.fields,
    ]
    return to_json(["document", head, [_chunk_row(chunk) for chunk in made.chunks]])


def decode_prepared(frame: bytes) -> Prepared:
    """Decode the result of a preparation.

    Raises:
        ValueError: the frame is malformed.
    """
    try:
        if frame.startswith(_DOCUMENT):
            # Caching strings takes longer than creating them again.
            return _document(*from_json(frame, cache_strings=False)[1:])
        kind, *rest = json.loads(frame.decode("utf-8", "surrogatepass"))
        match kind:
            case "unchanged":
                return ItemOutcome("unchanged", hash=bytes.fromhex(rest[0]))
            case "failed":
                return ItemOutcome("failed", str(rest[0]), by_content=rest[1] is True)
            case _:
                raise ValueError(f"{kind!r} is not an answer")
    except (TypeError, IndexError) as error:
        raise ValueError(f"the answer is malformed: {error}") from error


def _chunk_row(prepared: PreparedChunk) -> list[object]:
    c = prepared.chunk
    return [
        prepared.id,
        prepared.hash.hex(),
        prepared.vector_hash.hex(),
        prepared.tokens,
        prepared.found,
        [c.text, c.start, c.end, c.heading_path, c.page, c.kind, c.name, c.language, c.keywords],
    ]


def _tuples(rows: list[list[Any]]) -> tuple[Any, ...]:
    return tuple(map(tuple, rows))


def _decode_findings(
    mentions: list[list[Any]], abouts: list[list[Any]], relations: list[list[Any]], aliases: list[list[Any]]
) -> ExtractionColumns:
    return ExtractionColumns(
        MentionColumns(*map(tuple, mentions)),
        AboutColumns(*map(tuple, abouts)),
        RelationColumns(*map(tuple, relations)),
        AliasColumns(*map(tuple, aliases)),
    )


def _document(head: list[Any], rows: list[Any]) -> PreparedDocument:
    id_, uri, title, title_source, mime, language, metadata, hash_, length, text, blocks, fields = head
    chunks: list[PreparedChunk] = []
    for chunk_id, chunk_hash, vector_hash, tokens, found, chunk in rows:
        written, start, end, heading_path, page, kind, name, chunk_language, keywords = chunk
        chunks.append(
            PreparedChunk(
                chunk_id,
                Chunk(
                    written,
                    start,
                    end,
                    title,
                    title_source,
                    tuple(heading_path),
                    page,
                    kind,
                    name,
                    chunk_language,
                    tuple(keywords),
                ),
                _decode_findings(*found),
                bytes.fromhex(chunk_hash),
                bytes.fromhex(vector_hash),
                tokens,
            )
        )
    return PreparedDocument(
        id_,
        uri,
        title,
        title_source,
        mime,
        language,
        metadata,
        bytes.fromhex(hash_),
        length,
        b64decode(text),
        b64decode(blocks),
        _tuples(fields),
        tuple(chunks),
    )
