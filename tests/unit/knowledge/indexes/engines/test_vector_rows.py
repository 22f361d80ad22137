"""Rows of vectors in files: written by one, mapped by any number of others."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from loom_core.errors import IndexDamagedError, StoreError
from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex
from loom_core.knowledge.indexes.engines.vector_rows import FileRows

DIMENSION = 4


def rows_of(count: int, *, first: int = 1) -> tuple[np.ndarray, np.ndarray]:
    keys = np.arange(first, first + count, dtype=np.int64)
    return keys, np.repeat(keys[:, None], DIMENSION, axis=1).astype(np.float32)


def opened(stem: Path, *, used: int = 0, writable: bool = False) -> FileRows:
    return FileRows(stem, dimension=DIMENSION, used=used, writable=writable)


@contextmanager
def on_a_full_disk(path: Path) -> Iterator[None]:
    """Puts the device that is always full under the descriptors by which this process has a file open."""
    full, file = os.open("/dev/full", os.O_WRONLY), path.stat()
    numbers = [int(entry.name) for entry in Path("/dev/fd").iterdir() if entry.exists()]
    kept = {number: os.dup(number) for number in numbers if os.path.samestat(os.fstat(number), file)}
    for number in kept:
        os.dup2(full, number)
    try:
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
        os.close(full)


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    """Files with three rows."""
    files = opened(tmp_path / "alphabetic", writable=True)
    files.append(*rows_of(3))
    files.flush()
    files.close()
    return tmp_path / "alphabetic"


def test_a_reader_sees_what_was_written_and_what_is_killed_under_its_eyes(stem: Path) -> None:
    writer, reader = opened(stem, used=3, writable=True), opened(stem, used=3)
    rows = reader.rows
    assert rows.keys.tolist() == [1, 2, 3]
    assert rows.matrix[:3].tolist() == rows_of(3)[1].tolist()
    writer.mark_dead(np.array([1]))
    assert rows.keys.tolist() == [1, 0, 3]
    writer.append(*rows_of(2, first=4))
    assert reader.rows.used == 3
    reader.extend(5)
    assert reader.rows.keys.tolist() == [1, 0, 3, 4, 5]
    assert reader.rows.matrix[4].tolist() == [5] * DIMENSION
    for files in (writer, reader):
        files.close()


def test_a_reader_keeps_its_map_while_the_files_grow_within_their_room(stem: Path) -> None:
    writer, reader = opened(stem, used=3, writable=True), opened(stem, used=3)
    before = reader.rows.matrix
    writer.append(*rows_of(20, first=4))
    reader.extend(23)
    assert reader.rows.matrix is before
    writer.append(*rows_of(5000, first=24))
    reader.extend(5023)
    assert reader.rows.matrix[5022].tolist() == [5023] * DIMENSION
    assert before[22].tolist() == [23] * DIMENSION
    for files in (writer, reader):
        files.close()
    assert before[0].tolist() == [1] * DIMENSION  # a search under way still reads


def test_what_a_crash_left_behind_the_rows_that_count_is_overwritten(stem: Path) -> None:
    writer = opened(stem, used=3, writable=True)
    writer.append(*rows_of(2, first=90))
    writer.close()
    writer = opened(stem, used=3, writable=True)
    assert writer.rows.keys.tolist() == [1, 2, 3]
    writer.append(*rows_of(1, first=4))
    assert writer.rows.keys.tolist() == [1, 2, 3, 4]
    assert writer.rows.matrix[3].tolist() == [4] * DIMENSION
    writer.close()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    os.truncate(path, 11)


def in_place_of_a_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("suffix", [".f32", ".keys", ".i8", ".scales"])
@pytest.mark.parametrize("harm", [Path.unlink, emptied, cut, in_place_of_a_file])
@pytest.mark.parametrize("writable", [False, True])
def test_files_that_are_missing_or_cut_off_count_as_damaged(
    stem: Path, suffix: str, harm: Callable[[Path], None], writable: bool
) -> None:
    harm(stem.with_suffix(suffix))
    with pytest.raises(IndexDamagedError, match="alphabetic"):
        opened(stem, used=3, writable=writable)


@pytest.mark.parametrize("suffix", [".f32", ".keys", ".i8", ".scales"])
def test_files_that_are_cut_off_while_they_are_in_use_are_noticed_before_they_are_read(
    stem: Path, suffix: str
) -> None:
    reader = opened(stem, used=3)
    reader.check()
    os.truncate(stem.with_suffix(suffix), 5)
    with pytest.raises(IndexDamagedError, match="too short"):
        reader.check()
    with pytest.raises(IndexDamagedError, match="fewer than"):
        reader.extend(2)
    reader.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_told_as_such_and_loses_nothing(stem: Path) -> None:
    writer = opened(stem, used=3, writable=True)
    with on_a_full_disk(stem.with_suffix(".keys")):
        with pytest.raises(StoreError, match="No space left") as caught:
            writer.append(*rows_of(1, first=4))
        assert "disk is full" in (caught.value.advice or "")
        assert writer.rows.used == 3
    writer.append(*rows_of(1, first=4))
    assert writer.rows.keys.tolist() == [1, 2, 3, 4]
    writer.close()


def test_an_index_over_files_is_the_same_after_reopening(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((300, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = ExactVectorIndex(DIMENSION, opened(tmp_path / "zh", writable=True))
    index.upsert(range(1, 301), vectors)
    index.delete(range(1, 50))
    index.upsert([60, 400], vectors[:2])
    total, found = index.total, index.search(vectors[7], 20)
    index.close()
    again = ExactVectorIndex(DIMENSION, opened(tmp_path / "zh", used=302))
    assert again.search(vectors[7], 20) == found
    assert again.count() == 252
    np.testing.assert_allclose(again.total, total, atol=1e-9)
    assert sorted(again.keys().tolist()) == [*range(50, 301), 400]
    again.close()
