"""Parser of the extraction replies of a language model, in JSON, tables or lists.

The prompt requires JSON of one form (`prompts`). Models also write fences and prose around it, stop in the
middle of it, put names where objects should be, repeat themselves by the hundred, or draw up tables and
lists. All that can be parsed is parsed, but not trusted: `span_alignment` verifies it against the passages.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from loom_core.knowledge.text.surface_forms import name_key
from loom_core.llm.text import without_thinking

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MAX_FINDINGS", "RawEntity", "RawExtraction", "RawRelation", "parse_reply"]


MAX_FINDINGS = 5000
"""Maximum number of findings: beyond it, the model repeats itself in a loop."""

_LONGEST = 300  # characters of a name, a type or a predicate: longer ones are sentences


class RawEntity(NamedTuple):
    """A raw entity, as the model wrote it.

    Attributes:
        name: its name.
        type: its type, or empty.
        passage: number of the passage that names it, or None if the model gives none.
    """

    name: str
    type: str
    passage: int | None

    @property
    def is_usable(self) -> bool:
        """Whether it has a name, and no field is implausibly long."""
        return bool(self.name.strip()) and max(len(self.name), len(self.type)) <= _LONGEST


class RawRelation(NamedTuple):
    """A raw relation between two entities, as the model wrote it.

    Attributes:
        subject: name of the first entity.
        predicate: how they are connected, or empty.
        object: name of the second entity.
        passage: number of the passage that states it, or None if the model gives none.
    """

    subject: str
    predicate: str
    object: str
    passage: int | None

    @property
    def is_usable(self) -> bool:
        """Whether it has both ends, and no field is implausibly long."""
        texts = (self.subject, self.predicate, self.object)
        return bool(self.subject.strip() and self.object.strip()) and max(map(len, texts)) <= _LONGEST


class RawExtraction(NamedTuple):
    """Raw extraction: the parsed entities and relations of a reply.

    Attributes:
        entities: distinct entities, in the order of the answer.
        relations: distinct relations, likewise.
        passages: numbers of the passages it covers, even without findings; None if the model gives no
            numbers.
    """

    entities: tuple[RawEntity, ...] = ()
    relations: tuple[RawRelation, ...] = ()
    passages: frozenset[int | None] = frozenset()


_MAX_ANSWER = 200_000  # characters of an answer that are read, after the thinking
_MAX_DEAD_ENDS = 500  # maximum number of brackets at which no JSON begins
_MAX_DEPTH = 8

_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_START = re.compile(r"[\[{]")
_CUT_PASSAGE = re.compile(r'\{\s*"(?:passage|id|number|段落|编号)"\s*:\s*"?(\d{1,4})"?\s*,')
_NUMBER = re.compile(r"\D{0,12}(\d{1,4})\D?")

_PASSAGE_OF_ITEM = ("passage", "passage_id", "段落")
_PASSAGE = (*_PASSAGE_OF_ITEM, "id", "number", "编号")
_NAME = ("name", "entity", "text", "实体", "名称", "名字")
_TYPE = ("type", "entity_type", "label", "category", "类型", "类别")
_SUBJECT = ("subject", "source", "head", "from", "主语", "主体", "头实体")
_PREDICATE = ("predicate", "relation", "relation_type", "type", "label", "谓语", "关系", "关系类型")
_OBJECT = ("object", "target", "tail", "to", "宾语", "客体", "尾实体")
_ENTITIES = ("entities", "nodes", "实体", "实体列表")
_RELATIONS = ("relations", "relationships", "triples", "edges", "关系", "关系列表", "三元组")

_Role: TypeAlias = Literal["", "entities", "relations"]


def parse_reply(answer: str) -> RawExtraction:
    """Parse a reply: return the raw extraction of each passage, without repetitions, in order.

    Args:
        answer: the model's answer.
    """
    text = _FENCE.sub("", without_thinking(answer)[:_MAX_ANSWER])
    reader = _JsonReader()
    reader.read(text)
    if not reader.said and "{'" in text:  # a Python literal
        reader.read(text.replace("'", '"'))
    return reader.result() if reader.said or reader.covered else parse_lines(text)


class _JsonReader:
    """Collects entities and relations from all JSON in a text, even truncated or partly invalid."""

    def __init__(self) -> None:
        self.said: dict[RawEntity | RawRelation, None] = {}
        self.covered: set[int | None] = set()
        self._passage: int | None = None

    def read(self, text: str) -> None:
        """Read all JSON, from the outside in, including what is inside of broken JSON."""
        decoder = json.JSONDecoder(strict=False)
        place = dead_ends = 0
        while dead_ends < _MAX_DEAD_ENDS and (start := _START.search(text, place)) is not None:
            try:
                value, place = decoder.raw_decode(text, start.start())
            except (ValueError, RecursionError):
                place = start.end()
                dead_ends += 1
                if (cut := _CUT_PASSAGE.match(text, start.start())) is not None:
                    self._passage = int(cut[1])
            else:
                # A bare list of strings holds names; three of them may be a relation outside its list.
                role: _Role = "entities" if _are_names(value) else ""
                self._take(value, self._passage, role)

    def result(self) -> RawExtraction:
        return RawExtraction(
            tuple(each for each in self.said if isinstance(each, RawEntity)),
            tuple(each for each in self.said if isinstance(each, RawRelation)),
            frozenset(self.covered.union(each.passage for each in self.said)),
        )

    def _take(self, value: object, passage: int | None, role: _Role, *, depth: int = _MAX_DEPTH) -> None:
        if not depth:
            return
        if isinstance(value, str):
            if role == "entities":
                self._add(RawEntity(value, "", passage))
        elif isinstance(value, list):
            elements = cast("list[object]", value)
            if role == "relations" and len(texts := _texts(elements)) == len(elements) == 3:
                self._add(RawRelation(texts[0], texts[1], texts[2], passage))
                return
            for element in elements:
                self._take(element, passage, role, depth=depth - 1)
        elif isinstance(value, dict):
            self._take_object(cast("dict[str, object]", value), passage, role, depth=depth)

    def _take_object(
        self, members: Mapping[str, object], passage: int | None, role: _Role, *, depth: int
    ) -> None:
        fields = {key.casefold(): child for key, child in members.items()}
        roles: dict[str, _Role] = {key: _role_of(key.casefold(), child) for key, child in members.items()}
        holds_lists = any(roles.values())
        numbered = _passage_of(fields, _PASSAGE if holds_lists else _PASSAGE_OF_ITEM)
        passage = passage if numbered is None else numbered
        if holds_lists:
            self.covered.add(passage)  # covered, even with empty lists
        elif (subject := _text(fields, _SUBJECT)) and (object_ := _text(fields, _OBJECT)):
            self._add(RawRelation(subject, _text(fields, _PREDICATE), object_, passage))
            return
        elif name := _text(fields, _NAME):
            self._add(RawEntity(name, _text(fields, _TYPE), passage))
            return
        for key, child in members.items():
            if role == "entities" and not holds_lists:
                self._take_named(key, child, passage)
            elif isinstance(child, str):
                continue
            else:
                numbered = None if roles[key] else _number(key)
                within = passage if numbered is None else numbered
                self._take(child, within, roles[key], depth=depth - 1)

    def _take_named(self, key: str, child: object, passage: int | None) -> None:
        """Read `{"Ada": "person"}`, or `{"person": ["Ada"]}`."""
        if isinstance(child, str):
            self._add(RawEntity(key, child, passage))
        elif isinstance(child, list):
            for name in _texts(cast("list[object]", child)):
                self._add(RawEntity(name, key, passage))

    def _add(self, said: RawEntity | RawRelation) -> None:
        if len(self.said) < MAX_FINDINGS and said.is_usable:
            self.said.setdefault(said)


def _are_names(value: object) -> bool:
    if not isinstance(value, list):
        return False
    elements = cast("list[object]", value)
    return len(elements) != 3 and len(_texts(elements)) == len(elements)


def _texts(elements: Sequence[object]) -> list[str]:
    return [element for element in elements if isinstance(element, str)]


def _text(fields: Mapping[str, object], keys: Sequence[str]) -> str:
    """Return the first of some fields that is a non-blank text."""
    values = (fields.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")


def _role_of(key: str, child: object) -> _Role:
    if not isinstance(child, list | dict):  # 关系 may be a list of relations, or a field of one
        return ""
    if key in _ENTITIES:
        return "entities"
    return "relations" if key in _RELATIONS else ""


def _passage_of(fields: Mapping[str, object], keys: Sequence[str]) -> int | None:
    value = next((fields[key] for key in keys if key in fields), None)
    if isinstance(value, str):
        return _number(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(text: str) -> int | None:
    """Return the number in `2`, `[2]`, `passage_2` or `段落2`."""
    match = _NUMBER.fullmatch(text)
    return int(match[1]) if match else None


_MAX_LINES = 5000
_MAX_LINE = 600  # characters; a longer one is prose

_MARKER = re.compile(r"\s*(?:[-*+•·]\s+|[(（]?\d{1,3}[.、)）](?!\d)\s*)")
_HEADING = re.compile(
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


def parse_lines(text: str) -> RawExtraction:
    """Parse tables and lists, one item a line; ignore prose around them."""
    reader = _LineReader()
    for line in islice(text.splitlines(), _MAX_LINES):
        reader.take(line)
    return reader.result()


class _LineReader:
    """Collects entities and relations from lines, by the headings above them."""

    def __init__(self) -> None:
        self._entities: dict[RawEntity, None] = {}
        self._triples: dict[RawRelation, _Section] = {}
        self._passage: int | None = None
        self._section: _Section = ""

    def take(self, line: str) -> None:
        if len(line) > _MAX_LINE or not line.strip() or _RULE.fullmatch(line):
            return
        if (heading := _HEADING.fullmatch(line)) is not None:
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

    def result(self) -> RawExtraction:
        """Return the parsed rows; a row of three columns is a relation if the third is an entity, too."""
        named = {name_key(entity.name) for entity in self._entities}
        relations: dict[RawRelation, None] = {}
        for triple, section in self._triples.items():
            if section == "relations" or name_key(triple.object) in named:
                relations.setdefault(triple)
            else:
                self._entities.setdefault(RawEntity(triple.subject, triple.predicate, triple.passage))
        passages = {each.passage for each in (*self._entities, *relations)}
        return RawExtraction(tuple(self._entities), tuple(relations), frozenset(passages))

    def _take_three(self, cells: Sequence[str]) -> None:
        if _is_header(cells):
            is_relation = cells[0].casefold() in {"subject", "主语", "主体", "source", "head"}
            self._section = "relations" if is_relation else self._section
            return
        triple = RawRelation(cells[0], cells[1], cells[2], self._passage)
        if triple.is_usable and len(self._triples) < MAX_FINDINGS:
            self._triples.setdefault(triple, self._section)

    def _add(self, name: str, type_: str) -> None:
        entity = RawEntity(name, type_, self._passage)
        if entity.is_usable and len(self._entities) < MAX_FINDINGS:
            self._entities.setdefault(entity)


def _ends_heading(line: str) -> bool:
    bare = line.strip()
    return bare.startswith(("#", "**")) or bare.endswith((":", "：", "**")) or len(bare.split()) == 1


def _cells(line: str, *, listed: bool) -> list[str]:
    """Split a line at bars, arrows, brackets or colons, whichever it has."""
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
