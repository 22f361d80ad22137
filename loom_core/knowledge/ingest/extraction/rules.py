"""Rule-based extraction: no model, no key, hundreds of passages a second.

Its rules: titles, headings and definitions say what a passage is *about*; capitalised phrases,
titles of works, identifiers and, in Chinese, words that jieba tags as names are *mentions*; the words
between two mentions of a sentence, headings above headings, and "X is a Y" are *relations*. Every finding
has the confidence of its rule.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread

from loom_core.cjk import has_cjk, is_cjk
from loom_core.knowledge.ingest.extraction.aliases import aliases_in
from loom_core.knowledge.ingest.extraction.chinese import (
    chinese_definition,
    chinese_mentions,
    chinese_predicate,
)
from loom_core.knowledge.ingest.extraction.chinese_types import type_of_chinese_noun, type_of_chinese_subject
from loom_core.knowledge.ingest.extraction.english import (
    english_defined_type,
    english_definition,
    english_mentions,
)
from loom_core.knowledge.ingest.extraction.english_types import type_of_noun_phrase
from loom_core.knowledge.ingest.extraction.rule_settings import RuleSettings
from loom_core.knowledge.ingest.extraction.selection import distinct, surest_mentions, without_overlap
from loom_core.knowledge.model import About, Extraction, Mention, Relation
from loom_core.knowledge.text.keywords import extract_chunk_keywords
from loom_core.knowledge.text.memoization import memoize
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.model import Chunk

__all__ = ["RuleExtractor", "english_predicate"]

# The pattern begins with a set of marks, before the alternatives, so that the engine skips between marks.
_SENTENCE_END = re.compile(r"[.!?。！？；\n](?:(?<=[.!?])\s+(?=[\"“‘(A-Z0-9])|(?<=[。！？；])|(?<=\n)\n*)")
_CODE_CONFIDENCE = 0.7
_FIRST_WORDS = 80  # characters
_LAST_GAP = re.compile(r"\s+\S*$")
_MAX_BETWEEN = 60  # characters between two mentions that may still be one statement

_TITLE_CONFIDENCE = {"given": 1.0, "metadata": 0.9, "heading": 0.9, "filename": 0.4, "none": 0.4}

_GENERIC_HEADINGS = """
introduction;overview;summary;abstract;background;conclusion;conclusions;discussion;references;
bibliography;see also;external links;further reading;notes;contents;table of contents;appendix;
example;examples;usage;installation;getting started;quick start;faq;license;changelog;contributing;
history;description;parameters;arguments;returns;raises;requirements;preface;acknowledgements;
acknowledgments;about;index;misc;miscellaneous;others;general;details;results;methods;step;steps;
简介;介绍;概述;概要;概览;总览;前言;引言;背景;摘要;正文;总结;小结;结论;结语;参考文献;参考资料;参考;参见;
外部链接;附录;目录;注释;注意;说明;示例;例子;用法;使用方法;安装;快速开始;快速入门;常见问题;许可证;更新日志;
其他;其它;参数;返回值;步骤;历史;备注
"""


class RuleExtractor:
    """Finds entities, subjects and relations in English and Chinese passages by rules."""

    def __init__(self, settings: RuleSettings | None = None) -> None:
        self._settings = settings or RuleSettings()

    @property
    def settings(self) -> RuleSettings:
        """Settings of the rules."""
        return self._settings

    @property
    def id(self) -> str:
        """Name and version of the rules and their settings."""
        s = self._settings
        chosen = (",".join(sorted(types)) for types in (s.entity_types, s.relation_types))
        return "/".join(["rules-3", str(s.max_entities_per_chunk), str(s.max_relations_per_chunk), *chosen])

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        """Return one extraction for each chunk, in order."""
        return await to_thread.run_sync(lambda: [self.extract_one(chunk) for chunk in chunks])

    def extract_one(self, chunk: Chunk) -> Extraction:
        """Extract from one chunk by the rules."""
        definition = chinese_definition(chunk.text) or english_definition(chunk.text)
        if chunk.language == "code" or (definition and not _says_something(definition.subject)):
            definition = None
        known = subject_types(chunk, definition)
        mentions = self._mentions(chunk, known)
        subjects, defined = self._abouts(chunk, mentions, definition)
        relations = [*defined, *_heading_relations(chunk)]
        subject = chunk.title if _says_something(chunk.title) else ""
        for start, end, inside in _by_sentence(chunk.text, mentions):
            relations += _sentence_relations(chunk.text, start, end, inside, subject)
        if self._settings.relation_types:
            relations = [r for r in relations if r.predicate in self._settings.relation_types]
        kept = surest_mentions(mentions, self._settings.max_entities_per_chunk)
        if known and not self._settings.entity_types:
            kept = with_title(kept, chunk, known)
        relations.sort(key=lambda r: -r.confidence)
        return Extraction(
            mentions=tuple(kept),
            abouts=tuple(subjects),
            relations=tuple(distinct(relations)[: self._settings.max_relations_per_chunk]),
            aliases=()
            if chunk.language == "code"
            else tuple(aliases_in(chunk.text, kept, title=chunk.title)),
        )

    def _mentions(self, chunk: Chunk, known: SubjectTypes) -> list[Mention]:
        text = chunk.text
        # Capital letters mean names in prose, and nothing in source code.
        found = [] if chunk.language == "code" else [*chinese_mentions(text), *english_mentions(text)]
        for keyword in extract_chunk_keywords(text, limit=12):
            if not is_cjk(keyword[0]):
                start = text.find(keyword)
                if start >= 0:
                    end = start + len(keyword)
                    found.append(Mention(keyword, start, end, "code", "identifier", _CODE_CONFIDENCE))
        found = with_types(found, known)
        if self._settings.entity_types:
            found = [m for m in found if m.type in self._settings.entity_types]
        return without_overlap(found)

    def _abouts(
        self, chunk: Chunk, mentions: list[Mention], definition: Relation | None
    ) -> tuple[list[About], list[Relation]]:
        abouts: list[About] = []
        if _says_something(chunk.title):
            abouts.append(About(chunk.title, "title", _TITLE_CONFIDENCE[chunk.title_source]))
        for depth, heading in enumerate(reversed(chunk.heading_path)):
            if _says_something(heading):
                abouts.append(About(heading, "heading", 0.8 if depth == 0 else 0.5))
        if chunk.name:
            abouts.append(About(chunk.name, "definition", 0.8))
        relations: list[Relation] = []
        if definition is not None:
            # Below a title or heading, the first "X is a Y" is mostly background, not the subject.
            abouts.append(About(definition.subject, "definition", 0.3 if _is_placed(chunk) else 0.6))
            relations.append(definition)
        if not abouts and mentions:
            abouts.append(About(mentions[0].name, "first_phrase", 0.3))
        return abouts, relations


def _is_placed(chunk: Chunk) -> bool:
    return bool(chunk.heading_path) or (bool(chunk.title) and chunk.title_source != "filename")


@memoize
def _says_something(name: str) -> bool:
    key = name_key(name)
    return len(key) > 1 and not key.isdigit() and key not in _generic_keys()


@cache
def _generic_keys() -> frozenset[str]:
    # Not at import, as keys of words load a stemmer.
    return frozenset(map(name_key, _GENERIC_HEADINGS.replace("\n", "").split(";")))


def _heading_relations(chunk: Chunk) -> list[Relation]:
    path = [name for name in (chunk.title, *chunk.heading_path) if _says_something(name)]
    return [
        Relation(inner, "part of", outer, 0, _first_words(chunk.text), "heading", 0.7)
        for outer, inner in pairwise(path)
        if name_key(outer) != name_key(inner)
    ]


def _first_words(text: str) -> int:
    """Return the span of the first words of a text, as evidence for a statement of the whole passage."""
    if len(text) <= _FIRST_WORDS or is_cjk(text[_FIRST_WORDS]) or is_cjk(text[_FIRST_WORDS - 1]):
        return min(len(text), _FIRST_WORDS)
    match = _LAST_GAP.search(text[: _FIRST_WORDS + 1])
    return match.start() if match else _FIRST_WORDS


def _sentences(text: str) -> Iterable[tuple[int, int]]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        end = match.start() if text[match.start()] == "\n" else match.start() + 1
        if end > start:
            yield start, end
        start = match.end()
    if start < len(text):
        yield start, len(text)


def _by_sentence(text: str, mentions: list[Mention]) -> Iterable[tuple[int, int, list[Mention]]]:
    """Group mentions (sorted, without overlaps) by sentence; return the sentences that have any."""
    place = 0
    for start, end in _sentences(text):
        while place < len(mentions) and mentions[place].start < start:
            place += 1  # it spans the end of a sentence
        first = place
        while place < len(mentions) and mentions[place].end <= end:
            place += 1
        if place > first:
            yield start, end, mentions[first:place]


def _sentence_relations(
    text: str, start: int, end: int, mentions: list[Mention], subject: str
) -> list[Relation]:
    relations: list[Relation] = []
    for first, second in pairwise(mentions):
        between = text[first.end : second.start]
        if len(between) > _MAX_BETWEEN or name_key(first.name) == name_key(second.name):
            continue
        predicate = chinese_predicate(between) if has_cjk(between) else english_predicate(between)
        confidence = 0.5 if predicate else 0.2
        relations.append(
            Relation(
                first.name,
                predicate or "related to",
                second.name,
                first.start,
                second.end,
                "between",
                confidence,
            )
        )
    if subject and mentions:
        relations += _pronoun_relation(text[start:end], start, mentions[0], subject)
    return relations


_PRONOUN = re.compile(r"(?:He|She|It|They|His|Her|Its)\s+|[他她它该其](?:们)?")


def _pronoun_relation(sentence: str, start: int, first: Mention, subject: str) -> list[Relation]:
    """Read "She was born in Paris" as a statement about the document's subject."""
    match = _PRONOUN.match(sentence)
    if match is None or name_key(first.name) == name_key(subject):
        return []
    between = sentence[match.end() : first.start - start]
    if not between or len(between) > _MAX_BETWEEN:
        return []
    predicate = chinese_predicate(between) if has_cjk(between) else english_predicate(between)
    if not predicate:
        return []
    return [Relation(subject, predicate, first.name, start, first.end, "pronoun", 0.4)]


_ENDS = frozenset(".;:!?()[]\n")  # marks between two names that separate their statements
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_OF_POSSESSIVE = re.compile(r"[’'](?:s\b)?")
_MOST_WORDS = 6
_MOST_HAD = 3  # words of a possession: "Ada's younger sister Anna"

_SAYING_NOTHING = frozenset("and or but the a an nor".split())
_ARTICLES = frozenset("a an the".split())
_BEING = frozenset("am are be been being is was were".split())
_SHORT = frozenset(
    "am an as at be by do go he if in is it me my no of off on or ox so to up us via we".split()
)
_PREPOSITIONS = frozenset(
    """
        about above across after against along alongside amid among around as at before behind below
        beneath besides between beyond by despite down during except for from in including inside into
        like near of off on onto opposite out outside over past per since than through throughout to
        toward towards under underneath unlike until up upon versus via with within without
    """.split()
) | {"beside"}  # plain-english: data
_VERBS = _BEING | frozenset(
    """
        became become becomes began begin begins bears beat beats becomes bore borders bought bring brings
        broke brought build builds built buy buys calls came can cast causes chose come comes compares
        contains could covers crosses cut defeats defines depends describes did directs do does drew drives
        drove extends faces fell fights finds flew flies flows follows forms fought found founds gave get gets
        gives go goes got governs grew had has have heads held helps hit holds hosts hurts includes invades is
        joins keeps kept knew knows lay lays lead leads learns leaves led left lent let lets lies links lived
        lives lost loves made makes manages marries may means meet meets met might moves must names needs
        opens operates owns paid pays plays praises produces provides publishes put puts ran reaches read
        receives refers remains replaces represents requires rose rules run runs said sang sat saw says sees
        sells sends sent serves set shall shares shot should shows sings sits sold sees speaks spent spoke
        sponsors stands starred stars starts stood studies supports takes taught teaches tells thinks threw
        told took trains treats turns uses wants was went were will wins won works would writes written wrote
    """.split()
)
_LONGEST_PARTICIPLE_STEM = 2  # up to this many letters before -ed or -ing it is not a verb: red, king


@memoize
def english_predicate(between: str) -> str:
    """Return the words between two names if they are a phrase with a verb or a preposition, else empty.

    A possessive counts as having: `Ada's sister Anna` gives "has sister".
    """
    if not _ENDS.isdisjoint(between):
        return ""
    owner = _OF_POSSESSIVE.match(between)
    text = between[owner.end() :] if owner else between
    words = [word for word in _WORD.findall(text.casefold()) if _is_word(word)]
    while words and words[0] in _SAYING_NOTHING and words[0] not in _ARTICLES:
        words = words[1:]
    while words and words[-1] in _SAYING_NOTHING and not (len(words) > 1 and words[-2] in _BEING):
        words = words[:-1]
    if not words or len(words) > _MOST_WORDS:
        return ""
    if any(word in _PREPOSITIONS or _is_verb(word) for word in words):
        return " ".join(words)
    return " ".join(["has", *words]) if owner and len(words) <= _MOST_HAD else ""


def _is_word(word: str) -> bool:
    """Whether it is a word, not a fragment of a number or another language: `4th`, `al`, `i`."""
    return (len(word) > 2 or word in _SHORT or word == "a") and not any(map(str.isdigit, word))


def _is_verb(word: str) -> bool:
    if word in _VERBS:
        return True
    stem = word.removesuffix("ed") if word.endswith("ed") else word.removesuffix("ing")
    return len(stem) < len(word) and len(stem) > _LONGEST_PARTICIPLE_STEM


_NEAR = 8  # maximum characters of a text before its title, such as a quotation mark or an article

SubjectTypes: TypeAlias = "dict[str, str]"
"""Types by name, as stated by a passage's title or first sentence."""


def subject_types(chunk: Chunk, definition: Relation | None) -> SubjectTypes:
    """Return the types of a passage's subject, as stated by its title and definition.

    Args:
        chunk: the passage.
        definition: the "X is a Y" with which it begins.
    """
    found: SubjectTypes = {}
    title = _bare(chunk.title)
    if title != chunk.title:
        found[title] = _type_of(chunk.title[len(title) :].strip(" ()（）"))
    if definition is not None:
        subject, what = definition.subject, definition.object
        type_ = english_defined_type(chunk.text, definition) if what.isascii() else _type_of(what)
        found[subject] = found["The " + subject] = type_
        if title and title not in found and title.rpartition(" ")[2] in subject.split():
            found[title] = type_  # Arnold Alois Schwarzenegger, under the title Arnold Schwarzenegger
    if title and not title.isascii() and found.get(title, "thing") == "thing":
        found[title] = type_of_chinese_subject(title, chunk.text)
    return {name: type_ for name, type_ in found.items() if type_ != "thing"}


def with_types(mentions: list[Mention], known: SubjectTypes) -> list[Mention]:
    """Return the mentions with types from the context and from full names.

    Args:
        mentions: the mentions, by position.
        known: types stated by the passage.
    """
    persons = {
        name.rpartition(" ")[2]
        for name, _, _, type_, _, _ in mentions
        if type_ == "person" and " " in name and " of " not in name
    }
    if not known and not persons:
        return mentions
    return [
        _assign_type(mention, known) if mention[0] in known or mention[0] in persons else mention
        for mention in mentions
    ]


def with_title(mentions: list[Mention], chunk: Chunk, known: SubjectTypes) -> list[Mention]:
    """Return the mentions, plus the passage's title where the text begins with it and it has a type.

    Entity linking finds known names in all texts, but gives them no type.
    """
    title = _bare(chunk.title)
    start = chunk.text.find(title, 0, len(title) + _NEAR) if title in known else -1
    if start < 0 or any(mention.name == title for mention in mentions):
        return mentions
    made = Mention(title, start, start + len(title), known[title], "definition", 1.0)
    return sorted([*mentions, made], key=lambda mention: mention.start)


def _assign_type(mention: Mention, known: SubjectTypes) -> Mention:
    # Schwarzenegger, in a passage that names Arnold Schwarzenegger, is a person.
    type_ = known.get(mention.name, "person" if mention.type == "thing" else mention.type)
    return mention if mention.type == type_ else mention._replace(type=type_)


def _bare(title: str) -> str:
    """Return a title without a final parenthesis: `Mercury (planet)`."""
    if not title.endswith((")", "）")):
        return title
    return title[: max(title.rfind("("), title.rfind("（"), 0)].rstrip()


def _type_of(noun: str) -> str:
    return type_of_noun_phrase(noun) if noun.isascii() else type_of_chinese_noun(noun)
