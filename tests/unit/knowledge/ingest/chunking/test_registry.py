from __future__ import annotations

import pytest

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking import (
    SimpleChunker,
    SlidingWindowChunker,
    StructureChunker,
    create_chunker,
)


def test_chunkers_are_made_by_name_with_their_options():
    assert create_chunker() == StructureChunker()
    assert create_chunker("structure", target_tokens=200, max_tokens=300, min_tokens=20) == StructureChunker(
        200, max_tokens=300, min_tokens=20
    )
    assert create_chunker("simple", chunk_size=500) == SimpleChunker(500)
    assert create_chunker("sliding", chunk_size=500, overlap=50) == SlidingWindowChunker(500, overlap=50)


def test_an_unknown_chunker_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match=r"'magic'.* structure, simple, sliding"):
        create_chunker("magic")  # type: ignore[arg-type]


def test_an_unknown_option_is_refused_with_the_options():
    with pytest.raises(ConfigError, match=r"no option size, width\. Its options are: chunk_size, overlap"):
        create_chunker("sliding", width=3, size=4)


def test_impossible_options_are_refused():
    with pytest.raises(ConfigError, match=r"overlap"):
        create_chunker("sliding", chunk_size=10, overlap=10)
