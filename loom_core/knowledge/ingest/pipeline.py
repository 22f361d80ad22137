"""Ingest pipeline: from a loaded document to the rows for the store."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.store.fields import field_rows
from loom_core.knowledge.store.prepared_documents import (
    ExtractionColumns,
    PreparedChunk,
    PreparedDocument,
    encode_blocks,
    extraction_columns,
)
from loom_core.knowledge.text.keywords import extract_chunk_keywords
from loom_core.knowledge.text.languages import detect_language
from loom_core.knowledge.text.passage_text import embedding_text, index_token_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from loom_core.knowledge.ingest.chunking.registry import ChunkerName
    from loom_core.knowledge.ingest.extraction import RuleSettings
    from loom_core.knowledge.interface import Chunker, Extractor
    from loom_core.knowledge.model import Chunk, DocumentDraft, Extraction

__all__ = ["Pipeline", "PipelineSpec", "document_id"]

_VERSION = "3"
_as_json = json.JSONEncoder(ensure_ascii=False).encode
_as_sorted_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, default=str).encode


def document_id(uri: str) -> str:
    """Return the public id of the document at a URI: stable, and the same in every knowledge base."""
    return "d" + hashlib.sha256(uri.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """Configuration of a pipeline, from which another process can create the same.

    Attributes:
        chunker: name of the chunker.
        options: its settings.
        rules: settings of the rules that find entities; None without extraction, or with a custom
            extractor.
    """

    chunker: ChunkerName
    options: dict[str, int]
    rules: RuleSettings | None


class Pipeline:
    """Chunks documents and extracts from their chunks.

    Args:
        chunker: chunks documents.
        chunker_id: name and settings of the chunker; with the extractor's id it detects documents that were
            prepared in another way.
        extractor: finds entities and relations; None leaves the graph empty.
        recipe: configuration to create the same pipeline in another process; None if that is impossible.
        id_: in another process, the id of the original.
    """

    def __init__(
        self,
        chunker: Chunker,
        *,
        chunker_id: str,
        extractor: Extractor | None,
        recipe: PipelineSpec | None = None,
        id_: str = "",
    ) -> None:
        self._chunker = chunker
        self._rules = extractor if type(extractor) is RuleExtractor else None
        self._extractor = None if self._rules else extractor
        self.recipe = recipe
        self.id = id_ or f"{_VERSION}/{chunker_id}/{extractor.id if extractor else 'none'}"

    @classmethod
    def of(cls, recipe: PipelineSpec, *, extractor: Extractor | None = None, id_: str = "") -> Pipeline:
        """Create the pipeline of a configuration.

        Args:
            recipe: the configuration.
            extractor: a custom extractor, instead of the rules.
            id_: see the class.
        """
        rules = RuleExtractor(recipe.rules) if recipe.rules is not None else None
        return cls(
            create_chunker(recipe.chunker, **recipe.options),
            chunker_id=f"{recipe.chunker}{sorted(recipe.options.items())}",
            extractor=extractor or rules,
            recipe=recipe,
            id_=id_,
        )

    def hash(self, draft: DocumentDraft) -> bytes:
        """Return the hash of a document in this pipeline: equal hashes, equal results."""
        described = _as_sorted_json([self.id, draft.title, draft.title_source, draft.mime, draft.metadata])
        return hashlib.sha256(f"{described}\0{draft.text}".encode()).digest()[:16]

    async def prepare(self, drafts: Sequence[DocumentDraft]) -> list[PreparedDocument]:
        """Chunk documents and extract from their chunks.

        Documents without any text are left out of the result.
        """
        prepared = await to_thread.run_sync(lambda: list(map(self.prepare_one, drafts)))
        return await self.extract([document for document in prepared if document is not None])

    def prepare_one(self, draft: DocumentDraft, *, hash_: bytes | None = None) -> PreparedDocument | None:
        """Chunk a document, and extract from it by rules. Blocks.

        Args:
            draft: the document.
            hash_: its `hash`, if known.

        Returns:
            The document, or None if there is no text in it.
        """
        id_ = document_id(draft.uri)
        chunks = self._prepare_chunks(id_, draft)
        if not chunks:
            return None
        language = _prevailing([prepared.chunk for prepared in chunks])
        return PreparedDocument(
            id=id_,
            uri=draft.uri,
            title=draft.title,
            title_source=draft.title_source,
            mime=draft.mime,
            language=language,
            metadata=_as_sorted_json(draft.metadata),
            hash=self.hash(draft) if hash_ is None else hash_,
            length=len(draft.text),
            text=zlib.compress(draft.text.encode(), 1),
            blocks=encode_blocks(draft.blocks),
            fields=tuple(field_rows(draft, language=language)),
            chunks=tuple(chunks),
        )

    @property
    def extractor(self) -> Extractor | None:
        """The custom extractor; None if there are only rules, or no extraction."""
        return self._extractor

    async def extract(
        self, documents: Sequence[PreparedDocument], *, known: Collection[str] = ()
    ) -> list[PreparedDocument]:
        """Return the documents with the findings of the custom extractor.

        Args:
            documents: the documents.
            known: ids of unchanged chunks in the store, which are skipped.

        Raises:
            LLMError: see `Extractor.extract`.
        """
        if self._extractor is None:
            return list(documents)
        looked_at = [c for document in documents for c in document.chunks if c.id not in known]
        found = iter(await self._extractor.extract([c.chunk for c in looked_at]) if looked_at else ())
        return [_with_findings(document, found, known=known) for document in documents]

    def _complete_chunk(self, chunk: Chunk, draft: DocumentDraft) -> Chunk:
        return replace(
            chunk,
            title=draft.title,
            title_source=draft.title_source,
            language="code" if chunk.kind == "code" else detect_language(chunk.text),
            keywords=tuple(extract_chunk_keywords(chunk.text)),
        )

    def _prepare_chunks(self, document: str, draft: DocumentDraft) -> list[PreparedChunk]:
        seen: dict[bytes, int] = {}
        prepared: list[PreparedChunk] = []
        for cut in self._chunker.chunk(draft):
            # One chunk at a time, as the memoization of its text analysis is short-lived.
            chunk = self._complete_chunk(cut, draft)
            described = _as_json(
                [self.id, chunk.title, chunk.title_source, chunk.heading_path, chunk.kind, chunk.name]
            )
            hash_ = hashlib.sha256(f"{described}\0{chunk.text}".encode()).digest()[:16]
            copy = seen[hash_] = seen.get(hash_, 0) + 1
            embedded = embedding_text(chunk.title, chunk.heading_path, chunk.text)
            prepared.append(
                PreparedChunk(
                    # Ids do not depend on the position, so that a passage keeps its id when others move.
                    id=f"{document}.{hash_.hex()[:12]}" + (f".{copy}" if copy > 1 else ""),
                    chunk=chunk,
                    found=extraction_columns(self._rules.extract_one(chunk))
                    if self._rules
                    else ExtractionColumns(),
                    hash=hash_,
                    vector_hash=hashlib.sha256(embedded.encode()).digest()[:16],
                    tokens=index_token_text(chunk.title, chunk.heading_path, chunk.text),
                )
            )
        return prepared


def _with_findings(
    document: PreparedDocument, found: Iterator[Extraction], *, known: Collection[str]
) -> PreparedDocument:
    """Return a document with the findings in its chunks, and a note on incomplete ones."""
    chunks: list[PreparedChunk] = []
    problems: list[str] = []
    for chunk in document.chunks:
        if chunk.id in known:
            chunks.append(chunk)
            continue
        extraction = next(found)
        chunks.append(replace(chunk, found=extraction_columns(extraction)))
        if extraction.problem:
            problems.append(extraction.problem)
    notes = (
        (f"{len(problems)} of {len(chunks)} passages were extracted by rules only: {problems[0]}",)
        if problems
        else ()
    )
    return replace(document, chunks=tuple(chunks), notes=notes)


def _prevailing(chunks: Sequence[Chunk]) -> str:
    sizes: dict[str, int] = {}
    for chunk in chunks:
        sizes[chunk.language] = sizes.get(chunk.language, 0) + len(chunk.text)
    return max(sizes, key=lambda language: sizes[language])
