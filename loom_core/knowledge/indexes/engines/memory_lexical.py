"""Lexical index in memory: BM25 over plain dictionaries."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, defaultdict
from itertools import chain
from math import log
from typing import TYPE_CHECKING

from loom_core.knowledge.indexes.engines.token_text import join_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.interface import LexicalQuery

__all__ = ["MemoryLexicalIndex"]

_K1 = 1.2
_B = 0.75


class MemoryLexicalIndex:
    """`LexicalIndex` without files: for programs that embed Loom, and for tests.

    BM25 as in Lucene and tantivy: idf = ln(1 + (N - n + 0.5) / (n + 0.5)), k1 = 1.2, b = 0.75, each
    term's part multiplied by k1 + 1. Lengths are exact here, while the engines round them to one byte.
    The time of a search is proportional to the number of postings of its tokens.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[tuple[int, tuple[str, ...] | None]] = []
        self._documents: dict[int, tuple[str, ...]] = {}
        self._frequencies: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._length = 0

    def add(self, documents: Iterable[tuple[int, Sequence[str] | str]]) -> None:
        """Index token lists under their keys, visible after `commit`; an indexed key is replaced.

        A string is a token list joined by single spaces.

        Raises:
            InvalidInputError: a token is empty or holds white space.
        """
        checked: list[tuple[int, tuple[str, ...] | None]] = []
        for key, tokens in documents:
            text = join_tokens(tokens)
            checked.append((key, tuple(text.split(" ")) if text else ()))
        with self._lock:
            self._pending.extend(checked)

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys, visible after `commit`; unknown ones are ignored."""
        with self._lock:
            self._pending.extend((key, None) for key in keys)

    def commit(self) -> None:
        """Make everything since the last commit visible to searches."""
        with self._lock:
            for key, tokens in self._pending:
                self._remove(key)
                if tokens is not None:
                    self._insert(key, tokens)
            self._pending.clear()

    def search(self, queries: Sequence[LexicalQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their score for each query, best first, ties by key; see `LexicalSearch`."""
        with self._lock:
            return [self._answer(query) for query in queries]

    def keys(self) -> list[int]:
        """Return every key that is indexed, as of the last commit."""
        return list(self._documents)

    def count(self) -> int:
        """Return how many keys are indexed, as of the last commit."""
        return len(self._documents)

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._pending.clear()
            self._documents.clear()
            self._frequencies.clear()
            self._length = 0

    def _answer(self, query: LexicalQuery) -> list[tuple[int, float]]:
        wanted = None if query.among is None else frozenset(query.among)
        match query.match:
            case "any":
                found = self._rank(query.tokens)
                if query.holding:
                    found = {key: found[key] for key in self._holders(query.holding)}
            case "all":
                found = dict.fromkeys(self._holders(query.tokens), 0.0)
            case "prefix":
                [prefix] = query.tokens
                held = (keys for token, keys in self._frequencies.items() if token.startswith(prefix))
                found = dict.fromkeys(chain.from_iterable(held), 0.0)
        hits = [hit for hit in found.items() if wanted is None or hit[0] in wanted]
        if query.common is not None and len(hits) >= query.common:
            return []
        limit = len(hits) if query.limit is None else query.limit
        return heapq.nsmallest(limit, hits, key=lambda hit: (-hit[1], hit[0]))

    def _holders(self, tokens: Sequence[str]) -> set[int]:
        postings = [self._frequencies.get(token, {}) for token in tokens]
        return set(postings[0]).intersection(*postings[1:]) if postings else set()

    def _rank(self, tokens: Sequence[str]) -> dict[int, float]:
        scores: defaultdict[int, float] = defaultdict(float)
        for token, times in Counter(tokens).items():
            postings = self._frequencies.get(token)
            if not postings:
                continue
            idf = log(1 + (len(self._documents) - len(postings) + 0.5) / (len(postings) + 0.5))
            weight = times * idf * (_K1 + 1)
            average = self._length / len(self._documents)
            for key, frequency in postings.items():
                length = len(self._documents[key])
                norm = _K1 * (1 - _B + _B * length / average)
                scores[key] += weight * frequency / (frequency + norm)
        return scores

    def _insert(self, key: int, tokens: tuple[str, ...]) -> None:
        self._documents[key] = tokens
        self._length += len(tokens)
        for token, times in Counter(tokens).items():
            self._frequencies[token][key] = times

    def _remove(self, key: int) -> None:
        tokens = self._documents.pop(key, ())
        self._length -= len(tokens)
        for token in set(tokens):
            postings = self._frequencies[token]
            del postings[key]
            if not postings:
                del self._frequencies[token]
