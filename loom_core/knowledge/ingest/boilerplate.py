"""Detection of boilerplate passages: headers, menus, licences and notices that many documents repeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loom_core.knowledge.text.edge_lines import is_boilerplate, is_repeated

if TYPE_CHECKING:
    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["find_boilerplate", "judge_pending"]

_SECONDS = 0.2  # of judging at a time
_BATCH = 200


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
        for document in documents:
            store.boilerplate.judge(document, find_boilerplate(store, document))
            if time.monotonic() > until:
                break
    return True


def find_boilerplate(store: KnowledgeStore, document: int) -> set[int]:
    """Return the passages of a document that are boilerplate, by the lines of all documents.

    A document that is itself repeated has none.
    """
    repeated = store.boilerplate.repeated_lines(document)
    if not repeated:
        return set()
    lines = store.boilerplate.lines_of(document)
    if is_repeated(lines, repeated):
        return set()
    repeated &= {line.line for line in lines if line.edge}
    passages = store.boilerplate.texts_of(document)
    return {key for key, text in passages if is_boilerplate(text, repeated)}
