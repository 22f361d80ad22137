"""First stage of retrieval: lexical and vector search, and the fusion of their scores."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.retrieval.confidence import LanguageSimilarity
from loom_core.knowledge.text.analysis import analyse, lookup_tokens
from loom_core.knowledge.text.languages import question_language_group
from loom_core.knowledge.text.query_identifiers import MatchGrade, comparable_text, extract_identifiers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.language_vectors import DenseSearch, Neighbours
    from loom_core.knowledge.interface import LexicalSearch
    from loom_core.knowledge.retrieval.query_translation import QueryTranslation
    from loom_core.knowledge.store.chunk_keys import ChunkKeys
    from loom_core.knowledge.text.query_identifiers import QueryIdentifier

__all__ = [
    "ChannelHits",
    "Channels",
    "FirstStage",
    "FirstStageSettings",
    "PreparedQuestion",
    "first_stage",
]

_READ = 200  # passages that are read for one identifier at most
_INSIDE = 50  # of them those that may hold it as part of a longer identifier
_RARE_CODE, _RARE_CODE_SHARE = 20, 0.01  # passages that hold a code, or share of all, up to which it is rare
_RARE_NAME = 5  # passages that hold a name up to which it is rare
_OF_PART = 0.5  # factor for passages that hold only a part of an identifier


@dataclass(frozen=True, slots=True)
class FirstStageSettings:
    """Parameters of the first stage, as measured (`benchmarks/RESULTS.md`)."""

    lexical_pool: int = 400  # maximum number of passages from the lexical index
    semantic_pool: int = 600  # maximum number of passages of each language from vector search
    centred: bool = True  # whether a cosine of zero is the language's average, or the lowest of the pool
    few: int = 20  # below about this many passages their average is drawn to the baseline of the language
    lean: float = 0.1  # share of the model's preference for the question's language kept for few passages
    floor: float = 0.8  # lowest weight of a language that is unlikely to hold the answer
    translated_floor: float = 0.75  # the same for translated questions in English
    looked_at: int = 3  # best passages by words that tell whether the question is answered in its language
    trusted: float = 0.5  # share of translated words that one of these must hold for them to count in full


@dataclass(frozen=True, slots=True)
class PreparedQuestion:
    """A question, prepared for retrieval.

    Attributes:
        text: the original text.
        vector: its embedding, or None without an embedder that covers its language.
        among: chunks that filters allow, or None for all.
        tokens: the query of the lexical index.
        identifiers: those it names, see `extract_identifiers`.
        language: its language group, see `question_language_group`.
        space: id of the embedder that made the vector.
        translation: its translation, where there are passages in that language.
        translated: its vector for those passages, or None for that of the question.
    """

    text: str
    vector: NDArray[np.float32] | None = None
    among: ChunkKeys | None = None
    tokens: list[str] = field(default_factory=list[str])
    identifiers: tuple[QueryIdentifier, ...] = ()
    language: str = "alphabetic"
    space: str = ""
    translation: QueryTranslation | None = None
    translated: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls,
        text: str,
        *,
        vector: NDArray[np.float32] | None = None,
        among: ChunkKeys | None = None,
        space: str = "",
    ) -> PreparedQuestion:
        """Return a question with its tokens and identifiers."""
        return cls(
            text=text,
            vector=vector,
            among=among,
            tokens=analyse(text),
            identifiers=extract_identifiers(text),
            language=question_language_group(text),
            space=space,
        )

    def vector_for(self, language: str) -> NDArray[np.float32] | None:
        """Return the vector to compare with passages in a language group."""
        is_translated = self.translation is not None and self.translation.language == language
        return self.translated if is_translated and self.translated is not None else self.vector


class Channels:
    """Lexical index and vectors of one knowledge base at one moment.

    The two may be set and asked in different threads; everything else comes after both.

    Args:
        words: lexical index, or None while there is none.
        dense: the vectors, or None if they are not searched.
        covered: language groups that the embedder covers; None for all. Vectors of passages in another
            one are left out, as they are not comparable.
        centroids: baseline of each language, see `LanguageCentroids`; empty where it is not known.
        read: returns the texts of passages with title and headings; needed for identifiers.
        embed: returns the vectors of further questions, or None if that fails; blocks.

    Attributes:
        embed_ms: milliseconds that further questions took to embed.
    """

    def __init__(
        self,
        words: LexicalSearch | None,
        dense: DenseSearch | None,
        *,
        covered: frozenset[str] | None = None,
        centroids: Mapping[str, NDArray[np.float32]] | None = None,
        read: Callable[[Sequence[int]], Mapping[int, str]] | None = None,
        embed: Callable[[Sequence[str]], NDArray[np.float32] | None] | None = None,
    ) -> None:
        self.words = words
        self.dense = dense
        self._covered = covered
        self.centroids = centroids or {}
        self._read = read
        self._embed = embed
        self.embed_ms = 0.0
        self._highest: dict[tuple[str, ...], float] = {}

    def lexical(self, question: PreparedQuestion, *, limit: int) -> dict[int, float]:
        """Return the BM25 of the best passages."""
        if self.words is None or not question.tokens:
            return {}
        [hits] = self.words.search([LexicalQuery(question.tokens, limit, among=question.among)])
        if question.among is None:
            self._highest[tuple(question.tokens)] = hits[0][1] if hits else 0.0
        return dict(hits)

    def lexical_translated(self, question: PreparedQuestion, *, limit: int) -> dict[int, float]:
        """Return the BM25 of the best passages for the translation of a question; none if it has none."""
        tokens = [] if question.translation is None else question.translation.tokens
        if self.words is None or not tokens:
            return {}
        [hits] = self.words.search([LexicalQuery(tokens, limit, among=question.among)])
        return dict(hits)

    def lexical_among(
        self, asked: Mapping[tuple[str, ...], Collection[int]]
    ) -> dict[tuple[str, ...], dict[int, float]]:
        """Return the BM25 of given passages for each of some questions, as a share of the highest score.

        Args:
            asked: the passages for the tokens of each question.
        """
        found: dict[tuple[str, ...], dict[int, float]] = {tokens: {} for tokens in asked}
        if self.words is None:
            return found
        questions = {tokens: keys for tokens, keys in asked.items() if tokens and keys}
        unknown = [tokens for tokens in questions if tokens not in self._highest]
        queries = [LexicalQuery(tokens, len(keys), among=keys) for tokens, keys in questions.items()]
        answers = iter(self.words.search([*queries, *(LexicalQuery(tokens, 1) for tokens in unknown)]))
        hits = {tokens: next(answers) for tokens in questions}
        for tokens, best in zip(unknown, answers, strict=True):
            self._highest[tokens] = best[0][1] if best else 0.0
        for tokens, some in hits.items():
            if high := self._highest[tokens]:
                found[tokens] = {key: score / high for key, score in some}
        return found

    def lexical_holding(
        self,
        asked: Sequence[tuple[tuple[str, ...], Sequence[str]]],
        *,
        limit: int,
        common: int,
        among: ChunkKeys | None,
    ) -> list[dict[int, float]]:
        """Return for each of some questions about a name the best passages that hold the name.

        All of them take one request to a server.

        Args:
            asked: the tokens of each question, and of its name; passages are ranked by both.
            limit: maximum number of passages for each.
            common: number of passages that hold a name from which none of them is returned, and of those
                that may have a score.
            among: passages that filters allow, or None for all.

        Returns:
            BM25 by passage for the question without the name, as a share of the highest score.
        """
        if self.words is None or not asked:
            return [{} for _ in asked]
        questions = list(dict.fromkeys(tokens for tokens, _ in asked))
        answers = iter(
            self.words.search(
                [
                    *(LexicalQuery(tokens, common, among=among) for tokens in questions),
                    *(
                        LexicalQuery([*tokens, *name], limit, among=among, holding=name, common=common)
                        for tokens, name in asked
                    ),
                ]
            )
        )
        shares = {
            tokens: {key: score / hits[0][1] for key, score in hits}
            for tokens, hits in ((tokens, next(answers)) for tokens in questions)
        }
        return [
            {key: shares[tokens].get(key, 0.0) for key, _ in hits}
            for (tokens, _), hits in zip(asked, answers, strict=True)
        ]

    def cosines(self, asked: Sequence[tuple[str, Collection[int]]]) -> dict[tuple[int, int], float]:
        """Return the cosine of further questions with given passages, by (place of the question, passage).

        Args:
            asked: the questions, and passages of each that have a comparable vector.
        """
        keys = sorted({key for _, some in asked for key in some})
        if self.dense is None or self._embed is None or not keys:
            return {}
        began = time.perf_counter()
        questions = self._embed([text for text, _ in asked])
        self.embed_ms += 1000 * (time.perf_counter() - began)
        if questions is None:
            return {}
        products = questions @ self.dense.vectors(keys).T
        columns = {key: column for column, key in enumerate(keys)}
        return {
            (place, key): float(products[place, columns[key]])
            for place, (_, some) in enumerate(asked)
            for key in some
        }

    def score_identifiers(self, question: PreparedQuestion, lexical: dict[int, float]) -> dict[int, float]:
        """Score passages by the question's identifiers that they hold, and how exactly: 1 for each exact one.

        Identifiers that many passages hold are not distinctive, and are left out; so are names
        that may be words of prose (`SHA256`, `GATA-3`), unless only the best passage by BM25 holds one.

        Args:
            question: the question.
            lexical: BM25 of the best passages, best first.
        """
        held: dict[int, float] = {}
        identifiers = question.identifiers
        found = self._holders(identifiers, question.among, (_likely_look_ups, _other_look_ups))
        parts = [
            identifier.parts if holders == {} else ()
            for identifier, holders in zip(identifiers, found, strict=True)
        ]
        every_part = [part for some in parts for part in some]
        in_part = iter(self._holders(every_part, question.among, (_all_look_ups,)))
        for identifier, holders, some in zip(identifiers, found, parts, strict=True):
            held_parts = [next(in_part) or {} for _ in some]
            if holders is None or not (identifier.is_distinctive or list(holders) == list(lexical)[:1]):
                continue
            worth = _OF_PART if some else 1.0
            for key, grade in chain(
                holders.items(), {key: grade for part in held_parts for key, grade in part.items()}.items()
            ):
                held[key] = held.get(key, 0.0) + worth * grade
        return held

    def _holders(
        self,
        identifiers: Sequence[QueryIdentifier],
        among: ChunkKeys | None,
        steps: Sequence[Callable[[QueryIdentifier], Iterable[LexicalQuery]]],
    ) -> list[dict[int, float] | None]:
        """Return the passages that hold each identifier, with how exactly; None for one that is not rare.

        Each step is one request, for those that the steps before have not found: a server may be far away.
        """
        found: list[dict[int, float] | None] = [{} for _ in identifiers]
        if self.words is None or self._read is None:
            return found
        for look_ups in steps:
            queries = {
                place: [*look_ups(identifiers[place])] for place, holders in enumerate(found) if holders == {}
            }
            asked_for = list(chain.from_iterable(queries.values()))
            answers = iter(self.words.search(asked_for) if asked_for else ())
            for place, asked in queries.items():
                candidates = [[key for key, _ in next(answers)] for _ in asked]
                found[place] = self._held_by(identifiers[place], candidates, among, self._read)
        return found

    def _held_by(
        self,
        identifier: QueryIdentifier,
        candidates: Iterable[Sequence[int]],
        among: ChunkKeys | None,
        read: Callable[[Sequence[int]], Mapping[int, str]],
    ) -> dict[int, float] | None:
        """Return which of the candidates hold an identifier: of the first batch in which any does."""
        count = self.words.count() if self.words is not None else 0
        most = max(_RARE_CODE, _RARE_CODE_SHARE * count) if identifier.is_code else _RARE_NAME
        for keys in candidates:
            chosen = [key for key in keys if among is None or key in among]
            if len(chosen) > _READ:
                return None
            holders = {
                key: grade / MatchGrade.WHOLE
                for key, text in read(chosen).items()
                if (grade := identifier.grade_in(comparable_text(text)))
            }
            if holders:
                return holders if len(holders) <= most else None
        return {}

    def semantic(self, question: PreparedQuestion, *, limit: int) -> list[Neighbours]:
        """Return the cosine of the best passages of each language that the embedder covers."""
        if self.dense is None or question.vector is None:
            return []
        return self.dense.by_language(question.vector, limit, among=question.among, only=self._covered)

    def semantic_translated(self, question: PreparedQuestion, *, limit: int) -> list[Neighbours]:
        """Return the same for a question's translated vector, of its language alone; none without one."""
        if self.dense is None or question.translation is None or question.translated is None:
            return []
        into = frozenset({question.translation.language})
        only = into if self._covered is None else into & self._covered
        return self.dense.by_language(question.translated, limit, among=question.among, only=only)

    def baseline_similarity(self, vector: NDArray[np.float32] | None, language: str) -> float | None:
        """Return the baseline cosine of a question with generic text in a language; None if unknown."""
        centroid = self.centroids.get(language)
        return None if centroid is None or vector is None else float(vector @ centroid)

    def has_vector(self, keys: Collection[int]) -> dict[int, str]:
        """Return the language groups of passages, for those whose vectors are comparable."""
        if self.dense is None:
            return {}
        found = self.dense.languages(keys)
        if self._covered is None:
            return found
        return {key: language for key, language in found.items() if language in self._covered}

    def coverage(self, question: PreparedQuestion, keys: Collection[int]) -> float:
        """Return the largest share of the question's words that one of some passages holds, 0 to 1."""
        tokens = dict.fromkeys(question.tokens)
        if self.words is None or not tokens or not keys:
            return 0.0
        held = dict.fromkeys(keys, 0)
        for hits in self.words.search([LexicalQuery([token], len(held), among=keys) for token in tokens]):
            for key, _ in hits:
                held[key] += 1
        return max(held.values()) / len(tokens)

    def translated_coverage(self, question: PreparedQuestion, keys: Collection[int]) -> float:
        """Return the largest share of the translated words that one of some passages holds, 0 to 1."""
        terms = () if question.translation is None else question.translation.terms
        if self.words is None or not terms or not keys:
            return 0.0
        tokens = list(dict.fromkeys(chain.from_iterable(terms)))
        found = self.words.search([LexicalQuery([token], len(keys), among=keys) for token in tokens])
        holders = {token: {key for key, _ in hits} for token, hits in zip(tokens, found, strict=True)}
        return max(sum(any(key in holders[t] for t in term) for term in terms) for key in keys) / len(terms)


def _likely_look_ups(identifier: QueryIdentifier) -> Iterator[LexicalQuery]:
    if pieces := lookup_tokens(identifier.form):
        yield LexicalQuery([*analyse(identifier.form), *pieces], match="all")


def _other_look_ups(identifier: QueryIdentifier) -> Iterator[LexicalQuery]:
    """Yield look-ups of what may hold an identifier that is written otherwise, or is part of a word."""
    pieces = lookup_tokens(identifier.form)
    if not pieces:
        return
    for others in identifier.other_pieces():
        yield LexicalQuery([token for piece in others for token in lookup_tokens(piece)], match="all")
    yield LexicalQuery(pieces, _INSIDE)
    if identifier.prefix:
        yield LexicalQuery([identifier.prefix], _INSIDE, match="prefix")


def _all_look_ups(identifier: QueryIdentifier) -> Iterator[LexicalQuery]:
    yield from _likely_look_ups(identifier)
    yield from _other_look_ups(identifier)


@dataclass(slots=True)
class ChannelHits:
    """Hits of the channels that were searched in parallel for a question.

    Attributes:
        began: when the first one was asked, by `time.perf_counter`.
        lexical: BM25 by passage, best first.
        translated: BM25 of the translation by passage, best first.
        near: nearest passages by cosine, for each language.
        untranslated: the same by the vector of the question alone.
        held: see `Channels.score_identifiers`.
        ms: milliseconds of the channels that were asked: `lexical`, `vector`.
    """

    began: float = field(default_factory=time.perf_counter)
    lexical: dict[int, float] = field(default_factory=dict[int, float])
    translated: dict[int, float] = field(default_factory=dict[int, float])
    near: list[Neighbours] = field(default_factory=list["Neighbours"])
    untranslated: list[Neighbours] = field(default_factory=list["Neighbours"])
    held: dict[int, float] = field(default_factory=dict[int, float])
    ms: dict[str, float] = field(default_factory=dict[str, float])

    def ask_words(self, question: PreparedQuestion, channels: Channels, settings: FirstStageSettings) -> None:
        """Search the lexical index. Blocks."""
        began = time.perf_counter()
        self.lexical = channels.lexical(question, limit=settings.lexical_pool)
        self.translated = channels.lexical_translated(question, limit=settings.lexical_pool)
        self.held = channels.score_identifiers(question, self.lexical)
        self.ms["lexical"] = 1000 * (time.perf_counter() - began)

    def ask_vectors(
        self, question: PreparedQuestion, channels: Channels, settings: FirstStageSettings
    ) -> None:
        """Search the vectors, if there are any and the question has one. Blocks."""
        began = time.perf_counter()
        self.near = self.untranslated = channels.semantic(question, limit=settings.semantic_pool)
        for other in channels.semantic_translated(question, limit=settings.semantic_pool):
            self.near = [other if near.language == other.language else near for near in self.near]
        if channels.dense is not None and question.vector is not None:
            self.ms["vector"] = 1000 * (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class FirstStage:
    """Hits of the lexical and the vector search.

    Attributes:
        scores: both in one, 0 to 1, by passage.
        lexical: BM25 by passage.
        translated: BM25 of the question's translation by passage, instead, for those in its language.
        semantic: cosine by passage.
        ms: milliseconds of the channels that were asked: `lexical`, `vector`.
        held: score by identifiers of each passage, see `Channels.score_identifiers`.
        nearness: how near the question is to the passages of each language, where vectors were asked.
        per_bm25: what a point of BM25 contributes to a score.
        per_rise: what the nearest passage's cosine contributes to its score; 0 without vectors.
        rise: how far that is above what counts as zero; 0 without vectors.
        zeros: that cosine, by language.
    """

    scores: dict[int, float]
    lexical: dict[int, float]
    semantic: dict[int, float]
    ms: dict[str, float] = field(default_factory=dict[str, float], compare=False)
    held: dict[int, float] = field(default_factory=dict[int, float])
    nearness: tuple[LanguageSimilarity, ...] = ()
    per_bm25: float = 0.0
    per_rise: float = 0.0
    rise: float = 0.0
    zeros: dict[str, float] = field(default_factory=dict[str, float])
    translated: dict[int, float] = field(default_factory=dict[int, float])


def first_stage(
    question: PreparedQuestion,
    channels: Channels,
    *,
    lexical_weight: float,
    vector_weight: float,
    by_words: bool = True,
    settings: FirstStageSettings | None = None,
    hits: ChannelHits | None = None,
) -> FirstStage:
    """Search words and vectors, unless that is done already, and fuse their scores.

    The combination is convex (Bruch et al., "An Analysis of Fusion Functions for Hybrid Retrieval", 2023).
    Both scores are brought to 0 to 1. BM25 has a natural zero; a cosine's is that of the average passage of
    the same language, so that neither the size of the corpus nor a language that the model puts nearer to
    the question matters. A passage that a channel did not bring has 0 there; one that has no vector yet, or
    is in a language that the embedder does not cover, is judged by its words alone.

    Where there are passages in several languages, those in the question's own count in full as far as
    the question is answered there, and the others as far as it is not; see `_language_weights`.

    A passage that holds a rare identifier of the question is above all that hold none.

    Args:
        question: the question.
        channels: words and vectors.
        lexical_weight: weight of BM25.
        vector_weight: weight of the cosine.
        by_words: whether the lexical index is searched.
        settings: the numbers.
        hits: the channels' hits, if they were searched with the same settings.
    """
    settings = settings or FirstStageSettings()
    if hits is None:
        hits = ChannelHits()
        if by_words:
            hits.ask_words(question, channels, settings)
        hits.ask_vectors(question, channels, settings)
    lexical, held, ms = hits.lexical, hits.held, hits.ms
    translated = _in_language(question, hits.translated, channels)
    near = hits.near
    if not translated and question.translation is not None:  # not trusted where no passage has its words
        near = hits.untranslated
        question = replace(question, translation=None, translated=None)
    semantic = {key: cosine for group in near for key, cosine in group.hits}
    high = max(lexical.values(), default=0.0)
    words = _shares(lexical)
    if not near:
        return FirstStage(
            _boost(words, held), lexical, semantic, ms, held, per_bm25=1 / high if high else 0.0
        )
    typical = _typical(question, channels, near, settings)
    rise = {group.language: group.hits[0][1] - typical[group.language] for group in near}
    most = max(rise.values())
    meaning: dict[int, float] = {}
    language: dict[int, str] = {}
    for group in near:
        zero = typical[group.language]
        for key, cosine in group.hits:
            meaning[key] = max(0.0, (cosine - zero) / most) if most > 0 else float(cosine > 0)
            language[key] = group.language
    language |= channels.has_vector((words.keys() | translated.keys()) - language.keys())
    elsewhere = None
    if question.translation is not None:
        lexical = {
            k: score for k, score in lexical.items() if language.get(k) != question.translation.language
        }
        # The best passage may hold one word by chance, which must not outrank the question's own language.
        elsewhere = channels.translated_coverage(question, list(translated)[: settings.looked_at])
        trust = min(1.0, elsewhere / settings.trusted) if question.language in rise else 1.0
        words = {key: words[key] for key in lexical}
        words |= {key: trust * share for key, share in _shares(translated).items()}
    weights = _language_weights(question, channels, lexical, rise, language, settings, elsewhere=elsewhere)
    total = lexical_weight * bool(words) + vector_weight or 1.0
    scores = {key: words[key] for key in words.keys() - language.keys()}
    for key, group in language.items():
        fused = (lexical_weight * words.get(key, 0.0) + vector_weight * meaning.get(key, 0.0)) / total
        scores[key] = weights.get(group, 1.0) * fused
    nearness = tuple(
        LanguageSimilarity(
            group.language,
            best=group.hits[0][1],
            mean=group.mean,
            size=group.size,
            usual=channels.baseline_similarity(question.vector, group.language),
        )
        for group in hits.untranslated
    )
    return FirstStage(
        _boost(scores, held),
        lexical,
        semantic,
        ms,
        held,
        nearness,
        per_bm25=lexical_weight / total / high if high else 0.0,
        per_rise=vector_weight / total,
        rise=max(0.0, most),
        zeros=typical,
        translated=translated,
    )


def _in_language(
    question: PreparedQuestion, translated: Mapping[int, float], channels: Channels
) -> dict[int, float]:
    """Return those hits of a question's translation that are in its language."""
    if question.translation is None or not translated:
        return {}
    languages = channels.has_vector(translated.keys())
    into = question.translation.language
    return {key: score for key, score in translated.items() if languages.get(key) == into}


def _shares(scores: Mapping[int, float]) -> dict[int, float]:
    """Return BM25 as a share of the highest."""
    high = max(scores.values(), default=0.0)
    return {key: score / high if high else 0.0 for key, score in scores.items()}


def _boost(scores: dict[int, float], held: dict[int, float]) -> dict[int, float]:
    """Boost passages that hold identifiers above all others, in scores of 0 to 1."""
    return scores | {key: 1.0 + number + scores.get(key, 0.0) for key, number in held.items()}


def _typical(
    question: PreparedQuestion, channels: Channels, near: Sequence[Neighbours], settings: FirstStageSettings
) -> dict[str, float]:
    """Return the cosine that counts as zero, by language: its average, or near the baseline if few."""
    if not settings.centred:
        return dict.fromkeys((group.language for group in near), min(group.hits[-1][1] for group in near))
    total = sum(group.size for group in near) or 1
    overall = sum(group.mean * group.size for group in near) / total
    usual: dict[str, float] = {}
    for group in near:
        vector = question.vector_for(group.language)
        cosine = channels.baseline_similarity(vector, group.language) if len(near) > 1 else None
        if cosine is not None:
            usual[group.language] = cosine + settings.lean * (overall - cosine)
    if len(usual) < len(near):
        usual = {group.language: overall for group in near}
    # Shift the baselines down if the question is farther from all passages than they are: the best
    # passage must stay above zero.
    expected = sum(usual[group.language] * group.size for group in near) / total
    shift = min(0.0, overall - expected)
    return {
        group.language: (group.mean * group.size + (usual[group.language] + shift) * settings.few)
        / (group.size + settings.few)
        for group in near
    }


def _language_weights(
    question: PreparedQuestion,
    channels: Channels,
    lexical: Mapping[int, float],
    rise: dict[str, float],
    language: dict[int, str],
    settings: FirstStageSettings,
    *,
    elsewhere: float | None,
) -> dict[str, float]:
    """Return how much passages of each language count, at most 1.

    Two things tell that a question is answered in its own language: a passage there holds many of its
    words, and the best one there rises as high above the average as the best one elsewhere. Where neither
    is so, the answer is more likely in another language, and those passages count in full instead.

    Of English questions this says little: some passage among thousands holds half of the words of any
    question, and the model puts English passages nearer. Where such a question is translated, the rises and
    the shares of its words that the best passages of both languages hold are compared together.

    Args:
        question: the question.
        channels: its channels.
        lexical: BM25 of the question by passage, best first.
        rise: how far the best passage of each language is above what counts as zero.
        language: the language group of passages.
        settings: the numbers.
        elsewhere: the share of its translated words that a passage holds; None if it is not translated.
    """
    others = {name: height for name, height in rise.items() if name != question.language}
    own = rise.get(question.language)
    if own is None or not others:
        return {}
    best = [key for key in lexical if language.get(key) == question.language][: settings.looked_at]
    coverage = channels.coverage(question, best)
    ratio = own / max(*others.values(), 1e-6)
    # Measured: each ramp goes from the value of questions answered in another language to that of their own.
    if elsewhere is not None and question.language == "alphabetic":
        floor = settings.translated_floor
        answered = _ramp(ratio + 1.7 * (coverage - elsewhere), 2.0, 4.0)
    else:
        floor = settings.floor
        answered = max(_ramp(coverage, 0.25, 0.5), _ramp(ratio, 0.55, 0.8))
    weights = dict.fromkeys(others, 1 - (1 - floor) * answered)
    return weights | {question.language: floor + (1 - floor) * answered}


def _ramp(value: float, start: float, end: float) -> float:
    return min(1.0, max(0.0, (value - start) / (end - start)))
