"""Span alignment: locate a model's findings in the passage, and drop those that do not occur in it."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.ingest.extraction.llm.prompts import OTHER
from loom_core.knowledge.ingest.extraction.selection import distinct, surest_mentions, without_overlap
from loom_core.knowledge.model import RELATED, Extraction, Mention, Relation
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.scripts import normalise
from loom_core.knowledge.text.surface_forms import POSSESSIVE, name_key, surface_keys, surface_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
    from loom_core.knowledge.ingest.extraction.llm.reply import RawEntity, RawRelation
    from loom_core.knowledge.text.surface_forms import SurfaceToken

__all__ = ["METHOD", "AlignedExtraction", "align_spans", "merge_with_rules"]

METHOD = "llm"
"""Extraction method of the mentions and relations that a model found."""

_ENTITY_CONFIDENCE = 0.95  # above all rules, so that the model's entities are kept if there are too many
_RELATION_CONFIDENCE = 0.8
_MAX_NAME_TOKENS = 24
_MAX_GAP = 4  # characters between two words of a name
_MAX_TYPE = 40  # characters
_MAX_PREDICATE = 60
_UNTYPED = "thing"


class AlignedExtraction(NamedTuple):
    """Findings of a model, aligned with the text of one passage."""

    mentions: tuple[Mention, ...]
    relations: tuple[Relation, ...]


def align_spans(
    text: str,
    entities: Sequence[RawEntity],
    relations: Sequence[RawRelation],
    *,
    config: ExtractionConfig,
) -> AlignedExtraction:
    """Align a model's findings with a passage.

    Names are kept as the passage writes them, at every place where they occur; one that does not occur
    is dropped, and so is a relation one of whose ends is not among the aligned entities.

    Args:
        text: the passage.
        entities: the model's entities, most important first; surplus ones are dropped.
        relations: the model's relations, likewise.
        config: configured types, predicates and limits.
    """
    passage = _Passage(text)
    types = {_fold_label(type_): type_ for type_ in config.entity_types}
    predicates = {_fold_label(predicate): predicate for predicate in config.relation_types}
    mentions: dict[str, list[Mention]] = {}
    for entity in entities:
        if len(mentions) == config.max_entities_per_chunk:
            break
        key = name_key(entity.name)
        if key in mentions or not (spans := passage.spans(entity.name)):
            continue
        type_ = _type(entity, types)
        mentions[key] = [
            Mention(text[start:end], start, end, type_, METHOD, _ENTITY_CONFIDENCE) for start, end in spans
        ]
    kept = without_overlap(mention for found in mentions.values() for mention in found)
    standing = set(kept)
    placed = {key: [mention for mention in found if mention in standing] for key, found in mentions.items()}
    found = (_relation(relation, placed, predicates) for relation in relations)
    stated = distinct(relation for relation in found if relation is not None)
    return AlignedExtraction(tuple(kept), tuple(stated[: config.max_relations_per_chunk]))


def merge_with_rules(
    placed: AlignedExtraction, by_rules: Extraction, *, config: ExtractionConfig
) -> Extraction:
    """Merge a model's aligned findings with those of the rules.

    If both find a name, the model's is kept; so are its relations. Only the rules say
    what a passage is about, and which names are the same.
    """
    taken = [False] * max((mention.end for mention in placed.mentions), default=0)
    for mention in placed.mentions:
        taken[mention.start : mention.end] = [True] * (mention.end - mention.start)
    additional = [mention for mention in by_rules.mentions if not any(taken[mention.start : mention.end])]
    mentions = sorted((*placed.mentions, *additional), key=lambda mention: mention.start)
    related = {frozenset((name_key(r.subject), name_key(r.object))) for r in placed.relations}
    others = [
        r for r in by_rules.relations if frozenset((name_key(r.subject), name_key(r.object))) not in related
    ]
    relations = sorted((*placed.relations, *others), key=lambda relation: -relation.confidence)
    return Extraction(
        mentions=tuple(surest_mentions(mentions, config.max_entities_per_chunk)),
        abouts=by_rules.abouts,
        relations=tuple(relations[: config.max_relations_per_chunk]),
        aliases=by_rules.aliases,
    )


class _Passage:
    """A text in which names are located, whatever their spelling."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[SurfaceToken] = list(surface_tokens(text))
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for number, token in enumerate(self._tokens):
            self._places[token.key].append(number)

    def spans(self, name: str) -> list[tuple[int, int]]:
        """Return the spans of a name; none if it is not a proper name, but a pronoun or a number."""
        key = name_key(name)
        if len(key) < 2 or key.isdigit() or is_stop_word(key):
            return []
        keys = surface_keys(key)
        if len(keys) > _MAX_NAME_TOKENS:
            return []
        spans: list[tuple[int, int]] = []
        for first in self._places.get(keys[0], []) if keys else ():
            tokens = self._tokens[first : first + len(keys)]
            if [token.key for token in tokens] == keys and self._is_close(tokens):
                last = self._text[tokens[-1].start : tokens[-1].end]
                spans.append((tokens[0].start, tokens[-1].start + len(POSSESSIVE.sub("", last) or last)))
        return spans

    def _is_close(self, tokens: Sequence[SurfaceToken]) -> bool:
        gaps = [self._text[a.end : b.start] for a, b in pairwise(tokens)]
        return all(len(gap) <= _MAX_GAP and gap.count("\n") < 2 for gap in gaps)


def _relation(
    said: RawRelation, placed: dict[str, list[Mention]], predicates: dict[str, str]
) -> Relation | None:
    """Return a relation with its supporting span: between the nearest mentions of its ends."""
    one, two = name_key(said.subject), name_key(said.object)
    if one == two or not placed.get(one) or not placed.get(two):
        return None
    predicate = predicates.get(_fold_label(said.predicate)) if predicates else _predicate(said.predicate)
    if predicate is None:
        return None
    subject, object_ = min(
        ((a, b) for a in placed[one] for b in placed[two]),
        key=lambda ends: abs(ends[0].start - ends[1].start),
    )
    start, end = min(subject.start, object_.start), max(subject.end, object_.end)
    return Relation(subject.name, predicate, object_.name, start, end, METHOD, _RELATION_CONFIDENCE)


def _type(said: RawEntity, types: dict[str, str]) -> str:
    """Return the type of an entity, mapped to the configured types if there are any."""
    folded = _fold_label(said.type)
    if types:
        return types.get(folded) or types.get(folded.removesuffix("s")) or OTHER
    repeats = folded == _fold_label(said.name)  # as small models do
    return folded if 0 < len(folded) <= _MAX_TYPE and not repeats else _UNTYPED


def _predicate(said: str) -> str:
    predicate = _fold_label(said)
    return predicate if 0 < len(predicate) <= _MAX_PREDICATE else RELATED


def _fold_label(text: str) -> str:
    """Normalise a type or predicate: `DEPENDS_ON` and `Depends on` are the same."""
    plain = (" " if unicodedata.category(c)[0] in "CZ" or c in "_-" else c for c in normalise(text))
    return " ".join("".join(plain).split())
