"""What Word and PowerPoint files share: parts of bounded size and core properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.loaders.cleaning import clean_line

if TYPE_CHECKING:
    import zipfile

    from docx.opc.coreprops import CoreProperties
    from pptx.parts.coreprops import CorePropertiesPart

    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["check_parts", "core_properties"]

_XML = (".xml", ".rels")
_LIBRARIES = frozenset({"python-docx", "python-pptx"})


def check_parts(source: Source, archive: zipfile.ZipFile) -> None:
    """Refuse an XML part whose tree would not fit into reasonable memory, and close the archive.

    Raises:
        DocumentError: a part is larger than `LoadLimits.max_part_bytes`.
    """
    with archive:
        largest = max(
            (part.file_size for part in archive.infolist() if part.filename.endswith(_XML)), default=0
        )
    if largest > source.limits.max_part_bytes:
        raise source.error(
            f"has a part of {largest:,} bytes, more than can be parsed ({source.limits.max_part_bytes:,}).",
            advice="Split the document into smaller ones.",
        )


def core_properties(properties: CoreProperties | CorePropertiesPart) -> dict[str, Any]:
    """Title, author, subject, tags and date (ECMA-376, part 2, section 11), where they are set."""
    fields: dict[str, Any] = {
        name: text
        for name in ("title", "author", "subject")
        if (text := clean_line(getattr(properties, name))) and text not in _LIBRARIES
    }
    if tags := [tag for piece in re.split("[,;，；、]", properties.keywords) if (tag := clean_line(piece))]:
        fields["tags"] = tags
    date = properties.modified or properties.created
    if date is not None:
        fields["date"] = date.date().isoformat()
    return fields
