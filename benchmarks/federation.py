"""Quality of federated search over several sources against one knowledge base that holds all of it.

    python benchmarks/federation.py --keep FOLDER --vectors-from FOLDER DATASET_DIR DATASET_DIR …

The documents of all sets (as `datasets.py` describes them) are put into one knowledge base, and dealt to
three in several ways; the same questions are asked of the one and, through `Federation`, of the three:

- sets: every set goes to one of the three as a whole, in turn;
- even: every document goes to any of the three, by chance;
- skewed: likewise, but 80, 15 and 5 of a hundred;
- foreign: as sets, but the second and third give an order and neither scores nor cosines, as services do.

Printed is a Markdown table for each way: R@5 in per cent and the paired difference to the one knowledge base
with its 95 % confidence interval, for every set; next to it what two plain ways would make of the same
candidates: the best of every source, then the second best (`by rank`), and the sources' own relevances taken
as they are (`by relevance`). A passage that several sources have counts as every one of its copies.
`--keep` keeps the knowledge bases, `--vectors-from` takes vectors from others; see `retrieval.py`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import anyio
from bases import ask, fill, percentile
from datasets import merged, read_dataset
from quality import difference, figures
from vectors import RememberedVectors

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.sources.federation.federation import Federation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset, Question
    from quality import Figures

    from loom_core.knowledge.model import DocumentDraft, KnowledgeItem

Way = Literal["sets", "even", "skewed", "foreign"]

_SOURCES = 3
_SHARES: dict[Way, tuple[float, ...]] = {"even": (1, 1, 1), "skewed": (80, 15, 5)}
_SEED = 7
_LIMIT = 20  # passages of an answer: at least ten documents are among them


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--ways", nargs="+", choices=get_args(Way), default=list(get_args(Way)))
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument("--limit-queries", type=int, metavar="N", help="a fixed random sample of each set")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER")
    arguments.add_argument("--vectors-from", type=Path, metavar="FOLDER", help="kept knowledge bases")
    args = arguments.parse_args()
    for folder in args.datasets:
        if not (folder / "queries.jsonl").is_file():
            sys.exit(f"{folder} is no data set: it has no queries.jsonl.")
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as scratch:
        anyio.run(Measurement(args, args.keep or Path(scratch)).run)


class _Source(KnowledgeBaseProvider):
    """A knowledge base under measurement, which remembers what it found last.

    Args:
        base: what is asked.
        tells_scores: whether it gives scores; else an order and nothing else.
    """

    def __init__(self, base: GraphRAGKnowledgeBase, *, tells_scores: bool = True) -> None:
        self._base = base
        self._tells_scores = tells_scores
        self.found: list[KnowledgeItem] = []

    @property
    def name(self) -> str:
        return self._base.name

    @property
    def description(self) -> str:
        return self._base.description

    @property
    def embedder_id(self) -> str:
        return self._base.embedder_id if self._tells_scores else ""

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        self.found = await self._base.query(query, limit=limit, filters=filters)
        if not self._tells_scores:
            bare = [(item, {"title": item.metadata["title"]}) for item in self.found]
            self.found = [replace(item, relevance=0.0, metadata=metadata) for item, metadata in bare]
        return self.found

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return await self._base.get_by_id(knowledge_id)


@dataclass(slots=True)
class _Rankings:
    """Documents found for every question, best first, by how they were put in order."""

    fused: list[list[str]]
    by_rank: list[list[str]]
    by_relevance: list[list[str]]
    milliseconds: list[float]


class Measurement:
    """One call of this script: its options, and the embedder that all its knowledge bases share."""

    def __init__(self, args: argparse.Namespace, home: Path) -> None:
        self._args = args
        self._home = home
        self._embedder = RememberedVectors(create_embedder(args.embedder), args.vectors_from)

    async def run(self) -> None:
        """Measure what was asked for and print it."""
        sets = merged(
            [read_dataset(folder, limit=self._args.limit_queries) for folder in self._args.datasets]
        )
        documents = [document for dataset in sets for document in dataset.documents]
        one = await self._filled("one", documents)
        alone: list[Figures] = []
        milliseconds: list[float] = []
        for dataset in sets:
            run = await ask(one, dataset.questions)
            alone.append(figures(run.rankings, [question.gold for question in dataset.questions]))
            milliseconds += run.retrieve_ms
        one.close()
        print(
            f"{len(documents):,} passages, {sum(len(s.questions) for s in sets)} questions, embedder "
            f"{self._embedder.id}; one knowledge base: p50 {statistics.median(milliseconds):.0f} ms"
        )
        for way in self._args.ways:
            await self._measure(way, sets, alone)

    async def _measure(self, way: Way, sets: Sequence[Dataset], alone: Sequence[Figures]) -> None:
        dealt = _dealt(way, sets)
        name = "sets" if way == "foreign" else way
        bases = [await self._filled(f"{name}-{place}", part) for place, part in enumerate(dealt)]
        sources = [
            _Source(base, tells_scores=way != "foreign" or place == 0) for place, base in enumerate(bases)
        ]
        sizes = ", ".join(f"{len(part):,}" for part in dealt)
        lines = [
            "",
            f"{way} ({sizes} passages)",
            "",
            "| set | questions | one base | three sources | difference (95 % CI) | by rank | by relevance |",
            "|---|---|---|---|---|---|---|",
        ]
        losses: list[float] = []
        times: list[float] = []
        for dataset, before in zip(sets, alone, strict=True):
            found = await _asked(Federation(sources, deadline=60), sources, dataset.questions)
            golds = [question.gold for question in dataset.questions]
            after = figures(found.fused, golds)
            change, (low, high) = difference("R@5", after, before)
            losses.append(100 * float(before["R@5"].mean() - after["R@5"].mean()))
            times += found.milliseconds
            plain = [100 * figures(each, golds)["R@5"].mean() for each in (found.by_rank, found.by_relevance)]
            lines.append(
                f"| {dataset.name} | {len(golds)} | {100 * before['R@5'].mean():.1f} "
                f"| {100 * after['R@5'].mean():.1f} | {change:+.1f}, {low:+.1f} to {high:+.1f} "
                f"| {plain[0]:.1f} | {plain[1]:.1f} |"
            )
        lines += [
            "",
            f"Mean loss of R@5: {statistics.fmean(losses):.2f} points. A question over three sources: p50 "
            f"{statistics.median(times):.0f} ms, p95 {percentile(times, 95):.0f} ms.",
        ]
        print("\n".join(lines), flush=True)
        for base in bases:
            base.close()

    async def _filled(self, name: str, documents: Sequence[DocumentDraft]) -> GraphRAGKnowledgeBase:
        base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=self._embedder, name=name, path=self._home / name
        )
        await fill(base, documents, quiet=True)
        return base


def _dealt(way: Way, sets: Sequence[Dataset]) -> list[list[DocumentDraft]]:
    """The documents of every source."""
    dealt: list[list[DocumentDraft]] = [[] for _ in range(_SOURCES)]
    chance = random.Random(_SEED)
    for number, dataset in enumerate(sets):
        for document in dataset.documents:
            shares = _SHARES.get(way)
            place = chance.choices(range(_SOURCES), shares)[0] if shares else number % _SOURCES
            dealt[place].append(document)
    return dealt


async def _asked(
    federation: Federation, sources: Sequence[_Source], questions: Sequence[Question]
) -> _Rankings:
    rankings = _Rankings([], [], [], [])
    for question in questions:
        started = time.perf_counter()
        answer = await federation.query(question.text, limit=_LIMIT)
        rankings.milliseconds.append(1000 * (time.perf_counter() - started))
        documents: list[str] = []
        for item in answer.items:
            documents.append(item.source)
            for id_ in item.metadata.get("also_in", ()):
                copy = await federation.get_by_id(id_)
                documents += [] if copy is None else [copy.source]
        rankings.fused.append(list(dict.fromkeys(documents)))
        plain = [await source.query(question.text, limit=2 * _LIMIT) for source in sources]
        ranked = [
            (rank, number, item.source) for number, f in enumerate(plain) for rank, item in enumerate(f)
        ]
        rankings.by_rank.append(list(dict.fromkeys(uri for _, _, uri in sorted(ranked))))
        scored = [(-item.relevance, number, item.source) for number, f in enumerate(plain) for item in f]
        rankings.by_relevance.append(list(dict.fromkeys(uri for _, _, uri in sorted(scored))))
    return rankings


if __name__ == "__main__":
    main()
