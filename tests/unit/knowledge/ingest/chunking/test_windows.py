from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking import SimpleChunker, SlidingWindowChunker
from loom_core.knowledge.model import Block, DocumentDraft

if TYPE_CHECKING:
    from collections.abc import Callable

ENGLISH = (
    "Marie Curie was born in Warsaw, in what was then the Kingdom of Poland. She studied at the Flying "
    "University and began her practical training in Warsaw. In 1891 she followed her sister to Paris, where "
    "she earned her degrees.\n\nShe shared the 1903 Nobel Prize in Physics with her husband Pierre and with "
    "Henri Becquerel. She won the 1911 prize in Chemistry for the discovery of polonium and radium."
)
CHINESE = (
    "鲁迅，原名周樟寿，后改名周树人，浙江绍兴人。他是中国现代文学的奠基人之一；他的小说《狂人日记》发表于1918年。"
    "“救救孩子……”是它的最后一句。\n\n他早年留学日本，学习医学，后来弃医从文。他的作品被译成五十多种文字。"
)


def test_simple_passages_end_at_sentences():
    chunks = SimpleChunker(220).chunk(DocumentDraft("text:1", ENGLISH))
    assert [chunk.text[-9:] for chunk in chunks] == ["n Warsaw.", "ecquerel.", "d radium."]
    assert all(len(chunk.text) <= 220 for chunk in chunks)


def test_simple_passages_of_chinese_end_at_chinese_marks():
    chunks = SimpleChunker(40).chunk(DocumentDraft("text:1", CHINESE))
    assert [chunk.text[-1] for chunk in chunks] == ["；", "。", "。"]
    assert all(len(chunk.text) <= 40 for chunk in chunks)


def test_simple_passages_cover_the_text_without_overlap():
    chunks = SimpleChunker(50).chunk(DocumentDraft("text:1", ENGLISH))
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(ENGLISH.split())


def test_a_short_text_is_one_passage():
    (chunk,) = SimpleChunker().chunk(DocumentDraft("text:1", "  短文。\n", title="题"))
    assert (chunk.text, chunk.start, chunk.end, chunk.title) == ("短文。", 2, 5, "题")


def test_blank_texts_have_no_passages():
    for text in ("", " \n\t\u3000\n"):
        assert SimpleChunker().chunk(DocumentDraft("text:1", text)) == []
        assert SlidingWindowChunker().chunk(DocumentDraft("text:1", text)) == []


def test_sliding_windows_repeat_the_end_of_the_one_before():
    chunks = SlidingWindowChunker(120, overlap=40).chunk(DocumentDraft("text:1", ENGLISH))
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        assert before.start < after.start <= before.end < after.end
        assert before.end - after.start <= 40
    assert any(before.end - after.start >= 20 for before, after in pairwise(chunks))


def test_sliding_windows_begin_at_words():
    for chunk in SlidingWindowChunker(100, overlap=30).chunk(DocumentDraft("text:1", ENGLISH)):
        assert chunk.start == 0 or not ENGLISH[chunk.start - 1].isalnum()


def test_sliding_without_overlap_is_simple():
    document = DocumentDraft("text:1", ENGLISH)
    assert SlidingWindowChunker(90, overlap=0).chunk(document) == SimpleChunker(90).chunk(document)


def test_an_overlap_near_the_size_still_ends():
    chunks = SlidingWindowChunker(10, overlap=9).chunk(DocumentDraft("text:1", CHINESE))
    assert chunks[-1].end == len(CHINESE)


def test_a_size_of_one_keeps_characters_whole():
    chunks = SimpleChunker(1).chunk(DocumentDraft("text:1", "a👍🏽字e\u0301"))
    assert [chunk.text for chunk in chunks] == ["a", "👍🏽", "字", "e\u0301"]


def test_windows_know_the_headings_and_page_they_stand_under(outline: Callable[..., DocumentDraft]):
    document = outline(
        "# Guide\n\nIntro text here.\n\n\f## Setup\n\nInstall it now.\n\nRun it then.", title="Guide"
    )
    chunks = SimpleChunker(25).chunk(document)
    assert [(chunk.heading_path, chunk.page) for chunk in chunks] == [
        ((), None),
        (("Setup",), 2),
        (("Setup",), 2),
    ]


def test_a_window_over_markup_alone_stands_under_what_is_before_it():
    document = DocumentDraft("text:1", "Text. ======", blocks=(Block("paragraph", 0, 5, ("Top",), page=3),))
    first, last = SimpleChunker(6).chunk(document)
    assert (last.text, last.heading_path, last.page, last.kind) == ("======", ("Top",), 3, "paragraph")
    assert first.heading_path == last.heading_path


def test_a_window_before_the_first_block_stands_under_nothing():
    document = DocumentDraft("text:1", "====== Text.", blocks=(Block("list", 7, 12, ("Top",), page=3),))
    first, last = SimpleChunker(7).chunk(document)
    assert (first.text, first.heading_path, first.page, first.kind) == ("======", (), None, "paragraph")
    assert (last.heading_path, last.page, last.kind) == (("Top",), 3, "list")


@pytest.mark.parametrize("size", [0, -5])
def test_impossible_sizes_are_refused(size: int):
    with pytest.raises(ConfigError, match="chunk_size"):
        SimpleChunker(size)


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (100, 100), (100, -1)])
def test_impossible_overlaps_are_refused(size: int, overlap: int):
    with pytest.raises(ConfigError, match="overlap"):
        SlidingWindowChunker(size, overlap=overlap)
