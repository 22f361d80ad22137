"""HTML parsing to a tree, like in browsers, in bounded time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

__all__ = ["BLOCKS", "INVISIBLE", "MAX_DEPTH", "parse_html"]

INVISIBLE = (
    "script, style, noscript, template, svg, math annotation, iframe, object, embed, canvas, audio, video, "
    "select, button, input, textarea, dialog, rp, rt, [hidden], [aria-hidden=true]"
)
"""CSS selector of elements without text for readers."""

BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure"
    " footer form header hgroup hr legend main nav ol p section summary table tbody td tfoot th thead tr"
    " ul".split()
)
"""Elements that begin and end a line."""

MAX_DEPTH = 1_000
"""Maximum nesting depth: the parser's time grows with the square of the depth."""

# Void elements, those that close by themselves, and mere formatting.
_NOT_NESTING = frozenset(
    "a area b base big body br code col colgroup dd dt em embed font head hr html i img input li link meta"
    " nobr option p param rp rt s small source span strike strong tbody td tfoot th thead tr track tt u"
    " wbr".split()
)
_TAG = re.compile(
    r"<(?:script\b.*?(?:</script|\Z)|style\b.*?(?:</style|\Z)|!--.*?(?:-->|\Z)"
    r"|(?P<closing>/?)(?P<name>[a-z][^\s/>]*))",
    re.DOTALL | re.IGNORECASE,
)
_DRAWING = re.compile(r"<svg\b", re.IGNORECASE)
_DRAWING_END = re.compile(r"</svg\s*>", re.IGNORECASE)
_HEAD = 2_000
_XHTML = 'xmlns="http://www.w3.org/1999/xhtml"'
# In XHTML these may be self-closing; an HTML parser would take everything after them as their content.
_CLOSED = re.compile(r"<(title|script|style|iframe|textarea|noscript|template)\b([^<>]*)/>", re.IGNORECASE)


def parse_html(text: str) -> LexborHTMLParser | None:
    """Parse a page, which may be broken in any way; None if it is nested deeper than `MAX_DEPTH`."""
    from selectolax.lexbor import LexborHTMLParser

    if _XHTML in text[:_HEAD]:
        text = _CLOSED.sub(r"<\1\2></\1>", text)
    if _depth(text) > MAX_DEPTH:
        text = _drop_drawings(text)  # their elements close by themselves, which counts as nesting elsewhere
        if _depth(text) > MAX_DEPTH:
            return None
    return LexborHTMLParser(text)


def _drop_drawings(text: str) -> str:
    """Return a page without its SVG drawings, none of which is text for readers."""
    pieces: list[str] = []
    at = 0
    while (begin := _DRAWING.search(text, at)) and (end := _DRAWING_END.search(text, begin.end())):
        pieces.append(text[at : begin.start()])
        at = end.end()
    return "".join([*pieces, text[at:]])


def _depth(text: str) -> int:
    """Return the approximate nesting depth; only elements that nest until they are closed count."""
    depth = deepest = 0
    for match in _TAG.finditer(text):
        name = match["name"]
        if name and name.lower() not in _NOT_NESTING:
            depth = max(depth - 1, 0) if match["closing"] else depth + 1
            deepest = max(deepest, depth)
    return deepest
