from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.tools.builtin.html_text import html_text

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


@pytest.mark.hostile("patterns")
@pytest.mark.parametrize(
    "html",
    ["<!--" * 50_000, "<script>" * 50_000, "<a href='" * 20_000, "<" * 200_000, "<p title=\"" * 20_000,
     "<li>" * 100_000, "&" * 200_000, "<a href=x>" * 30_000],
)  # fmt: skip
def test_a_broken_page_takes_no_longer_than_its_size_allows(html: str) -> None:
    begun = time.perf_counter()
    html_text(html, base="https://site.example/")
    assert time.perf_counter() - begun < 5


@pytest.mark.hostile("files of any kind")
@given(st.text(alphabet="<>/!-ahrefscript=\"' \n&;#文", max_size=200))
def test_anything_is_read(html: str) -> None:
    assert "\n\n\n" not in html_text(html, base="https://site.example/")
