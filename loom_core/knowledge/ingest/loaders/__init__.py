"""Loaders: one function loads any file, another lists a folder.

Format libraries are imported when the first file of their format is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.files.encoding import decode
    from loom_core.knowledge.ingest.loaders.credentials import is_private_key
    from loom_core.knowledge.ingest.loaders.folder import ScanEntry, scan
    from loom_core.knowledge.ingest.loaders.load import load_bytes, load_file, read_file
    from loom_core.knowledge.ingest.loaders.registry import list_extensions
    from loom_core.knowledge.ingest.loaders.source import LoadLimits

__all__ = [
    "LoadLimits",
    "ScanEntry",
    "decode",
    "is_private_key",
    "list_extensions",
    "load_bytes",
    "load_file",
    "read_file",
    "scan",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
