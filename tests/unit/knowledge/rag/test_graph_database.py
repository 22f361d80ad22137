"""A knowledge base whose graph is in a database: adding, asking, bad days, and what a person is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_core.errors import ConfigError
from loom_core.knowledge import KnowledgeBase, Library, RAGConfig
from tests.fixtures.plain_graph_store import PlainGraphServer
from tests.fixtures.store_servers.falkordb import FalkorServer, run_falkordb

TEXTS = [
    "Ada Lovelace was born in London. She worked with Charles Babbage.",
    "Charles Babbage died in London. Charles Babbage lived in Turin.",
    "Luigi Menabrea was born in Turin. The Analytical Engine was designed by Charles Babbage.",
    "林若曦住在静港。静港是一座城市。",
]


@pytest.fixture(scope="module")
def falkordb_server() -> Iterator[FalkorServer]:
    with run_falkordb() as server:
        yield server


@pytest.fixture
def falkordb(falkordb_server: FalkorServer) -> FalkorServer:
    falkordb_server.execute("FLUSHALL")
    return falkordb_server


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def server(url: str) -> PlainGraphServer:
    return PlainGraphServer.at(url)


def opened(folder: Path, graph: str = "") -> KnowledgeBase:
    return KnowledgeBase("notes", path=folder, embedder="hashing", config=RAGConfig(graph=graph))


async def settle(knowledge_base: KnowledgeBase) -> None:
    """Work until all is indexed, as a server does."""
    await knowledge_base.worker.drain()
    knowledge_base.associations().of(1)  # has the graph opened that nothing has asked yet
    await knowledge_base.worker.drain()


def explore(knowledge_base: KnowledgeBase) -> object:
    """All that the tool `graph` reads: neighbourhoods and paths of all entities."""
    graph = knowledge_base.graph
    associations = knowledge_base.associations()
    keys = {name: graph.search(name, limit=1)[0] for name in ("Ada Lovelace", "Luigi Menabrea", "静港")}
    return (
        [associations.around([key], hops=2) for key in keys.values()],
        associations.path(keys["Ada Lovelace"], keys["Luigi Menabrea"], steps=6),
        [
            knowledge_base.ask_graph(
                lambda graph, key=key: graph.neighbours(key, hops=3), around=[key], hops=3
            )
            for key in keys.values()
        ],
    )


@pytest.mark.slow
async def test_falkordb_kuzu_and_the_store_say_the_same(tmp_path: Path, falkordb: FalkorServer):
    knowledge_base = opened(tmp_path / "a")
    await knowledge_base.add_texts(TEXTS)
    await settle(knowledge_base)
    said = [explore(knowledge_base)]
    for setting in (falkordb.setting, "none", "kuzu"):
        knowledge_base.move(graph=setting)
        await settle(knowledge_base)
        said.append(explore(knowledge_base))
        assert knowledge_base.graph_setting == setting
        remote = setting == falkordb.setting
        assert len(falkordb.graphs()) == remote
        assert bool(list((tmp_path / "a").glob("graph-*"))) == (setting == "kuzu")
        assert ("remote_graph" in knowledge_base.index_lag()) == remote
        report = await knowledge_base.check()
        assert report.sound
        assert any("remote_graph" in line for line in report.checked) == remote
        await knowledge_base.rebuild(["graph"])
        assert len(falkordb.graphs()) == remote
    assert said == [said[0]] * 4
    knowledge_base.close()


@pytest.mark.slow
async def test_documents_that_come_while_falkordb_dies_are_in_it_afterwards(
    tmp_path: Path, falkordb: FalkorServer
):
    knowledge_base = opened(tmp_path / "a", falkordb.setting)
    await knowledge_base.add_texts(TEXTS[:2])
    falkordb.kill()
    await knowledge_base.add_texts(TEXTS[2:3])
    assert "connection failed" in knowledge_base.graph_problem()
    answer = await knowledge_base.search("Where did Charles Babbage live?")
    assert "Turin" in answer.items[0].content
    assert answer.notes == ()
    knowledge_base.close()
    falkordb.forget()

    knowledge_base = opened(tmp_path / "a")  # the setting is the knowledge base's own
    await knowledge_base.add_texts(TEXTS[3:])
    assert knowledge_base.graph_problem() == ""
    assert (await knowledge_base.check()).sound
    assert len(falkordb.graphs()) == 1
    before = explore(knowledge_base)
    knowledge_base.move(graph="none")
    await knowledge_base.worker.drain()
    assert falkordb.graphs() == []
    assert explore(knowledge_base) == before
    knowledge_base.close()


async def test_a_server_that_is_away_stops_neither_adding_nor_asking(tmp_path: Path, url: str, server):
    server.away = "connection refused"
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    assert "connection refused" in knowledge_base.graph_problem()
    assert knowledge_base.worker.problem == ""  # answers lack nothing
    assert explore(knowledge_base)
    assert (await knowledge_base.check()).sound
    knowledge_base.close()

    server.away = ""
    knowledge_base = opened(tmp_path / "a")
    await knowledge_base.worker.drain()
    assert knowledge_base.graph_setting == f"plain+{url}"
    assert knowledge_base.graph_problem() == ""
    asked = server.questions
    explore(knowledge_base)
    assert server.questions > asked
    server.away = "connection lost"
    explore(knowledge_base)
    report = await knowledge_base.check()
    assert report.sound
    assert any("not checked: the graph" in note and "connection lost" in note for note in report.notes)
    assert report.checked[-1] == "indexes: words, vectors, links"
    await knowledge_base.add_texts(["Zell is a village near Basel."])
    report = await knowledge_base.check()
    assert report.sound
    assert any("the graph, which lacks" in note for note in report.notes)
    assert report.checked[-1] == "indexes: words, vectors, links"
    knowledge_base.close()


async def test_a_graph_that_lost_something_is_found_and_repaired(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    [(graph, _)] = server.graphs.values()
    [(subject, predicate, object_), *_] = [
        (edge.subject, edge.predicate, edge.object) for edge in graph.relations(0, 1 << 40)
    ]
    graph.delete_relations([(subject, predicate, object_)])
    report = await knowledge_base.check()
    assert len(report.findings) == 1
    assert "the graph has" in report.findings[0].text
    assert (await knowledge_base.check(repair=True)).sound
    knowledge_base.close()


async def test_the_secret_is_read_from_the_environment(tmp_path: Path, monkeypatch, url: str, server):
    monkeypatch.setenv("LOOM_GRAPH_SECRET", "correct horse 马")
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    knowledge_base.close()
    assert server.secrets == {"correct horse 马"}
    assert b"correct horse" not in (tmp_path / "a" / "record.db").read_bytes()


def test_what_deletes_a_knowledge_base_deletes_its_graph(tmp_path: Path, url: str, server):
    library = Library(tmp_path, embedder="hashing", graph=f"plain+{url}")

    async def run() -> None:
        knowledge_base = await library.get("notes", create=True)
        await knowledge_base.add_texts(TEXTS)
        assert len(server.graphs) == 1
        await library.delete("notes")
        library.close()

    asyncio.run(run())
    assert server.graphs == {}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("falkordb", "such as falkordb://localhost:6379"),
        ("neo4j://localhost", "There is no graph database 'neo4j'.*Choose one of: falkordb"),
        ("rediss://localhost", "There is no graph database 'rediss'.*Choose one of: falkordb"),
        ("falkordb://me:hidden@localhost", "must not hold a password.*LOOM_GRAPH_SECRET"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_to_write(tmp_path: Path, setting: str, expected: str):
    with pytest.raises(ConfigError, match=expected) as caught:
        opened(tmp_path / "a", setting)
    assert "hidden" not in str(caught.value)


def test_a_knowledge_base_in_memory_has_its_graph_there():
    with pytest.raises(ConfigError, match="in memory"):
        KnowledgeBase("x", memory=True, embedder="hashing", config=RAGConfig(graph="falkordb://localhost"))
    knowledge_base = KnowledgeBase("x", memory=True, embedder="hashing", config=RAGConfig(graph="none"))
    knowledge_base.add_texts_sync(TEXTS)
    assert explore(knowledge_base)
    knowledge_base.close()
