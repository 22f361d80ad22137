"""Replays what a language model extracted, so that extraction by a model can be measured without one."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from datasets import read_lines, uri

from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.model import Extraction, Mention, Relation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from datasets import Dataset

    from loom_core.knowledge.model import Chunk

__all__ = ["OPENIE_FILE", "OpenIEMode", "ReplayExtractor"]

OPENIE_FILE = "openie_llm.jsonl.gz"
"""Lines with `_id` of the passage, `entities` and `triples` (subject, predicate, object)."""

OpenIEMode = Literal["only", "with-rules"]
_METHOD = "llm"
_CONFIDENCE = 0.8


@dataclass(frozen=True, slots=True)
class _Passage:
    text: str
    entities: tuple[str, ...]
    triples: tuple[tuple[str, str, str], ...]


class ReplayExtractor:
    """The port `Extractor` over a file of entities and triples.

    An entity is a mention wherever its name stands in the chunk, in capitals or not; one that the model
    put in other words than the passage is left out, unless a triple has it. What chunks are about is told
    by the rules, from titles and headings.

    Args:
        folder: of the data set.
        dataset: its documents, as they are added.
        mode: the model's entities and triples only, or on top of what the rules find.
    """

    def __init__(self, folder: Path, dataset: Dataset, *, mode: OpenIEMode) -> None:
        self._mode: OpenIEMode = mode
        self._rules = RuleExtractor()
        lines = {uri(line["_id"]): line for line in read_lines(folder / OPENIE_FILE)}
        self._passages: defaultdict[str, list[_Passage]] = defaultdict(list)
        for document in dataset.documents:
            line = lines.get(document.uri, {"entities": [], "triples": []})
            triples = [(str(s), str(p), str(o)) for s, p, o in (t for t in line["triples"] if len(t) == 3)]
            self._passages[document.title].append(
                _Passage(_plain(document.text), tuple(map(str, line["entities"])), tuple(triples))
            )

    @property
    def id(self) -> str:
        """Name and version."""
        return f"openie-1/{self._mode}/{self._rules.id}"

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        """One extraction for each chunk, in order."""
        return [self._extract(chunk) for chunk in chunks]

    def _extract(self, chunk: Chunk) -> Extraction:
        rules = self._rules.extract_one(chunk)
        mentions, relations = self._replayed(chunk)
        if self._mode == "with-rules":
            mentions, relations = [*rules.mentions, *mentions], [*rules.relations, *relations]
        abouts = [about for about in rules.abouts if about.source != "first_phrase"]
        return Extraction(tuple(mentions), tuple(abouts), tuple(relations))

    def _replayed(self, chunk: Chunk) -> tuple[list[Mention], list[Relation]]:
        text = _plain(chunk.text)
        passage = next((p for p in self._passages[chunk.title] if text in p.text), None)
        if passage is None:
            return [], []
        mentions = [
            Mention(chunk.text[start:end], start, end, method=_METHOD, confidence=_CONFIDENCE)
            for entity in passage.entities
            for start, end in _places(entity, chunk.text)
        ]
        whole = text == passage.text
        relations: list[Relation] = []
        for subject, predicate, object_ in passage.triples:
            places = [place for end in (subject, object_) for place in _places(end, chunk.text)[:1]]
            if not places and not whole:  # it was read in another chunk of the passage
                continue
            start = min((start for start, _ in places), default=0)
            end = max((end for _, end in places), default=len(chunk.text))
            relations.append(Relation(subject, predicate.lower(), object_, start, end, _METHOD, _CONFIDENCE))
        return mentions, relations


def _places(name: str, text: str) -> list[tuple[int, int]]:
    """Where a name stands in a text as a word of its own."""
    if not name.strip():
        return []
    pattern = rf"(?<!\w){re.escape(name.strip())}(?!\w)"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def _plain(text: str) -> str:
    return " ".join(text.split())
