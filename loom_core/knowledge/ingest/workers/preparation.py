"""Making one prepared document of its material: what parent and child do alike."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.workers.material import loaded
from loom_core.knowledge.store.prepared import PreparedDocument

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders import LoadLimits
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.ingest.workers.material import Material

__all__ = ["NO_MEMORY", "Failed", "Made", "Unchanged", "made"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The record has exactly this document."""

    hash: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no document, for a reason.

    Attributes:
        by_content: whether what was given holds no document, now and ever; else it may go well another time.
    """

    reason: str
    by_content: bool = False


NO_MEMORY = Failed("it takes more memory to prepare than a document may")
"""A document is too large or too intricate; so was what was read of it, which may still be around."""

Made: TypeAlias = PreparedDocument | Unchanged | Failed
"""What became of a material."""


def made(material: Material, *, pipeline: Pipeline, limits: LoadLimits) -> Made:
    """Load, cut and read a document. Blocks, and raises nothing that the material is to blame for."""
    try:
        draft = loaded(material, limits=limits)
        hash_ = pipeline.hash(draft)
        if hash_ == material.known:
            return Unchanged(hash_)
        document = pipeline.prepare_one(draft, hash_=hash_)
    except DocumentError as error:
        return Failed(str(error), by_content=True)
    except MemoryError:
        return NO_MEMORY
    except Exception as error:  # noqa: BLE001 - texts are anything, and so is what chunkers and rules raise
        _log.exception("preparing %s failed", material.uri)
        return Failed(f"it could not be prepared: {type(error).__name__}: {error}")
    return Failed("there is no text in it", by_content=True) if document is None else document
