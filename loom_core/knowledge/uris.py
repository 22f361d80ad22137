"""Between paths and `file://` URIs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from loom_core.knowledge.text.control_characters import escape_controls

__all__ = ["display_uri", "path_of", "readable", "uri_of"]


def uri_of(path: Path) -> str:
    """The `file://` URI of a path, made absolute."""
    return path.absolute().as_uri()


def path_of(uri: str) -> Path:
    """The path of a `file://` URI."""
    path = urlsplit(uri).path
    if os.name == "nt":
        from urllib.request import url2pathname

        return Path(url2pathname(path))
    return Path(os.fsdecode(unquote_to_bytes(path)))  # a name is bytes, which need not be UTF-8


def display_uri(uri: str) -> str:
    """A URI as a person reads it: a path for a file, itself for all else; on one line."""
    return escape_controls(str(path_of(uri)) if uri.startswith("file://") else uri)


def readable(uri: str) -> str:
    """A URI with the letters of every script as they are, for showing it; `%E5%A4%A9` reads badly."""
    decoded = unquote(uri) if uri.startswith("file://") else uri
    return escape_controls(decoded if decoded.isprintable() and "\ufffd" not in decoded else uri)
