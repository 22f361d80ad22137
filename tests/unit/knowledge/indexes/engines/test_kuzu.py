import subprocess
import sys
import threading
from pathlib import Path

import pytest

from loom_core.errors import IndexDamagedError, InvalidInputError, StoreBusyError
from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
from loom_core.knowledge.interface import EntityEdge, EntityNode

pytestmark = pytest.mark.slow

STRANGE = ["知识图谱", 'it\'s "x"', "a\\b\\", "l1\nl2\r\n", "😀", "", " ", "NULL", "a,b", "\\N"]
ENTITIES = [EntityNode(key, name, STRANGE[-key], key) for key, name in enumerate(STRANGE, start=1)]
RELATIONS = [EntityEdge(1, name, 2, key, 1 / key) for key, name in enumerate(STRANGE, start=1)]

WRITE_UNTIL_KILLED = """
import sys
from pathlib import Path
from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
from loom_core.knowledge.interface import EntityEdge, EntityNode
store = KuzuGraphStore(Path(sys.argv[1]), buffer_pool_mb=64)
for key in range(1, 100_000):
    store.upsert_entities([EntityNode(key, f"实体{key}", "", 1)])
    store.upsert_relations([EntityEdge(key, "is", key, 1, 0.5)])
    print(key, flush=True)
"""


def opened(path: Path, *, timeout_ms: int = 4000) -> KuzuGraphStore:
    return KuzuGraphStore(path, buffer_pool_mb=64, timeout_ms=timeout_ms)


def loaded(path: Path, entities: list[EntityNode], relations: list[EntityEdge]) -> KuzuGraphStore:
    return KuzuGraphStore.load(path, entities, relations, buffer_pool_mb=64)


def files_in(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    store = opened(tmp_path / "图" / "graph")
    store.upsert_entities(ENTITIES)
    store.upsert_relations(RELATIONS)
    store.close()
    store = opened(tmp_path / "图" / "graph")
    assert store.get(range(20)) == ENTITIES
    assert store.neighbours(1)[1] == RELATIONS[::-1]
    store.close()


def test_a_load_is_exact_and_can_be_changed_afterwards(tmp_path: Path) -> None:
    store = loaded(tmp_path / 'it\'s a "graph"', ENTITIES, RELATIONS)
    assert store.get(range(20)) == ENTITIES
    assert store.neighbours(1)[1] == RELATIONS[::-1]
    store.upsert_relations([EntityEdge(1, "", 2, 99, 0.5), EntityEdge(1, "new", 2, 98, 0.5)])
    store.delete_relations([(1, "知识图谱", 2)])
    assert store.counts() == (len(ENTITIES), len(RELATIONS))
    assert store.neighbours(1)[1][0] == EntityEdge(1, "", 2, 99, 0.5)
    store.close()


def test_a_load_replaces_what_was_there(tmp_path: Path) -> None:
    loaded(tmp_path / "graph", ENTITIES, RELATIONS).close()
    (tmp_path / "graph.wal").write_bytes(b"left behind by a crash")
    store = loaded(tmp_path / "graph", ENTITIES[:1], [])
    assert store.counts() == (1, 0)
    store.close()
    assert files_in(tmp_path) == ["graph"]


def test_a_load_takes_the_memory_it_needs_for_what_is_opened_in_less(tmp_path: Path) -> None:
    number, path = 100_000, tmp_path / "graph"
    entities = [EntityNode(key, f"Harbour number {key} of the coast", "", 3) for key in range(1, number + 1)]
    relations = [
        EntityEdge(1 + n % number, f"lies {n // number} off", 1 + (7919 * n + 13) % number, 1, 0.5)
        for n in range(220_000)
    ]
    KuzuGraphStore.load(path, entities, relations, buffer_pool_mb=16).close()
    store = KuzuGraphStore(path, buffer_pool_mb=16)
    assert store.counts() == (number, 220_000)
    store.upsert_entities(ENTITIES)
    assert store.get(range(1, 20)) == [*ENTITIES, *entities[len(ENTITIES) : 19]]
    assert len(store.neighbours(1)[1]) >= 4
    store.close()
    store = KuzuGraphStore(path, buffer_pool_mb=3)
    with pytest.raises(InvalidInputError, match="need more memory") as caught:  # and not damage
        store.neighbours(1, hops=3)
    assert "fewer hops" in (caught.value.advice or "")
    store.close()


def test_a_load_of_nothing_is_an_empty_graph(tmp_path: Path) -> None:
    store = loaded(tmp_path / "graph", [], [])
    assert store.counts() == (0, 0)
    store.close()


@pytest.mark.parametrize(
    ("entities", "relations"),
    [([*ENTITIES, ENTITIES[0]], []), (ENTITIES, [EntityEdge(1, "is", 77, 1, 0.5)])],
    ids=["an entity twice", "a relation to nowhere"],
)
def test_a_load_that_fails_leaves_nothing(
    tmp_path: Path, entities: list[EntityNode], relations: list[EntityEdge]
) -> None:
    with pytest.raises(InvalidInputError, match="cannot be loaded"):
        loaded(tmp_path / "graph", entities, relations)
    assert files_in(tmp_path) == []
    loaded(tmp_path / "graph", ENTITIES, RELATIONS).close()


def test_a_second_opening_in_the_same_process_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path / "graph")
    store.upsert_entities(ENTITIES)
    with pytest.raises(StoreBusyError, match="this process"):
        opened(tmp_path / "graph")
    with pytest.raises(StoreBusyError, match="this process"):
        loaded(tmp_path / "graph", [], [])
    assert store.counts() == (len(ENTITIES), 0)
    store.close()
    opened(tmp_path / "graph").close()


def test_another_process_cannot_open_it_and_a_killed_one_loses_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE_UNTIL_KILLED, str(tmp_path / "graph")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    while child.stdout.readline() != "20\n":
        pass
    with pytest.raises(StoreBusyError, match="Another process"):
        opened(tmp_path / "graph")
    child.kill()
    rest, _ = child.communicate()
    acknowledged = max(20, *(int(line) for line in rest.split()), 0)
    store = opened(tmp_path / "graph")
    entities, relations = store.counts()
    assert acknowledged <= relations <= entities <= acknowledged + 1
    store.close()


def test_values_that_the_engine_cannot_hold_are_refused(tmp_path: Path) -> None:
    store = opened(tmp_path / "graph")
    for entity in (EntityNode(1 << 63, "x", "", 1), EntityNode(1, "\ud800", "", 1)):
        with pytest.raises(InvalidInputError, match="cannot store"):
            store.upsert_entities([EntityNode(5, "y", "", 1), entity])
    assert store.counts() == (0, 0)
    store.close()


def test_readers_concurrent_with_a_writer_see_whole_changes(tmp_path: Path) -> None:
    """A star whose relations all have the same support: each change sets them again in one call."""
    store = opened(tmp_path / "graph")
    store.upsert_entities([EntityNode(key, f"实体{key}", "", 1) for key in range(1, 8)])
    star = [[EntityEdge(1, "has", key, turn, 0.5) for key in range(2, 8)] for turn in range(1, 16)]
    store.upsert_relations(star[0])
    torn: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            nodes, edges = store.neighbours(1, hops=2)
            if len(nodes) != 6 or len({edge.support for edge in edges}) != 1:
                torn.append(edges)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for change in star[1:]:
        store.upsert_relations(change)
    done.set()
    for reader in readers:
        reader.join()
    store.close()
    assert torn == []


def hub(path: Path, *, spokes: int = 3000) -> KuzuGraphStore:
    entities = [EntityNode(key, f"实体{key}", "thing", 1) for key in range(1, spokes + 2)]
    relations = [EntityEdge(1, "has", key, key % 5, 0.5) for key in range(2, spokes + 2)]
    return loaded(path, entities, relations)


def test_a_hub_is_cut_and_deleted_with_its_relations(tmp_path: Path) -> None:
    store = hub(tmp_path / "graph")
    nodes, edges = store.neighbours(5, hops=3, limit=20)
    assert len(nodes) == 21
    assert len(edges) == 21
    store.delete_entities([1])
    assert store.counts() == (3000, 0)
    store.close()


def test_a_question_that_takes_too_long_is_stopped_and_the_store_goes_on(tmp_path: Path) -> None:
    hub(tmp_path / "graph", spokes=30_000).close()
    store = opened(tmp_path / "graph", timeout_ms=1)
    with pytest.raises(InvalidInputError, match="in time"):
        store.neighbours(5, hops=3, limit=500)
    store.close()
    store = opened(tmp_path / "graph")
    assert store.get([5])[0].name == "实体5"
    store.close()


@pytest.mark.parametrize("content", [b"garbage" * 5000, b"KUZU", None], ids=["garbage", "short", "truncated"])
def test_a_damaged_file_is_reported_as_damage(tmp_path: Path, content: bytes | None) -> None:
    loaded(tmp_path / "graph", ENTITIES, RELATIONS).close()
    whole = (tmp_path / "graph").read_bytes()
    (tmp_path / "graph").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(IndexDamagedError, match="graph"):
        opened(tmp_path / "graph")
    (tmp_path / "graph").write_bytes(whole)
    opened(tmp_path / "graph").close()


def test_a_directory_in_place_of_the_file_is_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    with pytest.raises(IndexDamagedError):
        opened(tmp_path / "graph")
