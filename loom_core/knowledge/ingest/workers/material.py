"""What a document is made from: a file, or what somebody gave."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.loaders import load_bytes, load_file
from loom_core.knowledge.ingest.loaders.registry import format_for
from loom_core.knowledge.ingest.stored_documents import unpacked_draft
from loom_core.knowledge.ingest.workers.fetched_page import is_fetched, load_fetched
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.uris import path_of

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.knowledge.ingest.loaders import LoadLimits

__all__ = ["Material", "draft_payload", "is_foreign", "loaded"]


@dataclass(frozen=True, slots=True)
class Material:
    """What one document is made from.

    Attributes:
        uri: of the document; a `file://` URI says where it is read from, if there is no payload.
        payload: a document as `draft_payload` packs it, a page as `Fetched` does, or None for a file.
        metadata: fields that are added to its own.
        known: hash of the document that the record has at this URI; the same again means nothing to do.
        size: about how many bytes it is.
        roots: real paths of folders; where given, no file outside them is read.
    """

    uri: str
    payload: bytes | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    known: bytes = b""
    size: int = 0
    roots: tuple[Path, ...] = ()


def draft_payload(draft: DocumentDraft) -> bytes:
    """A document as a job keeps it until it is in the record.

    Halves of surrogate pairs become question marks, and what JSON does not know in the metadata, text.
    """
    return json.dumps(
        {
            "text": draft.text,
            "title": draft.title,
            "title_source": draft.title_source,
            "mime": draft.mime,
            "metadata": draft.metadata,
        },
        ensure_ascii=False,
        default=str,
    ).encode("utf-8", "replace")


def loaded(material: Material, *, limits: LoadLimits) -> DocumentDraft:
    """Read a document. Blocks.

    Raises:
        DocumentError: it cannot be read.
    """
    if material.payload is None:
        draft = load_file(path_of(material.uri), limits=limits, roots=material.roots)
    elif is_fetched(material.payload):
        draft = load_fetched(material.uri, material.payload, limits=limits)
    else:
        draft = _unpacked(material.uri, material.payload)
    if not material.metadata:
        return draft
    return replace(draft, metadata={**draft.metadata, **material.metadata})


def is_foreign(material: Material) -> bool:
    """Whether code that is not Loom's parses it, which may crash, hang or take all memory on a bad file."""
    if material.payload is not None:
        return is_fetched(material.payload)
    kind = format_for(path_of(material.uri))
    return kind is None or kind.is_foreign  # without a telling name it may be anything


def _unpacked(uri: str, payload: bytes) -> DocumentDraft:
    fields: dict[str, Any] = json.loads(payload)
    if "blocks" in fields:
        return unpacked_draft({**fields, "uri": uri})
    text: str = fields["text"]
    draft = load_bytes(text.encode(), uri=uri, name="", mime=fields["mime"])
    title = fields["title"]
    return DocumentDraft(
        uri,
        draft.text,
        title or draft.title,
        fields["title_source"] if title else draft.title_source,
        draft.blocks,
        fields["mime"],
        {**draft.metadata, **fields["metadata"]},
    )
