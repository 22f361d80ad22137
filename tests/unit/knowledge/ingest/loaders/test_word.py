from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from docx import Document
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits, load_file

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def rebuilt(path: Path, parts: dict[str, bytes]) -> bytes:
    """The archive with some parts replaced or added."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in {*old.namelist(), *parts}:
            new.writestr(name, parts[name] if name in parts else old.read(name))
    return out.getvalue()


def with_body(path: Path, body: str) -> bytes:
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    document = f"<w:document {W} {mc} {math}><w:body>{body}</w:body></w:document>"
    return rebuilt(path, {"word/document.xml": document.encode()})


def test_styles_lists_and_tables_are_read(documents: Path, outline) -> None:
    draft = load_file(documents / "handbook.docx")
    assert outline(draft) == [
        ("heading", "Harbour Handbook"),
        ("heading", "Rules"),
        ("paragraph", "Every ship pays on arrival."),
        ("heading", "Fees"),
        ("list", "- Small boats are free."),
        ("list", "- Large ships pay by length."),
        ("row", "Class: A; Length: 10 m; Fee: 20"),
        ("row", "Class: B; Length: 30 m; Fee: 75"),
        ("heading", "Safety"),
        ("paragraph", "Lights stay on at night."),
    ]
    assert (draft.title, draft.title_source) == ("Harbour Handbook", "heading")
    assert draft.metadata == {"author": "Ada Lind", "tags": ["harbour", "Veld"], "date": "2024-05-17"}
    assert draft.blocks[6].path == ("Rules", "Fees")


def test_localised_and_derived_heading_styles_count(documents: Path, outline) -> None:
    draft = load_file(documents / "手册.docx")
    assert (draft.title, draft.title_source) == ("港口手册", "metadata")
    assert [(block.level, draft.text[block.start : block.end]) for block in draft.blocks[:3]] == [
        (1, "规则"),
        (0, "每艘船到港时付费。"),
        (2, "费用"),
    ]


def test_a_cell_merged_over_rows_is_repeated(documents: Path, outline) -> None:
    assert outline(load_file(documents / "手册.docx"))[-1] == (
        "row",
        "等级: 甲; 长度: 三十米; 费用: 七十五元",
    )


def test_controls_insertions_links_and_text_boxes_are_read_and_deletions_not(
    documents: Path, load, outline
) -> None:
    text = "<w:r><w:t>{}</w:t></w:r>".format
    body = (
        '<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
        f"<w:sdtContent><w:p>{text('contents')}</w:p></w:sdtContent></w:sdt>"
        f"<w:sdt><w:sdtContent><w:p>{text('in a control')}</w:p></w:sdtContent></w:sdt>"
        f"<w:p><w:ins>{text('new')}</w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
        f"<w:hyperlink>{text(' link')}</w:hyperlink><w:r><w:tab/><w:t>tab</w:t><w:br/><w:t>break</w:t>"
        "<w:noBreakHyphen/></w:r></w:p>"
        f"<w:p>{text('before')}<w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p>{text('box')}</w:p>"
        f"</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent><w:p>{text('box')}</w:p></w:txbxContent>"
        "</mc:Fallback></mc:AlternateContent></w:r></w:p>"
        '<w:p><w:pPr><w:outlineLvl w:val="2"/></w:pPr><w:r><w:t>third</w:t></w:r></w:p>'
        '<w:p><w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="5"/></w:numPr></w:pPr>'
        f"{text('item')}</w:p>"
        '<w:p><w:pPr><w:pStyle w:val="ListBullet"/><w:numPr><w:numId w:val="0"/></w:numPr></w:pPr>'
        f"{text('no item')}</w:p>"
    )
    draft = load("a.docx", with_body(documents / "handbook.docx", body))
    assert outline(draft) == [
        ("paragraph", "in a control"),
        ("paragraph", "new link\ttab\nbreak-"),
        ("paragraph", "before"),
        ("paragraph", "box"),
        ("heading", "third"),
        ("list", "- item"),
        ("paragraph", "no item"),
    ]
    assert draft.blocks[4].level == 3


def test_a_table_around_tables_is_layout_and_read_once(documents: Path, load, outline) -> None:
    def row(*cells: str) -> str:
        return f"<w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"

    text = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>".format
    control = f"<w:sdt><w:sdtContent><w:tc>{text('40')}</w:tc></w:sdtContent></w:sdt>"
    inner = (
        f"<w:tbl><w:tr><w:tc>{text('length')}</w:tc>{control}</w:tr>{row(text('fee'), text('75'))}</w:tbl>"
    )
    outer = f"<w:tbl>{row(text('Ships'), inner)}{row(text('Boats'))}</w:tbl>"
    assert outline(load("a.docx", with_body(documents / "handbook.docx", outer))) == [
        ("paragraph", "Ships"),
        ("row", "length | 40"),
        ("row", "fee | 75"),
        ("paragraph", "Boats"),
    ]


def test_text_boxes_of_an_empty_paragraph_are_read_with_their_tables_each_once(
    documents: Path, load, outline
) -> None:
    text = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>".format
    table = f"<w:tbl><w:tr><w:tc>{text('length')}</w:tc><w:tc>{text('40')}</w:tc></w:tr></w:tbl>"
    box = "<w:p><w:r><w:txbxContent>{}</w:txbxContent></w:r></w:p>".format
    body = box(text("outer") + table + box(text("inner")))
    assert outline(load("a.docx", with_body(documents / "handbook.docx", body))) == [
        ("paragraph", "outer"),
        ("row", "length | 40"),
        ("paragraph", "inner"),
    ]


def test_formulas_and_moved_text_are_read_where_they_are_and_readings_of_characters_not(
    documents: Path, load
) -> None:
    run = "<w:r><w:t>{}</w:t></w:r>".format
    ruby = "<w:r><w:ruby><w:rt>{}</w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>".format
    body = (
        f"<w:p>{ruby(run('běi'), run('北'))}{ruby(run('jīng'), run('京'))}{run('：')}"
        "<m:oMath><m:r><m:t>U=RI</m:t></m:r></m:oMath></w:p>"
        f"<w:p><w:moveFrom>{run('moved')}</w:moveFrom>{run('stays')}</w:p>"
        f"<w:p><w:moveTo>{run('moved')}</w:moveTo></w:p>"
    )
    draft = load("a.docx", with_body(documents / "handbook.docx", body))
    assert draft.text == "北京：U=RI\n\nstays\n\nmoved"


def test_a_text_box_in_a_cell_is_read_once(documents: Path, load) -> None:
    box = "<w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent>"
    both = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    cell = f"<w:p><w:r><mc:AlternateContent>{both}</mc:AlternateContent></w:r></w:p>"
    body = f"<w:tbl><w:tr><w:tc>{cell}</w:tc></w:tr></w:tbl>"
    assert load("a.docx", with_body(documents / "handbook.docx", body)).text == "box"


def test_a_header_row_marked_in_word_names_the_columns(documents: Path, load, outline) -> None:
    cell = "<w:tc><w:tcPr>{}</w:tcPr><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>".format
    wide = '<w:gridSpan w:val="2"/>'
    body = (
        "<w:tbl><w:tr><w:trPr><w:tblHeader/></w:trPr>"
        f"{cell('', '2023')}{cell('', '2024')}{cell('', '2025')}</w:tr>"
        f"<w:tr>{cell(wide, 'a')}{cell('', 'b')}</w:tr></w:tbl>"
    )
    draft = load("a.docx", with_body(documents / "handbook.docx", body))
    assert outline(draft) == [("row", "2023: a; 2025: b")]


def test_footnotes_come_at_the_end(documents: Path, load, outline) -> None:
    path = documents / "handbook.docx"
    with zipfile.ZipFile(path) as archive:
        relations = archive.read("word/_rels/document.xml.rels").decode()
        types = archive.read("[Content_Types].xml").decode()
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    content = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    data = rebuilt(
        path,
        {
            "word/_rels/document.xml.rels": relations.replace(
                "</Relationships>",
                f'<Relationship Id="rId99" Type="{kind}" Target="footnotes.xml"/></Relationships>',
            ).encode(),
            "[Content_Types].xml": types.replace(
                "</Types>", f'<Override PartName="/word/footnotes.xml" ContentType="{content}"/></Types>'
            ).encode(),
            "word/footnotes.xml": (
                f'<w:footnotes {W}><w:footnote w:type="separator"><w:p/></w:footnote>'
                "<w:footnote><w:p><w:r><w:t>See the ledger.</w:t></w:r></w:p></w:footnote></w:footnotes>"
            ).encode(),
        },
    )
    assert outline(load("a.docx", data))[-1] == ("paragraph", "See the ledger.")


def test_entities_that_multiply_are_refused(documents: Path, load) -> None:
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "lol">'
        + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
        + f"]><w:document {W}><w:body><w:p><w:r><w:t>safe &j;</w:t></w:r></w:p></w:body></w:document>"
    )
    data = rebuilt(documents / "handbook.docx", {"word/document.xml": bomb.encode()})
    with pytest.raises(DocumentError, match="cannot be read as a Word document"):
        load("a.docx", data)


def test_external_entities_are_not_fetched(documents: Path, load, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    body = f"<w:document {W}><w:body><w:p><w:r><w:t>open &x;</w:t></w:r></w:p></w:body></w:document>"
    xml = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY x SYSTEM "{secret.as_uri()}">]>{body}'
    assert (
        load("a.docx", rebuilt(documents / "handbook.docx", {"word/document.xml": xml.encode()})).text
        == "open"
    )


def test_styles_that_are_based_on_each_other_are_survived(documents: Path, load) -> None:
    styles = (
        f'<w:styles {W}><w:style w:styleId="A"><w:name w:val="a"/><w:basedOn w:val="B"/></w:style>'
        '<w:style w:styleId="B"><w:name w:val="b"/><w:basedOn w:val="A"/></w:style></w:styles>'
    )
    body = '<w:p><w:pPr><w:pStyle w:val="A"/></w:pPr><w:r><w:t>text</w:t></w:r></w:p>'
    document = f"<w:document {W}><w:body>{body}</w:body></w:document>"
    parts = {"word/styles.xml": styles.encode(), "word/document.xml": document.encode()}
    assert load("a.docx", rebuilt(documents / "handbook.docx", parts)).text == "text"


@pytest.mark.hostile("files of any kind")
def test_a_part_too_large_to_parse_is_refused(documents: Path) -> None:
    with pytest.raises(DocumentError, match="more than can be parsed"):
        load_file(documents / "handbook.docx", limits=LoadLimits(max_part_bytes=1_000))


def test_an_empty_document_has_no_text(load) -> None:
    out = io.BytesIO()
    Document().save(out)
    with pytest.raises(DocumentError, match="has no text"):
        load("a.docx", out.getvalue())


def test_a_chart_follows_its_paragraph(load, outline) -> None:
    document = Document()
    chart = (
        '<c:chartSpace xmlns:c="c" xmlns:a="a"><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Trade</a:t>'
        "</a:r></a:p></c:rich></c:tx></c:title><c:plotArea><c:barChart><c:ser><c:tx><c:strRef><c:strCache>"
        '<c:pt idx="0"><c:v>出口</c:v></c:pt></c:strCache></c:strRef></c:tx><c:cat><c:strLit><c:pt idx="0">'
        '<c:v>1700</c:v></c:pt></c:strLit></c:cat><c:val><c:numLit><c:pt idx="0"><c:v>412</c:v></c:pt>'
        "</c:numLit></c:val></c:ser></c:barChart></c:plotArea></c:chart></c:chartSpace>"
    )
    kind = "application/vnd.openxmlformats-officedocument.drawingml.chart+xml"
    part = Part(PackURI("/word/charts/chart1.xml"), kind, chart.encode(), document.part.package)
    relation = document.part.relate_to(part, f"{RELATIONS}/chart")
    run = document.add_paragraph("As the figure shows:").add_run()
    run._r.append(
        parse_xml(
            f'<w:drawing {W}><c:chart xmlns:c="c" xmlns:r="{RELATIONS}" r:id="{relation}"/></w:drawing>'
        )
    )
    document.add_paragraph("The end.")
    out = io.BytesIO()
    document.save(out)
    assert outline(load("a.docx", out.getvalue())) == [
        ("paragraph", "As the figure shows:"),
        ("paragraph", "Trade"),
        ("row", "1700; 出口: 412"),
        ("paragraph", "The end."),
    ]
