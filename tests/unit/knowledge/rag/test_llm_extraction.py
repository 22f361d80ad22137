"""A knowledge base whose entities a language model finds: what is paid for, and what survives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.errors import ConfigError, InvalidInputError, LLMError, ModelFailure
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import ExtractionConfig, GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.rag.extraction_plan import ExtractionPlan
from loom_core.knowledge.rag.folder_watch import FolderWatch
from loom_core.knowledge.rag.requests import DocumentsRequest, FilesRequest, SyncRequest
from loom_core.knowledge.retrieval.config import WaitSettings
from loom_core.knowledge.store import Job, KnowledgeStore
from loom_core.llm.interface import ChatRequest, Usage
from loom_core.llm.mock import MockProvider

pytestmark = pytest.mark.slow

Script = Callable[[ChatRequest], "str | LLMError"]


class Priced(MockProvider):
    """A model that costs a dollar a token."""

    def cost(self, usage: Usage) -> float:
        return float(usage.input_tokens + usage.output_tokens)


def naming(*names: str) -> Script:
    def reply(request: ChatRequest) -> str:
        shown = request.messages[1].text
        return json.dumps(
            {"entities": [{"name": n, "type": "town"} for n in names if n in shown], "relations": []}
        )

    return reply


def knowledge_base(model: MockProvider, path: Path | None = None, **extraction: Any) -> GraphRAGKnowledgeBase:
    config = RAGConfig(extraction=ExtractionConfig(**extraction))
    return GraphRAGKnowledgeBase.from_config(llm_provider=model, config=config, path=path)


def documents(count: int, *, text: str = "") -> list[DocumentDraft]:
    return [
        DocumentDraft(uri=f"text:{n}", text=text or f"the town of zell number {n}.", title=f"Town {n}")
        for n in range(count)
    ]


def methods(kb: GraphRAGKnowledgeBase) -> set[str]:
    return {row["method"] for row in kb.store.database.rows("SELECT DISTINCT method FROM mentions")}


async def test_the_model_finds_what_rules_do_not():
    for text in ("in zell there is a lake.", "泽尔有一个湖。"):
        model = MockProvider(naming("zell", "泽尔"))
        kb = knowledge_base(model)
        await kb.add_texts([text])
        assert "llm" in methods(kb)
        assert kb.strategy == "graph_only"
        kb.close()


@pytest.mark.parametrize(("enabled", "extractor"), [(False, None), (True, RuleExtractor())])
async def test_without_extraction_or_with_another_extractor_the_model_is_not_asked(
    enabled: bool, extractor: RuleExtractor | None
):
    model = MockProvider([])
    config = RAGConfig(extraction=ExtractionConfig(enabled=enabled))
    kb = GraphRAGKnowledgeBase.from_config(llm_provider=model, extractor=extractor, config=config)
    await kb.add_texts(["In Zell there is a lake."])
    assert model.calls == []
    assert "llm" not in methods(kb)
    kb.close()


async def test_what_did_not_change_is_not_paid_for_again():
    model = MockProvider(naming("zell"))
    kb = knowledge_base(model)
    sections = [f"# Part {n}\n\n" + f"zell has part {n}. " * 60 for n in range(3)]
    await kb.add_texts(["\n\n".join(sections)], uris=["text:a"])
    await kb.add_texts(["\n\n".join(sections)], uris=["text:a"])
    assert len(model.calls) == 1
    sections[1] = sections[1].replace("has part", "had part")
    await kb.add_texts(["\n\n".join(sections)], uris=["text:a"])
    assert len(model.calls) == 2
    shown = model.calls[1].messages[1].text
    assert "had part 1" in shown
    assert "part 0" not in shown
    assert "part 2" not in shown
    rows = kb.store.database.rows("SELECT DISTINCT chunk FROM mentions WHERE method = 'llm'")
    assert len(rows) == kb.store.documents.counts()[1]
    kb.close()


async def test_versions_of_one_document_that_come_together_lose_nothing():
    model = MockProvider(naming("zell"))
    kb = knowledge_base(model)
    old, new = (DocumentDraft(uri="text:0", text=text) for text in ("zell one.", "zell two."))
    await kb.add_documents([old])
    await kb.add_documents([new, old])
    rows = kb.store.database.rows("SELECT method FROM mentions WHERE method = 'llm'")
    assert len(rows) == 1
    kb.close()


async def test_an_interrupted_job_goes_on_where_it_stopped(tmp_path: Path):
    """Documents that were under way are asked for again, and no others."""
    read: list[str] = []
    reached = anyio.Event()

    class Hanging(MockProvider):
        async def chat(self, messages: Any, **options: Any) -> Any:
            if "Town 30" in messages[1]["content"] and not reached.is_set():
                reached.set()
                await anyio.sleep_forever()
            response = await super().chat(messages, **options)
            read.append(messages[1]["content"])
            return response

    text = "the town of zell. " * 200  # so that there are several batches
    model = Hanging(naming("zell"))
    kb = knowledge_base(model, tmp_path, confirm_tokens=None, confirm_cost=None)
    with anyio.move_on_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kb.add_documents, documents(40, text=text))
            await reached.wait()
            tasks.cancel_scope.cancel()
    kb.close()
    interrupted = len(read)
    assert interrupted > 0

    kb = knowledge_base(model, tmp_path, confirm_tokens=None, confirm_cost=None)
    done = kb.store.documents.counts()[0]
    assert 0 < done < 40
    await kb.worker.drain()
    assert kb.store.documents.counts()[0] == 40
    again = "\n".join(read[interrupted:])
    titles = [f"Town {n}\n" for n in range(40)]
    assert sum(title in again for title in titles) == 40 - done
    kb.close()


@pytest.mark.parametrize("failure", ["quota", "authentication"])
async def test_a_model_that_cannot_be_asked_stops_the_job_until_it_can(failure: Any):
    broken = True

    def reply(request: ChatRequest) -> str | LLMError:
        if broken:
            return LLMError("Nothing is left to pay with.", failure=failure)
        return naming("zell")(request)

    kb = knowledge_base(MockProvider(reply))
    with pytest.raises(LLMError, match="has stopped: Nothing is left"):
        await kb.add_documents(documents(3))
    job = kb.store.jobs.next()
    assert job is not None
    assert (job.state, job.counts) == ("running", {"pending": 3})
    broken = False
    await kb.worker.drain()
    assert kb.job(job.id).counts == {"added": 3}
    assert "llm" in methods(kb)
    kb.close()


async def test_a_job_that_waits_for_the_model_says_why_and_can_be_cancelled():
    asked_again = anyio.Event()

    def reply(_: ChatRequest) -> LLMError:
        if len(model.calls) > 1:
            asked_again.set()
        return LLMError("Nothing is left.", failure="quota")

    model = MockProvider(reply)
    config = RAGConfig(waits=WaitSettings(retry=0.01))
    kb = GraphRAGKnowledgeBase.from_config(llm_provider=model, config=config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kb.work)
        job = kb.submit(DocumentsRequest(documents(1)))
        with anyio.fail_after(20):
            await asked_again.wait()
        assert "Nothing is left" in kb.worker.problem
        await kb.cancel_job(job)
        assert kb.job(job).counts == {"skipped": 1}
        tasks.cancel_scope.cancel()
    kb.close()


async def test_who_waits_for_a_job_sees_at_once_that_it_is_cancelled():
    model = MockProvider(lambda _: LLMError("Nothing is left.", failure="quota"))
    config = RAGConfig(waits=WaitSettings(retry=3600, work=3600))
    kb = GraphRAGKnowledgeBase.from_config(llm_provider=model, config=config)
    id_ = kb.submit(DocumentsRequest(documents(1)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kb.work)

        async def cancel_when_stopped(_: Job) -> None:
            while not kb.worker.stopped:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(kb.cancel_job, id_)

        with anyio.fail_after(60):
            job = await kb.wait_for_job(id_, progress=cancel_when_stopped)
        assert job.state == "cancelled"
        tasks.cancel_scope.cancel()
    kb.close()


@pytest.mark.parametrize("failure", ["quota", "authentication"])
async def test_who_waits_for_another_process_is_told_that_its_model_cannot_be_asked(
    failure: ModelFailure, tmp_path: Path
):
    broken = True

    def reply(request: ChatRequest) -> str | LLMError:
        if broken:
            return LLMError("余额不足，请充值。", failure=failure)
        return naming("zell")(request)

    # The second one sees what has changed for the owner by telling it: by itself it would look an hour later.
    patient = RAGConfig(waits=WaitSettings(retry=3600))
    owner = GraphRAGKnowledgeBase.from_config(
        llm_provider=MockProvider(reply), config=patient, path=tmp_path / "kb"
    )
    peer = GraphRAGKnowledgeBase.from_config(
        llm_provider=MockProvider([]), config=patient, path=tmp_path / "kb"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(owner.work)
        with anyio.fail_after(60):
            while not owner.worker.is_owner:
                await anyio.lowlevel.checkpoint()
            peer.submit(DocumentsRequest(documents(2)))
            for _ in range(2):
                with pytest.raises(LLMError, match=r"Another process works .* 余额不足，请充值。") as caught:
                    await peer.worker.drain()
                assert "restart that process" in caught.value.advice
            broken = False
            await peer.worker.drain()
        assert peer.store.jobs.next() is None
        assert peer.store.documents.counts()[0] == 2
        tasks.cancel_scope.cancel()
    peer.close()
    owner.close()


async def test_what_is_in_is_made_ready_while_the_rest_waits_for_the_model():
    """Words, vectors and graph of the documents before do not wait until the account is topped up."""
    town = "the town of zell has a lake. " * 150  # so that there are several batches
    told = anyio.Event()

    def reply(request: ChatRequest) -> str | LLMError:
        if "Nothing is left" in kb.worker.problem:
            told.set()
        if "Town 30" in request.messages[1].text:
            return LLMError("Nothing is left.", failure="quota")
        return naming("zell")(request)

    config = RAGConfig(
        waits=WaitSettings(retry=0.01), extraction=ExtractionConfig(confirm_tokens=None, confirm_cost=None)
    )
    embedder = HashingEmbedder()
    kb = GraphRAGKnowledgeBase.from_config(
        llm_provider=MockProvider(reply), embedding_provider=embedder, config=config
    )
    with pytest.raises(LLMError, match="Nothing is left"):
        await kb.add_documents(documents(40, text=town))
    with_vector, chunks = kb.coverage()
    assert with_vector == chunks > 0
    assert set(kb.index_lag().values()) == {0}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kb.work)
        with anyio.fail_after(20):
            await told.wait()
        tasks.cancel_scope.cancel()
    kb.close()


async def test_passages_that_only_rules_could_read_are_noted_with_the_job():
    kb = knowledge_base(MockProvider(lambda _: "I am sorry."))
    job = await kb.add_documents(documents(2))
    notes = [note for _, note in kb.store.jobs.notes(job)]
    assert len([note for note in notes if "1 of 1 passages were extracted by rules only" in note]) == 2
    kb.close()


async def test_what_extraction_will_take_is_known_beforehand(tmp_path: Path):
    (tmp_path / "a.md").write_text("# Zell\n\nzell has a lake.", encoding="utf-8")
    (tmp_path / "国.md").write_text("# 泽尔\n\n泽尔有一个湖。", encoding="utf-8")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    model = Priced(naming("zell", "泽尔"))
    kb = knowledge_base(model, confirm_cost=None)
    estimate = await kb.estimate_extraction([tmp_path, tmp_path / "none"], documents=documents(1))
    assert (estimate.documents, estimate.passages, model.calls) == (3, 3, [])
    assert estimate.cost == estimate.tokens > 0
    assert "3 passages of 3 documents" in str(estimate)
    assert "US$" in str(estimate)
    await kb.add_paths([tmp_path])
    left = await kb.estimate_extraction([tmp_path], documents=documents(1))
    assert (left.documents, left.passages, left.calls) == (1, 1, 1)
    kb.close()
    kb = GraphRAGKnowledgeBase.from_config()
    nothing = await kb.estimate_extraction([tmp_path], documents=documents(1))
    assert (nothing.calls, nothing.cost) == (0, 0.0)
    kb.close()


@pytest.mark.parametrize("limits", [{"confirm_tokens": 10}, {"confirm_tokens": None, "confirm_cost": 1.0}])
async def test_a_large_job_needs_a_confirmation(tmp_path: Path, limits: dict[str, Any]):
    (tmp_path / "a.md").write_text("zell has a lake.", encoding="utf-8")
    model = Priced(naming("zell"))
    kb = knowledge_base(model, **limits)
    with pytest.raises(InvalidInputError, match=r"2 passages of 2 documents .*confirm=True"):
        await kb.add_documents(documents(2))
    with pytest.raises(InvalidInputError, match="Nothing was done"):
        await kb.add_texts(["zell"])
    with pytest.raises(InvalidInputError, match="1 passages of 1 documents"):
        await kb.add_paths([tmp_path])
    with pytest.raises(InvalidInputError, match="confirm"):
        await kb.sync_paths([tmp_path])
    assert (model.calls, kb.store.documents.counts()[0], kb.store.jobs.next()) == ([], 0, None)
    await kb.add_texts(["zell"], confirm=True)
    await kb.sync_paths([tmp_path], confirm=True)
    await kb.add_paths([tmp_path])  # of which nothing is new
    assert kb.store.documents.counts()[0] == 2
    kb.close()


async def test_a_knowledge_base_that_rules_made_can_be_read_by_a_model_afterwards(tmp_path: Path):
    kb = GraphRAGKnowledgeBase.from_config(path=tmp_path)
    await kb.add_documents(documents(2))
    kb.close()
    model = Priced(naming("zell"))
    kb = knowledge_base(model, tmp_path)
    with pytest.raises(InvalidInputError, match="2 passages of 2 documents"):
        await kb.rebuild_from_texts()
    assert model.calls == []
    job = await kb.rebuild_from_texts(confirm=True)
    assert job.counts == {"updated": 2}
    assert "llm" in methods(kb)
    kb.close()


async def test_a_job_of_unknown_price_is_measured_by_its_tokens_alone():
    kb = knowledge_base(MockProvider(naming("zell")), confirm_cost=0.0)
    await kb.add_documents(documents(2))
    assert "at an unknown price" in str(await kb.estimate_extraction(documents=documents(3)))
    kb.close()


class Keyless(MockProvider):
    """A model without its key."""

    def problem(self) -> str:
        return "there is no key: set MODEL_KEY"


async def test_what_there_is_no_time_to_read_is_judged_by_its_size(tmp_path: Path):
    for n in range(3):
        (tmp_path / f"{n}.md").write_text("泽尔有一个湖。" * 1_000, encoding="utf-8")
    kb = knowledge_base(Priced(naming("泽尔")))
    with pytest.raises(ConfirmationNeededError) as asked:
        await kb.confirm_extraction(FilesRequest([tmp_path]), seconds=0)
    guessed = asked.value.estimate
    read = await kb.estimate_extraction([tmp_path])
    assert guessed.by_size
    assert not read.by_size
    assert guessed.documents == read.documents == 3
    assert read.tokens / 3 < guessed.tokens < read.tokens * 3
    assert guessed.cost == guessed.tokens
    assert "estimated by the sizes of files" in str(guessed)
    kb.close()


async def test_small_additions_are_agreed_to_without_being_read(tmp_path: Path):
    (tmp_path / "a.md").write_text("zell has a lake.", encoding="utf-8")
    kb = knowledge_base(MockProvider(naming("zell")))
    await kb.confirm_extraction(FilesRequest([tmp_path]), seconds=0)
    assert kb.store.documents.counts()[0] == 0
    kb.close()


async def test_a_model_that_cannot_be_asked_is_told_before_anything_is_written_down():
    kb = knowledge_base(Keyless(naming("zell")))
    for confirm in (False, True):
        with pytest.raises(ConfigError, match="MODEL_KEY"):
            await kb.add_documents(documents(1), confirm=confirm)
    assert kb.store.jobs.next() is None
    kb.close()


async def test_a_folder_that_is_watched_begins_nothing_dear_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "a.md").write_text("在泽尔有一个湖。", encoding="utf-8")
    model = Priced(naming("泽尔"))
    kb = knowledge_base(model)
    watch = FolderWatch(kb, [tmp_path], debounce=50)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kb.work)
        tasks.start_soon(watch.run)
        with anyio.fail_after(30):
            while "is not synced" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert (model.calls, kb.store.jobs.list()) == ([], [])
        job = kb.submit(SyncRequest([tmp_path], confirm=True))
        kb.worker.wake()
        with anyio.fail_after(30):
            while not kb.job(job).finished:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert kb.job(job).counts == {"added": 1}
    assert "llm" in methods(kb)
    kb.close()


async def test_a_job_whose_size_no_one_could_know_ends_where_it_becomes_too_much():
    model = Priced(naming("zell"))
    kb = knowledge_base(model)
    job = kb.submit(DocumentsRequest(documents(2)))  # as web pages are, that are fetched by and by
    small = kb.submit(DocumentsRequest([]))
    await kb.worker.drain()
    assert kb.job(job).state == "failed"
    assert "needs a confirmation" in kb.job(job).error
    assert kb.job(small).state == "done"
    assert model.calls == []
    kb.close()


async def test_what_cannot_even_be_listed_in_time_needs_a_confirmation():
    pipeline = Pipeline.of(
        PipelineSpec("structure", {}, None), extractor=LLMEntityExtractor(MockProvider([]))
    )
    store = KnowledgeStore(None)
    plan = ExtractionPlan(store, pipeline, ExtractionConfig(), listing_seconds=-1)
    with pytest.raises(ConfirmationNeededError, match="more than 1 passages of 1 documents"):
        await plan.require_confirmation(DocumentsRequest(documents(9)).items(), confirm=False, seconds=0)
    store.close()
