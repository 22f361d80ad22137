"""Overviews: which global questions are recognised, and how much a summary by topics covers.

    python benchmarks/overview.py --data ../shared/data

The questions are those of `tests/fixtures/global_questions.tsv`; the lists `first` and `second` were written
by writers who had not seen the rules (`first` was looked at before the rules took their final form). The
coverage is the share of the words of the summarising questions of GraphRAG-Bench (medical), weighted by
inverse sentence frequency, that so many sentences of an overview hold; in brackets that of their answers.
Questions of retrieval sets are about one thing, so that any that is taken for a global one is a mistake.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core import KnowledgeBase
from loom_core.knowledge.ingest.chunking.boundaries import sentence_ends
from loom_core.knowledge.overview.global_questions import parse_global_question
from loom_core.knowledge.text.analysis import analyse

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUESTIONS = Path(__file__).parent.parent / "tests" / "fixtures" / "global_questions.tsv"
_KINDS = {"Contextual Summarize", "Complex Reasoning"}
_SETS = ("2wiki", "2wiki-dev164", "musique-train100", "scifact", "cmrc2018-dev")
_SIZES = {30: (15, 2), 100: (20, 5)}  # sentences: topics, and sentences of each


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data: Path = parser.parse_args().data
    print_recognised()
    for name in _SETS:
        if (data / name / "queries.jsonl").exists():
            print_mistaken(name, data / name / "queries.jsonl")
    medical = data / "graphrag-bench-medical"
    if medical.exists():
        print_coverage(medical)
    else:
        print(f"{medical} is not there: no coverage")


def print_recognised() -> None:
    """Print how many questions of each list and kind are taken for which kind."""
    with _QUESTIONS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    counts = Counter((row["list"], row["kind"], _kind(row["question"])) for row in rows)
    print("list     kind    questions  all  focus  local")
    for name, kind in sorted({(row["list"], row["kind"]) for row in rows}):
        found = [counts[name, kind, taken] for taken in ("all", "focus", "local")]
        print(f"{name:8} {kind:6} {sum(found):10} {found[0]:4} {found[1]:6} {found[2]:6}")


def print_mistaken(name: str, path: Path) -> None:
    """Print how many questions of a retrieval set are taken for global ones."""
    texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
    began = time.perf_counter()
    mistaken = sum(_kind(text) != "local" for text in texts)
    micros = 1e6 * (time.perf_counter() - began) / len(texts)
    print(f"{name}: {mistaken} of {len(texts):,} questions taken for global ones, {micros:.0f} µs each")


def _kind(question: str) -> str:
    parsed = parse_global_question(question)
    return "local" if parsed is None else "focus" if parsed.focus else "all"


def print_coverage(folder: Path) -> None:
    """Print the share of the words of summarising questions that overviews and random sentences hold."""
    with gzip.open(folder / "corpus.json.gz", "rt", encoding="utf-8") as file:
        text = json.load(file)[0]["context"]
    with gzip.open(folder / "questions.json.gz", "rt", encoding="utf-8") as file:
        questions = [row for row in json.load(file) if row["question_type"] in _KINDS]
    ends = list(sentence_ends(text, 0, len(text)))
    sentences = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    measure = _Coverage(sentences)
    with KnowledgeBase("medical", memory=True, embedder="hashing") as knowledge_base:
        knowledge_base.add_texts_sync([text])
        began = time.perf_counter()
        topics = knowledge_base.topics()
        print(f"{topics.chunks} passages, {len(topics.topics)} topics, {time.perf_counter() - began:.2f} s")
        for count, (limit, each) in _SIZES.items():
            overview = knowledge_base.overview_sync(limit=limit, sentences=each)
            chosen = [excerpt.text for topic in overview.topics for excerpt in topic.excerpts]
            rolled = [random.Random(seed).sample(sentences, count) for seed in range(10)]
            for name, extracts in (("overview", [chosen]), ("random", rolled)):
                shares = [
                    100
                    * sum(measure.share(extract, [row[field] for row in questions]) for extract in extracts)
                    / len(extracts)
                    for field in ("question", "answer")
                ]
                print(f"{name:9} {len(extracts[0]):4} sentences: {shares[0]:.1f} ({shares[1]:.1f})")


class _Coverage:
    """Share of the words of texts that sentences hold, weighted by inverse sentence frequency."""

    def __init__(self, sentences: Sequence[str]) -> None:
        frequency = Counter(word for sentence in sentences for word in set(analyse(sentence)))
        self._weights = {word: math.log(len(sentences) / count) for word, count in frequency.items()}

    def share(self, sentences: Sequence[str], texts: Sequence[str]) -> float:
        held = {word for sentence in sentences for word in analyse(sentence)}
        words = [word for text in texts for word in set(analyse(text)) if word in self._weights]
        covered = sum(self._weights[word] for word in words if word in held)
        return covered / sum(self._weights[word] for word in words)


if __name__ == "__main__":
    main()
