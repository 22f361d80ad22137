"""The functions that `KuzuReading` runs in a child, run here."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
from loom_core.knowledge.indexes.kuzu_reading import answer_cypher, copy_database
from loom_core.knowledge.interface import EntityEdge, EntityNode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "graph"
    entities = [EntityNode(key, f"实体{key}", "", 1) for key in range(1, 11)]
    KuzuGraphStore.load(path, entities, [EntityEdge(1, "属于", 2, 5, 0.5)], buffer_pool_mb=64).close()
    return path


def answered(
    path: Path, statement: str, *, limit: int = 100, timeout_ms: int = 5000, **parameters: Any
) -> Any:
    return answer_cypher(
        path=str(path),
        module="kuzu",
        max_db_size=1 << 34,
        statement=statement,
        parameters=parameters,
        limit=limit,
        timeout_ms=timeout_ms,
    )


def test_nodes_relations_and_odd_types_come_back_as_json(graph: Path) -> None:
    found = answered(
        graph,
        "MATCH (a:Entity {id: 1})-[r:REL]->(b) "
        "RETURN a, r, date('2026-01-02'), CAST(1.5 AS DECIMAL(4, 2)), 1.0 / 0.0, 2.5, [1, 2], null, true",
    )
    ((node, relation, *rest),) = found["rows"]
    assert (node["name"], relation["predicate"], relation["support"]) == ("实体1", "属于", 5)
    assert rest == ["2026-01-02", "1.50", "inf", 2.5, [1, 2], None, True]
    json.dumps(found, allow_nan=False)


def test_rows_are_cut_at_the_limit_and_not_before(graph: Path) -> None:
    few = answered(graph, "MATCH (e:Entity) RETURN e.id AS id", limit=9)
    assert (few["columns"], len(few["rows"]), few["truncated"]) == (["id"], 9, True)
    every = answered(graph, "MATCH (e:Entity) RETURN e.id", limit=10)
    assert (len(every["rows"]), every["truncated"]) == (10, False)


def test_answers_are_cut_before_they_are_huge(graph: Path) -> None:
    text = "x" * 1_500_000
    found = answered(graph, "MATCH (e:Entity) RETURN $text", text=text)
    assert (len(found["rows"]), found["truncated"]) == (2, True)
    assert "one row alone" in answered(graph, "RETURN [$text, $text, $text]", text=text)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("RETURN nonsense(", "Parser exception"),
        ("MATCH (e:Nothing) RETURN e", "Table Nothing does not exist"),
        ("CREATE (e:Entity {id: 99})", "Cannot execute write operations in a read-only database"),
        ("MATCH (a), (b), (c), (d), (e), (f), (g), (h) RETURN collect(a), collect(b)", "took more|memory"),
    ],
)
def test_what_the_engine_refuses_comes_back_as_one_line(graph: Path, statement: str, reason: str) -> None:
    line = answered(graph, statement, timeout_ms=300)
    assert isinstance(line, str)
    assert re.search(reason, line), line
    assert "\n" not in line


def test_a_statement_that_takes_too_long_is_stopped(graph: Path) -> None:
    endless = "UNWIND range(1, 100000) AS x UNWIND range(1, 10000) AS y RETURN sum(x % y)"
    assert answered(graph, endless, timeout_ms=100) == "it took more than 100 ms"


def test_a_copy_holds_the_database_and_its_log(tmp_path: Path) -> None:
    store = KuzuGraphStore(tmp_path / "graph", buffer_pool_mb=64)
    store.upsert_entities([EntityNode(1, "x", "", 1)])
    store.close()
    (tmp_path / "graph.snapshot.wal").write_bytes(b"of an older copy")
    copy_database(path=str(tmp_path / "graph"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph", "graph.snapshot"]
    assert answered(tmp_path / "graph.snapshot", "MATCH (e:Entity) RETURN count(*)")["rows"] == [[1]]
