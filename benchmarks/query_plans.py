"""How PostgreSQL finds what a question reads of a store there, and how that grows with the knowledge base.

    python benchmarks/latency.py --sizes 10000 100000 --database URL --keep HOME DATASET_DIR …
    python benchmarks/query_plans.py --sizes 10000 100000 --database URL --keep HOME DATASET_DIR …

Each statement that `hybrid` questions send is executed once more with EXPLAIN (ANALYZE, BUFFERS). Markdown is
printed: statements of a question, for each statement the pages that it reads, on average, at each size, and
the tables of more than a thousand rows that it reads in sequence, which PostgreSQL does as long as that takes
fewer pages than an index.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from datasets import read_dataset

from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.storage import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LIMIT = 10
_LARGE = 1000  # rows of a table whose sequential scan is too much
_SHOWN = 90  # characters of a statement


@dataclass(slots=True)
class _Statement:
    """Plans of a statement: pages read by each, and the tables of which it read every row."""

    pages: list[int] = field(default_factory=list[int])
    scanned: set[str] = field(default_factory=set[str])


class _Recorder:
    """Records what is asked of PostgreSQL; as the product has no place for that, it stands in its way."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Sequence[Any]]] = []
        statements = vars(postgres)["_Statements"]
        execute = statements.execute

        def record(own: object, sql: str, parameters: Sequence[Any] = ()) -> object:
            self.asked.append((sql, parameters))
            return execute(own, sql, parameters)

        statements.execute = record


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--sizes", nargs="+", type=int, required=True, metavar="CHUNKS")
    arguments.add_argument("--database", required=True, metavar="URL")
    arguments.add_argument("--keep", type=Path, required=True, metavar="HOME", help="as for latency.py")
    arguments.add_argument("--questions", type=int, default=20, metavar="N")
    args = arguments.parse_args()
    questions = [question.text for each in args.datasets for question in read_dataset(each).questions]
    chosen = random.Random(0).sample(questions, min(args.questions, len(questions)))
    recorder = _Recorder()
    found = {
        size: anyio.run(_explain, f"{size}", args.database, args.keep / f"{size}", chosen, recorder)
        for size in sorted(args.sizes)
    }
    print("| statement | " + " | ".join(f"pages at {size:,}" for size in found) + " |")
    print("|---" * (1 + len(found)) + "|")
    for sql in dict.fromkeys(sql for plans in found.values() for sql in plans):
        cells = [_mean(plans[sql].pages) if sql in plans else "" for plans in found.values()]
        print(f"| `{_shorten(sql)}` | " + " | ".join(cells) + " |")
    scanned = [
        f"- `{table}` at {size:,}, by `{_shorten(sql)}`"
        for size, plans in found.items()
        for sql, plan in plans.items()
        for table in sorted(plan.scanned)
    ]
    print(
        "\nRead in sequence:\n" + "\n".join(scanned) if scanned else "\nNo large table is read in sequence."
    )


async def _explain(
    name: str, database: str, folder: Path, questions: Sequence[str], recorder: _Recorder
) -> dict[str, _Statement]:
    knowledge_base = GraphRAGKnowledgeBase(name, embedder="hashing", path=folder, database=database)
    store = knowledge_base.store.database
    found: defaultdict[str, _Statement] = defaultdict(_Statement)
    try:
        await knowledge_base.search(questions[0], limit=_LIMIT)
        counts: list[int] = []
        for question in questions:
            recorder.asked.clear()
            await knowledge_base.search(question, limit=_LIMIT)
            asked = list(recorder.asked)
            counts.append(len(asked))
            for sql, parameters in asked:
                with store.snapshot() as db:
                    (plan,) = db.execute(
                        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters
                    ).fetchone()
                plan = plan[0]["Plan"]
                found[sql].pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
                found[sql].scanned |= {
                    node["Relation Name"]
                    for node in _nodes(plan)
                    if node["Node Type"] == "Seq Scan"
                    and node["Actual Rows"] + node.get("Rows Removed by Filter", 0) > _LARGE
                }
        print(
            f"{name} passages: {sum(counts) / len(counts):.1f} statements a question, {max(counts)} at most"
        )
    finally:
        knowledge_base.close()
    return dict(found)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _shorten(sql: str) -> str:
    return " ".join(sql.split())[:_SHOWN]


def _mean(pages: Sequence[int]) -> str:
    return f"{sum(pages) / len(pages):.0f}"


if __name__ == "__main__":
    main()
