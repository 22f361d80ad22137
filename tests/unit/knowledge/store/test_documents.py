"""Documents and chunks: what is put is there, what is removed is not, and what stays keeps its key."""

from __future__ import annotations

from loom_core.knowledge.filters import Filters, parse_filters
from loom_core.knowledge.store import KnowledgeStore

PARTS = [
    " ".join(f"Sentence {n}{i} of part {n} tells of the town of Zell and of Anna." for i in range(3))
    for n in range(4)
]


def filters_of(store: KnowledgeStore, filters: dict[str, object]) -> Filters:
    return parse_filters(filters, store.documents.field_names())


def test_a_document_that_was_put_can_be_read_in_every_way(store: KnowledgeStore, prepare):
    document = prepare("\n\n".join(PARTS), title="Zell", author="Anna", year=1999)
    assert store.documents.upsert(document) == "added"
    row = store.documents.get("text:a")
    assert row is not None
    assert row == store.documents.get(document.id)
    assert row == store.documents.by_key([row.key, 999])[row.key]
    assert (row.title, row.language, row.metadata) == ("Zell", "en", {"author": "Anna", "year": 1999})
    assert store.documents.text(row.key) == "\n\n".join(PARTS)
    chunks = store.documents.chunks_of(row.key)
    assert [c.text for c in chunks] == [p.chunk.text for p in document.chunks]
    assert store.documents.chunk(chunks[1].id) == chunks[1]
    assert store.documents.chunk_keys() == [c.key for c in chunks]
    assert store.documents.chunk_keys(after=chunks[0].key, limit=1) == [chunks[1].key]
    assert store.documents.last_chunk() == chunks[-1].key
    assert store.documents.counts() == (1, len(chunks), document.length)
    assert store.documents.languages() == {"en": len(chunks)}


def test_languages_of_chunks_are_told_and_those_that_are_gone_left_out(store: KnowledgeStore, prepare):
    for n, text in enumerate(("A town.", "厦门是城市。", "これは町です。", "12 345")):
        store.documents.upsert(prepare(text, uri=f"text:{n}"))
    keys = store.documents.chunk_keys()
    assert store.documents.languages_of([*keys, 99]) == dict(
        zip(keys, ("en", "zh", "ja", "und"), strict=True)
    )
    store.documents.remove(1)
    assert store.documents.languages_of(keys[:2]) == {keys[1]: "zh"}
    assert store.documents.languages_of([]) == {}


def test_what_is_not_there_is_not_found(store: KnowledgeStore):
    assert store.documents.get("text:a") is None
    assert store.documents.chunk("d.1") is None
    assert store.documents.text(1) == ""
    assert store.documents.last_chunk() == 0
    assert store.documents.list(uri_prefix="\ud800") == []
    assert store.jobs.get("\ud800") is None
    store.documents.remove(1)
    assert store.documents.counts() == (0, 0, 0)


def test_the_same_document_again_changes_nothing(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare(PARTS[0]))
    head = store.changes.head()
    assert store.documents.is_current("text:a", prepare(PARTS[0]).hash)
    assert store.documents.upsert(prepare(PARTS[0])) == "unchanged"
    assert store.changes.head() == head


def test_an_update_keeps_the_keys_of_chunks_that_did_not_change(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("\n\n".join(PARTS)))
    before = {c.text: (c.key, c.id) for c in store.documents.chunks_of(1)}
    head = store.changes.head()
    assert (
        store.documents.upsert(prepare("\n\n".join([PARTS[0].replace("Zell", "Graz"), *PARTS[1:]])))
        == "updated"
    )
    after = {c.text: (c.key, c.id) for c in store.documents.chunks_of(1)}
    kept = before.keys() & after.keys()
    assert len(kept) >= 3
    assert {text: after[text] for text in kept} == {text: before[text] for text in kept}
    changed = store.changes.since(head)
    assert changed is not None
    assert set(changed.keys["chunk-"]) == {key for text, (key, _) in before.items() if text not in kept}
    assert set(changed.keys["chunk+"]) == {key for text, (key, _) in after.items() if text not in kept}


def test_chunks_that_only_moved_get_new_places_and_nothing_else(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("\n\n".join(PARTS)))
    before = {c.text: c for c in store.documents.chunks_of(1)}
    store.documents.upsert(prepare("\n\n".join(reversed(PARTS))))
    after = store.documents.chunks_of(1)
    text = store.documents.text(1)
    assert [c.ordinal for c in after] == list(range(len(after)))
    for chunk in after:
        assert text[chunk.start : chunk.end] == chunk.text
        assert before[chunk.text].key == chunk.key


def test_passages_that_are_the_same_are_told_apart(store: KnowledgeStore, prepare):
    same = "The very same words in every passage of this document, again and again and again. " * 3
    store.documents.upsert(prepare("\n\n".join([same] * 3)))
    keys = [c.key for c in store.documents.chunks_of(1)]
    store.documents.upsert(prepare("\n\n".join([same] * 2)))
    assert [c.key for c in store.documents.chunks_of(1)] == keys[: len(store.documents.chunks_of(1))]
    assert len(store.documents.chunks_of(1)) < len(keys)


def test_documents_are_listed_in_order_and_by_prefix(store: KnowledgeStore, prepare):
    for uri in ("file:///a/1.md", "file:///b/2.md", "file:///a/3.md"):
        store.documents.upsert(prepare("text", uri=uri))
    assert [d.uri for d in store.documents.list(uri_prefix="file:///a/")] == [
        "file:///a/1.md",
        "file:///a/3.md",
    ]
    assert [d.key for d in store.documents.list(after=1, limit=1)] == [2]


def test_filters_choose_all_chunks_of_the_documents_that_fulfil_them(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("\n\n".join(PARTS), uri="file:///docs/a.md", tags=["red"], year=1999))
    store.documents.upsert(
        prepare(
            "一些文字。",
            uri="file:///docs/b.md",
            title="城市",
            tags=["red"],
            draft=True,
            nothing=None,
            deep={},
        )
    )
    (first, second) = store.documents.list()
    for filters, documents in (
        ({}, [first, second]),
        ({"tags": "red"}, [first, second]),
        ({"year": 1999}, [first]),
        ({"year": {"ne": 1999}}, [second]),
    ):
        keys = store.documents.chunk_keys_where(filters_of(store, filters))
        assert keys == {chunk.key for row in documents for chunk in store.documents.chunks_of(row.key)}
    assert store.documents.field_names() == ["draft", "language", "tags", "title", "type", "year"]


def test_fields_follow_an_update_and_go_with_their_document(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text.", tags=["red"]))
    store.documents.upsert(prepare("Some text.", tags=["blue"]))
    assert not store.documents.chunk_keys_where(filters_of(store, {"tags": "red"}))
    assert len(store.documents.chunk_keys_where(filters_of(store, {"tags": "blue"}))) == 1
    store.documents.remove(1)
    assert store.documents.field_names() == []


def test_a_key_is_never_used_twice(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare(PARTS[0]))
    last = store.documents.last_chunk()
    store.documents.remove(1)
    store.documents.upsert(prepare(PARTS[0]))
    assert min(store.documents.chunk_keys()) > last


def test_the_character_0_is_in_no_field_and_in_no_id(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text.", **{"ta\0gs": ["r\0ed"]}))
    assert store.documents.chunk_keys_where(filters_of(store, {"tags": "red"})) == {1}
    assert store.documents.chunk_keys_where(filters_of(store, {"tags": "r\0ed"})) == {1}
    assert store.documents.get("text:a\0") is store.documents.chunk("\0") is None


def test_texts_are_sorted_by_their_code_points(store: KnowledgeStore, prepare):
    names = ["Zell", "a", "aa", "ä", "Ａ", "中", "\U00020000", "_", " "]
    store.documents.upsert(prepare("Some text.", **{f"x{name}": 1 for name in names}))
    found = [name for name in store.documents.field_names() if name.startswith("x")]
    assert found == sorted(f"x{name}" for name in names)
