"""How long a question takes as the knowledge base grows.

    python benchmarks/latency.py --keep FOLDER DATASET_DIR DATASET_DIR …
    python benchmarks/latency.py --sizes 2000 20000 100000 1000000 --strategies hybrid --filter
        --while-ingesting --keep FOLDER DATASET_DIR …

Knowledge bases of several sizes are built through the real pipeline from the passages of the data sets, and
beyond those from variants of them (`synthetic.py`). The same questions are asked at every size, one after
the other, each size in a process of its own. Markdown is printed: for every size the time from opening the
knowledge base to its first answer and the memory held after all questions, and for every strategy and size
the time of a question without its embedding: p50, p95 and p99, and p50 and p95 next to the smallest size.

`--filter` asks again for what carries a tag that every fiftieth document has, and `--while-ingesting` while
the same process adds more documents to a copy; for both the ratio to the plain questions is printed. (A base
kept from before the tag was made has none.)

Vectors are of the `hashing` embedder unless another is named: a real model takes an hour or two for 100,000
passages, and how long a search takes does not depend on what the numbers mean. Sizes are in chunks: a long
passage becomes several.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from bases import percentile
from datasets import merged, read_dataset
from latency_size import Measured, Task, carry_out

from loom_core.knowledge.retrieval.config import Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIZES = (2_000, 20_000, 100_000)
_CHILD = "--task"  # how this program is called for one size


def main() -> None:
    if sys.argv[1:2] == [_CHILD]:
        print(json.dumps(carry_out(Task.from_json(sys.argv[2]))))
        return
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--sizes", nargs="+", type=int, default=_SIZES, metavar="CHUNKS")
    arguments.add_argument("--strategies", nargs="+", choices=get_args(Strategy), default=get_args(Strategy))
    arguments.add_argument("--embedder", default="hashing")
    arguments.add_argument("--questions", type=int, default=200, metavar="N", help="a fixed sample of N")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is built and use it again")
    arguments.add_argument("--filter", action="store_true", help="also with a filter on 2 %% of documents")
    arguments.add_argument("--while-ingesting", action="store_true", help="also while documents are added")
    arguments.add_argument("--database", default="", metavar="URL", help="keep the stores in PostgreSQL")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-latency-") as scratch:
        measure(args, args.keep or Path(scratch))


def measure(args: argparse.Namespace, home: Path) -> None:
    """Build and ask knowledge bases of all sizes, and print what it took."""
    sets = merged([read_dataset(folder) for folder in args.datasets])
    passages = sum(len(dataset.documents) for dataset in sets)
    questions = [question.text for dataset in sets for question in dataset.questions]
    questions = random.Random(0).sample(questions, min(args.questions, len(questions)))
    print(f"{len(questions)} questions; {passages} real passages, then variants of them; ", end="")
    print(f"vectors of {args.embedder!r}\n")
    found: list[Measured] = []
    for size in sorted(args.sizes):
        task = Task(
            kind="fill",
            folder=str(home / f"{size}"),
            database=args.database,
            size=size,
            datasets=[str(folder) for folder in args.datasets],
            embedder=args.embedder,
            questions=questions,
            strategies=list(args.strategies),
            filtered=args.filter,
            ingesting=args.while_ingesting,
        )
        added = _in_a_process(task)
        measured = _in_a_process(task.to_ask())
        found.append(measured)
        print(f"- {measured['chunks']:,} chunks, {measured['entities']:,} entities, ", end="")
        print(f"{measured['mentions']:,} mentions; added in {added['seconds']:.0f} s; ", end="")
        print(
            f"first answer {measured['seconds']:.2f} s after opening began; {measured['rss_mib']:.0f} MiB ",
            end="",
        )
        print(f"resident, {measured['anonymous_mib']:.0f} of them its own", flush=True)
    print("\n".join(_table(found, "plain")))
    for name in ("filtered", "ingesting"):
        if any(measured["ms"][name] for measured in found):
            print("\n".join(_ratios(found, name)))


def _in_a_process(task: Task) -> Measured:
    """Run a task in a child process and return its figures; end this process if the task fails."""
    command = [sys.executable, __file__, _CHILD, task.to_json()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{task.kind} {task.size} ended with {done.returncode}")
    return json.loads(done.stdout)


def _table(found: Sequence[Measured], name: str) -> list[str]:
    lines = ["", "| strategy | chunks | p50 ms | p95 ms | p99 ms | p50 ratio | p95 ratio |", "|---" * 7 + "|"]
    smallest = found[0]["ms"][name]
    for strategy, first in smallest.items():
        for measured in found:
            values = measured["ms"][name][strategy]
            shown = [f"{percentile(values, percent):.1f}" for percent in (50, 95, 99)]
            lines.append(_row(strategy, measured, [*shown, *_against(values, first)]))
    return lines


def _ratios(found: Sequence[Measured], name: str) -> list[str]:
    lines = ["", f"| {name} | chunks | p50 ms | p95 ms | p50 ratio | p95 ratio |", "|---" * 6 + "|"]
    for measured in found:
        by_strategy: Mapping[str, list[float]] = measured["ms"][name]
        for strategy, values in by_strategy.items():
            shown = [f"{percentile(values, percent):.1f}" for percent in (50, 95)]
            ratios = _against(values, measured["ms"]["plain"][strategy])
            lines.append(_row(strategy, measured, [*shown, *ratios]))
    return lines


def _against(values: Sequence[float], other: Sequence[float]) -> list[str]:
    return [f"{percentile(values, percent) / percentile(other, percent):.2f}" for percent in (50, 95)]


def _row(strategy: str, measured: Measured, cells: Sequence[str]) -> str:
    return f"| `{strategy}` | {measured['chunks']:,} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
