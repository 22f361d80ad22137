"""Decoding of a file to text, and back to the same encoding."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Self

from loom_core.errors import InvalidInputError
from loom_core.files.encoding import decode

__all__ = ["MAX_IMAGE_BYTES", "TextFile", "binary_kind", "image_type"]

MAX_IMAGE_BYTES = 5 << 20
"""The largest image that all vendors take."""

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_BINARY = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "a SQLite database"),
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_SAMPLE = 4096
_MOST_CONTROLS = 0.05


@dataclass(frozen=True, slots=True)
class TextFile:
    """A decoded text file.

    Attributes:
        text: its content; line ends are as in the file.
        encoding: Python's name of the encoding.
        mark: its byte order mark, or empty.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @classmethod
    def of(cls, data: bytes, *, hint: str = "") -> Self | None:
        """Decode bytes; return None if they are no text.

        Args:
            data: the whole file.
            hint: a declared encoding, see `decode`.
        """
        if binary_kind(data) or image_type(data):
            return None
        text, encoding = decode(data, hint=hint)
        sample = text[:_SAMPLE]
        if "\0" in sample or len(_CONTROLS.findall(sample)) > _MOST_CONTROLS * len(sample):
            return None
        return cls(text, encoding, next((mark for mark in _MARKS if data.startswith(mark)), b""))

    def encode(self, text: str) -> bytes:
        """Encode another text in the same encoding.

        Raises:
            InvalidInputError: the encoding lacks one of its characters.
        """
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"The file is written in {self.encoding}, which has no {error.object[error.start]!r}.",
                advice="Do without this character, or rewrite the whole file, which makes it UTF-8.",
            ) from None


def image_type(data: bytes) -> str:
    """Return the media type of an image that models support, or an empty text."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _IMAGES if data.startswith(beginning)), "")


def binary_kind(data: bytes) -> str:
    """Return the kind of a binary file, such as `a PDF`; empty if its magic bytes are unknown."""
    return next((kind for beginning, kind in _BINARY if data.startswith(beginning)), "")
