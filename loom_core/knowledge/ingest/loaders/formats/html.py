"""HTML: the article without boilerplate."""

from __future__ import annotations

import re
from itertools import dropwhile
from operator import not_
from typing import TYPE_CHECKING, Any

from loom_core.files.encoding import decode
from loom_core.files.html import BLOCKS, INVISIBLE, MAX_DEPTH, parse_html
from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text, join_lines
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.tables import write_table
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from selectolax.lexbor import LexborHTMLParser, LexborNode

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_html", "write_page"]

_BOILERPLATE = "nav, footer, [role=navigation], [role=banner], [role=contentinfo], [role=search]"
# Classes and ids that Sphinx, DocBook, AsciiDoc, Doxygen, Javadoc, Texinfo, MkDocs, Docusaurus, MediaWiki and
# site builders give to what is around an article. Not `sidebar`: in DocBook and docutils it is content.
_AROUND = frozenset(
    """
    navheader navfooter docnav navbar navigation navpath nav-path navpanel nav-panel nav-links page-nav
    site-nav topnav top-nav bottomnav bottom-nav subnav sub-nav prevnext prev-next prev-next-area next-prev
    pagination pagination-nav pager breadcrumb breadcrumbs wy-breadcrumbs wy-nav-side wy-nav-top
    rst-versions rst-footer-buttons sphinxsidebar sphinxsidebarwrapper related headerlink header-anchor
    heading-anchor anchor-link anchorjs-link hash-link permalink octicon-link mw-editsection mw-jump-link
    mw-navigation catlinks printfooter navbox noprint edit-link edit-page edit-this-page
    theme-edit-this-page md-content__button md-source-file skip-link skip-nav sr-only screen-reader-text
    visually-hidden footer page-footer site-footer site-header copyright searchbox search-form share-buttons
    social-share linenos lineno
    """.split()
)
# Classes, roles and EPUB types of an `aside` that is a part of the article: docutils, Sphinx and EPUB 3 write
# their footnotes so.
_NOTES = frozenset(
    "admonition citation citation-list doc-endnote doc-footnote doc-notice doc-tip endnote footnote"
    " footnote-list note rearnote starlight-aside tip topic".split()
)
_CONTENTS = ".toc, .table-of-contents, .toctree-wrapper, .theme-doc-toc-mobile, #toc"
_ARTICLE = 300  # characters that have to be left if the contents are to be left out
_IDS_AROUND = _AROUND | {"banner", "header", "sidebar", "search", "nav", "menu", "top", "quicksearch"}
_COOKIES = re.compile(
    r"cookie.?(?:banner|bar|consent|notice|popup|law|message)|(?:gdpr|consent).?(?:banner|bar)"
)
_LINKS_AROUND = frozenset(
    "prev previous next up home top index contents toc "
    "上一页 下一页 上一级 上一章 下一章 上一节 下一节 上页 下页 前一页 后一页 起始页 首页 主页 返回 目录 "
    "索引 上一篇 下一篇 上一頁 下一頁 首頁 目錄".split()
)
_LINK_MARKS = " \t\n\xa0<>«»‹›←→↑⇐⇒|:：[]()"
_MOST_AROUND = 300  # characters of a row of such links
_MENU_LINKS = 3
_MENU_SHARE = 0.9
"""Share of a list's letters that are in links from which it is a menu."""
_NO_WORD = re.compile(r"\W+")
_PERMALINK = re.compile(r"[¶#§🔗\s]{1,3}|")
_SITE = re.compile(r"\s+[—–|-]\s+[^—–|]*\b(?:documentation|Documentation|docs|Docs|文档)$")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SPACES = re.compile(r"\s+")
_SOURCE_BREAK = re.compile(r"(?<![ \t])[ \t]*\n[ \t\n]*")
_NUMBER = re.compile("[0-9]{1,6}")
_SPAN = re.compile("[1-9][0-9]?")
_META = {
    "author": "author",
    "article:author": "author",
    "description": "description",
    "og:description": "description",
    "og:title": "title",
    "date": "date",
    "article:published_time": "date",
    "keywords": "tags",
}


def load_html(source: Source) -> LoadedContent:
    """Read a web page: headings, paragraphs, list items with numbers, table rows and preformatted code.

    Scripts, navigation, footers, asides but for notes, and page headers are left out, and if there is one
    `main` with text, all that is not in it. A page that is only boilerplate is read whole.
    """
    writer = ContentWriter(source)
    title, metadata = write_page(source, writer, source.data)
    return writer.finish(title=title, title_source="metadata" if title else "none", metadata=metadata)


def write_page(source: Source, writer: ContentWriter, data: bytes) -> tuple[str, dict[str, Any]]:
    """Write the content of a page.

    Args:
        source: the file that is the page, or contains it.
        writer: the writer of the document.
        data: the page.

    Returns:
        Its title and the other fields that it has.

    Raises:
        DocumentError: its elements are nested too deep, or it holds too much text.
    """
    tree = parse_html(clean_text(decode(data, hint=source.charset)[0]))
    if tree is None:
        raise source.damage_error("HTML", f"its elements are nested more than {MAX_DEPTH:,} deep")
    metadata = _metadata(tree)
    shared_title = metadata.pop("title", "")
    invisible = _ids(tree.css(INVISIBLE))
    # A layout table is not a table of data.
    tables = _ids(tree.css("table")) - _ids(tree.css("table:has(table, h1, h2, h3, pre)"))
    before = writer.count
    mains = tree.css("main, [role=main]")
    roots = [*mains, tree.body] if len(mains) == 1 else [tree.body]
    for skipped in (invisible | _boilerplate(tree), invisible):
        for root in roots:
            if root is not None and writer.count == before:
                _Reader(writer, skipped, tables).read(root)
    element = tree.css_first("head > title")
    title = usable_title(element.text() if element is not None else "") or usable_title(shared_title)
    return _without_site(title, tree, skipped=_rows_of_links(tree)), metadata


def _ids(nodes: Iterable[LexborNode]) -> frozenset[int]:
    return frozenset(node.mem_id for node in nodes)


def _boilerplate(tree: LexborHTMLParser) -> frozenset[int]:
    """Return the boilerplate around the article; a header stays if it has the only first-level heading.

    It is known by elements, roles, and the classes of documentation generators; and a row of links such as
    "Prev Up Next" by its labels.
    """
    within = _ids(tree.css("main header, article header, section header"))
    headers = [header for header in tree.css("header") if header.mem_id not in within]
    titled = _ids(tree.css("header:has(h1)"))
    only = len(tree.css("h1")) == len(tree.css("header h1"))
    around = (
        _ids(tree.css(_BOILERPLATE))
        | _ids(aside for aside in tree.css("aside") if not _is_note(aside))
        | _ids(header for header in headers if not (only and header.mem_id in titled))
        | _ids(node for node in tree.css("[class], [id]") if _is_around(node))
        | _rows_of_links(tree)
        | _menus(tree)
    )
    more = around | _ids(tree.css(_CONTENTS))
    # The first page of a manual may be little but its contents.
    return more if len(more) > len(around) and _has_article(tree, more) else around


def _is_note(aside: LexborNode) -> bool:
    """Whether an `aside` is a note in the article, not a column around it."""
    given = (aside.attributes.get(name) or "" for name in ("class", "role", "epub:type"))
    return not _NOTES.isdisjoint(" ".join(given).split())


def _has_article(tree: LexborHTMLParser, skipped: frozenset[int]) -> bool:
    """Whether there is enough text outside the elements that are skipped."""
    left = _ARTICLE
    for node in tree.css("p, pre, dd, td"):
        above: LexborNode | None = node
        while above is not None and above.mem_id not in skipped:
            above = above.parent
        if above is None:
            left -= len(node.text())
        if left <= 0:
            return True
    return False


def _is_around(node: LexborNode) -> bool:
    """Whether class or id of an element say that it is not part of the article."""
    if node.tag in {"html", "body", "main", "article", *_HEADINGS}:
        return False
    attributes = node.attributes
    classes, id_ = (attributes.get("class") or "").casefold(), (attributes.get("id") or "").casefold()
    if not _AROUND.isdisjoint(classes.split()):
        return node.css_first("h1") is None
    if id_ in _IDS_AROUND and node.tag != "section":  # the id of a section is made of its heading
        return node.css_first("h1, h2, h3, h4, h5, h6") is None
    return "co" in classes + id_ and _COOKIES.search(f"{classes} {id_}") is not None


def _rows_of_links(tree: LexborHTMLParser) -> frozenset[int]:
    """Return the permalinks, and the blocks with little more than links to other pages of a manual."""
    found: set[int] = set()
    labelled: dict[int, list[LexborNode]] = {}
    fits: dict[int, bool] = {}
    for link in tree.css("a[href]"):
        text = link.text()
        if (
            len(text) <= 3
            and (link.attributes.get("href") or "").startswith("#")
            and _PERMALINK.fullmatch(text)
        ):
            found.add(link.mem_id)
        elif (
            text.strip(_LINK_MARKS).casefold() in _LINKS_AROUND
            and (row := _row_around(link, fits)) is not None
        ):
            labelled.setdefault(row.mem_id, []).append(link)
    return frozenset(found).union(row for row, links in labelled.items() if len(links) > 1)


def _row_around(link: LexborNode, fits: dict[int, bool]) -> LexborNode | None:
    """Return the largest block around a link that is short and has no heading; None if there is none.

    Args:
        link: the link.
        fits: whether each element checked so far is such a block: a page may have thousands of links in one.
    """
    row, node = None, link.parent
    while node is not None and node.tag not in {"body", "main", "article", "html"}:
        if node.mem_id not in fits:
            short = len(node.text()) <= _MOST_AROUND
            fits[node.mem_id] = short and node.css_first("h1, h2, h3, h4, pre") is None
        if not fits[node.mem_id]:
            break
        row, node = node, node.parent
    return row


def _menus(tree: LexborHTMLParser) -> frozenset[int]:
    """Return the lists of links above the first heading of a page, which older sites have for their menus."""
    found: set[int] = set()
    inner = _ids(tree.css("ul ul, ul ol, ol ul, ol ol"))
    for node in tree.css("ul, ol, h1"):
        if node.tag == "h1":
            return frozenset(found)
        if node.mem_id in inner:
            continue  # each is read with the list around it, once
        links = node.css("a[href]")
        linked = sum(len(_NO_WORD.sub("", link.text())) for link in links)
        if len(links) >= _MENU_LINKS and linked >= _MENU_SHARE * len(_NO_WORD.sub("", node.text())):
            found.add(node.mem_id)
    return frozenset()


class _Reader:
    """Walks a tree in document order, collects inline text, and writes it at block boundaries."""

    def __init__(self, writer: ContentWriter, skipped: frozenset[int], tables: frozenset[int]) -> None:
        self._writer = writer
        self._skipped = skipped
        self._tables = tables
        self._lines: list[tuple[str, list[str]]] = [("", [])]  # the prefix of a line, its pieces
        self._depth = 0  # list items that are open
        self._numbers: dict[int, int] = {}  # of the last item of each numbered list

    def read(self, root: LexborNode) -> None:
        # An explicit stack: hostile pages nest deeper than Python's.
        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                self._leave(node)
            elif self._enter(node):
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
        self._flush()

    def _enter(self, node: LexborNode) -> bool:
        """Handle the start of a node; return False if its children need no visit."""
        tag = node.tag or "-"
        if tag == "-text":
            self._lines[-1][1].append(join_lines(_SOURCE_BREAK.sub("\n", node.text())))
        elif tag == "br":
            self._lines.append((self._indent(), []))
        elif node.mem_id in self._skipped:
            return False
        elif tag in _HEADINGS:
            self._flush()
            self._writer.heading(self._line(node), level=_HEADINGS[tag])
        elif tag == "pre":
            self._flush()
            self._writer.write("code", self._text(node, "\n"))
        elif node.mem_id in self._tables:
            self._flush()
            self._table(node)
        elif tag == "li":
            self._open_item(node)
            return True
        elif tag[0] != "-":
            self._border(tag)
            return True
        return False

    def _leave(self, node: LexborNode) -> None:
        if node.tag != "li":
            self._border(node.tag or "")
        elif self._depth == 1:
            self._flush()
            self._depth = 0
        else:
            self._depth -= 1
            self._break()

    def _border(self, tag: str) -> None:
        """Begin or end a block; inside a list item that is only a new line."""
        if tag in BLOCKS:
            if self._depth:
                self._break()
            else:
                self._flush()

    def _open_item(self, item: LexborNode) -> None:
        if self._depth == 0:
            self._flush()
        self._break()
        self._lines[-1] = (f"{self._indent()}{self._mark(item)} ", [])
        self._depth += 1

    def _mark(self, item: LexborNode) -> str:
        """Return the mark before an item: its number in a numbered list, which a text may refer to."""
        above = item.parent
        if above is None or above.tag != "ol":
            return "-"
        given = item.attributes.get("value") or ""
        if not _NUMBER.fullmatch(given) and above.mem_id not in self._numbers:
            given = above.attributes.get("start") or ""
        number = int(given) if _NUMBER.fullmatch(given) else self._numbers.get(above.mem_id, 0) + 1
        self._numbers[above.mem_id] = number
        return f"{number}."

    def _indent(self) -> str:
        return "  " * self._depth

    def _break(self) -> None:
        """Begin a line, unless the last one is empty: its item mark belongs to the next text."""
        if "".join(self._lines[-1][1]).strip():
            self._lines.append((self._indent(), []))

    def _flush(self) -> None:
        lines = [(mark, _SPACES.sub(" ", "".join(pieces)).strip()) for mark, pieces in self._lines]
        self._lines = [("", [])]
        text = "\n".join(mark + line for mark, line in lines if line)
        self._writer.write("list" if self._depth else "paragraph", text)

    def _table(self, table: LexborNode) -> None:
        for caption in table.css("caption"):
            self._writer.write("paragraph", self._line(caption))
        rows = list(dropwhile(not_, (row.css("td, th") for row in table.css("tr"))))
        named = len(rows) > 1 and len(rows[0]) > 1 and all(cell.tag == "th" for cell in rows[0])
        grid = self._grid(rows)
        write_table(self._writer, grid, header=next(grid) if named else None)

    def _grid(self, rows: Iterable[list[LexborNode]]) -> Iterator[list[str]]:
        """Yield the texts of rows, each in its column.

        A cell over several columns is followed by empty ones, one over several rows is repeated.
        """
        below: dict[int, tuple[int, str]] = {}  # texts that go on, by column, with the number of their rows
        for cells in rows:
            row: list[str] = []
            above, below = below, {}
            width = max(above, default=-1) + 1
            waiting = cells[::-1]
            while waiting or len(row) < width:
                lines, texts = 1, [""]
                if len(row) in above:
                    lines, texts[0] = above[len(row)]
                elif waiting:
                    cell = waiting.pop()
                    lines = _span(cell, "rowspan")
                    texts = [self._line(cell), *[""] * (_span(cell, "colspan") - 1)]
                for text in texts:
                    if lines > 1:
                        below[len(row)] = lines - 1, text
                    row.append(text)
            if cells:
                yield row

    def _text(self, node: LexborNode, boundary: str) -> str:
        """Return all text below a node, with a mark at each `br` and before each block."""
        pieces: list[str] = []
        stack = [node]
        while stack:
            inner = stack.pop()
            if inner.tag == "-text":
                pieces.append(inner.text())
            elif inner.tag == "br":
                pieces.append(boundary)
            elif inner.mem_id not in self._skipped:
                if inner.tag in BLOCKS and pieces and not pieces[-1].endswith(boundary):
                    pieces.append(boundary)
                stack.extend(reversed(list(inner.iter(include_text=True))))
        return "".join(pieces)

    def _line(self, node: LexborNode) -> str:
        """Return all text below a node on one line; blocks in it are separated by spaces."""
        return clean_line(self._text(node, " "))


def _span(cell: LexborNode, name: str) -> int:
    """Return how many columns or rows a cell is over."""
    span = _SPAN.fullmatch(cell.attributes.get(name) or "")
    return int(span[0]) if span else 1


def _metadata(tree: LexborHTMLParser) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for node in tree.css("meta[content]"):
        attributes = node.attributes
        name = _META.get((attributes.get("name") or attributes.get("property") or "").lower())
        value = clean_line(attributes.get("content") or "")
        if name and value:
            fields.setdefault(name, value)
    if tags := fields.pop("tags", ""):
        fields["tags"] = [tag for piece in re.split("[,，、;；]", tags) if (tag := piece.strip())]
    root = tree.css_first("html")
    if root is not None and (language := clean_line(root.attributes.get("lang") or "")):
        fields["lang"] = language
    return fields


def _without_site(title: str, tree: LexborHTMLParser, *, skipped: frozenset[int]) -> str:
    """Return a title without the site's name (`Article – Site`): by the first heading, or by its words."""
    heading = tree.css_first("h1")
    pieces = heading.iter(include_text=True) if heading is not None else ()
    text = clean_line("".join(piece.text() for piece in pieces if piece.mem_id not in skipped))
    return text if text and text in title else (_SITE.sub("", title) or title)
