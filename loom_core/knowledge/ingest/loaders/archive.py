"""Zip bomb guard: open Office files and EPUB, which are ZIP archives of XML."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.errors import DocumentError
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["open_archive", "read_part"]

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")
_HARMLESS = 32 * 1024 * 1024
"""Unpacked size below which no ratio is suspicious: a table of zeros packs by the hundred."""


def open_archive(source: Source, kind: str) -> zipfile.ZipFile:
    """Open an Office file, after checking the unpacked size.

    Reading a member later never exceeds the size declared here: `zipfile` stops there and fails on
    the checksum if there was more.

    Args:
        source: the file.
        kind: the expected type of the file, with its article: `a Word document`.

    Raises:
        DocumentError: it is encrypted, in the old binary format, not an archive, or exceeds the limits when
            unpacked.
    """
    if source.data.startswith(_OLE):
        raise _ole_error(source, kind)
    try:
        archive = zipfile.ZipFile(io.BytesIO(source.data))
        members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise source.damage_error(kind, str(error)) from error
    if any(member.flag_bits & 1 for member in members):
        raise source.encryption_error()
    unpacked = sum(member.file_size for member in members)
    limits = source.limits
    suspicious = unpacked > _HARMLESS and unpacked > limits.max_unpack_ratio * len(source.data)
    if suspicious or unpacked > limits.max_unpacked_bytes:
        raise source.error(
            f"unpacks to {unpacked:,} bytes from {len(source.data):,}, which no ordinary document does.",
            advice="If it is genuine, split it or save it as plain text or CSV.",
        )
    return archive


def read_part(source: Source, archive: zipfile.ZipFile, name: str, kind: str) -> bytes:
    """Unpack a part for parsing.

    Args:
        source: the file.
        archive: the archive, opened by `open_archive`.
        name: name of the part.
        kind: the expected type of the file, with its article.

    Raises:
        DocumentError: there is no such part, or it is larger than `LoadLimits.max_part_bytes`.
    """
    try:
        size = archive.getinfo(name).file_size
    except KeyError as error:
        raise source.damage_error(kind, f"it has no part {name}") from error
    if size > source.limits.max_part_bytes:
        raise source.error(
            f"has a part of {size:,} bytes, more than can be parsed ({source.limits.max_part_bytes:,}).",
            advice="Split the document into smaller ones.",
        )
    return archive.read(name)


def _ole_error(source: Source, kind: str) -> DocumentError:
    if _ENCRYPTED_STREAM in source.data:
        return source.encryption_error()
    return source.error(
        f"is in the old binary Office format, not {kind}.",
        advice="Open it in Office or LibreOffice and save it in the current format.",
    )
