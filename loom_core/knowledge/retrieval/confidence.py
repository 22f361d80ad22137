"""Confidence that passages answer a question: a calibrated probability, and a caution if it is low.

Ranking scores say which passage is best, not whether the best is any good. Two features do: how far the
best passage rises above the baseline, in cosine, and which share of the question's words the best ones
hold. A logistic regression maps them to a probability (Platt, "Probabilistic Outputs for Support Vector
Machines", 1999), fitted on answerable and unanswerable questions, English and Chinese, over corpora cut to
1 to 7,000 passages (`benchmarks/answerable.py`; results in `benchmarks/RESULTS.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log10
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.model import KnowledgeItem

# Text analysis is imported lazily: servers import this module at startup.

__all__ = [
    "LanguageSimilarity",
    "Match",
    "MatchVerdict",
    "assess_match",
    "combine_matches",
    "content_words_in",
    "words_missing",
]

MatchVerdict = Literal["strong", "weak", "none"]
"""`strong`: the passages probably answer; `weak`: they probably do not; `none`: none is worth showing."""

_JUDGED = 5  # best passages that are read
_NAMED = 5  # words that a note names
_WEAK = 0.5  # below this confidence an answer is weak
_NONE = 0.05  # and below this it is none
_LEAST = 0.01  # minimum confidence if passages were found; 0 means none were
_WITHOUT_IDENTIFIER = 0.45  # highest confidence where no passage holds an identifier that is asked for
_FEW = 20  # below about this many passages their average cosine is drawn to the baseline of the language
_MANY = 100  # passages whose average is reliable
_UNKNOWN_SHARE = 0.6  # taken where a question has no content word: about the middle of the fitted questions


@dataclass(frozen=True, slots=True)
class LanguageSimilarity:
    """Similarity of a question to the passages of one language, in cosine.

    Attributes:
        language: their language group, see `language_group`.
        best: cosine of the nearest passage.
        mean: cosine of the average passage of that language.
        size: how many passages there are in it.
        usual: baseline cosine of a generic text in that language; None if unknown.
    """

    language: str
    best: float
    mean: float
    size: int
    usual: float | None

    def relative_to(self, ceiling: float) -> LanguageSimilarity:
        """Return the same with cosines as shares of the highest that is possible."""
        usual = None if self.usual is None else self.usual / ceiling
        return replace(self, best=self.best / ceiling, mean=self.mean / ceiling, usual=usual)

    def is_comparable(self, shared: bool) -> bool:
        """Whether a baseline for the cosine is known.

        Args:
            shared: whether the question is in this language, too.
        """
        return self.usual is not None or (shared and self.size >= _MANY)

    def rise(self) -> float:
        """Return how far the nearest passage exceeds the average one, as a share of the maximum.

        The average of a few passages is chance, so the baseline of the language counts as 20 more of them.
        """
        usual = self.mean if self.usual is None else self.usual
        return _share_above(self.best, (self.mean * self.size + usual * _FEW) / (self.size + _FEW))

    @property
    def is_far(self) -> bool:
        """Whether the passages are farther from the question than in almost any answerable question.

        The best of many unrelated passages is nearer by chance than the best of a few.
        """
        return self.rise() < min(0.26, 0.05 + 0.065 * log10(self.size))

    def cross_lingual_rise(self) -> float:
        """Return the weighted rise above the baseline of the language, less that above the average.

        For a question in another language: there the average says more about the two languages and the
        subject of the documents than about the question.
        """
        usual = self.mean if self.usual is None else self.usual
        return 35 * _share_above(self.best, usual) - 13 * _share_above(self.best, self.mean)


@dataclass(frozen=True, slots=True)
class Match:
    """Match of a question with the passages of an answer.

    Attributes:
        confidence: probability that they answer it, 0 to 1, in hundredths; 0 where nothing was found.
        missing: content words of the question that none of the best passages holds, as the question has them.
    """

    confidence: float
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> MatchVerdict:
        """The confidence in three steps, see `MatchVerdict`."""
        return "strong" if self.confidence >= _WEAK else "weak" if self.confidence >= _NONE else "none"

    @property
    def note(self) -> str:
        """A caution for the reader, in a sentence or two; empty for a strong match."""
        if not self.confidence:
            return "Nothing was found. Try other words, fewer filters, or another source."
        named = [f"“{word}”" for word in self.missing[:_NAMED]]
        without = f"no passage found contains {', '.join(named)}" if named else ""
        if self.verdict == "weak":
            return f"Weak match: {without or 'the passages are only loosely related to the question'}."
        if self.verdict == "none":
            return (
                f"No match: nothing here is close to the question{f', and {without}' if without else ''}. "
                "Try other words or another source; else say that these sources do not answer it."
            )
        return ""


def assess_match(
    question: str, items: Sequence[KnowledgeItem], *, nearness: Sequence[LanguageSimilarity] | None = None
) -> Match:
    """Assess how well passages fit a question.

    The language of the best passage decides. In the question's own language, words and cosine count; in
    another one, the cosine, and the words that both can have, such as names in Latin script; without a
    cosine for that language, words alone. The verdict `none` needs the question's own language and a cosine
    that alone suggests it: else a passage in other words would be hidden. An untranslated passage that has a
    heading in the question's language, as in half-translated manuals, counts as one in that language: the
    heading brings it near to any question.

    Identifiers in the question take precedence: passages that hold all of them are no weak match,
    however similar to all others they are; if none holds one of them, the match is weak.

    Args:
        question: the question.
        items: passages, best first.
        nearness: how near the question is to the passages of each language; None to use words alone.
    """
    if not items:
        return Match(0.0)
    from loom_core.knowledge.retrieval.rerankers.ranking import text_with_headings
    from loom_core.knowledge.text.languages import detect_language, language_group
    from loom_core.knowledge.text.query_identifiers import comparable_text, extract_identifiers

    asked = language_group(detect_language(question))
    found = _language(items[0])
    if any(each.language == asked for each in nearness or ()) and _is_headed_in(asked, items[0]):
        found = asked
    shared = asked == found
    near = next(
        (each for each in nearness or () if each.language == found and each.is_comparable(shared)), None
    )
    largest = max(nearness or (), key=lambda each: (each.size, each.language == found), default=None)
    cross_lingual = not shared and (largest is None or largest.language != asked)
    content = [
        word for word in content_words_in(question) if shared or (word.isascii() and asked != "alphabetic")
    ]
    missing = words_missing(content, map(text_with_headings, items[:_JUDGED]))
    share = 1 - len(missing) / len(content) if content else None
    confidence = round(_confidence(share, near, cross_lingual=cross_lingual), 2)
    hopeless = shared and near is not None and near.is_far
    confidence = max(confidence, _LEAST if hopeless else _NONE)
    identifiers = extract_identifiers(question)
    if not identifiers:
        return Match(confidence, tuple(missing))
    texts = [comparable_text(text_with_headings(item)) for item in items]
    if any(identifier.is_held_in(texts[0]) for identifier in identifiers):
        confidence = max(confidence, _NONE)
    telling = [identifier for identifier in identifiers if identifier.is_distinctive]
    unheld = [identifier.text for identifier in telling if not any(map(identifier.is_held_in, texts))]
    if not unheld:
        return Match(max(confidence, _WEAK) if telling else confidence, tuple(missing))
    whole = comparable_text(" ".join(unheld))
    others = [word for word in missing if comparable_text(word) not in whole]
    return Match(min(confidence, _WITHOUT_IDENTIFIER), (*unheld, *others))


def combine_matches(question: str, matches: Sequence[Match], items: Sequence[KnowledgeItem]) -> Match:
    """Combine the matches of several sources: the best of them, and the words that no passage holds.

    Args:
        question: the question.
        matches: one for each source.
        items: the passages of all, best first.
    """
    confidence = max((match.confidence for match in matches), default=0.0)
    return Match(confidence, assess_match(question, items).missing)


def content_words_in(question: str) -> list[str]:
    """Return the words of a question that a search looks for, as they are written, each once."""
    from loom_core.knowledge.text.analysis import analyse, words

    return [word for word in dict.fromkeys(words(question)) if analyse(word)]


def words_missing(content: Sequence[str], texts: Iterable[str]) -> list[str]:
    """Return those of some words that no text holds.

    Args:
        content: words that have tokens, see `analyse`.
        texts: passages.
    """
    from loom_core.knowledge.text.analysis import analyse, tokens_held

    tokens = {word: analyse(word) for word in content}
    wanted = {token for some in tokens.values() for token in some}
    held = {token for text in texts for token in tokens_held(wanted, text)}
    return [word for word, some in tokens.items() if held.isdisjoint(some)]


def _confidence(share: float | None, near: LanguageSimilarity | None, *, cross_lingual: bool) -> float:
    """Return the probability; its coefficients were fitted (`benchmarks/answerable.py`).

    Args:
        share: of the question's words, those that the passages hold; None if that is meaningless.
        near: the similarity; None if unknown.
        cross_lingual: whether most passages are in another language than the question. Where only the best
            one is, it often holds both, and the baseline of its language says little.
    """
    from loom_core.knowledge.retrieval.rerankers.ranking import logistic

    if near is None:
        return _WEAK if share is None else logistic(9.4 * share - 4.7)
    if cross_lingual and near.language != "alphabetic":  # passages in Chinese are all nearer to each other
        return logistic(1.5 * near.cross_lingual_rise() - 5.9)
    if cross_lingual:
        return logistic(near.cross_lingual_rise() + 4.4 * (0.0 if share is None else share - 0.5) - 8.0)
    words_tell = 6.25 * (_UNKNOWN_SHARE if share is None else share) + (share == 1.0)
    return logistic(23 * near.rise() + words_tell - 10.3)


def _language(item: KnowledgeItem) -> str:
    from loom_core.knowledge.text.languages import detect_language, language_group

    known = item.metadata.get("language")
    return language_group(known if isinstance(known, str) and known else detect_language(item.content))


def _is_headed_in(language: str, item: KnowledgeItem) -> bool:
    """Whether a passage has a heading in a language of Chinese, Japanese or Korean script."""
    from loom_core.cjk import has_cjk
    from loom_core.knowledge.retrieval.rerankers.ranking import heading

    return language != "alphabetic" and has_cjk(heading(item))


def _share_above(value: float, zero: float) -> float:
    return (value - zero) / (1 - zero) if zero < 1 else 0.0
