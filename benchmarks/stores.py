"""Vector databases, search engines and graph databases next to the files of a knowledge base.

    python benchmarks/stores.py --keep FOLDER DATASET_DIR … -v qdrant+http://localhost:6333 -v chroma+http://…
    python benchmarks/stores.py --keep FOLDER DATASET_DIR … -l opensearch+http://… -g falkordb://…
    python benchmarks/stores.py --embedder hashing --chunks 100000 DATASET_DIR -v pgvector+postgresql://…
    python benchmarks/stores.py --passages 100000 -v pgvector+postgresql://loom@localhost/loom

With data sets, each becomes a knowledge base; a copy of it is made for every server, and its vectors, words
or graph are moved there. All copies are asked side by side, each question of one after the other, so that
other work on the machine slows all of them: R@1, R@5, its paired difference to files with its 95 %
confidence interval, nDCG@10, the time of a question, plain and with a filter that 2 % of the documents pass,
and the seconds of moving. `--chunks` adds variants of the passages (`synthetic.py`) up to that many.

With `--passages`, files and every database get that many synthetic vectors in groups, 384 numbers each, a
tenth of them in another language: seconds to load and to build, the share that it finds of the 600 nearest
in each language, and milliseconds of a search, plain, among 2 % and 60 % of the documents.

The servers must run; their passwords or keys are in LOOM_VECTORS_SECRET, LOOM_LEXICAL_SECRET and
LOOM_GRAPH_SECRET. Tables are Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
from bases import Run, ask, ask_one, fill, percentile
from datasets import read_dataset
from quality import difference, figures
from synthetic import corpus_of
from vectors import RememberedVectors

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge import KnowledgeBase, PassageVectors, VectorQuery
from loom_core.knowledge.indexes.engines.servers import VECTORS, find_secret, open_vector_index
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.store.chunk_keys import ChunkKeys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from datasets import Question
    from numpy.typing import NDArray

    from loom_core.knowledge import VectorIndex
    from loom_core.knowledge.model import DocumentDraft

_DIMENSION = 384
_GROUPS = 400
_LATENT = 48  # dimensions that vary: text embeddings have few of them
_LIMIT = 600  # as the first stage of retrieval asks
_QUESTIONS = 60
_PER_DOCUMENT = 10
_BATCH = 2000
_KINDS = ("vectors", "lexical", "graph")
_FILES = ("vectors", "exact")
_TAG, _EACH = {"portion": "fiftieth"}, 50
_WARM_UP = 5


@dataclass(slots=True)
class _Side:
    """A copy of a knowledge base with a part of it in a server, and what it answers."""

    engine: str
    knowledge_base: KnowledgeBase
    moved: float
    plain: Run = field(default_factory=Run)
    filtered: Run = field(default_factory=Run)


class _FileIndex:
    """The files of a knowledge base, with the methods of a vector database that are measured."""

    def __init__(self, folder: Path) -> None:
        self._vectors = LanguageVectors(_DIMENSION, folder)
        self._documents: Collection[int] | None = None
        self._allowed: ChunkKeys | None = None

    def create(self) -> None:
        """Do nothing: the files are there."""

    def upsert(self, passages: PassageVectors) -> None:
        languages = dict(zip(passages.keys, passages.languages, strict=True))
        self._vectors.upsert(passages.keys, passages.vectors, languages)

    def build(self) -> None:
        self._vectors.flush()

    def search(self, queries: Sequence[VectorQuery]) -> list[list[tuple[int, float]]]:
        """Search both languages, among the passages of the documents of the first query."""
        first = queries[0]
        if first.documents is not self._documents:  # a filter gives passages, and is no part of the search
            self._documents = first.documents
            self._allowed = None if first.documents is None else ChunkKeys(_passages_of(first.documents))
        groups = self._vectors.by_language(first.vector, first.limit, among=self._allowed)
        hits = {group.language: group.hits for group in groups}
        return [hits[query.language] for query in queries]

    def close(self) -> None:
        self._vectors.close()


def _passages_of(documents: Collection[int]) -> Iterator[int]:
    for document in documents:
        yield from range(document * _PER_DOCUMENT, (document + 1) * _PER_DOCUMENT)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="*", type=Path, metavar="DATASET_DIR")
    for kind in _KINDS:
        arguments.add_argument(f"-{kind[0]}", f"--{kind}", action="append", default=[], metavar="SETTING")
    arguments.add_argument("--passages", type=int, metavar="N", help="synthetic vectors instead of data sets")
    arguments.add_argument("--chunks", type=int, metavar="N", help="grow each data set to about N chunks")
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument("--limit-queries", type=int, metavar="N", help="a fixed random sample of N")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the knowledge bases there")
    args = arguments.parse_args()
    if args.passages:
        print("\n".join(_table_of_searches(args.passages, args.vectors)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        anyio.run(_compare_answers, args, args.keep or Path(temporary))


async def _compare_answers(args: argparse.Namespace, home: Path) -> None:
    embedder = RememberedVectors(create_embedder(args.embedder), home)
    servers = [(kind, setting) for kind in _KINDS for setting in getattr(args, kind)]
    print("| set | engine | R@1 | R@5 | difference | nDCG@10 | p50 / p95 ms | filtered | moved in s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in args.datasets:
        dataset = read_dataset(folder, limit=args.limit_queries)
        name = f"{dataset.name}-{args.chunks}" if args.chunks else dataset.name
        knowledge_base = KnowledgeBase(name, path=home / name, embedder=embedder)
        grown = islice(corpus_of(dataset.documents), args.chunks) if args.chunks else dataset.documents
        await fill(knowledge_base, [_tag(number, document) for number, document in enumerate(grown)])
        knowledge_base.close()
        with tempfile.TemporaryDirectory(dir=home) as copies, ExitStack() as opened:
            sides: list[_Side] = []
            for kind, setting in [_FILES, *servers]:
                copy = shutil.copytree(home / name, Path(copies) / str(len(sides)))
                knowledge_base = KnowledgeBase(name, path=copy, embedder=embedder)
                opened.callback(knowledge_base.close)
                opened.callback(knowledge_base.leave_servers)
                began = time.perf_counter()
                knowledge_base.move(**{kind: setting})
                await knowledge_base.worker.drain()
                moved = time.perf_counter() - began
                if knowledge_base.worker.problem:
                    sys.exit(f"{setting}: {knowledge_base.worker.problem}")
                sides.append(_Side(setting.partition("://")[0], knowledge_base, moved))
            await _ask_side_by_side(sides, dataset.questions)
            _print_rows(name, sides, [question.gold for question in dataset.questions])


def _tag(number: int, document: DocumentDraft) -> DocumentDraft:
    return document if number % _EACH else replace(document, metadata={**document.metadata, **_TAG})


async def _ask_side_by_side(sides: Sequence[_Side], questions: Sequence[Question]) -> None:
    for side in sides:
        await ask(side.knowledge_base, questions[:_WARM_UP])
    for number, question in enumerate(questions):
        for side in sides:
            await ask_one(side.knowledge_base, question, side.plain)
            if number < _QUESTIONS:
                await ask_one(side.knowledge_base, question, side.filtered, filters=_TAG)


def _print_rows(name: str, sides: Sequence[_Side], golds: Sequence[frozenset[str]]) -> None:
    before = figures(sides[0].plain.rankings, golds)
    for side in sides:
        found = figures(side.plain.rankings, golds)
        change, interval = difference("R@5", found, before)
        print(
            f"| {name} | {side.engine} | {100 * found['R@1'].mean():.1f} | {100 * found['R@5'].mean():.1f} "
            f"| {change:+.1f} ({interval[0]:+.1f} to {interval[1]:+.1f}) "
            f"| {100 * found['nDCG@10'].mean():.1f} | {_times(side.plain)} | {_times(side.filtered)} "
            f"| {side.moved:.0f} |",
            flush=True,
        )


def _times(run: Run) -> str:
    return f"{statistics.median(run.retrieve_ms):.0f} / {percentile(run.retrieve_ms, 95):.0f}"


def _table_of_searches(passages: int, settings: Sequence[str]) -> list[str]:
    vectors, questions = _synthetic(passages), _synthetic(passages + _QUESTIONS)[passages:]
    lines = [
        f"{passages:,} vectors, the nearest {_LIMIT}: p50 / p95 in ms, and the share that is found",
        "",
        "| engine | load s | build s | plain | 2 % of documents | 60 % of documents |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = _FileIndex(Path(folder) / "vectors")
        lines.append(_line("files", files, vectors, questions))
        files.close()
    for setting in settings:
        index = open_vector_index(
            setting, secret=find_secret(VECTORS), collection="loom_benchmark", dimension=_DIMENSION
        )
        try:
            lines.append(_line(setting.partition("+")[0], index, vectors, questions))
        finally:
            index.drop()
            index.close()
    return lines


def _line(
    engine: str,
    index: VectorIndex | _FileIndex,
    vectors: NDArray[np.float32],
    questions: NDArray[np.float32],
) -> str:
    keys = np.arange(1, len(vectors) + 1)
    documents = keys // _PER_DOCUMENT
    languages = np.where(keys % 10, "alphabetic", "zh")
    began = time.perf_counter()
    index.create()
    for start in range(0, len(keys), _BATCH):
        part = slice(start, start + _BATCH)
        index.upsert(
            PassageVectors(
                keys[part].tolist(), vectors[part], languages[part].tolist(), documents[part].tolist()
            )
        )
    loaded = time.perf_counter()
    index.build()
    built = time.perf_counter()
    cells = [engine, f"{loaded - began:.0f}", f"{built - loaded:.0f}"]
    everything = np.unique(documents)
    for share in (1.0, 0.02, 0.6):
        step = round(1 / share) if share < 0.5 else 0
        allowed = everything[::step] if step else everything[: int(share * len(everything))]
        cells.append(_measure(index, vectors, questions, keys, documents, None if share == 1.0 else allowed))
    return f"| {' | '.join(cells)} |"


def _measure(
    index: VectorIndex | _FileIndex,
    vectors: NDArray[np.float32],
    questions: NDArray[np.float32],
    keys: NDArray[np.int64],
    documents: NDArray[np.int64],
    allowed: NDArray[np.int64] | None,
) -> str:
    """Ask as a question does: both languages in one request."""
    chosen = np.ones(len(keys), dtype=bool) if allowed is None else np.isin(documents, allowed)
    listed = None if allowed is None else allowed.tolist()
    times, found = list[float](), list[float]()
    for question in questions:
        queries = [
            VectorQuery(question, _LIMIT, language=language, documents=listed)
            for language in ("alphabetic", "zh")
        ]
        began = time.perf_counter()
        answers = index.search(queries)
        times.append(1000 * (time.perf_counter() - began))
        cosines = vectors @ question
        for hits, is_chinese in zip(answers, (False, True), strict=True):
            rows = np.flatnonzero(chosen & ((keys % 10 == 0) == is_chinese))
            best = keys[rows[np.argsort(-cosines[rows])[:_LIMIT]]]
            found.append(len(set(best.tolist()) & {key for key, _ in hits}) / max(1, len(best)))
    return (
        f"{statistics.median(times):.0f} / {percentile(times, 95):.0f}, {100 * statistics.fmean(found):.1f} %"
    )


def _synthetic(count: int) -> NDArray[np.float32]:
    """Return unit vectors in overlapping groups, the same at every call."""
    random = np.random.default_rng(11)
    axes = random.standard_normal((_LATENT, _DIMENSION)).astype(np.float32)
    centres = random.standard_normal((_GROUPS, _LATENT)).astype(np.float32)
    rows = centres[np.arange(count) % _GROUPS] + random.standard_normal((count, _LATENT), dtype=np.float32)
    vectors = rows @ axes
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
