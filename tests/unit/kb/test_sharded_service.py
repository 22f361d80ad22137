"""The operations of loom-kb on a knowledge base that is split into shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loom_kb.job_facts import info_of_parts
from loom_kb.service import KnowledgeService
from loom_kb.settings import Settings

from loom_core.errors import NotFoundError
from loom_core.knowledge import split_into_shards

TOWNS = {f"town:{n}": f"# Town {n}\n\nIts river is called Ys{n}." for n in range(9)}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[KnowledgeService]:
    service = KnowledgeService(Settings(home=tmp_path, embedder="hashing"))
    yield service
    service.library.close()


async def _split(service: KnowledgeService) -> None:
    request = service.request_texts(list(TOWNS.values()), uris=list(TOWNS))
    (base,), _ = await service.add(request, source="towns")
    await base.worker.drain()
    service.library.close()
    await split_into_shards(service.library, "towns", count=3)


async def test_documents_are_listed_page_by_page_and_read_by_id_passage_and_address(
    service: KnowledgeService,
):
    await _split(service)
    found: list[str] = []
    cursor = 0
    while page := await service.list_documents("towns", limit=2, cursor=cursor):
        assert len(page) <= 2
        cursor = page[-1][0]
        found += [row.uri for _, row in page]
    assert sorted(found) == sorted(TOWNS)
    (passage,) = (await service.query("Ys7", source="towns", limit=1)).passages
    assert (passage.source, passage.uri) == ("towns", "town:7")
    for id_ in (passage.id, passage.document_id, passage.uri):
        read = await service.fetch(id_, tokens=500)
        assert (read.source, read.uri) == ("towns", "town:7")
    with pytest.raises(NotFoundError):
        await service.fetch("town:99", tokens=500)


async def test_a_job_has_parts_in_all_shards_and_is_told_as_one(service: KnowledgeService, tmp_path: Path):
    await _split(service)
    folder = tmp_path / "files"
    folder.mkdir()
    for n in range(6):
        (folder / f"good{n}.md").write_text(f"# Good {n}\n\nText {n}.")
        (folder / f"bad{n}.pdf").write_bytes(b"no pdf")
    parts, job = await service.add(await service.request_files([folder]), source="towns")
    assert [part.name for part in parts] == ["towns_shard_1", "towns_shard_2", "towns_shard_3"]
    for part in parts:
        await part.worker.drain()
    info = info_of_parts(await service.job(job))
    assert (info.source, info.state, info.total, info.processed) == ("towns", "done", 12, 12)
    assert info.counts == {"added": 6, "failed": 6}
    assert len(info.problems) == 6
    newest = (await service.jobs(limit=1)).jobs
    assert [(each.id, each.source, each.total) for each in newest] == [(job, "towns", 12)]
    removed, unknown = await service.remove(["town:1", "nothing"], source="towns")
    assert ([each.uri for each in removed], unknown) == (["town:1"], ["nothing"])


async def test_problems_of_a_job_are_paged_through_all_shards(service: KnowledgeService, tmp_path: Path):
    await _split(service)
    folder = tmp_path / "files"
    folder.mkdir()
    for n in range(90):
        (folder / f"bad{n}.pdf").write_bytes(b"no pdf")
    parts, job = await service.add(await service.request_files([folder]), source="towns")
    for part in parts:
        await part.worker.drain()
    info = info_of_parts(await service.job(job))
    assert info.counts == {"failed": 90}
    told = set(info.problems)
    while info.next_cursor:
        info = info_of_parts(await service.job(job), after=int(info.next_cursor))
        told.update(info.problems)
    assert len(told) == 90
