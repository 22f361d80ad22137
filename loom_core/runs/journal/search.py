"""Full-text search in runs and messages: an inverted index, updated in idle time and before a search."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from loom_core.cjk import is_cjk
from loom_core.llm.message_json import message_from_json
from loom_core.runs.journal.rows.json_column import from_column
from loom_core.runs.journal.rows.runs import select_runs
from loom_core.runs.run import FORK_OF
from loom_core.tools.tool_search import search_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.runs.journal.rows.runs import StoredRun
    from loom_core.runs.run import Run
    from loom_core.storage.sql import SQLConnection

__all__ = [
    "MESSAGE_INDEX",
    "RUN_INDEX",
    "InvertedIndex",
    "count_terms",
    "index_batch",
    "index_messages",
    "index_runs",
    "inverse_document_frequency",
    "query_terms",
    "search_runs",
    "term_weight",
]


_MOST_READ = 20_000  # characters of a text that are indexed
_MOST_ASKED = 40  # words of a query
_SATURATION = 1.2  # how quickly one more occurrence adds less, as in BM25


def query_terms(query: str) -> list[str]:
    """Return the terms of a query, without duplicates.

    Chinese text is searched by character bigrams; a single character counts only if it is part of no bigram.
    """
    words = dict.fromkeys(search_words(query))
    pairs = [word for word in words if len(word) == 2 and is_cjk(word[0])]
    paired = {character for pair in pairs for character in pair}
    return [word for word in words if word not in paired][:_MOST_ASKED]


def count_terms(text: str) -> Counter[str]:
    """Return the terms of a text with their frequencies."""
    return Counter(search_words(text[:_MOST_READ]))


def inverse_document_frequency(having: int, total: int) -> float:
    """Return the inverse document frequency of a term."""
    return log(1 + total / having) if having else 0.0


def term_weight(rare: float, times: int) -> float:
    """Return the weight of a term in an item, by its frequency there; saturates as in BM25."""
    return rare * times / (times + _SATURATION)


@dataclass(frozen=True, slots=True)
class InvertedIndex:
    """Inverted index in a table: which term occurs in which item, and how often.

    Attributes:
        words: the table of terms.
        items: the table of items; its column `pending_items` marks the items to be (re)indexed.
    """

    words: str
    items: str

    def index(self, db: SQLConnection, item: int, text: str) -> None:
        """Index an item, replacing its previous terms; part of a transaction."""
        self.remove(db, item)
        db.executemany(
            f"INSERT INTO {self.words} VALUES (?, ?, ?)",
            [(word, item, times) for word, times in count_terms(text).items()],
        )
        db.execute(f"UPDATE {self.items} SET unread = FALSE WHERE key = ?", (item,))

    def remove(self, db: SQLConnection, item: int) -> None:
        """Remove an item from the index; part of a transaction."""
        db.execute(f"DELETE FROM {self.words} WHERE item = ?", (item,))

    def pending_items(self, db: SQLConnection, *, limit: int, where: str = "TRUE") -> list[int]:
        """Return the items to be indexed that fit a condition, oldest first."""
        rows = db.execute(
            f"SELECT key FROM {self.items} WHERE unread AND {where} ORDER BY key LIMIT ?", (limit,)
        )
        return [row["key"] for row in rows]

    def search(self, db: SQLConnection, query: str) -> Sequence[int]:
        """Return the items that match a query: best first, then latest first."""
        (total,) = db.execute(f"SELECT COUNT(*) FROM {self.items}").fetchone()
        scores: defaultdict[int, float] = defaultdict(float)
        for word in query_terms(query):
            sql = f"SELECT item, times FROM {self.words} WHERE word = ?"
            rows: list[tuple[int, int]] = db.execute(sql, (word,)).fetchall()
            rare = inverse_document_frequency(len(rows), total)
            for item, times in rows:
                scores[item] += term_weight(rare, times)
        return sorted(scores, key=lambda item: (-scores[item], -item))


RUN_INDEX = InvertedIndex("run_words", "runs")
MESSAGE_INDEX = InvertedIndex("message_words", "messages")

_PORTION = 8  # small, so that no caller waits long for the writer


def index_batch(db: SQLConnection) -> bool:
    """Index a batch of ended runs and of messages; return whether there may be more."""
    more = index_runs(db, where="status IN ('completed', 'failed', 'aborted')")
    return index_messages(db) or more


def index_runs(db: SQLConnection, *, where: str = "TRUE") -> bool:
    """Index a batch of runs; return whether there may be more."""
    keys = RUN_INDEX.pending_items(db, limit=_PORTION, where=where)
    for key in keys:
        (stored,) = select_runs(db, "runs.key = ?", (key,))
        RUN_INDEX.index(db, key, _searchable_text(stored.run))
    return len(keys) == _PORTION


def index_messages(db: SQLConnection) -> bool:
    """Index a batch of messages; return whether there may be more."""
    keys = MESSAGE_INDEX.pending_items(db, limit=_PORTION)
    for key in keys:
        row = db.execute("SELECT body FROM messages WHERE key = ?", (key,)).fetchone()
        MESSAGE_INDEX.index(db, key, message_from_json(from_column(row["body"])).text)
    return len(keys) == _PORTION


def search_runs(
    db: SQLConnection, query: str, *, wanted: tuple[str, Sequence[str]], limit: int
) -> list[StoredRun]:
    """Search the runs that fit an SQL condition; best matches first."""
    where, parameters = wanted
    found: list[StoredRun] = []
    for key in RUN_INDEX.search(db, query):
        if len(found) == limit:
            break
        found += select_runs(db, f"runs.key = ? AND {where}", (key, *parameters))
    return found


def _searchable_text(run: Run) -> str:
    return f"{run.request.goal}\n{run.output}\n{run.request.metadata.get(FORK_OF, '')}"
