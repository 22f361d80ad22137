from __future__ import annotations

import pytest

from loom_core.errors import NotFoundError
from loom_core.knowledge.sources.library import Library
from loom_core.knowledge.sources.local import LocalKnowledgeBase
from loom_core.knowledge.sources.unified_tool import SourceInfo

_TEXT = "# Rope\n\nRope is made of hemp.\n\n# Sail\n\nSails are of linen."


@pytest.fixture
async def library(tmp_path):
    library = Library(tmp_path, embedder="hashing")
    base = await library.get("仓库", create=True, description="船具")
    await base.add_texts([_TEXT], uris=["note:gear"])
    library.close()
    yield library
    library.close()


async def test_nothing_is_opened_before_the_first_question(library):
    (entry,) = library.list()
    source = LocalKnowledgeBase(library, entry.source)
    assert (source.name, source.description, source.embedder_id) == ("仓库", "船具", "")
    assert "source" in source.supported_filters
    (first, *_) = await source.query("What is rope made of?", limit=1)
    assert first.source == "note:gear"
    assert source.embedder_id.startswith("hashing")


async def test_it_may_be_called_otherwise_than_the_knowledge_base(library):
    info = SourceInfo("gear", "Ship's gear", ("ropes",), ("tags",))
    source = LocalKnowledgeBase(library, info, base="仓库")
    assert (source.name, list(source.search_hints), list(source.supported_filters)) == (
        "gear", ["ropes"], ["tags"],
    )  # fmt: skip
    assert await source.query("rope", limit=1)


async def test_a_passage_is_read_by_its_id_and_a_document_by_its_id_or_address(library):
    source = LocalKnowledgeBase(library, SourceInfo("仓库"))
    (first, *_) = await source.query("What is rope made of?", limit=1)
    passage = await source.get_by_id(first.id)
    assert passage is not None
    assert passage.content == first.content
    document = await source.get_by_id("note:gear")
    assert document is not None
    assert document.content == _TEXT
    assert document.id == first.metadata["document_id"]
    assert await source.get_by_id("note:other") is None


async def test_a_knowledge_base_that_is_gone_is_an_error(library):
    with pytest.raises(NotFoundError, match="There is no knowledge base 'gone'"):
        await LocalKnowledgeBase(library, SourceInfo("gone")).query("rope")
