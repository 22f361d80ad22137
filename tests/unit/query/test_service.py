"""Who may ask what, and reading on in knowledge bases of this machine."""

from __future__ import annotations

from contextlib import closing

import pytest
from loom_kb.service import KnowledgeService as KbService
from loom_kb.settings import Settings as KbSettings
from loom_query.texts import passage_lines

from loom_core.errors import ConfigError, NotFoundError, SourceError
from loom_core.knowledge import Library, split_into_shards
from loom_core.knowledge.store.shard import shard_number
from loom_core.server.auth.caller import Caller, use_caller

LONG = (
    "# Port Aster\n\n"
    + "The quay of Port Aster is long. " * 80
    + "\n\n## Staff\n\nThe master is Ada Brown.\n"
)


@pytest.fixture
async def local(home):
    """Adds documents to a local knowledge base: `await local("notes", "text", uri="note:1")`."""
    service = KbService(KbSettings(home=home, embedder="hashing", version="1"))

    async def add(name, text, *, uri):
        (knowledge_base,), _ = await service.add(
            service.request_texts([text], uris=[uri]), source=name, description=f"About {name}."
        )
        await knowledge_base.worker.drain()

    yield add
    service.library.close()


async def test_all_local_knowledge_bases_are_sources_by_themselves(local, running):
    await local("notes", LONG, uri="note:aster")
    await local("知识库", "# 青岛港\n\n青岛港的港长是李明。", uri="note:青岛")
    async with running() as service:
        assert [(info.name, info.description) for info in await service.describe_sources()] == [
            ("notes", "About notes."),
            ("知识库", "About 知识库."),
        ]
        result = await service.query("Who is the master of Port Aster?")
        best = result.passages[0]
        assert best.source == "notes"
        assert "Ada Brown" in best.text
        assert best.start is not None
        around = await service.fetch(best.id, start=None, tokens=100)
        assert around.start > 0
        assert "Ada Brown" in around.text
        whole = await service.fetch("notes:note:aster", start=0, tokens=5000)
        assert (whole.text, whole.length) == (LONG, len(LONG))
        cited = await service.fetch(f"note:aster#{best.start}-{best.end}", start=0, tokens=100)
        assert cited.source == "notes"


async def test_an_answer_says_which_part_of_a_source_is_missing(home, local, running):
    await local("notes", LONG, uri="note:aster")
    with closing(Library(home, embedder="hashing")) as library:
        await split_into_shards(library, "notes", count=2)
    missing = 3 - shard_number("note:aster", 2)
    (home / "kb" / f"notes_shard_{missing}" / "record.db").write_bytes(b"broken" * 1000)
    async with running() as service:
        result = await service.query("Who is the master of Port Aster?", sources=["notes"])
    assert "Ada Brown" in result.passages[0].text
    assert result.notes[0].startswith("notes: 1 of 2 shards of notes answered.")
    assert result.concise().sources == result.sources


async def test_one_knowledge_base_can_have_another_name_hints_and_deadline(local, configure, running):
    await local("notes", LONG, uri="note:aster")
    configure(
        {
            "港": {
                "kind": "local",
                "knowledge_base": "notes",
                "hints": ["港长"],
                "deadline": 5,
                "description": "港口",
            }
        }
    )
    async with running() as service:
        (details,) = (await service.list_sources()).sources
        assert (details.name, details.description, details.hints, details.deadline) == (
            "港",
            "港口",
            ["港长"],
            5,
        )
        result = await service.query("master of Port Aster", sources=["港"], limit=1)
        assert result.passages[0].id.startswith("港:")


async def test_a_knowledge_base_can_be_asked_by_a_retriever_by_name(local, configure, running):
    await local("notes", LONG, uri="note:aster")
    await local("知识库", "# 青岛港\n\n青岛港的港长是李明。", uri="note:青岛")
    configure(
        {
            "notes": {"kind": "local", "knowledge_base": "notes", "retriever": "bm25"},
            "知识库": {
                "kind": "local",
                "knowledge_base": "知识库",
                "retriever": "fusion",
                "retriever_params": {"rerank_model": "features"},
            },
        }
    )
    async with running() as service:
        (best, *_) = (await service.query("Who is the master of Port Aster?", sources=["notes"])).passages
        assert "Ada Brown" in best.text
        assert best.scores.keys() == {"bm25"}
        (best, *_) = (await service.query("青岛港的港长是谁？", sources=["知识库"])).passages
        assert "rerank" in best.scores
        both = await service.query("Who is the master of Port Aster? 青岛港的港长是谁？")
        assert {passage.source for passage in both.passages} == {"notes", "知识库"}


async def test_a_retriever_that_needs_a_model_takes_that_of_the_configuration(local, configure, running):
    await local("notes", LONG, uri="note:aster")
    hyde = {"kind": "local", "knowledge_base": "notes", "retriever": "hyde"}
    configure({"notes": hyde})
    async with running() as service:
        with pytest.raises(ConfigError, match=r"'hyde' needs a language model.*Set `llm` in .*query\.json"):
            await service.query("Who is the master?")
    configure({"notes": hyde}, llm={"provider": "mock", "options": {"responses": ["Ada Brown."] * 3}})
    async with running() as service:
        (best, *_) = (await service.query("Who is the master?")).passages
        assert "Ada Brown" in best.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"retriever": "sonar"}, "there is no retriever 'sonar'"),
        ({"retriever_params": {"top_k": 3}}, "retriever_params are given without a retriever"),
    ],
)
async def test_a_retriever_that_cannot_be_is_a_problem_of_its_source(
    local, configure, running, wrong, message
):
    await local("notes", LONG, uri="note:aster")
    configure({"notes": {"kind": "local", "knowledge_base": "notes", **wrong}, "all": {"kind": "local"}})
    async with running() as service:
        (problem,) = service.sources.problems
        assert message in problem.message
        assert (await service.query("master")).passages


async def test_two_sources_of_one_name_are_told_and_the_first_counts(local, configure, running, harbour):
    await local("notes", LONG, uri="note:aster")
    configure({"notes": harbour, "mine": {"kind": "local"}})
    async with running() as service:
        assert [(each.kind, each.state) for each in (await service.list_sources()).sources] == [
            ("documents", "ready"),
            ("local", "failed"),
        ]
        assert "another source is called 'notes' already" in (await service.list_sources()).sources[1].problem


async def test_a_passage_that_two_sources_have_comes_once_and_says_so(local, configure, running):
    await local("notes", LONG, uri="note:aster")
    configure({"mine": {"kind": "local"}, "copy": {"kind": "local", "knowledge_base": "notes"}})
    async with running() as service:
        result = await service.query("Who is the master?", limit=2)
        assert result.passages[0].also_in
        assert f"also in: {result.passages[0].also_in[0]}" in passage_lines(
            result.passages[0], detailed=False
        )
        assert len({passage.text for passage in result.passages}) == len(result.passages)


async def test_a_caller_sees_asks_and_reads_only_the_sources_of_its_token(configure, running, harbour, ports):
    configure({"harbour": harbour, "港口": ports, "broken": {"kind": "http"}})
    async with running() as service:
        whole = await service.query("Ada Brown")
        with use_caller(Caller("laptop", frozenset({"read"}), frozenset({"港口"}))):
            assert [info.name for info in await service.describe_sources()] == ["港口"]
            assert [each.name for each in (await service.list_sources()).sources] == ["港口"]
            assert service.select_sources([]) == ["港口"]
            with pytest.raises(NotFoundError, match="no source 'harbour'"):
                service.select_sources(["harbour"])
            with pytest.raises(NotFoundError, match="no source 'broken'"):
                service.select_sources(["broken"])
            with pytest.raises(NotFoundError):
                await service.fetch(whole.passages[0].id, start=None, tokens=100)
            with pytest.raises(NotFoundError):
                await service.fetch("https://harbour.example/aster", start=None, tokens=100)
            answer = await service.query("港长")
            assert answer.notes == [], "what it may not use is not missing"


async def test_a_source_that_cannot_be_asked_says_why(configure, running):
    configure({"gone": {"kind": "local", "knowledge_base": "nowhere"}})
    async with running() as service:
        with pytest.raises(SourceError, match="no knowledge base 'nowhere'"):
            service.select_sources(["gone"])
        with pytest.raises(NotFoundError, match="No source can be asked") as error:
            service.select_sources([])
        assert "nowhere" in error.value.advice


@pytest.mark.parametrize(
    ("llm", "told"),
    [
        ("没有", "The language model of `ask` cannot be used: provider: there is no '没有'."),
        ({"provider": "deepseek", "api_key": "env:LOOM_TEST_UNSET"}, "LOOM_TEST_UNSET"),
        ("deepseek", "The language model of `ask` cannot be asked: There is no key for DeepSeek."),
    ],
)
async def test_the_list_of_sources_says_why_the_language_model_cannot_be_asked(
    llm, told, configure, running, harbour, monkeypatch
):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    configure({"harbour": harbour}, llm=llm)
    async with running() as service:
        (problem,) = (await service.list_sources()).problems
        assert told in problem


async def test_a_language_model_that_has_its_key_is_no_problem_and_the_key_is_nowhere(
    configure, running, harbour, monkeypatch
):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-very-secret")
    configure({"harbour": harbour}, llm="deepseek")
    async with running() as service:
        listed = await service.list_sources()
        assert listed.problems == []
        assert "very-secret" not in listed.model_dump_json()
        configure({"harbour": harbour}, llm={"provider": "deepseek", "api_key": "sk-other-secret"})
        await service.sources.refresh()
        listed = await service.list_sources()
        assert "query.json:" in listed.problems[0]
        assert "other-secret" not in listed.model_dump_json()
