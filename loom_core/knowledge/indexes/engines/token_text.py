"""Token lists as one text: pass tokens made in Python unchanged to an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_searchable", "join_tokens"]


def join_tokens(tokens: Sequence[str] | str) -> str:
    """Join tokens by spaces; splitting at ASCII white space restores them exactly.

    A string is returned unchanged, as it holds joined tokens already.

    Raises:
        InvalidInputError: a token is empty, holds ASCII white space, or cannot be written as UTF-8.
    """
    if isinstance(tokens, str):
        return tokens
    text = " ".join(tokens)
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "A token holds a lone surrogate.", advice="Decode the document's text properly first."
        ) from error
    pieces = encoded.split()
    if len(pieces) != len(tokens) or b" ".join(pieces) != encoded:
        raise InvalidInputError(
            "A token is empty or holds white space.", advice="Make tokens with the analyser of this index."
        )
    return text


def is_searchable(token: str) -> bool:
    """Whether an engine can search for the token: one with a lone surrogate is not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in token)
