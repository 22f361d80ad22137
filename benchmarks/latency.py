"""How long a question takes as the knowledge base grows.

    python benchmarks/latency.py --keep FOLDER DATASET_DIR DATASET_DIR …

Knowledge bases of several sizes are built through the real pipeline from the passages of the data sets, and
beyond those from variants of them (`synthetic.py`). The same questions are asked at every size, one after
the other. For every strategy and size the time of a question without its embedding is printed, as a Markdown
table: p50, p95 and p99, and p50 and p95 next to the smallest size.

Vectors are of the `hashing` embedder unless another is named: a real model takes an hour or two for 100,000
passages, and how long a search takes does not depend on what the numbers mean. Sizes are in chunks: a long
passage becomes several.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import anyio
from bases import ask, fill, percentile
from datasets import merged, read_dataset
from synthetic import corpus_of

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag.config import Strategy
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import DocumentDraft

_SIZES = (2_000, 20_000, 100_000)
_LIMIT = 10  # passages asked for
_ENOUGH = 0.99  # of a size; above a size retrieval may take another way
_JOB = 4000  # documents that are added at a time


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--sizes", nargs="+", type=int, default=_SIZES, metavar="CHUNKS")
    arguments.add_argument("--strategies", nargs="+", choices=get_args(Strategy), default=get_args(Strategy))
    arguments.add_argument("--embedder", default="hashing")
    arguments.add_argument("--questions", type=int, default=200, metavar="N", help="a fixed sample of N")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is built and use it again")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-latency-") as scratch:
        anyio.run(measure, args, args.keep or Path(scratch))


async def measure(args: argparse.Namespace, home: Path) -> None:
    sets = merged([read_dataset(folder) for folder in args.datasets])
    originals = [document for dataset in sets for document in dataset.documents]
    questions = [question for dataset in sets for question in dataset.questions]
    questions = random.Random(0).sample(questions, min(args.questions, len(questions)))
    print(f"{len(questions)} questions; {len(originals)} real passages, then variants of them; ", end="")
    print(f"vectors of {args.embedder!r}; limit {_LIMIT}\n")
    times: dict[Strategy, dict[int, list[float]]] = {strategy: {} for strategy in args.strategies}
    for size in sorted(args.sizes):
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=create_embedder(args.embedder), name=f"{size}", path=home / f"{size}"
        )
        try:
            seconds = await grow(knowledge_base, size, originals)
            chunks = knowledge_base.coverage()[1]
            entities, relations, mentions = knowledge_base.record.graph.counts()
            print(f"- {chunks:,} chunks, {entities:,} entities, {mentions:,} mentions, ", end="")
            print(f"{relations:,} relations; added in {seconds:.0f} s", flush=True)
            for strategy, by_size in times.items():
                run = await ask(knowledge_base, questions, strategy=strategy, limit=_LIMIT)
                by_size[chunks] = run.retrieve_ms
        finally:
            knowledge_base.close()
    print("\n".join(_table(times)))


async def grow(knowledge_base: GraphRAGKnowledgeBase, size: int, originals: Sequence[DocumentDraft]) -> float:
    """Add documents until there are about `size` chunks, never more.

    Returns:
        Seconds, until every index was up to date; 0 if there was nothing to add.
    """
    documents = corpus_of(originals)
    added, seconds = 0, 0.0
    while (chunks := knowledge_base.coverage()[1]) < _ENOUGH * size:
        each = max(chunks / added, 1.0) if added else 2.0  # chunks of a document
        batch = min(_JOB, max(1, int(0.8 * (size - chunks) / each)))
        seconds += sum(await fill(knowledge_base, list(islice(documents, batch))))
        added += batch
    return seconds


def _table(times: dict[Strategy, dict[int, list[float]]]) -> list[str]:
    lines = ["", "| strategy | chunks | p50 ms | p95 ms | p99 ms | p50 ratio | p95 ratio |", "|---" * 7 + "|"]
    for strategy, by_size in times.items():
        smallest = next(iter(by_size.values()))
        for chunks, values in by_size.items():
            shown = [percentile(values, percent) for percent in (50, 95, 99)]
            ratios = [percentile(values, percent) / percentile(smallest, percent) for percent in (50, 95)]
            cells = [f"{value:.1f}" for value in shown] + [f"{ratio:.2f}" for ratio in ratios]
            lines.append(f"| `{strategy}` | {chunks:,} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
