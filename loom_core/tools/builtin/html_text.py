"""A web page as text with its headings and links, in one pass over it."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

__all__ = ["html_text"]

_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)")
_HREF = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n{3,}")
_UNSEEN = frozenset("canvas iframe noscript object script style svg template".split())
_BLOCKS = frozenset(
    "address article aside blockquote body br caption center dd details div dl dt fieldset figcaption figure"
    " footer form h1 h2 h3 h4 h5 h6 header hr legend li main nav ol p pre section summary table tbody tfoot"
    " thead title tr ul".split()
)
_MOST_TAG = 20_000  # characters of one tag


def html_text(html: str, *, base: str) -> str:
    """The text of a page: headings with `#`, items with `-`, links as `[text](address)`.

    Args:
        html: the page; it may be broken in any way.
        base: its address, from which its links count.
    """
    writer = _Writer(base)
    at = 0
    while (opening := html.find("<", at)) >= 0:
        writer.text(html[at:opening])
        if html.startswith("<!--", opening):
            end = html.find("-->", opening)
            at = end + 3 if end >= 0 else len(html)
            continue
        match = _TAG.match(html, opening)
        if match is None:
            at = opening + 1
            if html[at : at + 1] in {"!", "?", "/"}:  # a declaration
                end = html.find(">", at)
                at = end + 1 if end >= 0 else len(html)
            else:
                writer.text("<")
            continue
        name = match[2].lower()
        end = _end_of_tag(html, match.end())
        attributes = html[match.end() : end]
        at = end + 1
        if name in _UNSEEN and not match[1] and not attributes.endswith("/"):
            closing = re.compile(rf"</{name}", re.IGNORECASE).search(html, at)
            at = closing.start() if closing else len(html)
        writer.tag(name, closing=bool(match[1]), attributes=attributes)
    writer.text(html[at:])
    return writer.result()


def _end_of_tag(html: str, at: int) -> int:
    """Where a tag ends: at the first `>` that is in no quotes, as far as that can be told nearby."""
    quote = ""
    for position in range(at, min(len(html), at + _MOST_TAG)):
        char = html[position]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == ">":
            return position
    end = html.find(">", at)
    return end if end >= 0 else len(html)


class _Writer:
    """The text that is being made."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._parts: list[str] = []
        self._as_is = False
        self._link = ""  # where the link leads that is open
        self._link_begins = 0

    def text(self, raw: str) -> None:
        text = unescape(raw)
        if not self._as_is:
            text = _SPACES.sub(" ", text)
            if (
                not self._parts or self._parts[-1][-1:].isspace()
            ):  # one space is enough, and none begins a line
                text = text.lstrip(" ")
        if text:
            self._parts.append(text)

    def tag(self, name: str, *, closing: bool, attributes: str) -> None:
        if name == "a":
            self._end_link()
            match = None if closing else _HREF.search(attributes)
            if match:
                self._begin_link(match[1] or match[2] or match[3] or "")
        elif name in {"td", "th"}:
            if not closing and self._parts and not self._parts[-1].endswith("\n"):
                self._parts.append(" | ")
        elif name in _BLOCKS:
            self._end_link()
            self._parts.append("\n")
            if name == "pre":
                self._as_is = not closing
            if name == "li" and not closing:
                self._parts.append("- ")
            if name[0] == "h" and name[1:].isdigit():
                self._parts.append("\n" if closing else f"\n{'#' * int(name[1])} ")

    def result(self) -> str:
        self._end_link()
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return _BLANK_LINES.sub("\n\n", "\n".join(line for line in lines if line != "-")).strip()

    def _begin_link(self, href: str) -> None:
        try:
            address = urljoin(self._base, unescape(href).strip())
        except ValueError:
            return
        # A link to a place on the page itself says nothing.
        if address.startswith(("http://", "https://")) and not href.startswith("#"):
            self._link, self._link_begins = address, len(self._parts)

    def _end_link(self) -> None:
        if not self._link:
            return
        text = "".join(self._parts[self._link_begins :])
        del self._parts[self._link_begins :]
        shown = " ".join(text.split())
        spaces = (" " * text[:1].isspace(), " " * text[-1:].isspace())
        self._parts.append(f"{spaces[0]}[{shown}]({self._link}){spaces[1]}" if shown else text)
        self._link = ""
