"""Paths and `file://` URIs, there and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.uris import display_uri, path_of, readable, uri_of

names = st.binary(min_size=1, max_size=20).map(
    lambda name: os.fsdecode(b"x" + name.replace(b"/", b"_").replace(b"\0", b"_"))
)


@given(st.lists(names, min_size=1, max_size=3))
def test_a_path_comes_back_from_its_uri_whatever_bytes_its_name_has(parts: list[str]):
    path = Path("/folder", *parts)
    assert path_of(uri_of(path)) == path


def test_a_uri_is_of_the_absolute_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert uri_of(Path("天 气.md")) == tmp_path.as_uri() + "/%E5%A4%A9%20%E6%B0%94.md"


def test_a_file_is_shown_as_its_path_and_all_else_as_it_is():
    assert display_uri("file:///a/b%20c.md") == "/a/b c.md"
    assert display_uri("https://example.org/b%20c") == "https://example.org/b%20c"


def test_letters_of_every_script_are_readable():
    assert readable("file:///a/%E5%A4%A9.md") == "file:///a/天.md"
    assert readable("file:///a/caf%E9.md") == "file:///a/caf%E9.md"
    assert readable("https://example.org/%E5%A4%A9") == "https://example.org/%E5%A4%A9"
