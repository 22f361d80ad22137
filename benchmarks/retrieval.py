"""How well and how fast Loom retrieves, on any data set in the schema below, through the real pipeline.

    python benchmarks/retrieval.py ../shared/data/2wiki-dev164 ../shared/data/scifact

A data set is a folder with `corpus.jsonl.gz` (or `.jsonl`; lines with `_id`, `title`, `text`),
`queries.jsonl` (`_id`, `text`) and `qrels.tsv` (a header, then query id, corpus id, score > 0). Each line
of the corpus becomes a document with its title, in a temporary knowledge base on disk. For every set one JSON
object is printed; figures are percent unless their name says ms or s. Recall@k is the share of a question's
gold documents among the first k, all@k the share of questions with all of them there; a document counts at
the place of its best passage. Questions without gold documents are left out.

Vectors are the costly part: `--keep FOLDER` keeps the knowledge bases there and uses them again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

DEPTH = 60  # passages asked for, so that there are ten documents among them


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument(
        "--strategy", choices=["hybrid", "vector_first", "graph_first", "graph_only", "bm25"]
    )
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument("--limit-queries", type=int, metavar="N", help="a fixed random sample of N")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER")
    arguments.add_argument("--json", action="store_true", help="one JSON object a line, nothing else")
    args = arguments.parse_args()
    for dataset in args.datasets:
        if not (dataset / "queries.jsonl").is_file():
            sys.exit(f"{dataset} is no data set: it has no queries.jsonl.")
        result = anyio.run(measure, dataset, args)
        print(json.dumps(result, ensure_ascii=False, indent=None if args.json else 2), flush=True)


async def measure(dataset: Path, args: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as scratch:
        folder = (args.keep or Path(scratch)) / dataset.name
        embedder = create_embedder(args.embedder)
        # A strategy without vectors needs none made.
        without = args.strategy in {"bm25", "graph_only"}
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=None if without else embedder, name=dataset.name, path=folder
        )
        try:
            corpus, queries, gold = read(dataset, args.limit_queries)
            documents, ids = as_documents(corpus)
            ingest_s, embed_s = await fill(knowledge_base, documents, quiet=args.json)
            rankings, retrieve_ms, embed_ms = await ask(knowledge_base, queries, args.strategy, ids)
            embedded, passages = knowledge_base.coverage()
            return {
                "dataset": dataset.name,
                "strategy": args.strategy or knowledge_base.strategy,
                "embedder": "none" if without else embedder.id,
                "passages": len(corpus),
                "chunks": passages,
                "vectors": embedded,
                "queries": len(queries),
                **quality(rankings, [gold[query["_id"]] for query in queries]),
                "ingest_s": round(ingest_s, 1),
                "embed_s": round(embed_s, 1),
                "query_ms_p50": round(statistics.median(retrieve_ms), 1),
                "query_ms_p95": round(percentile(retrieve_ms, 95), 1),
                "embed_query_ms_p50": round(statistics.median(embed_ms), 1),
            }
        finally:
            knowledge_base.close()


def read(
    dataset: Path, limit: int | None
) -> tuple[list[dict[str, str]], list[dict[str, str]], dict[str, set[str]]]:
    plain, packed = dataset / "corpus.jsonl", dataset / "corpus.jsonl.gz"
    with (
        gzip.open(packed, "rt", encoding="utf-8") if packed.exists() else plain.open(encoding="utf-8") as file
    ):
        corpus = [json.loads(line) for line in file if line.strip()]
    with (dataset / "queries.jsonl").open(encoding="utf-8") as file:
        queries = [json.loads(line) for line in file if line.strip()]
    gold: dict[str, set[str]] = {}
    with (dataset / "qrels.tsv").open(encoding="utf-8") as file:
        next(file)
        for line in file:
            query, document, score = line.rstrip("\n").split("\t")
            if float(score) > 0:
                gold.setdefault(query, set()).add(document)
    queries = [query for query in queries if query["_id"] in gold]
    if limit is not None and limit < len(queries):
        queries = random.Random(0).sample(queries, limit)
    return corpus, queries, gold


def as_documents(corpus: list[dict[str, str]]) -> tuple[list[DocumentDraft], dict[str, str]]:
    drafts = [
        DocumentDraft(
            uri=f"bench:{line['_id']}",
            text=line["text"] or line.get("title", ""),
            title=line.get("title", ""),
            title_source="given" if line.get("title") else "none",
        )
        for line in corpus
    ]
    return drafts, {draft.uri: line["_id"] for draft, line in zip(drafts, corpus, strict=True)}


async def fill(
    knowledge_base: GraphRAGKnowledgeBase, documents: list[DocumentDraft], *, quiet: bool
) -> tuple[float, float]:
    """Seconds until everything could be found by words and links, and from then until all had vectors."""
    started = time.perf_counter()
    job = knowledge_base.submit_documents(documents)
    searchable = 0.0
    told = started

    def progress() -> None:
        nonlocal searchable, told
        if not searchable and knowledge_base.job(job).finished:
            searchable = time.perf_counter()
        if not quiet and time.perf_counter() - told > 15:
            told = time.perf_counter()
            done, total = knowledge_base.coverage()
            print(f"{knowledge_base.name}: {done} of {total} passages embedded", file=sys.stderr)

    await knowledge_base.worker.drain(progress=progress)
    ended = time.perf_counter()
    report = knowledge_base.record.jobs.report(knowledge_base.job(job), ["failed"])
    if report:
        sys.exit(f"{len(report)} documents failed, the first: {report[0].uri}: {report[0].reason}")
    return searchable - started, ended - searchable


async def ask(
    knowledge_base: GraphRAGKnowledgeBase,
    queries: list[dict[str, str]],
    strategy: str | None,
    ids: dict[str, str],
) -> tuple[list[list[str]], list[float], list[float]]:
    for query in queries[:5]:  # loads what is loaded at the first question
        await knowledge_base.search(query["text"], limit=DEPTH, strategy=strategy)
    rankings: list[list[str]] = []
    retrieve_ms: list[float] = []
    embed_ms: list[float] = []
    for query in queries:
        answer = await knowledge_base.search(query["text"], limit=DEPTH, strategy=strategy)
        rankings.append(list(dict.fromkeys(ids[item.source] for item in answer.items)))
        retrieve_ms.append(answer.retrieve_ms)
        embed_ms.append(answer.embed_ms)
    return rankings, retrieve_ms, embed_ms


def quality(rankings: list[list[str]], golds: list[set[str]]) -> dict[str, float]:
    def mean(values: list[float]) -> float:
        return round(100 * statistics.fmean(values), 1)

    pairs = list(zip(rankings, golds, strict=True))
    figures = {
        f"R@{k}": mean([len(gold & set(found[:k])) / len(gold) for found, gold in pairs])
        for k in (1, 2, 5, 10)
    }
    figures |= {f"all@{k}": mean([float(gold <= set(found[:k])) for found, gold in pairs]) for k in (5, 8)}
    figures["MRR@10"] = mean(
        [
            next((1 / rank for rank, id_ in enumerate(found[:10], 1) if id_ in gold), 0.0)
            for found, gold in pairs
        ]
    )
    figures["nDCG@10"] = mean([ndcg(found[:10], gold) for found, gold in pairs])
    return figures


def ndcg(found: list[str], gold: set[str]) -> float:
    gain = sum(1 / math.log2(rank + 1) for rank, id_ in enumerate(found, 1) if id_ in gold)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(len(gold), 10) + 1))


def percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


if __name__ == "__main__":
    main()
