from __future__ import annotations

import pytest

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits
from tests.fixtures.archives import office, opendocument, slides, text


def test_a_text_reads_with_headings_lists_and_notes(load, outline) -> None:
    draft = load(
        "a.odt",
        text(
            '<text:h text:outline-level="1">港口</text:h>'
            '<text:p>Founded<text:s text:c="2"/>in <text:span>1642</text:span>'
            "<text:note><text:note-citation>1</text:note-citation><text:note-body>"
            "<text:p>See the archive.</text:p></text:note-body></text:note>."
            "<text:line-break/>By merchants.</text:p>"
            '<text:list><text:list-item><text:h text:outline-level="2">Goods</text:h>'
            "</text:list-item></text:list>"
            "<text:list><text:list-item><text:p>salt</text:p><text:list><text:list-item>"
            "<text:p>from the south</text:p></text:list-item></text:list></text:list-item>"
            "<text:list-item/></text:list>"
        ),
    )
    assert outline(draft) == [
        ("heading", "港口"),
        ("paragraph", "Founded  in 1642.\nBy merchants."),
        ("heading", "Goods"),
        ("list", "- salt"),
        ("list", "- from the south"),
        ("paragraph", "See the archive."),
    ]
    assert draft.blocks[3].path == ("港口", "Goods")
    assert draft.mime == "application/vnd.oasis.opendocument.text"


def test_what_is_no_part_of_the_text_is_left_out(load) -> None:
    draft = load(
        "a.odt",
        text(
            "<text:tracked-changes><text:deletion><text:p>deleted</text:p></text:deletion></text:tracked-changes>"
            "<text:table-of-content><text:index-body><text:p>Contents 1</text:p></text:index-body>"
            "</text:table-of-content><text:section><text:p>Kept"
            "<office:annotation><text:p>a comment</text:p></office:annotation> text</text:p></text:section>"
        ),
    )
    assert draft.text == "Kept text"


def test_a_text_box_follows_its_paragraph(load) -> None:
    box = "<draw:frame><draw:text-box><text:p>In a box</text:p></draw:text-box></draw:frame>"
    assert (
        load("a.odt", text(f"<text:p>Before {box}and after</text:p>")).text == "Before and after\n\nIn a box"
    )


def test_a_table_reads_as_rows_with_its_marked_header(load, outline) -> None:
    def row(*cells: str) -> str:
        inside = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
        return f"<table:table-row>{inside}</table:table-row>"

    table = f"<table:table-header-rows>{row('年', 'Ships')}</table:table-header-rows>{row('1700', '412')}"
    empty = '<table:table-row table:number-rows-repeated="1048576"><table:table-cell/></table:table-row>'
    draft = load("a.odt", text(f"<table:table>{table}{empty}{row('1701', '420')}</table:table>"))
    assert outline(draft) == [("row", "年: 1700; Ships: 412"), ("row", "年: 1701; Ships: 420")]


def test_a_cell_over_rows_is_repeated(load) -> None:
    def row(*cells: str) -> str:
        return f"<table:table-row>{''.join(cells)}</table:table-row>"

    cell = "<table:table-cell{}><text:p>{}</text:p></table:table-cell>".format
    covered = '<table:covered-table-cell table:number-columns-repeated="2"/>'
    over = ' table:number-rows-spanned="2" table:number-columns-spanned="2"'
    rows = (
        row(cell("", "Region"), cell("", "Town"), cell("", "Fee")),
        row(cell(over, "North"), "<table:covered-table-cell/>", cell("", "10")),
        row(covered, cell("", "20")),
        row(cell("", "South"), cell("", "Zell"), cell("", "30")),
    )
    assert load("a.odt", text(f"<table:table>{''.join(rows)}</table:table>")).text.split("\n") == [
        "Region: North; Fee: 10",
        "Region: North; Fee: 20",
        "Region: South; Town: Zell; Fee: 30",
    ]


def test_a_table_around_tables_is_layout_and_read_once(load, outline) -> None:
    def table(*cells: str) -> str:
        inside = "".join(f"<table:table-cell>{cell}</table:table-cell>" for cell in cells)
        return f"<table:table><table:table-row>{inside}</table:table-row></table:table>"

    inner = table("<text:p>length</text:p>", "<text:p>40</text:p>")
    assert outline(load("a.odt", text(table("<text:p>Ships</text:p>", inner)))) == [
        ("paragraph", "Ships"),
        ("row", "length | 40"),
    ]


def test_the_title_style_and_the_properties_give_the_title(load) -> None:
    style = '<style:style style:name="P1" style:parent-style-name="Title"/>'
    body = '<text:p text:style-name="P1">Harbour rules</text:p><text:p>Text.</text:p>'
    draft = load("a.odt", text(body, styles=style))
    assert (draft.title, draft.title_source, draft.blocks[1].path) == (
        "Harbour rules",
        "heading",
        ("Harbour rules",),
    )
    meta = (
        "<dc:title>规章</dc:title><dc:creator>Ada</dc:creator><meta:keyword>port</meta:keyword>"
        "<dc:date>2026-11-24T10:00:00</dc:date>"
    )
    draft = load("a.odt", text(body, styles=style, meta=meta))
    assert (draft.title, draft.title_source) == ("规章", "metadata")
    assert draft.metadata == {"author": "Ada", "tags": ["port"], "date": "2026-11-24"}


def frame(inside: str, *, y: str = "0cm", of: str = "outline") -> str:
    return (
        f'<draw:frame presentation:class="{of}" svg:x="1cm" svg:y="{y}">'
        f"<draw:text-box>{inside}</draw:text-box></draw:frame>"
    )


def test_a_slide_is_a_page_with_title_texts_from_top_to_bottom_and_notes(load, outline) -> None:
    page = (
        frame("<text:p>Below</text:p>", y="9cm")
        + '<draw:g><draw:custom-shape svg:y="10mm"><text:p>Above</text:p></draw:custom-shape></draw:g>'
        + frame("<text:p>预算</text:p>", y="3in", of="title")
        + frame("<text:p>7</text:p>", of="page-number")
        + f"<presentation:notes>{frame('<text:p>Remember</text:p>', of='notes')}</presentation:notes>"
    )
    listed = "<text:list><text:list-item><text:p>a</text:p><text:list><text:list-item><text:p>b</text:p>"
    closed = "</text:list-item></text:list></text:list-item></text:list>"
    second = f"<draw:page>{frame(listed + closed)}</draw:page>"
    draft = load("a.odp", slides(f"<draw:page>{page}</draw:page>{second}"))
    assert outline(draft) == [
        ("heading", "预算"),
        ("slide", "Above"),
        ("slide", "Below"),
        ("slide", "Remember"),
        ("slide", "a\n  b"),
    ]
    assert [block.page for block in draft.blocks] == [1, 1, 1, 1, 2]
    assert (draft.title, draft.blocks[-1].path) == ("预算", ())


def test_a_chart_of_a_presentation_reads_as_its_title_and_rows(load, outline) -> None:
    def row(*cells: str) -> str:
        inside = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
        return f"<table:table-row>{inside}</table:table-row>"

    chart = (
        "<office:body><office:chart><chart:chart><chart:title><text:p>Trade</text:p></chart:title><table:table>"
        f"<table:table-header-rows>{row('', '出口')}</table:table-header-rows>"
        f"<table:table-rows>{row('1700', '412')}</table:table-rows></table:table></chart:chart>"
        "</office:chart></office:body>"
    )
    page = '<draw:page><draw:frame><draw:object xlink:href="./Object 1"/></draw:frame></draw:page>'
    data = slides(page, **{"Object 1__content": office("document-content", chart)})
    assert outline(load("a.odp", data)) == [("slide", "Trade"), ("row", "1700; 出口: 412")]


def test_the_limit_on_slides_holds(load) -> None:
    with pytest.raises(DocumentError, match="has 3 slides, more than are read"):
        load("a.odp", slides("<draw:page/>" * 3), LoadLimits(max_pages=2))


def test_an_encrypted_file_is_refused(load) -> None:
    manifest = "<manifest:manifest xmlns:manifest='m'><manifest:encryption-data/></manifest:manifest>"
    data = text("<text:p>x</text:p>", **{"META-INF__manifest": manifest})
    with pytest.raises(DocumentError, match=r"a\.odt is encrypted"):
        load("a.odt", data)


@pytest.mark.hostile("files of any kind")
def test_entities_are_refused(load) -> None:
    laughs = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    for declared in (f'<!ENTITY l0 "ha">{laughs}', '<!ENTITY l9 SYSTEM "file:///etc/passwd">'):
        content = f"<!DOCTYPE d [{declared}]>" + office("document-content", "<office:body>&l9;</office:body>")
        data = opendocument("", content=content)
        with pytest.raises(DocumentError, match="it holds a DOCTYPE"):
            load("a.odt", data)


@pytest.mark.hostile("files of any kind")
def test_nesting_repetition_and_circles_cost_nothing(load) -> None:
    deep = "<text:section>" * 20_000 + "<text:p>deep</text:p>" + "</text:section>" * 20_000
    assert load("a.odt", text(deep)).text == "deep"
    spaces = '<text:p>a<text:s text:c="4294967295"/>b</text:p>'
    assert len(load("a.odt", text(spaces)).text) < 200
    cells = '<table:table-row><table:table-cell table:number-columns-repeated="999999999"><text:p>x</text:p>'
    table = f"<table:table>{cells}</table:table-cell></table:table-row></table:table>"
    assert len(load("a.odt", text(table)).text) < 2_000
    style = '<style:style style:name="{}" style:parent-style-name="{}"/>'
    styles = style.format("A", "B") + style.format("B", "A")
    assert load("a.odt", text('<text:p text:style-name="A">x</text:p>', styles=styles)).text == "x"


@pytest.mark.hostile("files of any kind")
def test_a_part_beyond_the_limit_is_refused(load) -> None:
    data = text(f"<text:p>{'x' * 100_000}</text:p>")
    with pytest.raises(DocumentError, match=r"has a part of [\d,]+ bytes, more than can be parsed"):
        load("a.odt", data, LoadLimits(max_part_bytes=50_000))
