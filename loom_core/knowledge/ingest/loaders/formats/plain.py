"""Plain text: paragraphs by layout, and unmistakable headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text
from loom_core.knowledge.ingest.loaders.content import HeadingStack, LoadedContent
from loom_core.knowledge.model import Block

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["TextLine", "find_headings", "is_rule", "load_plain", "read_plain"]

_LINE = re.compile(r"[^\n]*\n?")
_UNWRAPPED = 160
"""Length in columns of an unwrapped line: where there is one, every line is a paragraph."""


def load_plain(source: Source) -> LoadedContent:
    """Read plain text, which is kept unchanged."""
    return read_plain(decode(source.data, hint=source.charset)[0])


def read_plain(text: str) -> LoadedContent:
    """Find the paragraphs and headings of a text.

    A paragraph ends at a blank line, at a line that is indented where the one before is not, and, in text
    whose lines are not wrapped, at each line's end. An underlined first heading is taken for the title.
    """
    text = clean_text(text)
    lines = _lines(text)
    levels = find_headings(lines)
    headings = HeadingStack()
    blocks: list[Block] = []
    paragraph: list[TextLine] = []

    def end_paragraph() -> None:
        blocks.extend(
            Block("paragraph", piece[0].start, piece[-1].end, headings.path)
            for piece in _paragraphs(text, paragraph)
        )
        paragraph.clear()

    for index, line in enumerate(lines):
        level = levels.get(index)
        if level is None and line.text and not is_rule(line.text):
            paragraph.append(line)
            continue
        end_paragraph()
        if level is not None:
            path = headings.enter(clean_line(line.text), level=level)
            blocks.append(Block("heading", line.start, line.end, path, level))
    end_paragraph()
    first = blocks[0] if blocks else None
    return LoadedContent(text, tuple(blocks)) if first is None else _with_title(text, blocks, first)


def _with_title(text: str, blocks: list[Block], first: Block) -> LoadedContent:
    """Use an underlined heading at the very top as the title; `第一部` and `1. Scope` are none."""
    underlined = first.kind == "heading" and is_rule(text[first.end :].lstrip().split("\n", 1)[0].strip())
    title = clean_line(text[first.start : first.end]) if underlined else ""
    return LoadedContent(text, tuple(blocks), title, "heading" if underlined else "none")


def _lines(text: str) -> list[TextLine]:
    lines: list[TextLine] = []
    for match in _LINE.finditer(text):
        stripped = match[0].strip()
        start = match.start() + (len(match[0]) - len(match[0].lstrip()) if stripped else 0)
        lines.append(TextLine(start, start + len(stripped), stripped))
    return lines


def _paragraphs(text: str, lines: list[TextLine]) -> list[list[TextLine]]:
    """Split lines without a blank one between them into paragraphs."""
    if not lines:
        return []
    if any(_is_unwrapped(line.text) for line in lines):
        return [[line] for line in lines]
    pieces: list[list[TextLine]] = [[lines[0]]]
    for before, line in pairwise(lines):
        if _is_indented(text, line) and not _is_indented(text, before):
            pieces.append([line])
        elif _is_indented(text, line) and line.text and text[line.start - 1] == "\u3000":
            pieces.append([line])  # Chinese paragraphs open with two full-width spaces, one-liners too
        else:
            pieces[-1].append(line)
    return pieces


def _is_indented(text: str, line: TextLine) -> bool:
    return line.start > 0 and text[line.start - 1] in " \t\u3000"


def _is_unwrapped(line: str) -> bool:
    if len(line) > _UNWRAPPED or line.isascii():
        return len(line) > _UNWRAPPED
    return sum(2 if char >= "\u2e80" else 1 for char in line) > _UNWRAPPED


_NUMERAL = "[一二三四五六七八九十百千零〇两0-9０-９]{1,7}"
_MAX_LATIN = 80
_MAX_CJK = 40
_UNDERLINE = re.compile(r"([=\-~^])\1{2,}")
_HAN = re.compile("[\u4e00-\u9fff]")
_SENTENCE_END = re.compile(r"[.。,，;；:：!！?？、…]$")
_LEVELS = {"编": 1, "編": 1, "部": 1, "篇": 1, "卷": 1, "章": 2, "回": 2, "节": 3, "節": 3}

_CHINESE_PART = re.compile(
    rf"第{_NUMERAL}([编編部篇卷章回节節])(?:[\s　:：、.．]+\S.*|[^\s的是中里,，。]{{0,20}})"
)
_CHINESE_ITEM = re.compile(r"[一二三四五六七八九十]{1,3}、\s*\S+.*")
_CHINESE_SUBITEM = re.compile(r"[(（][一二三四五六七八九十]{1,3}[)）]\s*\S+.*")
_CHAPTER = re.compile(
    r"(part|book|chapter|appendix|section)\s+(?:\d{1,3}|[IVXLC]{1,7}|[A-Z])\b(?:[\s.:—–-].*)?", re.I
)
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?[ \t　]+(?=[^\W\d_a-zß-öø-ÿ])\S.*")


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text, with the layout that heading detection needs.

    Attributes:
        start: offset of its first character that is not white space.
        end: offset after its last one.
        text: what is between.
    """

    start: int
    end: int
    text: str


def find_headings(lines: list[TextLine]) -> dict[int, int]:
    """Detect headings: index in `lines` → level from 1.

    Recognised are lines underlined with `===` or `---`; `第一章 …`, `第二节 …`, `一、…`, `（一）…`;
    `Chapter 3 …`, `Part II`; `1.2 Title`. All must be short and not end like a sentence. Those in Latin
    script need a blank line before and after. None may be followed at once by another of its kind, which
    would make it an item of a list or a line of a table of contents.

    Args:
        lines: every line of the text, blank ones included (with an empty `text`).
    """
    candidates = [_candidate(line.text) for line in lines]
    found: dict[int, int] = {}
    for index in range(len(lines)):
        if level := _underline_level(lines, index):
            found[index] = level
        elif (candidate := candidates[index]) and _stands_out(lines, candidates, index, candidate):
            found[index] = candidate.level
    return found


def is_rule(text: str) -> bool:
    """Whether a line only underlines or separates: `====`, `----`, `~~~~`, `^^^^`."""
    return _UNDERLINE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Candidate:
    level: int
    kind: str
    alone: bool
    """Whether a heading of this kind needs a blank line before and after it."""


def _candidate(text: str) -> _Candidate | None:
    if not text or len(text) > _MAX_LATIN:
        return None
    cjk = _HAN.search(text) is not None
    if (cjk and len(text) > _MAX_CJK) or _SENTENCE_END.search(text):
        return None
    if match := _CHINESE_PART.fullmatch(text):
        return _Candidate(_LEVELS[match[1]], match[1], alone=False)
    if _CHINESE_ITEM.fullmatch(text):
        return _Candidate(4, "一", alone=False)
    if _CHINESE_SUBITEM.fullmatch(text):
        return _Candidate(5, "（一）", alone=False)
    if match := _CHAPTER.fullmatch(text):
        level = {"part": 1, "book": 1, "section": 3}.get(match[1].lower(), 2)
        return _Candidate(level, match[1].lower(), alone=True)
    if match := _NUMBERED.fullmatch(text):
        dots = match[1].count(".")
        return _Candidate(min(3 + dots, 6), f"1{'.1' * dots}", alone=not cjk or dots == 0)
    return None


def _stands_out(
    lines: list[TextLine], candidates: list[_Candidate | None], index: int, candidate: _Candidate
) -> bool:
    before_blank = index == 0 or not lines[index - 1].text
    after_blank = index + 1 >= len(lines) or not lines[index + 1].text
    if candidate.alone and not (before_blank and after_blank):
        return False
    following = next((i for i in range(index + 1, min(index + 4, len(lines))) if lines[i].text), None)
    if following is None:
        return False  # nothing is below it
    after = candidates[following]
    return after is None or after.kind != candidate.kind


def _underline_level(lines: list[TextLine], index: int) -> int:
    """Return the level of a line that the next one underlines, or 0."""
    if index + 1 >= len(lines) or not lines[index].text or len(lines[index].text) > _MAX_LATIN:
        return 0
    match = _UNDERLINE.fullmatch(lines[index + 1].text)
    above = lines[index - 1].text if index else ""
    if match is None or is_rule(lines[index].text) or (above and not is_rule(above)):
        return 0
    # A rule of full-width text is counted in columns: two for each ideograph.
    width = sum(2 if char >= "\u2e80" else 1 for char in lines[index].text)
    return {"=": 1, "-": 2}.get(match[1], 3) if len(match[0]) * 2 >= width else 0
