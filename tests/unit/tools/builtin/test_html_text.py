from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.tools.builtin.http_request import html_text

pytestmark = pytest.mark.slow

_PAGE = """<!DOCTYPE html>
<html><head><title>港口 &amp; more</title><style>p{}</style><script>if (a<b) "x</p>"</script></head>
<body><!-- <p>no</p> --><h2>One</h2><p>Some   <b>bold</b>
text, <a class="x>y" href="/sub?a=1&amp;b=2">a  link</a> and <a href='#here'>here</a>.<br>Next</p>
<ul><li>first<li><a href="https://other.example/">second</a></ul>
<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>
<pre>a
  b</pre><a href="javascript:x()">no link</a> 1 < 2</body></html>"""


def test_a_page_is_text_with_headings_items_and_links() -> None:
    assert html_text(_PAGE, base="https://site.example/dir/page").splitlines() == [
        "港口 & more",
        "",
        "## One",
        "",
        "Some bold text, [a link](https://site.example/sub?a=1&b=2) and here.",
        "Next",
        "",
        "- first",
        "- [second](https://other.example/)",
        "",
        "A | B",
        "",
        "1 | 2",
        "",
        "a",
        "  b",
        "no link 1 < 2",
    ]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<a href="/x"><h2>Title</h2><p>Teaser</p></a>', "## [Title](https://site.example/x)\n\nTeaser"),
        ("<ul>\n<li>one</li>\n<li>two<ol><li>deep</li></ol></li>\n</ul>", "- one\n- two\n- deep"),
        (
            "see <a href='/y'> there </a>, <a href='/z'><img></a>now",
            "see [there](https://site.example/y) , now",
        ),
        ("<p hidden>no</p><select><option>no</select><p>yes<textarea><b>no</b>", "yes"),
        ("<title>A &lt;b&gt;</title><p>1<p>2<div>3</p>4", "A <b>\n\n1\n\n2\n\n3\n\n4"),
    ],
)
def test_a_page_is_read_as_a_browser_shows_it(html: str, text: str) -> None:
    assert html_text(html, base="https://site.example/dir/") == text


@pytest.mark.hostile("files of any kind")
def test_a_page_nested_too_deep_is_refused_with_the_way_around() -> None:
    with pytest.raises(InvalidInputError, match="nested more than 1,000 deep") as refused:
        html_text("<div>" * 400_000, base="https://site.example/")
    assert refused.value.advice == "Ask for the HTML itself."


@pytest.mark.hostile("patterns")
@pytest.mark.parametrize(
    "html",
    ["<!--" * 50_000, "<script>" * 50_000, "<a href='" * 20_000, "<" * 200_000, "<p title=\"" * 20_000,
     "<li>" * 100_000, "&" * 200_000, "<a href=x>" * 30_000, "<b><p>" * 20_000,
     "<a href=x><marquee>" * 900 + "x" * 5_000_000],
)  # fmt: skip
def test_a_broken_page_takes_no_longer_than_its_size_allows(html: str) -> None:
    begun = time.process_time()
    html_text(html, base="https://site.example/")
    assert time.process_time() - begun < 5


@pytest.mark.hostile("files of any kind")
@given(st.text(alphabet="<>/!-ahrefscript=\"' \n&;#文", max_size=200))
def test_anything_is_read(html: str) -> None:
    assert "\n\n\n" not in html_text(html, base="https://site.example/")
