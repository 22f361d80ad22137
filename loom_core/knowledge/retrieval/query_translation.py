"""Query translation by a dictionary, between Chinese and English, for passages in the other language.

An embedding model puts a question nearest to passages in its own language, and its words match none in
another one. The translations of its words are further words for the lexical index, each weighted by how
likely it is. (Dictionary-based cross-language retrieval: Darwish and Oard, "Probabilistic Structured Query
Methods", SIGIR 2003.) The likeliest translation of each word is in a second text for the question's vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from loom_core.cjk import cjk_parts
from loom_core.knowledge.text.analysis import analyse, is_stop_word, words
from loom_core.knowledge.text.scripts import to_simplified
from loom_core.knowledge.text.segmentation import tag_runs
from loom_core.knowledge.text.surface_forms import POSSESSIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loom_core.knowledge.text.bilingual_dictionary import BilingualDictionary

__all__ = ["TRANSLATED_INTO", "QueryTranslation", "translate_query"]

TRANSLATED_INTO: Final = {"zh": "alphabetic", "alphabetic": "zh"}
"""The language group that questions of another one are translated into."""

_LONGEST = 4  # words that are looked up as one
_CANDIDATES = 8  # likeliest translations of a word that count
_SCALE = 4  # how often a token of weight 1 is in the query: BM25 weights a token by its repetitions
_PERSON = "nr"  # how jieba's tags of people's names begin


@dataclass(frozen=True, slots=True)
class QueryTranslation:
    """A question as words of another language.

    Attributes:
        language: the language group of the passages that it is for.
        text: a text for its vector.
        terms: for each word of the question the tokens of its translations, with their weights, 0 to 1.
    """

    language: str
    text: str
    terms: tuple[dict[str, float], ...]

    @property
    def tokens(self) -> list[str]:
        """The query of the lexical index: each token as often as its weight says."""
        weights: dict[str, float] = {}
        for term in self.terms:
            weights |= {token: max(weight, weights.get(token, 0.0)) for token, weight in term.items()}
        return [token for token, weight in weights.items() for _ in range(max(1, round(_SCALE * weight)))]


def translate_query(text: str, language: str, dictionary: BilingualDictionary) -> QueryTranslation | None:
    """Translate a question; None if the dictionary knows none of its words.

    Args:
        text: the question.
        language: its language group, one of `TRANSLATED_INTO`.
        dictionary: the dictionary.
    """
    translate = _into_english if language == "zh" else _into_chinese
    found = list(translate(text, dictionary))
    if not any(term.is_translated for term in found):
        return None
    return QueryTranslation(
        TRANSLATED_INTO[language],
        " ".join(term.text for term in found if term.text),
        tuple(term.tokens for term in found if term.tokens),
    )


@dataclass(frozen=True, slots=True)
class _Term:
    """A word of a question: its translation, or itself."""

    text: str
    tokens: dict[str, float]
    is_translated: bool = False


def _match_longest(
    pieces: Sequence[str], look_up: Callable[[Sequence[str]], _Term | None], *, longest: int = _LONGEST
) -> Iterator[_Term | str]:
    """Yield the terms of the longest runs of pieces that can be looked up, and pieces that are in none."""
    place = 0
    while place < len(pieces):
        for end in range(min(len(pieces), place + longest), place, -1):
            if (term := look_up(pieces[place:end])) is not None:
                yield term
                place = end
                break
        else:
            yield pieces[place]
            place += 1


def _into_english(text: str, dictionary: BilingualDictionary) -> Iterator[_Term]:
    gaps, runs = cjk_parts(to_simplified(text))
    yield from map(_keep, words(gaps[0]))
    look_up = partial(_find_english, dictionary)
    for run, gap in zip(runs, gaps[1:], strict=True):
        tagged = tag_runs(run)
        tags = dict(tagged)
        for term in _match_longest([word for word, _ in tagged], look_up):
            if isinstance(term, _Term):
                yield term
            else:
                yield from _split_unknown(term, look_up, is_person=tags[term].startswith(_PERSON))
        yield from map(_keep, words(gap))


def _split_unknown(
    word: str, look_up: Callable[[Sequence[str]], _Term | None], *, is_person: bool
) -> Iterator[_Term]:
    """Yield the terms inside a word that the dictionary does not have; a name stays as it is."""
    found: list[_Term] = []
    if len(word) > 2 and not is_person:
        inner = _match_longest(word, look_up, longest=len(word))
        found = [term for term in inner if isinstance(term, _Term)]
    if found:
        yield from found
    elif len(word) > 1 and not is_stop_word(word):
        yield _Term(word, {})


def _keep(word: str) -> _Term:
    """Return a word that both languages have, such as a name; its tokens share the weight of one word.

    Else a name of several, such as PostgreSQL, would outweigh all that is asked about it.
    """
    tokens = set(analyse(word))
    return _Term(word, dict.fromkeys(tokens, 1 / max(1, len(tokens))))


def _find_english(dictionary: BilingualDictionary, pieces: Sequence[str]) -> _Term | None:
    """Return the English translations of a Chinese word; of a single character none, as it means too much."""
    word = "".join(pieces)
    if len(word) < 2 or is_stop_word(word):
        return None
    return _translated(dictionary.into_english(word))


def _into_chinese(text: str, dictionary: BilingualDictionary) -> Iterator[_Term]:
    for term in _match_longest(words(text), partial(_find_chinese, dictionary)):
        if isinstance(term, _Term):
            yield term
        elif not (term.islower() or is_stop_word(term.lower())):  # Chinese texts have names and numbers, too
            yield _keep(term)


def _find_chinese(dictionary: BilingualDictionary, pieces: Sequence[str]) -> _Term | None:
    """Return the Chinese translations of English words."""
    phrase = POSSESSIVE.sub("", " ".join(pieces))
    if any(is_stop_word(POSSESSIVE.sub("", end).lower()) for end in (pieces[0], pieces[-1])):
        return None
    return _translated(dictionary.into_chinese(phrase))


def _translated(translations: Mapping[str, float]) -> _Term | None:
    """Return the term of a word with its likeliest translations; None if it has none."""
    likely = dict(list(translations.items())[:_CANDIDATES])
    tokens: dict[str, float] = {}
    for word, share in likely.items():
        for token in _tokens(word):
            tokens[token] = min(1.0, tokens.get(token, 0.0) + share / sum(likely.values()))
    return _Term(next(iter(likely)), tokens, is_translated=True) if tokens else None


def _tokens(translation: str) -> set[str]:
    """Return the tokens of a translation: of a Chinese one its words alone.

    Passages would hold words inside long words, and bigrams, by chance: the 避风 of 避风港, say.
    """
    if translation.isascii():
        return set(analyse(translation))
    return {word for word in words(translation) if not is_stop_word(word)}
