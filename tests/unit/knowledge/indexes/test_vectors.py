"""The flat index of vectors follows the record, and any process may read it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from loom_core.knowledge.indexes import FlatVectors
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.store import KnowledgeStore
from tests.fixtures.fork_server import starts_quickly

ENGLISH = ["Zell is a town.", "The river Anna is long.", "Boats lie in the harbour.", "Bread is sold here."]
CHINESE = ["厦门是城市。", "港口里有渔船。"]


@pytest.fixture(params=["files", "memory"])
def index(request: pytest.FixtureRequest, store: KnowledgeStore, tmp_path: Path) -> Iterator[FlatVectors]:
    index = FlatVectors(store, tmp_path if request.param == "files" else None)
    yield index
    index.close()


@pytest.fixture
def files(store: KnowledgeStore, tmp_path: Path) -> Iterator[FlatVectors]:
    index = FlatVectors(store, tmp_path)
    yield index
    index.close()


@pytest.fixture
def question() -> np.ndarray:
    vector = np.arange(1, 9, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def plain(store: KnowledgeStore) -> dict[str, dict[int, np.ndarray]]:
    """Every vector of the record, by language group."""
    keys, matrix = store.vectors.of(store.documents.chunk_keys())
    languages = store.documents.languages_of(keys)
    groups: dict[str, dict[int, np.ndarray]] = {}
    for key, row in zip(keys, matrix, strict=True):
        group = "zh" if languages[key] == "zh" else "alphabetic"
        groups.setdefault(group, {})[key] = row
    return groups


def found_in(index: FlatVectors) -> LanguageVectors:
    vectors = index.searcher()
    assert vectors is not None
    return vectors


def check(store: KnowledgeStore, index: FlatVectors, question: np.ndarray) -> None:
    """The neighbours are those of the record, by language, with their average."""
    index.sync_all()
    found, expected = found_in(index).by_language(question, 10), plain(store)
    assert {group.language for group in found} == expected.keys()
    for group in found:
        rows = expected[group.language]
        assert dict(group.hits) == pytest.approx({k: float(row @ question) for k, row in rows.items()})
        cosines = [cosine for _, cosine in group.hits]
        assert cosines == sorted(cosines, reverse=True)
        assert group.size == len(rows)
        assert group.mean == pytest.approx(float(np.mean(list(rows.values()), axis=0) @ question), abs=1e-5)


def test_the_record_is_followed_language_by_language(
    store: KnowledgeStore, put, index: FlatVectors, question
):
    assert index.searcher() is None
    put(*ENGLISH, *CHINESE)
    check(store, index, question)
    put("港口很安静。", "A quay.", first=10)
    store.documents.remove(1)
    store.documents.remove(5)
    check(store, index, question)


def test_a_document_may_change_its_language(store: KnowledgeStore, put, index: FlatVectors, question):
    put("Zell is a town.")
    check(store, index, question)
    put("厦门是城市。")
    check(store, index, question)
    assert found_in(index).language_groups() == {"zh"}


def test_filters_leave_what_they_allow(store: KnowledgeStore, put, index: FlatVectors, question):
    put(*ENGLISH, *CHINESE)
    index.sync_all()
    vectors = found_in(index)
    keys = store.documents.chunk_keys()
    chinese = {key for key, group in vectors.languages([*keys, 99]).items() if group == "zh"}
    (group,) = vectors.by_language(question, 10, among=chinese)
    assert (group.language, {key for key, _ in group.hits}) == ("zh", chinese)
    assert vectors.scores(question, [99]) == {}


def test_without_an_embedder_there_is_nothing_to_follow(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path
):
    store.set("dimension", "")
    put(*ENGLISH)
    assert files.sync() is False
    assert files.lag() == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


READER = """
import json, sys
import numpy as np
from pathlib import Path
from loom_core.knowledge.indexes import FlatVectors
from loom_core.knowledge.store import KnowledgeStore
folder = Path(sys.argv[1])
record = KnowledgeStore(folder / "record.db")
index = FlatVectors(record, folder)
question = np.arange(1, 9, dtype=np.float32)
question /= np.linalg.norm(question)
for _ in sys.stdin:
    vectors = index.searcher()
    print(json.dumps(vectors and [list(group) for group in vectors.by_language(question, 10)]), flush=True)
"""


@pytest.mark.slow
def test_another_process_reads_along_and_sees_what_comes_goes_and_is_rebuilt(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path: Path, question
):
    with subprocess.Popen(
        [sys.executable, "-c", starts_quickly(READER), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        def theirs() -> list[list[object]] | None:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write("?\n")
            reader.stdin.flush()
            return json.loads(reader.stdout.readline())

        def ours() -> list[list[object]]:
            groups = found_in(files).by_language(question, 10)
            return json.loads(json.dumps([list(group) for group in groups]))

        assert theirs() is None
        for change in (
            lambda: put(*ENGLISH),
            lambda: put(*CHINESE, first=10),
            lambda: store.documents.remove(1),
            lambda: put(*[f"Place number {n}." for n in range(40)], first=20),
            lambda: store.changes.mark_damaged("vectors", generation=1),
            lambda: store.documents.remove(2),
        ):
            change()
            files.sync_all()
            assert theirs() == ours()
        assert store.changes.state("vectors").generation == 2
        reader.stdin.close()


def test_what_a_writer_did_before_it_died_is_done_again_without_a_trace(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path: Path, question
):
    """It dies after each of its writes: to the matrix, the keys, the state; before the watermark."""
    put(*ENGLISH)
    files.sync_all()
    before = store.changes.state("vectors").watermark
    put(*CHINESE, "One more.", first=10)
    store.documents.remove(1)
    saved = {path: path.read_bytes() for path in (tmp_path / "vectors-1").iterdir()}
    files.sync_all()
    files.close()
    for state in (False, True):
        if not state:
            (tmp_path / "vectors-1" / "state.json").write_bytes(saved[tmp_path / "vectors-1" / "state.json"])
        store.changes.advance("vectors", before)
        again = FlatVectors(store, tmp_path)
        check(store, again, question)
        again.close()
        assert store.changes.state("vectors").generation == 1


@pytest.mark.parametrize(
    "group", ["alphabetic.f32", "alphabetic.keys", "alphabetic.i8", "zh.f32", "zh.keys", "state.json"]
)
@pytest.mark.parametrize("size", [None, 0, 11])
def test_files_that_are_gone_emptied_or_cut_off_are_found_and_rebuilt(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path: Path, question, group: str, size: int | None
):
    put(*ENGLISH, *CHINESE)
    files.sync_all()
    files.close()
    path = tmp_path / "vectors-1" / group
    path.unlink() if size is None else os.truncate(path, size)
    assert FlatVectors(store, tmp_path).searcher() is None  # any process may find it
    check(store, files, question)
    assert store.changes.state("vectors").generation == 2


def test_damage_is_found_by_the_process_that_works_before_anyone_asks(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path: Path
):
    put(*ENGLISH)
    files.sync_all()
    files.close()
    shutil.rmtree(tmp_path / "vectors-1")
    files.sync_all()
    assert store.changes.state("vectors").generation == 2


def test_files_that_are_cut_off_while_they_are_read_end_no_process(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path: Path, question
):
    put(*ENGLISH)
    files.sync_all()
    assert files.searcher() is not None
    os.truncate(tmp_path / "vectors-1" / "alphabetic.f32", 0)
    assert files.searcher() is None
    check(store, files, question)


def other_vectors(folder: Path) -> None:
    path = folder / "alphabetic.f32"
    path.write_bytes(np.roll(np.fromfile(path, dtype=np.float32), 3).tobytes())


def other_dimension(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text(encoding="ascii"))
    (folder / "state.json").write_text(json.dumps({**state, "dimension": 7}), encoding="ascii")


def no_group(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text(encoding="ascii"))
    (folder / "state.json").write_text(json.dumps({**state, "groups": {}}), encoding="ascii")


@pytest.mark.parametrize("swap", [other_vectors, other_dimension, no_group])
def test_files_of_another_knowledge_base_are_found(
    store: KnowledgeStore, put, files: FlatVectors, tmp_path: Path, question, swap: Callable[[Path], None]
):
    put(*ENGLISH)
    files.sync_all()
    files.close()
    swap(tmp_path / "vectors-1")
    assert files.searcher() is None
    check(store, files, question)


def test_files_that_are_mostly_dead_rows_are_rebuilt(store: KnowledgeStore, put, tmp_path: Path, question):
    files = FlatVectors(store, tmp_path, waste=10)
    put(*ENGLISH)
    files.sync_all()
    for round_ in range(6):
        put(*[f"The text of round {round_} is number {n}." for n in range(4)])
        check(store, files, question)
    assert store.changes.state("vectors").generation > 1
    assert found_in(files).dead() <= 14
    files.close()
