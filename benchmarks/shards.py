"""Equality of a split knowledge base: the same questions, asked of the whole and of its shards.

    python benchmarks/shards.py --kept FOLDER DATASET_DIR DATASET_DIR …

Each set (as `datasets.py` describes them) becomes a knowledge base of a library, which is asked all questions
and then split (`loom_core.knowledge.sources.splitting`); the shards are asked the same. Printed is a Markdown
table: which share of the first ten passages is the same, nDCG@10, R@5 and R@1 in per cent of both with the
paired difference of nDCG@10 and its 95 % confidence interval, and the median time of a question.
`--kept` names a folder of knowledge bases that other scripts have made of the same sets; copies of them are
used, so that nothing is embedded.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from bases import fill
from datasets import read_dataset
from quality import difference, figures

from loom_core.knowledge.sources.library import Library
from loom_core.knowledge.sources.splitting import split_into_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Question

_LIMIT = 20  # passages of an answer: at least ten documents are among them
_WARM_UP = 5


@dataclass(slots=True)
class _Answers:
    """Answers to all questions: ids of passages and addresses of documents, best first; and times."""

    passages: list[list[str]] = field(default_factory=list[list[str]])
    documents: list[list[str]] = field(default_factory=list[list[str]])
    milliseconds: list[float] = field(default_factory=list[float])


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--into", type=int, default=8, metavar="N", help="shards (default 8)")
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument("--limit-queries", type=int, metavar="N", help="a fixed random sample of each set")
    arguments.add_argument("--kept", type=Path, metavar="FOLDER", help="knowledge bases to copy, by set")
    args = arguments.parse_args()
    print(
        f"| set | passages | questions | same of 10 | nDCG@10 whole | {args.into} shards "
        "| difference (95 % CI) | R@5 | R@1 | p50, ms |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for folder in args.datasets:
        with tempfile.TemporaryDirectory(prefix="loom-bench-") as scratch:
            anyio.run(_measure, args, folder, Path(scratch))


async def _measure(args: argparse.Namespace, folder: Path, home: Path) -> None:
    dataset = read_dataset(folder, limit=args.limit_queries)
    name = dataset.name
    kept = args.kept / name if args.kept else None
    if kept is not None and kept.is_dir():
        shutil.copytree(kept, Library(home).catalogue.place(name).folder)
    library = Library(home, embedder=args.embedder)
    base = await library.get(name, create=True)
    if kept is None:
        await fill(base, dataset.documents, quiet=True)
    else:
        await base.worker.drain()
    passages = base.coverage()[1]
    whole = await _ask(library, name, dataset.questions)
    library.close()
    library = Library(home, embedder=args.embedder)
    started = time.perf_counter()
    await split_into_shards(library, name, count=args.into)
    print(f"{name}: split in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    shards = await _ask(library, name, dataset.questions)
    library.close()
    golds = [question.gold for question in dataset.questions]
    before, after = figures(whole.documents, golds), figures(shards.documents, golds)
    same = [
        len(set(one[:10]) & set(other[:10])) / max(1, min(10, len(one)))
        for one, other in zip(whole.passages, shards.passages, strict=True)
    ]
    change, (low, high) = difference("nDCG@10", after, before)
    pairs = [f"{100 * before[f].mean():.1f} / {100 * after[f].mean():.1f}" for f in ("R@5", "R@1")]
    print(
        f"| {name} | {passages:,} | {len(golds)} | {100 * statistics.fmean(same):.0f} % "
        f"| {100 * before['nDCG@10'].mean():.1f} | {100 * after['nDCG@10'].mean():.1f} "
        f"| {change:+.1f}, {low:+.1f} to {high:+.1f} | {pairs[0]} | {pairs[1]} "
        f"| {statistics.median(whole.milliseconds):.0f} / {statistics.median(shards.milliseconds):.0f} |",
        flush=True,
    )


async def _ask(library: Library, name: str, questions: Sequence[Question]) -> _Answers:
    base = await library.open(name)
    for question in questions[:_WARM_UP]:
        await base.search(question.text, limit=_LIMIT)
    found = _Answers()
    for question in questions:
        started = time.perf_counter()
        answer = await base.search(question.text, limit=_LIMIT)
        found.milliseconds.append(1000 * (time.perf_counter() - started))
        found.passages.append([item.id for item in answer.items])
        found.documents.append(list(dict.fromkeys(item.source for item in answer.items)))
    return found


if __name__ == "__main__":
    main()
