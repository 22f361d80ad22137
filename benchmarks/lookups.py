"""Look-ups in real manuals: which passage answers, by words, by words and vectors, and with links and walk.

    python benchmarks/graph_gold/fetch_corpora.py FOLDER
    python benchmarks/lookups.py FOLDER --keep KEPT

The questions are those of `graph_gold/questions.jsonl`, over four corpora from Debian packages; half were
held back while retrieval was built. A passage is a hit if it is from the document and has the first 20
characters of the quote that answers, or its words between names of columns; several quotes of a question
count as shares of it. `--keep` keeps the knowledge bases, so that the next run does not embed again. With
`--misses` the questions without a hit among five are listed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_core import KnowledgeBase
from loom_core.knowledge.rag import RAGConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import KnowledgeItem

_QUESTIONS = Path(__file__).parent / "graph_gold" / "questions.jsonl"
_WAYS = {
    "words": RAGConfig(strategy="bm25"),
    "words and vectors": RAGConfig(expansion_weight=0.0, graph_weight=0.0),
    "hybrid": RAGConfig(),
}
_DEPTHS = (1, 3, 5)
_START = 20  # characters of a quote that a passage has to have: it may end within the quote


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpora", type=Path, help="where fetch_corpora.py has put them")
    parser.add_argument("--keep", type=Path, required=True, help="folder of the knowledge bases")
    parser.add_argument("--split", choices=["dev", "held"], help="only this half")
    parser.add_argument("--misses", action="store_true")
    given = parser.parse_args()
    questions = [json.loads(line) for line in _QUESTIONS.read_text(encoding="utf-8").splitlines()]
    if given.split:
        questions = [question for question in questions if question["split"] == given.split]
    print("| corpus | half | questions | way | " + " | ".join(f"R@{depth}" for depth in _DEPTHS) + " |")
    print("|---|---|---|---|" + "---|" * len(_DEPTHS))
    missed: list[str] = []
    for corpus in dict.fromkeys(question["corpus"] for question in questions):
        build(corpus, given.corpora, given.keep)
        of_corpus = [question for question in questions if question["corpus"] == corpus]
        for way, config in _WAYS.items():
            answers = asyncio.run(ask(given.keep / corpus, config, of_corpus))
            for half in ("dev", "held"):
                rows = [pair for pair in zip(of_corpus, answers, strict=True) if pair[0]["split"] == half]
                if rows:
                    shares = [
                        100 * sum(recall(q, a, depth) for q, a in rows) / len(rows) for depth in _DEPTHS
                    ]
                    cells = " | ".join(f"{share:.1f}" for share in shares)
                    print(f"| {corpus} | {half} | {len(rows)} | {way} | {cells} |", flush=True)
            if way == "hybrid":
                missed += [f"{q['id']}: {q['question']}" for q, a in zip(of_corpus, answers, strict=True)
                           if not recall(q, a, 5)]  # fmt: skip
    if given.misses:
        print("\n".join(["", "Without a hit among five:", *missed]))


def build(corpus: str, folder: Path, keep: Path) -> None:
    """Fill the knowledge base of a corpus, unless it is kept from an earlier run."""
    if (keep / corpus).exists():
        return
    names = (folder / f"{corpus}.files.txt").read_text(encoding="utf-8").split("\n")
    with KnowledgeBase(corpus, path=keep / corpus) as knowledge_base:
        asyncio.run(knowledge_base.add(*(folder / name for name in names if name)))


async def ask(
    path: Path, config: RAGConfig, questions: Sequence[dict[str, Any]]
) -> list[list[KnowledgeItem]]:
    """Return the passages that answer each question."""
    with KnowledgeBase(path.name, path=path, config=config) as knowledge_base:
        return [
            await knowledge_base.query(question["question"], limit=max(_DEPTHS)) for question in questions
        ]


def recall(question: dict[str, Any], items: Sequence[KnowledgeItem], depth: int) -> float:
    """Return the share of a question's quotes that the first passages hold."""
    return sum(any(_holds(item, gold) for item in items[:depth]) for gold in question["gold"]) / len(
        question["gold"]
    )


def _holds(item: KnowledgeItem, gold: dict[str, Any]) -> bool:
    documents = [gold["document"], *gold.get("also", ())]
    if not item.source.endswith(tuple(documents)):
        return False
    start = "".join(gold["quote"].split())[:_START]
    return start in "".join(item.content.split()) or _holds_row(item.content, gold["quote"])


def _holds_row(text: str, quote: str) -> bool:
    """Say whether the words of a quote stand there with at most a few between two: the names of columns."""
    words = [re.escape(word) for word in quote.replace("N/A", "").split()]
    return re.search(r"[\s:;]+(?:\S+\s+){0,4}?".join(words), text) is not None


if __name__ == "__main__":
    main()
