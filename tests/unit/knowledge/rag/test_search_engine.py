"""A knowledge base whose words are in a search engine: adding, asking, bad days, and what people are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, StoreUnavailableError
from loom_core.knowledge import KnowledgeBase, Library, RAGConfig
from loom_core.plugins import register
from tests.fixtures.plain_lexical_index import PlainLexicalIndex, PlainLexicalServer
from tests.fixtures.record_content import content

TEXTS = [
    "# Visby\n\nThe harbour of Visby is on the island Gotland. Ferries leave at nine.",
    "# Anna Berg\n\nAnna Berg approved the budget in May. Her office is in Visby.",
    "# 厦门\n\n厦门的港口里有很多渔船，每天早上出海。",
    "Bread is sold in the market of Zell every morning. The error is E-4711 in http_client.",
]
LATER = "# Gotland\n\nGotland is an island. Anna Berg was born there, not in 厦门."
QUESTIONS = [
    "When do ferries leave?",
    "渔船在哪里？",
    "Who approved the budget?",
    "What is E-4711?",
    "Gotland",
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def server(url: str) -> PlainLexicalServer:
    return PlainLexicalServer.at(url)


def opened(folder: Path, lexical: str = "", *, embedder: str | None = "hashing") -> KnowledgeBase:
    return KnowledgeBase("notes", path=folder, embedder=embedder, config=RAGConfig(lexical=lexical))


def passages_of(server: PlainLexicalServer) -> int:
    [index] = server.collections.values()
    return index.count()


async def contents(knowledge_base: KnowledgeBase, question: str, strategy: str = "hybrid") -> list[str]:
    answer = await knowledge_base.search(question, strategy=strategy)
    assert answer.notes == ()
    return [item.content for item in answer.items]


async def test_answers_are_those_of_a_knowledge_base_with_an_index_of_its_own(tmp_path: Path, url, server):
    ours, local = opened(tmp_path / "a", f"plain+{url}"), opened(tmp_path / "b")
    for each in (ours, local):
        await each.add_texts(TEXTS)
        await each.add_texts([LATER])
    assert passages_of(server) == ours.coverage()[1] == len(TEXTS) + 1
    assert not list((tmp_path / "a").glob("words-*"))
    for question in QUESTIONS:
        for strategy in ("hybrid", "bm25", "graph_first", "graph_only"):
            found = await contents(ours, question, strategy)
            assert found == await contents(local, question, strategy)
    assert content(ours.store)["mentions"] == content(local.store)["mentions"]
    visby = (await ours.query("ferries", 1))[0].metadata["document_id"]
    await ours.remove([visby])
    assert passages_of(server) == len(TEXTS)
    report = await ours.check()
    assert report.sound
    assert "remote_words" in report.checked[-1]
    for each in (ours, local):
        each.close()


async def test_a_question_takes_few_requests(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts([*TEXTS, LATER])
    question = "Who of Anna Berg and http_client knows E-4711, +46 498 20 10 00, SHA256 and v1.2.3 in 厦门?"
    for strategy in ("hybrid", "bm25", "vector_first", "graph_first", "graph_only"):
        server.searches = 0
        await knowledge_base.search(question, strategy=strategy, limit=50)
        assert server.searches <= 6
    knowledge_base.close()


async def test_a_server_that_is_away_stops_neither_adding_nor_asking(tmp_path: Path, url: str, server):
    server.away = "connection refused"
    ours, local = opened(tmp_path / "a", f"plain+{url}"), opened(tmp_path / "b")
    for each in (ours, local):
        await each.add_texts(TEXTS)
        await each.add_texts([LATER])
    assert "connection refused" in ours.worker.problem
    for strategy in ("hybrid", "vector_first", "graph_first"):
        answer = await ours.search("Where do ferries leave in Visby?", strategy=strategy)
        assert "Ferries" in answer.items[0].content
        [note] = answer.notes  # said once
        assert "connection refused" in note
        assert "vectors and graph only" in note
    with pytest.raises(StoreUnavailableError, match="connection refused"):
        await ours.search("ferries", strategy="bm25")
    with pytest.raises(StoreUnavailableError, match="connection refused"):
        await ours.ask("bm25", "ferries", limit=3)
    assert (await ours.check()).sound
    ours.close()

    server.away = ""
    ours = opened(tmp_path / "a")  # the setting is the knowledge base's own
    await ours.worker.drain()
    assert ours.lexical == f"plain+{url}"
    assert passages_of(server) == len(TEXTS) + 1
    assert ours.worker.problem == ""
    for question in QUESTIONS:
        assert await contents(ours, question) == await contents(local, question)
    # Names that came while it was away have been looked up in what was there before.
    assert content(ours.store)["mentions"] == content(local.store)["mentions"]
    for each in (ours, local):
        each.close()


async def test_a_server_that_goes_while_it_is_asked_is_left_out(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    server.away = "connection lost"
    answer = await knowledge_base.search("When do ferries leave?")
    assert "Ferries" in answer.items[0].content
    assert any("connection lost" in note for note in answer.notes)
    report = await knowledge_base.check()
    assert report.sound
    assert any("not checked: the lexical" in note for note in report.notes)
    with pytest.raises(StoreUnavailableError, match="connection lost"):
        await knowledge_base.rebuild(["words"])
    knowledge_base.close()


async def test_without_vectors_and_words_a_question_is_refused_with_the_reason(
    tmp_path: Path, url: str, server
):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}", embedder=None)
    await knowledge_base.add_texts(TEXTS)
    assert "Ferries" in (await contents(knowledge_base, "When do ferries leave?", "graph_only"))[0]
    server.away = "connection lost"
    with pytest.raises(StoreUnavailableError, match=r"connection lost.*Ask again"):
        await knowledge_base.search("When do ferries leave?")
    knowledge_base.close()


async def test_the_secret_is_read_from_the_environment(tmp_path: Path, monkeypatch, url: str, server):
    secrets: list[str] = []

    @register("lexical_index", "asking")
    def take(url: str, *, secret: SecretStr | None, collection: str) -> PlainLexicalIndex:
        secrets.append(secret.get_secret_value() if secret is not None else "")
        return PlainLexicalIndex(url, secret=secret, collection=collection)

    assert take
    monkeypatch.setenv("LOOM_LEXICAL_SECRET", "correct horse 马")
    knowledge_base = opened(tmp_path / "a", f"asking+{url}")
    await knowledge_base.add_texts(TEXTS)
    knowledge_base.close()
    assert set(secrets) == {"correct horse 马"}
    assert passages_of(server) == len(TEXTS)
    assert b"correct horse" not in (tmp_path / "a" / "record.db").read_bytes()


async def test_an_index_that_lost_something_is_found_and_repaired(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a", f"plain+{url}")
    await knowledge_base.add_texts(TEXTS)
    [index] = server.collections.values()
    index.delete(index.keys()[:1])
    index.commit()
    report = await knowledge_base.check()
    assert [finding.text for finding in report.findings] == [
        "1 of 4 passages are not in the index 'remote_words'"
    ]
    assert (await knowledge_base.check(repair=True)).sound
    assert passages_of(server) == len(TEXTS)
    await knowledge_base.rebuild(["words"])
    assert passages_of(server) == len(TEXTS)
    server.collections.clear()
    await knowledge_base.search("ferries")  # finds that it is gone
    await knowledge_base.worker.drain()
    assert passages_of(server) == len(TEXTS)
    knowledge_base.close()


async def test_words_move_to_a_search_engine_and_back(tmp_path: Path, url: str, server):
    knowledge_base = opened(tmp_path / "a")
    await knowledge_base.add_texts(TEXTS)
    before = await contents(knowledge_base, "When do ferries leave?")
    knowledge_base.move(lexical=f"plain+{url}")
    assert (
        await contents(knowledge_base, "When do ferries leave?") == before
    )  # the one here, until it is there
    await knowledge_base.worker.drain()
    assert passages_of(server) == len(TEXTS)
    assert not list((tmp_path / "a").glob("words-*"))
    assert await contents(knowledge_base, "When do ferries leave?") == before
    knowledge_base.move(lexical="tantivy")
    await knowledge_base.worker.drain()
    assert server.collections == {}
    assert list((tmp_path / "a").glob("words-*"))
    assert await contents(knowledge_base, "When do ferries leave?") == before
    knowledge_base.close()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("elasticsearch", "such as elasticsearch[+]http://localhost:9200"),
        ("solr", "words are searched.*Write tantivy; or a search engine"),
        ("solr+http://x", "There is no search engine 'solr'.*Choose one of: .*plain"),
        ("plain+http://me:secret@host/db", "must not hold a password.*LOOM_LEXICAL_SECRET"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_to_write(tmp_path: Path, setting: str, expected: str):
    with pytest.raises(ConfigError, match=expected) as caught:
        opened(tmp_path / "a", setting)
    assert "secret@" not in str(caught.value)


def test_a_knowledge_base_in_memory_has_its_words_there():
    with pytest.raises(ConfigError, match="in memory"):
        KnowledgeBase("x", memory=True, embedder="hashing", config=RAGConfig(lexical="plain+memory://x"))


def test_what_deletes_a_knowledge_base_deletes_its_index(tmp_path: Path, url: str, server):
    library = Library(tmp_path, embedder="hashing", lexical=f"plain+{url}")

    async def run() -> None:
        knowledge_base = await library.get("notes", create=True)
        await knowledge_base.add_texts(TEXTS)
        assert passages_of(server) == len(TEXTS)
        await library.delete("notes")
        library.close()

    asyncio.run(run())
    assert server.collections == {}
