"""One file's bytes on their way through a loader, and how complaints about it are worded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import DocumentError
from loom_core.knowledge.loaders.gzipped import inner_path
from loom_core.knowledge.visible import visible

if TYPE_CHECKING:
    from pathlib import PurePath

    from loom_core.knowledge.loaders.limits import LoadLimits

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a format's loader is given.

    Attributes:
        path: where it came from; loaders use only its name, they never open it again.
        data: the whole file.
        limits: what the loader must stay within.
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
        """A `DocumentError` whose message reads "`<path>` `<what>`"."""
        return DocumentError(f"{visible(str(self.path))} {what}", advice=advice)

    def too_long(self) -> DocumentError:
        """The error for a text beyond `LoadLimits.max_text_chars`."""
        return self.error(
            f"holds more text than a document may ({self.limits.max_text_chars:,} characters).",
            advice="Split it into smaller files.",
        )

    def encrypted(self) -> DocumentError:
        """The error for a file that asks for a password."""
        return self.error("is encrypted.", advice="Save a copy without a password and load that.")

    def broken(self, kind: str, reason: str) -> DocumentError:
        """The error for a file that is damaged or is not what its name says.

        Args:
            kind: what it should be, with its article: `a PDF`.
            reason: what the parser objected to; only its first line is shown.
        """
        lines = reason.strip().splitlines()
        detail = f": {lines[0][:200].rstrip('.')}" if lines else ""
        return self.error(
            f"cannot be read as {kind}{detail}.",
            advice="Check that it opens in its own program and save it again there.",
        )
