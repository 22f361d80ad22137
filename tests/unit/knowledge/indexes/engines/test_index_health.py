"""Indexes that do not open are named, and those that do are as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from loom_kb.command_line.doctor import find_damaged_indexes

pytestmark = pytest.mark.slow


@pytest.fixture
def chroma(tmp_path: Path) -> Path:
    import numpy as np

    from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex

    path = tmp_path / "chroma-3"
    index = ChromaVectorIndex(path, dimension=8, group="alphabetic")
    index.upsert(list(range(1, 101)), np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32))
    index.close()
    return path


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def damaged(folder: Path, name: str, generation: int) -> list[tuple[str, str]]:
    return list(find_damaged_indexes(folder, {name: generation}, dimension=8, seconds=60))


@pytest.mark.slow
def test_chroma_is_opened_without_a_byte_of_it_being_changed(chroma: Path, tmp_path: Path):
    before = contents(tmp_path)
    assert damaged(tmp_path, "chroma", 3) == []
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_chroma_that_does_not_open_is_named_with_its_own_place(chroma: Path, tmp_path: Path):
    (chroma / "chroma.sqlite3").write_bytes(b"no database " * 1000)
    [(name, reason)] = damaged(tmp_path, "chroma", 3)
    assert name == "chroma"
    assert "database" in reason
    (chroma / "chroma.sqlite3").unlink()
    assert damaged(tmp_path, "chroma", 3) == [("chroma", f"there is no vector index at {chroma}")]


@pytest.mark.parametrize("name", ["words", "graph", "vectors"])
def test_an_index_that_is_not_there_does_not_open(tmp_path: Path, name: str):
    [(found, reason)] = damaged(tmp_path, name, 1)
    assert found == name
    assert str(tmp_path / f"{name}-1") in reason
