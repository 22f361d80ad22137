"""What each sentence of an answer rests on: its citations, and whether these can hold it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.chunking.boundaries import sentence_ends
from loom_core.knowledge.language import detect_language, language_group
from loom_core.knowledge.text import analyse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.model import RetrievedPassage

__all__ = ["CITATION", "CitedSentence", "cited_numbers", "cited_sentences"]

CITATION = re.compile(r"[\[【](\d{1,3}(?:\s*[,，、]\s*\d{1,3})*)[\]】]")
"""Numbers of passages as answers cite them: `[1]`, `[1, 2]`, `【3】`."""

_CITATIONS = re.compile(rf"\s*(?:{CITATION.pattern}\s*)*{CITATION.pattern}")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s|[-*_]{3,}\s*$|```)")


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """A sentence of an answer.

    Attributes:
        text: as it stands there, with its citations.
        citations: the numbers of the passages that it cites, as far as there are such passages.
        weak: those of them whose passage shares no content word with the sentence. A passage in a script
            that the sentence is not written in is never among them: words do not tell.
        supported: whether it cites a passage that is not weak. A sentence that is not supported may still be
            true, or say nothing that needs support.
    """

    text: str
    citations: tuple[int, ...] = ()
    weak: tuple[int, ...] = ()

    @property
    def supported(self) -> bool:
        """See the class."""
        return len(self.weak) < len(self.citations)


def cited_numbers(text: str) -> list[int]:
    """The numbers that a text cites, each once, in their order."""
    numbers = (int(n) for group in CITATION.finditer(text) for n in re.findall(r"\d+", group[1]))
    return list(dict.fromkeys(numbers))


def cited_sentences(answer: str, passages: Sequence[RetrievedPassage]) -> list[CitedSentence]:
    """The sentences of an answer, English or Chinese, each with what it rests on.

    Citations count for the sentence they stand in, or that ends right before them. Headings are no sentences.

    Args:
        answer: with citations: `[1]` is the first passage.
        passages: those that the answer was written from.
    """
    grounds = [_Ground.of(passage) for passage in passages]
    return [_judged(sentence, grounds) for sentence in _sentences(answer)]


@dataclass(frozen=True, slots=True)
class _Ground:
    """A passage as sentences are held against it: its content words, and its language's group."""

    words: frozenset[str]
    language: str

    @classmethod
    def of(cls, passage: RetrievedPassage) -> _Ground:
        metadata = passage["metadata"]
        above = [metadata.get("title"), *metadata.get("heading_path", ())]
        text = "\n".join([*(str(part) for part in above if part), passage["text"]])
        return cls(frozenset(analyse(text)), language_group(detect_language(passage["text"])))


def _judged(sentence: str, grounds: Sequence[_Ground]) -> CitedSentence:
    citations = tuple(number for number in cited_numbers(sentence) if 1 <= number <= len(grounds))
    said = CITATION.sub(" ", sentence)
    words, language = frozenset(analyse(said)), language_group(detect_language(said))
    weak = [
        number
        for number in citations
        if (ground := grounds[number - 1]).language == language and words.isdisjoint(ground.words)
    ]
    return CitedSentence(sentence, citations, tuple(weak))


def _sentences(answer: str) -> Iterator[str]:
    for line in answer.splitlines():
        if not line.strip() or _HEADING.match(line):
            continue
        # Sentences are told without the citations, which may stand right behind a full stop.
        bare = CITATION.sub(lambda match: " " * len(match[0]), line)
        start = 0
        for end in [*sentence_ends(bare, 0, len(bare)), len(bare)]:
            if end <= start:
                continue
            if not CITATION.search(line, start, end) and (behind := _CITATIONS.match(line, end)):
                end = behind.end()
            sentence = line[start:end].strip()
            if CITATION.sub("", sentence).strip(" \t-*•>.,;:。，；："):
                yield sentence
            start = end
