"""Link expansion: from the passages found to the passages they lead to.

A question such as "Who directed the film that X starred in?" is answered by a passage that holds few of
its words: the passage about X names the film, and the film's own passage names the director. So the
best passages are followed along their links ("mentions → is about"), and what they lead to is judged by
what the question still asks: the *residual* question, without what the seed already answers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Literal, NamedTuple

from loom_core.knowledge.retrieval.channels import Question
from loom_core.knowledge.text.analysis import analyse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.retrieval.channels import Channels
    from loom_core.knowledge.retrieval.expansion.neighbourhood import Edges, Surroundings
    from loom_core.knowledge.store.graph import AboutRow, MentionRow

__all__ = ["Expansion", "Link", "LinkSettings", "expand", "links_from"]


class Link(NamedTuple):
    """A way from one passage to another.

    Attributes:
        seed: chunk it starts at.
        chunk: chunk it leads to.
        entity: what connects them.
        name: the entity as the seed, or for a `back` link the other passage, writes it.
        kind: `forward`, from a mention to a passage about what it mentions; `back`, from a passage to one
            that mentions what it is about; `shared`, to one that mentions the same.
        weight: how sure the link is, 0 to 1.
    """

    seed: int
    chunk: int
    entity: int
    name: str
    kind: Literal["forward", "back", "shared"]
    weight: float


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The numbers of the expansion, as measured (`benchmarks/RESULTS.md`).

    A forward link weighs by how sure its target is about the name, and by how sure the mention is only where
    that is less than `unsure`. A mention of middling confidence (a capitalised word: 0.6) leads right as
    often as one of 1.0, and weighing all in proportion lost recall: R@5 of 2wiki 98.0 to 96.3, of
    2wiki-dev164 98.3 to 97.4, of musique-train100 74.2 to 73.2. Up to 0.6 it changed nothing on any set.
    """

    named: float = 0.3  # what a passage gains that is about what the question names
    seeds: int = 6
    hops: int = 2
    base: float = 0.3  # what a link is worth whatever its target says
    unsure: float = 0.5  # a mention less sure than this makes a forward link weigh in proportion less
    certainty: float = 3.0  # power of the confidence: what is only perhaps the subject hardly links
    cap: float = 0.9  # a child never ranks above its parent
    shared: float = 0.5  # a link to a passage that only mentions what connects them, next to a forward one
    shared_cap: float = 0.75  # the cap of such a link
    found: float = 0.34  # what the target's own first-stage score is worth
    residual: float = 0.9  # what BM25 of the residual question is worth
    targets_each: int = 6  # passages about one entity that are followed
    most: int = 100  # links that are followed of a hop's
    rare: int = 8  # an entity that more passages mention connects none of them


@dataclass(slots=True)
class Expansion:
    """What the expansion found: scores of all passages, and the best link to each it raised."""

    scores: dict[int, float]
    gained: dict[int, float]
    links: dict[int, Link]


def links_from(
    surroundings: Surroundings, seeds: Sequence[int], settings: LinkSettings
) -> tuple[list[Link], dict[int, set[str]]]:
    """All links that start at some chunks, and the names of what each of those is about."""
    mentions = surroundings.mentions_in(seeds)
    own: defaultdict[int, dict[int, AboutRow]] = defaultdict(dict)
    for about in surroundings.abouts_in(seeds):
        best = own[about.chunk].get(about.entity)
        if best is None or about.confidence > best.confidence:
            own[about.chunk][about.entity] = about
    links = _forward(surroundings, mentions, own, settings) + _sideways(surroundings, mentions, own, settings)
    subjects = {
        seed: {about.name for about in abouts.values() if about.source == "title"}
        for seed, abouts in own.items()
    }
    return links, subjects


def _forward(
    surroundings: Surroundings,
    mentions: Sequence[MentionRow],
    own: dict[int, dict[int, AboutRow]],
    settings: LinkSettings,
) -> list[Link]:
    """From what seeds mention to the passages about it."""
    abouts = surroundings.abouts_of({mention.entity for mention in mentions})
    targets = {entity: edges[: settings.targets_each] for entity, edges in abouts.items() if edges}
    document = surroundings.documents_of(
        {mention.chunk for mention in mentions} | {chunk for edges in targets.values() for chunk, _ in edges}
    )
    weighed = {entity: _weighed(edges, document, settings) for entity, edges in targets.items()}
    named: dict[tuple[int, int], MentionRow] = {}
    for mention in _uncovered([mention for mention in mentions if mention.entity in targets]):
        named.setdefault((mention.chunk, mention.entity), mention)
    links: list[Link] = []
    for (seed, entity), mention in named.items():
        if entity in own[seed]:  # a passage does not lead to its own subject
            continue
        place, sure = document.get(seed), min(1.0, mention.confidence / settings.unsure)
        links += [
            Link(seed, chunk, entity, mention.name, "forward", weight * sure)
            for chunk, weight in weighed[entity]
            if document.get(chunk) != place
        ]
    return links


def _weighed(edges: Edges, document: dict[int, int], settings: LinkSettings) -> Edges:
    """Passages about an entity with the weight of a link to them."""
    share = len({document.get(chunk) for chunk, _ in edges}) ** 0.5
    return [(chunk, confidence**settings.certainty / share) for chunk, confidence in edges]


def _sideways(
    surroundings: Surroundings,
    mentions: Iterable[MentionRow],
    own: dict[int, dict[int, AboutRow]],
    settings: LinkSettings,
) -> list[Link]:
    """From what seeds mention or are about to the few other passages that mention it, too."""
    held: dict[tuple[int, int], tuple[str, float]] = {}  # name and certainty, by seed and entity
    for mention in mentions:
        held.setdefault((mention.chunk, mention.entity), (mention.name, mention.confidence))
    around = surroundings.mentions_of({entity for _, entity in held}.union(*own.values()))
    rare = {entity: edges for entity, edges in around.items() if 0 < len(edges) <= settings.rare}
    links: list[Link] = []
    for (seed, entity), (name, confidence) in held.items():
        if entity in rare and entity not in own[seed]:
            weight = settings.shared * confidence / len(rare[entity]) ** 0.5
            links += [
                Link(seed, chunk, entity, name, "shared", weight * certainty)
                for chunk, certainty in rare[entity]
                if chunk != seed
            ]
    for seed, abouts in own.items():
        for entity in abouts.keys() & rare.keys():
            about, others = abouts[entity], rare[entity]
            weight = settings.shared * about.confidence / len(others) ** 0.5
            links += [
                Link(seed, chunk, entity, about.name, "back", weight * certainty)
                for chunk, certainty in others
                if chunk != seed
            ]
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
    surroundings: Surroundings,
    named: Sequence[int] = (),
    weight: float = 1.0,
    settings: LinkSettings | None = None,
) -> Expansion:
    """Follow links from the best passages, twice.

    Args:
        question: what is asked.
        first_stage: scores of passages, 0 to 1.
        channels: for judging passages by the residual question.
        surroundings: where the links are.
        named: passages whose subject the question names, which are seeds whatever their score.
        weight: how much a link adds to the score of what it leads to.
        settings: the numbers.
    """
    settings = settings or LinkSettings()
    result = Expansion(dict(first_stage), {}, {})
    done: set[int] = set()
    for _ in range(settings.hops):
        best = nlargest(settings.seeds, result.scores, key=result.scores.__getitem__)
        seeds = [key for key in dict.fromkeys([*best, *named]) if key not in done]
        done.update(seeds)
        if not seeds:
            break
        links, subjects = links_from(surroundings, seeds, settings)
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
    top = max(result.scores.values(), default=0.0) or 1.0
    before = {seed: result.scores.get(seed, 0.0) for seed in {link.seed for link in links}}
    worth = {seed: weight * (parent / top) ** 2 for seed, parent in before.items()}
    # Those that may give most, whatever their targets say.
    links = nlargest(settings.most, links, key=lambda link: worth[link.seed] * link.weight)
    similarity = _residual(question, links, subjects, first_stage, channels, settings)
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
    words = _residual_words(question, targets, subjects, channels)
    return {
        (seed, chunk): settings.found * first_stage.get(chunk, 0.0)
        + settings.residual * words[seed].get(chunk, 0.0)
        for seed, chunks in targets.items()
        for chunk in chunks
    }


def _residual_words(
    question: Question, targets: dict[int, set[int]], subjects: dict[int, set[str]], channels: Channels
) -> dict[int, dict[int, float]]:
    """BM25 of each seed's targets for the words that the seed leaves open, by seed; the corpus's best is 1.

    Seeds whose subjects the question does not name leave the same words open: they are asked for once.
    """
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for seed in targets:
        answered = {token for name in subjects.get(seed, ()) for token in analyse(name)}
        alike[tuple(token for token in question.tokens if token not in answered)].append(seed)
    values: dict[int, dict[int, float]] = {}
    for tokens, seeds in alike.items():
        chunks = {chunk for seed in seeds for chunk in targets[seed]}
        values |= dict.fromkeys(seeds, channels.lexical_among(tokens, chunks))
    return values
