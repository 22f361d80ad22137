"""Input of a loader: one file's bytes, and the errors about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders.gzipped import inner_path
from loom_core.knowledge.text.control_characters import escape_controls

if TYPE_CHECKING:
    from pathlib import PurePath

__all__ = ["LoadLimits", "Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """Input of a format's loader.

    Attributes:
        path: where it came from; loaders use only its name, they never open it again.
        data: the whole file.
        limits: limits that the loader enforces.
        charset: encoding named by a transport (an HTTP header), or empty.
    """

    path: PurePath
    data: bytes
    limits: LoadLimits
    charset: str = ""

    @property
    def extension(self) -> str:
        """The file name's extension in lower case with its dot, or empty; without `.gz`."""
        return inner_path(self.path).suffix.lower()

    def error(self, what: str, *, advice: str) -> DocumentError:
        """Return a `DocumentError` whose message reads "`<path>` `<what>`"."""
        return DocumentError(f"{escape_controls(str(self.path))} {what}", advice=advice)

    def length_error(self) -> DocumentError:
        """Return the error for a text beyond `LoadLimits.max_text_chars`."""
        return self.error(
            f"holds more text than a document may ({self.limits.max_text_chars:,} characters).",
            advice="Split it into smaller files.",
        )

    def encryption_error(self) -> DocumentError:
        """Return the error for a file that needs a password."""
        return self.error("is encrypted.", advice="Save a copy without a password and load that.")

    def damage_error(self, kind: str, reason: str) -> DocumentError:
        """Return the error for a file that is damaged or does not match its extension.

        Args:
            kind: the expected type of the file, with its article: `a PDF`.
            reason: the parser's error; only its first line is shown.
        """
        lines = reason.strip().splitlines()
        detail = f": {lines[0][:200].rstrip('.')}" if lines else ""
        return self.error(
            f"cannot be read as {kind}{detail}.",
            advice="Check that it opens in its own program and save it again there.",
        )


_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Limits that keep a hostile or huge file from exhausting the process.

    Attributes:
        max_bytes: size of the file on disk.
        max_pages: pages of a PDF, slides of a presentation.
        max_text_chars: length of the resulting text, in code points.
        max_unpacked_bytes: total unpacked size of an Office file.
        max_part_bytes: the largest single part of a Word or PowerPoint file, unpacked: it is parsed
            into a tree several times its size.
        max_unpack_ratio: ratio of unpacked to packed size; checked only for large unpacked sizes.
    """

    max_bytes: int = 64 * _MIB
    max_pages: int = 5_000
    max_text_chars: int = 20_000_000
    max_unpacked_bytes: int = 512 * _MIB
    max_part_bytes: int = 128 * _MIB
    max_unpack_ratio: int = 200
