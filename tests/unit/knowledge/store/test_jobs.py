"""Jobs: acknowledged once they are written."""

from __future__ import annotations

from pathlib import Path

from loom_core.knowledge.store import Job, JobItem, JobTable, KnowledgeStore
from loom_core.knowledge.store.jobs import ListedDocument, Throughput


def test_a_job_that_was_submitted_survives_reopening(tmp_path: Path):
    store = KnowledgeStore(tmp_path / "record.db")
    id_ = store.jobs.submit({"texts": 1}, [JobItem("text:a", b"payload")], listed=True)
    store.close()
    store = KnowledgeStore(tmp_path / "record.db")
    job = store.jobs.get(id_)
    assert job is not None
    assert (job.state, job.total, job.processed, job.finished) == ("running", 1, 0, False)
    assert job == store.jobs.next()
    assert [(item.uri, item.payload) for item in store.jobs.pending(job, 10)] == [("text:a", b"payload")]
    store.close()


def test_jobs_are_done_in_their_order_and_listed_newest_first(store: KnowledgeStore):
    first = store.jobs.submit({"paths": ["/a"]})
    second = store.jobs.submit({"paths": ["/b"]})
    job = store.jobs.next()
    assert job is not None
    assert (job.id, job.state, job.request) == (first, "queued", {"paths": ["/a"]})
    store.jobs.finish(job)
    following = store.jobs.next()
    assert following is not None
    assert following.id == second
    assert [job.id for job in store.jobs.list()] == [second, first]
    assert [job.id for job in store.jobs.list(limit=1)] == [second]


def test_pending_documents_are_as_many_as_fit_and_at_least_one(store: KnowledgeStore):
    store.jobs.submit({"texts": 3}, [JobItem(f"text:{n}", b"x" * 10) for n in range(3)], listed=True)
    job = store.jobs.next()
    assert job is not None
    fitting = [len(store.jobs.pending(job, 10, size=size)) for size in (1, 10, 19, 20, 30)]
    assert fitting == [1, 1, 1, 2, 3]
    assert len(store.jobs.pending(job, 2, size=30)) == 2


def test_a_job_tells_how_far_it_is(store: KnowledgeStore):
    id_ = store.jobs.submit({"paths": ["/a"]})
    job = store.jobs.next()
    assert job is not None
    store.jobs.start(job)
    store.jobs.append(
        job,
        [
            ListedDocument("file:///a/1", 10),
            ListedDocument("file:///a/2", 20, "skipped", "no loader"),
            ListedDocument("file:///a/3", 5),
        ],
    )
    store.jobs.finish_listing(job)
    job = store.jobs.next()
    assert job is not None
    assert job.state == "running"
    one, three = store.jobs.pending(job, 10)
    store.jobs.settle(job, one, "added", chunks=4)
    store.jobs.settle(job, three, "failed", reason="broken")
    store.jobs.finish(job)
    job = store.jobs.get(id_)
    assert job is not None
    assert (job.state, job.counts, job.chunks) == ("done", {"added": 1, "skipped": 1, "failed": 1}, 4)
    assert job.finished
    assert job.finished_at is not None
    assert [(i.uri, i.reason) for i in store.jobs.report(job, ["failed", "skipped"])] == [
        ("file:///a/2", "no loader"),
        ("file:///a/3", "broken"),
    ]
    assert len(store.jobs.report(job, ["failed", "skipped"], limit=1)) == 1


def test_a_text_is_kept_only_until_it_is_settled(store: KnowledgeStore):
    store.jobs.submit({}, [JobItem("text:a", b"payload")], listed=True)
    job = store.jobs.next()
    assert job is not None
    (item,) = store.jobs.pending(job, 1)
    store.jobs.settle(job, item, "added")
    assert store.database.rows("SELECT 1 FROM items WHERE payload IS NOT NULL") == []


def test_a_cancelled_job_skips_what_is_left_and_keeps_what_is_done(store: KnowledgeStore):
    id_ = store.jobs.submit({}, [JobItem("text:a", b"1"), JobItem("text:b", b"2")], listed=True)
    job = store.jobs.next()
    assert job is not None
    store.jobs.settle(job, store.jobs.pending(job, 1)[0], "added")
    store.jobs.finish(job, "cancelled")
    assert store.jobs.next() is None
    job = store.jobs.get(id_)
    assert job is not None
    assert (job.state, job.counts) == ("cancelled", {"added": 1, "skipped": 1})
    assert store.jobs.purge()
    assert store.jobs.report(job, ["skipped"])[0].reason == "cancelled"
    assert store.database.rows("SELECT 1 FROM items WHERE payload IS NOT NULL") == []


def test_a_finished_job_stays_as_it_ended(store: KnowledgeStore):
    id_ = store.jobs.submit({}, [], listed=True)
    job = store.jobs.next()
    assert job is not None
    store.jobs.finish(job, "failed", error="no such thing")
    store.jobs.finish(job, "done")
    job = store.jobs.get(id_)
    assert job is not None
    assert (job.state, job.error) == ("failed", "no such thing")
    assert store.jobs.get("job-none") is None


def test_a_request_may_name_paths_that_are_no_utf_8(store: KnowledgeStore):
    store.jobs.submit({"paths": ["/caf\udce9"]})
    job = store.jobs.next()
    assert job is not None
    assert job.request == {"paths": ["/caf\udce9"]}


def _running(store: KnowledgeStore, count: int) -> Job:
    store.jobs.submit({"texts": count}, [JobItem(f"text:{n}", b"x") for n in range(count)], listed=True)
    job = store.jobs.next()
    assert job is not None
    return job


def test_listing_in_portions_starts_over_after_a_kill(store: KnowledgeStore):
    store.jobs.submit({"paths": ["/a"]})
    job = store.jobs.next()
    assert job is not None
    for _ in range(2):
        store.jobs.start(job)
        store.jobs.append(
            job,
            [ListedDocument("file:///a/1"), ListedDocument("file:///a/2", 0, "skipped", "empty")],
            unchanged=7,
        )
        job = store.jobs.next()
        assert job is not None
        assert (job.state, job.counts) == ("listing", {"pending": 1, "skipped": 1, "unchanged": 7})
    store.jobs.finish_listing(job)
    job = store.jobs.next()
    assert job is not None
    assert (job.state, job.total, job.processed) == ("running", 9, 8)


def test_a_cancelled_job_counts_at_once_and_is_cleared_away_afterwards(store: KnowledgeStore):
    job = _running(store, 3)
    store.jobs.settle(job, store.jobs.pending(job, 1)[0], "added", chunks=2)
    store.jobs.finish(job, "cancelled")
    found = store.jobs.get(job.id)
    assert found is not None
    assert found.counts == {"added": 1, "skipped": 2}
    assert not store.jobs.is_open(job)
    store.jobs.append(job, [ListedDocument("text:late")])
    assert store.jobs.purge()
    assert not store.jobs.purge()
    assert [item.reason for item in store.jobs.report(job, ["skipped"])] == ["cancelled"] * 2
    assert store.database.rows("SELECT 1 FROM items WHERE payload IS NOT NULL") == []
    assert store.jobs.get(job.id) == found


def test_the_oldest_finished_jobs_are_forgotten():
    store = KnowledgeStore(None)
    store.jobs = JobTable(store.database, keep=2)
    for _ in range(4):
        store.jobs.finish(_running(store, 2))
    _running(store, 1)
    while store.jobs.purge():
        pass
    assert [job.state for job in store.jobs.list()] == ["running", "done", "done"]
    kept = {row["key"] for row in store.database.rows("SELECT key FROM jobs")}
    assert {row["job"] for row in store.database.rows("SELECT DISTINCT job FROM items")} == kept
    store.close()


def test_a_jobs_pace_is_that_of_its_last_work_and_survives_reopening(tmp_path: Path):
    store = KnowledgeStore(tmp_path / "record.db")
    job = _running(store, 100)
    assert store.jobs.throughput(job) is None
    for _ in range(40):
        store.progress.note_work(job, seconds=100.0, documents=1, chunks=1)
    for _ in range(30):
        store.progress.note_work(job, seconds=0.5, documents=5, chunks=10)
    store.close()
    store = KnowledgeStore(tmp_path / "record.db")
    assert store.jobs.throughput(job) == Throughput(10.0, 20.0, 10.0)
    store.close()


def test_problems_and_notes_are_read_in_pages(store: KnowledgeStore):
    job = _running(store, 1)
    store.jobs.append(job, [ListedDocument(f"file:///{n}", 0, "failed", "broken") for n in range(5)])
    first = store.jobs.report(job, ["failed"], limit=3)
    rest = store.jobs.report(job, ["failed"], limit=3, after=first[-1].ordinal)
    assert [item.uri for item in [*first, *rest]] == [f"file:///{n}" for n in range(5)]
    store.progress.note(job, ["one", "two", "three"])
    ((key, note),) = store.jobs.notes(job, limit=1)
    assert note == "one"
    assert [note for _, note in store.jobs.notes(job, after=key)] == ["two", "three"]
    assert store.jobs.count_notes(job) == 3
