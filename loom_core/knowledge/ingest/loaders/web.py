"""Finding out what kind of document a web page is."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from loom_core.knowledge.ingest.loaders.registry import extension_for, format_for
from loom_core.knowledge.ingest.loaders.signature import find_signature

__all__ = ["web_name"]

_VAGUE = frozenset({"", "text/plain", "application/octet-stream", "binary/octet-stream", "application/zip"})
"""Media types that servers also send when they do not know."""

_MARKUP = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,500}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.I | re.S,
)
_PARTS = (
    (b"application/epub+zip", ".epub"),
    (b"opendocument.text", ".odt"),
    (b"opendocument.presentation", ".odp"),
    (b"opendocument.spreadsheet", ".ods"),
    (b"word/", ".docx"),
    (b"ppt/", ".pptx"),
    (b"xl/", ".xlsx"),
)
_SAMPLE = 4096
_MAX_STEM = 150


def web_name(url: str, *, mime: str, data: bytes) -> str:
    """A file name for a page, whose extension tells how it is to be read.

    What the server says goes first, unless it says nothing (`text/plain` and the like); then what the content
    begins with; then the extension in the address, which on the web often names the program (`page.php`).

    Args:
        url: where the page is.
        mime: media type that the server named.
        data: the page.
    """
    path = PurePosixPath(unquote(urlsplit(url).path))
    stem = (
        re.sub(r"[\x00-\x1f\x7f/\\]", " ", path.stem).strip(". ")[:_MAX_STEM] or urlsplit(url).hostname or ""
    )
    stem = stem.replace(".", " ")  # a dot would make the rest of it an extension
    if mime not in _VAGUE:
        return stem + (extension_for(mime) or path.suffix)
    if found := _sniffed(data):
        return stem + found
    if mime == "text/plain" and not (path.suffix and format_for(path)):
        return f"{stem}.txt"
    return stem + path.suffix if path.suffix else f"{stem}.txt"


def _sniffed(data: bytes) -> str:
    """The extension of what content begins with; empty for text that may be anything."""
    kind = find_signature(data)
    if kind == "a PDF":
        return ".pdf"
    if "ZIP" in kind:
        return next((extension for part, extension in _PARTS if part in data), "")
    return ".html" if _MARKUP.match(data[:_SAMPLE]) else ""
