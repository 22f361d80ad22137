"""Of several that have one knowledge base open, one works and answers the others the same as they would."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from loom_core.embedding.interface import EmbeddingKind
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.registry import create_embedder
from loom_core.errors import EmbeddingError, InvalidInputError
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig, SearchOptions
from loom_core.knowledge.rag.owner.client import OwnerClient
from loom_core.knowledge.rag.owner.protocol import PROTOCOL, PeerSettings, settings_digest
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.knowledge.retrieval.config import SearchRequest, WaitSettings
from loom_core.knowledge.retrieval.rerankers.features import FeatureReranker
from loom_core.knowledge.retrieval.searcher import SearchAnswer
from loom_core.knowledge.store import Job
from loom_core.observability import LoomTracer
from loom_core.storage.ownership import holder_of, read_card, write_card

TEXTS = {
    "Zell": "Zell is a town in Austria. Anna Berg was born there.",
    "Anna Berg": "Anna Berg painted the sea. She lived in Lübeck.",
    "厦门": "厦门是福建省的海滨城市，有鼓浪屿。",
    "Halves": "A text with half a character \ud800 in it.",
}
QUESTIONS = ("Where was the painter of the sea born?", "厦门有什么？", "half a character")
PEERS = PeerSettings(program="tests", silence=20)

Open = Callable[..., GraphRAGKnowledgeBase]


@pytest.fixture
def open_kb(tmp_path: Path) -> Iterator[Open]:
    """Opens the knowledge base of the test once more, as another process would."""
    opened: list[GraphRAGKnowledgeBase] = []

    def make(**options: Any) -> GraphRAGKnowledgeBase:
        options = {"embedding_provider": create_embedder("hashing"), "peers": PEERS, **options}
        opened.append(GraphRAGKnowledgeBase.from_config(path=tmp_path / "kb", **options))
        return opened[-1]

    yield make
    for knowledge_base in opened:
        knowledge_base.close()


@asynccontextmanager
async def working(knowledge_base: GraphRAGKnowledgeBase) -> AsyncIterator[None]:
    """Lets it work in the background until the block ends; it is the owner when the block begins."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(60):
            await until(lambda: knowledge_base.worker.is_owner)
            await until(lambda: read_card(knowledge_base._folder) is not None)
        yield
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - no one sets an event for tests
        await anyio.sleep(0.01)


async def fill(knowledge_base: GraphRAGKnowledgeBase) -> None:
    await knowledge_base.add_texts(list(TEXTS.values()), titles=list(TEXTS))


def found(answer: SearchAnswer) -> SearchAnswer:
    """An answer without its times, which are never the same."""
    return replace(answer, embed_ms=0.0, retrieve_ms=0.0)


def forwards(knowledge_base: GraphRAGKnowledgeBase) -> bool:
    """Whether it has answered nothing by itself: no vectors, no index of words."""
    return knowledge_base._words._local._index is None


@pytest.mark.parametrize("transport", ["unix", "tcp"])
async def test_the_owner_answers_the_same_as_one_would_by_oneself(open_kb: Open, transport):
    owner = open_kb(peers=replace(PEERS, transport=transport))
    await fill(owner)
    alone = [found(await owner.search(question)) for question in QUESTIONS]
    filtered = found(await owner.search("town", filters={"language": ["en"]}, strategy="vector_first"))
    async with working(owner):
        assert read_card(owner._folder).transport == transport
        peer = open_kb()
        assert [found(await peer.search(question)) for question in QUESTIONS] == alone
        assert (
            found(await peer.search("town", filters={"language": ["en"]}, strategy="vector_first"))
            == filtered
        )
        assert all(alone[n].items for n in range(3))
        assert forwards(peer)


async def test_options_reach_the_owner(open_kb: Open):
    owner = open_kb()
    await fill(owner)
    options = SearchOptions(near_duplicates="keep", diversity=0.5, expand_to="section")
    alone = found(await owner.search("town", options=options))
    async with working(owner):
        peer = open_kb()
        assert found(await peer.search("town", options=options)) == alone
        assert forwards(peer)


async def test_every_channel_can_be_asked_of_the_owner(open_kb: Open):
    owner = open_kb()
    await fill(owner)
    vector = (await owner.embed(["painted the sea"]))[0]
    alone = {channel: await owner.ask(channel, "Anna Berg", limit=3) for channel in owner.channels}
    by_vector = await owner.ask("dense", "?", limit=2, vector=vector)
    async with working(owner):
        peer = open_kb()
        assert {c: await peer.ask(c, "Anna Berg", limit=3) for c in peer.channels} == alone
        assert await peer.ask("dense", "?", limit=2, vector=vector) == by_vector
        embedded = await peer.embed(["painted the sea"])
        assert embedded.dtype == vector.dtype
        assert (embedded[0] == vector).all()
        assert forwards(peer)


async def test_what_is_wrong_with_a_question_is_told_in_the_same_words(open_kb: Open):
    owner = open_kb()
    await fill(owner)
    for arguments in ({"limit": 0}, {"limit": True}, {"filters": {"nothing": 1}}, {"query": " "}):
        question = {"query": "town", **arguments}
        with pytest.raises(InvalidInputError) as alone:
            await owner.search(**question)
        async with working(owner):
            peer = open_kb()
            with pytest.raises(InvalidInputError) as told:
                await peer.search(**question)
            assert forwards(peer)
        assert (told.value.message, told.value.advice) == (alone.value.message, alone.value.advice)


async def test_a_forwarded_search_has_its_span_here(open_kb: Open):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        peer = open_kb(tracer=LoomTracer(provider=provider), name="港口")
        await peer.search("Anna Berg")
        assert forwards(peer)
    (span,) = exporter.get_finished_spans()
    attributes = dict(span.attributes or {})
    assert span.name == "KNOWLEDGE_SEARCH"
    assert attributes["loom.knowledge_base"] == "港口"
    assert attributes["retrieval.lexical_count"] == 2
    assert attributes["retrieval.result_count"] > 0


async def test_what_the_owner_does_belongs_to_the_trace_of_who_asked(open_kb: Open, spans):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        peer = open_kb()
        spans.clear()
        await peer.search("Anna Berg")
        assert forwards(peer)
    (answered, asked) = [span for span in spans if span.name.startswith("KNOWLEDGE_")]
    assert (answered.name, asked.name) == ("KNOWLEDGE_OWNER search", "KNOWLEDGE_SEARCH")
    assert answered.parent.span_id == asked.context.span_id
    assert answered.context.trace_id == asked.context.trace_id


OTHER = {
    "other settings": {"config": RAGConfig(graph_weight=0.9)},
    "another embedder": {"embedding_provider": None},
    "a reranker of one's own": {"reranker": FeatureReranker()},
}


@pytest.mark.parametrize("other", OTHER.values(), ids=OTHER)
async def test_who_would_answer_otherwise_answers_by_itself(open_kb: Open, other: dict[str, Any]):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        peer = open_kb(**other)
        assert (await peer.search("Anna Berg")).items
        assert not forwards(peer)


async def test_an_owner_with_a_reranker_does_not_answer_for_others(open_kb: Open):
    owner = open_kb(reranker=FeatureReranker())
    await fill(owner)
    async with working(owner):
        peer = open_kb()
        assert (await peer.search("Anna Berg")).items
        assert not forwards(peer)


async def test_a_reranker_for_one_search_is_asked_here(open_kb: Open):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        peer = open_kb()
        answer = await peer.search("Anna Berg", options=SearchOptions(reranker=FeatureReranker()))
        assert "rerank" in answer.items[0].metadata["scores"]
        assert not forwards(peer)


@pytest.mark.parametrize(
    "change", [{"protocol": 99}, {"version": "0.0.0"}, {"secret": "wrong"}, {"place": "/no"}]
)
async def test_an_owner_that_speaks_otherwise_is_not_asked(open_kb: Open, change: dict[str, Any]):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        write_card(owner._folder, read_card(owner._folder).model_copy(update=change))
        peer = open_kb()
        assert (await peer.search("Anna Berg")).items
        assert not forwards(peer)


async def test_filters_that_json_would_change_are_answered_here(open_kb: Open):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        peer = open_kb()
        asked = peer._owner
        request = SearchRequest(query="x", limit=1, filters=None, strategy="bm25")
        for filters in ({"language": ("en",)}, {1: "en"}, {"a": {1}}):
            assert await asked.search(replace(request, filters=filters)) is None
        assert await asked.search(request) is not None


async def test_an_owner_that_does_not_answer_is_left_alone_for_a_while(open_kb: Open):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        card = read_card(owner._folder)
        broken = card.model_copy(update={"secret": "wrong"})
        write_card(owner._folder, broken)
        patient = OwnerClient(owner._folder, settings=replace(PEERS, pause=3600), digest="")
        assert await patient.status() is None
        hasty = OwnerClient(owner._folder, settings=replace(PEERS, pause=0), digest="")
        assert await hasty.status() is None
        assert patient._avoided == broken
        write_card(owner._folder, card)  # it looks like another owner
        assert (await patient.status()).embeds
        assert (await hasty.status()).embeds


async def test_a_question_is_answered_here_when_the_owner_ends_in_the_middle_of_it(open_kb: Open):
    class Stuck(HashingEmbedder):
        """Embeds passages, and never a question."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = anyio.Event()

        async def embed(self, texts: Any, *, kind: EmbeddingKind) -> Any:
            if kind == "query":
                self.asked.set()
                await anyio.sleep_forever()
            return await super().embed(texts, kind=kind)

    stuck = Stuck()
    owner = open_kb(embedding_provider=stuck)
    await fill(owner)
    peer = open_kb()
    answers: list[SearchAnswer] = []

    async def ask() -> None:
        answers.append(await peer.search("Anna Berg"))

    async with anyio.create_task_group() as tasks, working(owner):
        tasks.start_soon(ask)
        with anyio.fail_after(30):
            await stuck.asked.wait()
        assert answers == []
    assert answers[0].items
    assert "vector" in answers[0].items[0].metadata["scores"]


async def test_what_is_submitted_elsewhere_wakes_the_owner(open_kb: Open):
    config = RAGConfig(waits=WaitSettings(work=3600))
    owner, peer = open_kb(config=config), open_kb(config=config)
    async with working(owner), working_concurrently(peer):
        with anyio.fail_after(60):
            job = peer.submit(
                DocumentsRequest([DocumentDraft(uri="text:basel", text="A town called Basel.")])
            )
            peer.worker.wake()
            await until(lambda: owner.job(job).finished)
            await until(lambda: owner.coverage() == (1, 1))
            assert [row.uri for row in await peer.remove(["text:basel"])] == ["text:basel"]
            await until(lambda: owner.index_lag()["words"] == 0)


async def test_who_waits_for_a_job_misses_nothing_between_the_look_and_the_wait(open_kb: Open):
    knowledge_base = open_kb(config=RAGConfig(waits=WaitSettings(work=3600)))
    id_ = knowledge_base.submit(
        DocumentsRequest([DocumentDraft(uri="text:basel", text="A town called Basel.")])
    )
    async with anyio.create_task_group() as tasks:

        async def do_all_of_it(_: Job) -> None:
            tasks.start_soon(knowledge_base.work)
            await until(lambda: knowledge_base.job(id_).finished)
            await knowledge_base.worker.drain()  # so that the step that ended the job is over, too

        with anyio.fail_after(60):
            job = await knowledge_base.wait_for_job(id_, progress=do_all_of_it)
        assert job.state == "done"
        tasks.cancel_scope.cancel()


async def test_who_waits_for_a_job_of_another_process_looks_at_it_again_and_again(open_kb: Open):
    config = RAGConfig(waits=WaitSettings(work=3600))
    owner, peer = open_kb(config=config), open_kb(config=config)
    async with working(owner):
        with anyio.fail_after(60):
            id_ = peer.submit(
                DocumentsRequest([DocumentDraft(uri="text:basel", text="A town called Basel.")])
            )
            owner.worker.wake()
            assert (await peer.wait_for_job(id_)).state == "done"


@asynccontextmanager
async def working_concurrently(knowledge_base: GraphRAGKnowledgeBase) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        await until(lambda: knowledge_base.worker.is_running)
        yield
        tasks.cancel_scope.cancel()


async def test_who_waits_for_vectors_is_told_that_none_are_made(open_kb: Open):
    class Broken(HashingEmbedder):
        async def embed(self, texts: Any, *, kind: EmbeddingKind) -> Any:
            raise EmbeddingError("the model is gone")

    owner = open_kb(embedding_provider=Broken())
    async with working(owner):
        peer = open_kb()
        with anyio.fail_after(60):
            await peer.add_texts(["A town called Basel."])
        answer = await peer.search("Basel")
    assert "the model is gone" in answer.notes[0]
    assert answer.items
    assert forwards(peer)


@pytest.mark.slow
async def test_the_owner_of_a_long_addition_answers_meanwhile(open_kb: Open):
    owner, peer = open_kb(), open_kb()
    await fill(owner)
    seen: list[bool] = []

    async def ask() -> None:
        answer = await peer.search("Anna Berg")
        seen.append(bool(answer.items) and forwards(peer))

    async with anyio.create_task_group() as tasks:

        def progress() -> None:
            if not seen and read_card(owner._folder) is not None:
                seen.append(True)
                tasks.start_soon(ask)

        job = owner.submit(
            DocumentsRequest(
                [DocumentDraft(uri=f"text:{n}", text=f"Town{n} lies near Town{n + 1}.") for n in range(100)]
            )
        )
        await owner.worker.drain(progress=progress)
    assert owner.job(job).finished
    assert seen == [True, True]
    assert holder_of(owner._folder) is None
    assert read_card(owner._folder) is None


async def test_a_question_before_words_are_indexed_does_not_wait_for_the_rest_of_the_documents(open_kb: Open):
    owner = open_kb()
    town = "Town {} has a market on every {}th day, and a bridge over the river {}. "
    text = "".join(town.format(n, n % 30, n % 7) for n in range(600))
    drafts = [DocumentDraft(uri=f"text:{n}", text=f"Hamlet{n}. {text}") for n in range(200)]
    job = owner.submit(DocumentsRequest(drafts))
    answers: list[tuple[SearchAnswer, bool]] = []

    async def ask() -> None:
        answers.append((await owner.search("Hamlet0"), owner.job(job).finished))
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        asked = False

        def progress() -> None:
            nonlocal asked
            if not asked and owner.store.vectors.coverage()[1]:
                asked = True
                tasks.start_soon(ask)

        await owner.worker.drain(progress=progress)
    ((answer, finished),) = answers
    assert answer.items[0].content.startswith("Hamlet0")
    assert not finished


async def test_the_holder_is_known_to_all(open_kb: Open):
    owner, peer = open_kb(), open_kb()
    assert peer.holder() is None
    async with working(owner):
        for each in (owner, peer):
            assert (each.holder().program, each.holder().since) == ("tests", read_card(owner._folder).since)
        (owner._folder / "owner.json").write_text("{}", encoding="ascii")
        assert peer.holder() is not None
        assert peer.holder().program == ""
    assert peer.holder() is None
    in_memory = GraphRAGKnowledgeBase.from_config()
    assert in_memory.holder() is None
    in_memory.close()


async def test_the_socket_of_an_owner_that_was_killed_is_removed_by_the_next(open_kb: Open):
    owner = open_kb()
    async with working(owner):
        card = read_card(owner._folder)
        left = card.place.replace(".sock", "left.sock")
        os.link(card.place, left)
    assert not await anyio.Path(card.place).exists()
    write_card(owner._folder, card.model_copy(update={"place": left}))
    async with working(owner):
        with anyio.fail_after(60):
            await until(lambda: read_card(owner._folder).place != left)
        assert not await anyio.Path(left).exists()
    assert read_card(owner._folder) is None


async def test_where_no_socket_can_be_made_everybody_answers_alone(
    open_kb: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    owner, peer = open_kb(), open_kb()
    await fill(owner)
    assert "answer by themselves" in caplog.text
    assert read_card(owner._folder) is None
    assert (await peer.search("Anna Berg")).items


async def test_where_nothing_can_be_written_down_everybody_answers_alone(
    open_kb: Open, caplog: pytest.LogCaptureFixture
):
    owner, peer = open_kb(), open_kb()
    (owner._folder / "owner.json").mkdir()
    await fill(owner)
    assert "cannot find this one" in caplog.text
    assert (await peer.search("Anna Berg")).items


async def test_requests_that_are_none_are_refused(open_kb: Open):
    from loom_core.storage.local_socket import request

    owner = open_kb()
    async with working(owner):
        address = read_card(owner._folder).address

        async def refusal(body: bytes) -> str:
            return json.loads(await request(address, body))["reply"]["refused"]

        def asked(**changes: Any) -> bytes:
            return json.dumps(
                {"protocol": PROTOCOL, "method": "search", "settings": "", "params": {}, **changes}
            ).encode()

        for nonsense in (b"", b"\xff", b"[]", b"[" * 100_000, asked(method="delete"), asked(more=1)):
            assert "sent an invalid" in await refusal(nonsense or b" ")
        assert f"protocol {PROTOCOL}, not 1" in await refusal(asked(protocol=1))
        assert "other settings" in await refusal(asked())
        digest = owner._owner._digest
        assert "failed" in await refusal(asked(settings=digest, params={"nonsense": 1}))


@pytest.mark.slow
async def test_what_the_owner_finds_too_long_or_cannot_say_is_found_here(
    open_kb: Open, monkeypatch: pytest.MonkeyPatch
):
    owner = open_kb()
    await fill(owner)
    async with working(owner):
        peer = open_kb()
        server = owner.worker._server

        async def unspeakable(_: object) -> object:
            return {"a", "set"}

        server._answer = unspeakable
        assert (await peer.search("Anna Berg")).items
        assert not forwards(peer)
        endless = open_kb()

        async def long(_: object) -> object:
            return "x" * (65 << 20)

        server._answer = long
        assert (await endless.search("Anna Berg")).items
        assert not forwards(endless)


@pytest.mark.parametrize("name", ["vectors", "lexical", "graph"])
def test_where_an_index_is_tells_processes_not_apart_as_it_is_in_the_store(name: str):
    digest = partial(settings_digest, embeds=True, extractor_id="rules", reranks=False)
    assert digest(RAGConfig.model_validate({name: "acme+http://localhost"})) == digest(RAGConfig())
    assert digest(RAGConfig(strategy="bm25")) != digest(RAGConfig())
