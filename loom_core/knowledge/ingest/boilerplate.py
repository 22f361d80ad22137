"""Detection of boilerplate passages: headers, menus, licences and notices that many documents repeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loom_core.knowledge.text.edge_lines import is_boilerplate, is_repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["find_boilerplate", "judge_pending"]

_SECONDS = 0.2  # of judging at a time
_BATCH = 200
_AT_ONCE = 16  # whose texts are in memory at the same time


def judge_pending(store: KnowledgeStore) -> bool:
    """Judge the passages of some documents whose lines, or the counts of these, have changed. Blocks briefly.

    Returns:
        Whether there were any.
    """
    documents = store.boilerplate.pending(_BATCH)
    if not documents:
        return False
    until = time.monotonic() + _SECONDS
    with store.database.write():
        while documents and time.monotonic() < until:
            store.boilerplate.judge(find_boilerplate(store, documents[:_AT_ONCE]))
            documents = documents[_AT_ONCE:]
    return True


def find_boilerplate(store: KnowledgeStore, documents: Sequence[int]) -> dict[int, set[int]]:
    """Return by document the passages that are boilerplate, by the lines of all documents.

    A document that is itself repeated has none.
    """
    found: dict[int, set[int]] = {document: set() for document in documents}
    repeated = store.boilerplate.repeated_lines(documents)
    edges: dict[int, set[int]] = {}
    for document, lines in store.boilerplate.lines_of(list(repeated)).items():
        if not is_repeated(lines, repeated[document]):
            edges[document] = repeated[document] & {line.line for line in lines if line.edge}
    for document, passages in store.boilerplate.texts_of(list(edges)).items():
        found[document] = {key for key, text in passages if is_boilerplate(text, edges[document])}
    return found
