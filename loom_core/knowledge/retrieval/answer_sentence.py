"""Answer sentence: the sentence of a passage that holds clearly more of the question's words than any other.

Only words that tell the sentences of the passage apart count, rare ones most: a word that is in all of them
says nothing. Where two sentences are nearly equal, none is marked. How often the marked one has the answer:
`benchmarks/answer_sentences.py`, results in `benchmarks/RESULTS.md`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.chunking.boundaries import sentence_ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.model import KnowledgeItem

# Text analysis is imported lazily: servers import this module at startup.

__all__ = ["find_answer_sentence", "mark_answer_sentences", "split_sentences"]

_LEAD = 0.35  # of all weight in the passage, that the best sentence holds more than the second
_LINE_END = re.compile(r"\n(?=\s*(?:\n|[-*+•|#>]|\d+[.)]\s))")  # of a paragraph, list item, heading or row


def mark_answer_sentences(question: str, items: Sequence[KnowledgeItem]) -> list[KnowledgeItem]:
    """Return the items, with `answer_sentence` in the metadata of those that have one."""
    marked: list[KnowledgeItem] = []
    for item in items:
        is_prose = item.metadata.get("kind") != "code"
        sentence = find_answer_sentence(question, item.content) if is_prose else ""
        metadata = {**item.metadata, "answer_sentence": sentence} if sentence else item.metadata
        marked.append(replace(item, metadata=metadata))
    return marked


def find_answer_sentence(question: str, text: str) -> str:
    """Find the sentence of a passage that probably answers a question; empty if none stands out."""
    from loom_core.knowledge.text.analysis import analyse, is_stop_word, tokens_held

    asked = {word for word in analyse(question) if not is_stop_word(word)}
    sentences = [sentence for sentence in split_sentences(text) if not sentence.endswith(("?", "？"))]
    if len(sentences) < 2 or not asked:
        return ""
    found = [tokens_held(asked, sentence) for sentence in sentences]
    holding = Counter(word for words in found for word in words)
    weights = {word: log(1 + len(sentences) / count) for word, count in holding.items()}
    scores = [sum(map(weights.__getitem__, words)) for words in found]
    second, best = sorted(scores)[-2:]
    return sentences[scores.index(best)] if best - second > _LEAD * sum(weights.values()) else ""


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; an item, a heading or a row of a table ends one, too."""
    ends = {*sentence_ends(text, 0, len(text)), *(line.start() for line in _LINE_END.finditer(text))}
    start = 0
    for end in [*sorted(ends), len(text)]:
        if sentence := text[start:end].strip():
            yield sentence
        start = end
