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
    for key in documents:
        sketches.append(_sketch(store, key))
        if time.monotonic() > until:
            break
    with store.database.write():
        for sketch in sketches:
            if sketch.shingles is None and store.duplicates.text_with(sketch.hash) is None:
                sketch = _sketch(store, sketch.document)  # the known text was deleted meanwhile
            alike = _alike(store, sketch)
            store.boilerplate.set_lines(sketch.document, sketch.lines)
            store.duplicates.upsert(sketch.document, sketch.hash, bands=sketch.bands, alike=alike)
        if job is not None and job.started_at is not None:
            rows = store.documents.by_key([sketch.document for sketch in sketches])
            recent = [row for row in rows.values() if row.updated_at >= job.started_at]
            found = ((row.uri, store.duplicates.of(row.key)) for row in recent)
            store.progress.note(job, [copy_note(uri, copies) for uri, copies in found if copies])
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


def _sketch(store: KnowledgeStore, key: int) -> _Sketch:
    text = store.documents.text(key)
    hash_, lines = text_hash(text), edge_lines(text)
    if store.duplicates.text_with(hash_) is not None:
        return _Sketch(key, hash_, lines, None, ())
    shingled = shingles(text)
    return _Sketch(key, hash_, lines, shingled, bands_of(shingled))


def _alike(store: KnowledgeStore, sketch: _Sketch) -> list[SimilarText]:
    if sketch.shingles is None or not sketch.bands:
        return []
    if store.duplicates.text_with(sketch.hash) is not None:
        return []
    alike: list[SimilarText] = []
    for text in store.duplicates.candidates(sketch.bands, limit=_CANDIDATES):
        other = _text_of(store, text)
        share = jaccard_similarity(sketch.shingles, shingles(other)) if other is not None else 0.0
        if share >= NEAR_DUPLICATE_THRESHOLD:
            alike.append(SimilarText(text, share))
    return alike


def _text_of(store: KnowledgeStore, text: int) -> str | None:
    """Return a text by its key; None if no document has it any more."""
    hash_, documents = store.duplicates.documents_with(text)
    texts = map(store.documents.text, documents)
    return next((found for found in texts if text_hash(found) == hash_), None)
