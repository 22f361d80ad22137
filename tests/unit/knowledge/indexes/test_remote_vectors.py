"""Vectors in a database follow the record, and answer as the flat index does; the server may be away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from loom_core.errors import StoreUnavailableError
from loom_core.knowledge.indexes import FlatVectors
from loom_core.knowledge.indexes.language_vectors import DenseSearch, Neighbours
from loom_core.knowledge.indexes.remote_vectors import RemoteSearch, RemoteVectors
from loom_core.knowledge.indexes.vectors import VectorIndexes
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.chunk_keys import ChunkKeys
from tests.fixtures.plain_vector_index import PlainServer, Row

ENGLISH = [f"Town {n} is a town." for n in range(30)]
CHINESE = ["厦门是城市。", "港口里有渔船。", "银行在街角。"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def server(url: str) -> PlainServer:
    return PlainServer.at(url)


@pytest.fixture
def remote(store: KnowledgeStore, tmp_path: Path, url: str) -> Iterator[RemoteVectors]:
    index = RemoteVectors(store, tmp_path, f"plain+{url}")
    yield index
    index.close()


@pytest.fixture
def question() -> np.ndarray:
    vector = np.arange(1, 9, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def only_collection(server: PlainServer) -> dict[int, Row]:
    [(_, table)] = server.collections.values()
    return table


def flat_search(store: KnowledgeStore) -> DenseSearch:
    flat = FlatVectors(store, None)
    flat.sync_all()
    found = flat.searcher()
    assert found is not None
    return found


def check(store: KnowledgeStore, remote: RemoteVectors, server: PlainServer, question: np.ndarray) -> None:
    """The collection is equal to the record, item by item, and finds what the flat index finds."""
    remote.sync_all()
    keys, matrix = store.vectors.of(store.documents.chunk_keys())
    table = only_collection(server)
    assert sorted(table) == sorted(keys)
    places = store.documents.places_of(keys)
    for key, vector in zip(keys, matrix, strict=True):
        assert np.array_equal(table[key][0], vector)
        assert table[key][2] == places[key][1]
    found = remote.searcher()
    assert found is not None
    assert_same(found.by_language(question, 5), flat_search(store).by_language(question, 5))
    for group in flat_search(store).language_groups():
        assert_same(
            found.by_language(question, 5, only={group}),
            flat_search(store).by_language(question, 5, only={group}),
        )
    assert found.by_language(question, 5, only={"absent"}) == []
    assert found.language_groups() == flat_search(store).language_groups()


def assert_same(ours: list[Neighbours], theirs: list[Neighbours]) -> None:
    ours, theirs = sorted(ours), sorted(theirs)
    assert [(each.language, each.size) for each in ours] == [(each.language, each.size) for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.mean == pytest.approx(other.mean, abs=1e-5)
        assert [key for key, _ in one.hits] == [key for key, _ in other.hits]
        assert [cosine for _, cosine in one.hits] == pytest.approx([c for _, c in other.hits], abs=1e-5)


def test_the_record_is_followed(store, put, remote, server, question):
    assert remote.searcher() is None
    put(*ENGLISH)
    check(store, remote, server, question)
    put(*CHINESE, first=30)
    check(store, remote, server, question)
    put("Zell is a village.", first=7)  # another text for a document
    check(store, remote, server, question)
    store.documents.remove(4)
    store.documents.remove(32)
    check(store, remote, server, question)
    assert remote.lag() == 0


def test_what_the_database_has_not_got_yet_is_found_and_what_is_gone_is_not(
    store, put, remote, server, question
):
    put(*ENGLISH, *CHINESE)
    remote.sync_all()
    held = dict(only_collection(server))
    gone = next(iter(store.documents.chunk_documents()))[1]
    store.documents.remove(gone)
    put("A harbour master is at the harbour.", "港长住在港口。", "Ein Hafenmeister wohnt im Hafen.")
    assert only_collection(server) == held
    found = remote.searcher()
    assert found is not None
    assert_same(found.by_language(question, 40), flat_search(store).by_language(question, 40))
    everything = ChunkKeys(store.documents.chunk_keys())
    found = RemoteSearch(remote, store, exact_among=0)
    assert_same(
        found.by_language(question, 5, among=everything),
        flat_search(store).by_language(question, 5, among=everything),
    )


def test_a_collection_that_has_doubled_is_built_for_fast_searches_again(store, put, remote, server):
    put(*ENGLISH[:10])
    remote.sync_all()
    assert len(server.builds) == 1
    put(*ENGLISH[10:15], first=10)
    remote.sync_all()
    assert len(server.builds) == 1
    put(*ENGLISH[15:], first=15)
    remote.sync_all()
    assert len(server.builds) == 2
    assert store.changes.state("remote").generation == 1


def test_all_languages_are_asked_in_one_request(store, put, remote, server, question):
    put(*ENGLISH, *CHINESE)
    remote.sync_all()
    found = remote.searcher()
    assert found is not None
    found.language_groups()
    before = server.searches
    assert len(found.by_language(question, 5)) == 2
    assert server.searches == before + 1


def test_what_is_read_of_given_passages_comes_from_the_store(store, put, remote, server, question):
    put(*ENGLISH, *CHINESE)
    remote.sync_all()
    found, flat = remote.searcher(), flat_search(store)
    assert found is not None
    keys = [*store.documents.chunk_keys()[::4], 999]
    server.away = "it is off"
    assert found.scores(question, keys) == pytest.approx(flat.scores(question, keys), abs=1e-5)
    assert np.allclose(found.vectors(keys), flat.vectors(keys), atol=1e-5)
    assert found.languages(keys) == flat.languages(keys)


@pytest.mark.parametrize(
    ("exact_among", "most_documents"), [(100, 100), (0, 100), (0, 0)], ids=["exact", "told", "asked for more"]
)
def test_filters_give_what_the_flat_index_gives(
    store, put, remote, question, exact_among: int, most_documents: int
):
    put(*ENGLISH, *CHINESE)
    remote.sync_all()
    search = RemoteSearch(remote, store, exact_among=exact_among, most_documents=most_documents)
    keys = store.documents.chunk_keys()
    for allowed in (keys[::2], keys[-4:], keys[:1], []):
        among = ChunkKeys(allowed)
        flat = flat_search(store).by_language(question, 5, among=among)
        found = search.by_language(question, 5, among=among)
        assert_same(found, flat)


def test_a_passage_that_the_engine_shows_in_spite_of_a_filter_is_left_out(
    store, put, remote, server, question
):
    put(*ENGLISH)
    remote.sync_all()
    table = only_collection(server)
    table.update({key: (vector, language, 1) for key, (vector, language, _) in table.items()})
    allowed = ChunkKeys(store.documents.chunk_keys(limit=1))
    search = RemoteSearch(remote, store, exact_among=0)
    [found] = search.by_language(question, len(table), among=allowed)
    assert {key for key, _ in found.hits} == set(allowed)


def test_a_server_that_is_away_is_no_damage(store, put, remote, server, question):
    put(*ENGLISH)
    remote.sync_all()
    found = remote.searcher()
    assert found is not None
    server.away = "it is off"
    put(*CHINESE, first=30)
    assert not remote.sync()
    assert "cannot be asked: it is off" in remote.problem
    with pytest.raises(StoreUnavailableError, match="it is off"):
        found.by_language(question, 5)
    assert store.changes.state("remote").built
    server.away = ""
    assert not remote.sync()  # it is not asked again at once
    with pytest.raises(StoreUnavailableError):
        found.by_language(question, 5)
    again = RemoteVectors(store, Path(remote._home), remote.setting)
    check(store, again, server, question)
    assert again.problem == ""
    assert store.changes.state("remote").generation == 1


def test_a_server_that_comes_back_with_less_gets_everything_again(store, put, remote, server, question):
    put(*ENGLISH)
    remote.sync_all()
    kept = dict(server.collections)
    server.away = "it is off"
    with pytest.raises(StoreUnavailableError):
        remote.ask(lambda index: index.count())
    server.away, server.collections = "", {}
    assert kept
    remote._asked_again = 0.0  # ten seconds later
    check(store, remote, server, question)
    assert remote.problem == ""
    assert store.changes.state("remote").generation == 2


def test_a_language_whose_passages_are_all_gone_is_no_longer_looked_for(store, put, remote, server, question):
    put(*ENGLISH, *CHINESE)
    remote.sync_all()
    for document in (31, 32, 33):
        store.documents.remove(document)
    check(store, remote, server, question)
    before = remote._languages
    remote.searcher().language_groups()
    assert remote._languages is before


def test_a_server_that_is_away_while_a_collection_is_built_gets_the_rest_later(
    store, put, remote, server, question
):
    put(*ENGLISH)
    assert remote.sync(limit=1)
    server.away = "it is off"
    assert not remote.sync()
    assert remote.searcher() is None
    server.away = ""
    again = RemoteVectors(store, Path(remote._home), remote.setting)
    check(store, again, server, question)


@pytest.mark.parametrize("damage", ["gone", "emptied", "exchanged", "of another dimension"])
def test_a_collection_that_differs_is_built_again(store, put, remote, server, question, damage: str):
    put(*ENGLISH)
    remote.sync_all()
    remote.close()
    [(name, (dimension, table))] = server.collections.items()
    if damage == "gone":
        del server.collections[name]
    elif damage == "emptied":
        server.collections[name] = dimension, {}
    elif damage == "exchanged":
        server.collections[name] = dimension, {key: (-row[0], *row[1:]) for key, row in table.items()}
    else:
        server.collections[name] = 3, table
    again = RemoteVectors(store, Path(remote._home), remote.setting)
    again.sync_all()
    assert store.changes.state("remote").generation == 2
    check(store, again, server, question)


def test_a_collection_that_goes_while_questions_are_asked_is_built_again(
    store, put, remote, server, question
):
    put(*ENGLISH)
    remote.sync_all()
    found = remote.searcher()
    assert found is not None
    found.language_groups()
    server.collections.clear()
    with pytest.raises(StoreUnavailableError, match="written again from the store"):
        found.by_language(question, 5)
    assert remote.searcher() is None
    check(store, remote, server, question)


def test_a_copy_of_the_folder_gets_a_collection_of_its_own(
    store, put, remote, server, question, tmp_path: Path
):
    put(*ENGLISH)
    remote.sync_all()
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("record.db*"):
        shutil.copy(file, copy)
    theirs = KnowledgeStore(copy / "record.db")
    second = RemoteVectors(theirs, copy, remote.setting)
    assert second.searcher() is None
    second.sync_all()
    assert len(server.collections) == 2
    second.discard()
    check(store, remote, server, question)
    theirs.close()


# -- with the other indexes ---------------------------------------------------------------------------


@pytest.fixture
def indexes(store: KnowledgeStore, tmp_path: Path) -> Iterator[Callable[[str], VectorIndexes]]:
    opened: list[VectorIndexes] = []

    def open_as(setting: str) -> VectorIndexes:
        store.set("vectors", setting)
        opened.append(VectorIndexes(store, folder=tmp_path, lock=None))
        return opened[-1]

    yield open_as
    for each in opened:
        each.close()


def settle(indexes: VectorIndexes) -> None:
    while indexes.sync():
        pass


def test_a_database_takes_the_place_of_the_flat_files_and_the_other_way_round(
    store, put, server, url, question, indexes, tmp_path: Path
):
    put(*ENGLISH, *CHINESE)
    ours = indexes("exact")
    settle(ours)
    flat = ours.current()
    assert flat is not None
    before = flat.by_language(question, 5)

    store.set("vectors", f"plain+{url}")  # by another process, say
    assert ours.current() is not None  # the flat files answer until the collection is built
    settle(ours)
    found = ours.current()
    assert isinstance(found, RemoteSearch)
    assert_same(found.by_language(question, 5), before)
    assert not list(tmp_path.glob("vectors-*"))
    assert [index.name for index in ours.maintained] == ["remote"]
    assert ours.languages() == {"alphabetic", "zh"}

    store.set("vectors", "exact")
    settle(ours)
    flat = ours.current()
    assert flat is not None
    assert_same(flat.by_language(question, 5), before)
    assert server.collections == {}
    assert store.changes.state("remote").generation == 0


def test_another_database_takes_the_place_of_the_first(store, put, server, url, indexes):
    put(*ENGLISH)
    settle(indexes(f"plain+{url}"))
    other = PlainServer.at(url + "/other")
    settle(indexes(f"plain+{url}/other"))
    assert server.collections == {}
    assert len(only_collection(other)) == len(ENGLISH)


def test_a_database_that_cannot_be_reached_is_left_as_it_is(store, put, server, url, indexes, question):
    put(*ENGLISH)
    settle(indexes(f"plain+{url}"))
    server.away = "it is off"
    ours = indexes("exact")
    settle(ours)
    flat = ours.current()
    assert flat is not None
    assert flat.by_language(question, 5)
    assert store.changes.state("remote").generation == 0
    assert len(server.collections) == 1


def test_why_there_are_no_vectors_is_explained(store, put, server, url, indexes):
    put(*ENGLISH)
    ours = indexes(f"plain+{url}")
    server.away = "it is off"
    assert ours.current() is None
    assert "being written to plain+" in ours.explain_absence()
    settle(ours)
    assert "it is off" in ours.explain_absence()
    assert "it is off" in ours.server.problem
    assert ours.server.lag() > 0
    assert ours.files_have(store.changes.head())


def test_the_name_of_the_collection_is_kept_with_folder_and_setting(store, put, remote, server, tmp_path):
    put(*ENGLISH)
    remote.sync_all()
    kept = json.loads(store.get("collection"))
    assert kept == {"id": kept["id"], "folder": str(tmp_path.resolve()), "setting": remote.setting}
    assert list(server.collections) == [f"loom_{kept['id']}_1"]
