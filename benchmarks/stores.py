"""Vector databases and search engines next to the files of a knowledge base: quality, speed, filters.

    python benchmarks/stores.py --keep FOLDER DATASET_DIR … -v qdrant+http://localhost:6333 -v chroma+http://…
    python benchmarks/stores.py --keep FOLDER DATASET_DIR … -l opensearch+http://localhost:9200
    python benchmarks/stores.py --passages 100000 -v pgvector+postgresql://loom@localhost/loom

With data sets, each becomes a knowledge base, is asked with the files of its own, then its vectors or its
words are moved to every server and it is asked again: R@1, R@5, its paired difference to the files with its
95 % confidence interval, and the time of a question. With `--passages`, every database gets that many
synthetic vectors in groups, 384 numbers each, a tenth of them in another language: seconds to load and to
build, the share that it finds of the 600 nearest in each language, and milliseconds of a search, plain,
among 2 % and 60 % of the documents.

The servers must run; their passwords or keys are in LOOM_VECTORS_SECRET and LOOM_LEXICAL_SECRET. Tables are
Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
from bases import ask, fill, percentile
from datasets import read_dataset
from quality import difference, figures
from vectors import RememberedVectors

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge import KnowledgeBase, PassageVectors, VectorQuery
from loom_core.knowledge.indexes.engines.servers import VECTORS, find_secret, open_vector_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from loom_core.knowledge import VectorIndex

_DIMENSION = 384
_GROUPS = 400
_LATENT = 48  # dimensions that vary: text embeddings have few of them
_LIMIT = 600  # as the first stage of retrieval asks
_QUESTIONS = 60
_PER_DOCUMENT = 10
_BATCH = 2000


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="*", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("-v", "--vectors", action="append", default=[], metavar="SETTING")
    arguments.add_argument("-l", "--lexical", action="append", default=[], metavar="SETTING")
    arguments.add_argument("--passages", type=int, metavar="N", help="synthetic vectors instead of data sets")
    arguments.add_argument("--limit-queries", type=int, metavar="N", help="a fixed random sample of N")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the knowledge bases there")
    args = arguments.parse_args()
    if args.passages:
        print("\n".join(_table_of_searches(args.passages, args.vectors)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        anyio.run(_compare_answers, args, args.keep or Path(temporary))


async def _compare_answers(args: argparse.Namespace, home: Path) -> None:
    embedder = RememberedVectors(create_embedder("auto"), home)
    print("| set | searched in | R@1 | R@5 | difference | nDCG@10 | p50 / p95 ms | moved in s |")
    print("|---|---|---|---|---|---|---|---|")
    files = ("exact", "tantivy")
    places = [files, *((vectors, "tantivy") for vectors in args.vectors)]
    places += [("exact", lexical) for lexical in args.lexical]
    for folder in args.datasets:
        dataset = read_dataset(folder, limit=args.limit_queries)
        golds = [question.gold for question in dataset.questions]
        knowledge_base = KnowledgeBase(dataset.name, path=home / dataset.name, embedder=embedder)
        await fill(knowledge_base, dataset.documents)
        before = None
        for vectors, lexical in places:
            began = time.perf_counter()
            knowledge_base.move(vectors=vectors, lexical=lexical)
            await knowledge_base.worker.drain()
            moved = time.perf_counter() - began
            run = await ask(knowledge_base, dataset.questions)
            found = figures(run.rankings, golds)
            before = before or found
            change, interval = difference("R@5", found, before)
            print(
                f"| {dataset.name} | {vectors.partition('+')[0]}, {lexical.partition('+')[0]} "
                f"| {100 * found['R@1'].mean():.1f} | {100 * found['R@5'].mean():.1f} "
                f"| {change:+.1f} ({interval[0]:+.1f} to {interval[1]:+.1f}) "
                f"| {100 * found['nDCG@10'].mean():.1f} | {statistics.median(run.retrieve_ms):.0f} / "
                f"{percentile(run.retrieve_ms, 95):.0f} | {moved:.0f} |",
                flush=True,
            )
        knowledge_base.move(vectors="exact", lexical="tantivy")  # so that nothing is left in a server
        await knowledge_base.worker.drain()
        knowledge_base.close()


def _table_of_searches(passages: int, settings: Sequence[str]) -> list[str]:
    vectors, questions = _synthetic(passages), _synthetic(passages + _QUESTIONS)[passages:]
    lines = [
        f"{passages:,} vectors, the nearest {_LIMIT}: p50 / p95 in ms, and the share that is found",
        "",
        "| engine | load s | build s | plain | 2 % of documents | 60 % of documents |",
        "|---|---|---|---|---|---|",
    ]
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
    engine: str, index: VectorIndex, vectors: NDArray[np.float32], questions: NDArray[np.float32]
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
    index: VectorIndex,
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
