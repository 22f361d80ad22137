from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.chunking import SimpleChunker, SlidingWindowChunker, StructureChunker
from loom_core.knowledge.ingest.chunking.boundaries import is_joined
from loom_core.knowledge.model import Block, BlockKind, DocumentDraft
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from loom_core.knowledge.interface import Chunker
    from loom_core.knowledge.model import Chunk

pytestmark = pytest.mark.slow

FRAGMENTS = st.one_of(
    st.text(max_size=20),
    st.text(alphabet=" \t\n\u3000.!?。！？；…”」)\"'-–,，、：:", max_size=8),
    st.text(alphabet="e\u0301\ufe0f\u200d👍🏽🇨🇳👩葛\U000e0100 ", max_size=12),
    st.sampled_from(
        [
            "Dr. Smith gave 3.14 mg to the U.S. team. ",
            "知识图谱是一种方法。",
            "“好。”他说；",
            "- item\n",
            "1. First\n",
        ]
    ),
    st.sampled_from(
        [
            "def f(x):\n    return x\n\n",
            "    if x:\n        y()\n",
            "word " * 60,
            "字" * 90,
            "x" * 150,
            "\n\n",
        ]
    ),
)
TEXTS = st.lists(FRAGMENTS, max_size=30).map("".join)
HEADINGS = st.sampled_from(["A", "B", "标题", "Title"])


@st.composite
def drafts(draw: st.DrawFn) -> DocumentDraft:
    """Any text with any blocks that are in order and do not overlap, blank ones among them."""
    text = draw(TEXTS)
    offsets = sorted(draw(st.lists(st.integers(0, len(text)), max_size=24)))
    blocks = tuple(
        Block(
            kind,
            start,
            end,
            tuple(draw(st.lists(HEADINGS, max_size=3))),
            draw(st.integers(1, 6)) if kind == "heading" else 0,
            draw(st.none() | st.integers(1, 3)),
            draw(st.sampled_from(["", "f", "A.g", "A.h"])) if kind in {"code", "row"} else "",
        )
        for start, end in zip(offsets[::2], offsets[1::2], strict=False)
        for kind in [draw(st.sampled_from(get_args(BlockKind)))]
    )
    return DocumentDraft("text:any", text, title=draw(st.sampled_from(["", "Title"])), blocks=blocks)


@st.composite
def structure_chunkers(draw: st.DrawFn) -> StructureChunker:
    least, target, most = sorted(draw(st.tuples(*[st.integers(0, 60)] * 3)))
    return StructureChunker(target + 20, min_tokens=least, max_tokens=most + 20)


def check(document: DocumentDraft, chunks: list[Chunk]) -> None:
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start : chunk.end]
        assert chunk.text
        assert chunk.text == chunk.text.strip()
        assert chunk.title == document.title
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end


def ink(text: str, spans: list[tuple[int, int]]) -> set[int]:
    return {index for start, end in spans for index in range(start, end) if not text[index].isspace()}


@given(drafts(), structure_chunkers())
def test_passages_by_structure_cover_every_block_without_overlap(
    document: DocumentDraft, chunker: StructureChunker
):
    chunks = chunker.chunk(document)
    check(document, chunks)
    assert all(before.end <= after.start for before, after in pairwise(chunks))
    blocks = [(block.start, block.end) for block in document.blocks] or [(0, len(document.text))]
    covered = ink(document.text, [(chunk.start, chunk.end) for chunk in chunks])
    assert ink(document.text, blocks) <= covered


@given(drafts(), structure_chunkers())
def test_passages_by_structure_are_never_over_the_maximum(document: DocumentDraft, chunker: StructureChunker):
    assert all(estimate_tokens(chunk.text) <= chunker.max_tokens for chunk in chunker.chunk(document))


@given(drafts(), st.integers(1, 200))
def test_simple_passages_cover_the_text_without_overlap(document: DocumentDraft, size: int):
    chunks = SimpleChunker(size).chunk(document)
    check(document, chunks)
    assert all(before.end <= after.start for before, after in pairwise(chunks))
    spans = [(chunk.start, chunk.end) for chunk in chunks]
    assert ink(document.text, spans) == ink(document.text, [(0, len(document.text))])


@given(drafts(), st.integers(1, 200), st.data())
def test_sliding_windows_cover_the_text(document: DocumentDraft, size: int, data: st.DataObject):
    overlap = data.draw(st.integers(0, size - 1))
    chunks = SlidingWindowChunker(size, overlap=overlap).chunk(document)
    check(document, chunks)
    assert all(before.end - after.start <= overlap for before, after in pairwise(chunks))
    spans = [(chunk.start, chunk.end) for chunk in chunks]
    assert ink(document.text, spans) == ink(document.text, [(0, len(document.text))])


@given(
    TEXTS,
    st.sampled_from(
        [
            SimpleChunker(7),
            SlidingWindowChunker(9, overlap=4),
            StructureChunker(2, max_tokens=3, min_tokens=0),
        ]
    ),
)
def test_no_passage_begins_inside_a_character(text: str, chunker: Chunker):
    for chunk in chunker.chunk(DocumentDraft("text:any", text)):
        assert not is_joined(text, chunk.start)
        assert not is_joined(text, chunk.end)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 2_000_000, id="no boundary"),
        pytest.param("知" * 700_000, id="no boundary in Chinese"),
        pytest.param("word " * 200_000, id="one line"),
        pytest.param("It is here. " * 80_000, id="one line of sentences"),
        pytest.param("ab\n\n" * 100_000, id="tiny paragraphs"),
        pytest.param("." * 2_000_000, id="dots"),
        pytest.param("\n" * 1_000_000 + "x", id="blank lines"),
        pytest.param("x" + " " * 1_000_000 + "y", id="spaces"),
        pytest.param("e" + "\u0301" * 500_000, id="combining marks"),
    ],
)
def test_time_grows_with_the_length_only(text: str):
    document = DocumentDraft("text:long", text)
    for chunker in (StructureChunker(), SimpleChunker(), SlidingWindowChunker()):
        began = time.process_time()
        assert chunker.chunk(document)
        # Two seconds at most where it is linear; anything quadratic would take minutes.
        assert time.process_time() - began < 20


@pytest.mark.hostile("files of any kind")
@pytest.mark.slow
def test_deeply_indented_code_is_cut_in_linear_time():
    text = "\n".join(" " * line + "x" for line in range(2_500))
    document = DocumentDraft("text:deep", text, blocks=(Block("code", 0, len(text), name="f"),))
    began = time.process_time()
    assert StructureChunker().chunk(document)
    assert time.process_time() - began < 20
