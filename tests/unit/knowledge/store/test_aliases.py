"""Which entities are the same: groups are a function of what speaks for them, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.aliases import AliasDecision, AliasTable, StatedAlias

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

IDS = [
    "world health organization",
    "who",
    "世界卫生组织",
    "system admin",
    "systemadmin",
    "women helping others",
]


def table_with(store: KnowledgeStore, chunks: int = 4) -> AliasTable:
    with store.database.write() as db:
        db.execute(
            "INSERT INTO documents (key, id, uri, title, title_source, mime, language, text, length, hash, "
            "metadata, added_at, updated_at) VALUES (1, 'd', 'u', '', 'none', '', '', '', 0, '', '{}', 0, 0)"
        )
        db.executemany(
            'INSERT INTO chunks (key, id, document, ordinal, start, "end", kind, name, heading_path, '
            "language, keywords, hash, vector_hash, text) "
            "VALUES (?, ?, 1, ?, 0, 9, '', '', '[]', '', '[]', '', '', '')",
            [(key, str(key), key) for key in range(1, chunks + 1)],
        )
        db.executemany(
            "INSERT INTO entities (key, id, form) VALUES (?, ?, ?)",
            [(key, id_, id_.replace(" ", "")) for key, id_ in enumerate(IDS, 1)],
        )
    return AliasTable(store.database)


@pytest.fixture
def table(store: KnowledgeStore) -> AliasTable:
    return table_with(store)


def stated(
    chunk: int, entity: int, other: int, kind: Any = "acronym", confidence: float = 0.9
) -> StatedAlias:
    return StatedAlias(chunk, entity, other, kind, 0, 9, confidence)


def groups(table: AliasTable) -> list[set[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    for entity, canonical in table.canonical_of(range(1, len(IDS) + 1)).items():
        found[canonical].add(IDS[entity - 1])
    return sorted(found.values(), key=sorted)


def test_what_passages_say_makes_a_group_and_goes_with_them(table: AliasTable) -> None:
    assert table.regroup(table.add([stated(1, 1, 2), stated(2, 3, 1, "also_called")])) == {1, 2, 3}
    assert groups(table) == [{IDS[0], IDS[1], IDS[2]}]
    assert table.regroup(table.remove([2])) == {2, 3}  # and the one that stands for them
    assert groups(table) == [{IDS[0], IDS[1]}]
    assert table.regroup(table.remove([1])) == {1, 2}
    assert groups(table) == []


def test_a_statement_lives_as_long_as_one_passage_makes_it(table: AliasTable) -> None:
    table.regroup(table.add([stated(1, 1, 2), stated(2, 1, 2)]))
    assert table.regroup(table.remove([1])) == set()
    assert groups(table) == [{IDS[0], IDS[1]}]


def test_only_what_is_said_for_the_first_time_or_more_surely_is_news(table: AliasTable) -> None:
    assert table.add([stated(1, 1, 2), stated(1, 3, 1, "translation", 0.5)]) == {1, 2}
    assert table.add([stated(2, 1, 2), stated(2, 3, 1, "translation", 0.5)]) == set()
    assert table.add([stated(3, 1, 2, confidence=0.95), stated(3, 3, 1, "translation")]) == {1, 2, 3}
    assert table.add([stated(4, 1, 2, "also_called")]) == {1, 2}


def test_an_acronym_of_two_things_merges_neither(table: AliasTable) -> None:
    table.regroup(table.add([stated(1, 1, 2)]))
    assert table.regroup(table.add([stated(2, 6, 2)])) == {1, 2}
    assert groups(table) == []
    assert [(pair.entity, pair.other) for pair in table.suggestions()] == [(1, 2), (6, 2)]
    table.regroup(table.remove([2]))
    assert groups(table) == [{IDS[0], IDS[1]}]


def test_what_is_unsure_is_suggested_only(table: AliasTable) -> None:
    table.regroup(table.add([stated(1, 3, 1, "translation", 0.5)]))
    assert groups(table) == []
    (pair,) = table.suggestions()
    assert (pair.kind, pair.confidence, pair.chunk) == ("translation", 0.5, 1)
    assert table.locate(pair) == (0, 9)


def test_a_person_may_merge_and_split_and_forget_it_again(table: AliasTable) -> None:
    table.decide(AliasDecision(IDS[2], IDS[3], True))
    table.regroup([3])
    assert groups(table) == [{IDS[2], IDS[3]}]
    table.decide(AliasDecision(IDS[3], IDS[2], False))
    table.regroup([3])
    assert groups(table) == []
    assert table.suggestions() == []
    assert [(d.same, {d.id, d.other}) for d in table.decisions()] == [(False, {IDS[2], IDS[3]})]
    assert table.clear_decision(IDS[2], IDS[3])
    assert not table.clear_decision(IDS[2], IDS[3])


def test_what_was_declared_different_is_apart_whatever_connects_it(table: AliasTable) -> None:
    table.decide(AliasDecision(IDS[1], IDS[2], False))
    table.regroup(table.add([stated(1, 1, 2), stated(2, 3, 1, "also_called")]))
    assert all(not {IDS[1], IDS[2]} <= group for group in groups(table))
    assert len(groups(table)) == 1


def test_spellings_are_merged_where_the_embedder_finds_them_alike(table: AliasTable) -> None:
    assert table.note_new([4, 5]) == set()
    assert table.pending_comparisons(limit=5) == [(4, 5)]
    table.regroup(table.store_similarities([(4, 5, 0.9)]))
    assert groups(table) == []
    assert [pair.kind for pair in table.suggestions()] == ["spelling"]
    table.regroup(table.store_similarities([(4, 5, 0.98)]))
    assert groups(table) == [{IDS[3], IDS[4]}]
    assert table.pending_comparisons(limit=5) == []


def test_a_new_entity_that_was_decided_about_is_told(table: AliasTable) -> None:
    table.decide(AliasDecision(IDS[5], IDS[0], True))
    assert table.note_new([6, 2]) == {6}


def test_groups_are_listed_in_pages_with_their_members(table: AliasTable) -> None:
    table.regroup(table.add([stated(1, 1, 2)]))
    table.decide(AliasDecision(IDS[2], IDS[3], True))
    table.regroup([3])
    first = table.groups(limit=1)
    second = table.groups(limit=1, after=first[-1])
    assert not table.groups(limit=1, after=second[-1])
    assert sorted(map(sorted, table.members_of([*first, *second]).values())) == [[1, 2], [3, 4]]


STEPS = st.one_of(
    st.tuples(
        st.just("add"),
        st.integers(1, 4),
        st.integers(1, 6),
        st.integers(1, 6),
        st.sampled_from(["acronym", "also_called", "translation"]),
        st.sampled_from([0.5, 0.9, 0.95]),
    ),
    st.tuples(st.just("remove"), st.integers(1, 4)),
    st.tuples(st.just("decide"), st.sampled_from(IDS), st.sampled_from(IDS), st.booleans()),
    st.tuples(st.just("undecide"), st.sampled_from(IDS), st.sampled_from(IDS)),
)


@settings(max_examples=80)
@given(st.lists(STEPS, max_size=14))
def test_whatever_came_and_went_the_groups_are_those_of_a_table_made_again(
    steps: list[tuple[Any, ...]],
) -> None:
    store, fresh = KnowledgeStore(None), KnowledgeStore(None)
    table = table_with(store)
    keys = {id_: key for key, id_ in enumerate(IDS, 1)}
    actions: dict[str, Callable[..., Any]] = {
        "add": lambda *values: table.regroup(table.add([stated(*values)])),
        "remove": lambda chunk: table.regroup(table.remove([chunk])),
        "decide": lambda one, two, same: (
            one != two
            and (table.decide(AliasDecision(one, two, same)), table.regroup([keys[one], keys[two]]))
        ),
        "undecide": lambda one, two: table.clear_decision(one, two) and table.regroup([keys[one], keys[two]]),
    }
    for name, *values in steps:
        actions[name](*values)
    rebuilt = table_with(fresh)
    rows = store.database.rows("SELECT * FROM alias_statements")
    for decision in table.decisions():
        rebuilt.decide(decision)
    rebuilt.add(StatedAlias(*row) for row in rows)
    rebuilt.regroup(range(1, len(IDS) + 1))
    assert groups(table) == groups(rebuilt)
    store.close()
    fresh.close()
