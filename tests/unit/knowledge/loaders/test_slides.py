from __future__ import annotations

import io
from pathlib import Path

import pytest
from pptx import Presentation

from loom_core.errors import DocumentError
from loom_core.knowledge.loaders import LoadLimits, load_file


def test_a_slide_is_a_page_with_its_title_as_a_heading(documents: Path, outline) -> None:
    draft = load_file(documents / "plan.pptx")
    assert outline(draft) == [
        ("heading", "Veld Harbour Plan"),
        ("slide", "Council of 2024"),
        ("heading", "预算"),
        ("slide", "石料一百万元\n人工两百万元"),
        ("slide", "预算须由议会批准。"),
        ("slide", "Above"),
        ("row", "Year: 1700; Ships: 412"),
        ("slide", "Below"),
    ]
    assert [block.page for block in draft.blocks] == [1, 1, 2, 2, 2, 3, 3, 3]


def test_a_slide_without_a_title_stands_under_none(documents: Path) -> None:
    draft = load_file(documents / "plan.pptx")
    assert draft.blocks[4].path == ("预算",)
    assert draft.blocks[5].path == ()


def test_a_default_title_gives_way_to_the_first_slide(documents: Path) -> None:
    draft = load_file(documents / "plan.pptx")
    assert (draft.title, draft.title_source) == ("Veld Harbour Plan", "heading")


def test_the_title_in_the_properties_is_the_title(load) -> None:
    presentation = Presentation()
    presentation.core_properties.title = "议会会议"
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Agenda"
    body = slide.placeholders[1].text_frame
    body.text = "One"
    body.add_paragraph().text = "Two"
    body.paragraphs[1].level = 1
    out = io.BytesIO()
    presentation.save(out)
    draft = load("a.pptx", out.getvalue())
    assert (draft.title, draft.title_source) == ("议会会议", "metadata")
    assert draft.text == "Agenda\n\nOne\n  Two"


def test_the_limit_on_slides_holds(documents: Path) -> None:
    with pytest.raises(DocumentError, match="has 3 slides, more than are read"):
        load_file(documents / "plan.pptx", limits=LoadLimits(max_pages=2))


def test_a_presentation_without_slides_has_no_text(load) -> None:
    out = io.BytesIO()
    Presentation().save(out)
    with pytest.raises(DocumentError, match="has no text"):
        load("a.pptx", out.getvalue())
