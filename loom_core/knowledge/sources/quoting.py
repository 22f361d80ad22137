"""Quoting of passages for a language model: as untrusted data, each with its citation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.knowledge.uris import readable
from loom_core.llm.text import as_data
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["QuotedPassages", "quote_passages"]

_SHORTEST = 40  # minimum tokens of a passage that is cut to fit
_CUT = " […]"


@dataclass(frozen=True, slots=True)
class QuotedPassages:
    """Quoted passages within a token budget.

    Attributes:
        text: the passages between tags, each under a line with its id, title and address; empty without any.
        items: the passages in the text.
        is_cut: whether the text holds a single passage, cut short.
    """

    text: str
    items: tuple[KnowledgeItem, ...]
    is_cut: bool = False


def quote_passages(items: Sequence[KnowledgeItem], *, max_tokens: int) -> QuotedPassages:
    """Quote the first passages that fit; the very first is cut if necessary.

    Args:
        items: best first.
        max_tokens: maximum cost of the text, by `estimate_tokens`.
    """
    blocks: list[str] = []
    left = max_tokens
    for item in items:
        block = _block(item, item.content)
        cost = estimate_tokens(block) + 1
        if cost > left:
            break
        blocks.append(block)
        left -= cost
    if items and not blocks:
        room = max_tokens - estimate_tokens(_block(items[0], _CUT)) - 1
        if room < _SHORTEST:
            return QuotedPassages("", ())
        content = items[0].content
        part = content[: len(content) * room // (estimate_tokens(content) + 1)]
        return QuotedPassages(_block(items[0], part + _CUT), (items[0],), is_cut=True)
    return QuotedPassages("\n\n".join(blocks), tuple(items[: len(blocks)]))


def _block(item: KnowledgeItem, text: str) -> str:
    return f"{_citation(item)}\n{as_data('passage', text)}"


def _citation(item: KnowledgeItem) -> str:
    """Return the line above a passage: `[<id>] title › heading (address)`."""
    title, path = item.metadata.get("title"), item.metadata.get("heading_path")
    headings = cast("Sequence[object]", path) if isinstance(path, list | tuple) else ()
    place = escape_controls(" › ".join(part for part in (title, *headings) if isinstance(part, str) and part))
    address = f"({readable(item.source)})" if item.source else ""
    return " ".join(filter(None, (f"[{escape_controls(item.id)}]", place, address)))
