"""Registry of chunkers by name."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal, get_args

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking.structure import StructureChunker
from loom_core.knowledge.ingest.chunking.windows import SimpleChunker, SlidingWindowChunker

if TYPE_CHECKING:
    from loom_core.knowledge.interface import Chunker

__all__ = ["ChunkerName", "create_chunker"]

ChunkerName = Literal["structure", "simple", "sliding"]

_CHUNKERS: dict[ChunkerName, type[SimpleChunker | SlidingWindowChunker | StructureChunker]] = {
    "structure": StructureChunker,
    "simple": SimpleChunker,
    "sliding": SlidingWindowChunker,
}


def create_chunker(name: ChunkerName = "structure", **options: int) -> Chunker:
    """Create a chunker by name.

    Args:
        name: `structure` (the default), `simple` or `sliding`.
        options: its sizes; see the attributes of its class.

    Raises:
        ConfigError: there is no such chunker or option, or the sizes do not fit together.
    """
    chunker = _CHUNKERS.get(name)
    if chunker is None:
        raise ConfigError(
            f"There is no chunker named {name!r}.",
            advice=f"Choose one of: {', '.join(get_args(ChunkerName))}.",
        )
    known = [field.name for field in fields(chunker)]
    if unknown := sorted(options.keys() - known):
        raise ConfigError(
            f"The chunker {name!r} has no option {', '.join(unknown)}.",
            advice=f"Its options are: {', '.join(known)}.",
        )
    return chunker(**options)
