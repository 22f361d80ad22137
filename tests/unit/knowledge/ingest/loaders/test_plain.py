from __future__ import annotations

import pytest

NOVEL = """第一章 风起

　　这是第一段，讲述故事的开头。
　　这是第二段，继续讲述下去。

第二章 云涌
他说：“第二章开始了。”
一、背景
这里是背景介绍的内容。
（一）地理
城在河边。
"""


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16"])
def test_chinese_chapters_and_numbered_sections_are_headings(load, outline, encoding: str) -> None:
    draft = load("novel.txt", NOVEL.encode(encoding))
    assert outline(draft) == [
        ("heading", "第一章 风起"),
        ("paragraph", "这是第一段，讲述故事的开头。"),
        ("paragraph", "这是第二段，继续讲述下去。"),
        ("heading", "第二章 云涌"),
        ("paragraph", "他说：“第二章开始了。”"),
        ("heading", "一、背景"),
        ("paragraph", "这里是背景介绍的内容。"),
        ("heading", "（一）地理"),
        ("paragraph", "城在河边。"),
    ]
    assert draft.blocks[-1].path == ("第二章 云涌", "一、背景", "（一）地理")
    assert (draft.title, draft.title_source) == ("novel", "filename")


def test_underlined_and_numbered_lines_are_headings(load, outline) -> None:
    text = "Design Notes\n============\n\n1. Introduction\n\nText that\nwraps.\n\n1.1 Scope\n\nOnly this.\n"
    draft = load("notes.txt", text)
    assert outline(draft) == [
        ("heading", "Design Notes"),
        ("heading", "1. Introduction"),
        ("paragraph", "Text that\nwraps."),
        ("heading", "1.1 Scope"),
        ("paragraph", "Only this."),
    ]
    assert draft.blocks[-1].path == ("Design Notes", "1. Introduction", "1.1 Scope")
    assert (draft.title, draft.title_source) == ("Design Notes", "heading")


def test_an_overlined_heading_of_any_rule_is_found(load, outline) -> None:
    draft = load("a.rst", "=====\nTitle\n=====\n\nText.\n\n织机\n----\n\nMore.\n\nSub\n~~~\n\nEnd.")
    assert [text for kind, text in outline(draft) if kind == "heading"] == ["Title", "织机", "Sub"]
    assert draft.blocks[-1].path == ("Title", "织机", "Sub")


@pytest.mark.parametrize(
    "heading", ["Chapter 3", "PART II: The Sea", "Appendix A — Tables", "Section 4. Fees"]
)
def test_named_parts_are_headings(load, outline, heading: str) -> None:
    assert outline(load("a.txt", f"Before.\n\n{heading}\n\nText.\n"))[1] == ("heading", heading)


@pytest.mark.parametrize(
    "text",
    [
        "1. first item\n2. second item\n3. third item",
        "一、苹果\n二、梨\n三、桃",
        "第一章 甲\n第二章 乙",
        "第一部分是引言，第二部分是正文。",
        "1. this is lower case\n\nText.",
        "Chapter 3 was long.\n\nText.",
        "3.14 Is a number\nin a line that goes on.",
        "12 Monkeys",
        "a line\n--",
        f"1.1 {'Long ' * 30}\n\nText.",
        "Text\nunder text\n----------\n\nText.",
        "一、这一条写得很完整，是一个句子。\n内容。",
    ],
)
def test_lists_and_sentences_are_not_headings(load, text: str) -> None:
    assert all(block.kind == "paragraph" for block in load("a.txt", text).blocks)


def test_unwrapped_lines_are_paragraphs_of_their_own(load, outline) -> None:
    lines = ["一" * 80, "二" * 90, "短。"]
    assert [text for _, text in outline(load("a.txt", "\n".join(lines)))] == lines


def test_an_indented_line_opens_a_paragraph(load, outline) -> None:
    text = "One begins\nand goes on.\n    Two begins\nand goes on."
    assert [text for _, text in outline(load("a.txt", text))] == [
        "One begins\nand goes on.",
        "Two begins\nand goes on.",
    ]


def test_separators_belong_to_nothing(load, outline) -> None:
    assert outline(load("a.txt", "One.\n\n=====\n\nTwo.")) == [("paragraph", "One."), ("paragraph", "Two.")]


def test_names_without_an_extension_are_known(load) -> None:
    assert load("README", "织机").mime == "text/plain"
    assert load("Dockerfile", "FROM scratch").mime == "text/x-source"
