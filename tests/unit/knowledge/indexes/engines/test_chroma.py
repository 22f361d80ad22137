from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex

pytestmark = pytest.mark.slow


def unit_vectors(count: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    rows = unit_vectors(2500)
    index = ChromaVectorIndex(tmp_path / "知识库" / "vectors", dimension=16)
    index.upsert(range(1, 2501), rows)
    index.delete(range(1, 1101))
    index.close()
    index = ChromaVectorIndex(tmp_path / "知识库" / "vectors", dimension=16)
    assert index.count() == 1400
    assert index.search(rows[2000], 1) == [(2001, pytest.approx(1.0))]
    assert index.search(rows[5], 1, among=[6]) == []
    index.close()


def test_groups_do_not_see_each_other(tmp_path: Path) -> None:
    first = ChromaVectorIndex(tmp_path / "vectors", dimension=16, group="en")
    first.upsert([1], unit_vectors(1))
    first.close()
    second = ChromaVectorIndex(tmp_path / "vectors", dimension=16, group="zh")
    assert second.count() == 0
    second.close()


def test_a_directory_of_another_dimension_counts_as_damaged(tmp_path: Path) -> None:
    ChromaVectorIndex(tmp_path / "vectors", dimension=16).close()
    with pytest.raises(IndexDamagedError, match="dimension 16"):
        ChromaVectorIndex(tmp_path / "vectors", dimension=17)
    ChromaVectorIndex(tmp_path / "vectors", dimension=16).close()


def test_a_garbage_database_is_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "chroma.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(IndexDamagedError, match="vector index"):
        ChromaVectorIndex(tmp_path, dimension=16)


def test_a_file_in_place_of_the_directory_is_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "vectors").write_text("a file", encoding="utf-8")
    with pytest.raises(IndexDamagedError):
        ChromaVectorIndex(tmp_path / "vectors", dimension=16)


def test_a_settings_file_of_the_working_directory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("IS_PERSISTENT=perhaps\nALLOW_RESET=17\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    index = ChromaVectorIndex(tmp_path / "vectors", dimension=16)
    assert index.count() == 0
    index.close()
