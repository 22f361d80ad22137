"""Lexical index in tantivy: BM25 on disk."""

from __future__ import annotations

import re
import threading
from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, cast

from loom_core.errors import IndexDamagedError, InvalidInputError, StoreBusyError
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE, damage_boundary
from loom_core.knowledge.indexes.engines.token_text import is_searchable, join_tokens
from loom_core.knowledge.store.chunk_keys import ChunkKeys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import tantivy

    from loom_core.knowledge.interface import LexicalQuery

__all__ = ["TantivyIndex"]

_KEY = "key"
_BODY = "body"
_ANALYSER = "loom_tokens"
_BATCH = 1000
_FEW_KEYS = 500  # up to this many keys are queried one by one
_KEY_SET_COST = 10_000  # fixed cost of filtering by a set of keys in the engine, in fetched hits
_KEY_COST = 3  # its cost for each key
_OVERFETCH = 1.5  # factor on the hits needed if the keys are spread evenly
_MOST_KEY = (1 << 63) - 1
_LEAST_HEAP_MB = 15


class TantivyIndex:
    """`LexicalIndex` over a tantivy directory.

    Tokens are stored unchanged: joined by spaces, and split there by the engine. One process writes (the
    engine's lock, which the system releases when its holder dies); others open it with `read_only=True` and
    see what was committed when they last called `reload`. Tokens of more than 65,530 bytes are dropped
    by the engine. Statistics count deleted passages until their segment is merged, so that scores
    move a little after deletions.
    """

    def __init__(self, path: Path, *, read_only: bool = False, heap_mb: int = 64) -> None:
        """Open the directory, or make it; the writer opens at the first change.

        Args:
            path: directory of the index alone.
            read_only: whether it is only searched; another process may write.
            heap_mb: memory for additions that are not yet in a segment, at least 15.

        Raises:
            InvalidInputError: `heap_mb` is below 15.
            IndexDamagedError: it does not open, or (read only) does not exist.
        """
        if heap_mb < _LEAST_HEAP_MB:
            raise InvalidInputError(
                f"{heap_mb} MB are too little memory to write with.",
                advice=f"Give at least {_LEAST_HEAP_MB}.",
            )
        self._path = path
        self._read_only = read_only
        self._heap = heap_mb * 1_000_000
        self._writing = threading.Lock()
        self._open_writer: tantivy.IndexWriter | None = None
        self._changed = False
        with self._boundary():
            self._schema, self._index = self._open()

    def add(self, documents: Iterable[tuple[int, Sequence[str] | str]]) -> None:
        """Index token lists under their keys, visible after `commit`; an indexed key is replaced.

        A string is a token list joined by single spaces. As keys are replaced, it is safe to repeat additions
        after a crash.

        Raises:
            InvalidInputError: a token is empty or holds white space, or a key is not positive.
            StoreBusyError: another process writes.
            IndexDamagedError: tantivy failed.
        """
        batch: dict[int, str] = {}
        for key, tokens in documents:
            if not 0 < key <= _MOST_KEY:
                raise InvalidInputError(f"{key} is not a key.", advice="Use the store's chunk keys.")
            batch[key] = join_tokens(tokens)
            if len(batch) == _BATCH:
                self._replace(batch)
                batch = {}
        if batch:
            self._replace(batch)

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys, visible after `commit`; unknown ones are ignored.

        Raises:
            StoreBusyError: another process writes.
            IndexDamagedError: tantivy failed.
        """
        known = [key for key in keys if 0 < key <= _MOST_KEY]
        with self._writing, self._boundary():
            for start in range(0, len(known), _BATCH):
                self._delete(self._writer(), known[start : start + _BATCH])

    def commit(self) -> None:
        """Make everything since the last commit durable and visible to searches (10 to 80 ms).

        Raises:
            IndexDamagedError: tantivy cannot write.
        """
        with self._writing, self._boundary():
            if self._changed:
                self._writer().commit()
                self._changed = False
                self._index.reload()

    def reload(self) -> None:
        """Make visible what other processes committed since this index was opened or reloaded.

        Raises:
            IndexDamagedError: the index does not open any more.
        """
        with self._boundary():
            self._index.reload()

    def search(self, queries: Sequence[LexicalQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their score for each query, best first; see `LexicalSearch`.

        Raises:
            IndexDamagedError: tantivy does not answer.
        """
        with self._boundary():
            return [self._answer(query) for query in queries]

    def keys(self) -> list[int]:
        """Return the indexed keys as of the last commit, as often as they are indexed, in any order.

        Raises:
            IndexDamagedError: tantivy does not answer.
        """
        from tantivy import Query

        with self._boundary():
            return self._run_query(Query.all_query(), self._index.searcher().num_docs)[0]

    def count(self) -> int:
        """Return how many keys are indexed, as of the last commit."""
        with self._boundary():
            return self._index.searcher().num_docs

    def close(self) -> None:
        """Release files and the writer's lock; uncommitted additions are dropped."""
        with self._writing, self._boundary():
            writer, self._open_writer = self._open_writer, None
            if writer is not None:
                writer.rollback()
                writer.wait_merging_threads()

    def _answer(self, query: LexicalQuery) -> list[tuple[int, float]]:
        limit = self._index.searcher().num_docs if query.limit is None else query.limit
        if query.match == "any":
            tokens = [token for token in query.tokens if is_searchable(token)]
            if not tokens or limit < 1 or not all(map(is_searchable, query.holding)):
                return []
            if query.holding:
                return self._rank_holders(query, tokens, limit)
            return self._rank(tokens, limit, query.among)
        if limit < 1 or not query.tokens or not all(map(is_searchable, query.tokens)):
            return []
        found = self._all_of(query.tokens) if query.match == "all" else self._beginning_with(*query.tokens)
        return [(key, 0.0) for key in self._find(found, limit, query.among)]

    def _find(self, query: tantivy.Query, limit: int, among: Collection[int] | None) -> list[int]:
        if among is None:
            return self._run_query(query, limit)[0]
        if len(among) > _FEW_KEYS:
            keys, _ = self._run_query(query, _KEY_SET_COST)
            if len(keys) < _KEY_SET_COST:  # all that exist: cheaper to filter here
                wanted = among if isinstance(among, ChunkKeys) else ChunkKeys(among)
                return [keys[place] for place in wanted.places(keys)[:limit]]
        return self._run_query(self._within(self._set_of(among), query), limit)[0]

    def _rank(
        self, tokens: Sequence[str], limit: int, among: Collection[int] | None
    ) -> list[tuple[int, float]]:
        query = self._any_of(tokens)
        if among is None:
            return self._hits(query, limit)
        if len(among) <= _FEW_KEYS:
            few = frozenset(key for key in among if 0 < key <= _MOST_KEY)
            return self._hits(self._within(self._each_of(few), query), limit) if few else []
        wanted = among if isinstance(among, ChunkKeys) else ChunkKeys(among)
        asked = ceil(_OVERFETCH * limit * self._index.searcher().num_docs / len(wanted))
        if asked > _KEY_SET_COST + _KEY_COST * len(wanted):
            return self._hits(self._within(self._set_of(wanted), query), limit)
        return self._hits_among(wanted, query, limit, asked=max(asked, 2 * limit))

    def _rank_holders(
        self, query: LexicalQuery, tokens: Sequence[str], limit: int
    ) -> list[tuple[int, float]]:
        holders = self._all_of(query.holding)
        if query.among is None:
            return self._hits(self._required(holders, self._any_of(tokens)), limit, common=query.common)
        most = self._index.searcher().num_docs if query.common is None else query.common
        keys, _ = self._run_query(holders, most, common=query.common)
        wanted = query.among if isinstance(query.among, ChunkKeys) else ChunkKeys(query.among)
        return self._rank(tokens, limit, [keys[place] for place in wanted.places(keys)])

    def _all_of(self, tokens: Sequence[str]) -> tantivy.Query:
        from tantivy import Occur, Query

        terms = [(Occur.Must, Query.term_query(self._schema, _BODY, token)) for token in set(tokens)]
        return Query.const_score_query(Query.boolean_query(terms), 0.0)

    def _beginning_with(self, prefix: str) -> tantivy.Query:
        from tantivy import Query

        return Query.const_score_query(Query.regex_query(self._schema, _BODY, f"{re.escape(prefix)}.*"), 0.0)

    def _boundary(self) -> AbstractContextManager[None]:
        return damage_boundary("word index", self._path, errors=(ValueError, RuntimeError, OSError))

    def _open(self) -> tuple[tantivy.Schema, tantivy.Index]:
        import tantivy

        if not self._read_only:
            self._path.mkdir(parents=True, exist_ok=True)
        elif not (self._path / "meta.json").is_file():
            raise IndexDamagedError(f"There is no word index at {self._path}.", advice=REBUILD_ADVICE)
        schema = (
            tantivy.SchemaBuilder()
            .add_unsigned_field(_KEY, indexed=True, fast=True)
            .add_text_field(_BODY, tokenizer_name=_ANALYSER, index_option="freq")
            .build()
        )
        index = tantivy.Index(schema, path=str(self._path))
        analyser = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        index.register_tokenizer(_ANALYSER, analyser)
        index.config_reader(reload_policy="manual")  # else a thread watches the directory
        index.reload()
        return schema, index

    def _writer(self) -> tantivy.IndexWriter:
        if self._read_only:
            raise StoreBusyError(
                f"The word index at {self._path} is open for reading only.",
                advice="Let the process that owns the knowledge base write.",
            )
        if self._open_writer is None:
            try:
                # A second thread adds no throughput: creating documents in Python is the bottleneck.
                self._open_writer = self._index.writer(heap_size=self._heap, num_threads=1)
            except ValueError as error:
                if "LockBusy" not in str(error):
                    raise
                raise StoreBusyError(
                    f"Another writer holds the word index at {self._path}.",
                    advice="Close the other process, or let it do the writing.",
                ) from error
        return self._open_writer

    def _replace(self, batch: dict[int, str]) -> None:
        from tantivy import Document

        with self._writing, self._boundary():
            writer = self._writer()
            self._delete(writer, list(batch))
            for key, text in batch.items():
                document = Document()
                document.add_unsigned(_KEY, key)
                document.add_text(_BODY, text)
                writer.add_document(document)

    def _delete(self, writer: tantivy.IndexWriter, keys: list[int]) -> None:
        from tantivy import Query

        # Not delete_documents_by_term: it treats an int as signed, and silently deletes nothing.
        writer.delete_documents_by_query(Query.term_set_query(self._schema, _KEY, keys))
        self._changed = True

    def _any_of(self, tokens: Sequence[str]) -> tantivy.Query:
        from tantivy import Occur, Query

        terms: list[tuple[Occur, Query]] = []
        for token, times in Counter(tokens).items():
            term = Query.term_query(self._schema, _BODY, token)
            terms.append((Occur.Should, Query.boost_query(term, float(times)) if times > 1 else term))
        return Query.boolean_query(terms)

    def _each_of(self, keys: Collection[int]) -> tantivy.Query:
        from tantivy import Occur, Query

        return Query.boolean_query(
            [(Occur.Should, Query.term_query(self._schema, _KEY, key)) for key in keys]
        )

    def _set_of(self, keys: Collection[int]) -> tantivy.Query:
        from tantivy import Query

        wanted = [key for key in keys if 0 < key <= _MOST_KEY]
        return Query.term_set_query(self._schema, _KEY, wanted)

    def _within(self, keys: tantivy.Query, query: tantivy.Query) -> tantivy.Query:
        from tantivy import Query

        return self._required(Query.const_score_query(keys, 0.0), query)

    def _required(self, *queries: tantivy.Query) -> tantivy.Query:
        from tantivy import Occur, Query

        return Query.boolean_query([(Occur.Must, query) for query in queries])

    def _hits(
        self, query: tantivy.Query, limit: int, *, common: int | None = None
    ) -> list[tuple[int, float]]:
        keys, scores = self._run_query(query, limit, common=common)
        return sorted(zip(keys, scores, strict=True), key=lambda hit: (-hit[1], hit[0]))

    def _hits_among(
        self, wanted: ChunkKeys, query: tantivy.Query, limit: int, *, asked: int
    ) -> list[tuple[int, float]]:
        """Request more and more hits until enough of them are among the keys, or no more exist."""
        while True:
            keys, scores = self._run_query(query, asked)
            kept = [(keys[place], scores[place]) for place in wanted.places(keys)]
            if len(kept) >= limit or len(keys) < asked:
                return sorted(kept, key=lambda hit: (-hit[1], hit[0]))[:limit]
            asked *= 8

    def _run_query(
        self, query: tantivy.Query, limit: int, *, common: int | None = None
    ) -> tuple[list[int], list[float]]:
        """Return keys and scores of the best hits, in the engine's order; none if `common` or more match."""
        searcher = self._index.searcher()
        if not searcher.num_docs:
            return [], []
        found = searcher.search(query, limit=min(limit, searcher.num_docs), count=common is not None)
        if common is not None and cast("int", found.count) >= common:  # type: ignore[attr-defined]
            return [], []
        keys = cast("list[int]", searcher.fast_field_values(_KEY, [address for _, address in found.hits]))
        return keys, [score for score, _ in found.hits]
