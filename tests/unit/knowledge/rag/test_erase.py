"""Erasing documents: nothing of them is left in files, and an interrupted erasure is known."""

from __future__ import annotations

from pathlib import Path

from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase


def _holders(folder: Path, word: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and word in path.read_bytes()]


async def test_erased_documents_leave_nothing_in_files(tmp_path: Path) -> None:
    texts = ["Zorbaquux Lumentari founded Acme Corp.", "Ada Lovelace visited Paris."]
    with GraphRAGKnowledgeBase("kb", path=tmp_path, embedder=HashingEmbedder()) as base:
        first, second = await base.add_texts(texts)
        await base.remove([first])
        assert _holders(tmp_path, b"Zorbaquux"), "removal alone leaves remains"
        [again] = await base.add_texts(texts[:1])
        base.store.set("erasing", "1")
        assert base.unfinished_erasure
        assert [each.id for each in await base.erase([again, "unknown"])] == [again]
        assert not base.unfinished_erasure
        assert _holders(tmp_path, b"Zorbaquux") == []
        assert (await base.query("Lovelace"))[0].metadata["document_id"] == second
        assert (await base.check()).sound
