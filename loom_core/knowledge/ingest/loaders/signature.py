"""File signatures: the real type of a file by its first bytes."""

from __future__ import annotations

import re

__all__ = ["find_signature", "looks_binary"]

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or Office file"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old binary Office file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM\x00", "a BMP image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"RIFF", "a media file"),
    (b"OggS", "a media file"),
    (b"ID3", "an MP3 file"),
    (b"fLaC", "a FLAC file"),
    (b"\x1aE\xdf\xa3", "a media file"),
    (b"\x7fELF", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\xfe\xed\xfa", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"MZ\x90", "a program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an XZ archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x00asm", "a WebAssembly program"),
    (b"PAR1", "a Parquet file"),
)
_MARKS = tuple(mark for mark, _ in _SIGNATURES)
_SAMPLE = 64 * 1024
_MAX_CONTROLS = 0.02
_FEW = 4
"""Control characters that any text may have by accident."""

_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")


def find_signature(data: bytes) -> str:
    """Return the file type by the first bytes, with its article; empty if they are not known."""
    if not data.startswith(_MARKS):
        return ""
    return next(name for mark, name in _SIGNATURES if data.startswith(mark))


def looks_binary(text: str) -> bool:
    """Whether decoded text is binary: over 2 % control characters, or a third replacement characters."""
    sample = text[:_SAMPLE]
    if not sample:
        return False
    controls = len(_CONTROLS.findall(sample))
    return controls > max(_FEW, _MAX_CONTROLS * len(sample)) or sample.count("\ufffd") > 0.3 * len(sample)
