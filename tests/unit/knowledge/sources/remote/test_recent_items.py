from __future__ import annotations

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.remote.recent_items import RecentItems


def item(id_: str, text: str = "Rope.") -> KnowledgeItem:
    return KnowledgeItem(id_, text, "note:rope")


def test_the_oldest_are_given_up_when_there_are_too_many():
    recent = RecentItems(limit=2)
    recent.add([item("a"), item("b")])
    recent.add([item("a", "Rope again."), item("c")])
    assert recent.get("b") is None
    assert recent.get("a") == item("a", "Rope again.")
    assert recent.get("c") is not None


def test_passages_with_the_id_of_their_document_are_all_found_by_it():
    recent = RecentItems()
    recent.add([item("7", "Made of hemp."), item("7", "Sold in Riga."), item("7", "hemp.")])
    assert recent.get("7") == item("7", "Made of hemp.\n\nSold in Riga.")
    recent.add([item("7", "Sold in Lübeck.")])
    assert recent.get("7") == item("7", "Sold in Lübeck.")


def test_the_oldest_are_given_up_when_they_are_too_long():
    recent = RecentItems(characters=10)
    recent.add([item("a", "x" * 6), item("b", "x" * 6)])
    assert recent.get("a") is None
    assert recent.get("b") is not None
    recent.add([item("c", "x" * 11)])
    assert recent.get("b") is recent.get("c") is None
