from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.refinement import (
    ParentDocument,
    diverse,
    with_parents,
    without_copies,
    without_near_duplicates,
)
from loom_core.tokens import estimate_tokens

WALL = (
    "The Great Wall was built over many centuries by several dynasties, and its best known parts were made "
    "by the Ming, who used brick and stone where those before them had used earth and wood. Watch towers "
    "stood along it, and signals of smoke by day and of fire by night told the next tower what was coming. "
    "Most of the wall runs along the crests of hills, where the ground itself is half of the defence."
)
CHINESE = (
    "长城始建于春秋战国时期，历代不断修筑，今天所见的大部分是明代所修。城墙沿着山脊延伸，敌楼和烽火台分布其间，"
    "白天燃烟，夜间举火，以此传递军情。砖石结构取代了早期的夯土结构，因此保存得较为完好。许多地段如今已经开放，供人参观。"
)


def item(id_: str, content: str, relevance: float = 0.5) -> KnowledgeItem:
    return KnowledgeItem(id=id_, content=content, source="text:x", relevance=relevance)


def ids(items: list[KnowledgeItem]) -> list[str]:
    return [one.id for one in items]


# -- copies of passages in other formats of a document, split at other places ------------------------


def part(id_: str, document: str, content: str) -> KnowledgeItem:
    return replace(item(id_, content), metadata={"document_id": document})


def test_half_of_a_passage_in_a_better_one_of_another_format_makes_it_a_copy():
    half = WALL[: 2 * len(WALL) // 3]
    found = [
        part("page", "pdf", f"{half} {CHINESE[:40]}"),
        part("section", "html", WALL),
        part("other", "quotation", WALL),
        part("next", "pdf", WALL),
    ]
    asked: list[object] = []

    def groups_of(documents: object) -> dict[str, int]:
        asked.append(documents)
        return {"pdf": 1, "html": 1, "quotation": 2}

    kept = without_copies(found, groups_of, limit=9)
    assert ids(kept) == ["page", "other", "next"], "another document may quote it, and the same goes on"
    assert kept[0].metadata["duplicates"] == ["section"]
    assert asked == [["html", "pdf", "quotation"]]
    assert ids(without_copies(found, groups_of, limit=2)) == ["page", "other"]


def test_passages_of_one_document_ask_for_no_groups_and_those_of_others_are_kept():
    found = [part("a", "one", WALL), part("b", "one", CHINESE), part("c", "one", ""), part("d", "one", WALL)]
    assert without_copies(found, {}.__getitem__, limit=9) == found
    apart = [replace(each, metadata={"document_id": each.id}) for each in found]
    assert without_copies(apart, lambda _: {"a": 1, "b": 1, "c": 1, "d": 2}, limit=9) == apart


@pytest.mark.parametrize("text", [WALL, CHINESE], ids=["english", "chinese"])
def test_yearly_reports_are_no_copies_of_each_other(text: str):
    found = [part("a", "2023", f"2023: 1,204. {text}"), part("b", "2024", f"2024: 1,377. {text}")]
    assert without_copies(found, lambda _: {"2023": 1, "2024": 1}, limit=9) == found


def test_a_copy_that_alone_has_the_identifier_of_the_question_is_kept():
    found = [part("a", "txt", WALL), part("b", "html", f"{WALL} See `set_wall_height`.")]
    assert len(without_copies(found, lambda _: {"txt": 1, "html": 1}, limit=9)) == 1
    question = "What does set_wall_height do?"
    assert without_copies(found, lambda _: {"txt": 1, "html": 1}, limit=9, question=question) == found


async def test_a_document_in_two_formats_is_found_once():
    path = Path(__file__).parents[4] / "servers" / "kb" / "loom_kb" / "demo_documents" / "jacquard-machine.md"
    written = path.read_text(encoding="utf-8")
    plain = re.sub(r"(?m)^#.*\n+", "", written).replace("\n\n", " ")
    with GraphRAGKnowledgeBase("loom", memory=True, embedder=None) as kb:
        await kb.add_texts([written, plain], uris=["test:md", "test:txt"])
        hits = await kb.query("What does a hole in a card mean, and where did the draw boy sit?")
    copies = [copy for hit in hits for copy in hit.metadata.get("duplicates", [])]
    assert len(copies) >= 3
    assert not {hit.id for hit in hits}.intersection(copies)


# -- near duplicates --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [WALL, CHINESE], ids=["english", "chinese"])
def test_a_passage_said_twice_is_kept_once_and_the_better_one_tells_of_the_other(text: str):
    other = item("c", "Something else altogether, 完全不同的内容。")
    kept = without_near_duplicates([item("a", text), other, item("b", text)])
    assert ids(kept) == ["a", "c"]
    assert kept[0].metadata["duplicates"] == ["b"]
    assert "duplicates" not in kept[1].metadata


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (WALL, WALL.upper().replace(",", " -")),
        (WALL, "Still, " + WALL[4:]),
        (CHINESE, CHINESE.replace("，", "、").replace("。", "；")),
        (CHINESE, "古" + CHINESE),
    ],
)
def test_case_punctuation_and_a_changed_word_make_no_other_passage(text: str, near: str):
    assert ids(without_near_duplicates([item("a", text), item("b", near)])) == ["a"]


@pytest.mark.parametrize(("text", "number"), [(WALL, "In 2023: "), (CHINESE, "2023年。")])
def test_passages_with_other_numbers_are_both_kept(text: str, number: str):
    items = [item("a", number + text), item("b", number.replace("3", "4") + text)]
    assert ids(without_near_duplicates(items)) == ["a", "b"]


@pytest.mark.parametrize("text", [WALL, CHINESE], ids=["english", "chinese"])
def test_passages_that_share_half_their_words_are_both_kept(text: str):
    half = text[: len(text) // 2]
    items = [item("a", text), item("b", half), item("c", half + half[::-1])]
    assert ids(without_near_duplicates(items)) == ["a", "b", "c"]


def test_the_threshold_says_how_near_is_near():
    items = [item("a", WALL), item("b", WALL.replace("brick", "tile").replace("smoke", "ash"))]
    assert ids(without_near_duplicates(items)) == ["a", "b"]
    assert ids(without_near_duplicates(items, threshold=0.5)) == ["a"]


def test_passages_too_short_for_a_shingle_are_compared_whole():
    short = [item("a", "Yes."), item("b", "yes"), item("c", "No."), item("d", "!!!"), item("e", "???")]
    assert ids(without_near_duplicates([*short, item("f", "!!!")])) == ["a", "c", "d", "e"]


def test_what_was_known_of_a_passage_stays():
    first = replace(item("a", WALL), metadata={"title": "Wall"})
    kept = without_near_duplicates([first, item("b", WALL), item("c", WALL)])
    assert kept == [replace(first, metadata={"title": "Wall", "duplicates": ["b", "c"]})]
    assert first.metadata == {"title": "Wall"}


@given(st.lists(st.text(alphabet="ab1 长城。\u0301", max_size=12), max_size=12))
def test_every_passage_is_kept_or_told_of_once_and_in_order(texts: list[str]):
    items = [item(str(place), text) for place, text in enumerate(texts)]
    kept = without_near_duplicates(items)
    told = [id_ for one in kept for id_ in (one.id, *one.metadata.get("duplicates", []))]
    assert sorted(told, key=int) == ids(items)
    assert ids(kept) == sorted(ids(kept), key=int)
    assert ids(without_near_duplicates(kept)) == ids(kept)


def test_sixty_passages_of_one_corpus_take_no_time_worth_speaking_of(least_processor_time):
    words = WALL.split()
    rng = np.random.default_rng(0)
    items = [item(str(n), " ".join(rng.permutation(words * 2)) + f" {n % 30}") for n in range(60)]
    assert len(without_near_duplicates(items)) == 60
    assert (
        least_processor_time(lambda: without_near_duplicates(items)) < 0.25
    )  # about 2 ms of the processor; the rest is for a busy machine


# -- variety ----------------------------------------------------------------------------------------


def unit(*rows: tuple[float, ...]) -> np.ndarray:
    vectors = np.array(rows, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def test_the_second_passage_is_not_the_first_once_more():
    vectors = unit((1, 0), (1, 0.01), (0, 1))
    scores = [1.0, 0.9, 0.6]
    assert diverse("abc", scores, vectors, limit=2, trade_off=0.5) == ["a", "c"]
    assert diverse("abc", scores, vectors, limit=2, trade_off=1.0) == ["a", "b"]


def test_without_any_weight_on_relevance_the_best_passage_is_still_first():
    vectors = unit((1, 0), (0, 1), (1, 1))
    assert diverse("abc", [0.2, 0.9, 0.5], vectors, limit=3, trade_off=0.0) == ["b", "a", "c"]


def test_a_narrow_band_of_cosines_counts_as_much_as_a_wide_one():
    shared = (5.0, 0, 0)
    narrow = unit(*(np.add(shared, row) for row in ((0, 1, 0), (0, 1, 0.01), (0, 0, 1))))
    assert (narrow @ narrow.T).min() > 0.9
    assert diverse("abc", [1.0, 0.9, 0.6], narrow, limit=2, trade_off=0.5) == ["a", "c"]


def test_a_passage_without_a_vector_is_similar_to_none():
    vectors = unit((1, 0), (1, 0.01), (0, 0), (0, 1))
    assert diverse("abcd", [1.0, 0.9, 0.5, 0.6], vectors, limit=3, trade_off=0.5) == ["a", "d", "c"]
    assert diverse("ab", [0.5, 1.0], np.zeros((2, 3), np.float32), limit=2, trade_off=0.5) == ["b", "a"]


def test_passages_with_one_vector_keep_the_order_of_their_relevance():
    same = unit((1, 2), (1, 2), (1, 2))
    assert diverse("abc", [0.1, 0.3, 0.2], same, limit=3, trade_off=0.3) == ["b", "c", "a"]


def test_nothing_to_choose_from_or_to_choose_gives_nothing():
    assert diverse("", [], np.zeros((0, 2), np.float32), limit=3, trade_off=0.5) == []
    assert diverse("a", [1.0], unit((1, 0)), limit=0, trade_off=0.5) == []
    assert diverse("ab", [0.0, 0.0], unit((1, 0), (0, 1)), limit=5, trade_off=0.5) == ["a", "b"]


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.tuples(*[st.integers(-2, 2)] * 3)),
        max_size=10,
    ),
    st.integers(0, 12),
    st.floats(0, 1),
)
def test_variety_chooses_among_the_passages_and_begins_with_the_best(
    rows: list[tuple[float, tuple[int, ...]]], limit: int, trade_off: float
):
    keys = list(range(len(rows)))
    scores = [score for score, _ in rows]
    vectors = unit(*(row for _, row in rows)) if rows else np.zeros((0, 3), np.float32)
    chosen = diverse(keys, scores, vectors, limit=limit, trade_off=trade_off)
    assert len(chosen) == len(set(chosen)) == min(limit, len(keys))
    assert set(chosen) <= set(keys)
    if chosen:
        assert chosen[0] == scores.index(max(scores))
    by_relevance = sorted(keys, key=lambda key: -scores[key])
    assert diverse(keys, scores, vectors, limit=limit, trade_off=1.0) == by_relevance[:limit]


# -- parents ----------------------------------------------------------------------------------------

_SENTENCES = (
    "The {0} engine is described here, part {1}, at length and with care for every detail of it. " * 12
)
MANUAL = "# Manual\n\n" + "\n\n".join(
    f"## {name}\n\n" + "\n\n".join(_SENTENCES.format(name, part).strip() for part in range(6))
    for name in ("Diesel", "Steam")
)
CHINESE_MANUAL = "# 手册\n\n" + "\n\n".join(
    f"## {name}\n\n"
    + "\n\n".join(f"{name}的第{part}部分：" + "这里逐一说明它的构造和用法。" * 25 for part in range(6))
    for name in ("柴油机", "蒸汽机")
)


class Shelf:
    """A knowledge base of one document, its passages as items, and what parents are asked for."""

    def __init__(self, knowledge_base: GraphRAGKnowledgeBase, document_id: str) -> None:
        documents = knowledge_base.store.documents
        row = documents.get(document_id)
        assert row is not None
        self.document = ParentDocument(documents.text(row.key), documents.chunks_of(row.key))
        self.asked: list[str] = []
        self.items = [
            KnowledgeItem(
                id=chunk.id,
                content=chunk.text,
                source=chunk.uri,
                relevance=0.7,
                metadata={
                    "document_id": document_id,
                    "start": chunk.start,
                    "end": chunk.end,
                    "page": chunk.page,
                    "heading_path": list(chunk.heading_path),
                },
            )
            for chunk in self.document.chunks
        ]

    def parent(self, id_: str) -> ParentDocument | None:
        self.asked.append(id_)
        return self.document if id_ == self.items[0].metadata["document_id"] else None

    def of(self, section: str) -> list[KnowledgeItem]:
        return [one for one in self.items if one.metadata["heading_path"][-1:] == [section]]


@pytest.fixture(params=["english", "chinese"])
async def shelf(request: pytest.FixtureRequest):
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    text = MANUAL if request.param == "english" else CHINESE_MANUAL
    (id_,) = await knowledge_base.add_texts([text])
    yield Shelf(knowledge_base, id_)
    knowledge_base.close()


def sections(shelf: Shelf) -> tuple[list[KnowledgeItem], list[KnowledgeItem]]:
    names = list(dict.fromkeys(one.metadata["heading_path"][-1] for one in shelf.items))
    first, second = shelf.of(names[0]), shelf.of(names[1])
    assert len(first) >= 4
    assert len(second) >= 4
    return first, second


def test_a_passage_is_shown_with_its_neighbours_within_the_budget(shelf: Shelf):
    first, _ = sections(shelf)
    middle = first[2]
    budget = 3 * estimate_tokens(middle.content) + 20
    (hit,) = with_parents([middle], shelf.parent, limit=5, max_tokens=budget)
    assert middle.content in hit.content
    assert len(hit.content) > 2 * len(middle.content)
    assert estimate_tokens(hit.content) <= budget
    start, end = hit.metadata["start"], hit.metadata["end"]
    assert shelf.document.text[start:end] == hit.content
    assert (hit.id, hit.relevance) == (middle.id, middle.relevance)
    passage = hit.metadata["passage_start"], hit.metadata["passage_end"]
    assert passage == (middle.metadata["start"], middle.metadata["end"])
    assert start < passage[0]
    assert passage[1] < end
    assert "merged" not in hit.metadata


def test_a_passage_never_grows_beyond_its_section(shelf: Shelf):
    first, second = sections(shelf)
    for passage, section in ((first[-1], first), (second[0], second)):
        (hit,) = with_parents([passage], shelf.parent, limit=5, max_tokens=100_000)
        assert hit.metadata["start"] == section[0].metadata["start"]
        assert hit.metadata["end"] == section[-1].metadata["end"]


def test_hits_that_meet_become_one_hit_of_the_better_one(shelf: Shelf):
    first, second = sections(shelf)
    hits = with_parents([first[2], second[1], first[1], first[3]], shelf.parent, limit=5, max_tokens=1)
    assert ids(hits) == [first[2].id, second[1].id]
    assert hits[0].metadata["merged"] == [first[1].id, first[3].id]
    assert (hits[0].metadata["start"], hits[0].metadata["end"]) == (
        first[1].metadata["start"],
        first[3].metadata["end"],
    )
    assert hits[1].content == second[1].content


def test_a_hit_between_two_others_joins_all_three(shelf: Shelf):
    first, _ = sections(shelf)
    (hit,) = with_parents([first[0], first[2], first[1]], shelf.parent, limit=2, max_tokens=1)
    assert hit.id == first[0].id
    assert hit.metadata["merged"] == [first[1].id, first[2].id]
    assert hit.metadata["end"] == first[2].metadata["end"]


def test_hits_on_two_sides_of_a_heading_stay_two(shelf: Shelf):
    first, second = sections(shelf)
    hits = with_parents([first[-1], second[0]], shelf.parent, limit=5, max_tokens=1)
    assert ids(hits) == [first[-1].id, second[0].id]


def test_hits_after_the_limit_are_left_out_and_do_not_lengthen_those_before(shelf: Shelf):
    first, second = sections(shelf)
    hits = with_parents([first[0], second[0], first[1]], shelf.parent, limit=1, max_tokens=1)
    assert ids(hits) == [first[0].id]
    assert hits[0].content == first[0].content


def test_a_document_is_asked_for_once(shelf: Shelf):
    with_parents(shelf.items, shelf.parent, limit=100)
    assert len(shelf.asked) == 1


def test_a_passage_whose_document_is_gone_or_has_changed_is_left_as_it_is(shelf: Shelf):
    first, _ = sections(shelf)
    gone = replace(first[0], metadata={"document_id": "gone"})
    changed = replace(first[1], content="as it was before")
    unknown = replace(first[2], id="no such passage")
    foreign = KnowledgeItem(id="x", content="from elsewhere", source="https://example.org")
    items = [gone, changed, unknown, foreign]
    assert with_parents(items, shelf.parent, limit=5) == items
    assert with_parents(items, shelf.parent, limit=2) == items[:2]
    assert with_parents([], shelf.parent, limit=5) == []
