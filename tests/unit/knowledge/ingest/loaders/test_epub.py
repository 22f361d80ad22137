from __future__ import annotations

import io
import zipfile

import pytest

from loom_core.errors import DocumentError
from tests.fixtures.archives import book, zipped

XHTML = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>{}</body></html>'


def test_a_book_reads_in_the_order_of_its_spine(load, outline) -> None:
    draft = load(
        "a.epub",
        book(
            {"b.xhtml": XHTML.format("<h1>第一章</h1><p>Salt.</p>"), "a.html": "<h2>Grain</h2><p>Rye.</p>"},
            metadata="<dc:title>The Harbour</dc:title><dc:creator>Ada</dc:creator><dc:creator>Bo</dc:creator>"
            "<dc:language>en</dc:language><dc:date>2026-11-24T00:00:00Z</dc:date>",
        ),
    )
    assert outline(draft) == [
        ("heading", "第一章"),
        ("paragraph", "Salt."),
        ("heading", "Grain"),
        ("paragraph", "Rye."),
    ]
    assert draft.blocks[-1].path == ("第一章", "Grain")
    assert (draft.title, draft.title_source) == ("The Harbour", "metadata")
    assert draft.metadata == {"author": "Ada, Bo", "lang": "en", "date": "2026-11-24"}


def test_references_are_resolved_from_the_package_and_each_page_is_read_once(load) -> None:
    pages = {"../x.html": "<p>up</p>", "./t/y%20z.html": "<p>down</p>"}
    data = book(pages, spine='<itemref idref="i0"/>', manifest='<item id="q" href="gone.html"/>')
    files = {"x.html": "<p>Up</p>", "OEBPS/t/y z.html": "<p>Down</p>"}
    assert load("a.epub", with_parts(data, files)).text == "Up\n\nDown"


def with_parts(data: bytes, parts: dict[str, str]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return zipped({**{name: archive.read(name) for name in archive.namelist()}, **parts})


def test_the_table_of_contents_is_left_out(load) -> None:
    nav = '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
    data = book({"a.html": "<p>Text</p>"}, manifest=nav, spine='<itemref idref="n"/>')
    assert load("a.epub", with_parts(data, {"OEBPS/nav.xhtml": "<p>Chapter 1</p>"})).text == "Text"


def test_a_protected_book_is_refused_and_one_with_obscured_fonts_is_read(load) -> None:
    def encryption(name: str) -> str:
        return f"<encryption><EncryptedData><CipherReference URI='{name}'/></EncryptedData></encryption>"

    pages = {"a.html": "<p>Text</p>"}
    assert load("a.epub", book(pages, **{"META-INF__encryption": encryption("OEBPS/f.otf")})).text == "Text"
    with pytest.raises(DocumentError, match=r"a\.epub is protected against copying \(DRM\)"):
        load("a.epub", book(pages, **{"META-INF__encryption": encryption("OEBPS/a.html")}))


def test_an_archive_that_is_no_book_is_refused(load) -> None:
    with pytest.raises(DocumentError, match=r"as an EPUB book: it has no part META-INF/container\.xml"):
        load("a.epub", zipped({"a.html": "<p>x</p>"}))
    with pytest.raises(DocumentError, match="as an EPUB book: its container names no package"):
        load("a.epub", zipped({"META-INF/container.xml": "<container/>"}))


@pytest.mark.hostile("files of any kind")
def test_a_book_reaches_nothing_outside_itself(load, tmp_path) -> None:
    (tmp_path / "secret.html").write_text("<p>secret</p>")
    data = book({f"../../../../..{tmp_path}/secret.html": "", "a.html": "<p>Text</p>"})
    assert load("a.epub", data).text == "Text"


@pytest.mark.hostile("files of any kind")
def test_a_package_with_entities_is_refused(load) -> None:
    container = '<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/passwd">]><container>&x;</container>'
    with pytest.raises(DocumentError, match="it holds a DOCTYPE"):
        load("a.epub", zipped({"META-INF/container.xml": container}))
