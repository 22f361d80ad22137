"""Conversion of a web page to text with headings and links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from loom_core.errors import InvalidInputError
from loom_core.files.html import BLOCKS, INVISIBLE, MAX_DEPTH, parse_html

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

__all__ = ["html_text"]

_SPACES = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n{3,}")
_MARK = re.compile(r"#{1,6} |- ")  # start of a heading or an item
_HEADINGS = {f"h{level}": f"\n{'#' * level} " for level in range(1, 7)}
_LINES = BLOCKS - {"td", "th"} | _HEADINGS.keys() | {"br", "pre", "title"}


def html_text(html: str, *, base: str) -> str:
    """Convert a page to text: headings with `#`, items with `-`, links as `[text](address)`.

    Args:
        html: the page; it may be broken in any way.
        base: its address, to which its links are relative.

    Raises:
        InvalidInputError: its elements are nested too deep.
    """
    tree = parse_html(html)
    if tree is None:
        raise InvalidInputError(
            f"The elements of the page are nested more than {MAX_DEPTH:,} deep.",
            advice="Ask for the HTML itself.",
        )
    skipped = {node.mem_id for node in tree.css(INVISIBLE)}
    writer = _Writer(base)
    # An explicit stack: hostile pages exceed Python's recursion limit.
    stack = [(tree.root, False)] if tree.root is not None else []
    while stack:
        node, leaving = stack.pop()
        if leaving:
            writer.leave(node)
        elif node.tag == "-text":
            writer.text(node.text())
        elif node.mem_id not in skipped:
            writer.enter(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
    return writer.result()


class _Writer:
    """Collects the text."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._parts: list[str] = []
        self._pre = 0  # number of open `pre` elements
        self._link: tuple[LexborNode, str, int] | None = None  # the open link, its address, its start

    def text(self, text: str) -> None:
        if not self._pre:
            text = _SPACES.sub(" ", text)
            if not self._parts or self._parts[-1][-1:].isspace():  # collapse; none begins a line
                text = text.lstrip(" ")
        if text:
            self._parts.append(text)

    def enter(self, node: LexborNode) -> None:
        tag = node.tag or ""
        self._border(tag)
        if tag == "a" and self._link is None:
            if address := self._address(node):
                self._link = node, address, len(self._parts)
        elif tag in {"td", "th"}:
            if not self._begins_line():
                self._parts.append(" | ")
        elif tag == "pre":
            self._pre += 1
        elif tag == "li":
            self._parts.append("- ")
        elif mark := _HEADINGS.get(tag):
            self._parts.append(mark)

    def leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if self._link and self._link[0].mem_id == node.mem_id:
            self._end_link(*self._link[1:])
        elif tag in _HEADINGS:
            self._parts.append("\n\n")
        elif tag != "br":
            self._border(tag)
            self._pre -= tag == "pre"

    def result(self) -> str:
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return _BLANK_LINES.sub("\n\n", "\n".join(line for line in lines if line != "-")).strip()

    def _border(self, tag: str) -> None:
        """Start a new line at a block's border; list items have no blank lines between them."""
        if tag in _LINES or (tag == "li" and not self._begins_line()):
            self._parts.append("\n")

    def _begins_line(self) -> bool:
        return not self._parts or self._parts[-1].endswith("\n")

    def _address(self, node: LexborNode) -> str:
        """Return the address of a link, if it leads to another page."""
        href = (node.attributes.get("href") or "").strip()
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return ""
        return address if address.startswith(("http://", "https://")) and not href.startswith("#") else ""

    def _end_link(self, address: str, begins: int) -> None:
        """Make the first line inside the link its text: a link around a card has a heading there."""
        self._link = None
        text = "".join(self._parts[begins:])
        inside = text.lstrip()
        if inside:
            mark = _MARK.match(inside)
            start = len(text) - len(inside) + (mark.end() if mark else 0)
            line, newline, rest = text[start:].partition("\n")
            shown = line.rstrip()
            self._parts[begins:] = [f"{text[:start]}[{shown}]({address}){line[len(shown) :]}{newline}{rest}"]
