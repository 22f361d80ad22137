"""From a loaded document to what is written into the record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.knowledge.keywords import extract_chunk_keywords
from loom_core.knowledge.model import Extraction
from loom_core.knowledge.record import PreparedChunk, PreparedDocument
from loom_core.knowledge.text import analyse, detect_language, lookup_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import Chunker, Extractor
    from loom_core.knowledge.model import Chunk, DocumentDraft

__all__ = ["Pipeline", "document_id", "embedding_text", "index_tokens"]

_VERSION = "1"
_HEADINGS_SEEN = 200  # a heading in the first characters of a passage need not be repeated before it


def document_id(uri: str) -> str:
    """Public id of the document at a URI: the same for ever, and in every knowledge base."""
    return "d" + hashlib.sha256(uri.encode()).hexdigest()[:12]


def embedding_text(title: str, heading_path: Sequence[str], text: str) -> str:
    """What is embedded of a chunk: its title, the headings above it, and its text."""
    head = text[:_HEADINGS_SEEN]
    above = [name for name in (title, *heading_path) if name and name not in head]
    return "\n".join([*above, text])


def index_tokens(title: str, heading_path: Sequence[str], text: str) -> list[str]:
    """What is indexed of a chunk by words: the same text as is embedded.

    Beside the tokens that questions are made of there are those by which names are looked up, as far as
    they are others: `mcdonald` for `McDonald-Smith`, or a pair of characters with a mark between them.
    """
    whole = embedding_text(title, heading_path, text)
    tokens = analyse(whole)
    known = set(tokens)
    return tokens + [token for token in dict.fromkeys(lookup_tokens(whole)) if token not in known]


class Pipeline:
    """Cuts documents into chunks and finds what they hold.

    Args:
        chunker: cuts documents.
        chunker_id: name and settings of the chunker; with the extractor's it tells documents that were
            prepared in another way.
        extractor: finds entities and relations; None leaves the graph empty.
    """

    def __init__(self, chunker: Chunker, *, chunker_id: str, extractor: Extractor | None) -> None:
        self._chunker = chunker
        self._extractor = extractor
        self.id = f"{_VERSION}/{chunker_id}/{extractor.id if extractor else 'none'}"

    def hash(self, draft: DocumentDraft) -> bytes:
        """What a document is to this pipeline: equal hashes, equal results."""
        described = json.dumps(
            [self.id, draft.title, draft.title_source, draft.mime, draft.metadata],
            ensure_ascii=False,
            sort_keys=True,
            default=str,
        )
        return hashlib.sha256(f"{described}\0{draft.text}".encode()).digest()[:16]

    async def prepare(self, drafts: Sequence[DocumentDraft]) -> list[PreparedDocument]:
        """Chunk documents and extract from their chunks.

        Documents without any text are left out of the result.
        """
        cut = await to_thread.run_sync(self._cut, drafts)
        flat = [chunk for _, chunks in cut for chunk in chunks]
        found = await self._extractor.extract(flat) if self._extractor else [Extraction()] * len(flat)
        return await to_thread.run_sync(self._assemble, cut, found)

    def _cut(self, drafts: Sequence[DocumentDraft]) -> list[tuple[DocumentDraft, list[Chunk]]]:
        cut = ((draft, self._chunker.chunk(draft)) for draft in drafts)
        return [(draft, [self._completed(c, draft) for c in chunks]) for draft, chunks in cut if chunks]

    def _assemble(
        self, cut: Sequence[tuple[DocumentDraft, list[Chunk]]], found: Sequence[Extraction]
    ) -> list[PreparedDocument]:
        extractions = iter(found)
        prepared: list[PreparedDocument] = []
        for draft, chunks in cut:
            id_ = document_id(draft.uri)
            prepared.append(
                PreparedDocument(
                    id=id_,
                    draft=draft,
                    language=_prevailing(chunks),
                    hash=self.hash(draft),
                    chunks=tuple(self._prepared(id_, chunks, [next(extractions) for _ in chunks])),
                )
            )
        return prepared

    def _completed(self, chunk: Chunk, draft: DocumentDraft) -> Chunk:
        return replace(
            chunk,
            title=draft.title,
            title_source=draft.title_source,
            language="code" if chunk.kind == "code" else detect_language(chunk.text),
            keywords=tuple(extract_chunk_keywords(chunk.text)),
        )

    def _prepared(
        self, document: str, chunks: Sequence[Chunk], extractions: Sequence[Extraction]
    ) -> list[PreparedChunk]:
        seen: dict[bytes, int] = {}
        prepared: list[PreparedChunk] = []
        for chunk, extraction in zip(chunks, extractions, strict=True):
            described = json.dumps(
                [self.id, chunk.title, chunk.title_source, chunk.heading_path, chunk.kind, chunk.name],
                ensure_ascii=False,
            )
            hash_ = hashlib.sha256(f"{described}\0{chunk.text}".encode()).digest()[:16]
            copy = seen[hash_] = seen.get(hash_, 0) + 1
            embedded = embedding_text(chunk.title, chunk.heading_path, chunk.text)
            prepared.append(
                PreparedChunk(
                    # Ids say nothing of the place, so that a passage keeps its id when others move.
                    id=f"{document}.{hash_.hex()[:12]}" + (f".{copy}" if copy > 1 else ""),
                    chunk=chunk,
                    extraction=extraction,
                    hash=hash_,
                    vector_hash=hashlib.sha256(embedded.encode()).digest()[:16],
                )
            )
        return prepared


def _prevailing(chunks: Sequence[Chunk]) -> str:
    sizes: dict[str, int] = {}
    for chunk in chunks:
        sizes[chunk.language] = sizes.get(chunk.language, 0) + len(chunk.text)
    return max(sizes, key=lambda language: sizes[language])
