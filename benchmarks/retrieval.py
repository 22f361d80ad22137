"""How well and how fast Loom retrieves, on data sets as `datasets.py` describes, through the real pipeline.

    python benchmarks/retrieval.py ../shared/data/2wiki-dev164 ../shared/data/scifact
    python benchmarks/retrieval.py --merged --keep FOLDER DATASET_DIR DATASET_DIR …
    python benchmarks/retrieval.py --ablate DATASET_DIR
    python benchmarks/retrieval.py --openie only DATASET_DIR

Each line of the corpus becomes a document with its title, in a temporary knowledge base on disk. For every
set one JSON object is printed; figures are per cent unless their name says ms or s, and `_ci95` are 95 %
confidence intervals by bootstrap over the questions. Recall@k is the share of a question's gold documents
among the first k, all@k the share of questions with all of them there; a document counts at the place of
its best passage. Questions without gold documents are left out.

`--merged` measures every set alone, then all of them in one knowledge base, and prints a Markdown table of
what the company of the others costs. `--ablate` prints one of what each part of retrieval is worth.

Vectors are the costly part: `--keep FOLDER` keeps the knowledge bases there and uses them again, and
`--vectors-from FOLDER` takes the vectors of texts that other kept knowledge bases have.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import anyio
from ablation import variants
from bases import ask, fill, percentile
from datasets import merged, read_dataset, without_titles
from openie import OPENIE_FILE, OpenIEMode, ReplayExtractor
from quality import INTERVALS, difference, figures, summary
from vectors import RememberedVectors

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.config import RAGConfig, SearchOptions, Strategy
from loom_core.plugins import create

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bases import Run
    from datasets import Dataset
    from quality import Figures

    from loom_core.knowledge.interface import Extractor


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--strategy", choices=get_args(Strategy))
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument("--limit-queries", type=int, metavar="N", help="a fixed random sample of N")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER")
    arguments.add_argument("--vectors-from", type=Path, metavar="FOLDER", help="kept knowledge bases")
    arguments.add_argument("--merged", action="store_true", help="all sets in one knowledge base, too")
    arguments.add_argument("--ablate", action="store_true", help="with each part of retrieval off")
    arguments.add_argument("--openie", choices=get_args(OpenIEMode), help=f"replay {OPENIE_FILE}")
    arguments.add_argument("--rerank", metavar="NAME", help="by a reranker of that name, such as features")
    arguments.add_argument("--without-titles", action="store_true", help="documents without their titles")
    arguments.add_argument("--translated", type=Path, metavar="FILE", help="other texts of the questions")
    arguments.add_argument("--json", action="store_true", help="one JSON object a line, nothing else")
    args = arguments.parse_args()
    for folder in args.datasets:
        if not (folder / "queries.jsonl").is_file():
            sys.exit(f"{folder} is no data set: it has no queries.jsonl.")
        if args.openie and not (folder / OPENIE_FILE).is_file():
            sys.exit(f"{folder} has no {OPENIE_FILE}.")
    if args.merged and (args.openie or args.ablate):
        sys.exit("--merged goes with neither --openie nor --ablate.")
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as scratch:
        anyio.run(Measurement(args, args.keep or Path(scratch)).run)


class Measurement:
    """One call of this script: its options, and the embedder that all its knowledge bases share."""

    def __init__(self, args: argparse.Namespace, home: Path) -> None:
        self._args = args
        self._home = home
        # A strategy without vectors needs none made.
        without = args.strategy in {"bm25", "graph_only"}
        embedder = None if without else create_embedder(args.embedder)
        self._embedder = None if embedder is None else RememberedVectors(embedder, args.vectors_from)
        self._options = SearchOptions(reranker=create("reranker", args.rerank)) if args.rerank else None

    async def run(self) -> None:
        """Measure what was asked for and print it."""
        sets = [self._read(folder) for folder in self._args.datasets]
        alone: list[Figures] = []
        for folder, dataset in zip(self._args.datasets, sets, strict=True):
            extractor = self._args.openie and ReplayExtractor(folder, dataset, mode=self._args.openie)
            if self._args.ablate:
                await self._ablate(dataset, extractor or None)
            else:
                alone += await self._measure(dataset.name, [dataset], extractor or None)
        if self._args.merged:
            together = await self._measure("merged", merged(sets), None)
            print("\n".join(_merged_table(sets, alone, together)))

    def _read(self, folder: Path) -> Dataset:
        dataset = read_dataset(folder, limit=self._args.limit_queries, translations=self._args.translated)
        return without_titles(dataset) if self._args.without_titles else dataset

    async def _measure(
        self, name: str, sets: Sequence[Dataset], extractor: Extractor | None
    ) -> list[Figures]:
        """Put data sets into one knowledge base and ask the questions of each; print a line for each."""
        knowledge_base = self._open(name, RAGConfig(), extractor)
        results: list[Figures] = []
        try:
            documents = [document for dataset in sets for document in dataset.documents]
            times = await fill(knowledge_base, documents, quiet=self._args.json)
            for dataset in sets:
                run = await ask(
                    knowledge_base, dataset.questions, strategy=self._args.strategy, options=self._options
                )
                results.append(figures(run.rankings, [question.gold for question in dataset.questions]))
                line = self._line(name, dataset, knowledge_base, run, results[-1], times)
                print(json.dumps(line, ensure_ascii=False, indent=None if self._args.json else 2), flush=True)
        finally:
            knowledge_base.close()
        return results

    async def _ablate(self, dataset: Dataset, extractor: Extractor | None) -> None:
        """Ask the same questions of one knowledge base under every variant; print a Markdown table."""
        found: dict[str, Figures] = {}
        golds = [question.gold for question in dataset.questions]
        for variant, config in variants().items():
            knowledge_base = self._open(dataset.name, config, extractor)
            try:
                if not found:
                    await fill(knowledge_base, dataset.documents, quiet=self._args.json)
                found[variant] = figures((await ask(knowledge_base, dataset.questions)).rankings, golds)
            finally:
                knowledge_base.close()
        print("\n".join(_ablation_table(dataset.name, found)), flush=True)

    def _open(self, name: str, config: RAGConfig, extractor: Extractor | None) -> GraphRAGKnowledgeBase:
        parts = [name, *([f"openie-{self._args.openie}"] if self._args.openie else [])]
        parts += ["untitled"] if self._args.without_titles else []
        return GraphRAGKnowledgeBase.from_config(
            embedding_provider=self._embedder,
            extractor=extractor,
            config=config,
            name=name,
            path=self._home / "-".join(parts),
        )

    def _line(
        self,
        name: str,
        dataset: Dataset,
        knowledge_base: GraphRAGKnowledgeBase,
        run: Run,
        result: Figures,
        times: tuple[float, float],
    ) -> dict[str, object]:
        embedded, chunks = knowledge_base.coverage()
        return {
            "dataset": dataset.name,
            **({"knowledge_base": name} if name != dataset.name else {}),
            "strategy": self._args.strategy or knowledge_base.strategy,
            **({"reranker": self._args.rerank} if self._args.rerank else {}),
            "embedder": "none" if self._embedder is None else self._embedder.id,
            "extractor": f"openie-{self._args.openie}" if self._args.openie else "rules",
            "passages": len(dataset.documents),
            "chunks": chunks,
            "vectors": embedded,
            "vectors_made": 0 if self._embedder is None else self._embedder.made,
            "queries": len(dataset.questions),
            **summary(result),
            "ingest_s": round(times[0], 1),
            "embed_s": round(times[1], 1),
            "query_ms_p50": round(statistics.median(run.retrieve_ms), 1),
            "query_ms_p95": round(percentile(run.retrieve_ms, 95), 1),
        }


def _merged_table(
    sets: Sequence[Dataset], alone: Sequence[Figures], together: Sequence[Figures]
) -> list[str]:
    lines = ["", "| set | R@5 alone | R@5 merged | difference (95 % CI) |", "|---|---|---|---|"]
    losses: list[float] = []
    for dataset, before, after in zip(sets, alone, together, strict=True):
        change, interval = difference("R@5", after, before)
        losses.append(100 * float(before["R@5"].mean() - after["R@5"].mean()))
        lines.append(
            f"| {dataset.name} | {100 * before['R@5'].mean():.1f} | {100 * after['R@5'].mean():.1f} "
            f"| {_change(change, interval)} |"
        )
    return [*lines, "", f"Mean loss of R@5 over the sets: {statistics.fmean(losses):.2f} points."]


def _ablation_table(name: str, found: dict[str, Figures]) -> list[str]:
    default = next(iter(found.values()))
    lines = [
        "",
        f"{name}, {len(default['R@5'])} questions; in brackets the paired difference and its 95 % CI",
        "",
        f"| variant | {' | '.join(INTERVALS)} |",
        "|---|" + "---|" * len(INTERVALS),
    ]
    for variant, result in found.items():
        cells: list[str] = []
        for figure in INTERVALS:
            cell = f"{100 * result[figure].mean():.1f}"
            if result is not default:
                cell += f" ({_change(*difference(figure, result, default))})"
            cells.append(cell)
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return lines


def _change(mean: float, interval: list[float]) -> str:
    return f"{mean:+.1f}, {interval[0]:+.1f} to {interval[1]:+.1f}"


if __name__ == "__main__":
    main()
