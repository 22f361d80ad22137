"""Loading of one document: from a file or from bytes to a draft."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from loom_core.errors import DocumentError
from loom_core.files.encoding import decode
from loom_core.files.safe_open import OutsideError, open_regular
from loom_core.knowledge.ingest.loaders.credentials import is_private_key
from loom_core.knowledge.ingest.loaders.gzipped import GZIP, inner_path, unpack
from loom_core.knowledge.ingest.loaders.registry import (
    PROBE,
    advise_on_format,
    format_for,
    format_of_content,
    is_known_by_content,
)
from loom_core.knowledge.ingest.loaders.signature import find_signature, looks_binary
from loom_core.knowledge.ingest.loaders.source import LoadLimits, Source
from loom_core.knowledge.ingest.loaders.titles import choose_title
from loom_core.knowledge.model import DocumentDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.registry import Format

__all__ = ["load_bytes", "load_file", "read_file"]

_LOG = logging.getLogger(__name__)
_DEFAULTS = LoadLimits()
_NOT_REGULAR = frozenset({errno.EINVAL, errno.ENXIO})


def load_file(path: Path, *, limits: LoadLimits = _DEFAULTS, roots: Sequence[Path] = ()) -> DocumentDraft:
    """Read a file of any supported format. Blocks: call it from a worker thread.

    Args:
        path: the file; a symbolic link is followed where there are no roots.
        limits: limits of the size.
        roots: real paths of folders; where given, a file outside them is refused, see `open_regular`.

    Returns:
        The draft. Its URI is the `file://` URI of the absolute path; blocks are in order, do not overlap, are
        never blank, and their offsets index into its text exactly.

    Raises:
        DocumentError: it is missing, unreadable, not a regular file, empty, too large, of unsupported type,
            binary, encrypted, broken, or without text. The message names the file, the cause and what to do.
    """
    source = Source(path, b"", limits)
    kind = _format(source)
    source = Source(path, read_file(path, limits=limits, roots=roots), limits)
    return _draft(source, kind, path.absolute().as_uri())


def load_bytes(
    data: bytes,
    *,
    uri: str,
    name: str,
    mime: str = "",
    charset: str = "",
    limits: LoadLimits = _DEFAULTS,
) -> DocumentDraft:
    """Read a document that is in memory, such as a downloaded page. Blocks like `load_file`.

    Args:
        data: the whole file.
        uri: where it came from, for the draft.
        name: a file name; its extension decides the format, its stem is the last resort for a title.
        mime: media type from a transport, for a name without a known extension.
        charset: encoding from a transport; valid UTF-8 has priority.
        limits: as for `load_file`.

    Raises:
        DocumentError: as for `load_file`.
    """
    source = Source(PurePath(name), data, limits, charset)
    kind = _format(source, mime)
    if len(data) > limits.max_bytes:
        raise _too_large(source, len(data))
    return _draft(source, kind, uri)


def _format(source: Source, mime: str = "") -> Format | None:
    """Return the format by name or media type; None if the content decides.

    Raises:
        DocumentError: the format is not supported, whatever the content.
    """
    kind = format_for(source.path, mime=mime)
    if kind is None and (mime or not is_known_by_content(source.path)):
        raise _format_error(source, mime)
    return kind


def _format_error(source: Source, mime: str = "") -> DocumentError:
    known_by = source.extension or mime or "no extension"
    return source.error(
        f"is of a type that cannot be loaded ({known_by}).", advice=advise_on_format(source.extension)
    )


def read_file(path: Path, *, limits: LoadLimits = _DEFAULTS, roots: Sequence[Path] = ()) -> bytes:
    """Read a file's bytes, never more than the limit, and never from a pipe or device. Blocks.

    Args:
        path: as for `load_file`, like all others.
        limits: see there.
        roots: see there.

    Raises:
        DocumentError: it is missing, unreadable, not a regular file, or too large.
    """
    source, limit = Source(path, b"", limits), limits.max_bytes
    try:
        with open_regular(path, roots=roots) as file:
            size = os.fstat(file.fileno()).st_size
            # A file of `/proc` says 0 and holds more.
            data = file.read(limit + 1) if size <= limit else b""
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from error
    if max(size, len(data)) > limit:
        raise _too_large(source, max(size, len(data)))
    return data


def _irregular(source: Source) -> DocumentError:
    return source.error(
        "is a folder, pipe or device, not a regular file.",
        advice="Give the path of a file.",
    )


def _too_large(source: Source, size: int) -> DocumentError:
    return source.error(
        f"has {size:,} bytes, more than a document may ({source.limits.max_bytes:,}).",
        advice="Split it into smaller files.",
    )


def _unreadable(source: Source, error: OSError | ValueError) -> DocumentError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return source.error("does not exist.", advice="Check the path.")
    if isinstance(error, OutsideError):
        return source.error("is outside the folders that may be read.", advice="Move it there.")
    if isinstance(error, PermissionError):
        return source.error("may not be read: permission denied.", advice="Grant read access to it.")
    if isinstance(error, IsADirectoryError) or getattr(error, "errno", None) in _NOT_REGULAR:
        return _irregular(source)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return source.error(f"cannot be read: {reason}.", advice="Check the path and the disk.")


def _unpack(source: Source) -> Source:
    """Decompress a compressed file; return any other as it is."""
    if not source.data.startswith(GZIP) or inner_path(source.path) == source.path:
        return source
    limit = source.limits.max_bytes
    try:
        data = unpack(source.data, limit=limit)
    except ValueError as error:
        raise source.damage_error("a gzip file", str(error)) from error
    if len(data) > limit:
        raise source.error(
            f"unpacks to more bytes than a document may have ({limit:,}).",
            advice="Unpack it and split it into smaller files.",
        )
    return replace(source, data=data)


def _draft(source: Source, kind: Format | None, uri: str) -> DocumentDraft:
    source = _unpack(source)
    if not source.data.strip():
        raise source.error("is empty.", advice="Remove it or fill it.")
    if is_private_key(source.data):
        raise source.error("is a private key, which is never read.", advice="Leave it out.")
    kind = kind or format_of_content(source.data[:PROBE])
    if kind is None:
        raise _format_error(source)
    _check_signature(source, kind)
    try:
        content = kind.load(source)
    except (DocumentError, MemoryError):
        raise
    except Exception as error:
        # The boundary to the parsers, which raise anything on hostile files: KeyError, RecursionError…
        _LOG.debug("loading %s failed", source.path, exc_info=True)
        raise source.damage_error(kind.name, f"{type(error).__name__}: {error}") from error
    if not content.text.strip():
        raise source.error("has no text.", advice="Check that it is the right file.")
    if len(content.text) > source.limits.max_text_chars:
        raise source.length_error()
    return _assemble(content, source, kind, uri)


def _assemble(content: LoadedContent, source: Source, kind: Format, uri: str) -> DocumentDraft:
    title, title_source = choose_title(content, inner_path(source.path))
    return DocumentDraft(uri, content.text, title, title_source, content.blocks, kind.mime, content.metadata)


def _check_signature(source: Source, kind: Format) -> None:
    """Refuse a file whose signature contradicts its name."""
    found = find_signature(source.data)
    if kind.is_text:
        if found or looks_binary(decode(source.data[:PROBE], hint=source.charset)[0]):
            raise source.error(
                f"is {found or 'binary data'}, not {kind.name}.",
                advice="Rename it to its real extension if that type is supported, else leave it out.",
            )
    elif found and found != kind.name and "Office" not in found and "ZIP" not in found:
        raise source.error(f"is {found}, not {kind.name}.", advice="Rename it to its real extension.")
