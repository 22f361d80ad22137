from __future__ import annotations

from loom_query.federation.passages import passage_of

from loom_core.knowledge.model import KnowledgeItem


def test_a_title_that_is_no_text_is_left_out():
    item = KnowledgeItem("s:1", "Rope.", "note:rope", metadata={"title": ["Rope"], "knowledge_base": "s"})
    passage = passage_of(1, item)
    assert (passage.title, passage.uri) == ("", "note:rope")
