from __future__ import annotations

import copy
import datetime
import io
import zipfile
from pathlib import Path

import pytest
from pptx import Presentation
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml
from pptx.util import Inches

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits, load_file


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


def test_a_title_that_is_a_picture_is_no_title(load) -> None:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.placeholders[1].text = "Salt"
    old = slide.shapes.title._element
    p = "http://schemas.openxmlformats.org/presentationml/2006/main"
    picture = (
        f'<p:pic xmlns:p="{p}"><p:nvPicPr><p:cNvPr id="2" name="a"/><p:cNvPicPr/>'
        '<p:nvPr><p:ph type="title"/></p:nvPr></p:nvPicPr><p:blipFill/><p:spPr/></p:pic>'
    )
    old.getparent().replace(old, parse_xml(picture))
    assert load("a.pptx", saved(presentation)).text == "Salt"


def test_a_shape_with_a_formula_is_read_once(load) -> None:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    shape = slide.placeholders[1]
    shape.text = "Ohm: "
    a14 = "http://schemas.microsoft.com/office/drawing/2010/main"
    math = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    formula = f'<a14:m xmlns:a14="{a14}"><m:r xmlns:m="{math}"><m:t>U=RI</m:t></m:r></a14:m>'
    shape.text_frame.paragraphs[0]._p.append(parse_xml(formula))
    old = shape._element
    mc = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    both = parse_xml(f'<mc:AlternateContent xmlns:mc="{mc}"><mc:Choice/><mc:Fallback/></mc:AlternateContent>')
    both[1].append(copy.deepcopy(old))
    old.getparent().replace(old, both)
    both[0].append(old)
    assert load("a.pptx", saved(presentation)).text == "Ohm: U=RI"


def test_a_cell_over_rows_is_repeated(load) -> None:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(4, 3, 0, 0, 99, 99).table
    rows = (("Region", "Town", "Fee"), ("North", "", "10"), ("", "", "20"), ("South", "Zell", "30"))
    for row, texts in zip(table.rows, rows, strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    table.cell(1, 0).merge(table.cell(2, 1))
    assert load("a.pptx", saved(presentation)).text.split("\n") == [
        "Region: North; Fee: 10",
        "Region: North; Fee: 20",
        "Region: South; Town: Zell; Fee: 30",
    ]


def test_a_presentation_without_slides_has_no_text(load) -> None:
    out = io.BytesIO()
    Presentation().save(out)
    with pytest.raises(DocumentError, match="has no text"):
        load("a.pptx", out.getvalue())


def saved(presentation) -> bytes:
    out = io.BytesIO()
    presentation.save(out)
    return out.getvalue()


def deck(chart_type, data, title: str = "") -> bytes:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    frame = slide.shapes.add_chart(chart_type, 0, 0, Inches(5), Inches(3), data)
    if title:
        frame.chart.chart_title.text_frame.text = title
    return saved(presentation)


def replaced(data: bytes, name: str, old: bytes, new: bytes) -> bytes:
    """An archive in whose part of this name one text is another."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(out, "w") as after:
        for item in before.infolist():
            content = before.read(item)
            if name in item.filename:
                assert old in content
                content = content.replace(old, new)
            after.writestr(item.filename, content)
    return out.getvalue()


def test_a_chart_reads_as_its_title_and_a_row_for_each_category(load, outline) -> None:
    data = CategoryChartData()
    data.categories = ["一季度", "Q2"]
    data.add_series("华东", (19.199999999999999, 20))
    data.add_series("West", (5, None))
    draft = load("a.pptx", deck(XL_CHART_TYPE.COLUMN_CLUSTERED, data, "Sales 销售额"))
    assert outline(draft) == [
        ("slide", "Sales 销售额"),
        ("row", "一季度; 华东: 19.2; West: 5"),
        ("row", "Q2; 华东: 20"),
    ]
    assert [block.page for block in draft.blocks] == [1, 1, 1]


def test_categories_on_several_levels_read_from_the_outermost(load) -> None:
    data = CategoryChartData()
    for year, quarters in (("2025", ("Q1", "Q2")), ("2026", ("Q1",))):
        category = data.add_category(year)
        for quarter in quarters:
            category.add_sub_category(quarter)
    data.add_series("Ships", (1, 2, 3))
    assert load("a.pptx", deck(XL_CHART_TYPE.LINE, data)).text == (
        "2025 / Q1; Ships: 1\n2025 / Q2; Ships: 2\n2026 / Q1; Ships: 3"
    )


def test_dates_and_percentages_read_as_people_see_them(load) -> None:
    data = CategoryChartData(number_format="0.0%")
    data.categories = [datetime.date(2026, 11, 24)]
    data.add_series("Share", (0.256,))
    deck_ = deck(XL_CHART_TYPE.LINE, data)
    assert load("a.pptx", deck_).text == "2026-11-24; Share: 25.6%"
    since_1904 = replaced(deck_, "charts/chart", b'<c:date1904 val="0"/>', b"<c:date1904/>")
    assert load("a.pptx", since_1904).text == "2030-11-25; Share: 25.6%"


def test_a_scatter_chart_reads_as_pairs(load) -> None:
    data = XyChartData()
    series = data.add_series("Depth")
    series.add_data_point(0.7, 2.7)
    series.add_data_point(1.8, 3.2)
    assert load("a.pptx", deck(XL_CHART_TYPE.XY_SCATTER, data)).text == "0.7; Depth: 2.7\n1.8; Depth: 3.2"


def test_the_texts_of_a_diagram_are_read(load) -> None:
    data = CategoryChartData()
    data.categories = ["a"]
    data.add_series("b", (1,))
    chart = deck(XL_CHART_TYPE.PIE, data)
    diagram = (
        '<dgm:dataModel xmlns:dgm="d" xmlns:a="a"><dgm:ptLst><dgm:pt><dgm:t><a:p><a:r><a:t>Plan </a:t></a:r>'
        "<a:r><a:t>A</a:t></a:r></a:p></dgm:t></dgm:pt><dgm:pt><dgm:t><a:p/></dgm:t></dgm:pt>"
        "<dgm:pt><dgm:t><a:p><a:r><a:t>审批</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>"
    )
    with zipfile.ZipFile(io.BytesIO(chart)) as archive:
        part = next(name for name in archive.namelist() if name.startswith("ppt/charts/chart"))
        body = archive.read(part)
    changed = replaced(chart, part, body, diagram.encode())
    changed = replaced(changed, "slide1.xml.rels", b"relationships/chart", b"relationships/diagramData")
    changed = replaced(
        changed,
        "[Content_Types]",
        b"officedocument.drawingml.chart+xml",
        b"officedocument.drawingml.diagramData+xml",
    )
    assert load("a.pptx", changed).text == "Plan A\n审批"


@pytest.mark.hostile("files of any kind")
def test_a_chart_with_entities_is_left_out_and_the_slide_is_read(load) -> None:
    data = CategoryChartData()
    data.categories = ["a"]
    data.add_series("b", (1,))
    presentation = Presentation(io.BytesIO(deck(XL_CHART_TYPE.PIE, data)))
    presentation.slides[0].shapes.add_textbox(0, 0, 99, 99).text_frame.text = "Kept"
    bomb = b'<!DOCTYPE c [<!ENTITY e "aaaaaaaaaa">]><c:chartSpace'
    changed = replaced(saved(presentation), "charts/chart", b"<c:chartSpace", bomb)
    assert load("a.pptx", replaced(changed, "charts/chart", b"<c:v>a<", b"<c:v>&e;<")).text == "Kept"


@pytest.mark.hostile("files of any kind")
def test_a_chart_that_claims_four_billion_points_costs_nothing(load) -> None:
    data = CategoryChartData()
    data.categories = ["a"]
    data.add_series("b", (1,))
    deck_ = deck(XL_CHART_TYPE.PIE, data)
    for old, new in ((b'ptCount val="1"', b'ptCount val="4294967295"'), (b'idx="0"', b'idx="4294967290"')):
        deck_ = replaced(deck_, "charts/chart", old, new)
    assert load("a.pptx", deck_).text == "a; b: 1"
