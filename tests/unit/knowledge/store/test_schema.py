"""A knowledge base that an older version of Loom has written is brought up to date."""

from __future__ import annotations

from pathlib import Path

from loom_core.knowledge.maintenance.check import check_graph
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage import Database

_WRITTEN = """
INSERT INTO documents (key, id, uri, title, title_source, mime, language, text, length, hash, metadata,
    added_at, updated_at)
    VALUES (1, 'd', 'text:d', 'Mapo', 'given', 'text/plain', 'en', x'', 0, x'', '{}', 0, 0);
INSERT INTO chunks (key, id, document, ordinal, start, end, kind, name, heading_path, language, keywords,
    hash, vector_hash, text)
    VALUES (1, 'd.0', 1, 0, 0, 20, 'text', '', '[]', 'en', '[]', x'', x'', 'Ada met Mapo in 杭州.');
INSERT INTO entities (key, id) VALUES (1, 'mapo'), (2, 'ada'), (3, '杭州');
INSERT INTO abouts VALUES (1, 1, 'title', 'Mapo', 1.0);
INSERT INTO mentions VALUES (1, 1, 8, 12, 'Mapo', 'thing', 'title', 1.0),
    (1, 2, 0, 3, 'Ada', 'person', 'tagged', 0.8), (1, 3, 16, 18, '杭州', 'place', 'tagged', 0.8);
INSERT INTO relations VALUES (1, 2, 'related to', 3, 0, 18, 'between', 0.2),
    (1, 2, 'related to', 1, 0, 12, 'llm', 0.7);
INSERT INTO names VALUES (1, 'Mapo', 'thing', 2), (2, 'Ada', 'person', 1), (3, '杭州', 'place', 1);
INSERT INTO indexes VALUES ('graph', 1, 0), ('words', 1, 0)
"""


def test_what_version_3_has_written_is_counted_and_related_as_today(tmp_path: Path):
    old = Database(tmp_path / "record.db", schema=SCHEMA[:3])
    with old.write() as db:
        for statement in _WRITTEN.split(";"):
            db.execute(statement)
    old.close()
    store = KnowledgeStore(tmp_path / "record.db")
    nodes = {node.name: (node.type, node.mentions) for node in store.graph.all_nodes()}
    assert nodes == {"Mapo": ("thing", 0), "Ada": ("person", 1), "杭州": ("place", 1)}
    assert [(edge.subject, edge.object) for edge in store.graph.all_edges()] == [(2, 1)]
    assert [row["name"] for row in store.database.rows("SELECT name FROM indexes")] == ["words"]
    assert not list(check_graph(store))
    store.close()
