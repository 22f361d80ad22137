"""Loading documents: one function for any file, one for a folder's listing.

Format libraries are imported when the first file of their format is read.
"""

from __future__ import annotations

from loom_core.knowledge.loaders.encoding import decode
from loom_core.knowledge.loaders.folder import ScanEntry, scan
from loom_core.knowledge.loaders.limits import LoadLimits
from loom_core.knowledge.loaders.load import load_bytes, load_file
from loom_core.knowledge.loaders.registry import supported_extensions

__all__ = [
    "LoadLimits",
    "ScanEntry",
    "decode",
    "load_bytes",
    "load_file",
    "scan",
    "supported_extensions",
]
