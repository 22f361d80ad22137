"""Documents made of texts that a program or a model gives."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.knowledge.model import DocumentDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["text_drafts"]


def text_drafts(
    texts: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
    metadatas: Sequence[dict[str, Any]] | None = None,
    uris: Sequence[str] | None = None,
    mime: str = "text/markdown",
) -> list[DocumentDraft]:
    """Make documents of texts; arguments as in `add_texts`.

    Raises:
        InvalidInputError: there is not one title, one URI and so on for each text.
    """
    for name, values in (("titles", titles), ("metadatas", metadatas), ("uris", uris)):
        if values is not None and len(values) != len(texts):
            raise InvalidInputError(
                f"{len(texts)} texts, but {len(values)} {name}.", advice="Give one for each."
            )
    return [
        DocumentDraft(
            # The same text twice is the same document.
            uri=uris[i] if uris else "text:" + _digest(f"{titles[i] if titles else ''}\0{text}"),
            text=text,
            title=titles[i] if titles else "",
            title_source="given" if titles and titles[i] else "none",
            mime=mime,
            metadata=dict(metadatas[i]) if metadatas else {},
        )
        for i, text in enumerate(texts)
    ]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
