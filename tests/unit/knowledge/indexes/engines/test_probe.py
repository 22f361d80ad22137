import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex
from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
from loom_core.knowledge.indexes.engines.probe import (
    check_chroma,
    check_kuzu,
    check_tantivy,
    probe_chroma,
    probe_kuzu,
    probe_tantivy,
)
from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex
from loom_core.knowledge.interface import EntityEdge, EntityNode

pytestmark = pytest.mark.slow

DIMENSION = 16


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One index of each kind, closed."""
    directory = tmp_path_factory.mktemp("healthy")
    vectors = ChromaVectorIndex(directory / "vectors", dimension=DIMENSION)
    rows = np.random.default_rng(0).standard_normal((2500, DIMENSION)).astype(np.float32)
    rows[::100] = 0
    vectors.upsert(range(1, 2501), rows)
    vectors.close()
    entities = [EntityNode(key, f"实体{key}", "", 1) for key in range(1, 2000)]
    relations = [EntityEdge(key, "is", key + 1, 1, 0.5) for key in range(1, 1999)]
    KuzuGraphStore.load(directory / "graph", entities, relations, buffer_pool_mb=64).close()
    words = TantivyIndex(directory / "words")
    words.add((key, ["知识", f"词{key}"]) for key in range(1, 500))
    words.commit()
    words.close()
    return directory


@pytest.fixture
def copy(healthy: Path, tmp_path: Path) -> Path:
    shutil.copytree(healthy, tmp_path, dirs_exist_ok=True)
    return tmp_path


def is_one_line(reason: str | None) -> bool:
    return isinstance(reason, str) and bool(reason) and "\n" not in reason


def test_healthy_indexes_are_found_healthy_and_left_as_they_are(copy: Path) -> None:
    before = (copy / "graph").read_bytes()
    assert probe_chroma(copy / "vectors", dimension=DIMENSION) is None
    assert probe_kuzu(copy / "graph") is None
    assert probe_tantivy(copy / "words") is None
    assert (copy / "graph").read_bytes() == before
    KuzuGraphStore(copy / "graph").close()


def test_the_checks_themselves_find_them_healthy(copy: Path) -> None:
    assert check_chroma(path=str(copy / "vectors"), dimension=DIMENSION) is None
    assert check_kuzu(path=str(copy / "graph"), module="kuzu", max_db_size=1 << 34) is None
    assert check_tantivy(path=str(copy / "words")) is None


def test_an_empty_index_is_healthy(tmp_path: Path) -> None:
    ChromaVectorIndex(tmp_path / "vectors", dimension=4).close()
    KuzuGraphStore(tmp_path / "graph", buffer_pool_mb=64).close()
    TantivyIndex(tmp_path / "words").close()
    assert check_chroma(path=str(tmp_path / "vectors"), dimension=4) is None
    assert probe_kuzu(tmp_path / "graph") is None
    assert probe_tantivy(tmp_path / "words") is None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert probe_chroma(tmp_path / "v", dimension=4) == f"there is no vector index at {tmp_path / 'v'}"
    assert probe_kuzu(tmp_path / "g") == f"there is no graph at {tmp_path / 'g'}"
    assert probe_tantivy(tmp_path / "w") == f"there is no word index at {tmp_path / 'w'}"
    assert list(tmp_path.iterdir()) == []


def test_another_dimension_is_a_reason(copy: Path) -> None:
    path = copy / "vectors"
    assert check_chroma(path=str(path), dimension=4) == "its vectors are of dimension 16, not 4"


def test_vectors_that_are_no_longer_found_by_themselves_are_a_reason(tmp_path: Path) -> None:
    """The same search over a graph of neighbours that belongs to other vectors."""
    made: dict[str, list[Path]] = {}
    for seed, name in enumerate(("mine", "other")):
        index = ChromaVectorIndex(tmp_path / name, dimension=DIMENSION)
        rows = np.random.default_rng(seed).standard_normal((2000, DIMENSION)).astype(np.float32)
        index.upsert(range(1, 2001), rows)
        index.close()
        made[name] = [path for path in (tmp_path / name).iterdir() if path.is_dir()]
    (mine,), (other,) = made["mine"], made["other"]
    shutil.copy(other / "link_lists.bin", mine / "link_lists.bin")
    data = bytearray((mine / "data_level0.bin").read_bytes())
    size = len(data) // 2000
    for row in range(2000):  # no neighbours on the lowest level
        data[row * size : row * size + 4] = bytes(4)
    (mine / "data_level0.bin").write_bytes(data)
    reason = probe_chroma(tmp_path / "mine", dimension=DIMENSION)
    assert is_one_line(reason)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def fill_with_garbage(file: Path) -> None:
    file.write_bytes(np.random.default_rng(0).bytes(file.stat().st_size))


def overwrite_the_middle(file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.seek(size // 4)
        stream.write(np.random.default_rng(1).bytes(size // 2))


DAMAGE = [truncate, empty, fill_with_garbage, overwrite_the_middle]


@pytest.mark.parametrize("harm", DAMAGE)
def test_a_damaged_graph_gives_a_reason(copy: Path, harm) -> None:
    harm(copy / "graph")
    assert is_one_line(probe_kuzu(copy / "graph"))


def test_a_log_that_does_not_belong_to_the_graph_gives_a_reason(copy: Path) -> None:
    other = KuzuGraphStore(copy / "other", buffer_pool_mb=64)
    other.upsert_entities([EntityNode(1, "此处已有", "", 1)])
    shutil.copy(copy / "other.wal", copy / "graph.wal")
    other.close()
    assert is_one_line(probe_kuzu(copy / "graph"))


def test_a_graph_that_another_process_holds_gives_a_reason(copy: Path) -> None:
    store = KuzuGraphStore(copy / "graph")
    assert "lock" in (probe_kuzu(copy / "graph") or "")
    store.close()


@pytest.mark.parametrize("harm", [truncate, empty, fill_with_garbage])
def test_a_damaged_database_of_vectors_gives_a_reason(copy: Path, harm) -> None:
    harm(copy / "vectors" / "chroma.sqlite3")
    assert is_one_line(probe_chroma(copy / "vectors", dimension=DIMENSION))


@pytest.mark.parametrize(("name", "harm"), [("data_level0.bin", truncate), ("header.bin", fill_with_garbage)])
def test_damaged_files_of_vectors_give_a_reason(copy: Path, name: str, harm) -> None:
    (file,) = (copy / "vectors").glob(f"*/{name}")
    harm(file)
    assert is_one_line(probe_chroma(copy / "vectors", dimension=DIMENSION))


def test_lost_files_of_vectors_give_a_reason(copy: Path) -> None:
    (file,) = (copy / "vectors").glob("*/header.bin")
    shutil.rmtree(file.parent)
    assert is_one_line(probe_chroma(copy / "vectors", dimension=DIMENSION))


@pytest.mark.parametrize("harm", [truncate, empty, fill_with_garbage])
def test_a_damaged_word_index_gives_a_reason(copy: Path, harm) -> None:
    for file in (copy / "words").glob("*.idx"):
        harm(file)
    assert is_one_line(probe_tantivy(copy / "words"))


def test_a_probe_that_takes_too_long_gives_a_reason(copy: Path) -> None:
    assert probe_kuzu(copy / "graph", timeout=0.001) == "no answer within 0.001 s"
