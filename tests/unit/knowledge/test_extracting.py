"""Documents are read by an extractor of the program's own for as long as their job is wanted."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from loom_core.errors import LLMError
from loom_core.knowledge.extracting import ExtractionStep
from loom_core.knowledge.model import Chunk, DocumentDraft, Extraction, Mention
from loom_core.knowledge.pipeline import Pipeline, Recipe
from loom_core.knowledge.preparing.making import Failed, Unchanged
from loom_core.knowledge.record import Job, Record
from loom_core.knowledge.record.prepared import PreparedDocument


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
    def __init__(self) -> None:
        self.extractor = Extractor()
        self.record = Record(None)
        self.pipeline = Pipeline.of(Recipe("structure", {}, None), extractor=self.extractor)
        self.step = ExtractionStep(self.record, self.pipeline, look_seconds=0.01)

    def prepared(self, *texts: str) -> list[PreparedDocument]:
        drafts = (DocumentDraft(uri=f"text:{n}", text=text) for n, text in enumerate(texts))
        return [document for draft in drafts if (document := self.pipeline.prepare_one(draft))]

    def job(self) -> Job:
        job = self.record.jobs.get(self.record.jobs.submit({"texts": 1}, [("text:0", b"x")], listed=True))
        assert job is not None
        return job


@pytest.fixture
def reading():
    reading = Reading()
    yield reading
    reading.record.close()


async def test_what_was_not_prepared_passes_and_the_rest_is_read(reading: Reading):
    (document,) = reading.prepared("Zell lies by a lake.")
    made = await reading.step.run(reading.job(), [Unchanged(b"1"), document, Failed("no")])
    assert made is not None
    assert (made[0], made[2]) == (Unchanged(b"1"), Failed("no"))
    assert isinstance(made[1], PreparedDocument)
    assert made[1].chunks[0].found.mentions.name == ("Zell",)


async def test_passages_that_are_in_the_record_are_not_read(reading: Reading):
    documents = reading.prepared("Zell lies by a lake.")
    reading.record.documents.put_all(await reading.pipeline.extract(documents))
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
            reading.record.jobs.finish(job, "cancelled")
    assert results == [None]


async def test_an_extractor_that_cannot_extract_now_is_no_fault_of_the_documents(reading: Reading):
    with pytest.raises(LLMError, match="Nothing is left"):
        await reading.step.run(reading.job(), reading.prepared("quota", "Zell"))
