from __future__ import annotations

import anyio
import pytest
from pydantic import ValidationError

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument

_DOCUMENTS = [
    TextDocument(text="# Rope\n\nRope is made of hemp.", uri="note:rope", metadata={"tags": ["gear"]}),
    TextDocument(text="麻绳用麻制成，很结实。", title="麻绳"),
]


@pytest.fixture
def shelf():
    shelf = DocumentsKnowledgeBase(_DOCUMENTS, name="架子", description="绳子", search_hints=["rope"])
    yield shelf
    shelf.close()


async def test_texts_are_searched_cited_and_read_by_id(shelf):
    assert (shelf.name, shelf.description, list(shelf.search_hints)) == ("架子", "绳子", ["rope"])
    (first, *_) = await shelf.query("What is rope made of?", limit=1)
    assert (first.source, first.metadata["title"]) == ("note:rope", "Rope")
    (chinese, *_) = await shelf.query("麻绳用什么制成？", limit=1)
    assert chinese.metadata["title"] == "麻绳"
    found = await shelf.get_by_id(chinese.id)
    assert found is not None
    assert found.content == chinese.content


async def test_they_are_filtered_by_their_fields_before_and_after_they_are_read(shelf):
    assert list(shelf.supported_filters) == ["tags"]
    (only,) = await shelf.query("麻绳 rope", filters={"tags": "gear"})
    assert only.source == "note:rope"
    assert {"tags", "source", "language"} <= set(shelf.supported_filters)


async def test_the_documents_are_read_once_however_many_ask_at_first(shelf):
    bases: list[object] = []

    async def open_() -> None:
        bases.append(await shelf.open_base())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(open_)
    assert len(set(map(id, bases))) == 1


async def test_who_gives_up_waiting_leaves_the_rest_to_the_next(shelf):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await shelf.query("rope")
    assert (await shelf.query("rope", limit=1))[0].source == "note:rope"


async def test_closed_it_reads_them_again(shelf):
    await shelf.query("rope")
    shelf.close()
    assert (await shelf.query("rope", limit=1))[0].source == "note:rope"


async def test_with_an_embedder_passages_have_cosines():
    shelf = DocumentsKnowledgeBase(_DOCUMENTS, name="shelf", embedding_provider=create_embedder("hashing"))
    try:
        (first, *_) = await shelf.query("What is rope made of?", limit=1)
        assert "vector" in first.metadata["scores"]
        assert shelf.embedder_id == create_embedder("hashing").id
    finally:
        shelf.close()


def test_a_document_without_text_is_none():
    with pytest.raises(ValidationError):
        TextDocument(text="")
