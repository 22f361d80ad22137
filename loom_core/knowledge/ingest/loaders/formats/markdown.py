"""Markdown: the text is kept verbatim, with blocks as spans of it."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text
from loom_core.knowledge.ingest.loaders.content import HeadingStack, LoadedContent
from loom_core.knowledge.ingest.loaders.titles import usable_title
from loom_core.knowledge.model import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from loom_core.knowledge.ingest.loaders.source import Source
    from loom_core.knowledge.model import BlockKind

__all__ = ["MarkdownReader", "load_markdown"]

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
_LIST_ITEM = re.compile(r"^[ \t]*-[ \t]+(.*)$")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_FOOTNOTE = re.compile(r"^( {0,3})\[(?=\^[^\]\n]+\]:)", re.MULTILINE)
_SCALARS = ("author", "date", "description", "lang")
_MAX_INLINE = 1_000

_KINDS: dict[str, BlockKind] = {
    "paragraph_open": "paragraph",
    "blockquote_open": "paragraph",
    "html_block": "paragraph",
    "fence": "code",
    "code_block": "code",
    "list_item_open": "list",
    "tr_open": "row",
}
_TRANSPARENT = frozenset({"bullet_list_open", "ordered_list_open", "table_open", "thead_open", "tbody_open"})


def load_markdown(source: Source) -> LoadedContent:
    """Read CommonMark with tables and a front matter.

    Blocks: headings (without their marks), paragraphs, quotes as one paragraph each, one `list` block for
    each item of an outer list, one `row` for each line of a table, fenced and indented code. Of the front
    matter `title`, `tags`, `date`, `author`, `description` and `lang` are taken.
    """
    text = clean_text(decode(source.data, hint=source.charset)[0])
    fields, body = _front_matter(text)
    title = usable_title(str(fields.pop("title", "")))
    blocks = tuple(MarkdownReader().read(text, start=body))
    return LoadedContent(text, blocks, title, "metadata" if title else "none", fields)


def _front_matter(text: str) -> tuple[dict[str, Any], int]:
    """Return the fields of a YAML-like head and the offset at which the document proper begins."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, 0
    raw: dict[str, str | list[str]] = {}
    name = ""
    for line in match[1].splitlines():
        if field := _FIELD.match(line):
            name = field[1].lower()
            raw[name] = _scalar(field[2] or "")
        elif (item := _LIST_ITEM.match(line)) and name:
            value = raw[name]
            raw[name] = [*(value if isinstance(value, list) else []), _scalar(item[1])]
    fields: dict[str, Any] = {}
    for name in ("title", *_SCALARS):
        value = raw.get(name, "")
        if joined := ", ".join(value) if isinstance(value, list) else value:
            fields[name] = joined
    if tags := _tags(raw.get("tags") or raw.get("keywords") or raw.get("tag") or ""):
        fields["tags"] = tags
    return fields, match.end()


def _scalar(value: str) -> str:
    """Return a YAML scalar on one line, without its quotes or trailing comment."""
    value = value.strip()
    if len(value) >= 2 and value[0] in "\"'" and (end := value.find(value[0], 1)) > 0:
        return value[1:end].strip()
    value = re.sub(r"(?:^|\s)#.*$", "", value).strip()
    return "" if value in {"|", ">", "|-", ">-", "~", "null"} else value


def _tags(value: str | list[str]) -> list[str]:
    if isinstance(value, str):
        value = re.split(r"[,，、]", value.strip("[]")) if re.search(r"[\[,，、]", value) else value.split()
    return list(dict.fromkeys(tag for item in value if (tag := item.strip().strip("\"'#").strip())))


class MarkdownReader:
    """Turns markdown-it's tokens, which know lines, into blocks, which know offsets.

    Headings stay open from one text to the next, for documents that consist of several.
    """

    def __init__(self) -> None:
        self._parser = _parser()
        self._headings = HeadingStack()
        self._text = ""
        self._starts: list[int] = []

    @property
    def path(self) -> tuple[str, ...]:
        """The open headings, outermost first."""
        return self._headings.path

    def read(self, text: str, *, start: int = 0) -> list[Block]:
        """Return the blocks of a text.

        Args:
            text: cleaned by `clean_text`.
            start: offset at which its Markdown begins.
        """
        self._text = text
        # Lines are counted from `start`; one more offset marks the end of the text.
        self._starts = list(accumulate((len(line) + 1 for line in text[start:].split("\n")), initial=start))
        # A footnote of one word, as any Chinese one, would be a link's definition, which has no token.
        tokens = self._parser.parse(_FOOTNOTE.sub(r"\1(", text[start:]))
        found: list[Block] = []
        depth_done = -1  # nesting level of the container whose inside is being passed over
        for index, token in enumerate(tokens):
            if depth_done >= 0:
                if token.level == depth_done and token.nesting == -1:
                    depth_done = -1
                continue
            if token.type in _TRANSPARENT or token.map is None:
                continue
            if token.type == "heading_open":
                block = self._heading(token, tokens[index + 1])
            else:
                block = self._block(token)
            if token.nesting == 1:
                depth_done = token.level
            if block is not None:
                found.append(block)
        return found

    def _heading(self, token: Token, inline: Token) -> Block | None:
        start, end = self._span(token.map or (0, 0))
        name = _plain_inline(self._parser, inline.content)
        if not name:
            return None
        offset = self._text.find(inline.content, start, end)
        level = int(token.tag[1])
        path = self._headings.enter(name, level=level)
        if offset >= 0:
            start, end = offset, offset + len(inline.content)
        return Block("heading", start, end, path, level)  # else one of several indented lines, underlined

    def _block(self, token: Token) -> Block | None:
        kind = _KINDS.get(token.type)
        if kind is None:
            return None
        start, end = self._span(token.map or (0, 0))
        if kind != "code":
            start += len(self._text[start:end]) - len(self._text[start:end].lstrip())
        covered = self._text[start:end]
        if token.type == "html_block":
            covered = _COMMENT.sub("", covered)
        return Block(kind, start, end, self._headings.path) if covered.strip() else None

    def _span(self, lines: Sequence[int]) -> tuple[int, int]:
        """Return offsets of a range of lines, without white space at its end."""
        start = self._starts[lines[0]]
        end = min(self._starts[lines[1]], len(self._text))
        return start, start + len(self._text[start:end].rstrip())


def _parser() -> MarkdownIt:
    """A block parser: inline markup is only looked at in headings, which makes it several times faster."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable(["inline", "text_join"])
    return parser


def _plain_inline(parser: MarkdownIt, markup: str) -> str:
    """Return a heading's text without emphasis, links, code marks and trailing `{#id}`."""
    if len(markup) > _MAX_INLINE:
        return clean_line(markup[:_MAX_INLINE])
    children: list[Token] = []
    parser.inline.parse(markup, parser, {}, children)
    text = "".join(
        " " if child.type in {"softbreak", "hardbreak"} else child.content
        for child in children
        if child.type != "html_inline"
    )
    return clean_line(re.sub(r"\s*\{[#.][^}]*\}$", "", text))
