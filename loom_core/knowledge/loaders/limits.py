"""How much of a file a loader reads before it refuses."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoadLimits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Bounds that keep one hostile or huge file from taking the whole process.

    Attributes:
        max_bytes: size of the file on disk.
        max_pages: pages of a PDF, slides of a presentation.
        max_text_chars: length of the text that comes out, in code points.
        max_unpacked_bytes: everything in an Office file together, unpacked.
        max_part_bytes: the largest single part of a Word or PowerPoint file, unpacked: it is parsed
            into a tree several times its size.
        max_unpack_ratio: unpacked to packed size; judged only where much comes out.
    """

    max_bytes: int = 64 * _MIB
    max_pages: int = 5_000
    max_text_chars: int = 20_000_000
    max_unpacked_bytes: int = 512 * _MIB
    max_part_bytes: int = 128 * _MIB
    max_unpack_ratio: int = 200
