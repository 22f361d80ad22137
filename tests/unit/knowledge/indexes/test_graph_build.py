"""A large graph is built by a child process, which may be killed at any moment, and no one waits for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_core.errors import StoreError
from loom_core.knowledge.indexes import GraphIndex
from loom_core.knowledge.indexes.graph_build import build_graph
from loom_core.knowledge.store import KnowledgeStore

pytestmark = pytest.mark.slow

TEXTS = [
    *[f"Town{n} is a town near Town{(n + 1) % 6} on the river Anna. 厦门是城市。" for n in range(6)],
    "The World Health Organization (WHO) advises Anna Town. The WHO is in Genf.",
]

ABANDONED = """
import os, sys
from pathlib import Path
from loom_core.knowledge.indexes import GraphIndex
from loom_core.knowledge.store import KnowledgeStore
folder = Path(sys.argv[1])
index = GraphIndex(KnowledgeStore(folder / "record.db"), folder, small=0)
index.sync()
print(index.building.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def make(store: KnowledgeStore, put, tmp_path: Path) -> Iterator[Callable[..., GraphIndex]]:
    """Makes an index over a few documents whose graph is always built by a child."""
    made: list[GraphIndex] = []
    put(*TEXTS)

    def index(*, folder: Path = tmp_path, deadline: float = 60.0) -> GraphIndex:
        made.append(GraphIndex(store, folder, small=0, deadline=deadline))
        return made[-1]

    yield index
    for one in made:
        one.close()


def assert_whole(index: GraphIndex, store: KnowledgeStore) -> None:
    """The graph holds exactly what the record does."""
    index.sync_all()
    if index.graph_store() is None:  # a question does not open it, but has it opened
        index.sync_all()
    graph_store = index.graph_store()
    assert graph_store is not None
    keys = store.graph.keys()
    assert set(graph_store.get(keys)) == set(store.graph.nodes(keys))
    assert set(graph_store.relations(0, keys[-1])) == set(store.graph.edges_from(keys))
    assert graph_store.counts() == (len(keys), store.graph.counts()[1])


def graph_files(folder: Path) -> list[str]:
    """Names of what there is of graphs, but for the engine's log of the one that is open."""
    return sorted(path.name for path in folder.glob("graph-*") if path.name != "graph-1.wal")


def wait_until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_whole_tables_are_what_the_record_says_of_each_entity(store: KnowledgeStore, put):
    put(*TEXTS)
    keys = store.graph.keys()
    assert list(store.graph.all_nodes()) == store.graph.nodes(keys)
    edges = list(store.graph.all_edges())
    assert len(edges) == len(set(edges))
    assert set(edges) == set(store.graph.edges_from(keys))
    assert store.aliases.groups()  # so that entities under several names were among them


def test_the_evidence_of_each_relation_is_what_the_record_is_surest_of(store: KnowledgeStore, put):
    put(*TEXTS, TEXTS[0])
    evidence = {row[:3]: row[3:] for row in store.graph.all_evidence()}
    edges = {(edge.subject, edge.predicate, edge.object): edge for edge in store.graph.all_edges()}
    assert evidence.keys() == edges.keys()
    for relation, place in evidence.items():
        assert [place] == store.graph.evidence(edges[relation], limit=1)


def test_no_one_waits_for_a_graph_that_a_child_builds(make, store: KnowledgeStore, tmp_path: Path):
    index = make()
    assert index.sync() is True
    assert index.building is not None
    assert index.sync() is False  # so that the worker turns to something else
    assert index.graph_store() is None
    assert index.lag() > 0
    assert_whole(index, store)
    assert index.building is None
    assert graph_files(tmp_path) == ["graph-1"]


def test_what_changes_while_a_child_builds_is_taken_over_afterwards(make, store: KnowledgeStore, put):
    index = make()
    index.sync()
    put("Basel is a town on the Rhine.", first=6)
    store.documents.remove(1)
    assert_whole(index, store)
    assert store.changes.state("graph").generation == 1


def test_a_graph_stays_in_force_until_the_next_one_is_built(make, store: KnowledgeStore, put, tmp_path: Path):
    index = make()
    assert_whole(index, store)
    put(*[f"Place{n} is a town near Spot{n} and Site{n}." for n in range(170)], first=10)
    assert index.sync() is True
    assert index.building is not None
    assert store.changes.state("graph").generation == 1
    assert (tmp_path / "graph-1").is_file()
    assert_whole(index, store)
    assert store.changes.state("graph").generation == 2
    index.close()
    assert graph_files(tmp_path) == ["graph-2"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_child_that_is_killed_is_followed_by_another(make, store: KnowledgeStore, tmp_path: Path):
    index = make()
    index.sync()
    os.kill(index.building.pid, signal.SIGKILL)
    while index.building is not None:
        index.wait()
        index.sync()
    assert graph_files(tmp_path) == []
    assert_whole(index, store)
    assert graph_files(tmp_path) == ["graph-1"]


def test_children_that_fail_again_and_again_are_an_error_and_tried_again(make, store: KnowledgeStore):
    index = make(deadline=0.01)
    with pytest.raises(StoreError, match=r"could not be built: no answer within 0\.01 s") as caught:
        index.sync_all()
    assert "questions read the store" in caught.value.advice
    assert_whole(make(), store)


def test_a_folder_that_is_gone_is_an_error(make, store: KnowledgeStore, tmp_path: Path):
    with pytest.raises(StoreError, match="could not be built"):
        make(folder=tmp_path / "gone").sync_all()
    assert_whole(make(), store)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_closing_ends_the_child_and_leaves_nothing_of_it(make, store: KnowledgeStore, tmp_path: Path):
    index = make()
    index.sync()
    pid = index.building.pid
    index.close()
    assert not is_running(pid)
    assert graph_files(tmp_path) == []
    assert_whole(index, store)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_child_ends_with_its_parent_and_the_next_one_starts_over(
    make, store: KnowledgeStore, tmp_path: Path
):
    done = subprocess.run(
        [sys.executable, "-c", ABANDONED, str(tmp_path)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: not is_running(int(done.stdout)))
    assert len(graph_files(tmp_path)) == 1  # what it was at
    assert store.changes.state("graph").generation == 0
    assert_whole(make(), store)
    assert graph_files(tmp_path) == ["graph-1"]


def test_generations_that_a_kill_left_behind_are_removed_and_others_files_are_not(
    make, store: KnowledgeStore, tmp_path: Path
):
    index = make()
    assert_whole(index, store)
    index.close()
    shutil.copy(tmp_path / "graph-1", tmp_path / "graph-0")
    shutil.copy(tmp_path / "graph-1", tmp_path / "graph-2")
    (tmp_path / "graph-2.wal").write_bytes(b"")
    (tmp_path / "graph-2.abc").mkdir()
    (tmp_path / "graph-2.abc" / "graph").write_bytes(b"half")
    (tmp_path / "graph-notes.txt").write_text("not ours", encoding="utf-8")
    assert_whole(make(), store)
    assert graph_files(tmp_path) == ["graph-1", "graph-notes.txt"]


@pytest.mark.slow
def test_a_damaged_graph_is_rebuilt_by_a_child_and_not_asked_meanwhile(
    make, store: KnowledgeStore, tmp_path: Path
):
    index = make()
    assert_whole(index, store)
    index.close()
    (tmp_path / "graph-1").write_bytes(b"\xff" * 5000)
    index = make()
    assert index.graph_store() is None
    while index.building is None:
        index.sync()
    assert index.graph_store() is None
    assert_whole(index, store)
    index.close()
    assert graph_files(tmp_path) == ["graph-2"]


def test_the_child_writes_only_the_graph(make, store: KnowledgeStore, tmp_path: Path):
    before = store.changes.head()
    found = build_graph(folder=str(tmp_path), database="", schema="", path=str(tmp_path / "built"))
    assert found == before == store.changes.head()
    assert (tmp_path / "built").is_file()


def test_a_machine_that_starts_no_more_processes_is_an_error(
    make, store: KnowledgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(tmp_path / "absent"))
        with pytest.raises(StoreError, match="no process can be started"):
            make().sync_all()
    assert graph_files(tmp_path) == []
    assert_whole(make(), store)
