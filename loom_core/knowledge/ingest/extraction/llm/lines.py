"""Reading tables and lists of entities and relations, as models write them that do not keep to JSON."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from loom_core.knowledge.ingest.extraction.llm.raw_extraction import MOST_SAID, Said, SaidEntity, SaidRelation
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read_lines"]

_MAX_LINES = 5000
_MAX_LINE = 600  # characters; a longer one is prose

_MARKER = re.compile(r"\s*(?:[-*+•·]\s+|[(（]?\d{1,3}[.、)）](?!\d)\s*)")
_PASSAGE = re.compile(
    r"[\s#*\[【]*(?:passage|段落|第)?\s*[\[【]?(\d{1,4})[\]】]?\s*(?:段)?[\]】*:：\s]*", re.IGNORECASE
)
_SECTION = re.compile(
    r"[\s#*]*(?P<what>entit(?:y|ies)|实体|relation(?:ship)?s?|triples?|关系|三元组)[^|]{0,40}", re.I
)
_RULE = re.compile(r"[\s|:+=-]+")
_TRIPLE = re.compile(r"\s*[(（<\[](?P<inside>[^()（）<>\[\]]{3,600})[)）>\]]\s*[.,;，。；]?\s*")
_TYPED = re.compile(
    r"(?P<name>.{1,200}?)\s*[(（\[【](?P<type>[^()（）\[\]【】]{1,60})[)）\]】][\s.,;，。；]*"
)
_LABELLED = re.compile(r"(?P<name>[^:：]{1,200}?)\s*(?:[:：]|\s[-–—]\s)\s*(?P<type>[^:：]{1,60})")
_ARROW = re.compile(r"[-=—]{1,3}>|[→⇒]|-{2,3}")
_COMMA = re.compile(r"[,，、;；]")
_QUOTES = " \t*_`\"'“”‘’「」『』《》<>"
_HEADERS = frozenset("name entity subject 实体 名称 主语 主体 entities node source head".split())

_Section: TypeAlias = Literal["", "entities", "relations"]


def read_lines(text: str) -> Said:
    """What tables and lists say, one thing a line; prose around them says nothing."""
    reader = _LineReader()
    for line in islice(text.splitlines(), _MAX_LINES):
        reader.take(line)
    return reader.result()


class _LineReader:
    """Collects what lines say, and remembers the headings above them."""

    def __init__(self) -> None:
        self._entities: dict[SaidEntity, None] = {}
        self._triples: dict[SaidRelation, _Section] = {}
        self._passage: int | None = None
        self._section: _Section = ""

    def take(self, line: str) -> None:
        if len(line) > _MAX_LINE or not line.strip() or _RULE.fullmatch(line):
            return
        if (heading := _PASSAGE.fullmatch(line)) is not None:
            self._passage, self._section = int(heading[1]), ""
            return
        if "|" not in line and (heading := _SECTION.fullmatch(line)) is not None and _ends_heading(line):
            named = heading["what"].casefold()
            self._section = "entities" if named.startswith(("entit", "实体")) else "relations"
            return
        marker = _MARKER.match(line)
        listed = marker is not None or bool(self._section)
        cells = _cells(line[marker.end() :] if marker else line, listed=listed)
        if len(cells) >= 3:
            self._take_three(cells)
        elif len(cells) == 2 and not _is_header(cells):
            self._add(cells[0], cells[1])
        elif listed and self._section != "relations":
            for name in _COMMA.split(cells[0]) if cells else ():
                self._add(_bare(name), "")

    def result(self) -> Said:
        """What was read; a row of three columns is a relation where the third is an entity, too."""
        named = {name_key(entity.name) for entity in self._entities}
        relations: dict[SaidRelation, None] = {}
        for triple, section in self._triples.items():
            if section == "relations" or name_key(triple.object) in named:
                relations.setdefault(triple)
            else:
                self._entities.setdefault(SaidEntity(triple.subject, triple.predicate, triple.passage))
        passages = {each.passage for each in (*self._entities, *relations)}
        return Said(tuple(self._entities), tuple(relations), frozenset(passages))

    def _take_three(self, cells: Sequence[str]) -> None:
        if _is_header(cells):
            is_relation = cells[0].casefold() in {"subject", "主语", "主体", "source", "head"}
            self._section = "relations" if is_relation else self._section
            return
        triple = SaidRelation(cells[0], cells[1], cells[2], self._passage)
        if triple.is_usable and len(self._triples) < MOST_SAID:
            self._triples.setdefault(triple, self._section)

    def _add(self, name: str, type_: str) -> None:
        entity = SaidEntity(name, type_, self._passage)
        if entity.is_usable and len(self._entities) < MOST_SAID:
            self._entities.setdefault(entity)


def _ends_heading(line: str) -> bool:
    bare = line.strip()
    return bare.startswith(("#", "**")) or bare.endswith((":", "：", "**")) or len(bare.split()) == 1


def _cells(line: str, *, listed: bool) -> list[str]:
    """The parts of a line that are told apart by bars, arrows, brackets or colons, whichever is there."""
    if "|" in line or "\t" in line:
        return [cell for part in re.split(r"[|\t]", line) if (cell := _bare(part))]
    if len(parts := _ARROW.split(line)) >= 3:
        return [cell for part in parts if (cell := _bare(part))]
    if (triple := _TRIPLE.fullmatch(line)) is not None and len(parts := _COMMA.split(triple["inside"])) >= 3:
        return [cell for part in parts if (cell := _bare(part))]
    if listed:
        for pattern in (_TYPED, _LABELLED):
            if (match := pattern.fullmatch(line)) is not None:
                return [_bare(match["name"]), _bare(match["type"])]
        return [line]
    return []


def _is_header(cells: Sequence[str]) -> bool:
    return cells[0].casefold() in _HEADERS


def _bare(text: str) -> str:
    return text.strip(_QUOTES)
