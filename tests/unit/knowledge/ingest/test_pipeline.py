"""From a draft to what is written: chunks with ids, hashes and extractions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.pipeline import Pipeline, document_id
from loom_core.knowledge.model import Block, DocumentDraft
from loom_core.knowledge.store.prepared_documents import ExtractionColumns
from loom_core.knowledge.text.passage_text import embedding_text, index_tokens


def pipeline_of(chunker: str = "structure", *, extract: bool = True, **options: int) -> Pipeline:
    return Pipeline(
        create_chunker(chunker, **options),
        chunker_id=f"{chunker}{sorted(options.items())}",
        extractor=RuleExtractor() if extract else None,
    )


TEXT = (
    "Ada Lovelace wrote programs.\n\n" + "The engine was never built. " * 60 + "\n\n知识图谱是一种网络。" * 80
)
DRAFT = DocumentDraft(uri="text:a", text=TEXT, title="Notes", title_source="given", metadata={"year": 1843})


async def test_every_chunk_is_a_piece_of_the_text_with_language_and_keywords():
    (document,) = await pipeline_of("simple", chunk_size=100).prepare([DRAFT])
    assert document.id == document_id("text:a")
    assert len(document.chunks) > 3
    for prepared in document.chunks:
        chunk = prepared.chunk
        assert chunk.text == TEXT[chunk.start : chunk.end]
        assert (chunk.title, chunk.title_source) == ("Notes", "given")
        assert prepared.id.startswith(document.id + ".")
    assert {prepared.chunk.language for prepared in document.chunks} == {"en", "zh"}
    assert "知识" in document.chunks[-1].chunk.keywords
    assert document.language in {"en", "zh"}


async def test_ids_are_unique_even_where_passages_are_the_same():
    draft = DocumentDraft(uri="text:a", text="The same words.\n\n" * 400)
    (document,) = await pipeline_of("simple", chunk_size=64).prepare([draft])
    ids = [prepared.id for prepared in document.chunks]
    assert len(ids) == len(set(ids)) > 10
    assert len({prepared.vector_hash for prepared in document.chunks}) < len(ids)


async def test_a_passage_keeps_its_id_when_others_change():
    pipeline = pipeline_of("simple", chunk_size=64)
    parts = [f"Part {n} says something of its own. " * 8 for n in range(6)]
    (before,) = await pipeline.prepare([DocumentDraft(uri="text:a", text="\n\n".join(parts))])
    (after,) = await pipeline.prepare([DocumentDraft(uri="text:a", text="\n\n".join([*parts, "New."]))])
    kept = {prepared.id for prepared in before.chunks} & {prepared.id for prepared in after.chunks}
    assert len(kept) >= len(before.chunks) - 1


async def test_documents_without_text_are_left_out():
    assert await pipeline_of().prepare([DocumentDraft(uri="text:a", text=" \n ")]) == []
    assert await pipeline_of().prepare([]) == []


async def test_without_an_extractor_nothing_is_extracted():
    (document,) = await pipeline_of(extract=False).prepare([DRAFT])
    assert all(prepared.found == ExtractionColumns() for prepared in document.chunks)


async def test_code_is_a_language_of_its_own():
    draft = DocumentDraft(
        uri="text:a",
        text="def main(): ...",
        blocks=(Block("code", 0, 15, name="main"),),
        mime="text/x-python",
    )
    (document,) = await pipeline_of().prepare([draft])
    assert document.language == "code"
    assert document.chunks[0].found.abouts[:2] == (("main",), ("definition",))


@pytest.mark.parametrize(
    "other",
    [
        replace(DRAFT, text=TEXT + "."),
        replace(DRAFT, title="Other"),
        replace(DRAFT, title_source="heading"),
        replace(DRAFT, mime="text/markdown"),
        replace(DRAFT, metadata={"year": 1844}),
    ],
)
def test_a_hash_tells_everything_that_changes_the_result(other: DocumentDraft):
    pipeline = pipeline_of()
    assert pipeline.hash(DRAFT) == pipeline.hash(replace(DRAFT, uri="text:b"))
    assert pipeline.hash(DRAFT) != pipeline.hash(other)


def test_a_hash_tells_the_settings():
    pipelines = [
        pipeline_of(),
        pipeline_of("simple"),
        pipeline_of("simple", chunk_size=64),
        pipeline_of(extract=False),
    ]
    assert len({pipeline.hash(DRAFT) for pipeline in pipelines}) == len({p.id for p in pipelines}) == 4


def test_titles_and_headings_are_embedded_with_the_text_unless_it_says_them():
    assert embedding_text("Paris", ("History", ""), "Long ago.") == "Paris\nHistory\nLong ago."
    assert embedding_text("Paris", (), "Paris is a city.") == "Paris is a city."


def test_titles_and_headings_are_indexed_with_the_text():
    assert index_tokens("Paris", ("Places", "知识图谱"), "Running") == [
        *("pari", "place", "知识", "图谱", "识图", "run"),
        *("知识", "图谱", "识图"),  # the last heading once more
    ]


def test_parts_of_names_are_indexed_next_to_the_words():
    assert index_tokens("", (), "McDonald-Smith") == ["mcdonald-smith", "mc", "donald", "smith", "mcdonald"]
    assert "多达" in index_tokens("", (), "列奥纳多·达·芬奇")


RENDERED = "The program stops imme\u2010\n       diately when the con-\n       nection is lost."


async def test_words_hyphenated_at_a_line_end_are_found_and_the_text_stays_as_it_is():
    tokens = index_tokens("", (), RENDERED)
    assert set(index_tokens("", (), "immediately connection")) <= set(tokens)
    assert "imme" not in tokens
    assert embedding_text("", (), RENDERED).startswith("The program stops immediately when the con-\n")
    (document,) = await pipeline_of().prepare([replace(DRAFT, text=RENDERED)])
    (chunk,) = [prepared.chunk for prepared in document.chunks]
    assert chunk.text == RENDERED[chunk.start : chunk.end]


def test_a_hyphen_of_its_own_kind_before_a_capital_or_inside_a_line_stays():
    for text in ("Jean\u2010\nPaul", "a well\u2010known fact", "pages 3\u2010\n4", "结\u2010\n束"):
        assert embedding_text("", (), text) == text
