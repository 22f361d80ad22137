"""Sub-questions: what a good passage leaves open, asked again about the names that it mentions.

"Who founded the club that X plays for?" is a question about the club once the passage about X is read. No
language model is needed to ask it: the question without the words of that passage's title, the *residual*
question, plus a name that the passage mentions, is asked of words and vectors. A passage that holds the name
and answers it gains as a target of that passage. This finds what links do not: passages that name
something that many others name as well, and those that answer in other words.

It helps only where the first passage is the one that the question is about: its title must be in the
question, or the question must name its subject. The first two passages keep their places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.retrieval.graph_expansion import PassageLink, title_share
from loom_core.knowledge.text.analysis import analyse, words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from loom_core.knowledge.retrieval.channels import Channels, FirstStage, PreparedQuestion
    from loom_core.knowledge.retrieval.graph_expansion import Neighbourhood

__all__ = ["SubQuestionSettings", "ask_sub_questions"]

_KEPT = 2  # documents that keep their places
_LOOKED_AT = 8  # best passages that they are looked for in
_NEAR_KEPT = 0.99  # share of the last of their scores from which others are squeezed below it


@dataclass(frozen=True, slots=True)
class SubQuestionSettings:
    """Parameters of sub-questions, as measured (`benchmarks/RESULTS.md`)."""

    most: int = 4  # sub-questions of a question; 0 for none
    thorough: int = 12  # of a thorough search
    seeds: int = 3  # best passages that are read; those the question names are, too, above `named`
    named: float = 0.5  # share of the best score that a passage must have whose subject the question names
    considered: int = 3  # names that each sub-question is chosen from
    candidates: int = 24  # best passages by words for each
    common: int = 1000  # passages that hold a name from which it is too common to be asked about
    unknown: float = 0.6  # share of a title's words in the question up to which its passage is no seed
    known: float = 0.95  # and from which it is one fully
    weight: float = 1.0  # gain of a perfect answer to a sub-question of the best passage
    meaning: float = 0.8  # weight of the cosine; the rest is that of BM25
    by_words: float = 0.7  # factor of BM25 where there are no vectors
    typical: float = 0.55  # cosine that counts as zero, from that of the average passage to the best found
    cap: float = 0.9  # a target never ranks above the passage that leads to it


class _Seed(NamedTuple):
    """A passage that is read: its score, how sure it is what is asked about, and what it leaves open."""

    chunk: int
    score: float
    sure: float
    tokens: tuple[str, ...]
    text: str


class _SubQuestion(NamedTuple):
    """A question about a name that a seed mentions, with the BM25 of the passages that hold the name."""

    seed: _Seed
    entity: int
    name: str
    holders: dict[int, float]

    @property
    def text(self) -> str:
        return f"{self.seed.text} {self.name}"


def ask_sub_questions(
    question: PreparedQuestion,
    scores: Mapping[int, float],
    first: FirstStage,
    *,
    channels: Channels,
    neighbourhood: Neighbourhood,
    named: Collection[int],
    most: int,
    settings: SubQuestionSettings,
) -> dict[int, tuple[float, PassageLink]]:
    """Ask sub-questions of a question; return the new scores of passages that gain, and what led to them.

    Args:
        question: the question.
        scores: scores of passages after all other steps.
        first: the first stage, for what counts as a typical cosine.
        channels: for asking; without vectors, or if they cannot embed, words alone decide.
        neighbourhood: for what passages mention and are about.
        named: passages whose subject the question names.
        most: maximum number of sub-questions.
        settings: the numbers.
    """
    top = max(scores.values(), default=0.0)
    if top <= 0 or most < 1:
        return {}
    seeds, subjects = _read_seeds(question, scores, neighbourhood, named, settings)
    asked = _choose_names(question, seeds, subjects, neighbourhood, channels, most, settings)
    if not asked:
        return {}
    zeros = _zeros(first, {chunk for each in asked for chunk in each.holders}, channels)
    worth = {seed.chunk: seed.sure * (seed.score / top) ** 2 for seed in seeds}

    def promise(each: _SubQuestion) -> float:
        """Return what an answer may gain, as far as the question's own cosines tell; rare names more."""
        best = max(
            share + _rise(first.semantic.get(chunk), zeros.get(chunk), first.rise)
            for chunk, share in each.holders.items()
        )
        return worth[each.seed.chunk] * (best / (1 + math.log1p(len(each.holders)))) ** 2

    asked = nlargest(most, asked, key=promise)
    similarity = _judge(asked, zeros, channels, settings)
    found: dict[int, tuple[float, PassageLink]] = {}
    for (place, chunk), answer in similarity.items():
        seed, entity, name, _ = asked[place]
        gain = settings.weight * worth[seed.chunk] * answer**2
        score = min(scores.get(chunk, 0.0) + gain, settings.cap * seed.score)
        if score > max(scores.get(chunk, 0.0), found[chunk][0] if chunk in found else 0.0):
            found[chunk] = score, PassageLink(seed.chunk, chunk, entity, name, "asked", answer)
    return _keep_best(found, scores, neighbourhood) if found else {}


def _read_seeds(
    question: PreparedQuestion,
    scores: Mapping[int, float],
    neighbourhood: Neighbourhood,
    named: Collection[int],
    settings: SubQuestionSettings,
) -> tuple[list[_Seed], dict[int, set[int]]]:
    """Return the passages to read, best first, and the entities that each is about."""
    best = nlargest(settings.seeds, scores, key=scores.__getitem__)
    least = settings.named * scores[best[0]]
    chosen = [*best, *(key for key in named if scores.get(key, 0.0) > least and key not in best)]
    subjects: dict[int, set[int]] = {chunk: set() for chunk in chosen}
    for about in neighbourhood.abouts_in(chosen):
        subjects[about.chunk].add(about.entity)
    titles = neighbourhood.titles_of(chosen)
    seeds: list[_Seed] = []
    for chunk in chosen:
        share = title_share(titles[chunk], question.tokens, untitled=0.0)
        sure = (share - settings.unknown) / (settings.known - settings.unknown)
        sure = 1.0 if chunk in named else min(1.0, sure)
        answered = set[str]().union(*titles[chunk])
        tokens = tuple(token for token in question.tokens if token not in answered)
        if sure > 0 and tokens:
            seeds.append(_Seed(chunk, scores[chunk], sure, tokens, _without(question.text, answered)))
    seeds.sort(key=lambda seed: -seed.score)
    return seeds, subjects


def _without(text: str, tokens: set[str]) -> str:
    """Return a question without the words that have only these tokens."""
    kept: list[str] = []
    place = 0
    for word in words(text):
        start = text.find(word, place)
        kept.append(text[place:start])
        place = start + len(word)
        if not (forms := set(analyse(word))) or not forms <= tokens:
            kept.append(word)
    return " ".join("".join([*kept, text[place:]]).split())


def _choose_names(
    question: PreparedQuestion,
    seeds: Sequence[_Seed],
    subjects: Mapping[int, set[int]],
    neighbourhood: Neighbourhood,
    channels: Channels,
    most: int,
    settings: SubQuestionSettings,
) -> list[_SubQuestion]:
    """Return a sub-question for each name that other passages hold: of the best seed that mentions it."""
    known, by_chunk = set(question.tokens), {seed.chunk: seed for seed in seeds}
    names: dict[int, tuple[_Seed, str, list[str]]] = {}
    for mention in neighbourhood.mentions_in(by_chunk):
        if len(names) == settings.considered * most:
            break
        if mention.entity in names or mention.entity in subjects[mention.chunk]:
            continue
        tokens = analyse(mention.name)
        if not known.issuperset(tokens):
            names[mention.entity] = by_chunk[mention.chunk], mention.name, tokens
    chosen = names.items()
    holders = channels.lexical_holding(
        [(seed.tokens, tokens) for _, (seed, _, tokens) in chosen],
        limit=settings.candidates,
        common=settings.common,
        among=question.among,
    )
    return [
        _SubQuestion(seed, entity, name, others)
        for (entity, (seed, name, _)), found in zip(chosen, holders, strict=True)
        if (others := {chunk: share for chunk, share in found.items() if chunk != seed.chunk})
    ]


def _zeros(first: FirstStage, chunks: Collection[int], channels: Channels) -> dict[int, float]:
    """Return the cosine that counts as zero for each passage that has a comparable vector."""
    if not first.zeros:
        return {}
    languages = channels.has_vector(chunks)
    return {chunk: first.zeros[name] for chunk, name in languages.items() if name in first.zeros}


def _rise(cosine: float | None, zero: float | None, most: float) -> float:
    """Return how far a cosine is above its zero, as a share."""
    return 0.0 if cosine is None or zero is None or most <= 0 else max(0.0, (cosine - zero) / most)


def _judge(
    asked: Sequence[_SubQuestion],
    zeros: Mapping[int, float],
    channels: Channels,
    settings: SubQuestionSettings,
) -> dict[tuple[int, int], float]:
    """Return how well passages answer sub-questions, 0 to 1, by (place, passage): by words and vectors."""
    by_words = {
        (place, chunk): share for place, each in enumerate(asked) for chunk, share in each.holders.items()
    }
    cosines = channels.cosines([(each.text, [k for k in each.holders if k in zeros]) for each in asked])
    rises = {pair: max(0.0, cosine - zeros[pair[1]]) for pair, cosine in cosines.items()}
    if not (most := max(rises.values(), default=0.0)):
        return {pair: settings.by_words * share for pair, share in by_words.items()}
    zero = settings.typical * most
    return {
        pair: (1 - settings.meaning) * share
        + settings.meaning * max(0.0, rises.get(pair, 0.0) - zero) / (most - zero)
        for pair, share in by_words.items()
    }


def _keep_best(
    found: Mapping[int, tuple[float, PassageLink]], scores: Mapping[int, float], neighbourhood: Neighbourhood
) -> dict[int, tuple[float, PassageLink]]:
    """Lower scores that exceed those of the first documents to just below them, in the same order."""
    best = nsmallest(_LOOKED_AT, scores, key=lambda key: (-scores[key], key))
    document = neighbourhood.documents_of(best)
    kept: list[int] = []
    for key in best:
        if len({document.get(chunk) for chunk in kept}) < _KEPT:
            kept.append(key)
    least = scores[kept[-1]]
    edge = _NEAR_KEPT * least
    lowered = {
        chunk: (score if score <= edge else least - (least - edge) * edge / score, link)
        for chunk, (score, link) in found.items()
        if chunk not in kept
    }
    return {chunk: each for chunk, each in lowered.items() if each[0] > scores.get(chunk, 0.0)}
