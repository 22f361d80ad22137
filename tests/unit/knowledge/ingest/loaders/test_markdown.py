from __future__ import annotations

from pathlib import Path

import pytest

from loom_core.knowledge.ingest.loaders import load_file


def test_front_matter_gives_title_and_metadata_and_no_block(documents: Path) -> None:
    draft = load_file(documents / "guide.md")
    assert (draft.title, draft.title_source) == ("Getting Started: the Guide", "metadata")
    assert draft.metadata == {"author": "Ada Lind", "date": "2024-05-17", "tags": ["setup", "install"]}
    assert draft.mime == "text/markdown"
    assert draft.text[draft.blocks[0].start - 2 :].startswith("# Getting")


def test_blocks_cover_the_source_as_it_is_written(documents: Path, outline) -> None:
    assert outline(load_file(documents / "guide.md")) == [
        ("heading", "Getting *Started* with `loom`"),
        ("paragraph", "Loom reads your files and answers\nquestions about them."),
        ("heading", "Install"),
        ("list", "1. Download it."),
        ("list", "2. Run it:\n\n   ```sh\n   loom serve\n   ```"),
        ("paragraph", "> Keep the server\n> on your own machine."),
        ("heading", "Options {#options}"),
        ("row", "| Option | Meaning |"),
        ("row", "| port   | where it listens |"),
        ("row", "| home   | where it stores  |"),
        ("code", '```python\ndef start():\n    return "# not a heading"\n```'),
        ("heading", "Next steps"),
        ("list", "- Read the [handbook](https://example.org)."),
        ("list", "- 提问。"),
    ]


def test_paths_hold_headings_without_markup(documents: Path) -> None:
    draft = load_file(documents / "guide.md")
    assert draft.blocks[0].path == ()
    assert draft.blocks[-1].path == ("Getting Started with loom", "Next steps")
    assert draft.blocks[7].path == ("Getting Started with loom", "Install", "Options")
    assert [block.level for block in draft.blocks if block.kind == "heading"] == [1, 2, 3, 2]


def test_the_first_heading_is_the_title_where_nothing_else_is(documents: Path) -> None:
    draft = load_file(documents / "指南.md")
    assert (draft.title, draft.title_source) == ("使用指南", "heading")
    assert draft.blocks[3].path == ("使用指南", "安装")


def test_without_a_heading_the_file_name_is_the_title(load) -> None:
    draft = load("getting-started_第一步.md", "Just a text.")
    assert (draft.title, draft.title_source) == ("getting started 第一步", "filename")


@pytest.mark.parametrize(
    ("matter", "metadata"),
    [
        ("tags: a, b，c、d", {"tags": ["a", "b", "c", "d"]}),
        ("tags: one two", {"tags": ["one", "two"]}),
        ("tags:\n  - 'x y'\n  - \"z\" # why\n- w", {"tags": ["x y", "z", "w"]}),
        ("keywords: [ '#a', b ]", {"tags": ["a", "b"]}),
        ("author:\n  - Ada\n  - Bo\ndate: 2024", {"author": "Ada, Bo", "date": "2024"}),
        ("Author: 张三\nunknown: x\n  nested: y\ndescription: |\n  text", {"author": "张三"}),
        ("- stray item\nlang: zh", {"lang": "zh"}),
    ],
)
def test_front_matter_is_read_tolerantly(load, matter: str, metadata: dict[str, object]) -> None:
    assert load("a.md", f"---\n{matter}\n---\n\nText.").metadata == metadata


def test_a_rule_at_the_top_is_no_front_matter(load, outline) -> None:
    assert outline(load("a.md", "---\n\nText.\n")) == [("paragraph", "Text.")]


def test_an_underlined_heading_may_run_over_lines(load) -> None:
    draft = load("a.md", "A long\n   heading\n=======\n\nText.\n")
    assert draft.blocks[0].kind == "heading"
    assert draft.blocks[1].path == ("A long heading",)


def test_headings_without_text_and_comments_are_left_out(load, outline) -> None:
    source = "#\n\nText.\n\n<!-- note -->\n\n<div>kept</div>\n\n***\n\n## <b></b>\n"
    assert outline(load("a.md", source)) == [("paragraph", "Text."), ("paragraph", "<div>kept</div>")]


def test_a_footnote_without_spaces_is_read(load, outline) -> None:
    source = (
        "年假十五天[^1]。\n\n[^1]: 试用期为五天。\n[^b]: https://example.org\n\n[link]: https://example.org\n"
    )
    assert outline(load("a.md", source)) == [
        ("paragraph", "年假十五天[^1]。"),
        ("paragraph", "[^1]: 试用期为五天。\n[^b]: https://example.org"),
    ]


def test_an_indented_code_block_keeps_its_indentation(load, outline) -> None:
    assert outline(load("a.md", "Text.\n\n    code\n      more\n")) == [
        ("paragraph", "Text."),
        ("code", "    code\n      more"),
    ]


def test_a_heading_of_any_length_is_read(load) -> None:
    draft = load("a.md", f"# {'word ' * 500}\n\nText.")
    assert draft.blocks[1].path[0].startswith("word word")
    assert len(draft.title) <= 300


def test_windows_line_ends_and_control_characters_are_normalised(load, outline) -> None:
    draft = load("a.md", "\ufeff# Cafe\u0301\r\n\r\nOne\x00 \x07two\r\n")
    assert draft.text == "# Café\n\nOne two\n"
    assert outline(draft) == [("heading", "Café"), ("paragraph", "One two")]
