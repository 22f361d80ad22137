"""Overview: the topics of a knowledge base, each with its terms, documents and representative sentences."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from loom_core.knowledge.overview.topics import Topic, TopicMap
    from loom_core.knowledge.store import ChunkRow, DocumentRow, KnowledgeStore

from loom_core.knowledge.uris import display_uri

# Text analysis is imported lazily: servers import this module at startup.

__all__ = ["Excerpt", "KnowledgeOverview", "TopicOverview", "summarise", "topic_lines"]

_READ = 48  # passages of a topic, the most representative, whose sentences are compared
_MIN, _MAX = 20, 320  # characters of a sentence; a Chinese one says as much in half of them
_BEST = 5  # passages of a topic that are named
_DAMPING = 8  # words: without it, the shortest sentences would win
_DOCUMENTS = 3  # of a topic, by title
_LOOKED_AT = 12  # documents that their titles are from, as several may have one title
_NO_PROSE = {"code", "table", "row"}  # kinds of passages
_TERM = 1.5  # factor of the words of a topic's terms
_LETTERS = re.compile(r"[^\W\d_]")
_ALSO = 6  # terms of a topic in its line
_WHOLE = re.compile(r"(?!```)[^-*•|>;；,，、)）:：\s].*[.!?。！？][\"'”’）)」』]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A sentence of a passage: the text, and the passage's id, title and URI."""

    text: str
    passage_id: str
    title: str
    uri: str


@dataclass(frozen=True, slots=True)
class TopicOverview:
    """A topic as a reader sees it.

    Attributes:
        name: its best terms, or the documents if there are none.
        terms: up to ten terms, the best first.
        passages: how many there are.
        documents: how many documents they are from.
        titles: the documents with most of its passages.
        excerpts: sentences that represent it.
        passage_ids: ids of the most representative passages.
        parts: names of the topics that it consists of, the largest first.
    """

    name: str
    terms: tuple[str, ...]
    passages: int
    documents: int
    titles: tuple[str, ...]
    excerpts: tuple[Excerpt, ...]
    passage_ids: tuple[str, ...]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnowledgeOverview:
    """An overview of a knowledge base, or of the part of it that filters allow.

    Attributes:
        passages: how many there are.
        documents: how many documents they are from.
        topics: the largest topics, the largest first.
        others: how many smaller topics there are.
    """

    passages: int
    documents: int
    topics: tuple[TopicOverview, ...]
    others: int


def summarise(
    store: KnowledgeStore,
    topics: TopicMap,
    *,
    limit: int = 12,
    sentences: int = 2,
    parts: int = 4,
    among: Collection[int] | None = None,
) -> KnowledgeOverview:
    """Summarise a knowledge base by sentences of its own. Blocks.

    The sentences cover the words that are frequent in a topic and rare in the others, each word once
    (maximum coverage, as Gillick and Favre, 2009), so that no two say the same.

    Args:
        store: the store.
        topics: its topics.
        limit: maximum number of topics.
        sentences: how many for each topic.
        parts: how many of a topic's parts are named.
        among: keys of the passages to look at; None for all.
    """
    chosen = _allowed(topics.topics, among)
    shown = chosen[:limit]
    rows = store.documents.chunks(sorted({key for _, keys in shown for key in keys[:_READ]}))
    sampled = [[rows[key] for key in keys[:_READ] if key in rows] for _, keys in shown]
    counts = store.documents.document_counts([keys for _, keys in shown])
    documents = store.documents.by_key(sorted({key for each in counts for key, _ in each[:_LOOKED_AT]}))
    titles = [
        _titles([documents[key] for key, _ in each[:_LOOKED_AT] if key in documents]) for each in counts
    ]
    extract = _Extract(sampled, [topic.terms for topic, _ in shown])
    return KnowledgeOverview(
        passages=topics.chunks if among is None else len(among),
        documents=topics.documents
        if among is None
        else sum(map(len, store.documents.document_counts([tuple(among)]))),
        topics=tuple(
            TopicOverview(
                name=topic.name or "; ".join(titles[place]),
                terms=topic.terms,
                passages=len(keys),
                documents=len(each),
                titles=titles[place],
                excerpts=tuple(extract.sentences(place, sentences)),
                passage_ids=tuple(row.id for row in sampled[place][:_BEST]),
                parts=tuple(part.name for part, _ in _allowed(topic.parts, among)[:parts]),
            )
            for place, ((topic, keys), each) in enumerate(zip(shown, counts, strict=True))
        ),
        others=len(chosen) - len(shown),
    )


def topic_lines(overview: KnowledgeOverview, *, detailed: bool = False) -> list[str]:
    """Describe the topics for a reader: a line each, or with `detailed` a few lines each.

    Args:
        overview: the overview.
        detailed: whether to add the parts, the documents, and all sentences with the ids of their passages.
    """
    lines: list[str] = []
    for topic in overview.topics:
        also = ", ".join(topic.terms[3:_ALSO])
        line = f"- {topic.name} ({topic.passages:,} passages{f'; also {also}' if also else ''})"
        if not detailed:
            lines.append(line + (f": “{topic.excerpts[0].text}”" if topic.excerpts else ""))
            continue
        lines.append(line)
        if topic.parts:
            lines.append(f"    parts: {'; '.join(topic.parts)}")
        more = topic.documents - len(topic.titles)
        lines.append(f"    documents: {'; '.join(topic.titles)}{f'; and {more:,} more' if more > 0 else ''}")
        lines += [f"    “{excerpt.text}” [{excerpt.passage_id}]" for excerpt in topic.excerpts]
    if overview.others:
        lines.append(f"- and {overview.others:,} smaller topics")
    return lines


def _allowed(topics: Sequence[Topic], among: Collection[int] | None) -> list[tuple[Topic, tuple[int, ...]]]:
    """Return topics with those of their passages that are allowed, the largest first."""
    if among is None:
        return [(topic, topic.chunks) for topic in topics]
    allowed = set(among)
    kept = [(topic, tuple(key for key in topic.chunks if key in allowed)) for topic in topics]
    return sorted(((topic, keys) for topic, keys in kept if keys), key=lambda pair: -len(pair[1]))


def _titles(documents: Sequence[DocumentRow]) -> tuple[str, ...]:
    names = dict.fromkeys(row.title or display_uri(row.uri) for row in documents)
    return tuple(names)[:_DOCUMENTS]


class _Sentence:
    """A sentence with its passage."""

    def __init__(self, text: str, row: ChunkRow) -> None:
        self.text = text
        self.row = row

    @cached_property
    def words(self) -> frozenset[str]:
        from loom_core.knowledge.text.analysis import analyse

        return frozenset(analyse(self.text))


class _Extract:
    """Chooses sentences of passages, which are given by topic; no word counts twice."""

    def __init__(self, passages: Sequence[Sequence[ChunkRow]], terms: Sequence[Sequence[str]]) -> None:
        from loom_core.knowledge.text.analysis import analyse

        self._sentences = [[each for row in rows for each in _sentences(row)] for rows in passages]
        counted = [
            Counter(word for each in sentences for word in each.words) for sentences in self._sentences
        ]
        total = Counter(word for counts in counted for word in counts.elements())
        self._all = sum(map(len, self._sentences))
        self._weights = [
            {word: math.log1p(count) * math.log1p(self._all / total[word]) for word, count in counts.items()}
            for counts in counted
        ]
        for weights, names in zip(self._weights, terms, strict=True):
            for word in {word for name in names for word in analyse(name)} & weights.keys():
                weights[word] *= _TERM
        self._covered: set[str] = set()

    def sentences(self, topic: int, count: int) -> Iterator[Excerpt]:
        """Yield the next best sentences of a topic, given by its place, of different passages first."""
        weights, left = self._weights[topic], list(self._sentences[topic])
        read: set[str] = set()
        for _ in range(min(count, len(left))):
            unread = [each for each in left if each.row.id not in read]
            best = max(unread or left, key=lambda each: self._gain(each, weights))
            left.remove(best)
            read.add(best.row.id)
            self._covered |= best.words
            yield Excerpt(best.text, best.row.id, best.row.title, best.row.uri)

    def _gain(self, sentence: _Sentence, weights: dict[str, float]) -> float:
        fresh = sentence.words - self._covered
        return sum(weights[word] for word in fresh) / (len(sentence.words) + _DAMPING)


def _sentences(row: ChunkRow) -> Iterator[_Sentence]:
    """Yield the whole sentences of a passage that are prose."""
    from loom_core.knowledge.ingest.chunking.boundaries import sentence_ends

    if row.kind in _NO_PROSE:
        return
    for paragraph in re.split(r"\n\s*\n", row.text):
        start = 0
        for end in sentence_ends(paragraph, 0, len(paragraph)):
            text = " ".join(paragraph[start:end].split())
            start = end
            letters = len(_LETTERS.findall(text))
            room = 1 if text.isascii() else 2
            is_prose = letters > 0.75 * (len(text) - text.count(" "))
            if is_prose and _MIN <= len(text) * room <= _MAX and _WHOLE.fullmatch(text):
                yield _Sentence(text, row)
