"""A knowledge base whose vectors are in a database: adding, asking, bad days, and what a person is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, StoreUnavailableError
from loom_core.knowledge import KnowledgeBase, RAGConfig
from loom_core.plugins import register
from tests.fixtures.plain_vector_index import PlainServer, PlainVectorIndex

TEXTS = [
    "The harbour of Visby is on the island Gotland. Ferries leave at nine.",
    "Bread is sold in the market of Zell every morning.",
    "厦门的港口里有很多渔船，每天早上出海。",
    "The budget was approved by Anna Berg in May.",
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def server(url: str) -> PlainServer:
    return PlainServer.at(url)


def opened(folder: Path, vectors: str = "") -> KnowledgeBase:
    return KnowledgeBase("notes", path=folder, embedder="hashing", config=RAGConfig(vectors=vectors))


def vectors_of(server: PlainServer) -> int:
    [(_, table)] = server.collections.values()
    return len(table)


async def test_answers_are_those_of_a_knowledge_base_with_files_of_its_own(tmp_path: Path, url: str, server):
    ours, local = opened(tmp_path / "a", f"plain+{url}"), opened(tmp_path / "b")
    questions = ["When do ferries leave?", "渔船在哪里？", "Who approved the budget?"]
    for each in (ours, local):
        await each.add_texts(TEXTS)
    assert vectors_of(server) == ours.coverage()[0] == len(TEXTS)
    assert not list((tmp_path / "a").glob("vectors-*"))
    for question in questions:
        for strategy in ("hybrid", "vector_first", "graph_first"):
            found = await ours.search(question, strategy=strategy)
            expected = await local.search(question, strategy=strategy)
            assert [item.content for item in found.items] == [item.content for item in expected.items]
            assert [item.relevance for item in found.items] == pytest.approx(
                [item.relevance for item in expected.items], abs=1e-3
            )
            assert found.notes == expected.notes == ()
    await ours.remove([(await ours.query("Visby", 1))[0].metadata["document_id"]])
    assert vectors_of(server) == len(TEXTS) - 1
    assert (await ours.check()).sound
    for each in (ours, local):
        each.close()


async def test_a_server_that_is_away_stops_neither_adding_nor_asking(tmp_path: Path, url: str, server):
    server.away = "connection refused"
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    assert "connection refused" in knowledge_base.worker.problem
    for strategy in ("hybrid", "vector_first", "graph_first"):
        answer = await knowledge_base.search("When do ferries leave?", strategy=strategy)
        assert "Ferries" in answer.items[0].content
        assert any("connection refused" in note and "words and graph only" in note for note in answer.notes)
    report = await knowledge_base.check()
    assert report.sound
    knowledge_base.close()

    server.away = ""
    knowledge_base = opened(tmp_path / "a")  # the setting is the knowledge base's own
    await knowledge_base.worker.drain()
    assert knowledge_base.vectors == f"plain+{url}"
    assert vectors_of(server) == len(TEXTS)
    assert (await knowledge_base.search("When do ferries leave?")).notes == ()
    assert knowledge_base.worker.problem == ""
    knowledge_base.close()


async def test_what_a_server_missed_is_found_and_told_by_a_check_before_the_server_has_it(
    tmp_path: Path, url: str, server
):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    server.away = "connection lost"
    await knowledge_base.add_texts(["The harbour master of Kiel is Anna Lind."])
    knowledge_base.close()

    server.away = ""
    knowledge_base = opened(tmp_path / "a")  # as a command does that only asks
    assert vectors_of(server) == len(TEXTS)
    answer = await knowledge_base.search("harbour master of Kiel")
    assert "Anna Lind" in answer.items[0].content
    assert answer.notes == ()
    report = await knowledge_base.check()
    assert report.sound
    assert any(
        "the vectors index in" in note and "`loom-kb add` writes them" in note for note in report.notes
    )
    assert vectors_of(server) == len(TEXTS)
    await knowledge_base.worker.drain()
    assert vectors_of(server) == len(TEXTS) + 1
    assert (await knowledge_base.check()).notes == []
    knowledge_base.close()


async def test_a_server_that_goes_while_it_is_asked_is_left_out(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    server.away = "connection lost"
    answer = await knowledge_base.search("When do ferries leave?")
    assert "Ferries" in answer.items[0].content
    assert any("connection lost" in note for note in answer.notes)
    with pytest.raises(StoreUnavailableError, match="connection lost"):
        await knowledge_base.ask("dense", "When do ferries leave?", limit=3)
    report = await knowledge_base.check()
    assert report.sound
    assert any("not checked: the vectors" in note for note in report.notes)
    knowledge_base.close()


async def test_a_client_that_is_not_installed_stops_neither_adding_nor_asking(tmp_path: Path):
    @register("vector_index", "lacking")
    def refuse(*_: object, **__: object) -> object:
        raise ConfigError("Lacking needs a package.", advice="Install it.")

    assert refuse
    knowledge_base = opened(tmp_path / "a", "lacking+http://localhost")
    await knowledge_base.add_texts(TEXTS)
    assert "Install it" in knowledge_base.worker.problem
    answer = await knowledge_base.search("When do ferries leave?")
    assert "Ferries" in answer.items[0].content
    knowledge_base.close()


async def test_the_secret_is_read_from_the_environment(tmp_path: Path, monkeypatch, url: str, server):
    secrets: list[str] = []

    @register("vector_index", "asking")
    def take(url: str, *, secret: SecretStr | None, collection: str, dimension: int) -> PlainVectorIndex:
        secrets.append(secret.get_secret_value() if secret is not None else "")
        return PlainVectorIndex(url, secret=secret, collection=collection, dimension=dimension)

    assert take
    monkeypatch.setenv("LOOM_VECTORS_SECRET", "correct horse 马")
    knowledge_base = opened(tmp_path / "a", f"asking+{url}")
    await knowledge_base.add_texts(TEXTS)
    knowledge_base.close()
    assert set(secrets) == {"correct horse 马"}
    assert vectors_of(server) == len(TEXTS)
    record = (tmp_path / "a" / "record.db").read_bytes()
    assert b"correct horse" not in record


async def test_a_collection_that_lost_something_is_found_and_repaired(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    [(_, table)] = server.collections.values()
    del table[min(table)]
    report = await knowledge_base.check()
    assert [finding.text for finding in report.findings] == ["1 of 4 passages are not in the index 'remote'"]
    assert (await knowledge_base.check(repair=True)).sound
    assert vectors_of(server) == len(TEXTS)
    await knowledge_base.rebuild(["vectors"])
    assert vectors_of(server) == len(TEXTS)
    knowledge_base.close()


async def test_vectors_move_to_a_database_and_back(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a")
    await knowledge_base.add_texts(TEXTS)
    before = await knowledge_base.search("When do ferries leave?")
    knowledge_base.move(vectors=f"plain+{url}")
    await knowledge_base.worker.drain()
    assert vectors_of(server) == len(TEXTS)
    assert not list((tmp_path / "a").glob("vectors-*"))
    assert (await knowledge_base.search("When do ferries leave?")).items == before.items
    knowledge_base.move(vectors="auto")
    await knowledge_base.worker.drain()
    assert server.collections == {}
    assert list((tmp_path / "a").glob("vectors-*"))
    assert (await knowledge_base.search("When do ferries leave?")).items == before.items
    knowledge_base.close()


async def test_filters_reach_the_database(tmp_path: Path, url: str):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    answer = await knowledge_base.search("港口", filters={"language": "zh"}, strategy="vector_first")
    assert [item.metadata["language"] for item in answer.items] == ["zh"]
    knowledge_base.close()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("qdrant", "such as qdrant[+]http://localhost:6333"),
        ("milvus:19530", "such as milvus[+]http"),
        ("sqlite+file://x", "There is no vector database 'sqlite'.*Choose one of: .*pgvector"),
        ("pgvector+postgresql://me:secret@host/db", "must not hold a password.*LOOM_VECTORS_SECRET"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_to_write(tmp_path: Path, setting: str, expected: str):
    with pytest.raises(ConfigError, match=expected) as caught:
        opened(tmp_path / "a", setting)
    assert "secret@" not in str(caught.value)


def test_a_knowledge_base_in_memory_has_its_vectors_there():
    with pytest.raises(ConfigError, match="in memory"):
        KnowledgeBase("x", memory=True, embedder="hashing", config=RAGConfig(vectors="plain+memory://x"))


def test_what_deletes_a_knowledge_base_deletes_its_collection(tmp_path: Path, url: str, server):
    from loom_core.knowledge import Library

    library = Library(tmp_path, embedder="hashing", vectors=f"plain+{url}")

    async def run() -> None:
        knowledge_base = await library.get("notes", create=True)
        await knowledge_base.add_texts(TEXTS)
        assert vectors_of(server) == len(TEXTS)
        await library.delete("notes")
        library.close()

    asyncio.run(run())
    assert server.collections == {}
