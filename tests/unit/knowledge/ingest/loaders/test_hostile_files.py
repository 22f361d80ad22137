"""Whatever is in a file, loading it gives a sound draft or a `DocumentError`, and soon."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import list_extensions, load_bytes
from loom_core.knowledge.model import DocumentDraft

pytestmark = pytest.mark.hostile("files of any kind")

DOCUMENTS = Path(__file__).parents[4] / "fixtures" / "documents"
OFFICE = {".docx", ".pptx", ".xlsx", ".xlsm", ".xls", ".ods", ".odt", ".odp", ".epub"}
TEXTUAL = sorted(list_extensions() - {".pdf"} - OFFICE)
SNIPPETS = (
    "# ", "## a\n", "\n\n", "- ", "| a | b |\n|---|---|\n", "```\n", "> ", "---\n", "title: x\n",
    "<h1>", "</h1>", "<table>", "<tr><td>", "<ul><li>", "<pre>", "<main>", "<script>", "&amp;",
    '{"a": ', "[1, ", "]", "}", '"', ",", ";", "\t", "第一章 开始\n", "一、甲\n", "1.1 Scope\n", "====\n",
    "def f(x):\n", "class A:\n    ", "/* ", "*/", '"""', "function g() {\n", "[section]\n", "key:\n",
    "\u0301", "\u2028", "\x00", "\ufeff", "\u3000\u3000", "𠮷", "👩‍👩‍👧", "e\u0301", "\r\n",
)  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=12)), max_size=40).map("".join)


def check(draft: DocumentDraft) -> None:
    assert draft.text.strip()
    assert unicodedata.is_normalized("NFC", draft.text)
    assert not any(char < " " and char not in "\n\t" for char in draft.text)
    draft.text.encode()
    draft.title.encode()
    for block in draft.blocks:
        assert 0 <= block.start < block.end <= len(draft.text)
        assert draft.text[block.start : block.end].strip()
        assert (1 <= block.level <= 6) is (block.kind == "heading")
        assert all(part.strip() for part in block.path)
    assert all(before.end <= after.start for before, after in pairwise(draft.blocks))


def load(name: str, data: bytes) -> DocumentDraft | None:
    try:
        return load_bytes(data, uri="u", name=name)
    except DocumentError as error:
        said, advised = error.message, error.advice
    assert name in said
    assert advised
    return None


@pytest.mark.slow
@given(hostile, st.sampled_from(TEXTUAL), st.sampled_from(["utf-8", "gb18030", "utf-16", "big5"]))
@settings(max_examples=400)
def test_hostile_text_under_every_textual_extension(text: str, extension: str, encoding: str) -> None:
    draft = load(f"a{extension}", text.encode(encoding, "ignore"))
    if draft is not None:
        check(draft)


@pytest.mark.slow
@given(st.binary(max_size=600), st.sampled_from([*TEXTUAL, ".pdf", ".docx", ".pptx", ".odt", ".epub"]))
@settings(max_examples=300)
def test_arbitrary_bytes_under_every_extension(data: bytes, extension: str) -> None:
    draft = load(f"a{extension}", data)
    if draft is not None:
        check(draft)


@pytest.mark.parametrize(
    "name",
    ["harbour.pdf", "outline.pdf", "港口.pdf", "handbook.docx", "plan.pptx", "guide.md", "article.html"],
)
@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
def test_damaged_documents(name: str, data: st.DataObject) -> None:
    content = bytearray((DOCUMENTS / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    draft = load(name, bytes(content[:cut] if data.draw(st.booleans()) else content))
    if draft is not None:
        check(draft)


@pytest.mark.parametrize("name", ["ships.xlsx", "ships.xls", "ships.ods"])
@given(data=st.data())
@settings(max_examples=6, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
def test_damaged_spreadsheets(name: str, data: st.DataObject) -> None:
    content = bytearray((DOCUMENTS / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    draft = load(name, bytes(content))
    if draft is not None:
        check(draft)


@pytest.mark.parametrize("path", sorted(DOCUMENTS.glob("*.*")), ids=lambda path: path.name)
def test_every_fixture_is_sound(path: Path) -> None:
    draft = load(path.name, path.read_bytes())
    if draft is not None:
        check(draft)


@pytest.mark.parametrize(
    ("name", "unit"),
    [("a.md", "> "), ("a.md", "- "), ("a.md", "["), ("a.html", "<b>"), ("a.json", "["), ("a.json", "/*"),
     ("a.csv", '"'), ("a.py", "'''"), ("a.ts", "a("), ("a.txt", "第一章 "), ("a.txt", "\n"),
     ("a.rst", "*a "), ("a.tex", "\\footnote{")],
)  # fmt: skip
def test_a_hundred_kilobytes_of_anything_take_no_time(name: str, unit: str) -> None:
    load(name, (unit * (100_000 // len(unit.encode())) + "\nend").encode())
