from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits, load_file
from loom_core.knowledge.ingest.loaders.formats.pdf import Dehyphenator, PdfLine, find_paragraphs


def test_paragraphs_headings_and_pages_are_found(documents: Path, outline) -> None:
    draft = load_file(documents / "harbour.pdf")
    assert outline(draft) == [
        ("heading", "The Harbour of Veld"),
        ("heading", "Foundation"),
        (
            "paragraph",
            "The harbour of Veld was founded in 1642 by Dutch merchants who needed shelter from the winter "
            "storms. Its first breakwater was built of timber and lasted eleven years.",
        ),
        (
            "paragraph",
            "After the great flood the council decided to build in stone instead. The quarry at Holm "
            "delivered granite for two decades, and the masons were paid by the barge load.",
        ),
        ("heading", "Trade"),
        (
            "paragraph",
            "Salt, grain and tar were the main goods. In good years more than four hundred ships called at "
            "the port, and the customs house employed thirty clerks who kept their ledgers by hand. Many of "
            "these ledgers survive in the city archive today.",
        ),
        ("list", "• salt from the south"),
        ("list", "• grain from the east"),
    ]
    assert [block.page for block in draft.blocks] == [1, 1, 1, 1, 2, 2, 3, 3]
    assert draft.blocks[-1].path == ("The Harbour of Veld", "Trade")


def test_a_title_that_says_nothing_gives_way_to_the_largest_heading(documents: Path) -> None:
    draft = load_file(documents / "harbour.pdf")
    assert (draft.title, draft.title_source) == ("The Harbour of Veld", "heading")
    assert draft.metadata == {"author": "Ada Lind", "tags": ["harbour", "history"], "date": "2000-01-01"}


def test_chinese_lines_join_without_a_space(documents: Path, outline) -> None:
    draft = load_file(documents / "港口.pdf")
    assert outline(draft)[1] == (
        "paragraph",
        "维尔德港建于一六四二年，由需要躲避冬季风暴的荷兰商人创立。它的第一道防波堤是用木材建造的，"
        "使用了十一年。大洪水之后，议会决定改用石头修建。",
    )
    assert "第1页" not in draft.text
    assert draft.blocks[3].path == ("港口的贸易",)


def test_the_outline_decides_what_is_a_heading(documents: Path) -> None:
    draft = load_file(documents / "outline.pdf")
    assert (draft.title, draft.title_source) == ("Field Notes", "metadata")
    assert [(block.kind, block.level, block.page) for block in draft.blocks] == [
        ("heading", 1, 1),
        ("paragraph", 0, 1),
        ("heading", 2, 2),
        ("paragraph", 0, 2),
    ]
    assert draft.blocks[-1].path == ("Birds", "Waders")


def test_a_rotated_page_reads_as_it_is_shown(documents: Path, outline) -> None:
    texts = [text for _, text in outline(load_file(documents / "rotated.pdf"))]
    assert len(texts) == 2
    assert texts[1] == "Another paragraph stands further down."


@pytest.mark.parametrize("rotation", [b"180", b"270"])
def test_pages_may_be_turned_any_way(documents: Path, load, rotation: bytes) -> None:
    data = (documents / "rotated.pdf").read_bytes()
    assert b"/Rotate 90" in data
    assert "founded in 1642" in load("a.pdf", data.replace(b"/Rotate 90", b"/Rotate " + rotation)).text


@pytest.mark.parametrize(("a", "b"), [(1, 0), (0, 1), (-1, 0), (0, -1)])
def test_words_that_stand_at_an_angle_read_in_their_order(load, a: int, b: int) -> None:
    """As recognised text does: each word on its own, on a page that may lie on its side."""
    words = [
        (f"{word}", 60 * column, -20 * row)
        for row, line in enumerate(["The harbour of Veld", "was founded in 1642."])
        for column, word in enumerate(line.split())
    ]
    drawn = [
        f"{a} {b} {-b} {a} {300 + a * x - b * y} {400 + b * x + a * y} Tm ({word}) Tj" for word, x, y in words
    ]
    draft = load("a.pdf", pdf_of(f"BT /F 12 Tf 3 Tr {' '.join(drawn)} ET"))
    assert draft.text == "The harbour of Veld was founded in 1642."


def test_a_raised_number_is_no_part_of_the_first_word_of_a_footnote(load, outline) -> None:
    drawn = (
        "/F 6 Tf 1 0 0 1 72 704 Tm (1) Tj /F 10 Tf 1 0 0 1 76 700 Tm (Ships that were) Tj "
        "1 0 0 1 72 688 Tm (built in Veld.) Tj"
    )
    assert outline(load("a.pdf", pdf_of(f"BT {drawn} ET"))) == [
        ("paragraph", "1 Ships that were built in Veld.")
    ]


def test_the_other_words_of_a_document_decide_about_hyphens(load) -> None:
    lines = ["The data-", "base holds a well-", "known fact. This", "well-known base of data."]
    shown = " ".join(f"1 0 0 1 72 {700 - 14 * row} Tm ({line}) Tj" for row, line in enumerate(lines))
    text = load("a.pdf", pdf_of(f"BT /F 12 Tf {shown} ET")).text
    assert "data-base holds a well-known fact" in text


def pdf_of(content: str) -> bytes:
    """A PDF of one page with this content stream, in Helvetica as /F."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F "
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
    ]
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, start=1))
    return f"%PDF-1.7\n{body}trailer\n<< /Size 5 /Root 1 0 R >>\n%%EOF\n".encode()


def test_an_encrypted_file_is_refused(documents: Path) -> None:
    with pytest.raises(DocumentError, match=r"encrypted\.pdf is encrypted\. Save a copy without a password"):
        load_file(documents / "encrypted.pdf")


def test_a_scan_is_refused_with_word_of_ocr(documents: Path) -> None:
    with pytest.raises(
        DocumentError, match=r"no text on its 1 page: it is probably a scan\. Loom does no OCR"
    ):
        load_file(documents / "scan.pdf")


def test_limits_on_pages_and_text_hold(documents: Path) -> None:
    with pytest.raises(DocumentError, match="has 3 pages, more than are read"):
        load_file(documents / "harbour.pdf", limits=LoadLimits(max_pages=2))
    with pytest.raises(DocumentError, match="holds more text"):
        load_file(documents / "harbour.pdf", limits=LoadLimits(max_text_chars=100))


@pytest.mark.hostile("files of any kind")
def test_a_broken_file_is_refused(load, documents: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read as a PDF"):
        load("a.pdf", b"%PDF-1.7 nothing more")
    with pytest.raises(DocumentError):
        load("a.pdf", (documents / "harbour.pdf").read_bytes()[:700])


def test_many_threads_may_load_at_once(documents: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        drafts = list(pool.map(load_file, [documents / "harbour.pdf"] * 24))
    assert len({draft.text for draft in drafts}) == 1


def line(
    text: str, y: float, *, left: float = 72, right: float = 500, size: float = 12, page: int = 1
) -> PdfLine:
    return PdfLine(text, page, left, y, right, size, 842)


def test_pieces_side_by_side_are_one_line() -> None:
    pieces = [line("left", 700, right=200), line("right", 700.5, left=300), line("below.", 686)]
    assert [paragraph.text for paragraph in find_paragraphs([pieces], {})] == ["left right\nbelow."]


def test_an_indented_or_short_line_parts_paragraphs() -> None:
    lines = [
        line("One begins here and", 700),
        line("ends here.", 686, right=160),
        line("Two begins here", 672),
        line("and goes on", 658),
        line("Three is indented", 644, left=96),
    ]
    assert [paragraph.text.split()[0] for paragraph in find_paragraphs([lines], {})] == [
        "One",
        "Two",
        "Three",
    ]


def test_a_sentence_runs_on_in_the_next_column() -> None:
    lines = [line("it goes", 100), line("on above.", 700, left=320), line("Next", 300, left=320)]
    assert [paragraph.text for paragraph in find_paragraphs([lines], {})] == ["it goes\non above.", "Next"]


def test_a_poster_has_no_headings() -> None:
    lines = [
        line("small text", 500),
        *(line("HUGE TYPE", 900 - 8 * size, size=size) for size in (30, 40, 50)),
    ]
    assert all(paragraph.level == 0 for paragraph in find_paragraphs([lines], {}))


def test_running_heads_are_dropped_only_at_the_edge() -> None:
    pages = [
        [
            line("Journal 7", 810, page=page),
            line("Journal 7", 400, page=page),
            line(f"page {page}", 30, page=page),
        ]
        for page in (1, 2)
    ]
    assert [paragraph.text for paragraph in find_paragraphs(pages, {})] == ["Journal 7", "Journal 7"]


def test_running_heads_that_change_with_the_chapter_are_dropped() -> None:
    bodies = ["The harbour is old.", "Ships pay on arrival.", "Boats are free.", "Tolls are due in May."]
    numbered = [
        [line(f"{page} CHAPTER {body[:3]}", 730, page=page + 4), line(body, 700, page=page + 4)]
        for page, body in enumerate(bodies, start=1)
    ]
    chapters = [
        [line(head, 810, page=page), line(body, 700, page=page)]
        for page, (head, body) in enumerate(
            zip(("Trade", "Trade", "Tolls", "Tolls"), bodies, strict=True), start=1
        )
    ]
    for pages in (numbered, chapters):
        assert [paragraph.text for paragraph in find_paragraphs(pages, {})] == bodies


def test_titles_of_slides_and_of_sections_are_no_running_heads() -> None:
    titles = ["Results", "Results", "Plans", "Plans", "The end"]
    slides = [
        [line(title, 800, page=page, size=24), line(f"point {'abcde'[page - 1]}", 700, page=page)]
        for page, title in enumerate(titles, start=1)
    ]
    pages = [[line(f"Text {'abcd'[page - 1]}.", 790, page=page)] for page in (1, 2, 4)]
    section = [line("3 Results", 790, page=3), line("We found it.", 700, page=3)]
    assert [paragraph.text for paragraph in find_paragraphs(slides, {})][::2] == titles
    assert find_paragraphs([*pages[:2], section, *pages[2:]], {})[2].text == "3 Results"


def test_each_line_of_a_table_of_contents_is_an_item_without_its_dots() -> None:
    lines = [
        line("A The harbour 5", 700),
        line("1 Where is it? . . . . . . . . . . . . 5", 686),
        line("2 Who pays? . . . . . . . . . . . . . . 6", 672),
        line("B The town 7", 658),
    ]
    paragraphs = find_paragraphs([lines], {})
    assert [(paragraph.text[0], paragraph.is_item) for paragraph in paragraphs] == [
        ("A", False),
        ("1", True),
        ("2", True),
        ("B", False),
    ]


def test_no_lines_make_no_paragraphs() -> None:
    assert find_paragraphs([[], []], {}) == []


@pytest.mark.parametrize(
    ("broken", "elsewhere", "joined"),
    [
        ("the har-\nbour", "", "the harbour"),
        ("the har\u00ad\nbour", "", "the harbour"),
        ("the har\u2010\nbour", "", "the harbour"),
        ("a data-\nbase", "The database is old. So are data, and the base.", "a database"),
        ("a well-\nknown fact", "It is well-known.", "a well-known fact"),
        ("an error-\nprone step", "An error is prone to come.", "an error-prone step"),
        ("Haupt-\nund Nebensatz", "", "Haupt- und Nebensatz"),
        ("Donau-\ndampfschiff", "", "Donaudampfschiff"),
        ("from A-\nBerg", "", "from A-\nBerg"),
        ("pages 3-\n4", "", "pages 3-\n4"),
        ("Anna-\u00ad\nBerg", "", "Anna--Berg"),
        ("港口-\n贸易", "", "港口-\n贸易"),
    ],
)
def test_the_rest_of_the_document_decides_about_a_hyphen(broken: str, elsewhere: str, joined: str) -> None:
    assert Dehyphenator([broken, elsewhere]).dehyphenate(broken) == joined


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize("unit", ["a", "a-", "-", "a\u2010", "a-\n"])
def test_half_a_million_of_anything_take_no_time(unit: str) -> None:
    text = unit * 500_000
    assert len(Dehyphenator([text]).dehyphenate(text)) <= len(text)


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize("unit", [". ", ".", " ", "…", " . ", "a. "])
def test_half_a_million_dots_take_no_time(unit: str) -> None:
    lines = [line(f"{unit * 500_000}!", 700), line("end", 686)]
    assert "".join(paragraph.text for paragraph in find_paragraphs([lines], {})).endswith("end")
