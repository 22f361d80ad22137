"""How well the first stage finds answers in another language, among so many passages of each.

    python benchmarks/retrieval.py --merged --keep FOLDER DATASET_DIR …
    python benchmarks/mixtures.py FOLDER/merged DATASET_DIR …

The knowledge base is that of the first command, with the same data sets in the same order. The questions are
those of `translated/`: in Chinese over English passages, and in English over Chinese ones. For each question
and mixture the gold passages and others at random are searched, by words and vectors, without links;
statistics of words are those of all passages. Prints nDCG@10 without and with the dictionary, with the paired
difference and its 95 % confidence interval; at last, the questions of each data set in its own language.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from datasets import merged, read_dataset
from quality import difference, figures
from vectors import RememberedVectors

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.indexes import LexicalIndexes
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.channels import Channels, PreparedQuestion, first_stage
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
from loom_core.knowledge.retrieval.query_translation import translate_query
from loom_core.knowledge.retrieval.question import QuestionPreparer
from loom_core.knowledge.store.chunk_keys import ChunkKeys
from loom_core.knowledge.text.bilingual_dictionary import load_dictionary
from loom_core.knowledge.text.languages import language_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Question

    from loom_core.knowledge.store import KnowledgeStore

_TRANSLATED = Path(__file__).parent / "translated"
_MIXTURES = {  # passages in English and in Chinese; None for all
    "1×1": (1, 1),
    "1×20": (1, 20),
    "5×5": (5, 5),
    "20×20": (20, 20),
    "100×100": (100, 100),
    "all×5": (None, 5),
    "all×all": (None, None),
}
_DEPTH = 60  # passages that the first documents are taken from
_OWN_MIXTURES = ("5×5", "20×20", "all×all")
_OWN = 100  # questions of a data set in its own language


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("knowledge_base", type=Path, metavar="FOLDER")
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--held", action="store_true", help="the questions that were held back")
    args = arguments.parse_args()
    anyio.run(_measure, args.knowledge_base, args.datasets, ".held" if args.held else "")


async def _measure(folder: Path, datasets: Sequence[Path], half: str) -> None:
    embedder = RememberedVectors(create_embedder("auto"))
    base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, name=folder.name, path=folder)
    try:
        passages = _Passages(base.store, folder, embedder)
        print("| questions | mixture | number | without | with | difference |\n|---|---|---|---|---|---|")
        for language, name in (("zh", "zh → en"), ("en", "en → zh")):
            files = [_TRANSLATED / f"{each.name}.{language}{half}.jsonl" for each in datasets]
            sets = merged(
                [
                    read_dataset(each, translations=file if file.exists() else None)
                    for each, file in zip(datasets, files, strict=True)
                ]
            )
            asked = [s.questions for s, file in zip(sets, files, strict=True) if file.exists()]
            for mixture, counts in _MIXTURES.items():
                await _print(f"{name} | {mixture}", [q for some in asked for q in some], passages, counts)
        for dataset in merged([read_dataset(each, limit=_OWN) for each in datasets]):
            for mixture in _OWN_MIXTURES:
                await _print(f"{dataset.name} | {mixture}", dataset.questions, passages, _MIXTURES[mixture])
    finally:
        base.close()


async def _print(
    title: str, questions: Sequence[Question], passages: _Passages, counts: tuple[int | None, int | None]
) -> None:
    """Ask questions without and with the dictionary, and print a line of the table."""
    found = [
        figures(
            [await passages.rank(question, counts, translates=translates) for question in questions],
            [question.gold for question in questions],
        )
        for translates in (False, True)
    ]
    before, after = (100 * float(each["nDCG@10"].mean()) for each in found)
    change, (low, high) = difference("nDCG@10", found[1], found[0])
    cells = f"{len(questions)} | {before:.1f} | {after:.1f} | {change:+.1f}, {low:+.1f} to {high:+.1f}"
    print(f"| {title} | {cells} |", flush=True)


@dataclass(frozen=True, slots=True)
class _Passage:
    uri: str
    language: str
    row: int


class _Passages:
    """All passages of a knowledge base, some of which are searched for each question."""

    def __init__(self, store: KnowledgeStore, folder: Path, embedder: RememberedVectors) -> None:
        self._reader = QuestionPreparer(store, CurrentEmbedder(store, embedder))
        self._read = store.documents.texts_with_headings
        self._words = LexicalIndexes(store, folder).searcher()
        keys = store.documents.chunk_keys(limit=store.documents.last_chunk())
        found, languages, self._matrix = store.vectors.with_languages(keys)
        rows = store.documents.chunks(found)
        self._passages = {
            key: _Passage(rows[key].uri, language_group(language), row)
            for row, (key, language) in enumerate(zip(found, languages, strict=True))
        }
        self._all = self._index(found)

    async def rank(
        self, question: Question, counts: tuple[int | None, int | None], *, translates: bool
    ) -> list[str]:
        """Return the documents for a question, best first, among so many passages in English and Chinese."""
        keys = None if counts == (None, None) else self._choose(question, counts)
        dense = self._all if keys is None else self._index(keys)
        asked = PreparedQuestion.of(
            question.text, among=None if keys is None else ChunkKeys(keys), space=self._reader.space
        )
        if translates:
            translation = translate_query(asked.text, asked.language, load_dictionary())
            asked = replace(asked, translation=translation)
        asked = await self._reader.with_vectors(asked)
        languages = dense.language_groups()
        channels = Channels(
            self._words,
            dense,
            covered=self._reader.comparable_groups(asked.language),
            centroids=self._reader.centroids(asked, languages),
            read=self._read,
        )
        config = RAGConfig()
        scores = first_stage(
            asked, channels, lexical_weight=config.lexical_weight, vector_weight=config.vector_weight
        ).scores
        best = sorted(scores, key=lambda key: (-scores[key], key))[:_DEPTH]
        return list(dict.fromkeys(self._passages[key].uri for key in best))

    def _choose(self, question: Question, counts: tuple[int | None, int | None]) -> list[int]:
        """Return the gold passages of a question, and others at random, the same each time."""
        chance = random.Random(question.id)
        chosen: list[int] = []
        for language, count in zip(("alphabetic", "zh"), counts, strict=True):
            here = [key for key, each in self._passages.items() if each.language == language]
            gold = [key for key in here if self._passages[key].uri in question.gold]
            others = here if count is None else chance.sample(here, count)
            wanted = len(here) if count is None else max(count, len(gold))
            chosen += list(dict.fromkeys([*gold, *others]))[:wanted]
        return chosen

    def _index(self, keys: Sequence[int]) -> LanguageVectors:
        index = LanguageVectors(self._matrix.shape[1])
        rows = [self._passages[key].row for key in keys]
        index.upsert(keys, self._matrix[rows], {key: self._passages[key].language for key in keys})
        return index


if __name__ == "__main__":
    main()
