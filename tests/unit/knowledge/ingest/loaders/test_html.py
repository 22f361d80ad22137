from __future__ import annotations

from pathlib import Path

import pytest

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import load_bytes, load_file


def test_the_article_is_read_without_the_page_around_it(documents: Path, outline) -> None:
    assert outline(load_file(documents / "article.html")) == [
        ("heading", "The Harbour of Veld"),
        ("paragraph", "The harbour was founded in 1642 by Dutch merchants."),
        ("heading", "Trade"),
        ("list", "- Salt"),
        ("list", "- Grain\n  - rye\n  - barley"),
        ("paragraph", "Ships"),
        ("row", "Year: 1700; Ships: 412; Remarks: good year"),
        ("row", "Year: 1701; Ships: none"),
        ("code", "cat ledger.txt\n  | grep salt"),
        ("paragraph", "港口位于城市的北边。"),
        ("paragraph", "Loose text\non two lines."),
    ]


def test_title_and_metadata_come_from_the_head(documents: Path) -> None:
    draft = load_file(documents / "article.html")
    assert (draft.title, draft.title_source) == ("The Harbour of Veld", "metadata")
    assert draft.metadata == {
        "author": "Ada Lind",
        "date": "2024-05-17",
        "lang": "en",
        "tags": ["harbour", "history"],
    }
    assert draft.blocks[-1].path == ("The Harbour of Veld", "Trade")


@pytest.mark.parametrize(
    ("html", "title", "source"),
    [
        ("<title>Untitled</title><h1>Tides</h1><p>x", "Tides", "heading"),
        ('<meta property="og:title" content="Tides"><p>x', "Tides", "metadata"),
        ("<p>x", "my page", "filename"),
        ("<title>潮汐表</title><p>x", "潮汐表", "metadata"),
    ],
)
def test_the_title_is_the_best_there_is(load, html: str, title: str, source: str) -> None:
    draft = load("my-page.html", html)
    assert (draft.title, draft.title_source) == (title, source)


def test_a_page_of_boilerplate_only_is_read_whole(load, outline) -> None:
    html = "<nav><p>All there is</p></nav><script>no()</script>"
    assert outline(load("a.html", html)) == [("paragraph", "All there is")]


def test_the_header_stays_if_it_has_the_only_first_level_heading(load, outline) -> None:
    kept = "<header><h1>Title</h1></header><p>Text</p>"
    dropped = "<header><h1>Site</h1></header><h1>Title</h1><p>Text</p>"
    inside = "<article><header><p>By Ada</p></header><p>Text</p></article>"
    assert outline(load("a.html", kept))[0] == ("heading", "Title")
    assert outline(load("a.html", dropped))[0] == ("heading", "Title")
    assert outline(load("a.html", inside))[0] == ("paragraph", "By Ada")


def test_a_layout_table_is_no_table(load, outline) -> None:
    html = "<table><tr><td><h2>News</h2><p>Text</p></td></tr></table>"
    assert outline(load("a.html", html)) == [("heading", "News"), ("paragraph", "Text")]


def test_cells_over_rows_are_repeated_in_their_column(load) -> None:
    table = (
        "<table><tr><th>Region<th>Quarter<th>Fee</tr><tr><td rowspan=3>North<td>Q1<td>10</tr><tr></tr>"
        "<tr><td>Q2<td>20</tr><tr><td>South<td>Q1<td rowspan=2>30</tr><tr><td>West<td>Q2</tr>"
        "<tr><td>East<td>Q3<td rowspan=2>40</tr><tr><td>Isle</tr></table>"
    )
    assert load("a.html", table).text.split("\n") == [
        "Region: North; Quarter: Q1; Fee: 10",
        "Region: North; Quarter: Q2; Fee: 20",
        "Region: South; Quarter: Q1; Fee: 30",
        "Region: West; Quarter: Q2; Fee: 30",
        "Region: East; Quarter: Q3; Fee: 40",
        "Region: Isle; Fee: 40",
    ]


def test_scripts_in_cells_and_hidden_parts_stay_out(load, outline) -> None:
    html = (
        "<table><tr><td>a<script>x</script></td><td>1</td></tr><tr><td>b</td><td>2</td></tr></table>"
        "<p hidden>no</p><!-- no --><p>yes<style>no</style></p><ul><li></li></ul>"
    )
    assert outline(load("a.html", html)) == [("row", "a | 1"), ("row", "b | 2"), ("paragraph", "yes")]


def test_preformatted_text_inside_a_list_is_code(load, outline) -> None:
    html = "<ol><li>Run<pre>loom serve</pre>then<br>wait<div>long</div></li></ol>"
    assert outline(load("a.html", html)) == [
        ("list", "1. Run"),
        ("code", "loom serve"),
        ("list", "then\n  wait\n  long"),
    ]


def test_a_numbered_list_keeps_its_numbers(load, outline) -> None:
    html = "<ol start=3><li>Moor<ul><li>bow</li></ul></li><li value=9>Pay</li><li>Leave</li></ol><ol><li>One"
    assert [text for _, text in outline(load("a.html", html))] == [
        "3. Moor\n  - bow",
        "9. Pay",
        "10. Leave",
        "1. One",
    ]


def test_a_menu_above_the_first_heading_is_left_out(load, outline) -> None:
    def links(*names: str) -> str:
        return f"<ul>{''.join(f'<li><a href={name}>{name}</a> | </li>' for name in names)}</ul>"

    article = f"<h1>Harbour</h1><p>Text</p>{links('Salt', 'Grain', 'Tar')}"
    page = f"<div>{links('Ships', 'Tolls', 'Town')}{links('Map')}</div>{article}"
    assert [text for _, text in outline(load("a.html", page))] == [
        "- Map |",
        "Harbour",
        "Text",
        "- Salt |",
        "- Grain |",
        "- Tar |",
    ]
    assert "Ships" in load("a.html", links("Ships", "Tolls", "Town") + "<p>No heading</p>").text


def test_lines_of_code_end_at_breaks_and_have_no_numbers(load, outline) -> None:
    lines = '<span class="linenos">1</span>def run():<br>  <b>return</b> 1'
    html = f"<pre>{lines}<div>run()</div><div>run()</div></pre>"
    assert outline(load("a.html", html)) == [("code", "def run():\n  return 1\nrun()\nrun()")]


@pytest.mark.parametrize("encoding", ["gb18030", "big5"])
def test_a_declared_chinese_encoding_is_honoured(load, encoding: str) -> None:
    html = f'<meta charset="{encoding}"><h1>港口</h1><p>城市</p>'
    assert load("a.html", html.encode(encoding)).title == "港口"


def test_the_encoding_named_by_a_server_is_honoured() -> None:
    draft = load_bytes(
        "<p>港口".encode("gbk"), uri="https://x.org/a", name="a", mime="text/html", charset="gbk"
    )
    assert draft.text == "港口"
    assert draft.uri == "https://x.org/a"


@pytest.mark.hostile("files of any kind")
def test_hostile_nesting_is_refused_at_once(load) -> None:
    with pytest.raises(DocumentError, match="nested more than"):
        load("a.html", "<div>" * 200_000)
    assert load("a.html", "<script>" + "'<div>'" * 5_000 + "</script><p>fine").text == "fine"


@pytest.mark.hostile("files of any kind")
@pytest.mark.hostile("files of any kind")
def test_thousands_of_links_to_the_top_in_one_block_take_no_time(load) -> None:
    page = "<div>" + "<p>The harbour has a long text. <a href='#top'>Top</a></p>" * 10_000 + "</div>"
    assert len(load("a.html", page).blocks) == 10_000  # in half a second; a minute if each reads the block


def test_unclosed_tags_are_not_nesting(load) -> None:
    assert len(load("a.html", "<p>x" * 3_000).blocks) == 3_000


def text_of(load, body: str, *, title: str = "Hooks — Loom 0.1 documentation") -> str:
    return load("p.html", f"<html><head><title>{title}</title></head><body>{body}</body></html>").text


LONG = "Hooks are programs that run before a commit is made. " * 8


@pytest.mark.parametrize(
    "around",
    [
        '<div class="navheader"><table><tr><td><a href="a.html">Prev</a></td></tr></table></div>',
        '<ul><li><a href="a.html">上一页</a></li><li>手册</li><li><a href="b.html">下一页</a></li></ul>',
        '<p>[<a href="a.html">Previous</a>] [<a href="b.html">Next</a>] [<a href="c.html">Up</a>]</p>',
        '<div id="banner"><a href="/get">Download the ebook</a></div>',
        '<div class="related" role="x"><ul><li><a href="g.html">modules</a> |</li></ul></div>',
        '<div class="breadcrumbs">Docs › Git › Hooks</div>',
        '<div class="cookie-consent">We value your privacy</div>',
        '<p class="copyright">Copyright 2026 The Authors</p>',
        '<a class="edit-this-page" href="/edit">Edit this page</a>',
        '<div class="toc"><ul><li><a href="#a">One</a></li><li><a href="#b">Two</a></li></ul></div>',
    ],
)
def test_what_generators_put_around_an_article_is_left_out(load, around: str) -> None:
    assert text_of(load, f"{around}<h1>Hooks</h1><p>{LONG}</p>{around}") == f"Hooks\n\n{LONG.strip()}"


@pytest.mark.parametrize(
    "content",
    [
        '<div class="sidebar"><p>A note on hooks.</p></div>',
        '<aside class="footnote-list brackets"><aside class="footnote brackets" role="doc-footnote">'
        "<p>Since version 2.9.</p></aside></aside>",
        '<aside epub:type="footnote"><p>Since version 2.9.</p></aside>',
        '<section id="search"><h2>Search</h2><p>How to search.</p></section>',
        '<div class="section" id="footer"><h2>Footer</h2><p>What a footer is.</p></div>',
        '<p>See the <a href="n.html">next</a> chapter.</p>',
        '<p>Go <a href="u.html">up</a> or <a href="n.html">next</a>? '
        + "It depends on many things. " * 12
        + "</p>",
    ],
)
def test_what_an_article_says_stays(load, content: str) -> None:
    text = text_of(load, f"<h1>Hooks</h1><p>{LONG}</p>{content}")
    assert text.split("\n\n")[2:] != []


def test_a_permalink_is_no_part_of_a_heading_and_a_site_none_of_a_title(load) -> None:
    body = f'<h1>Hooks<a class="x" href="#hooks">¶</a></h1><h2>Use<a href="#u">#</a></h2><p>{LONG}</p>'
    draft = load("p.html", f"<title>Hooks &#8212; Git 2.39 documentation</title>{body}")
    assert draft.title == "Hooks"
    assert draft.text.startswith("Hooks\n\nUse\n\nHooks are")
    assert load("q.html", f"<title>abc | Sphinx documentation</title><p>{LONG}</p>").title == "abc"


def test_a_first_page_with_little_but_contents_keeps_them(load) -> None:
    contents = '<div class="toc"><p>1. Install</p><p>2. Use</p></div>'
    assert "2. Use" in text_of(load, f"<h1>Manual</h1>{contents}")
    assert "2. Use" not in text_of(load, f"<h1>Manual</h1>{contents}<p>{LONG}</p>")
