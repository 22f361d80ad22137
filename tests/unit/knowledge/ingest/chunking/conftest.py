from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loom_core.knowledge.model import Block, DocumentDraft

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.knowledge.model import BlockKind

_KINDS: dict[str, BlockKind] = {"- ": "list", "| ": "row", "S ": "slide", "T ": "table"}


def _outline(source: str, title: str = "", page: int | None = None) -> DocumentDraft:
    """A document from blocks separated by blank lines, as a loader would give it.

    `# ` begins a heading; `- `, `| `, `S ` and `T ` a list item, row, slide and table; `@name` alone on
    the first line makes the rest a unit of code; a form feed turns the page. Marks of headings are kept
    in the text, outside their block, as the Markdown loader does it.
    """
    blocks: list[Block] = []
    open_headings: list[tuple[int, str]] = []
    text = ""
    for part in source.strip().split("\n\n"):
        if part.startswith("\f"):
            page = (page or 1) + 1
            part = part[1:]
        kind = _KINDS.get(part[:2], "paragraph")
        name, path = "", tuple(heading for _, heading in open_headings)
        level = len(part) - len(part.lstrip("#"))
        if level:
            kind = "heading"
            open_headings = [(depth, heading) for depth, heading in open_headings if depth < level]
            path = tuple(heading for _, heading in open_headings)
            text += "#" * level + " "
            part = part.lstrip("# ")
            open_headings.append((level, part))
        elif part.startswith("@"):
            kind = "code"
            name, _, part = part[1:].partition("\n")
            path = tuple(name.split(".")[:-1]) if name else path
            part = part.replace("¶", "\n")
        elif kind in {"slide", "table"}:
            part = part[2:]
        blocks.append(Block(kind, len(text), len(text) + len(part), path, level, page, name))
        text += part + "\n\n"
    return DocumentDraft("text:test", text, title=title, blocks=tuple(blocks))


@pytest.fixture(scope="session")
def outline() -> Callable[..., DocumentDraft]:
    return _outline
