"""Link expansion: from the passages found to the passages they lead to.

A question such as "Who directed the film that X starred in?" is answered by a passage that holds few of
its words: the passage about X names the film, and the film's own passage names the director. So the
best passages are followed along their links ("mentions → is about"), and what they lead to is judged by
what the question still asks: the *residual* question, without what the seed already answers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loom_core.knowledge.rag.channels import Question
from loom_core.knowledge.text import analyse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.rag.channels import Channels
    from loom_core.knowledge.record.graph import AboutRow, GraphTable, MentionRow

__all__ = ["Expansion", "Link", "LinkSettings", "expand", "links_from"]


@dataclass(frozen=True, slots=True)
class Link:
    """A way from one passage to another.

    Attributes:
        seed: chunk it starts at.
        chunk: chunk it leads to.
        entity: what connects them.
        name: the entity as the seed, or for a back link the other passage, writes it.
        kind: `forward`, from a mention to the passage about it; `back`, from a passage to one that
            mentions what it is about.
        weight: how sure the link is, 0 to 1.
    """

    seed: int
    chunk: int
    entity: int
    name: str
    kind: Literal["forward", "back"]
    weight: float


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The numbers of the expansion, as measured (`benchmarks/RESULTS.md`)."""

    seeds: int = 8
    hops: int = 2
    base: float = 0.3  # what a link is worth whatever its target says
    back: float = 0.2  # a back link, next to a forward one
    certainty: float = 3.0  # power of the confidence: what is only perhaps the subject hardly links
    cap: float = 0.98  # a child never ranks above its parent
    first_stage_part: float = 0.34  # parts of the similarity: first-stage score,
    lexical_part: float = 0.33  # BM25 of the residual question,
    semantic_part: float = 0.33  # cosine of the residual vector
    targets_each: int = 12  # passages about one entity that are followed
    mentions_each: int = 24  # passages mentioning one entity that are followed back


@dataclass(slots=True)
class Expansion:
    """What the expansion found: scores of all passages, and the best link to each it raised."""

    scores: dict[int, float]
    gained: dict[int, float]
    links: dict[int, Link]


def links_from(
    graph: GraphTable, seeds: Sequence[int], settings: LinkSettings
) -> tuple[list[Link], dict[int, set[str]]]:
    """All links that start at some chunks, and the names of what each of those is about."""
    mentions = graph.mentions_in(seeds)
    own: defaultdict[int, dict[int, AboutRow]] = defaultdict(dict)
    document: dict[int, int] = {}
    for about in graph.abouts_in(seeds):
        document[about.chunk] = about.document
        best = own[about.chunk].get(about.entity)
        if best is None or about.confidence > best.confidence:
            own[about.chunk][about.entity] = about
    links = _forward(graph, mentions, own, document, settings)
    links += _back(graph, own, settings)
    subjects = {
        seed: {about.name for about in abouts.values() if about.source == "title"}
        for seed, abouts in own.items()
    }
    return links, subjects


def _forward(
    graph: GraphTable,
    mentions: Iterable[MentionRow],
    own: dict[int, dict[int, AboutRow]],
    document: dict[int, int],
    settings: LinkSettings,
) -> list[Link]:
    targets: defaultdict[int, list[AboutRow]] = defaultdict(list)
    entities = sorted({mention.entity for mention in mentions})
    for about in graph.abouts_of(entities, limit=settings.targets_each):
        targets[about.entity].append(about)
    named: dict[tuple[int, int], str] = {}
    for mention in _uncovered([mention for mention in mentions if mention.entity in targets]):
        named.setdefault((mention.chunk, mention.entity), mention.name)
    links: list[Link] = []
    for (seed, entity), name in named.items():
        if entity in own[seed]:  # a passage does not lead to its own subject
            continue
        documents = {about.document for about in targets[entity]}
        for about in targets[entity]:
            if about.chunk != seed and about.document != document.get(seed):
                weight = about.confidence**settings.certainty / len(documents) ** 0.5
                links.append(Link(seed, about.chunk, entity, name, "forward", weight))
    return links


def _back(graph: GraphTable, own: dict[int, dict[int, AboutRow]], settings: LinkSettings) -> list[Link]:
    entities = sorted({entity for abouts in own.values() for entity in abouts})
    mentioned: defaultdict[int, list[MentionRow]] = defaultdict(list)
    for mention in graph.mentions_of(entities, limit=settings.mentions_each):
        mentioned[mention.entity].append(mention)
    links: list[Link] = []
    for seed, abouts in own.items():
        for entity, about in abouts.items():
            chunks = {mention.chunk: mention.name for mention in mentioned[entity] if mention.chunk != seed}
            for chunk, name in chunks.items():
                weight = settings.back * about.confidence**settings.certainty / len(chunks) ** 0.5
                links.append(Link(seed, chunk, entity, name, "back", weight))
    return links


def _uncovered(mentions: Sequence[MentionRow]) -> list[MentionRow]:
    """Mentions that are not inside a longer one: "New York City" does not name "York"."""
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
    question: Question,
    first_stage: dict[int, float],
    *,
    channels: Channels,
    graph: GraphTable,
    named: Sequence[int] = (),
    weight: float = 1.0,
    settings: LinkSettings | None = None,
) -> Expansion:
    """Follow links from the best passages, twice.

    Args:
        question: what is asked.
        first_stage: scores of passages, 0 to 1.
        channels: for judging passages by the residual question.
        graph: where the links are.
        named: passages whose subject the question names, which are seeds whatever their score.
        weight: how much a link adds to the score of what it leads to.
        settings: the numbers.
    """
    settings = settings or LinkSettings()
    result = Expansion(dict(first_stage), {}, {})
    done: set[int] = set()
    for _ in range(settings.hops):
        ranked = sorted(result.scores, key=lambda key: -result.scores[key])
        seeds = [key for key in dict.fromkeys([*ranked[: settings.seeds], *named]) if key not in done]
        done.update(seeds)
        if not seeds:
            break
        links, subjects = links_from(graph, seeds, settings)
        if question.among is not None:
            links = [link for link in links if link.chunk in question.among]
        _follow(question, links, subjects, first_stage, result, channels, weight, settings)
    return result


def _follow(
    question: Question,
    links: Sequence[Link],
    subjects: dict[int, set[str]],
    first_stage: dict[int, float],
    result: Expansion,
    channels: Channels,
    weight: float,
    settings: LinkSettings,
) -> None:
    similarity = _residual(question, links, subjects, first_stage, channels, settings)
    top = max(result.scores.values(), default=0.0) or 1.0
    before = dict(result.scores)
    for link in sorted(links, key=lambda link: -before.get(link.seed, 0.0)):
        parent = before.get(link.seed, 0.0)
        value = (parent / top) ** 2 * link.weight * (settings.base + similarity[link.seed, link.chunk])
        score = min(first_stage.get(link.chunk, 0.0) + weight * value, settings.cap * parent)
        if score > result.scores.get(link.chunk, 0.0):
            result.gained[link.chunk] = score - first_stage.get(link.chunk, 0.0)
            result.scores[link.chunk] = score
            result.links[link.chunk] = link


def _residual(
    question: Question,
    links: Sequence[Link],
    subjects: dict[int, set[str]],
    first_stage: dict[int, float],
    channels: Channels,
    settings: LinkSettings,
) -> dict[tuple[int, int], float]:
    """How well each target answers what its seed leaves open, 0 to about 1, by (seed, target)."""
    targets = defaultdict[int, set[int]](set)
    for link in links:
        targets[link.seed].add(link.chunk)
    values: dict[tuple[int, int], float] = {}
    for seed, chunks in targets.items():
        answered = {token for name in subjects.get(seed, ()) for token in analyse(name)}
        lexical = _residual_words(question, answered, chunks, channels)
        semantic = _residual_vectors(question, seed, chunks, channels)
        for chunk in chunks:
            values[seed, chunk] = (
                settings.first_stage_part * first_stage.get(chunk, 0.0)
                + settings.lexical_part * lexical.get(chunk, 0.0)
                + settings.semantic_part * semantic.get(chunk, 0.0)
            )
    return values


def _residual_words(
    question: Question, answered: set[str], chunks: set[int], channels: Channels
) -> dict[int, float]:
    tokens = [token for token in question.tokens if token not in answered]
    if channels.words is None or not tokens:
        return {}
    found = dict(channels.words.search(tokens, len(chunks), among=chunks))
    best = channels.words.search(tokens, 1)
    high = best[0][1] if best else 0.0
    return {key: score / high for key, score in found.items()} if high else {}


def _residual_vectors(
    question: Question, seed: int, chunks: set[int], channels: Channels
) -> dict[int, float]:
    if channels.dense is None or question.vector is None:
        return {}
    import numpy as np

    along = channels.dense.vectors([seed])[0]
    rest = question.vector - float(question.vector @ along) * along
    length = float(np.linalg.norm(rest))
    if length < 1e-6:
        return {}
    return channels.dense.scores((rest / length).astype(np.float32), chunks)
