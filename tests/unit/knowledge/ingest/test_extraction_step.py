"""Documents are read by an extractor of the program's own for as long as their job is wanted."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from loom_core.errors import LLMError
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.extraction.rules import RuleExtractor
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.runner import ExtractionStep
from loom_core.knowledge.interface import Extractor as AnyExtractor
from loom_core.knowledge.model import Chunk, DocumentDraft, Extraction, Mention
from loom_core.knowledge.store import Job, JobItem, KnowledgeStore
from loom_core.knowledge.store.prepared_documents import ItemOutcome, PreparedDocument
from loom_core.llm.interface import Usage
from loom_core.llm.mock import MockProvider


class Extractor:
    """Finds the first word of every passage; hangs, or fails, where it is told to."""

    id = "first-word-1"

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.hanging = anyio.Event()

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        self.seen += [chunk.text for chunk in chunks]
        if any("hang" in text for text in self.seen):
            self.hanging.set()
            await anyio.sleep_forever()
        if any("quota" in text for text in self.seen):
            raise LLMError("Nothing is left.", failure="quota")
        return [Extraction(mentions=(Mention(c.text.split()[0], 0, 1),)) for c in chunks]


class Reading:
    def __init__(self, extractor: AnyExtractor | None = None, config: ExtractionConfig | None = None) -> None:
        self.extractor = Extractor()
        self.store = KnowledgeStore(None)
        self.pipeline = Pipeline.of(
            PipelineSpec("structure", {}, None), extractor=extractor or self.extractor
        )
        self.step = ExtractionStep(self.store, self.pipeline, config=config, look_seconds=0.01)

    def prepared(self, *texts: str) -> list[PreparedDocument]:
        drafts = (DocumentDraft(uri=f"text:{n}", text=text) for n, text in enumerate(texts))
        return [document for draft in drafts if (document := self.pipeline.prepare_one(draft))]

    def job(self, **marks: bool) -> Job:
        id_ = self.store.jobs.submit({"texts": 1, **marks}, [JobItem("text:0", b"x")], listed=True)
        return self.now(id_)

    def now(self, id_: str) -> Job:
        job = self.store.jobs.get(id_)
        assert job is not None
        return job


@pytest.fixture
def reading():
    reading = Reading()
    yield reading
    reading.store.close()


async def test_what_was_not_prepared_passes_and_the_rest_is_read(reading: Reading):
    (document,) = reading.prepared("Zell lies by a lake.")
    made = await reading.step.run(
        reading.job(), [ItemOutcome("unchanged", hash=b"1"), document, ItemOutcome("failed", "no")]
    )
    assert made is not None
    assert (made[0], made[2]) == (ItemOutcome("unchanged", hash=b"1"), ItemOutcome("failed", "no"))
    assert isinstance(made[1], PreparedDocument)
    assert made[1].chunks[0].found.mentions.name == ("Zell",)


async def test_passages_that_are_in_the_record_are_not_read(reading: Reading):
    documents = reading.prepared("Zell lies by a lake.")
    reading.store.documents.upsert_all(await reading.pipeline.extract(documents))
    reading.extractor.seen.clear()
    assert await reading.step.run(reading.job(), documents) == documents
    assert reading.extractor.seen == []


async def test_a_job_that_is_cancelled_meanwhile_is_left(reading: Reading):
    job, results = reading.job(), list[object]()

    async def run() -> None:
        results.append(await reading.step.run(job, reading.prepared("hang")))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await reading.extractor.hanging.wait()
            reading.store.jobs.finish(job, "cancelled")
    assert results == [None]


async def test_an_extractor_that_cannot_extract_now_is_no_fault_of_the_documents(reading: Reading):
    with pytest.raises(LLMError, match="Nothing is left"):
        await reading.step.run(reading.job(), reading.prepared("quota", "Zell"))


def model(*answers: str) -> LLMEntityExtractor:
    return LLMEntityExtractor(MockProvider(list(answers)))


NOTHING = '{"entities": [], "relations": []}'


async def test_what_a_model_takes_is_written_down_with_the_job_and_which_it_was():
    reading = Reading(model(NOTHING, NOTHING))
    job = reading.job()
    assert reading.store.jobs.llm_usage(job) is None
    for text in ("zell", "泽尔有一个湖。"):
        assert await reading.step.run(job, reading.prepared(text))
    spent = reading.store.jobs.llm_usage(job)
    assert spent is not None
    assert spent.input_tokens > spent.output_tokens > 0
    assert spent.cost is None
    assert reading.store.get("llm") == "mock/mock"
    reading.store.close()


async def test_what_was_paid_before_the_model_stopped_is_written_down_too():
    provider = MockProvider([NOTHING, LLMError("No money.", failure="quota")])
    reading = Reading(LLMEntityExtractor(provider, concurrency=1))
    job = reading.job()
    with pytest.raises(LLMError, match="No money"):
        await reading.step.run(job, reading.prepared("zell", "泽尔有一个湖。"))
    spent = reading.store.jobs.llm_usage(job)
    assert spent is not None
    assert spent.input_tokens > 0
    reading.store.close()


def test_costs_add_up_until_one_is_not_known():
    reading = Reading()
    job, progress = reading.job(), reading.store.progress
    progress.add_llm_usage(job, Usage(10, 5, cost=0.25))
    progress.add_llm_usage(job, Usage(1, 2, cost=0.5))
    assert reading.store.jobs.llm_usage(job) == Usage(11, 7, cost=0.75)
    progress.add_llm_usage(job, Usage(1, 1, cost=None))
    assert reading.store.jobs.llm_usage(job) == Usage(12, 8, cost=None)
    reading.store.close()


async def test_a_job_that_no_one_agreed_to_ends_before_it_takes_too_much():
    extractor = model(NOTHING)
    reading = Reading(extractor, ExtractionConfig(confirm_tokens=10))
    job = reading.job()
    assert await reading.step.run(job, reading.prepared("泽尔有一个湖。")) is None
    ended = reading.now(job.id)
    assert ended.state == "failed"
    assert "needs a confirmation" in ended.error
    assert extractor.spent.calls == 0
    agreed = reading.job(confirmed=True)
    assert await reading.step.run(agreed, reading.prepared("泽尔有一个湖。"))
    assert reading.now(agreed.id).state == "running"
    reading.store.close()


async def test_what_is_in_the_record_already_is_not_counted():
    extractor = model(NOTHING)
    reading = Reading(extractor, ExtractionConfig(confirm_tokens=10))
    documents = reading.prepared("zell")
    reading.store.documents.upsert_all(documents)
    assert await reading.step.run(reading.job(), documents) == documents
    assert extractor.spent.calls == 0
    reading.store.close()


async def test_rules_do_not_read_unnoticed_what_a_model_was_to_read():
    reading = Reading(RuleExtractor())
    job = reading.job(by_model=True)
    assert await reading.step.run(job, reading.prepared("zell")) is None
    ended = reading.now(job.id)
    assert (ended.state, "has none" in ended.error) == ("failed", True)
    reading.store.close()
