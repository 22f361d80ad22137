"""Stored documents: restore them as drafts, to chunk and extract from again, or to export."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import load_bytes
from loom_core.knowledge.model import Block, DocumentDraft, TitleSource
from loom_core.knowledge.store.prepared_documents import block_rows, blocks_of_rows, decode_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from loom_core.storage.sql import SQLDatabase, SQLRow

__all__ = [
    "draft_of_row",
    "iterate_drafts",
    "iterate_uris",
    "load_draft",
    "pack_draft",
    "unpack_draft",
]

_COLUMNS = "key, uri, text, length, title, title_source, mime, metadata, blocks"
_PAGE = 500


def load_draft(database: SQLDatabase, uri: str) -> DocumentDraft | None:
    """Return the draft of the document at a URI, or None if there is none. Blocks.

    Raises:
        DocumentError: its text in the store is damaged.
    """
    row = database.row(f"SELECT {_COLUMNS} FROM documents WHERE uri = ?", (uri,))
    return None if row is None else _draft(database, row)


def iterate_drafts(database: SQLDatabase) -> Iterable[tuple[str, DocumentDraft | DocumentError]]:
    """Yield every document's URI with its draft, or with the error that prevents it, oldest first."""
    after = 0
    while rows := database.rows(
        f"SELECT {_COLUMNS} FROM documents WHERE key > ? ORDER BY key LIMIT ?", (after, _PAGE)
    ):
        for row in rows:
            try:
                yield row["uri"], _draft(database, row)
            except DocumentError as error:
                yield row["uri"], error
        after = rows[-1]["key"]


def iterate_uris(database: SQLDatabase) -> Iterable[tuple[str, int]]:
    """Yield every document's URI and length, oldest first."""
    after = 0
    while rows := database.rows(
        "SELECT key, uri, length FROM documents WHERE key > ? ORDER BY key LIMIT ?", (after, _PAGE)
    ):
        yield from ((row["uri"], row["length"]) for row in rows)
        after = rows[-1]["key"]


def pack_draft(draft: DocumentDraft) -> dict[str, object]:
    """Return a draft as a JSON object, for `unpack_draft`."""
    return {
        "uri": draft.uri,
        "text": draft.text,
        "title": draft.title,
        "title_source": draft.title_source,
        "mime": draft.mime,
        "metadata": draft.metadata,
        "blocks": block_rows(draft.blocks),
    }


def unpack_draft(fields: dict[str, Any]) -> DocumentDraft:
    """Restore a draft from what `pack_draft` returned.

    Raises:
        DocumentError: the fields are invalid.
    """
    try:
        text, title, mime, uri = (fields[name] for name in ("text", "title", "mime", "uri"))
        if not all(isinstance(value, str) for value in (text, title, mime, uri)):
            raise TypeError("a text was expected")
        if fields["title_source"] not in get_args(TitleSource):
            raise ValueError(f"{fields['title_source']!r} is not a source of titles")
        return DocumentDraft(
            uri=uri,
            text=text,
            title=title,
            title_source=fields["title_source"],
            blocks=blocks_of_rows(fields["blocks"], length=len(text)),
            mime=mime,
            metadata=dict(fields["metadata"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(
            f"This is not a document packed by Loom: {type(error).__name__}: {error}.",
            advice="Export it again.",
        ) from error


def draft_of_row(row: SQLRow) -> DocumentDraft:
    """Restore the draft of a row of the table `documents`, of any format.

    Raises:
        DocumentError: its text is damaged.
    """
    try:
        text = zlib.decompress(row["text"]).decode()
        metadata = json.loads(row["metadata"])
        packed = row["blocks"] if "blocks" in row.keys() else None  # noqa: SIM118 - a Row, not a dict
        blocks = () if packed is None else decode_blocks(packed, length=len(text))
    except (zlib.error, TypeError, ValueError) as error:
        raise _damage_error(row["uri"], str(error)) from error
    if len(text) != row["length"]:
        raise _damage_error(row["uri"], "its length is wrong")
    return DocumentDraft(
        uri=row["uri"],
        text=text,
        title=row["title"],
        title_source=row["title_source"],
        blocks=blocks,
        mime=row["mime"],
        metadata=metadata,
    )


def _draft(database: SQLDatabase, row: SQLRow) -> DocumentDraft:
    draft = draft_of_row(row)
    return (
        draft
        if row["blocks"] is not None
        else replace(draft, blocks=_guess_blocks(database, row, draft.text))
    )


def _damage_error(uri: str, reason: str) -> DocumentError:
    return DocumentError(f"The text of {uri} in the store is damaged: {reason}.", advice="Add it again.")


def _guess_blocks(database: SQLDatabase, row: SQLRow, text: str) -> tuple[Block, ...]:
    """Reconstruct the structure of a document stored before version 2 of the schema, which has none.

    Parse the text again if that reproduces it, as with Markdown; else use the spans of its chunks, which keep
    pages and headings.
    """
    try:
        loaded = load_bytes(text.encode(), uri=row["uri"], name="", mime=row["mime"])
    except DocumentError:
        loaded = None
    if loaded is not None and loaded.text == text:
        return loaded.blocks
    blocks: list[Block] = []
    position = 0
    for chunk in database.rows(
        "SELECT start, end, kind, page, name, heading_path FROM chunks WHERE document = ? ORDER BY ordinal",
        (row["key"],),
    ):
        start = max(position, chunk["start"])
        position = min(chunk["end"], len(text))
        if text[start:position].strip():
            path = tuple(json.loads(chunk["heading_path"]))
            blocks.append(Block(chunk["kind"], start, position, path, 0, chunk["page"], chunk["name"]))
    return tuple(blocks)
