"""Graph expansion: from the passages found, and the question's entities, to linked passages.

Three methods share one `Neighbourhood` of entities and passages, which reads each row once:

- *Links.* A question such as "Who directed the film that X starred in?" is answered by a passage that holds
  few of its words: the passage about X names the film, and the film's own passage names the director. So the
  best passages are followed along their links ("mentions → is about"), and what they lead to is judged by
  what the question still asks: the *residual* question, without what the seed already answers. Links count
  as far as the question is about the passage that they start at: as far as it has the words of the title, or
  names the subject. A look-up in a manual has few words of any title, and is answered by one passage.
- *Walk.* Personalised PageRank: passages and entities near the best passages form a small graph; a random
  walk that keeps returning to those passages gives weight to what several of them are connected with
  (Gutiérrez et al., "HippoRAG", 2024, there over the whole graph). Only the neighbourhood is read, so that
  the cost of a question does not grow with the corpus.
- *Graph channel.* The same walk from the entities that the question names alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Literal, NamedTuple

from loom_core.knowledge.retrieval.channels import PreparedQuestion
from loom_core.knowledge.text.analysis import analyse, is_stop_word
from loom_core.knowledge.text.name_matching import is_marked
from loom_core.knowledge.text.surface_forms import name_key, surface_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.indexes.links import IndexedLinks
    from loom_core.knowledge.retrieval.channels import Channels
    from loom_core.knowledge.store.graph import GraphTable
    from loom_core.knowledge.store.mentions import AboutRow, MentionRow
    from loom_core.knowledge.text.surface_forms import SurfaceToken

    LinkReader = GraphTable | IndexedLinks  # the store, or the index of it

__all__ = [
    "GraphExpansion",
    "LinkSettings",
    "Neighbourhood",
    "PassageLink",
    "WalkSettings",
    "expand",
    "graph_channel",
    "link_entities",
    "links_from",
    "title_share",
    "walk",
]


class PassageLink(NamedTuple):
    """A link from one passage to another.

    Attributes:
        seed: chunk it starts at.
        chunk: chunk it leads to.
        entity: what connects them.
        name: the entity as the seed, or for a `back` link the other passage, writes it.
        kind: `forward`, from a mention to a passage about what it mentions; `back`, from a passage to one
            that mentions what it is about; `shared`, to one that mentions the same; `asked`, to one that
            answers a sub-question about what it mentions.
        weight: confidence of the link, 0 to 1.
    """

    seed: int
    chunk: int
    entity: int
    name: str
    kind: Literal["forward", "back", "shared", "asked"]
    weight: float


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Parameters of the expansion, as measured (`benchmarks/RESULTS.md`).

    A forward link weighs by how sure its target is about the name, and by how sure the mention is only where
    that is less than `unsure`. A mention of middling confidence (a capitalised word: 0.6) leads right as
    often as one of 1.0, and weighing all in proportion lost recall: R@5 of 2wiki 98.0 to 96.3, of
    2wiki-dev164 98.3 to 97.4, of musique-train100 74.2 to 73.2. Up to 0.6 it changed nothing on any set.
    """

    named: float = 0.3  # gain of a passage that is about an entity of the question
    seeds: int = 6
    hops: int = 2
    unknown: float = 0.3  # share of a title's words in the question up to which its passage leads nowhere
    known: float = 0.7  # and from which its links count in full
    base: float = 0.3  # score of a link, independent of its target's text
    unsure: float = 0.5  # a mention less sure than this makes a forward link weigh in proportion less
    certainty: float = 3.0  # exponent of the confidence: unsure subjects hardly link
    cap: float = 0.9  # a child never ranks above its parent
    shared: float = 0.5  # weight of a link to a passage that only mentions the entity; a forward link has 1
    shared_cap: float = 0.75  # the cap of such a link
    found: float = 0.34  # weight of the target's own first-stage score
    residual: float = 0.9  # weight of BM25 of the residual question
    targets_each: int = 6  # passages about one entity that are followed
    most: int = 100  # maximum number of links followed in a hop
    rare: int = 8  # an entity that more passages mention connects none of them


@dataclass(slots=True)
class GraphExpansion:
    """Result of the graph expansion: scores of all passages, and the best link to each it raised."""

    scores: dict[int, float]
    gained: dict[int, float]
    links: dict[int, PassageLink]


def links_from(
    neighbourhood: Neighbourhood, seeds: Sequence[int], settings: LinkSettings
) -> list[PassageLink]:
    """Return all links that start at some chunks."""
    mentions = neighbourhood.mentions_in(seeds)
    own: defaultdict[int, dict[int, AboutRow]] = defaultdict(dict)
    for about in neighbourhood.abouts_in(seeds):
        best = own[about.chunk].get(about.entity)
        if best is None or about.confidence > best.confidence:
            own[about.chunk][about.entity] = about
    links = _forward(neighbourhood, mentions, own, settings)
    return links + _sideways(neighbourhood, mentions, own, settings)


def _forward(
    neighbourhood: Neighbourhood,
    mentions: Sequence[MentionRow],
    own: dict[int, dict[int, AboutRow]],
    settings: LinkSettings,
) -> list[PassageLink]:
    """Return links from the mentions of seeds to the passages about them."""
    abouts = neighbourhood.abouts_of({mention.entity for mention in mentions})
    targets = {entity: edges[: settings.targets_each] for entity, edges in abouts.items() if edges}
    document = neighbourhood.documents_of(
        {mention.chunk for mention in mentions} | {chunk for edges in targets.values() for chunk, _ in edges}
    )
    weighed = {entity: _weigh(edges, document, settings) for entity, edges in targets.items()}
    named: dict[tuple[int, int], MentionRow] = {}
    for mention in _outermost_mentions([mention for mention in mentions if mention.entity in targets]):
        named.setdefault((mention.chunk, mention.entity), mention)
    links: list[PassageLink] = []
    for (seed, entity), mention in named.items():
        if entity in own[seed]:  # a passage does not lead to its own subject
            continue
        place, sure = document.get(seed), min(1.0, mention.confidence / settings.unsure)
        links += [
            PassageLink(seed, chunk, entity, mention.name, "forward", weight * sure)
            for chunk, weight in weighed[entity]
            if document.get(chunk) != place
        ]
    return links


def _weigh(edges: Edges, document: dict[int, int], settings: LinkSettings) -> Edges:
    """Return passages about an entity with the weight of a link to them.

    The more documents are about it, the less is any of them what a mention means; and of a long page about
    it, no passage is.
    """
    documents = len({document.get(chunk) for chunk, _ in edges})
    share = documents**0.5 * max(1.0, len(edges) / documents - 1) ** 2
    return [(chunk, confidence**settings.certainty / share) for chunk, confidence in edges]


def _sideways(
    neighbourhood: Neighbourhood,
    mentions: Iterable[MentionRow],
    own: dict[int, dict[int, AboutRow]],
    settings: LinkSettings,
) -> list[PassageLink]:
    """Return links from what seeds mention or are about to the few other passages that mention it."""
    held: dict[tuple[int, int], tuple[str, float]] = {}  # name and certainty, by seed and entity
    for mention in mentions:
        held.setdefault((mention.chunk, mention.entity), (mention.name, mention.confidence))
    around = neighbourhood.mentions_of({entity for _, entity in held}.union(*own.values()))
    rare = {entity: edges for entity, edges in around.items() if 0 < len(edges) <= settings.rare}
    links: list[PassageLink] = []
    for (seed, entity), (name, confidence) in held.items():
        if entity in rare and entity not in own[seed]:
            weight = settings.shared * confidence / len(rare[entity]) ** 0.5
            links += [
                PassageLink(seed, chunk, entity, name, "shared", weight * certainty)
                for chunk, certainty in rare[entity]
                if chunk != seed
            ]
    for seed, abouts in own.items():
        for entity in abouts.keys() & rare.keys():
            about, others = abouts[entity], rare[entity]
            weight = settings.shared * about.confidence / len(others) ** 0.5
            links += [
                PassageLink(seed, chunk, entity, about.name, "back", weight * certainty)
                for chunk, certainty in others
                if chunk != seed
            ]
    return links


def _outermost_mentions(mentions: Sequence[MentionRow]) -> list[MentionRow]:
    """Return the outermost mentions: "New York City" does not name "York"."""
    kept: list[MentionRow] = []
    reach: dict[int, int] = {}
    for mention in sorted(mentions, key=lambda m: (m.chunk, m.start, -m.end)):
        if mention.end > reach.get(mention.chunk, -1):
            kept.append(mention)
            reach[mention.chunk] = mention.end
        elif kept and kept[-1].chunk == mention.chunk and (kept[-1].start, kept[-1].end) == mention[2:4]:
            kept.append(mention)
    return kept


def expand(
    question: PreparedQuestion,
    first_stage: dict[int, float],
    *,
    channels: Channels,
    neighbourhood: Neighbourhood,
    named: Sequence[int] = (),
    weight: float = 1.0,
    settings: LinkSettings | None = None,
) -> GraphExpansion:
    """Follow links from the best passages, for `settings.hops` hops.

    Args:
        question: the question.
        first_stage: scores of passages, 0 to 1.
        channels: for judging passages by the residual question.
        neighbourhood: where the links are.
        named: passages whose subject the question names, which are seeds whatever their score.
        weight: how much a link adds to the score of what it leads to.
        settings: the numbers.
    """
    settings = settings or LinkSettings()
    result = GraphExpansion(dict(first_stage), {}, {})
    sure: dict[int, float] = {}
    for _ in range(settings.hops):
        best = nlargest(settings.seeds, result.scores, key=result.scores.__getitem__)
        seeds = [key for key in dict.fromkeys([*best, *named]) if key not in sure]
        if not seeds:
            break
        titles = neighbourhood.titles_of(seeds)
        for seed in seeds:
            share = 1.0 if seed in named else title_share(titles[seed], question.tokens, untitled=1.0)
            certainty = min(1.0, max(0.0, (share - settings.unknown) / (settings.known - settings.unknown)))
            link = result.links.get(seed)
            sure[seed] = certainty if link is None else max(certainty, sure[link.seed])
        top = max(result.scores.values(), default=0.0) or 1.0
        before = {seed: result.scores.get(seed, 0.0) for seed in seeds if sure[seed]}
        worth = {seed: weight * sure[seed] * (parent / top) ** 2 for seed, parent in before.items()}
        links = links_from(neighbourhood, list(before), settings)
        if question.among is not None:
            links = [link for link in links if link.chunk in question.among]
        # Keep the links with the highest possible gain.
        links = nlargest(settings.most, links, key=lambda link: worth[link.seed] * link.weight)
        similarity = _residual(question, links, titles, first_stage, channels, settings)
        _follow(links, before, worth, similarity, first_stage, result, settings)
    return result


def title_share(titles: Iterable[set[str]], asked: Collection[str], *, untitled: float) -> float:
    """Return the largest share of the tokens of one of some titles that a question has.

    Args:
        titles: the tokens of each; none is empty.
        asked: the tokens of the question.
        untitled: what is returned without a title.
    """
    return max((len(title.intersection(asked)) / len(title) for title in titles), default=untitled)


def _follow(
    links: Sequence[PassageLink],
    before: dict[int, float],
    worth: dict[int, float],
    similarity: dict[tuple[int, int], float],
    first_stage: dict[int, float],
    result: GraphExpansion,
    settings: LinkSettings,
) -> None:
    """Raise the passages that links lead to; `before` are the scores of the passages that they start at."""
    for link in sorted(links, key=lambda link: -before[link.seed]):
        parent, direct = before[link.seed], first_stage.get(link.chunk, 0.0)
        value = worth[link.seed] * link.weight * (settings.base + similarity[link.seed, link.chunk])
        cap = settings.cap if link.kind == "forward" else settings.shared_cap
        score = min(direct + value, cap * parent)
        if score > result.scores.get(link.chunk, 0.0):
            result.gained[link.chunk] = score - direct
            result.scores[link.chunk] = score
            result.links[link.chunk] = link


def _residual(
    question: PreparedQuestion,
    links: Sequence[PassageLink],
    titles: dict[int, list[set[str]]],
    first_stage: dict[int, float],
    channels: Channels,
    settings: LinkSettings,
) -> dict[tuple[int, int], float]:
    """Score each target for the residual question of its seed, 0 to about 1, by (seed, target)."""
    targets = defaultdict[int, set[int]](set)
    for link in links:
        targets[link.seed].add(link.chunk)
    words = _residual_words(question, targets, titles, channels)
    return {
        (seed, chunk): settings.found * first_stage.get(chunk, 0.0)
        + settings.residual * words[seed].get(chunk, 0.0)
        for seed, chunks in targets.items()
        for chunk in chunks
    }


def _residual_words(
    question: PreparedQuestion,
    targets: dict[int, set[int]],
    titles: dict[int, list[set[str]]],
    channels: Channels,
) -> dict[int, dict[int, float]]:
    """Return the BM25 of each seed's targets for the words that the seed leaves open; the corpus's best is 1.

    Seeds of whose titles the question has no word leave the same words open: they are asked for once.
    """
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for seed in targets:
        answered = set[str]().union(*titles[seed])
        alike[tuple(token for token in question.tokens if token not in answered)].append(seed)
    asked = {tokens: {chunk for seed in seeds for chunk in targets[seed]} for tokens, seeds in alike.items()}
    found = channels.lexical_among(asked)
    return {seed: found[tokens] for tokens, seeds in alike.items() for seed in seeds}


Edges = list[tuple[int, float]]
"""Distinct chunks that are linked to one entity, with the confidence of the link."""


class Neighbourhood:
    """Cache of entities by passage and passages by entity, for one question.

    Args:
        graph: the graph.
        mentions_each: maximum number of chunks that mention an entity.
        abouts_each: maximum number of chunks that are about an entity.
    """

    def __init__(self, graph: LinkReader, *, mentions_each: int = 9, abouts_each: int = 6) -> None:
        self._graph = graph
        self._mentions_each = mentions_each
        self._abouts_each = abouts_each
        self._mentions_in: dict[int, list[MentionRow]] = {}
        self._abouts_in: dict[int, list[AboutRow]] = {}
        self._mentions_of: dict[int, Edges] = {}
        self._abouts_of: dict[int, Edges] = {}
        self._documents: dict[int, int] = {}
        self._titles: dict[int, list[set[str]]] = {}

    def titles_of(self, chunks: Iterable[int]) -> dict[int, list[set[str]]]:
        """Return the tokens of the titles of chunks, without titles that have none."""
        chunks = list(chunks)
        self._read_chunks(chunks)
        for chunk in chunks:
            if chunk not in self._titles:
                names = {about.name for about in self._abouts_in[chunk] if about.source == "title"}
                self._titles[chunk] = [tokens for name in names if (tokens := set(analyse(name)))]
        return {chunk: self._titles[chunk] for chunk in chunks}

    def mentions_in(self, chunks: Iterable[int]) -> list[MentionRow]:
        """Return mentions in chunks, by chunk."""
        chunks = list(chunks)
        self._read_chunks(chunks)
        return [mention for chunk in chunks for mention in self._mentions_in[chunk]]

    def abouts_in(self, chunks: Iterable[int]) -> list[AboutRow]:
        """Return the subjects of chunks, by chunk."""
        chunks = list(chunks)
        self._read_chunks(chunks)
        return [about for chunk in chunks for about in self._abouts_in[chunk]]

    def entities_in(self, chunks: Iterable[int]) -> set[int]:
        """Return entities that chunks mention or are about."""
        chunks = set(chunks)
        read = chunks & self._mentions_in.keys()
        found = {mention.entity for chunk in read for mention in self._mentions_in[chunk]}
        found.update(about.entity for chunk in read for about in self._abouts_in[chunk])
        return found | self._graph.entities_in(chunks - read) if chunks - read else found

    def abouts_of(self, entities: Iterable[int]) -> dict[int, Edges]:
        """Return chunks that are about entities, surest first, at most `abouts_each` of each."""
        entities = list(entities)
        missing = [entity for entity in entities if entity not in self._abouts_of]
        rows = self._graph.abouts_of(missing, limit=self._abouts_each)
        self._abouts_of.update((entity, _once(edges)) for entity, edges in rows.items())
        return {entity: self._abouts_of[entity] for entity in entities}

    def mentions_of(self, entities: Iterable[int]) -> dict[int, Edges]:
        """Return chunks that mention entities without being about them, at most `mentions_each` of each."""
        entities = list(entities)
        missing = [entity for entity in entities if entity not in self._mentions_of]
        limit, most = self._mentions_each, self._abouts_each
        abouts = self.abouts_of(missing)
        mentions = self._graph.mentions_of(missing, limit=limit)
        # Those in passages about the entity are dropped below: read more, so that enough are left.
        more = [entity for entity in missing if abouts[entity] and len(mentions[entity]) == limit]
        if more:
            mentions |= self._graph.mentions_of(more, limit=limit + most)
        unsure = [entity for entity in missing if mentions[entity] and len(abouts[entity]) == most]
        if unsure:
            mentions |= self._graph.passing_mentions_of(unsure, limit=limit)
        for entity, rows in mentions.items():
            subject = {chunk for chunk, _ in abouts[entity]}
            self._mentions_of[entity] = _once((chunk, sure) for chunk, sure in rows if chunk not in subject)[
                :limit
            ]
        return {entity: self._mentions_of[entity] for entity in entities}

    def documents_of(self, chunks: Collection[int]) -> dict[int, int]:
        """Return the documents of chunks; those of chunks that are gone are left out."""
        missing = [chunk for chunk in chunks if chunk not in self._documents]
        if missing:
            self._documents |= self._graph.documents_of(missing)
        return self._documents

    def _read_chunks(self, chunks: list[int]) -> None:
        missing = [chunk for chunk in chunks if chunk not in self._mentions_in]
        if not missing:
            return
        mentions: defaultdict[int, list[MentionRow]] = defaultdict(list)
        abouts: defaultdict[int, list[AboutRow]] = defaultdict(list)
        mentioned, subjects = self._graph.links_in(missing)
        for mention in mentioned:
            mentions[mention.chunk].append(mention)
        for about in subjects:
            abouts[about.chunk].append(about)
        for chunk in missing:
            self._mentions_in[chunk] = mentions[chunk]
            self._abouts_in[chunk] = abouts[chunk]


def _once(edges: Iterable[tuple[int, float]]) -> Edges:
    """Drop edges to a chunk that came before."""
    first: dict[int, float] = {}
    for chunk, confidence in edges:
        first.setdefault(chunk, confidence)
    return list(first.items())


@dataclass(frozen=True, slots=True)
class WalkSettings:
    """Parameters of the walk, as measured (`benchmarks/RESULTS.md`)."""

    seeds: int = 6
    damping: float = 0.5  # damping: share of the walk that continues rather than returns
    rounds: int = 12  # the remainder, 0.5 ** 12, is too small to change the ranking
    mentions_each: int = 8
    targets_each: int = 6
    about: float = 2.0  # weight of an edge to a subject; an edge to a mention has 1


def walk(
    neighbourhood: Neighbourhood,
    scores: dict[int, float],
    *,
    entities: Sequence[int] = (),
    settings: WalkSettings | None = None,
) -> dict[int, float]:
    """Run a random walk with restart; return the weight of chunks near the best ones, the highest being 1.

    Args:
        neighbourhood: where the edges are.
        scores: score by passage; the walk starts at the best ones and returns to them.
        entities: entities that the question names, where the walk also starts.
        settings: the numbers.
    """
    settings = settings or WalkSettings()
    seeds = nlargest(settings.seeds, scores, key=scores.__getitem__)
    chunks, names, weights = _edges(neighbourhood, seeds, entities, settings)
    if not weights:
        return {}
    import numpy as np

    chunk_of, first = np.unique(np.array(chunks, np.int64), return_inverse=True)
    entity_of, second = np.unique(np.array(names, np.int64), return_inverse=True)
    size = len(chunk_of) + len(entity_of)
    second = second + len(chunk_of)  # passages are numbered first, then entities
    start, end = np.concatenate([first, second]), np.concatenate([second, first])
    weight = np.tile(np.array(weights, np.float64), 2)
    weight /= np.bincount(start, weights=weight, minlength=size)[start]
    home = np.zeros(size)
    for key in seeds:
        if (place := int(np.searchsorted(chunk_of, key))) < len(chunk_of) and chunk_of[place] == key:
            home[place] += scores[key] ** 2
    for key in entities:
        if (place := int(np.searchsorted(entity_of, key))) < len(entity_of) and entity_of[place] == key:
            home[len(chunk_of) + place] += 1 / len(entities)
    if not home.sum():
        return {}
    home /= home.sum()
    p = home.copy()
    for _ in range(settings.rounds):
        spread = np.bincount(end, weights=p[start] * weight, minlength=size)
        p = (1 - settings.damping) * home + settings.damping * spread
    found = p[: len(chunk_of)]
    high = found.max()
    return dict(zip(chunk_of.tolist(), (found / high).tolist(), strict=True)) if high else {}


def _edges(
    neighbourhood: Neighbourhood, seeds: Sequence[int], entities: Sequence[int], settings: WalkSettings
) -> tuple[list[int], list[int], list[float]]:
    """Return the edges around the seeds, as lists of passages, entities and weights."""
    around = set(entities)
    if seeds:
        around |= neighbourhood.entities_in(seeds)
    else:  # without seeds: go one step further from the entities of the question
        about, mentioning = neighbourhood.abouts_of(entities), neighbourhood.mentions_of(entities)
        near = {chunk for edges in about.values() for chunk, _ in edges[: settings.targets_each]}
        near |= {chunk for edges in mentioning.values() for chunk, _ in edges[: settings.mentions_each]}
        around |= neighbourhood.entities_in(near)
    chunks: list[int] = []
    names: list[int] = []
    weights: list[float] = []
    for found, most, factor in (
        (neighbourhood.mentions_of(around), settings.mentions_each, 1.0),
        (neighbourhood.abouts_of(around), settings.targets_each, settings.about),
    ):
        for entity, edges in found.items():
            for chunk, confidence in edges[:most]:
                chunks.append(chunk)
                names.append(entity)
                weights.append(factor * confidence)
    return chunks, names, weights


_MARKS = re.compile(r"(?<![\w.-])(?:--?|\.)$")
_MAX_TOKENS = 64  # of a question that are looked at
_MAX_NAME = 12  # tokens of a name: words, or single Chinese characters


class LinkedEntity(NamedTuple):
    """An entity that a question names.

    Attributes:
        key: the entity.
        sure: whether the link is unambiguous; it is not if the name is a single word that the question
            writes like any other word ("brother" may not be the film of that name).
    """

    key: int
    sure: bool


def link_entities(question: str, graph: LinkReader) -> list[LinkedEntity]:
    """Link the entities that a question names, in order, each once.

    Of names that overlap only the longest counts ("New York City" does not name "York"); stop words that are
    not in capitals and single Chinese characters do not count.
    """
    tokens = list(surface_tokens(question))[:_MAX_TOKENS]
    spans: dict[tuple[int, int], str] = {}
    marked: dict[tuple[int, int], str] = {}  # options and hidden files: `--all`, `.git`
    for first in range(len(tokens)):
        for last in range(first + 1, min(first + _MAX_NAME, len(tokens)) + 1):
            name = name_key(" ".join(token.key for token in tokens[first:last]))
            if len(name) > 1 and (not is_stop_word(name) or _is_acronym(question, tokens[first])):
                spans[first, last] = name
            if marks := _MARKS.search(question, 0, tokens[first].start):
                marked[first, last] = name_key(question[marks.start() : tokens[last - 1].end])
    entities = graph.find_canonical(sorted({*spans.values(), *marked.values()}))
    spans |= {place: name for place, name in marked.items() if name in entities}
    taken: set[int] = set()
    found: dict[int, LinkedEntity] = {}  # by place
    for (first, last), name in sorted(spans.items(), key=lambda span: (span[0][0] - span[0][1], span[0])):
        place = range(first, last)
        if name in entities and taken.isdisjoint(place):
            taken.update(place)
            words = question[tokens[first].start : tokens[last - 1].end]
            found[first] = LinkedEntity(entities[name], last - first > 1 or is_marked(words))
    unique = {named.key: named for _, named in sorted(found.items(), reverse=True)}
    return [unique[key] for key in reversed(unique)]


def _is_acronym(question: str, token: SurfaceToken) -> bool:
    """Whether a word is in capitals and the rest is not: WHO is not the pronoun who."""
    around = question[: token.start] + question[token.end :]
    return question[token.start : token.end].isupper() and not around.isupper()


def graph_channel(
    question: PreparedQuestion, graph: LinkReader, *, settings: WalkSettings | None = None
) -> dict[int, float]:
    """Return passages connected with the entities that a question names, with their weight, the highest 1.

    A random walk starts at those entities and goes over the passages about them and naming them, and the
    entities of those passages, to further ones. A question without an entity finds nothing.
    """
    named = [entity.key for entity in link_entities(question.text, graph)]
    found = walk(Neighbourhood(graph), {}, entities=named, settings=settings)
    if question.among is None:
        return found
    return {key: weight for key, weight in found.items() if key in question.among}
