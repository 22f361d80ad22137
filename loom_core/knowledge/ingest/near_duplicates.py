"""Detection of duplicate and near-duplicate documents, and of the lines that documents have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.store.duplicates import SimilarText
from loom_core.knowledge.text.edge_lines import edge_lines
from loom_core.knowledge.text.shingles import bands_of, jaccard_similarity, shingles, text_hash
from loom_core.knowledge.uris import display_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.store import Job, KnowledgeStore
    from loom_core.knowledge.store.duplicates import CopyOf
    from loom_core.knowledge.text.edge_lines import EdgeLine

__all__ = ["NEAR_DUPLICATE_THRESHOLD", "compare_pending", "copy_note", "percent"]

NEAR_DUPLICATE_THRESHOLD = 0.8
"""Minimum Jaccard index of the shingles of near-duplicates."""

_SECONDS = 0.2  # of computing at a time
_BATCH = 200
_AT_ONCE = 16  # whose texts are in memory at the same time
_CANDIDATES = 8  # most similar candidates to compare with each text (of form letters there may be many)


@dataclass(frozen=True, slots=True)
class _Sketch:
    """Sketch of a document's text; for a known text there are no shingles and bands."""

    document: int
    hash: bytes
    lines: Sequence[EdgeLine]
    shingles: NDArray[np.uint64] | None
    bands: Sequence[int]


def compare_pending(store: KnowledgeStore, job: Job | None = None) -> bool:
    """Compare the texts of some new or changed documents with all others. Blocks for moments.

    Args:
        store: the store, which receives the result.
        job: the job whose notes receive the findings about documents written since it began.

    Returns:
        Whether there were any.
    """
    documents = store.duplicates.pending_comparisons(_BATCH)
    if not documents:
        return False
    until = time.monotonic() + _SECONDS
    sketches: list[_Sketch] = []
    while documents and time.monotonic() < until:
        sketches += _sketch(store, documents[:_AT_ONCE])
        documents = documents[_AT_ONCE:]
    with store.database.write():
        before = store.duplicates.were_compared([sketch.document for sketch in sketches])
        _store(store, [sketch for sketch in sketches if sketch.document not in before])
        for sketch in sketches:
            if sketch.document in before:
                _store(store, [sketch])
        if job is not None and job.started_at is not None:
            rows = store.documents.by_key([sketch.document for sketch in sketches])
            recent = [row for row in rows.values() if row.updated_at >= job.started_at]
            found = store.duplicates.of([row.key for row in recent])
            store.progress.note(job, [copy_note(row.uri, found[row.key]) for row in recent if found[row.key]])
    return True


def copy_note(uri: str, copies: Sequence[CopyOf]) -> str:
    """Return a note on the duplicates of a document."""
    nearest = copies[0]
    same = "same text as" if nearest.likeness == 1 else f"{percent(nearest.likeness)} the same as"
    more = " (and others)" if len(copies) > 1 else ""
    return f"{display_uri(uri)}: {same} {display_uri(nearest.uri)}{more}"


def percent(share: float) -> str:
    """Format a share as a percentage; 100 % only if it is exactly that."""
    return f"{min(int(100 * share), 99)} %" if share < 1 else "100 %"


def _sketch(store: KnowledgeStore, documents: Sequence[int]) -> list[_Sketch]:
    """Return sketches of documents; deleted ones are left out."""
    texts = store.documents.texts(documents)
    hashes = {key: text_hash(text) for key, text in texts.items()}
    known = store.duplicates.texts_with(list(hashes.values()))
    sketches: list[_Sketch] = []
    for key, text in texts.items():
        lines = edge_lines(text)
        if hashes[key] in known:
            sketches.append(_Sketch(key, hashes[key], lines, None, ()))
        else:
            shingled = shingles(text)
            sketches.append(_Sketch(key, hashes[key], lines, shingled, bands_of(shingled)))
    return sketches


def _store(store: KnowledgeStore, sketches: Sequence[_Sketch]) -> None:
    """Store the texts and lines of documents that were never compared before, or of one document."""
    duplicates = store.duplicates
    known = duplicates.texts_with([sketch.hash for sketch in sketches if sketch.shingles is None])
    gone = [sketch for sketch in sketches if sketch.shingles is None and sketch.hash not in known]
    if gone:  # the known text was deleted meanwhile
        again = {sketch.document: sketch for sketch in _sketch(store, [each.document for each in gone])}
        sketches = [again.get(sketch.document, sketch) for sketch in sketches]
    store.boilerplate.set_lines({sketch.document: sketch.lines for sketch in sketches})
    by_hash = {sketch.hash: sketch for sketch in sketches}
    new = duplicates.upsert(
        {sketch.document: sketch.hash for sketch in sketches},
        {hash_: sketch.bands for hash_, sketch in by_hash.items()},
    )
    bands = {text: by_hash[hash_].bands for hash_, text in new.items()}
    candidates = duplicates.candidates(bands, limit=_CANDIDATES)
    alike = {
        text: _find_similar(store, by_hash[hash_], candidates[text])
        for hash_, text in new.items()
        if candidates.get(text)
    }
    duplicates.note_similar(alike)


def _find_similar(store: KnowledgeStore, sketch: _Sketch, candidates: Sequence[int]) -> list[SimilarText]:
    alike: list[SimilarText] = []
    for text in candidates:
        other = _text_of(store, text)
        if other is not None and sketch.shingles is not None:
            share = jaccard_similarity(sketch.shingles, shingles(other))
            if share >= NEAR_DUPLICATE_THRESHOLD:
                alike.append(SimilarText(text, share))
    return alike


def _text_of(store: KnowledgeStore, text: int) -> str | None:
    """Return a text by its key; None if no document has it any more."""
    hash_, documents = store.duplicates.documents_with(text)
    texts = map(store.documents.text, documents)
    return next((found for found in texts if text_hash(found) == hash_), None)
