"""Choice of a document's title."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.loaders.cleaning import clean_line

if TYPE_CHECKING:
    from pathlib import PurePath

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.model import TitleSource

__all__ = ["choose_title", "readable_name", "usable_title"]

_MAX_TITLE = 300
_MEANINGLESS = re.compile(
    r"(?:untitled|document|presentation|slide|word document|powerpoint presentation|new document|no title"
    r"|index|home|无标题|未命名|未命名文档|文档|演示文稿|幻灯片|powerpoint 演示文稿|ppt演示文稿|首页)"
    r"[\s\-_]*\d*",
    re.IGNORECASE,
)
_PRODUCER = re.compile(r"^(?:microsoft (?:word|powerpoint|excel)|powerpoint 演示文稿) - ", re.IGNORECASE)
_FILE_LIKE = re.compile(r"\S+\.(?:docx?|pptx?|xlsx?|pdf|indd|qxd|tex|dvi|ps|eps|html?|txt|rtf|wps|odt)", re.I)
_SEPARATORS = re.compile(r"[_\s]+|(?<=[^\W\d_])-(?=\w)|(?<=\w)-(?=[^\W\d_])")


def usable_title(title: str) -> str:
    """Clean a title from a file's properties; empty if it is meaningless (`Untitled`, `paper.dvi`)."""
    title = clean_line(title)[:_MAX_TITLE]
    if _PRODUCER.match(title) or _FILE_LIKE.fullmatch(title) or _MEANINGLESS.fullmatch(title):
        return ""
    return title


def readable_name(path: PurePath) -> str:
    """A file name's stem as words: `getting-started.md` → `getting started`; dates keep their dashes."""
    return clean_line(_SEPARATORS.sub(" ", path.stem))[:_MAX_TITLE]


def choose_title(content: LoadedContent, path: PurePath) -> tuple[str, TitleSource]:
    """Choose the loader's own title, else the first heading of level 1, else the file's name."""
    if content.title:
        return content.title, content.title_source
    if heading := _first_heading(content):
        return heading, "heading"
    if path.name and (name := readable_name(path)):
        return name, "filename"
    return "", "none"


def _first_heading(content: LoadedContent) -> str:
    """Return the text of the first level-1 heading, without markup, from the path of the text below it."""
    blocks = content.blocks
    for index, block in enumerate(blocks):
        if block.kind == "heading" and block.level == 1:
            if block.page is not None and block.page > 1:
                return ""  # a chapter, not the document
            path = blocks[index + 1].path if index + 1 < len(blocks) else ()
            text = path[-1] if path else content.text[block.start : block.end]
            return clean_line(text)[:_MAX_TITLE]
    return ""
