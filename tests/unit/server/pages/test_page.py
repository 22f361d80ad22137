"""A page in one file: what it may do, and that texts in it are data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError, LoomError
from loom_core.server.pages.page import embed_json, page, write_page

_TEXT = st.text(st.characters(categories=None, exclude_categories=())) | st.sampled_from(
    ["</script>", "<!--<script>", "]]>", "\u2028", "\ud800", "&lt;", "老官山汉墓"]
)
_VALUES = st.recursive(
    _TEXT | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(_TEXT, each, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@pytest.mark.hostile("pages")
@given(st.dictionaries(_TEXT, _VALUES, max_size=4))
def test_data_is_read_as_it_was_given_and_never_ends_its_element(data):
    text = embed_json(data)
    assert not set(text) & {"<", ">", "&", "\u2028", "\u2029"}
    text.encode()
    assert json.loads(text) == data


@pytest.mark.hostile("pages")
def test_the_policy_allows_the_styles_and_scripts_of_the_page_by_their_hash_and_nothing_else():
    text = page(title="织机", body="<p></p>", css=["p { margin: 0 }"], scripts=["'use strict';"], data={})
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]*)"', text)[1])
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["img-src"] == ["data:", "blob:"]
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        inside = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in inside]
        assert len(inside) == 2
        assert rules[rule] == [f"'sha256-{digest}'" for digest in digests]


def test_a_page_names_no_place_that_it_could_fetch_anything_from():
    text = page(title="t", body="", data={})
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:,)|@import|url\(|https?://""", text)


def test_a_title_is_text():
    assert "<title>&lt;/title&gt;&lt;script&gt;织机</title>" in page(
        title="</title><script>织机", body="", data={}
    )


def test_more_may_be_allowed_by_name():
    assert "; worker-src blob:" in page(title="t", body="", data={}, policy=["worker-src blob:"])


@pytest.mark.hostile("pages")
@pytest.mark.parametrize("text", ["a </script> b", "x = '</SCRIPT'", "<!-- -->"])
def test_a_script_that_would_end_its_own_element_is_refused(text):
    with pytest.raises(LoomError, match="would end its own element"):
        page(title="t", body="", scripts=[text], data={})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x"])
def test_data_that_is_no_json_is_refused(value):
    with pytest.raises(LoomError, match="not JSON-serializable"):
        embed_json({"a": value})


def test_a_page_is_written_as_utf8_in_the_place_of_what_is_there(tmp_path: Path):
    path = tmp_path / "页.html"
    path.write_text("something longer than the page", encoding="utf-8")
    assert write_page(path, "织机") == 6
    assert path.read_text(encoding="utf-8") == "织机"


def test_a_file_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="cannot be written") as caught:
        write_page(tmp_path / "no" / "x.html", "x")
    assert "--html" in caught.value.advice
