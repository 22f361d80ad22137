"""Jobs: acknowledged once they are written."""

from __future__ import annotations

from pathlib import Path

from loom_core.knowledge.store import Job, JobItem, JobTable, KnowledgeStore
from loom_core.knowledge.store.jobs import ListedDocument, Throughput


def test_a_job_that_was_submitted_survives_reopening(tmp_path: Path):
    record = KnowledgeStore(tmp_path / "record.db")
    id_ = record.jobs.submit({"texts": 1}, [JobItem("text:a", b"payload")], listed=True)
    record.close()
    record = KnowledgeStore(tmp_path / "record.db")
    job = record.jobs.get(id_)
    assert job is not None
    assert (job.state, job.total, job.processed, job.finished) == ("running", 1, 0, False)
    assert job == record.jobs.next()
    assert [(item.uri, item.payload) for item in record.jobs.pending(job, 10)] == [("text:a", b"payload")]
    record.close()


def test_jobs_are_done_in_their_order_and_listed_newest_first(record: KnowledgeStore):
    first = record.jobs.submit({"paths": ["/a"]})
    second = record.jobs.submit({"paths": ["/b"]})
    job = record.jobs.next()
    assert job is not None
    assert (job.id, job.state, job.request) == (first, "queued", {"paths": ["/a"]})
    record.jobs.finish(job)
    following = record.jobs.next()
    assert following is not None
    assert following.id == second
    assert [job.id for job in record.jobs.list()] == [second, first]
    assert [job.id for job in record.jobs.list(limit=1)] == [second]


def test_pending_documents_are_as_many_as_fit_and_at_least_one(record: KnowledgeStore):
    record.jobs.submit({"texts": 3}, [JobItem(f"text:{n}", b"x" * 10) for n in range(3)], listed=True)
    job = record.jobs.next()
    assert job is not None
    fitting = [len(record.jobs.pending(job, 10, size=size)) for size in (1, 10, 19, 20, 30)]
    assert fitting == [1, 1, 1, 2, 3]
    assert len(record.jobs.pending(job, 2, size=30)) == 2


def test_a_job_tells_how_far_it_is(record: KnowledgeStore):
    id_ = record.jobs.submit({"paths": ["/a"]})
    job = record.jobs.next()
    assert job is not None
    record.jobs.start(job)
    record.jobs.append(
        job,
        [
            ListedDocument("file:///a/1", 10),
            ListedDocument("file:///a/2", 20, "skipped", "no loader"),
            ListedDocument("file:///a/3", 5),
        ],
    )
    record.jobs.finish_listing(job)
    job = record.jobs.next()
    assert job is not None
    assert job.state == "running"
    one, three = record.jobs.pending(job, 10)
    record.jobs.settle(job, one, "added", chunks=4)
    record.jobs.settle(job, three, "failed", reason="broken")
    record.jobs.finish(job)
    job = record.jobs.get(id_)
    assert job is not None
    assert (job.state, job.counts, job.chunks) == ("done", {"added": 1, "skipped": 1, "failed": 1}, 4)
    assert job.finished
    assert job.finished_at is not None
    assert [(i.uri, i.reason) for i in record.jobs.report(job, ["failed", "skipped"])] == [
        ("file:///a/2", "no loader"),
        ("file:///a/3", "broken"),
    ]
    assert len(record.jobs.report(job, ["failed", "skipped"], limit=1)) == 1


def test_a_text_is_kept_only_until_it_is_settled(record: KnowledgeStore):
    record.jobs.submit({}, [JobItem("text:a", b"payload")], listed=True)
    job = record.jobs.next()
    assert job is not None
    (item,) = record.jobs.pending(job, 1)
    record.jobs.settle(job, item, "added")
    assert record.database.rows("SELECT 1 FROM items WHERE payload IS NOT NULL") == []


def test_a_cancelled_job_skips_what_is_left_and_keeps_what_is_done(record: KnowledgeStore):
    id_ = record.jobs.submit({}, [JobItem("text:a", b"1"), JobItem("text:b", b"2")], listed=True)
    job = record.jobs.next()
    assert job is not None
    record.jobs.settle(job, record.jobs.pending(job, 1)[0], "added")
    record.jobs.finish(job, "cancelled")
    assert record.jobs.next() is None
    job = record.jobs.get(id_)
    assert job is not None
    assert (job.state, job.counts) == ("cancelled", {"added": 1, "skipped": 1})
    assert record.jobs.purge()
    assert record.jobs.report(job, ["skipped"])[0].reason == "cancelled"
    assert record.database.rows("SELECT 1 FROM items WHERE payload IS NOT NULL") == []


def test_a_finished_job_stays_as_it_ended(record: KnowledgeStore):
    id_ = record.jobs.submit({}, [], listed=True)
    job = record.jobs.next()
    assert job is not None
    record.jobs.finish(job, "failed", error="no such thing")
    record.jobs.finish(job, "done")
    job = record.jobs.get(id_)
    assert job is not None
    assert (job.state, job.error) == ("failed", "no such thing")
    assert record.jobs.get("job-none") is None


def test_a_request_may_name_paths_that_are_no_utf_8(record: KnowledgeStore):
    record.jobs.submit({"paths": ["/caf\udce9"]})
    job = record.jobs.next()
    assert job is not None
    assert job.request == {"paths": ["/caf\udce9"]}


def _running(record: KnowledgeStore, count: int) -> Job:
    record.jobs.submit({"texts": count}, [JobItem(f"text:{n}", b"x") for n in range(count)], listed=True)
    job = record.jobs.next()
    assert job is not None
    return job


def test_listing_in_portions_starts_over_after_a_kill(record: KnowledgeStore):
    record.jobs.submit({"paths": ["/a"]})
    job = record.jobs.next()
    assert job is not None
    for _ in range(2):
        record.jobs.start(job)
        record.jobs.append(
            job,
            [ListedDocument("file:///a/1"), ListedDocument("file:///a/2", 0, "skipped", "empty")],
            unchanged=7,
        )
        job = record.jobs.next()
        assert job is not None
        assert (job.state, job.counts) == ("listing", {"pending": 1, "skipped": 1, "unchanged": 7})
    record.jobs.finish_listing(job)
    job = record.jobs.next()
    assert job is not None
    assert (job.state, job.total, job.processed) == ("running", 9, 8)


def test_a_cancelled_job_counts_at_once_and_is_cleared_away_afterwards(record: KnowledgeStore):
    job = _running(record, 3)
    record.jobs.settle(job, record.jobs.pending(job, 1)[0], "added", chunks=2)
    record.jobs.finish(job, "cancelled")
    found = record.jobs.get(job.id)
    assert found is not None
    assert found.counts == {"added": 1, "skipped": 2}
    assert not record.jobs.is_open(job)
    record.jobs.append(job, [ListedDocument("text:late")])
    assert record.jobs.purge()
    assert not record.jobs.purge()
    assert [item.reason for item in record.jobs.report(job, ["skipped"])] == ["cancelled"] * 2
    assert record.database.rows("SELECT 1 FROM items WHERE payload IS NOT NULL") == []
    assert record.jobs.get(job.id) == found


def test_the_oldest_finished_jobs_are_forgotten():
    record = KnowledgeStore(None)
    record.jobs = JobTable(record.database, keep=2)
    for _ in range(4):
        record.jobs.finish(_running(record, 2))
    _running(record, 1)
    while record.jobs.purge():
        pass
    assert [job.state for job in record.jobs.list()] == ["running", "done", "done"]
    kept = {row["key"] for row in record.database.rows("SELECT key FROM jobs")}
    assert {row["job"] for row in record.database.rows("SELECT DISTINCT job FROM items")} == kept
    record.close()


def test_a_jobs_pace_is_that_of_its_last_work_and_survives_reopening(tmp_path: Path):
    record = KnowledgeStore(tmp_path / "record.db")
    job = _running(record, 100)
    assert record.jobs.throughput(job) is None
    for _ in range(40):
        record.progress.note_work(job, seconds=100.0, documents=1, chunks=1)
    for _ in range(30):
        record.progress.note_work(job, seconds=0.5, documents=5, chunks=10)
    record.close()
    record = KnowledgeStore(tmp_path / "record.db")
    assert record.jobs.throughput(job) == Throughput(10.0, 20.0, 10.0)
    record.close()


def test_problems_and_notes_are_read_in_pages(record: KnowledgeStore):
    job = _running(record, 1)
    record.jobs.append(job, [ListedDocument(f"file:///{n}", 0, "failed", "broken") for n in range(5)])
    first = record.jobs.report(job, ["failed"], limit=3)
    rest = record.jobs.report(job, ["failed"], limit=3, after=first[-1].ordinal)
    assert [item.uri for item in [*first, *rest]] == [f"file:///{n}" for n in range(5)]
    record.progress.note(job, ["one", "two", "three"])
    ((key, note),) = record.jobs.notes(job, limit=1)
    assert note == "one"
    assert [note for _, note in record.jobs.notes(job, after=key)] == ["two", "three"]
    assert record.jobs.count_notes(job) == 3
