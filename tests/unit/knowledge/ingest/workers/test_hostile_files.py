"""Files made to do harm fail alone, soon, within bounded memory, and are told why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.workers import Preparer
from loom_core.knowledge.ingest.workers.worker import WorkerLimits
from loom_core.knowledge.store.prepared_documents import ItemOutcome, JobItem, Prepared, PreparedDocument
from tests.fixtures.hostile_files import REFUSED, TAKEN

pytestmark = [pytest.mark.slow, pytest.mark.hostile("files of any kind")]

_SECONDS = 60.0


@pytest.fixture(scope="module")
def preparer() -> Iterator[Preparer]:
    limits = WorkerLimits(deadline=_SECONDS, memory=1 << 30)
    preparer = Preparer(Pipeline.of(PipelineSpec("structure", {}, None)), children=1, child_limits=limits)
    yield preparer
    preparer.close()


def prepared(preparer: Preparer, path: Path) -> Prepared:
    preparation = preparer.begin([JobItem(path.as_uri(), size=path.stat().st_size)])
    deadline = time.monotonic() + 2 * _SECONDS
    while not preparer.work(preparation):
        assert time.monotonic() < deadline
    (made,) = preparation.made
    assert made is not None
    return made


def test_each_of_them_is_refused_with_a_reason_and_the_next_file_is_read(preparer, tmp_path) -> None:
    for name, (make, reason) in REFUSED.items():
        path = tmp_path / name
        path.write_bytes(make())
        made = prepared(preparer, path)
        assert isinstance(made, ItemOutcome), name
        assert made.state == "failed"
        assert reason in made.reason, name
        assert name in made.reason, name
        assert "memory to prepare" not in made.reason, name
        path.unlink()


def test_what_tries_in_vain_is_read_like_any_other(preparer, tmp_path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name, (make, word) in TAKEN.items():
        path = tmp_path / "a" / "b" / name
        path.write_bytes(make())
        made = prepared(preparer, path)
        assert isinstance(made, PreparedDocument), (name, made)
        text = " ".join(prepared.chunk.text for prepared in made.chunks)
        assert word in text, name
        assert "root:" not in text, name
        path.unlink()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
