"""Conversion between paths and `file://` URIs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from loom_core.knowledge.text.control_characters import escape_controls

__all__ = ["display_uri", "path_of", "readable", "uri_of"]


def uri_of(path: Path) -> str:
    """Return the `file://` URI of a path, made absolute."""
    return path.absolute().as_uri()


def path_of(uri: str) -> Path:
    """Return the path of a `file://` URI."""
    path = urlsplit(uri).path
    if os.name == "nt":
        from urllib.request import url2pathname

        return Path(url2pathname(path))
    return Path(os.fsdecode(unquote_to_bytes(path)))  # a name is bytes, which need not be UTF-8


def display_uri(uri: str) -> str:
    """Return a URI for display on one line: a path for a file, else the URI."""
    return escape_controls(str(path_of(uri)) if uri.startswith("file://") else uri)


def readable(uri: str) -> str:
    """Return a URI with percent-encoded letters decoded, for display; `%E5%A4%A9` is unreadable."""
    decoded = unquote(uri) if uri.startswith("file://") else uri
    return escape_controls(decoded if decoded.isprintable() and "\ufffd" not in decoded else uri)
