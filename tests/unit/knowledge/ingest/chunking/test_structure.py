from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking import StructureChunker
from loom_core.knowledge.model import Block, DocumentDraft
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.knowledge.model import Chunk

    Outline = Callable[..., DocumentDraft]

ABSTRACT = (
    "Alterations of the architecture of cerebral white matter in the developing human brain can affect "
    "cortical development and result in functional disabilities. A line scan diffusion-weighted magnetic "
    "resonance imaging (MRI) sequence with diffusion tensor analysis was applied to measure the apparent "
    "diffusion coefficient, to calculate relative anisotropy, and to delineate three-dimensional fiber "
    "architecture in cerebral white matter in preterm (n = 17) and full-term infants (n = 7). "
)
DREAM = (
    "《红楼梦》是中国古典四大名著之一，作者曹雪芹。小说以贾、史、王、薛四大家族的兴衰为背景，"
    "以贾宝玉与林黛玉、薛宝钗的爱情婚姻悲剧为主线。“满纸荒唐言，一把辛酸泪！”他写道。"
)


def words(count: int, *, of: str = "Alpha beta gamma delta") -> str:
    """A sentence of about `count` tokens."""
    return (of + " ") * (count * 4 // (len(of) + 1)) + "end."


def chunks_of(document: DocumentDraft, **sizes: int) -> list[Chunk]:
    chunks = StructureChunker(**sizes).chunk(document)
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start : chunk.end]
    return chunks


def test_an_english_abstract_stays_whole():
    text = (ABSTRACT * 4)[:1790]
    (chunk,) = chunks_of(DocumentDraft("text:1", text, title="White matter"))
    assert chunk.text == text.strip()


def test_a_chinese_paragraph_of_600_characters_stays_whole():
    text = (DREAM * 8)[:600]
    (chunk,) = chunks_of(DocumentDraft("text:1", text))
    assert chunk.text == text


def test_a_short_document_with_one_heading_is_one_passage(outline: Outline):
    (chunk,) = chunks_of(outline(f"# White matter\n\n{words(190)}\n\n{words(190)}", "White matter"))
    assert chunk.heading_path == ()
    assert chunk.text.startswith("White matter\n\nAlpha")


def test_an_empty_document_has_no_passages():
    assert chunks_of(DocumentDraft("text:1", " \n\n \u3000")) == []
    assert chunks_of(DocumentDraft("text:1", "\n ", blocks=(Block("paragraph", 0, 2),))) == []


def test_plain_text_is_packed_by_paragraphs():
    text = "\n\n".join(words(150) for _ in range(5))
    assert [len(chunk.text.split("\n\n")) for chunk in chunks_of(DocumentDraft("text:1", text))] == [2, 2, 1]


def test_chinese_passages_have_far_fewer_characters_than_english_ones():
    english = chunks_of(DocumentDraft("text:1", "\n\n".join([ABSTRACT] * 20)))
    chinese = chunks_of(DocumentDraft("text:2", "\n\n".join([DREAM] * 40)))
    assert 900 < max(len(chunk.text) for chunk in english) <= 1800
    assert 300 < max(len(chunk.text) for chunk in chinese) <= 675


def test_a_long_english_paragraph_is_cut_between_sentences():
    text = " ".join(f"Dr. Smith gave e.g. {n}.14 mg to the U.S. team in trial {n}." for n in range(200))
    chunks = chunks_of(DocumentDraft("text:1", text))
    assert len(chunks) > 5
    assert all(chunk.text.startswith("Dr. Smith") and chunk.text.endswith(".") for chunk in chunks)
    assert all(250 < estimate_tokens(chunk.text) <= 320 for chunk in chunks[:-1])


def test_a_long_chinese_paragraph_is_cut_after_closing_quotes():
    text = "他说：“知识图谱是一种方法！”众人点头；" * 100
    chunks = chunks_of(DocumentDraft("text:1", text))
    assert len(chunks) > 3
    assert all(chunk.text[-1] in "”；" for chunk in chunks)


def test_lines_that_are_paragraphs_are_kept_whole_in_text_without_blank_lines():
    line = "知识图谱用图结构表示知识。它支持多跳推理。"
    for chunk in chunks_of(DocumentDraft("text:1", "\n".join([line] * 100))):
        assert set(chunk.text.split("\n")) == {line}


def test_text_without_any_boundary_is_cut_at_the_maximum():
    for text in ("a" * 20_000, "知" * 6_000, "🇨🇳" * 5_000, "e\u0301" * 5_000):
        chunks = chunks_of(DocumentDraft("text:1", text))
        assert "".join(chunk.text for chunk in chunks) == text
        assert all(estimate_tokens(chunk.text) <= 500 for chunk in chunks)


def test_a_sentence_too_long_is_cut_at_clauses():
    text = "although the reader waits, " * 200
    assert all(chunk.text.endswith("waits,") for chunk in chunks_of(DocumentDraft("text:1", text)))


def test_sections_are_not_mixed(outline: Outline):
    document = outline(
        f"# Handbook\n\n{words(80)}\n\n## Install\n\n{words(100)}\n\n## Use\n\n{words(90)}\n\n"
        f"### Daily\n\n{words(70)}",
        "Handbook",
    )
    chunks = chunks_of(document)
    assert [chunk.heading_path for chunk in chunks] == [(), ("Install",), ("Use",), ("Use", "Daily")]
    assert [chunk.text.split("\n")[0] for chunk in chunks] == ["Handbook", "Install", "Use", "Daily"]


def test_a_section_up_to_the_maximum_stays_whole(outline: Outline):
    document = outline(f"## A\n\n{words(200)}\n\n{words(220)}\n\n## B\n\n{words(200)}\n\n{words(350)}")
    assert [chunk.heading_path for chunk in chunks_of(document)] == [("A",), ("B",), ("B",)]


def test_a_long_section_keeps_its_heading_with_its_first_text(outline: Outline):
    document = outline(f"## 安装\n\n{words(490)}\n\n## B\n\n{words(100)}")
    first, *rest = chunks_of(document)
    assert first.text.startswith("安装\n\nAlpha")
    assert {chunk.heading_path for chunk in [first, *rest[:-1]]} == {("安装",)}


def test_a_heading_stays_with_a_paragraph_that_leaves_it_no_room(outline: Outline):
    heading = "A heading of many words that takes its room in the passage"
    for text in (f"{words(490)}", f"| {words(490)}", " ".join([words(55)] * 9)):
        first, *_ = chunks_of(outline(f"## {heading}\n\n{text}\n\n## B\n\n{words(100)}"))
        assert first.text.startswith(f"{heading}\n\n")
        assert estimate_tokens(first.text) > 200


def test_headings_without_text_lead_the_next_section(outline: Outline):
    document = outline(f"# Title\n\n## Part\n\n### A\n\n{words(100)}\n\n### B\n\n{words(100)}")
    first, second = chunks_of(document)
    assert first.text.startswith("Title\n\n## Part\n\n### A\n\n")
    assert (first.heading_path, second.heading_path) == (("Title", "Part", "A"), ("Title", "Part", "B"))


def test_headings_at_the_end_stay_with_what_is_above(outline: Outline):
    first, second = chunks_of(outline(f"## A\n\n{words(100)}\n\n## B\n\n{words(100)}\n\n## See also"))
    assert second.text.endswith("See also")
    assert (first.heading_path, second.heading_path) == (("A",), ("B",))


def test_a_document_of_headings_alone_is_covered(outline: Outline):
    document = outline("\n\n".join(f"## Heading number {n} of a long list" for n in range(100)))
    chunks = chunks_of(document)
    assert sum(chunk.text.count("Heading") for chunk in chunks) == 100
    assert {chunk.kind for chunk in chunks} == {"heading"}


def test_tiny_sibling_sections_are_put_together_under_their_parent(outline: Outline):
    terms = "\n\n".join(f"### Term {n}\n\nMeaning of term {n}, in one line." for n in range(8))
    document = outline(f"# Manual\n\n## Glossary\n\n{terms}\n\n## Index\n\n{words(100)}", "manual")
    glossary, index = chunks_of(document)
    assert (glossary.heading_path, index.heading_path) == (("Glossary",), ("Index",))
    assert "Term 0" in glossary.text
    assert glossary.text.endswith("term 7, in one line.")


def test_tiny_sections_are_put_together_only_up_to_the_target(outline: Outline):
    document = outline("\n\n".join(f"## 术语{n}\n\n{'这是一个解释。' * 8}" for n in range(30)))
    chunks = chunks_of(document)
    assert len(chunks) > 3
    assert all(estimate_tokens(chunk.text) <= 320 and chunk.heading_path == () for chunk in chunks)


def test_a_tiny_section_among_large_ones_stays_alone(outline: Outline):
    document = outline(f"## A\n\n{words(200)}\n\n## Licence\n\nMIT.\n\n## B\n\n{words(200)}")
    assert [chunk.text for chunk in chunks_of(document)][1] == "Licence\n\nMIT."


def test_the_end_of_one_chapter_is_not_put_to_the_beginning_of_the_next(outline: Outline):
    document = outline(
        f"# One\n\n{words(100)}\n\n## Last\n\nShort.\n\n# Two\n\nShort too.\n\n## First\n\n{words(100)}"
    )
    assert [chunk.heading_path for chunk in chunks_of(document)] == [
        ("One",),
        ("One", "Last"),
        ("Two",),
        ("Two", "First"),
    ]


def test_a_tiny_introduction_is_put_to_tiny_sections_below_it(outline: Outline):
    document = outline(f"# A\n\nIntro.\n\n## X\n\nOne.\n\n## Y\n\nTwo.\n\n# B\n\n{words(100)}")
    first, _ = chunks_of(document)
    assert (first.text.count("\n\n"), first.heading_path) == (5, ("A",))


def test_text_before_the_first_heading_has_no_heading(outline: Outline):
    first, second = chunks_of(outline(f"{words(100)}\n\n# A\n\n{words(300)}\n\n# B\n\n{words(100)}"))[:2]
    assert (first.heading_path, second.heading_path) == ((), ("A",))


def test_a_heading_takes_its_name_from_the_blocks_below_it():
    text = "## The *real* name\n\nText here."
    blocks = (Block("heading", 3, 18, (), 2), Block("paragraph", 20, 30, ("The real name",)))
    (chunk,) = chunks_of(DocumentDraft("text:1", text, blocks=blocks))
    assert chunk.heading_path == ("The real name",)


def test_a_title_is_dropped_from_the_path_whatever_its_case_and_spaces(outline: Outline):
    document = outline(f"# The  Title\n\n## A\n\n{words(100)}\n\n## B\n\n{words(100)}", "the title")
    assert [chunk.heading_path for chunk in chunks_of(document)] == [("A",), ("B",)]


def test_no_passage_ends_in_a_fragment(outline: Outline):
    document = outline(f"## A\n\n{words(310)}\n\n{words(310)}\n\nThe last line.\n\n## B\n\n{words(100)}")
    chunks = chunks_of(document)
    assert all(estimate_tokens(chunk.text) >= 60 for chunk in chunks)
    assert len(chunks) == 3
    assert chunks[1].text.endswith("The last line.")


def test_a_short_introduction_goes_with_the_first_sentences_of_a_long_paragraph(outline: Outline):
    paragraph = " ".join([words(40)] * 11)
    first, *_ = chunks_of(outline(f"## A\n\nIn short:\n\n{paragraph}\n\n{words(300)}"))
    assert first.text.startswith("A\n\nIn short:\n\nAlpha")
    assert estimate_tokens(first.text) > 200


def test_rows_are_packed_and_never_cut(outline: Outline):
    rows = [f"| 城市: 第{n}城; 人口: {n}万; 特点: {'历史悠久' * 5}" for n in range(60)]
    chunks = chunks_of(outline("\n\n".join(rows)))
    assert len(chunks) > 3
    assert all(chunk.kind == "row" for chunk in chunks)
    assert [row for chunk in chunks for row in chunk.text.split("\n\n")] == rows


def test_a_row_that_fits_stays_whole_though_what_is_before_it_is_tiny(outline: Outline):
    chunks = chunks_of(
        outline(f"## A\n\nCaption.\n\n{words(300)}\n\nNote.\n\n| {words(430)}\n\n| {words(40)}")
    )
    assert any(chunk.text.startswith("| ") and estimate_tokens(chunk.text) > 420 for chunk in chunks)


def test_a_row_over_the_maximum_is_cut_between_sentences(outline: Outline):
    chunks = chunks_of(outline(f"| text: {' '.join([words(50)] * 20)}\n\n| text: short"))
    assert len(chunks) >= 3
    assert all(chunk.text.endswith(("end.", "short")) for chunk in chunks)


def test_a_large_table_is_cut_between_its_lines(outline: Outline):
    lines = [f"{n} | {'cell ' * 8}|" for n in range(100)]
    chunks = chunks_of(outline("T " + "\n".join(lines)))
    assert [line.strip() for chunk in chunks for line in chunk.text.split("\n")] == lines
    assert {chunk.kind for chunk in chunks} == {"table"}


def test_a_large_list_is_cut_between_its_items():
    text = "\n".join(f"- item {n} says\n  something about it" for n in range(100))
    chunks = chunks_of(DocumentDraft("text:1", text, blocks=(Block("list", 0, len(text)),)))
    assert len(chunks) > 2
    assert all(chunk.text.startswith("- item") and chunk.text.endswith("about it") for chunk in chunks)


def test_a_chinese_list_is_cut_between_its_items():
    text = "\n".join(f"{n}、第一句。\n第二句很长很长很长很长很长很长。" for n in range(100))
    chunks = chunks_of(DocumentDraft("text:1", text, blocks=(Block("list", 0, len(text)),)))
    assert all(chunk.text[0].isdigit() for chunk in chunks)


def test_each_large_unit_of_code_is_a_passage(outline: Outline):
    unit = "    value = compute(value)¶" * 15
    source = "\n\n".join(f"@unit_{n}\ndef unit_{n}(value):¶{unit}" for n in range(5))
    chunks = chunks_of(outline(source))
    assert [(chunk.name, chunk.kind) for chunk in chunks] == [(f"unit_{n}", "code") for n in range(5)]


def test_small_units_of_code_are_packed_and_large_ones_stay_alone(outline: Outline):
    small = "\n\n".join(f"@Store.get_{n}\n    def get_{n}(self): return self._{n}" for n in range(4))
    large = "@Store.load\n    def load(self):¶" + "        self.read(1)¶" * 20
    document = outline(f"@Store\nclass Store:\n\n{small}\n\n{large}\n\n@Store.end\nx")
    first, second, third = chunks_of(document, target_tokens=120, max_tokens=130)
    assert first.text.startswith("class Store:")
    assert (first.name, second.name, third.name) == ("Store", "Store.load", "Store.end")
    assert {first.heading_path, second.heading_path, third.heading_path} == {("Store",)}


def test_the_head_of_a_class_opens_its_section(outline: Outline):
    body = "    self.read(1)¶" * 20
    document = outline(
        f"@first\ndef first():¶{body}\n\n@Store\nclass Store:¶    doc = 'text'\n\n"
        f"@Store.a\n    def a(self):¶{body}\n\n@Store.b\n    def b(self):¶{body}"
    )
    chunks = chunks_of(document, target_tokens=120, max_tokens=130)
    assert [(chunk.heading_path, chunk.name) for chunk in chunks] == [
        ((), "first"),
        (("Store",), "Store"),
        (("Store",), "Store.a"),
        (("Store",), "Store.b"),
    ]


def test_what_stands_before_the_first_unit_of_code_goes_with_it(outline: Outline):
    body = "    self.read(1)¶" * 30
    text = f"@a\ndef a():¶{body}\n\n@b\ndef b():¶{body}\n\n@c\ndef c():¶{body}"
    document = outline("@\nimport os\n\n" + text)
    first, second, third = chunks_of(document, target_tokens=140, max_tokens=150)
    assert first.text.startswith("import os\n\ndef a")
    assert (first.name, second.name, third.name) == ("a", "b", "c")


def test_a_unit_of_code_too_large_is_cut_at_blank_lines_of_the_least_indentation():
    step = (
        "    for item in items:\n        check(item)\n\n        use(item, [\n            1,\n        ])\n\n"
    )
    text = ("def work(items):\n" + step * 40).rstrip()
    document = DocumentDraft("text:1", text, blocks=(Block("code", 0, len(text), name="work"),))
    chunks = chunks_of(document)
    assert len(chunks) > 2
    assert all(chunk.text.startswith("for item") for chunk in chunks[1:])
    assert {chunk.name for chunk in chunks} == {"work"}


def test_code_without_blank_lines_is_cut_between_statements():
    text = "def work():\n" + "    call(\n        argument,\n    )\n" * 150
    document = DocumentDraft("text:1", text, blocks=(Block("code", 0, len(text) - 1, name="work"),))
    assert all(chunk.text.startswith("call(") for chunk in chunks_of(document)[1:])


def test_code_in_running_text_goes_with_it(outline: Outline):
    text = f"## A\n\n{words(100)}\n\n@\nloom-kb --help\n\n{words(100)}\n\n## B\n\n{words(100)}"
    assert [chunk.kind for chunk in chunks_of(outline(text))] == ["paragraph", "paragraph"]


def test_slides_are_never_put_together(outline: Outline):
    deck = "# Welcome\n\n\f# Agenda\n\nS One\nTwo\n\nS Notes\n\n\f# 总结\n\nS 谢谢"
    chunks = chunks_of(outline(deck, "Welcome", page=1))
    assert [(chunk.page, chunk.heading_path) for chunk in chunks] == [
        (1, ()),
        (2, ("Agenda",)),
        (3, ("总结",)),
    ]
    assert chunks[1].kind == "slide"


def test_slides_without_headings_are_never_put_together(outline: Outline):
    chunks = chunks_of(outline("S 第一页\n\nS 接着\n\n\fS 第二页", page=1))
    assert [chunk.text for chunk in chunks] == ["第一页\n\n接着", "第二页"]


def test_tiny_sections_of_one_slide_are_put_together(outline: Outline):
    chunks = chunks_of(outline("# A\n\nS One\n\n# B\n\nS Two\n\n\f# C\n\nS Three", page=1))
    assert [chunk.page for chunk in chunks] == [1, 2]


def test_running_text_spans_pages_and_keeps_the_page_it_begins_on(outline: Outline):
    document = outline(f"{words(150)}\n\n\f{words(150)}\n\n\f{words(150)}\n\n{words(100)}", page=7)
    assert [chunk.page for chunk in chunks_of(document)] == [7, 9]


def test_a_wide_gap_between_blocks_is_not_bridged():
    text = "First one." + " " * 10_000 + "Second one."
    blocks = (Block("paragraph", 0, 10), Block("paragraph", 10_010, 10_021))
    assert [chunk.text for chunk in chunks_of(DocumentDraft("text:1", text, blocks=blocks))] == [
        "First one.",
        "Second one.",
    ]


@pytest.mark.parametrize(
    "sizes",
    [
        {"min_tokens": -1},
        {"min_tokens": 400},
        {"target_tokens": 501},
        {"target_tokens": 0, "min_tokens": 0},
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes: dict[str, int]):
    with pytest.raises(ConfigError, match="min_tokens ≤ target_tokens ≤ max_tokens"):
        StructureChunker(**sizes)
