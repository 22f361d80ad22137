"""Extraction without a language model: no key, hundreds of passages a second.

A small tagger finds the *mentions*, with their types; titles, headings and definitions say what a passage is
*about*; the words between two mentions of a sentence, headings above headings, and "X is a Y" are
*relations*. Every finding has a confidence.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.cjk import has_cjk, is_cjk
from loom_core.knowledge.ingest.extraction.aliases import aliases_in
from loom_core.knowledge.ingest.extraction.definitions import chinese_definition, english_definition
from loom_core.knowledge.ingest.extraction.relations import (
    is_vague,
    layout_relations,
    sentence_relations,
)
from loom_core.knowledge.ingest.extraction.rule_settings import RuleSettings
from loom_core.knowledge.ingest.extraction.selection import (
    distinct,
    name_short_options,
    surest_mentions,
    without_overlap,
    without_values,
)
from loom_core.knowledge.ingest.extraction.statements import find_predicate
from loom_core.knowledge.ingest.extraction.tagger import shipped_tagger
from loom_core.knowledge.model import About, Extraction, Mention, Relation
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.keywords import extract_chunk_keywords
from loom_core.knowledge.text.memoization import memoize
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.model import Chunk

__all__ = ["RuleExtractor", "subject_name"]

# The pattern begins with a set of marks, before the alternatives, so that the engine skips between marks.
_SENTENCE_END = re.compile(r"[.!?。！？；\n](?:(?<=[.!?])\s+(?=[\"“‘(A-Z0-9])|(?<=[。！？；])|(?<=\n)\n*)")
_WRAPPED = re.compile(
    r"(?:(?<=,)|(?<= or)|(?<= and)|(?<= the)|(?<= an)|(?<= a)|(?<= of)|(?<= to)|(?<= in)|(?<= by)|(?<= is))"
    r"\n[ \t]{0,12}\w|"
    r"(?<=[\w,)])\n[ \t]{0,12}[a-z(]|(?<=[\u4e00-\u9fff，、])\n[ \t]{0,12}[\u4e00-\u9fff]"
)
_SHORT_LINE = 30  # characters: a line that ends earlier than that is not wrapped
_CODE_CONFIDENCE = 0.7
_MOST_IDENTIFIERS = 12  # of a passage of source code
_SECTION_NUMBER = re.compile(
    r"\A\s*(?:(?:(?:Chapter|Section|Part|Appendix)\s+)?(?:[A-Z]\.)?\d+(?:\.\d+)*\.(?:\s+|(?=[^\W\d]))|"
    r"(?:[A-Z]\.)?\d+(?:\.\d+)+\s+(?=[^\Wa-z])|(?:Chapter|Appendix)\s+\w{1,3}[\s:.–—-]+(?=\S)|"
    r"第\s*[\d一二三四五六七八九十百]+\s*[章节篇][\s:：、.]*(?=\S)|[一二三四五六七八九十]+、)"
)
_MANUAL_PAGE = re.compile(r"\s+(?:Manual Page|manual page|man page|手册页)$")
_FIRST_WORDS = 80  # characters
_LAST_GAP = re.compile(r"\s+\S*$")
_ALIAS, _BY_PRONOUN = 0.6, 0.4  # confidences of relations
_NEAR_START = 8  # characters before a passage's first entity if the passage may be about it
_AFTER = 12  # characters after the second entity that may hold a Chinese verb
_MAX_BETWEEN = 60  # characters between two mentions that may still be one statement

_SENTENCE_MARK = re.compile(
    r"[?？!！。，；;…]|, |\.$|\A(?:How|What|Why|Where|When|If|Can|Is|Do|Does|如何|怎样|怎么|为什么|什么|我)"
)
_LONGEST_HAN, _LONGEST_LATIN = 24, 60  # characters of a heading that is a name

_TITLE_CONFIDENCE = {"given": 1.0, "metadata": 0.9, "heading": 0.9, "filename": 0.4, "none": 0.4}

_GENERIC_HEADINGS = """
introduction;overview;purpose;features;summary;abstract;background;conclusion;conclusions;discussion;references;
bibliography;see also;external links;further reading;notes;contents;table of contents;appendix;
example;examples;usage;installation;getting started;quick start;faq;license;changelog;contributing;
history;description;parameters;arguments;returns;raises;requirements;preface;acknowledgements;
name;synopsis;options;commands;configuration;configuration file;variables;environment;environment variables;
files;exit status;exit codes;return value;return values;errors;bugs;author;authors;copyright;reporting bugs;
standards;conforming to;see;note;notes;output;input;defaults;default;list;manual page;man page;attributes;
properties;methods;functions;syntax;warning;warnings;caution;important;tip;tips;tasks;
acknowledgments;about;index;misc;miscellaneous;others;general;details;results;methods;step;steps;
简介;介绍;目的;特性;概述;概要;概览;总览;前言;引言;背景;摘要;正文;总结;小结;结论;结语;参考文献;参考资料;参考;参见;
外部链接;附录;目录;注释;注意;说明;示例;例子;用法;使用方法;安装;快速开始;快速入门;常见问题;许可证;更新日志;
其他;其它;参数;返回值;步骤;历史;备注;名称;概要;选项;命令;配置;环境变量;文件;退出状态;错误;作者;版权;提示;警告;
描述;语法;属性;方法;函数;任务;列表;输出;输入
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
        return "/".join(["rules-6", str(s.max_entities_per_chunk), str(s.max_relations_per_chunk), *chosen])

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        """Return one extraction for each chunk, in order."""
        return await to_thread.run_sync(lambda: [self.extract_one(chunk) for chunk in chunks])

    def extract_one(self, chunk: Chunk) -> Extraction:
        """Extract from one chunk by the rules."""
        definition = chinese_definition(chunk.text) or english_definition(chunk.text)
        if chunk.language == "code" or (definition and not _says_something(definition.subject)):
            definition = None
        mentions = self._mentions(chunk)
        subjects, defined = self._abouts(chunk, mentions, definition)
        relations = [*defined, *_heading_relations(chunk, mentions)]
        title = subject_name(chunk.title)
        subject = title if _says_something(title) else ""
        if chunk.language != "code":
            heading = subject_name(chunk.heading_path[-1]) if chunk.heading_path else ""
            relations += layout_relations(chunk.text, mentions, title=title, heading=heading)
        for start, end, inside in _by_sentence(chunk.text, mentions):
            relations += sentence_relations(chunk.text, start, end, inside)
            if subject:
                relations += _pronoun_relation(chunk.text, chunk.text[start:end], start, inside[0], subject)
        kept = surest_mentions(mentions, self._settings.max_entities_per_chunk)
        aliases = [] if chunk.language == "code" else aliases_in(chunk.text, kept, title=chunk.title)
        relations += [
            Relation(alias.other, "alias of", alias.name, alias.start, alias.end, "alias", _ALIAS)
            for alias in aliases
            if alias.kind != "translation" or {alias.name, alias.other} <= {mention.name for mention in kept}
        ]
        if self._settings.relation_types:
            relations = [r for r in relations if r.predicate in self._settings.relation_types]
        relations.sort(key=lambda r: -r.confidence)
        return Extraction(
            mentions=tuple(kept),
            abouts=tuple(subjects),
            relations=tuple(distinct(relations)[: self._settings.max_relations_per_chunk]),
            aliases=tuple(aliases),
        )

    def _mentions(self, chunk: Chunk) -> list[Mention]:
        if chunk.language == "code":
            found = _identifiers_in(chunk.text)
        else:
            tagged = shipped_tagger().mentions(chunk.text, title=chunk.title, headings=chunk.heading_path)
            found = name_short_options(without_values(tagged), subject_name(chunk.title))
        if self._settings.entity_types:
            found = [mention for mention in found if mention.type in self._settings.entity_types]
        return found

    def _abouts(
        self, chunk: Chunk, mentions: list[Mention], definition: Relation | None
    ) -> tuple[list[About], list[Relation]]:
        abouts: list[About] = []
        title = subject_name(chunk.title)
        if _says_something(title):
            abouts.append(About(title, "title", _TITLE_CONFIDENCE[chunk.title_source]))
        for depth, heading in enumerate(map(subject_name, reversed(chunk.heading_path))):
            if _says_something(heading):
                abouts.append(About(heading, "heading", 0.8 if depth == 0 else 0.5))
        if chunk.name:
            abouts.append(About(chunk.name, "definition", 0.8))
        relations: list[Relation] = []
        if definition is not None:
            # Below a title or heading, the first "X is a Y" is mostly background, not the subject.
            abouts.append(About(definition.subject, "definition", 0.3 if _is_placed(chunk) else 0.6))
            is_specific = has_cjk(definition.object) or " " in definition.object  # not "dpkg is a suite"
            if is_specific and not is_vague(definition.object):
                relations.append(definition)
        if not abouts and mentions and mentions[0].start <= _NEAR_START:
            abouts.append(About(mentions[0].name, "first_phrase", 0.3))
        return abouts, relations


def _identifiers_in(code: str) -> list[Mention]:
    """Return the identifiers of source code, each at its first place."""
    found: list[Mention] = []
    for name in extract_chunk_keywords(code, limit=_MOST_IDENTIFIERS):
        start = code.find(name)
        if start >= 0 and not is_cjk(name[0]):
            found.append(Mention(name, start, start + len(name), "api", "identifier", _CODE_CONFIDENCE))
    return without_overlap(found)


@memoize
def subject_name(heading: str) -> str:
    """Return what a title or heading names, without the number of a section and what any manual page has."""
    bare = _MANUAL_PAGE.sub("", _SECTION_NUMBER.sub("", heading))
    return bare if any(map(str.isalpha, bare)) else heading


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


def _heading_relations(chunk: Chunk, mentions: Sequence[Mention]) -> list[Relation]:
    """Return what the headings are part of that name an entity of the passage."""
    named = {name_key(mention.name) for mention in mentions}
    path = [name for name in map(subject_name, (chunk.title, *chunk.heading_path)) if _says_something(name)]
    path = [name for name in path if not _is_sentence(name)]
    return [
        Relation(inner, "part of", outer, 0, _first_words(chunk.text), "heading", 0.7)
        for outer, inner in pairwise(path)
        if name_key(inner) in named and name_key(outer) != name_key(inner)
    ]


@memoize
def _is_sentence(heading: str) -> bool:
    """Whether a heading is a question or a sentence, which is no part of anything."""
    if _SENTENCE_MARK.search(heading) or len(heading) > (
        _LONGEST_HAN if has_cjk(heading) else _LONGEST_LATIN
    ):
        return True
    return is_stop_word(heading.split()[0].casefold()) and " " in heading


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
        if text[end : end + 1] == "\n" and _WRAPPED.match(text, match.start()) and end - start > _SHORT_LINE:
            continue
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


_PERSONAL = frozenset({"He", "She", "His", "Her", "他", "她"})
_PRONOUN = re.compile(r"(?:He|She|It|They|His|Her|Its)\s+|[他她它该其](?:们)?")


def _pronoun_relation(text: str, sentence: str, start: int, first: Mention, subject: str) -> list[Relation]:
    """Read "She was born in Paris" as a statement about the document's subject.

    "It" may be anything in a passage that does not name the subject.
    """
    match = _PRONOUN.match(sentence)
    if match is None or name_key(first.name) == name_key(subject):
        return []
    between = sentence[match.end() : first.start - start]
    if not between or len(between) > _MAX_BETWEEN:
        return []
    type_ = "person" if match[0].strip() in _PERSONAL else ""
    if not type_ and subject not in text:
        return []
    after = sentence[first.end - start :][:_AFTER]
    stated = find_predicate(between, type_, first.type, after, is_chinese=has_cjk(sentence))
    if stated is None:
        return []
    predicate, is_inverse = stated
    ends = (first.name, subject) if is_inverse else (subject, first.name)
    return [Relation(ends[0], predicate, ends[1], start, first.end, "pronoun", _BY_PRONOUN)]
