from __future__ import annotations

import pytest

from loom_core.files.html import MAX_DEPTH, parse_html


@pytest.mark.hostile("files of any kind")
def test_a_page_is_parsed_down_to_the_greatest_depth_and_no_deeper() -> None:
    assert parse_html("<div>" * MAX_DEPTH) is not None
    assert parse_html("<div>" * (MAX_DEPTH + 1)) is None
    assert parse_html("<div></div><p><b>" * 2 * MAX_DEPTH) is not None  # side by side, or mere formatting


def test_an_element_that_xhtml_closes_at_once_swallows_nothing() -> None:
    head = '<title/><script src="a.js"/>'
    tree = parse_html(f'<html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body>文</body></html>')
    assert tree is not None
    assert tree.body is not None
    assert tree.body.text() == "文"


def test_drawings_do_not_make_a_page_too_deep() -> None:
    drawing = f"<svg><g>{'<path d=M1/>' * 2_000}</g></svg>"
    tree = parse_html(f"<p>before</p>{drawing}<p>after</p>{drawing}")
    assert tree is not None
    assert [node.text() for node in tree.css("p")] == ["before", "after"]
    assert parse_html("<svg><g>" * 2_000) is None
    assert parse_html("<svg></svg>" + "<div/>" * 2_000) is None
